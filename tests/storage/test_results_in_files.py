"""`gb.save` and `gb.load_result`: results and blocks come back equal in every bit, or the file is named."""

import inspect
import os
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from drawn_blocks import cases
from forged import rewrite
from hypothesis import given
from refusals import refuse

import gbackprop as gb
from gbackprop import array, layers, losses
from gbackprop import quantities as q
from gbackprop.base.extras import MissingExtraError
from gbackprop.base.files import OutputError
from gbackprop.interop.files import StoredLoss, StoredQuantity
from gbackprop.kronecker import Block, BlockDiagonal, EigenKronecker, Kronecker
from gbackprop.testing.runs import every_quantity
from gbackprop.testing.strategies import outputs, targets

safetensors = pytest.importorskip("safetensors.numpy")
RNG = np.random.default_rng(0)


def network(dtype="float64", outputs=3):
    chain = [layers.Conv2d(2, 4, 2, groups=2), layers.Sigmoid(), layers.ConvTranspose2d(4, 2, 2), layers.Flatten()]
    return gb.Sequential(*chain, layers.Linear(18, outputs), rng=0, dtype=dtype)


def batch(dtype="float64", n=5):
    return RNG.standard_normal((n, 2, 3, 3)).astype(dtype), np.arange(n) % 3


def same(one, other):
    """Return whether two values are of one class and equal in every bit, inside too."""
    if isinstance(one, Block | BlockDiagonal):
        assert type(one) is type(other)
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | np.generic):
        bits = type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        return bits and one.tobytes() == other.tobytes()
    return type(one) is type(other) and one == other


def same_result(one, other):
    parts = [same(getattr(one, name), getattr(other, name)) for name in ("loss", "output", "gradient", "scale")]
    parts += [same(dict(a), dict(b)) for a, b in zip(one.values, other.values, strict=True)]
    parts += [repr(one.quantities) == repr(other.quantities), repr(one.objective) == repr(other.objective)]
    return all(parts)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "result.safetensors"


def saved(thing, path, **options):
    gb.save(thing, path)
    return gb.load_result(path, **options)


# ------------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_quantity_comes_back(dtype, path):
    net, (x, y) = network(dtype), batch(dtype)
    result = gb.backward(net, losses.CrossEntropyLoss("sum"), x, y, *every_quantity(), rng=0)
    loaded = saved(result, path, network=net)
    assert same_result(result, loaded)
    assert [type(quantity) for quantity in loaded.quantities] == [type(quantity) for quantity in result.quantities]
    for quantity in every_quantity():
        assert same(dict(loaded[quantity]), dict(result[quantity])), quantity


def test_errors_and_other_conventions_come_back(path):
    net, (x, y) = network(), batch()
    kfac, error = q.KFAC(fisher="exact", sharing="expand"), q.KroneckerError(q.KFLR(), columns=1000, rng=1)
    asked = [kfac, error, q.EKFAC(fisher="exact"), q.NearestKronecker(tolerance=1e-6)]
    result = gb.backward(net, losses.CrossEntropyLoss(), x, y, *asked)
    loaded = saved(result, path, network=net)
    assert [repr(quantity) for quantity in loaded.quantities] == [repr(quantity) for quantity in asked]
    for quantity in asked:
        assert same(dict(loaded[quantity]), dict(result[quantity])), quantity
    assert loaded.error(q.KFLR()) == result.error(q.KFLR())


def test_a_result_without_quantities_and_without_a_loss(path):
    x, y = batch()
    result = gb.backward(network(), losses.CrossEntropyLoss(), x, y)
    assert same_result(saved(result, path), result)
    bare = replace(result, objective=None, scale=None)
    assert same_result(saved(bare, path), bare)


def test_a_result_of_one_sample(path):
    x, y = batch()
    result = gb.backward(network(), losses.CrossEntropyLoss(), x[:1], y[:1], q.BatchGrad())
    assert same_result(saved(result, path), result)


def test_arrays_have_names_and_quantities_of_one_name_stay_apart(path):
    x, y = batch()
    result = gb.backward(network(), losses.CrossEntropyLoss(), x, y, q.KFAC(2), q.KFAC(3), q.KFLR(), rng=0)
    loaded = saved(result, path)
    for quantity in (q.KFAC(2), q.KFAC(3)):
        assert same(dict(loaded[quantity]), dict(result[quantity]))
    names = set(safetensors.load_file(path))
    assert {"loss", "output", "gradient/0.weight", "kflr/0.weight/B", "kflr/0.bias/B"} <= names
    assert {"kfac 0/0.weight/A", "kfac 0/0.weight/B", "kfac 1/0.weight/B"} <= names
    assert "kflr/0.bias/A" not in names
    assert "kfac 1/0.weight/A" not in names  # both have the same A, one array in the result and in the file
    with pytest.raises(KeyError, match="2 quantities are called 'kfac'"):
        loaded["kfac"]


def test_loaded_results_are_merged_as_the_ones_that_were_saved(path):
    net, (x, y) = network(), batch(n=6)
    loss, asked = losses.CrossEntropyLoss(weight=np.array([1.0, 2.0, 0.5])), [q.Variance(), q.KFLR(), q.BatchGrad()]
    parts = [gb.backward(net, loss, x[rows], y[rows], *asked) for rows in (slice(2), slice(2, 6))]
    loaded = [saved(part, path) for part in parts]
    merged = gb.data.merge(parts)
    assert same_result(gb.data.merge(loaded), merged)
    assert same_result(gb.data.merge([parts[0], loaded[1]]), merged)
    assert same_result(saved(merged, path), merged)


def test_pseudo_targets_are_in_the_file_and_found_by_name(path):
    x, y = batch()
    quantity = q.KFAC(targets=np.stack([y, y[::-1]]))
    result = gb.backward(network(), losses.CrossEntropyLoss(), x, y, quantity)
    loaded = saved(result, path)
    (found,) = loaded.quantities
    assert same(found.targets, np.ascontiguousarray(quantity.targets))
    assert found.mc_samples == 2
    assert quantity not in loaded
    assert same(dict(loaded["kfac"]), dict(result["kfac"]))
    again = gb.backward(network(), loaded.objective, x, y, found)
    assert same(dict(again["kfac"]), dict(result["kfac"]))


LOSSES = [
    losses.CrossEntropyLoss("sum", weight=np.ones(3), ignore_index=2, label_smoothing=0.1),
    losses.MSELoss("sum"),
    losses.BCEWithLogitsLoss(weight=np.ones(3), pos_weight=np.array([3.0])),
    losses.HuberLoss(delta=0.3),
    losses.SmoothL1Loss("sum", beta=0.2),
    losses.PoissonNLLLoss(log_input=True, full=True, eps=1e-7),
    losses.BCELoss(weight=np.array([0.5, 1.0, 2.0])),
    losses.NLLLoss("sum", weight=np.ones(3), ignore_index=1),
    losses.L1Loss("sum"),
    losses.GaussianNLLLoss(full=True, eps=0.1),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_losses_come_back_with_their_options(loss, path):
    x, y = batch()[0], targets(loss, (5, 3), 0)
    result = gb.backward(gb.Sequential(network(), layers.Sigmoid()), loss, x, y)
    found = saved(result, path).objective
    assert type(found) is type(loss)
    assert repr(found) == repr(loss)
    output = outputs(loss, (5, 3), 0)
    np.testing.assert_array_equal(found(output, y), loss(output, y))


def test_no_loss_is_missing():
    assert {type(loss).__name__ for loss in LOSSES} == set(losses.__all__) - {"Loss"}


@pytest.mark.parametrize(
    "kind",
    [
        getattr(module, name)
        for module, base in ((q, q.Quantity), (losses, losses.Loss))
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) and issubclass(getattr(module, name), base)
    ],
)
def test_arguments_are_attributes(kind):
    """What a class is made with is read from its objects when they are saved."""
    if kind.__init__ is not object.__init__:
        thing = q.KroneckerError(q.KFAC()) if kind is q.KroneckerError else kind()
        assert all(hasattr(thing, name) for name in list(inspect.signature(kind.__init__).parameters)[1:])


def test_an_array_in_two_places_is_one_in_the_file(path):
    x, y = batch()
    result = gb.backward(network(), losses.CrossEntropyLoss(), x, y, q.DiagGGN(), q.DiagHessian())
    shared = replace(result, values=[result.values[0], result.values[0]])
    loaded = saved(shared, path)
    assert loaded.values[0]["0.weight"] is loaded.values[1]["0.weight"]
    assert len(safetensors.load_file(path)) == 2 + 2 * len(result.gradient)


def test_arrays_on_a_gpu_are_copied_to_the_host(path, gpu):
    x, y = batch()
    want = gb.backward(network(), losses.CrossEntropyLoss(), x, y, q.KFLR(), q.BatchL2Grad())
    parts = gb.asarray(x, "cuda"), gb.asarray(y, "cuda")
    result = gb.backward(network().to("cuda"), losses.CrossEntropyLoss(), *parts, q.KFLR(), q.BatchL2Grad())
    loaded = saved(result, path)
    for name, block in loaded["kflr"].items():
        assert array.device_of(block.B) == "cpu"
        np.testing.assert_array_equal(block.B, gb.asnumpy(result["kflr"][name].B))
        np.testing.assert_allclose(block.to_dense(), want["kflr"][name].to_dense(), rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------------------------- classes that are not gbackprop's


class Largest(q.Quantity):
    """A quantity of a user, with values of several kinds."""

    name = "largest"
    scale = "max"

    def statistics(self):
        return (q.Statistic("sum", gb.signals.GRADIENT),)

    def finish(self, scale, gradient):
        return {"max": gradient.max(), "where": (int(gradient.argmax()), None), "block": Kronecker(None, np.eye(2))}


class MyLoss(losses.MSELoss):
    """A loss of a user."""


def users_result():
    x, _ = batch()
    return gb.backward(network(), MyLoss("sum"), x, np.ones((5, 3)), Largest(), q.Variance())


def test_a_users_quantity_comes_back_as_its_values(path):
    result = users_result()
    loaded = saved(result, path)
    stored, variance = loaded.quantities
    assert isinstance(stored, StoredQuantity)
    assert repr(stored) == "StoredQuantity(Largest())"
    assert same(dict(loaded["largest"]), dict(result["largest"]))
    assert same(dict(loaded[variance]), dict(result["variance"]))
    with pytest.raises(
        gb.UnsupportedError, match=r"StoredQuantity\(Largest\(\)\) cannot be merged: a file has its values"
    ):
        gb.data.merge([loaded])
    x, _ = batch()
    with pytest.raises(
        gb.UnsupportedError, match=r"Largest\(\) cannot be computed: a file has its values, and not its"
    ):
        gb.backward(network(), losses.MSELoss(), x, np.ones((5, 3)), stored)
    assert repr(saved(loaded, path)) == repr(loaded)
    again = replace(loaded, quantities=result.quantities)
    assert again[result.quantities[0]] is loaded.values[0]


def test_a_users_loss_comes_back_as_what_results_are_merged_by(path):
    result = replace(users_result(), quantities=(q.Variance(),), values=users_result().values[1:])
    loaded = saved(result, path)
    assert isinstance(loaded.objective, StoredLoss)
    assert repr(loaded.objective) == repr(result.objective) == "MyLoss('sum')"
    assert same_result(gb.data.merge([result, loaded]), gb.data.merge([result, result]))
    with pytest.raises(NotImplementedError, match="StoredLoss has no"):
        loaded.objective(np.ones((2, 3)), np.ones((2, 3)))


def test_a_users_loss_from_a_file_has_no_weight_for_scales_of_other_libraries(path):
    """Squared error has 1/C in it, and its class is what says so."""
    x, _ = batch()
    result = gb.backward(network(), MyLoss("mean"), x, np.ones((5, 3)), q.KFAC(fisher="empirical", sharing="expand"))
    assert result.scaled("kfac", "laplace").keys() == result["kfac"].keys()
    with pytest.raises(gb.UnsupportedError, match=r"MyLoss\('mean'\): its weight is not known: a file has its values"):
        saved(result, path).scaled("kfac", "laplace")


class MyKFAC(q.KFAC):
    """A quantity of a user."""


def test_an_error_of_a_users_approximation_comes_back_as_its_values(path):
    x, y = batch()
    result = gb.backward(network(), losses.CrossEntropyLoss(), x, y, q.KroneckerError(MyKFAC()), rng=0)
    loaded = saved(result, path)
    assert repr(loaded.quantities) == "(StoredQuantity(KroneckerError(MyKFAC(mc_samples=1))),)"
    assert loaded["kronecker_error"] == result["kronecker_error"]


class Gradient(Largest):
    """A quantity of a user with the name of something else."""

    name = "gradient"

    def finish(self, scale, gradient):
        return 2 * gradient


def test_a_quantity_may_have_any_name(path):
    x, _ = batch()
    result = gb.backward(network(), losses.MSELoss(), x, np.ones((5, 3)), Gradient())
    assert same_result(replace(saved(result, path), quantities=result.quantities), result)


class Fresh(dict):
    """Values that are moved to the device when they are asked for, and forgotten then."""

    def items(self):
        return ((name, gb.asarray(value, "cuda")) for name, value in super().items())


def test_arrays_that_do_not_last_are_not_taken_for_each_other(path, double):
    values = {str(i): np.full(3, float(i)) for i in range(20)}
    result = replace(plain_result(), values=[Fresh(values)])
    assert same(saved(result, path).values[0], values)


class Odd(Largest):
    """A quantity whose value no file can have."""

    def finish(self, scale, gradient):
        return self.value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "largest/0.weight: expected an array, a block of gb.kronecker, a number, text, None, or a list"),
        ([{1: 2}], "largest/0.weight/0: expected an array"),
        (np.array([None]), "largest/0.weight: expected a dtype among bool, int8, "),
        (np.ones(2, complex), "largest/0.weight: expected a dtype among bool, int8, "),
    ],
    ids=["object", "dict", "objects", "complex"],
)
def test_values_that_no_file_can_have_are_named_and_nothing_is_written(value, words, path):
    quantity = Odd()
    quantity.value = value
    x, _ = batch()
    result = gb.backward(network(), losses.MSELoss(), x, np.ones((5, 3)), quantity)
    refuse(TypeError, [words], lambda: gb.save(result, path))
    assert os.listdir(path.parent) == []


# -------------------------------------------------------------------------------------------------------------- blocks


@given(case=cases())
def test_blocks_come_back(tmp_path_factory, case):
    block, path = case.block(), tmp_path_factory.mktemp("blocks") / "block"
    assert same(saved(block, path), block)
    total = block + 2 * block.eigh()
    assert same(saved(total, path), total)
    assert same(saved(block.inverse(0.1, "exact"), path), block.inverse(0.1, "exact"))
    both = BlockDiagonal({"0.weight": block, "a": total})
    assert same(saved(both, path), both)


def test_bits_that_are_no_numbers_come_back(path):
    block = EigenKronecker(None, np.full((2, 2), np.nan), np.array([-0.0, np.inf]))
    assert same(saved(block, path), block)
    order = Kronecker(None, np.asfortranarray(np.arange(4.0).reshape(2, 2)))
    np.testing.assert_array_equal(saved(order, path).B, order.B)


class Own(Kronecker):
    """A block of a user."""


def test_a_users_block_is_refused(path):
    words = "block: expected an array, a block of gb.kronecker"
    refuse(TypeError, [words], lambda: gb.save(Own(None, np.eye(2)), path))


# -------------------------------------------------------------------------------------------------------------- errors


def plain_result():
    x, y = batch()
    return gb.backward(network(), losses.CrossEntropyLoss(), x, y, q.KFLR())


def block(tree):
    return tree["values"][0]["dict"]["0.bias"]["block"]


UNFIT = "damaged: what it says does not fit its arrays"
NO_HEADER = "damaged: its header does not say what it has"
NO_BLOCK = f"{UNFIT} (kflr/0.bias: expected the class and the parts of a block, got ['"
DAMAGE = {
    "no JSON": (lambda tree, arrays: "{", NO_HEADER),
    "no version": (lambda tree, arrays: tree.pop("version") and None, NO_HEADER),
    "no object": (lambda tree, arrays: "[1]", NO_HEADER),
    "a name twice": (lambda tree, arrays: '{"version": 2, "kind": "block", "kind": "result"}', NO_HEADER),
    "no end": (lambda tree, arrays: "[" * 10**5, f"{NO_HEADER} (it is nested too deeply)"),
    "no end inside": (lambda tree, arrays: tree.update(loss=nested(400)), "damaged: "),
    "a later version": (lambda tree, arrays: tree.update(version=3), "expected version 2 of the format, got 3"),
    "an array is missing": (lambda tree, arrays: arrays.pop("kflr/0.bias/B")[:0].tolist(), UNFIT),
    "an array too many": (
        lambda tree, arrays: arrays.update(more=arrays["output"]),
        f"{UNFIT} (header: expected all arrays, got ['more'])",
    ),
    "another kind": (lambda tree, arrays: tree.update(kind="other"), "expected a result, a block or a Laplace"),
    "a value is missing": (lambda tree, arrays: tree["values"].pop() and None, "values: expected those of 1 quant"),
    "no block": (lambda tree, arrays: block(tree).__setitem__(0, "with_factors"), f"{NO_BLOCK}with_factors'"),
    "no such class": (lambda tree, arrays: block(tree).__setitem__(0, "subprocess"), f"{NO_BLOCK}subprocess'"),
    "a block of nothing": (lambda tree, arrays: block(tree)[1].update(B=None), "kflr/0.bias: B: expected a NumPy"),
    "an argument": (
        lambda tree, arrays: tree["quantities"][0]["arguments"]["dict"].update(power=2),
        "KFLR has no argument 'power'",
    ),
    "no result": (
        lambda tree, arrays: {"version": 2, "kind": "block", "value": 3},
        "block: expected a block, got 3",
    ),
    "a number for a text": (lambda tree, arrays: tree["quantities"][0].update(name=3), "name: expected a text, got 3"),
    "a private class": (
        lambda tree, arrays: tree["quantities"][0].update({"class": "__class__"}),
        "quantity 0: expected the name of a class, got '__class__'",
    ),
    "another quantity": (
        lambda tree, arrays: tree["quantities"][0].update(name="kfac"),
        "quantity 0: expected a quantity called 'kfac', got KFLR()",
    ),
    "another reduction": (
        lambda tree, arrays: tree["objective"].update(reduction="sum"),
        "objective: expected the reduction 'sum', got CrossEntropyLoss('mean')",
    ),
    "no batch": (lambda tree, arrays: tree["scale"].update(batch=-5), "batch: expected a number of samples, got -5"),
    "part of a batch": (lambda tree, arrays: tree["scale"].update(batch=2.5), "batch: expected a number of samples"),
    "no factor": (lambda tree, arrays: tree["scale"].update(factor=float("nan")), "factor: expected a finite number"),
    "no dtype": (lambda tree, arrays: tree["scale"].update(dtype="object"), "dtype: expected float32 or float64"),
    "a text for names of rows": (lambda tree, arrays: tree["scale"].update(rows="0.weight"), "rows: expected names"),
    "numbers for names of rows": (lambda tree, arrays: tree["scale"].update(rows=[0]), "rows: expected names, got [0]"),
    "no loss": (lambda tree, arrays: tree.update(loss=None), "loss: expected a scalar, got None"),
    "no output": (lambda tree, arrays: tree.update(output=None), "output: expected an array, got None"),
    "no gradient": (lambda tree, arrays: tree.update(gradient=None), "gradient: expected a dict, got None"),
    "no numbers": (
        lambda tree, arrays: tree["gradient"]["dict"].update({"0.bias": None}),
        "gradient/0.bias: expected an array, got None",
    ),
    "no shapes of inputs": (
        lambda tree, arrays: tree.update(inputs=[["a"]]),
        "expected names with positive sizes after the batch, got 0: ['a']",
    ),
    "inputs that are no shapes": (lambda tree, arrays: tree.update(inputs=3), "inputs: expected shapes by name, or in"),
    "no values": (
        lambda tree, arrays: tree["values"][0]["dict"].update({"0.bias": None}),
        "kflr/0.bias: expected an array or a block, got None",
    ),
}


@pytest.mark.parametrize("named", [True, False])
def test_what_is_of_several_inputs_is_found_by_the_name_of_all(named, path):
    keys = ["a", "b"] if named else ["0", "1"]
    rows = {key: (layers.Linear(size, 3), f"input.{key}") for key, size in zip(keys, (2, 4))}
    inputs = {"a": 2, "b": 4} if named else [2, 4]
    net = gb.Graph(rows | {"y": (layers.Add(), *keys)}, inputs=inputs, rng=0, dtype="float64")
    x = [RNG.standard_normal((5, 2)), RNG.standard_normal((5, 4))]
    x = dict(zip(keys, x)) if named else tuple(x)
    result = gb.backward(net, losses.MSELoss(), x, np.zeros((5, 3)), q.BatchGrad(), wrt="x")
    gb.save(result, path)
    loaded = gb.load_result(path)
    assert same_result(loaded, result)
    for values in (loaded.gradient, loaded["batch_grad"], result.scaled(q.BatchGrad(), "backpack")):
        assert same(values["x"], result.gradient["x"])


def nested(depth):
    return {"list": [nested(depth - 1)]} if depth else None


@pytest.mark.parametrize("name", DAMAGE)
def test_what_does_not_fit_together_is_named(name, path):
    change, words = DAMAGE[name]
    gb.save(plain_result(), path)
    rewrite(path, change)
    refuse(ValueError, [f"{path}: ", words], lambda: gb.load_result(path))


@pytest.mark.parametrize("name", ["Statistic", "Reduction", "Kronecker", "EFFECT", None])
def test_what_is_no_quantity_of_this_version_stands_for_itself(name, path):
    """Of a class that a later version has, or that is none of a quantity: nothing is made of it."""
    gb.save(plain_result(), path)
    rewrite(path, lambda tree, arrays: tree["quantities"][0].update({"class": name, "arguments": {"dict": {}}}))
    (stored,) = gb.load_result(path).quantities
    assert repr(stored) == "StoredQuantity(KFLR())"
    assert "0.weight" in gb.load_result(path)["kflr"]


@pytest.mark.parametrize("few", [True, False])
def test_a_state_dict_is_no_result_and_a_result_no_state_dict(path, few):
    gb.save(gb.Sequential(layers.Linear(3, 3), rng=0) if few else network(), path)
    words = [
        f"{path}: expected a result, a block or a Laplace approximation of gb.save, got a state dict or other arrays",
        "['0.bias', '0.weight']: gb.load(network, path) reads" if few else "'0.bias', '0.weight', '2.bias'], …: gb",
    ]
    refuse(ValueError, words, lambda: gb.load_result(path))
    gb.save(plain_result(), path)
    words = [f"{path}: expected a state dict, got a result of gb.save: gb.load_result reads it"]
    refuse(ValueError, words, lambda: gb.load(network(), path))


def test_a_result_of_another_network_is_named(path):
    gb.save(plain_result(), path)
    words = [f"{path}: expected the parameters of the network, ", "'4.weight': (7, 18)", "got", "'4.weight': (3, 18)"]
    refuse(ValueError, words, lambda: gb.load_result(path, network(outputs=7)))
    refuse(TypeError, ["network: expected a network such as gb.Sequential, got str"], lambda: gb.load_result(path, "x"))
    gb.save(Kronecker(None, np.eye(2)), path)
    words = [f"{path}: expected a result, as a network is given, got a Kronecker"]
    refuse(ValueError, words, lambda: gb.load_result(path, network()))


def test_frozen_parameters_are_in_no_result_and_nothing_is_drawn(path):
    x, y = batch()
    net = network().freeze("0")
    gb.save(gb.backward(net, losses.CrossEntropyLoss(), x, y), path)
    undrawn = gb.Sequential(*[layer for _, layer in network().named_layers()])
    assert list(gb.load_result(path, net).gradient) == list(net.trainable)
    with pytest.raises(ValueError, match="expected the parameters of the network"):
        gb.load_result(path, undrawn)


def test_what_cannot_be_saved_is_named(path):
    words = ["value: expected a network such as gb.Sequential, a Result, a block of gb.kronecker or a ", "got dict"]
    refuse(TypeError, words, lambda: gb.save({}, path))


@pytest.mark.parametrize("end", [".npz", ".pt", ".onnx"])
def test_a_name_of_another_format_is_refused(end, path):
    words = [f"result{end}: expected a name that ends in .safetensors, the format that gb.save writes"]
    for value in (plain_result(), gb.Sequential(layers.Linear(2, 2), rng=0)):
        refuse(ValueError, words, lambda value=value: gb.save(value, path.with_name(f"result{end}")))
    assert not path.with_name(f"result{end}").exists()


def test_a_folder_that_is_missing_is_named(path):
    words = [f"{path.parent / 'no'}: no such folder to write result.safetensors to"]
    result = plain_result()
    refuse(OutputError, words, lambda: gb.save(result, path.parent / "no" / path.name))


def test_without_the_package_the_extra_is_named(path, monkeypatch):
    net, result = network(), plain_result()
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    calls = ("save", (net, path)), ("save", (result, path)), ("load", (net, path)), ("load_result", (path,))
    for name, arguments in calls:
        words = f"gb.{name}: the package 'safetensors' is not installed; pip install \"gbackprop[interop]\""
        refuse(MissingExtraError, [words], lambda name=name, given=arguments: getattr(gb, name)(*given))

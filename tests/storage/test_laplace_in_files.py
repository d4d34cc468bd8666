"""`gb.save` and `gb.load_result` of Laplace approximations: each number has the same bits, or the file is named."""

from dataclasses import replace

import numpy as np
import pytest
from forged import rewrite
from refusals import refuse

import gbackprop as gb
from gbackprop import array, layers, losses
from gbackprop import quantities as q
from gbackprop.curvature.laplace import Laplace
from gbackprop.curvature.laplace.structures import Blocks
from gbackprop.kronecker import EigenKronecker

pytest.importorskip("safetensors.numpy")
RNG = np.random.default_rng(0)
X, NEW, LABELS = RNG.standard_normal((6, 2, 4, 4)), RNG.standard_normal((3, 2, 4, 4)), np.arange(6) % 3


def network(seed=0, dtype="float64", outputs=3, activation=layers.Sigmoid):
    chain = [layers.Conv2d(2, 4, 2, groups=2), activation(), layers.BatchNorm2d(4), layers.Flatten()]
    return gb.Sequential(*chain, layers.Linear(36, outputs), rng=seed, dtype=dtype)


def made(structure="kron", dtype="float64", loss=None, net=None, **given):
    loss, x = loss or losses.CrossEntropyLoss(), X.astype(dtype)
    y = RNG.standard_normal((6, 3)).astype(dtype) if isinstance(loss, losses.MSELoss) else LABELS
    return Laplace(net or network(dtype=dtype), loss, [(x[:4], y[:4]), (x[4:], y[4:])], structure, rng=1, **given)


def numbers(laplace, dtype="float64"):
    """All that an approximation computes, as bytes."""
    new = NEW.astype(dtype)
    found = [laplace.log_marginal_likelihood(), laplace.decrement(), *laplace.effective_parameters().values()]
    found += [*laplace.sample(3, rng=2).values(), *laplace.mean.values(), *laplace.functional(new)]
    for method in ("probit", "mc"):
        predicted = laplace.predict(new, method, samples=4, rng=3)
        found += predicted if isinstance(predicted, tuple) else [predicted]
    if dtype == "float64":
        better = laplace.with_prior(2.0, temperature=0.5)
        found += [better.log_marginal_likelihood(), better.predict(new)[0], *better.sample(2, rng=4).values()]
    return [(np.asarray(part).dtype, np.shape(part), np.asarray(part).tobytes()) for part in found]


CASES = {
    "full": {"structure": "full"},
    "full, each": {"structure": "full", "parameters": "last", "prior_precision": {"4.weight": 2.0, "4.bias": 0.3}},
    "kron": {"structure": "kron", "temperature": 0.7},
    "kron of draws": {"structure": "kron", "curvature": q.KFAC(2), "parameters": ["4", "0.weight"]},
    "joint": {"structure": "kron", "curvature": q.KFAC(fisher="exact", joint_bias=True), "parameters": "last"},
    "noise": {"structure": "kron", "loss": losses.MSELoss("sum"), "noise_variance": 0.2},
    "diag": {"structure": "diag", "dtype": "float32"},
    "regression": {"structure": "diag", "loss": losses.MSELoss(), "prior_precision": 0.1},
    "bits": {"structure": "kron", "loss": losses.BCEWithLogitsLoss()},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "laplace.safetensors"


def test_blocks_by_eigenvectors_are_read(path):
    """Files that earlier versions wrote have these."""
    laplace = made()
    evidence = laplace.evidence
    blocks = {name: block.eigh() for name, block in evidence.structure.blocks.items()}
    laplace.evidence = replace(evidence, structure=Blocks(blocks))
    gb.save(laplace, path)
    loaded = gb.load_result(path, network())
    assert {type(block) for block in loaded.evidence.structure.blocks.values()} == {EigenKronecker}
    assert loaded.log_marginal_likelihood() == pytest.approx(evidence.value(laplace.hyperparameters), rel=1e-12)


@pytest.mark.parametrize("structure", ["full", "diag"])
def test_arrays_have_the_order_in_memory_in_which_they_come_back(structure, path):
    """Sums in another order have other bits, in one of twenty networks with convolutions."""
    net = gb.Sequential(layers.Conv2d(2, 4, 2), layers.Flatten(), layers.Linear(36, 3), rng=0, dtype="float64")
    laplace = Laplace(net, losses.CrossEntropyLoss(), (X, LABELS), structure)
    gb.save(laplace, path)
    strides = [
        [part.strides for part in (*each._slope.values(), *getattr(curved, "blocks", {"": curved}).values())]
        for each in (laplace, gb.load_result(path, net))
        for curved in [getattr(each.evidence.structure, "matrix", each.evidence.structure)]
    ]
    assert strides[0] == strides[1]


def test_a_matrix_over_parameters_that_are_not_computed_in_the_order_of_their_names(path):
    """In an encoder layer norm1 comes before linear1 in the computation, and after linear2 in the state dict."""
    encoder = gb.Sequential(gb.TransformerEncoderLayer(4, 2, 3, dropout=0.0), rng=0, dtype="float64")
    x, y = RNG.standard_normal((2, 5, 3, 4))
    prior = {name: 0.5 + i for i, name in enumerate(encoder.trainable)}
    laplace = Laplace(encoder, losses.MSELoss("sum"), (x, y), "full", prior_precision=prior)
    gb.save(laplace, path)
    loaded = gb.load_result(path, encoder)
    assert np.array_equal(loaded.functional(x).covariance, laplace.functional(x).covariance)
    assert loaded.effective_parameters() == laplace.effective_parameters()
    assert loaded.decrement() == laplace.decrement()


@pytest.mark.parametrize("name", CASES)
def test_all_numbers_are_the_same_in_every_bit(name, path):
    case = CASES[name]
    if name == "bits":
        x, y = X, (LABELS[:, None] > np.arange(3)).astype("float64")
        laplace = Laplace(network(), case["loss"], (x, y), case["structure"])
    else:
        laplace = made(**case)
    gb.save(laplace, path)
    dtype = case.get("dtype", "float64")
    net = network(dtype=dtype)
    loaded = gb.load_result(path, net)
    assert numbers(loaded, dtype) == numbers(laplace, dtype)
    assert (loaded.prior_precision, loaded.noise_variance) == (laplace.prior_precision, laplace.noise_variance)
    assert repr(loaded.loss) == repr(laplace.loss)
    before = numbers(loaded, dtype)
    net.parameters["4.bias"] = np.ones(3)  # it is a copy
    assert numbers(loaded, dtype) == before


@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_arrays_are_on_the_device_of_the_network(structure, path, gpu):
    gb.save(made(structure), path)
    host, there = gb.load_result(path, network()), gb.load_result(path, network().to("cuda"))
    predicted = there.predict(gb.asarray(NEW, "cuda"))
    assert array.device_of(predicted) == "cuda:0"
    np.testing.assert_allclose(gb.asnumpy(predicted), host.predict(NEW), rtol=1e-9)
    assert there.log_marginal_likelihood() == pytest.approx(host.log_marginal_likelihood(), rel=1e-9)
    gb.save(there, path)
    assert numbers(gb.load_result(path, network())) == numbers(host)


OTHERS = {
    "other numbers": (lambda: network(1), "expected the parameters and buffers around which the approximation"),
    "another dtype": (lambda: network(dtype="float32"), "expected the parameters and buffers around which"),
    "another layer": (lambda: network(activation=layers.Tanh), "expected the network of the approximation, Seq"),
    "other shapes": (lambda: network(outputs=4), "expected the network of the approximation, Sequential("),
    "none": (lambda: None, "expected its network, too, as a Laplace approximation is read: network=…"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_network_is_refused(name, path):
    gb.save(made(), path)
    other, words = OTHERS[name]
    refuse(ValueError, [f"{path}: {words}"], lambda: gb.load_result(path, other()))


class Scaled(layers.Layer):
    """k x, of which the layer's text tells nothing."""

    def __init__(self, k):
        self.k = k

    def forward(self, x):
        return self.k * x, None

    def mjp(self, saved, mat):
        return self.k * mat

    jmp = mjp


def test_attributes_that_no_text_shows_count(path):
    gb.save(made(net=network(activation=lambda: Scaled(1.0)), parameters="last"), path)
    words = [f"{path}: expected the network of the approximation, got other attributes of layer 1, Scaled()"]
    refuse(ValueError, words, lambda: gb.load_result(path, network(activation=lambda: Scaled(5.0))))
    net = network(activation=lambda: Scaled(1.0))
    for other in (net, net.freeze("0"), net.unfreeze()):
        gb.load_result(path, other)


def test_a_text_that_differs_by_an_address_alone_makes_no_other_network(path, monkeypatch):
    monkeypatch.setattr(Scaled, "__repr__", object.__repr__)
    net, other = (network(activation=lambda: Scaled(1.0)) for _ in range(2))
    assert repr(net) != repr(other)
    saved = made(net=net)
    gb.save(saved, path)
    assert numbers(gb.load_result(path, other)) == numbers(saved)


def test_equal_networks_count_as_equal_however_they_were_made(path):
    gb.save(made(dtype="float32", net=network(dtype=None)), path)
    gb.load_result(path, network(dtype="float32"))
    gb.load_result(path, network(dtype="float64").astype("float32").load_state_dict(network(dtype=None).state_dict()))


def test_a_buffer_counts(path):
    gb.save(made(), path)
    net = network()
    net.buffers["2.running_mean"] = np.ones(4)
    refuse(ValueError, [f"{path}: expected the parameters and buffers"], lambda: gb.load_result(path, net))


def test_other_readers_name_it(path):
    gb.save(made(), path)
    words = [f"{path}: expected a state dict, got a Laplace approximation of gb.save: gb.load_result reads it"]
    refuse(ValueError, words, lambda: gb.load(network(), path))


WRONG = {
    "names": (lambda tree, arrays: tree["names"].reverse(), "names: expected parameters, each once"),
    "a name too few": (lambda tree, arrays: tree["names"].pop() and None, "slope: expected arrays of"),
    "no header": (lambda tree, arrays: tree.pop("total") and None, "header: expected an object with version, kind"),
    "no names": (lambda tree, arrays: tree.update(names=None), "names: expected a list, got None"),
    "structure": (lambda tree, arrays: tree.update(structure="diag"), "curvature/0.weight: expected an array"),
    "no structure": (lambda tree, arrays: tree.update(structure=[]), "structure: expected full or kron or diag, got"),
    "of full": (lambda tree, arrays: tree.update(structure="full"), "curvature: expected an array"),
    "precision": (lambda tree, arrays: tree.update(prior_precision=-1.0), "prior_precision: expected a finite number"),
    "precisions": (
        lambda tree, arrays: tree.update(prior_precision={"dict": {"a": 1.0}}),
        "prior_precision: expected a number for each of",
    ),
    "noise": (lambda tree, arrays: tree.update(noise_variance=1.0), "noise_variance: expected a number for MSELoss al"),
    "temperature": (lambda tree, arrays: tree.update(temperature=None), "temperature: expected a finite number abov"),
    "total": (lambda tree, arrays: tree.update(total=float("nan")), "total: expected a finite number, got nan"),
    "outputs": (lambda tree, arrays: tree.update(outputs=0), "outputs: expected a number of outputs, got 0"),
    "output": (lambda tree, arrays: tree.update(output=[2.5]), "output: expected a shape, got [2.5]"),
    "no output": (lambda tree, arrays: tree.update(output=[0]), "output: expected a shape, got [0]"),
    "loss": (
        lambda tree, arrays: tree["loss"].update({"class": "HuberLoss", "arguments": {"dict": {}}}),
        "loss: expected one with a known likelihood",
    ),
    "a user's loss": (lambda tree, arrays: tree["loss"].update({"class": None}), "loss: expected one with a known"),
    "dtypes": (lambda tree, arrays: tree["slope"]["dict"].popitem() and None, "slope: expected arrays of"),
    "a block of another": (
        lambda tree, arrays: tree["curvature"]["dict"].update({"4.bias": tree["curvature"]["dict"]["0.bias"]}),
        "curvature: expected blocks of",
    ),
    "network": (lambda tree, arrays: tree.update(network=None), "network: expected an object with text, numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_together_is_named(name, path):
    change, words = WRONG[name]
    gb.save(made(), path)
    rewrite(path, change)
    refuse(ValueError, [f"{path}: ", words], lambda: gb.load_result(path, network()))

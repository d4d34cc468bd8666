"""Checkpoints of results over data sets: a call that is resumed has the bits of one that was not interrupted."""

import json
from contextlib import suppress

import foreign
import numpy as np
import pytest
from accumulating import DRAWN, EXACT, SIZES, assert_same_bits, network, once, parts, samples, serial
from common import in_module_of

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.npz import read_checkpoint, write_checkpoint
from gbackprop.curvature.data import checkpoint
from gbackprop.curvature.data.summary import summary
from gbackprop.engine.backward import PreparedCall
from gbackprop.quantities.merging_rules import Averaged, Rows, Summed


def test_one_that_is_resumed_has_the_bits_of_one_that_was_not_interrupted(tmp_path):
    path, cuts = tmp_path / "state.npz", [4, 4, 1, 7, 9]
    for stop in cuts:
        once_stopped(path, stop)
    assert_same_bits(once(checkpoint=path), serial())
    assert_same_bits(once(checkpoint=path), serial())  # all of it is in the file


def once_stopped(path, stop):
    def batches():
        yield from parts(*samples())[:stop]
        raise KeyboardInterrupt

    settings = {"rng": 7, "checkpoint": path, "in_flight": 1}
    with pytest.raises(KeyboardInterrupt):
        gb.accumulate(network(), losses.CrossEntropyLoss(), batches(), *EXACT, *DRAWN, **settings)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("rule", [Summed, Averaged, Rows])
def test_a_batch_whose_merging_is_interrupted_counts_once(rule, error, tmp_path, monkeypatch):
    path, plain_take, left = tmp_path / "state.npz", rule.take, [0]

    def take(*given):
        left[0] -= 1
        if left[0] == 0:
            raise error("in the middle of a batch")
        return plain_take(*given)

    monkeypatch.setattr(rule, "take", take)
    for left[0] in (50, 70, 85):  # in a later batch each time
        with suppress(KeyboardInterrupt, MemoryError):
            once(checkpoint=path, executor="serial")
    assert header(path)["done"] > 2
    assert_same_bits(once(checkpoint=path), serial())


def test_an_interruption_before_the_first_result_is_summed_up_leaves_no_file(tmp_path, monkeypatch):
    def interrupted(packed):
        raise KeyboardInterrupt

    path = tmp_path / "state.npz"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "summary", interrupted)
        with pytest.raises(KeyboardInterrupt):
            once(checkpoint=path)
    assert not path.exists()
    assert_same_bits(once(checkpoint=path), serial())


def test_what_the_file_has_is_not_computed_again(tmp_path, monkeypatch):
    path, computed = tmp_path / "state.npz", []
    once_stopped(path, 6)
    call = PreparedCall.__call__
    monkeypatch.setattr(PreparedCall, "__call__", lambda *args: (computed.append(len(args[1])), call(*args))[1])
    once(checkpoint=path, executor="serial")
    assert computed == [SIZES[0], *SIZES[6:]]


def test_without_rng_the_file_says_what_was_drawn(tmp_path):
    path = tmp_path / "state.npz"
    run = lambda batches: gb.accumulate(network(), losses.CrossEntropyLoss(), batches, q.KFAC(), checkpoint=path)  # noqa: E731
    first = run(parts(*samples()))
    assert_same_bits(run(parts(*samples())), first)


def test_states_are_written_on_the_way(tmp_path, monkeypatch):
    path, there, written = tmp_path / "state.npz", [], []
    monkeypatch.setattr(
        checkpoint, "write_checkpoint", lambda *given: (written.append(given[1]["done"]), write_checkpoint(*given))
    )
    once(checkpoint=path, checkpoint_every=0, progress=lambda done, total: there.append(header(path)["done"]))
    assert there == written == list(range(1, len(SIZES) + 1))  # the last one is not written again at the end
    assert [each.name for each in tmp_path.iterdir()] == ["state.npz"]
    written.clear()
    once(checkpoint=tmp_path / "late.npz", checkpoint_every=1e6)
    assert written == [len(SIZES)]


def header(path):
    with np.load(path) as arrays:
        return json.loads(str(arrays["header"]))


def other_network():
    net = network()
    net.parameters["0.bias"] = net.parameters["0.bias"] + 1e-9
    return net


def frozen_network():
    return network().freeze("0")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"network": other_network}, "with other numbers of the network"),
        ({"network": frozen_network}, "with other frozen parameters"),
        (
            {"network": lambda: gb.Sequential(layers.Tanh(), *network(), rng=0, dtype="float64")},
            "with other network: exp",
        ),
        (
            {"loss": losses.CrossEntropyLoss("sum")},
            r"with other loss: expected CrossEntropyLoss\('sum'\), got Cro.*'mean'",
        ),
        ({"loss": losses.CrossEntropyLoss(weight=np.ones(3))}, "with other loss: expected"),
        ({"asked": [q.Variance()]}, r"with other quantities: expected \[Variance\(\)\], got \[BatchGrad"),
        ({"asked": [*EXACT, *DRAWN][:-1]}, r"with other quantities: expected \[BatchGrad"),
        ({"rng": 8}, "with another rng"),
        ({"settings": {"outputs": False}}, "with other options"),
        ({"batches": parts(*samples())[:2]}, "the checkpoint contains 4 batches, there are 2 now"),
        ({"batches": parts(*samples(), sizes=[3, 2, 6])}, "the checkpoint is of other data: batch 1 differs"),
        ({"batches": parts(samples()[0], (samples()[1] + 1) % 3)}, "the checkpoint is of other data: batch 0 differs"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_checkpoint_of_another_call_says_what_differs(tmp_path, changed, message):
    path = tmp_path / "state.npz"
    once_stopped(path, 4)
    before = path.read_bytes()
    net, loss = changed.get("network", network)(), changed.get("loss", losses.CrossEntropyLoss())
    batches, asked = changed.get("batches", parts(*samples())), changed.get("asked", [*EXACT, *DRAWN])
    with pytest.raises(ValueError, match=f"state.npz: .*{message}"):
        gb.accumulate(
            net, loss, batches, *asked, rng=changed.get("rng", 7), checkpoint=path, **changed.get("settings", {})
        )
    assert path.read_bytes() == before


def test_other_numbers_under_the_digest_of_the_right_ones_are_refused(tmp_path):
    path = tmp_path / "state.npz"
    once_stopped(path, 4)
    with np.load(path) as arrays:
        content = dict(arrays)
    name = next(name for name, array in content.items() if array.dtype == np.float64 and array.any())
    content[name] = np.nextafter(content[name], np.inf)
    np.savez(path, **content)
    with pytest.raises(ValueError, match=r"state\.npz: .*it has another digest than its contents"):
        once(checkpoint=path)


def test_a_file_that_is_no_checkpoint_is_left_alone(tmp_path):
    path, run = tmp_path / "net.npz", tmp_path / "run.npz"
    np.savez(path, weight=np.ones(3))
    write_checkpoint(run, {"format": checkpoint.FORMAT, "run": {}, "rows": []}, {})  # that of an experiment
    for file, words in ((path, "expected an entry 'header', got weight"), (run, "its header: expected 'call', a dict")):
        before = file.read_bytes()
        with pytest.raises(ValueError, match=f"{file.name}: expected a checkpoint of gb.accumulate: {words}"):
            once(checkpoint=file)
        assert file.read_bytes() == before


def own(**attributes):
    """The arguments of a call of a user's own network, loss and quantity, with other attributes of their parts."""
    inner = foreign.Chain(foreign.Multiplied(), layers.Flatten())
    net = gb.Sequential(inner, layers.Linear(9, 3), rng=0, dtype="float64")
    parts_of_it = {"layer": inner.layers[0], "chain": inner, "loss": foreign.ScaledLoss(), "quantity": foreign.Powers()}
    for name, value in attributes.items():
        part, _, attribute = name.partition("_")
        setattr(parts_of_it[part], attribute, value)
    batches = [(x, np.eye(3)[y]) for x, y in parts(*samples())]
    return net, parts_of_it["loss"], batches, parts_of_it["quantity"]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"loss_times": 2.0}, "with other attributes of the loss"),
        ({"layer_factor": 3.0}, r"with other attributes of layer 0\.0, Multiplied$"),
        ({"chain_note": [{"a": 1}]}, "with other attributes of layer 0, Chain"),
        ({"quantity_power": 2}, "with other attributes of the quantity 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_attributes_that_no_text_shows_are_of_another_call(tmp_path, attributes, message):
    path = tmp_path / "any name.txt"
    net, loss, batches, quantity = own()
    whole = gb.accumulate(net, loss, batches, quantity)
    gb.accumulate(net, loss, batches[:4], quantity, checkpoint=path)
    with pytest.raises(ValueError, match=f"any name.txt: the checkpoint is of another call, {message}"):
        gb.accumulate(*own(**attributes), checkpoint=path)
    assert_same_bits(gb.accumulate(*own(), checkpoint=path), whole)
    assert [each.name for each in tmp_path.iterdir()] == ["any name.txt"]


def test_texts_that_differ_by_an_address_alone_make_no_other_call(tmp_path, monkeypatch):
    for kind in (foreign.Multiplied, foreign.ScaledLoss, foreign.Powers):
        monkeypatch.setattr(kind, "__repr__", object.__repr__)
    one, other = calls = own(), own()
    assert all(repr(one[part]) != repr(other[part]) for part in (0, 1, 3))
    first, again = (gb.accumulate(*call, checkpoint=tmp_path / "state.npz") for call in calls)
    assert_same_bits(again, first)


def test_a_look_at_the_network_makes_no_other_call(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "state.npz"
    net = gb.Sequential(gb.LSTM(2, 2), layers.Flatten(), layers.Linear(6, 2), rng=0, dtype="float64")
    batches = [(rng.standard_normal((2, 3, 2)), np.array([0, 1])) for _ in range(2)]
    first = gb.accumulate(net, losses.CrossEntropyLoss(), batches, checkpoint=path)
    gb.operators.Jacobian(net, batches[0][0])
    net.freeze("2").unfreeze()
    assert_same_bits(gb.accumulate(net, losses.CrossEntropyLoss(), batches, checkpoint=path), first)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("kind", "name", "place"),
    [
        (losses.MSELoss, "values", "loss"),
        (losses.MSELoss, "gradients", "gradient of 0.weight"),
        (q.DiagGGN, "finish", r"DiagGGN\(\) of "),
    ],
    ids=str,
)
def test_code_that_changed_shows_in_the_first_batch(tmp_path, monkeypatch, dtype, kind, name, place):
    path, net, loss, (x, y) = tmp_path / "state.npz", network(dtype), losses.MSELoss(), samples(dtype)
    batches, plain = parts(x, np.eye(3, dtype=dtype)[y]), getattr(kind, name)
    gb.accumulate(net, loss, batches[:4], q.DiagGGN(), checkpoint=path)
    monkeypatch.setattr(kind, name, in_module_of(plain, lambda *given: (1.01 * plain(*given)).astype(dtype)))
    with pytest.raises(ValueError, match=f"state.npz: .*: batch 0 has another result now, first in its {place}"):
        gb.accumulate(net, loss, batches, q.DiagGGN(), checkpoint=path)
    monkeypatch.setattr(kind, name, in_module_of(plain, lambda *given: plain(*given)))
    gb.accumulate(net, loss, batches, q.DiagGGN(), checkpoint=path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_is_no_other_result(tmp_path, dtype):
    """Numbers that are zero but for rounding, as a variance of one sample, differ between machines."""
    path, (x, y), asked = tmp_path / "state.npz", samples(dtype), [q.Variance(), q.KFLR()]
    batches, net, loss = parts(x, y, [1, 4, 4]), network(dtype), losses.CrossEntropyLoss()
    gb.accumulate(net, loss, batches[:2], *asked, checkpoint=path)
    kinds = {"call": dict, "done": int}
    header, stored = read_checkpoint(path, checkpoint.FORMAT, kinds)
    stored["first"] += 2 * np.finfo(dtype).eps * np.random.default_rng(0).standard_normal(stored["first"].shape)
    write_checkpoint(path, header, stored)
    gb.accumulate(net, loss, batches, *asked, checkpoint=path)


def test_the_size_of_a_variance_is_that_of_its_mean_squared():
    parts = {"count": np.array(3), "mean": np.array([1.0, 2.0]), "centered": np.array([3.0, 4.0]), "low": np.ones(1)}
    norms = 5.0**0.5, 5 + 3 * 17**0.5, 1 + 3 * 17**0.5
    np.testing.assert_allclose(summary({"key": parts})[1:, -1], norms)


def test_a_folder_that_is_missing_is_told_before_anything_is_computed(tmp_path):
    with pytest.raises(OSError, match="no such folder"):
        gb.accumulate(network(), losses.CrossEntropyLoss(), iter([None]), checkpoint=tmp_path / "no" / "state.npz")


def test_an_option_that_is_given_its_default_makes_no_other_call(tmp_path):
    first, path = once(), tmp_path / "state.npz"
    once_stopped(path, 2)
    options = dict.fromkeys(("sample_block", "column_block", "memory")) | {"training": False}
    assert_same_bits(once(checkpoint=path, **options), first)

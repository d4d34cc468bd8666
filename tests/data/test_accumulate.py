"""Results over data sets are those of one call, on any executor, after deaths and interruptions."""

import os
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import foreign
import mortal
import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.array import device_of
from gbackprop.base.npz import read_checkpoint, write_checkpoint
from gbackprop.engine.backward import PreparedCall
from gbackprop.testing.errors import largest_error, relative_error

ROOT = Path(__file__).parents[2]
SIZES = [3, 1, 7, 2, 5, 4, 1, 6, 8, 2]
N = sum(SIZES)
EXACT = [q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.DiagHessian(), q.KFLR()]
DRAWN = [q.DiagGGNMC(2), q.KFAC()]


def network(dtype="float64"):
    chain = [layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.Flatten(), layers.Linear(8, 3)]
    return gb.Sequential(*chain, rng=0, dtype=dtype)


def samples(dtype="float64"):
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, 1, 3, 3)).astype(dtype), rng.integers(0, 3, N)


def parts(x, y, sizes=tuple(SIZES)):
    stops = np.cumsum(sizes)
    return [(x[stop - size : stop], y[stop - size : stop]) for size, stop in zip(sizes, stops)]


def numbers(result):
    """Every array of a result by name, factors of Kronecker blocks included."""
    found = {"loss": np.asarray(gb.asnumpy(result.loss)), "output": result.output, **result.gradient}
    for key, values in result.items():
        for name, value in values.items():
            pair = {"A": value.A, "B": value.B} if hasattr(value, "B") else {"": value}
            found |= {f"{key} {name} {part}": each for part, each in pair.items() if each is not None}
    return found


def assert_close(one, other, tolerance=1e-12):
    assert largest_error(numbers(one), numbers(other)) <= tolerance


def assert_same_bits(one, other):
    for (name, a), (again, b) in zip(numbers(one).items(), numbers(other).items(), strict=True):
        assert (name, a.dtype, a.shape, a.tobytes()) == (again, b.dtype, b.shape, b.tobytes())


# ----------------------------------------------------------------------------------------------------- one and the same


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(
    "loss",
    [
        losses.CrossEntropyLoss(),
        losses.CrossEntropyLoss("sum"),
        losses.CrossEntropyLoss(weight=np.array([0.5, 2.0, 3.0]), label_smoothing=0.1),
        losses.CrossEntropyLoss(ignore_index=1, weight=np.array([0.5, 2.0, 3.0])),
    ],
    ids=repr,
)
def test_all_batches_are_one_call(loss, workers):
    net, (x, y) = network(), samples()
    y[np.cumsum(SIZES) - 1] = 2  # no batch of ignored labels alone
    whole = gb.backward(net, loss, x, y, *EXACT)
    result = gb.accumulate(net, loss, parts(x, y), *EXACT, workers=workers)
    assert_close(result, whole)
    assert result.scale.factor == pytest.approx(whole.scale.factor, rel=1e-12)
    assert result.scale.batch == N


def once(**settings):
    return gb.accumulate(network(), losses.CrossEntropyLoss(), parts(*samples()), *EXACT, *DRAWN, rng=7, **settings)


@pytest.fixture(scope="module")
def serial():
    return once(executor="serial")


@pytest.mark.parametrize("settings", [{"workers": 1}, {"workers": 4}, {"workers": 4, "in_flight": 10}, {}], ids=str)
def test_threads_change_no_bit(settings, serial):
    assert_same_bits(once(**settings), serial)


def test_an_executor_of_ones_own_stays_open(serial):
    with ThreadPoolExecutor(2) as own:
        assert_same_bits(once(executor=own), serial)
        assert own.submit(int, 3).result() == 3


def test_processes_change_no_bit(serial):
    assert_same_bits(once(executor="processes", workers=2), serial)


def test_parameters_that_nobody_drew_are_those_of_the_network():
    net = gb.Sequential(layers.Flatten(), layers.Linear(9, 3), dtype="float64")
    result = gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), executor="processes", workers=2)
    assert_close(result, gb.backward(net, losses.CrossEntropyLoss(), *samples()))


def test_on_a_device_results_stay_there(double, tmp_path):
    x, y = (gb.asarray(part, "cuda:1") for part in samples())
    net, path = network().to("cuda:1"), tmp_path / "state.npz"
    run = lambda batches: gb.accumulate(net, losses.CrossEntropyLoss(), batches, *EXACT, checkpoint=path)  # noqa: E731
    whole = gb.backward(network(), losses.CrossEntropyLoss(), *samples(), *EXACT)
    run(parts(x, y)[:6])
    result = run(parts(x, y))
    there = numbers(result)
    assert {device_of(value) for name, value in there.items() if name != "loss"} == {"cuda:1"}
    host = {name: gb.asnumpy(value) for name, value in there.items() if name != "loss"}
    assert largest_error(host, {name: value for name, value in numbers(whole).items() if name != "loss"}) <= 1e-12


def test_two_dask_workers_change_no_bit(serial):
    pytest.importorskip("distributed", reason="needs distributed")
    assert_same_bits(once(executor="dask://", workers=2), serial)


def test_two_mpi_ranks_change_no_bit(serial, tmp_path):
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpiexec is None:
        pytest.skip("needs mpiexec")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    extra = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version or "OpenRTE" in version else []
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport numpy as np\nfrom test_accumulate import numbers, once\n"
        "if __name__ == '__main__':\n    np.savez(sys.argv[1], **numbers(once(executor='mpi')))\n"
    )
    paths = [ROOT, Path(__file__).parent, ROOT / "tests" / "helpers"]
    subprocess.run(
        [mpiexec, *extra, "-n", "3", sys.executable, "-m", "mpi4py.futures", script, tmp_path / "out.npz"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        timeout=120,
        check=True,
    )
    with np.load(tmp_path / "out.npz") as found:
        assert {n: v.tobytes() for n, v in found.items()} == {n: v.tobytes() for n, v in numbers(serial).items()}


def test_each_batch_draws_for_itself(serial):
    net, loss = network(), losses.CrossEntropyLoss()
    same = [(np.ones((4, 1, 3, 3)), np.zeros(4, int))] * 2
    one, two, again = (gb.accumulate(net, loss, same[:n], q.KFAC(), rng=3) for n in (1, 2, 2))
    assert_same_bits(two, again)
    assert relative_error(one["kfac"]["3.bias"].B, two["kfac"]["3.bias"].B) > 1e-3
    other = gb.accumulate(net, loss, same, q.KFAC(), rng=4)
    assert relative_error(other["kfac"]["3.bias"].B, two["kfac"]["3.bias"].B) > 1e-3


def test_dropout_in_training_mode_draws_from_rng_and_the_batch_number():
    net = gb.Sequential(layers.Flatten(), layers.Dropout(0.5), layers.Linear(9, 3), rng=0, dtype="float64")
    run = lambda workers: gb.accumulate(  # noqa: E731
        net, losses.CrossEntropyLoss(), parts(*samples()), rng=1, training=True, workers=workers
    )
    assert_same_bits(run(1), run(3))
    plain = gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), rng=1)
    assert relative_error(run(1).gradient["2.weight"], plain.gradient["2.weight"]) > 1e-3


def test_float32_stays_float32():
    x, y = samples("float32")
    result = gb.accumulate(network("float32"), losses.CrossEntropyLoss(), parts(x, y), *EXACT)
    assert_close(result, gb.backward(network("float32"), losses.CrossEntropyLoss(), x, y, *EXACT), 1e-4)
    assert {value.dtype.name for value in numbers(result).values()} == {"float32"}


def test_outputs_can_be_left_out():
    result = gb.accumulate(network(), losses.CrossEntropyLoss(), parts(*samples()), outputs=False)
    assert result.output.shape == (0, 3)
    assert_close(result, gb.accumulate(network(), losses.CrossEntropyLoss(), parts(*samples()), outputs=False))
    whole = gb.backward(network(), losses.CrossEntropyLoss(), *samples())
    assert largest_error(result.gradient, whole.gradient) <= 1e-12


# ----------------------------------------------------------------------------------------------------- bounded and lazy


class Watched:
    """An executor that notes how many batches exist at a time: taken from the data set, and not yet merged."""

    def __init__(self, threads):
        self.threads, self.taken, self.merged, self.most = threads, 0, 0, 0

    def batches(self):
        for batch in parts(*samples()):
            self.taken += 1
            self.most = max(self.most, self.taken - self.merged)
            yield batch

    def progress(self, done, total):
        assert total is None
        self.merged = done

    def submit(self, *args):
        return self.threads.submit(*args)


@pytest.mark.parametrize(("settings", "most"), [({"workers": 2}, 4), ({"workers": 3, "in_flight": 1}, 1)])
def test_few_batches_exist_at_a_time(settings, most):
    with ThreadPoolExecutor(3) as threads:
        watched = Watched(threads)
        gb.accumulate(
            network(),
            losses.CrossEntropyLoss(),
            watched.batches(),
            executor=watched,
            progress=watched.progress,
            **settings,
        )
    assert (watched.taken, watched.merged) == (len(SIZES), len(SIZES))
    assert watched.most == most


class Slow(layers.Layer):
    """A layer whose first batch waits until a later one is done."""

    later = threading.Event()

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        if len(x) == SIZES[0]:
            assert self.later.wait(60)
        else:
            self.later.set()
        return x, None

    def mjp(self, saved, mat):
        return mat

    jmp = mjp


def test_results_are_merged_in_the_order_of_the_batches():
    net = gb.Sequential(layers.Flatten(), layers.Linear(9, 3), Slow(), rng=0, dtype="float64")
    x, y = samples()
    Slow.later.clear()
    result = gb.accumulate(net, losses.CrossEntropyLoss(), parts(x, y)[:4], workers=2)
    np.testing.assert_allclose(result.output, net(x[: sum(SIZES[:4])]), rtol=1e-12)


# --------------------------------------------------------------------------------------------------------------- deaths


def test_the_batches_of_a_killed_process_are_counted_once(tmp_path, serial):
    net = gb.Sequential(mortal.Mortal(tmp_path / "died", 7), *network(), rng=0, dtype="float64")
    asked = [q.SecondMoment(), q.DiagGGN()]
    result = gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), *asked, executor="processes", workers=2)
    assert (tmp_path / "died").exists()
    assert_close(result, gb.backward(net, losses.CrossEntropyLoss(), *samples(), *asked))
    assert result.scale.batch == N


def test_a_batch_whose_process_always_dies_is_named(tmp_path):
    net = gb.Sequential(mortal.Mortal(None, 7), *network(), rng=0, dtype="float64")
    with pytest.raises(RuntimeError, match="batch 2: the process that computed it died, 3 times"):
        gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), executor="processes", workers=2)


def test_an_executor_of_ones_own_that_breaks_is_an_error():
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    net = gb.Sequential(mortal.Mortal(None, 3), *network(), rng=0, dtype="float64")
    message = r"batch 0: the executor is broken .*executor='processes' starts new processes"
    with ProcessPoolExecutor(1, get_context("spawn")) as own, pytest.raises(RuntimeError, match=message):
        gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), executor=own)


# ---------------------------------------------------------------------------------------------------------- checkpoints


def test_one_that_is_resumed_has_the_bits_of_one_that_was_not_interrupted(tmp_path, serial):
    path, cuts = tmp_path / "state.npz", [4, 4, 1, 7, 9]
    for stop in cuts:
        once_stopped(path, stop)
    assert_same_bits(once(checkpoint=path), serial)
    assert_same_bits(once(checkpoint=path), serial)  # all of it is in the file


def once_stopped(path, stop):
    def batches():
        yield from parts(*samples())[:stop]
        raise KeyboardInterrupt

    settings = {"rng": 7, "checkpoint": path, "in_flight": 1}
    with pytest.raises(KeyboardInterrupt):
        gb.accumulate(network(), losses.CrossEntropyLoss(), batches(), *EXACT, *DRAWN, **settings)


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


def test_states_are_written_on_the_way(tmp_path):
    path, there = tmp_path / "state.npz", []
    once(checkpoint=path, checkpoint_every=0, progress=lambda done, total: there.append(header(path)["done"]))
    assert there == list(range(1, len(SIZES) + 1))
    assert [each.name for each in tmp_path.iterdir()] == ["state.npz"]


def header(path):
    import json

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


def test_a_file_that_is_no_checkpoint_is_left_alone(tmp_path):
    path, run = tmp_path / "net.npz", tmp_path / "run.npz"
    np.savez(path, weight=np.ones(3))
    write_checkpoint(run, {"format": 2, "run": {}, "rows": []}, {})  # that of an experiment
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
        ({"layer_factor": 3.0}, r"with other attributes of layer 0\.0, Multiplied\(\)"),
        ({"chain_note": [{"a": 1}]}, "with other attributes of layer 0, Sequential"),
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
    monkeypatch.setattr(kind, name, lambda *given: (1.01 * plain(*given)).astype(dtype))
    with pytest.raises(ValueError, match=f"state.npz: .*: batch 0 has another result now, first in its {place}"):
        gb.accumulate(net, loss, batches, q.DiagGGN(), checkpoint=path)
    monkeypatch.setattr(kind, name, lambda *given: plain(*given))
    gb.accumulate(net, loss, batches, q.DiagGGN(), checkpoint=path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_is_no_other_result(tmp_path, dtype):
    """Numbers that are zero but for rounding, as a variance of one sample, differ between machines."""
    path, (x, y), asked = tmp_path / "state.npz", samples(dtype), [q.Variance(), q.KFLR()]
    batches, net, loss = parts(x, y, [1, 4, 4]), network(dtype), losses.CrossEntropyLoss()
    gb.accumulate(net, loss, batches[:2], *asked, checkpoint=path)
    kinds = {"call": dict, "done": int}
    header, stored = read_checkpoint(path, 2, kinds)
    stored["first"] += 2 * np.finfo(dtype).eps * np.random.default_rng(0).standard_normal(stored["first"].shape)
    write_checkpoint(path, header, stored)
    gb.accumulate(net, loss, batches, *asked, checkpoint=path)


def test_a_folder_that_is_missing_is_told_before_anything_is_computed(tmp_path):
    with pytest.raises(OSError, match="no such folder"):
        gb.accumulate(network(), losses.CrossEntropyLoss(), iter([None]), checkpoint=tmp_path / "no" / "state.npz")


# ------------------------------------------------------------------------------------------------------------ bad input


def spoiled(number, change):
    batches = parts(*samples())
    x, y = (part.copy() for part in batches[number])
    batches[number] = change(x, y)
    return batches


def with_nan(x, y):
    x[-1] = np.nan
    return x, y


class Nothing:
    def submit(self, *given):
        pass


@pytest.mark.parametrize("executor", [None, "serial"])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, y: (x, y + 3), ValueError, "batch 4: y of CrossEntropyLoss.*expected labels 0 to 2"),
        (lambda x, y: (x, y[:-1]), ValueError, "batch 4: y of CrossEntropyLoss.*expected 5 samples"),
        (with_nan, ValueError, "batch 4: x: expected finite numbers"),
        (
            lambda x, y: (x[..., :2], y),
            ValueError,
            r"batch 4, x: expected features of shape \(1, 3, 3\) as in",
        ),
        (
            lambda x, y: (x.astype("float32"), y),
            TypeError,
            "batch 4, x: expected dtype float64 as in batch 0, got flo",
        ),
        (lambda x, y: x, TypeError, r"batch 4: expected a pair \(x, y\), or with sample_weight, got ndarray"),
        (lambda x, y: (x, y, x), ValueError, r"batch 4: sample_weight: expected shape \(5,\)"),
        (lambda x, y: (x, y, x, x), TypeError, r"batch 4: expected a pair \(x, y\), or .*, got 4 parts"),
        (lambda x, y: (x.tolist(), y), TypeError, "batch 4, x: expected an array of samples, got list"),
        (lambda x, y: (x[:0], y[:0]), ValueError, "batch 4: x: expected a batch of at least one sample"),
    ],
)
def test_a_bad_batch_is_named(change, error, message, executor):
    with pytest.raises(error, match=message):
        gb.accumulate(network(), losses.CrossEntropyLoss(), spoiled(4, change), *EXACT, executor=executor)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"batches": []}, ValueError, "batches: expected at least one, got none"),
        ({"batches": 3}, TypeError, "batches: expected an iterable of pairs"),
        ({"batches": samples()}, TypeError, "batch 0: expected a pair"),
        ({"asked": [q.KFRA()]}, gb.UnsupportedError, "KFRA.. cannot be merged"),
        ({"asked": [q.KFAC]}, TypeError, "quantity 0: expected a Quantity"),
        ({"asked": [q.KFAC(targets=np.zeros((1, 3), int))]}, ValueError, "targets of KFAC: expected none"),
        ({"loss": None}, TypeError, "loss: expected a Loss"),
        ({"executor": "proceses"}, ValueError, "executor: expected one of threads, processes, serial, mpi, dask"),
        ({"executor": Nothing()}, TypeError, "executor: expected submit of Nothing to return a Future, got NoneType"),
        ({"executor": 3}, TypeError, "executor: expected a name or a concurrent.futures.Executor, got int"),
        ({"workers": 0}, ValueError, "workers: expected an integer of at least 1"),
        ({"in_flight": 0}, ValueError, "in_flight: expected an integer of at least 1"),
        ({"outputs": 1}, TypeError, "outputs: expected True or False"),
        ({"progress": 3}, TypeError, "progress: expected True, False or a function"),
        ({"checkpoint": 3}, TypeError, "checkpoint: expected a path, got 3"),
        ({"checkpoint_every": -1}, ValueError, "checkpoint_every: expected"),
        ({"sample_blocks": 3}, TypeError, "accumulate: expected options among training, .*, got 'sample_blocks'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_bad_arguments(settings, error, message):
    settings = {"batches": parts(*samples()), "asked": [], "loss": losses.CrossEntropyLoss()} | settings
    batches, asked, loss = (settings.pop(name) for name in ("batches", "asked", "loss"))
    with pytest.raises(error, match=message):
        gb.accumulate(network(), loss, batches, *asked, **settings)


def test_what_cannot_be_sent_is_told():
    net = network()
    net.note = lambda: None
    with pytest.raises(TypeError, match="executor: network, loss and quantities cannot be sent to a process"):
        gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), executor="processes", workers=1)


def test_numbers_out_of_range_are_warned_of_with_the_batch():
    net = gb.Sequential(layers.Flatten(), layers.Linear(9, 3), rng=0, dtype="float32")
    batches = [(np.ones((2, 1, 3, 3), "float32") * scale, np.ones((2, 3), "float32")) for scale in (1, 1e30)]
    with pytest.warns(gb.NotFiniteWarning, match="batch 1: NaN or infinity in its result"):
        gb.accumulate(net, losses.MSELoss(), batches)


def test_a_line_of_progress(capsys):
    once(progress=True)
    assert capsys.readouterr().err.split("\r")[-1] == "gbackprop: 10 of 10 batches\n"
    gb.accumulate(network(), losses.CrossEntropyLoss(), iter(parts(*samples())), progress=True)
    assert re.fullmatch(r"(\rgbackprop: \d+ batches)+\n", capsys.readouterr().err)

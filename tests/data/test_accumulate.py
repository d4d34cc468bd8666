"""Results over data sets are those of one call, on any executor, and few batches exist at a time."""

import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from accumulating import EXACT, SIZES, N, assert_close, assert_same_bits, network, numbers, once, parts, samples, serial

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.array import device_of
from gbackprop.curvature.data import accumulation
from gbackprop.testing.errors import largest_error, relative_error


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


@pytest.mark.parametrize("settings", [{"workers": 1}, {"workers": 4}, {"workers": 4, "in_flight": 10}, {}], ids=str)
def test_threads_change_no_bit(settings):
    assert_same_bits(once(**settings), serial())


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


def test_each_batch_draws_for_itself():
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


@pytest.mark.parametrize(("device", "most"), [("cpu", 6), ("cuda", 2)])
def test_there_is_a_thread_for_each_processor_and_one_for_a_gpu(double, monkeypatch, device, most):
    monkeypatch.setattr(accumulation, "cpu_count", lambda: 3)
    watched = Watched(None)
    batches = (tuple(gb.asarray(part, device) for part in batch) for batch in watched.batches())
    gb.accumulate(network().to(device), losses.CrossEntropyLoss(), batches, progress=watched.progress)
    assert (watched.merged, watched.most) == (len(SIZES), most)


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


class Lost(Nothing):
    """An executor that loses what a call returns."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(None)
        return future


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
        ({"executor": Lost()}, TypeError, "batch 0: executor: expected the Result of a call from Lost, got NoneType"),
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


def test_numbers_out_of_range_are_warned_of_with_the_batch():
    net = gb.Sequential(layers.Flatten(), layers.Linear(9, 3), rng=0, dtype="float32")
    batches = [(np.ones((2, 1, 3, 3), "float32") * scale, np.ones((2, 3), "float32")) for scale in (1, 1e30)]
    with pytest.warns(gb.NotFiniteWarning, match="batch 1: NaN or infinity in its result") as found:
        gb.accumulate(net, losses.MSELoss(), batches)
    assert [each.filename for each in found] == [__file__]  # the line that called it


def test_a_line_of_progress(capsys):
    once(progress=True)
    assert capsys.readouterr().err.split("\r")[-1] == "gbackprop: 10 of 10 batches\n"
    gb.accumulate(network(), losses.CrossEntropyLoss(), iter(parts(*samples())), progress=True)
    assert re.fullmatch(r"(\rgbackprop: \d+ batches)+\n", capsys.readouterr().err)


def test_the_line_is_written_five_times_a_second(capsys, monkeypatch):
    line = accumulation._Line()
    for done in range(1, 10):
        monkeypatch.setattr(accumulation.time, "monotonic", lambda done=done: 0.15 * done)
        line(done, 10)
    assert re.findall(r"(\d) of 10", capsys.readouterr().err) == ["1", "3", "5", "7", "9"]

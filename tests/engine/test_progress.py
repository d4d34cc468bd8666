"""Steps of a call, reported to a function or on stderr."""

import gc
import io
import sys
import threading
from weakref import ref

import numpy as np
import pytest
from common import assert_same, chain

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.engine.progress import Line

CE = losses.CrossEntropyLoss()
X = np.random.default_rng(0).standard_normal((12, 4))
Y = np.arange(12) % 3


@pytest.fixture(autouse=True)
def four_processors(monkeypatch):
    """As many threads as are asked for, also on a machine of one processor."""
    monkeypatch.setattr("gbackprop.engine.blocks.cpu_count", lambda: 4)


def network(*below):
    return chain(*below, layers.Linear(4, 5), layers.Tanh(), layers.Linear(5, 3))


@pytest.mark.parametrize(
    ("options", "sweeps"),
    [
        ({}, 1),
        ({"sample_block": 5}, 3),
        ({"column_block": 3}, 3),  # 3 exact columns and the residual's 5
        ({"sample_block": 4, "column_block": 4, "workers": 2}, 6),
    ],
)
def test_each_layer_of_each_sweep_is_a_step_and_so_is_the_loss(options, sweeps):
    seen = []
    gb.backward(network(), CE, X, Y, q.DiagHessian(), progress=lambda *counts: seen.append(counts), **options)
    assert seen == [(done, 4 * sweeps) for done in range(1, 4 * sweeps + 1)]


@pytest.mark.parametrize(
    ("net", "steps"), [(network(layers.Identity()), 4), (gb.Sequential(layers.Tanh()), 1)], ids=["below", "none"]
)
def test_layers_below_the_lowest_with_parameters_do_not_count(net, steps):
    seen = []
    gb.backward(net, CE, X, Y, progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (steps, steps)


@pytest.mark.parametrize("workers", [1, 3])
def test_watching_changes_no_result(workers):
    given = network(), CE, X, Y, q.Variance(), q.KFLR()
    options = {"sample_block": 2, "workers": workers}
    assert_same(*[gb.backward(*given, progress=told, **options) for told in (lambda *_: None, False)], tolerance=0)


def test_threads_report_one_at_a_time():
    inside, overlapping = threading.Lock(), []

    def slow(done, total):
        if not inside.acquire(blocking=False):
            overlapping.append(done)
            return
        threading.Event().wait(0.001)
        inside.release()

    gb.backward(network(), CE, X, Y, sample_block=1, workers=4, progress=slow)
    assert overlapping == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_function_ends_the_call(workers):
    def stop(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        gb.backward(network(), CE, X, Y, sample_block=3, workers=workers, progress=stop)


def test_true_writes_a_line_to_stderr(capsys):
    gb.backward(network(), CE, X, Y, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "".join(f"\rgbackprop: {percent:3d} % of 4 steps" for percent in (25, 50, 75, 100)) + "\n"


def test_the_line_ends_before_an_error(capsys):
    class Broken(layers.Tanh):
        calls = 0

        def mjp(self, saved, mat):
            self.calls += 1
            if self.calls > 1:  # the first is the check of a new layer
                raise RuntimeError("broken")
            return super().mjp(saved, mat)

    net = chain(layers.Linear(4, 3), Broken())
    with pytest.raises(RuntimeError, match="broken"):
        gb.backward(net, CE, X, Y, progress=True)
    assert capsys.readouterr().err == "\rgbackprop:  33 % of 3 steps\n"


def test_many_steps_are_a_hundred_writes(capsys):
    gb.backward(network(), CE, X, Y, q.DiagHessian(), sample_block=1, column_block=1, progress=True)
    assert capsys.readouterr().err.count("\r") <= 101


def test_nothing_is_written_unless_asked(capsys):
    gb.backward(network(), CE, X, Y)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("progress", [None, 1, "yes"])
def test_what_cannot_be_told_is_refused_before_anything_is_computed(progress):
    with pytest.raises(TypeError, match=r"progress: expected True, False or a function of \(done, total\), got"):
        gb.backward(network(), CE, X, Y, progress=progress)


def test_what_a_sweep_had_is_freed_with_it():
    """No circle of references, in which a block's columns would wait for the garbage collector."""
    arrays = []

    class Noted(layers.Tanh):
        def forward(self, x):
            arrays.append(ref(x))
            return super().forward(x)

    net = chain(layers.Linear(4, 4), Noted(), layers.Linear(4, 3))
    gc.disable()
    try:
        gb.backward(net, CE, X, Y, q.BatchGrad(), sample_block=4, workers=1, progress=lambda *_: None)
        assert len(arrays) >= 3
        assert [array() for array in arrays if array() is not None] == []
    finally:
        gc.enable()


def test_the_line_begins_with_the_first_of_many_steps(capsys):
    line = Line()
    for done in (1, 2, 11):
        line(done, 1000)
    line.end()
    assert capsys.readouterr().err == "\rgbackprop:   0 % of 1000 steps\rgbackprop:   1 % of 1000 steps\n"


def test_the_line_is_written_out_at_its_end(monkeypatch):
    """A file that gathers what it gets, as a pipe may, has shown the end of the line before what follows."""

    class Gathering(io.StringIO):
        shown = ""

        def flush(self):
            self.shown = self.getvalue()

    file = Gathering()
    monkeypatch.setattr(sys, "stderr", file)
    line = Line()
    line(1, 1)
    line.end()
    assert file.shown == "\rgbackprop: 100 % of 1 steps\n"

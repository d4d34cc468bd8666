"""Blocks: what they bound, what they leave alone, and the threads that take them."""

import os
import threading
from functools import partial
from types import SimpleNamespace

import common
import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base import threads
from gbackprop.base.threads import one_blas_thread
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.signals import GRADIENT
from gbackprop.engine import blocks
from gbackprop.engine.blocks import Limits, choose_blocks
from gbackprop.engine.estimate import output_bytes, row_bytes, stack_bytes
from gbackprop.plain.plan import make_plan

CE = losses.CrossEntropyLoss()


network = partial(common.chain, dtype="float32")
batch = partial(common.batch, classes=10, dtype="float32")


# -------------------------------------------------------------------------------------------------------------- threads


def counts():
    """The number of threads of each BLAS."""
    found = pytest.importorskip("threadpoolctl").threadpool_info()
    return [info["num_threads"] for info in found if info["user_api"] == "blas"]


def test_the_processors_of_this_process_are_counted_or_all(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", {0: {3, 5}}.get, raising=False)
    assert threads.cpu_count() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    for known, count in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        assert threads.cpu_count() == count


def test_concurrent_calls_restore_the_number_of_blas_threads():
    net, before = network(layers.Linear(50, 50), layers.Tanh(), layers.Linear(50, 10)), counts()

    def calls():
        for _ in range(20):
            gb.backward(net, CE, *batch(64, 50), q.KFLR(), workers=2)

    callers = [threading.Thread(target=calls) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert counts() == before


def test_blas_threads_are_restored_at_the_end_of_the_last_of_several_calls():
    entered, left = threading.Event(), threading.Event()

    def longer():
        with one_blas_thread():
            entered.set()
            left.wait(10)

    before, other = counts(), threading.Thread(target=longer)
    with one_blas_thread():
        assert set(counts()) == {1}
        other.start()
        assert entered.wait(10)
        with one_blas_thread():
            pass
        assert set(counts()) == {1}
    assert set(counts()) == {1}
    left.set()
    other.join()
    assert counts() == before


def test_a_blas_without_functions_of_its_own_is_limited_by_threadpoolctl(monkeypatch):
    assert [get() for get, _ in threads.blas_functions()] in ([], counts())
    own = SimpleNamespace(openblas_get_num_threads=max, openblas_set_num_threads=min)
    kinds = [("openblas", "blas", own), ("openmp", "openmp", own), ("mkl", "blas", own), ("openblas", "blas", None)]
    others = {"get_num_threads": abs, "set_num_threads": len}
    libraries = [SimpleNamespace(internal_api=a, user_api=b, dynlib=c, **others) for a, b, c in kinds]
    monkeypatch.setattr(threads, "blas_controller", lambda: SimpleNamespace(lib_controllers=libraries))
    assert threads.blas_functions.__wrapped__() == [(max, min), (abs, len), (abs, len)]
    monkeypatch.setattr(threads, "blas_controller", lambda: None)
    assert threads.blas_functions.__wrapped__() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_run_in_threads_of_their_own_only_if_there_are_several(workers, monkeypatch):
    monkeypatch.setattr(blocks, "cpu_count", lambda: 2)
    seen = set()

    class Tells(layers.Identity):
        def forward(self, x):
            seen.add(threading.get_ident())
            return super().forward(x)

    net, (x, y) = network(layers.Linear(5, 10), Tells()), batch(8, 5)
    gb.backward(net, CE, x, y)  # checks the layer
    seen.clear()
    gb.backward(net, CE, x, y, sample_block=2, workers=workers)
    assert (threading.get_ident() in seen) == (workers == 1)


def test_a_small_batch_is_not_cut_and_a_large_one_is(monkeypatch):
    monkeypatch.setattr(blocks, "cpu_count", lambda: 2)
    net = network(layers.Linear(1000, 1000), layers.ReLU(), layers.Linear(1000, 10))
    small, large = batch(8, 1000), batch(6000, 1000)
    cuts = [choose_blocks(make_plan(net, CE, x, y, [q.KFLR()], 0), x, Limits(workers=2)) for x, y in (small, large)]
    assert len(cuts[0].samples) == 2  # one for each worker that was asked for
    assert len(cuts[1].samples) == 4  # three would leave a worker idle for a third of the time
    x, y = small
    assert len(choose_blocks(make_plan(net, CE, x, y, [], 0), x).samples) == 1


@pytest.mark.parametrize(("controller", "threads"), [(object(), 3), (None, 1)])
def test_blocks_have_a_thread_for_each_processor_where_blas_can_be_limited(controller, threads, monkeypatch):
    monkeypatch.setattr(blocks, "cpu_count", lambda: 3)
    monkeypatch.setattr(blocks, "blas_controller", lambda: controller)
    net, (x, y) = network(layers.Linear(1000, 1000), layers.ReLU(), layers.Linear(1000, 10)), batch(6000, 1000)
    plan = make_plan(net, CE, x, y, [q.KFLR()], 0)
    assert choose_blocks(plan, x).threads == threads
    assert choose_blocks(plan, x, Limits(workers=2)).threads == 2
    assert choose_blocks(plan, x[:8]).threads == 1  # it is not cut


class Plain(q.Quantity):
    """A quantity with a reduction of its own."""

    name = "plain"

    def statistics(self):
        known = REDUCTIONS["sum"]
        return (q.Statistic(q.Reduction("mine", "Σ", known.size, formula=known.formula), GRADIENT),)


@pytest.mark.parametrize(
    ("asked", "largest"),
    [([], output_bytes), ([q.KFLR()], stack_bytes), ([q.BatchGrad()], lambda plan: row_bytes(plan) // 4)],
)
def test_large_calls_on_the_host_take_their_arrays_from_an_arena(asked, largest, monkeypatch):
    net, (x, y) = network(layers.Linear(20, 30), layers.ReLU(), layers.Linear(30, 10)), batch(8, 20)
    plan = make_plan(net, CE, x, y, asked, 0)
    size = 8 * largest(plan)
    assert size == 8 * max(output_bytes(plan), stack_bytes(plan), row_bytes(plan) // 4)
    monkeypatch.setattr(blocks, "REUSED_BYTES", size)
    assert choose_blocks(plan, x).reuses
    assert not choose_blocks(plan, x, Limits(memory="1 GiB")).reuses
    assert not choose_blocks(make_plan(net, CE, x, y, [*asked, Plain()], 0), x).reuses
    monkeypatch.setattr(blocks, "REUSED_BYTES", size + 1)
    assert not choose_blocks(plan, x).reuses
    monkeypatch.setattr(blocks, "REUSED_BYTES", 1)
    monkeypatch.setattr(blocks, "device_of", lambda x: "cuda:0")
    assert not choose_blocks(plan, x).reuses


def test_what_the_forward_pass_saves_sizes_blocks_where_the_stack_is_smaller():
    net = network(layers.Linear(10, 1000), *[layers.Tanh() for _ in range(39)], layers.Linear(1000, 10))
    x, y = batch(2000, 10)
    cut = choose_blocks(make_plan(net, CE, x, y, [], 0), x, Limits(workers=1))
    saved = 40 * 1000 * x.itemsize  # for one sample, by the layers of 1000 features
    assert 2**25 < max(block.stop - block.start for block in cut.samples) * saved < 2**26


@pytest.mark.parametrize("options", [{}, {"sample_block": 1}], ids=str)
def test_there_are_no_more_threads_than_processors(options, monkeypatch):
    monkeypatch.setattr(blocks, "cpu_count", lambda: 3)
    net, (x, y) = network(layers.Linear(50, 10)), batch(60, 50)
    plan = make_plan(net, CE, x, y, [q.KFLR()], 0)
    assert choose_blocks(plan, x, Limits(workers=10**6, **options)) == choose_blocks(
        plan, x, Limits(workers=3, **options)
    )


# ------------------------------------------------------------------------------------------------------------ exactness


class ScaleAll(Layer):
    """y = w x with one number w."""

    def parameter_shapes(self):
        return {"w": ()}

    def draw(self, rng):
        return {"w": rng.standard_normal(())}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.parameters["w"] * x, x

    def mjp(self, saved, mat):
        return self.parameters["w"] * mat

    def parameter_jacobians(self, saved):
        class Jacobian(ParameterJacobian):
            def per_sample(self, mat):
                return (mat * saved).reshape(*mat.shape[:2], -1).sum(-1)

        return {"w": Jacobian()}


def test_a_parameter_without_axes_is_right_in_blocks():
    net = common.chain(layers.Linear(3, 4), ScaleAll(), layers.Tanh(), layers.Linear(4, 3))
    asked = [q.DiagGGN(), q.DiagHessian(), q.BatchGrad(), q.BatchDiagGGN(), q.Variance()]
    common.both(net, CE, *common.batch(5, 3), *asked, column_block=1, sample_block=2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_squares_are_not_negative_where_positions_cancel(dtype):
    rng = np.random.default_rng(0)
    parts = layers.Conv2d(64, 64, 1), layers.AvgPool2d(2), layers.Flatten(), layers.Linear(64, 100)
    net = common.chain(*parts, dtype=dtype)
    x = rng.standard_normal((4, 64, 2, 2))
    x = (x - x.mean((2, 3), keepdims=True)).astype(dtype)  # the four positions' shares cancel
    y = rng.integers(0, 100, 4)
    asked = [q.BatchL2Grad(), q.DiagGGN(), q.BatchGrad()]
    result = gb.backward(net, CE, x, y, *asked)
    each = result["batch_grad"]["0.weight"]
    norms = result["batch_l2_grad"]["0.weight"]
    assert norms.min() >= 0
    assert result["diag_ggn"]["0.weight"].min() >= 0
    np.testing.assert_allclose(norms, (each**2).sum((1, 2, 3, 4)), atol=1e-12)


# ------------------------------------------------------------------------------------------------------------ bad input


def test_masked_arrays_and_matrices_are_refused_by_name():
    net = network(layers.Linear(5, 3))
    x, y = batch(4, 5, classes=3)
    with pytest.raises(TypeError, match="NumPy or CuPy array, got MaskedArray"):
        gb.backward(net, CE, x, np.ma.masked_equal(y, 1))
    with pytest.raises(TypeError, match="x: expected a NumPy or CuPy array, got MaskedArray"):
        gb.backward(net, CE, np.ma.masked_array(x), y)


def test_nothing_is_drawn_from_nan():
    for loss in (CE, losses.BCEWithLogitsLoss(), losses.MSELoss()):
        with pytest.raises(ValueError, match="output: expected finite"):
            loss.draw(np.array([[np.nan, 0.0]]), 1, rng=0)


def test_kfra_takes_blocks_that_do_not_cut():
    x, y = batch(4, 5, classes=3)
    net = network(layers.Linear(5, 3))
    gb.backward(net, CE, x, y, q.KFRA(), workers=1, sample_block=4)
    with pytest.raises(ValueError, match="KFRA"):
        gb.backward(net, CE, x, y, q.KFRA(), sample_block=3)


def test_the_gradient_of_a_confident_and_right_output_keeps_its_digits():
    gradient = losses.BCEWithLogitsLoss("sum").gradients(np.array([[20.0]], np.float32), np.ones((1, 1), np.float32))
    np.testing.assert_allclose(gradient, -2.0611537e-09, rtol=1e-5)


def test_kfra_takes_a_large_batch_whole(monkeypatch):
    monkeypatch.setattr(blocks, "SMALL_BYTES", 1)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    net, (x, y) = network(layers.Linear(5, 4), layers.Tanh(), layers.Linear(4, 3)), batch(8, 5, classes=3)
    cuts = [choose_blocks(make_plan(net, CE, x, y, [asked], 0), x) for asked in (q.KFRA(), q.KFLR())]
    assert [len(cut.samples) for cut in cuts] == [1, 8]


def test_threads_of_blas_are_limited_within_the_outermost_context_alone(monkeypatch):
    number = [4]
    monkeypatch.setattr(threads, "blas_functions", lambda: [(lambda: number[0], lambda n: number.__setitem__(0, n))])
    seen = []
    for _ in range(2):
        with one_blas_thread():
            seen += number
            with one_blas_thread():
                seen += number
            seen += number
        seen += number
    assert seen == [1, 1, 1, 4] * 2

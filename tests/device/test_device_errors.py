"""What can go wrong with a device: each error, its words, and what it proposes. All on the strict double."""

import re
import sys
import types

import numpy as np
import pytest
from common import in_turn, one_in
from device_cupy import CUDARuntimeError
from device_ledger import Device, ledger
from device_problems import CE, X, Y, simple, there
from refusals import refuse

import gbackprop as gb
from gbackprop import array, layers, losses, optim
from gbackprop import quantities as q
from gbackprop.base import memory
from gbackprop.engine import estimate
from gbackprop.engine.forms import FORMS
from gbackprop.plain.plan import make_plan

# ---------------------------------------------------------------------------------------------------------- no device


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("", ["0 GPUs"]),
        ("cudaErrorInsufficientDriver: driver is insufficient", ["working GPU", "too old", "gbackprop[cuda12x]"]),
        ("cudaErrorNoDevice: no CUDA-capable device is detected", ["no working GPU", "cudaErrorNoDevice"]),
    ],
)
def test_no_gpu(double, monkeypatch, reason, words):
    def count():
        if reason:
            raise CUDARuntimeError(reason)
        return 0

    monkeypatch.setattr(double.cuda.runtime, "getDeviceCount", count)
    network = simple()
    refuse(RuntimeError, ["'cuda'", *words], lambda: network.to("cuda"))
    assert {array.device_of(value) for value in network.parameters.values()} == {"cpu"}


def test_a_number_that_no_gpu_has(double):
    refuse(RuntimeError, ["'cuda:2'", "there are 2 GPUs", "from 0"], lambda: gb.asarray(X, "cuda:2"))


# ------------------------------------------------------------------------------------------------------ mixed devices


def test_host_and_device_arrays_in_one_call(double):
    network, words = simple(), ["cuda:0", "cpu", "gb.asarray", "net.to"]
    x, y = there(X), there(Y)
    refuse(TypeError, ["x:", *words], lambda: network(x))
    refuse(TypeError, ["x:", *words], lambda: gb.backward(network, CE, x, Y))
    refuse(TypeError, ["y of Cross", *words], lambda: gb.backward(network, CE, X, y))
    refuse(TypeError, ["targets of KFAC", *words], lambda: gb.backward(network, CE, X, Y, q.KFAC(targets=y[None])))
    refuse(TypeError, ["target of Cross", *words], lambda: CE(there(np.ones((6, 3))), Y), in_time=False)
    mse, z = losses.MSELoss(), np.zeros((6, 3))
    refuse(TypeError, ["y of MSELoss", *words], lambda: gb.backward(network, mse, X, there(z)))
    result = gb.backward(network, CE, X, Y, q.KFLR())
    block = result["kflr"]["5.weight"]
    refuse(TypeError, ["v:", *words], lambda: block.solve(there(np.ones(36)), 1.0), in_time=False)
    optimizer = optim.SGD(network.to("cuda"), 0.1)
    refuse(TypeError, ["gradient", *words], lambda: optimizer.step(result), in_time=False)
    refuse(TypeError, ["x:", *words], lambda: gb.backward(network, CE, X, Y))
    moved = optim.Adam(simple())
    moved.step(result)
    moved.network.to("cuda")
    found = gb.backward(moved.network, CE, x, y)
    words = ["state first_moment/0.weight", "cuda:0", "cpu", "load_state_dict(optimizer.state_dict())"]
    refuse(TypeError, words, lambda: moved.step(found), in_time=False)
    moved.load_state_dict(moved.state_dict()).step(found)
    words = ["cuda:0", "cpu", "gb.asarray", "net.to"]
    network.layers[5].parameters["bias"] = np.zeros(3)
    refuse(TypeError, ["parameter 5.bias", "cuda:0", "cpu", "net.to"], lambda: network(x))


def test_two_devices_in_one_call(double):
    network = simple().to("cuda:1")
    refuse(TypeError, ["x:", "cuda:0", "cuda:1", "net.to"], lambda: gb.backward(network, CE, there(X), there(Y)))
    x = gb.asarray(X, "cuda:1")
    refuse(TypeError, ["y of Cross", "cuda:0", "cuda:1"], lambda: gb.backward(network, CE, x, there(Y)))


# ----------------------------------------------------------------------------------------------- another than device 0


@pytest.mark.parametrize("options", [{}, {"sample_block": 2}, {"workers": 3}, {"column_block": 2}], ids=str)
def test_all_of_it_happens_on_the_device_of_the_arguments(double, options):
    """The double refuses to compute with arrays of another device than the thread's current one, as CuPy does."""
    network = simple().to("cuda:1")
    x, y = gb.asarray(X, "cuda:1"), gb.asarray(Y, "cuda:1")
    quantities = [q.BatchGrad(), q.Variance(), q.DiagHessian(), q.KFAC(2), q.DiagGGNMC()]
    found = gb.backward(network, CE, x, y, *quantities, rng=0, training=True, **options)
    arrays = [found.loss, found.output, *found.gradient.values(), *found["variance"].values()]
    arrays += [found["kfac"]["5.weight"].A, found["batch_grad"]["0.weight"]]
    assert {array.device_of(part) for part in arrays} == {"cuda:1"}
    want = gb.backward(simple(), CE, X, Y, q.Variance(), rng=0, training=True)
    np.testing.assert_allclose(gb.asnumpy(found.output), want.output, rtol=1e-12)
    assert Device().id == 0


def test_calls_beside_backward_on_another_device(double):
    network = simple().to("cuda:1")
    x, y = gb.asarray(X, "cuda:1"), gb.asarray(Y, "cuda:1")
    output = network(x)
    values = [output, CE(output, y), CE.draw(output, rng=0), *network.state_dict().values()]
    result = gb.backward(network, CE, x, y, q.KFLR())
    block = result["kflr"]["5.weight"]
    flat = result.gradient["5.weight"]
    values += [block.to_dense(), block.trace(), block.matvec(flat), block.solve(flat, 0.1)]
    network.parameters["5.bias"] = np.zeros(3)
    values.append(network.parameters["5.bias"])
    assert {array.device_of(value) for value in values} == {"cuda:1"}
    optim.Preconditioned(network, q.KFLR(), 0.1, 0.1)
    assert "Conv2d" in str(gb.explain(network, CE, x, y, q.KFLR()))
    for make in (lambda: optim.Adam(network), lambda: optim.SGD(network, 0.1, momentum=0.5)):
        make().step(result)
    assert {array.device_of(value) for value in network.parameters.values()} == {"cuda:1"}


# ------------------------------------------------------------------------------------------------------------- memory


def wide():
    chain = [layers.Conv2d(2, 10, 3, padding=1), layers.ReLU(), layers.Conv2d(10, 10, 3, padding=1), layers.Tanh()]
    return gb.Sequential(*chain, layers.Flatten(), layers.Linear(10 * 36, 5), rng=0, dtype="float64")


def batch(n=16):
    return np.random.default_rng(0).standard_normal((n, 2, 6, 6)), np.arange(n) % 5


@pytest.fixture
def problem(double):
    """A network on the device, and its batch there."""
    return wide().to("cuda"), *map(there, batch())


QUANTITIES = [q.BatchGrad(), q.BatchL2Grad(), q.Variance(), q.DiagGGN(), q.KFAC(), q.KFLR(), q.DiagHessian()]


def least(network, x, y, asked, *blocks):
    """The memory that is estimated for blocks of samples and of columns."""
    plan = make_plan(network, CE, x, y, asked, 0)
    return estimate.estimate(plan, x, estimate.Largest(*blocks, 1), estimate.saved_bytes(plan, x, FORMS))


def taken(network, x, y, *asked, **options):
    """The most memory that a call took."""
    before = ledger.used
    ledger.clear()
    gb.backward(network, CE, x, y, *asked, rng=0, **options)
    return ledger.peak - before


def test_a_device_has_room_for_products_of_each_sample_and_column(double):
    """Three arrays, twice: of 4 samples with 1 + 2 columns there are products of the largest weight's 20 numbers."""
    x, y = np.ones((8, 5)), np.arange(8) % 3
    network, asked = gb.Sequential(layers.Linear(5, 4), layers.Linear(4, 3), rng=0, dtype="float64"), [q.DiagGGN()]
    largest, saved = estimate.Largest(4, 2, 1), 1000
    host = estimate.estimate(make_plan(network, CE, x, y, asked, 0), x, largest, saved)
    plan = make_plan(network.to("cuda"), CE, there(x), there(y), asked, 0)
    assert estimate.estimate(plan, there(x), largest, saved) - host == 2 * 3 * 4 * (1 + 2) * 20 * 8


CUTS = [{}, {"sample_block": 4}, {"column_block": 3}]


@pytest.mark.parametrize(("quantity", "options"), in_turn([(each,) for each in [None, *QUANTITIES]], CUTS))
def test_a_call_on_a_device_takes_no_more_than_is_estimated(problem, quantity, options):
    asked = [quantity] if quantity else []
    most = least(*problem, asked, options.get("sample_block", 16), options.get("column_block"))
    assert most / 30 < taken(*problem, *asked, **options) <= most


@pytest.mark.parametrize("quantity", one_in(3, [q.BatchGrad(), q.BatchL2Grad(), q.DiagGGN(), q.DiagHessian()]))
def test_out_of_memory_names_the_layer_and_blocks_that_fit(double, quantity):
    problem = wide().to("cuda"), *map(there, batch(24))
    free = int(0.6 * taken(*problem, quantity))
    assert free > least(*problem, [quantity], 1, 1)  # so something would fit
    ledger.limit = ledger.used + free
    with pytest.raises(gb.TooLargeError, match="would fit into the") as caught:
        taken(*problem, quantity)
    message = str(caught.value)
    assert isinstance(caught.value, MemoryError)
    assert re.search(r"layer \d, (Conv2d|Linear|Tanh|ReLU)|forward pass of 24 samples", message), message
    proposed = {name: int(value) for name, value in re.findall(r"(sample_block|column_block)=(\d+)", message)}
    assert "sample_block" in proposed
    del caught
    taken(*problem, quantity, **proposed)


def test_out_of_memory_without_a_block_that_fits_and_in_a_thread(problem):
    network, x, _ = problem
    ledger.limit = ledger.used + 2_000_000
    with pytest.raises(gb.TooLargeError, match=r"of 8 samples.*sample_block=\d"):
        taken(*problem, q.DiagGGN(), sample_block=8, workers=2)
    ledger.limit = ledger.used + 1000
    with pytest.raises(gb.TooLargeError, match=r"no block would fit into the \d+ B that are free"):
        taken(*problem, q.DiagGGN())
    with pytest.raises(gb.TooLargeError, match="forward pass of 16 samples: out of memory"):
        network(x)


def test_the_host_says_the_same(monkeypatch):
    def full(self, x, y):
        raise MemoryError("Unable to allocate 3.0 GiB")

    monkeypatch.setattr(layers.Tanh, "first", full)
    words = ["layer 3, Tanh(), with 6 columns of 16 samples", "Unable to allocate 3.0 GiB", "sample_block=8"]
    with pytest.raises(gb.TooLargeError, match=".*".join(map(re.escape, words))):
        gb.backward(wide(), CE, *batch(), q.DiagGGN(), workers=1)


def test_available_memory_counts_what_the_pool_keeps(double, monkeypatch):
    monkeypatch.setattr(double, "get_default_memory_pool", lambda: types.SimpleNamespace(free_bytes=lambda: 500))
    ledger.limit = ledger.used + 1000
    assert memory.available_memory("cuda") == 1500


# --------------------------------------------------------------------------------------------------------------- TF32


def test_tf32_is_off_but_inside_its_context(double):
    core = double._core
    assert core.get_compute_type(np.float32) == 1
    with gb.tf32():
        with gb.tf32():
            assert core.get_compute_type(np.float32) == 7
        assert core.get_compute_type(np.float32) == 7  # until the last leaves
        assert core.get_compute_type(np.float64) == 1
    assert core.get_compute_type(np.float32) == 1
    core.set_compute_type(np.float32, 2)
    with pytest.raises(KeyError), gb.tf32():
        raise KeyError
    assert core.get_compute_type(np.float32) == 2


def test_tf32_without_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match="CuPy"), gb.tf32():
        pass

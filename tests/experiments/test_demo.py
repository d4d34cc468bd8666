"""The command line and the demonstration: a small run from end to end, and why a run cannot start."""

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import refused
from common import one_in

import gbackprop as gb
from gbackprop import losses
from gbackprop.__main__ import main
from gbackprop.experiments import data
from gbackprop.experiments.demo.training import SCHEDULES, Schedule, make_network, predict, train

NAMES = [
    *("gradient", "batch_grad", "batch_l2_grad", "second_moment", "variance", "diag_ggn", "diag_ggn_mc"),
    *("diag_hessian", "kfac", "kflr", "kfra"),
]
TINY = Schedule(epochs=2, images=160, shown=10, learning_rate=0.2, batch=32)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def blobs(rng, samples=96):
    """Images whose class is where their bright corner is."""
    labels = rng.integers(0, 4, samples)
    images = rng.uniform(0, 0.3, (samples, 1, 8, 8)).astype("float32")
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(label, 2)
        image[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 0.7
    return images, labels


# --- networks and training ------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "weights"), [
    ((1, 8, 8), [(6, 1, 3, 3), (16, 96), (10, 16)]), ((1, 16, 15), [(6, 1, 3, 3), (16, 336), (10, 16)]),
    ((1, 16, 16), [(8, 1, 5, 5), (16, 32), (10, 16)]), ((3, 32, 32), [(8, 3, 5, 5), (16, 200), (10, 16)]),
])  # fmt: skip
def test_a_network_for_each_image_size(shape, weights, rng):
    net = make_network(shape, 10, rng)
    assert [parameter.shape for name, parameter in net.parameters.items() if "weight" in name] == weights
    assert net(np.zeros((3, *shape), "float32")).shape == (3, 10)
    assert {parameter.dtype.name for parameter in net.parameters.values()} == {"float32"}


def test_training_learns_and_is_a_function_of_its_seed(rng):
    x, y = blobs(rng)
    schedule = replace(TINY, epochs=25, batch=16)

    def trained(seed):
        start, order = np.random.default_rng(seed).spawn(2)
        net = make_network(x.shape[1:], 4, start)
        return net, list(train(net, losses.CrossEntropyLoss(), (x, y), schedule, order))

    net, values = trained(0)
    assert len(values) == 25 * 6
    assert np.mean(values[-6:]) < np.mean(values[:6]) / 4
    assert np.mean(predict(net, x, batch=40) == y) > 0.95
    again, other = trained(0)[0], trained(1)[0]
    for name, value in net.parameters.items():
        np.testing.assert_array_equal(value, again.parameters[name])
    assert any(np.any(value != other.parameters[name]) for name, value in net.parameters.items())


def test_a_step_is_momentum_descent(rng):
    x, y = blobs(rng, 4)
    net = make_network(x.shape[1:], 4, rng)
    before, loss = net.state_dict(), losses.CrossEntropyLoss()
    steps = train(net, loss, (x, y), Schedule(2, 4, 4, learning_rate=0.5, batch=4, momentum=0.25), rng)
    next(steps)
    first = gb.backward(gb.Sequential(*net, dtype="float32"), loss, x, y).gradient
    at_start = {name: (before[name] - value) / 0.5 for name, value in net.state_dict().items()}
    middle = net.state_dict()
    next(steps)
    for name, value in net.parameters.items():
        expected = middle[name] - 0.5 * (0.25 * at_start[name] + first[name])
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)


# --- verification ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    x, y = blobs(rng, 5)
    return make_network(x.shape[1:], 4, rng), losses.CrossEntropyLoss(), x, y


@pytest.fixture(scope="module")
def oracle_errors(problem):
    """The check, with brute force done once for all tests: no quantity has a part in it."""
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    from gbackprop.experiments.demo import measurement

    net, loss, x, y = problem
    made, dense = {}, measurement.Dense

    def errors():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measurement, "Dense", lambda *given: made.get(0) or made.setdefault(0, dense(*given)))
            return measurement.oracle_errors(net, loss, x[:3], y[:3], np.random.default_rng(0))

    return errors


def test_the_time_of_a_call_is_what_it_took():
    pytest.importorskip("matplotlib")
    from gbackprop.experiments.demo.measurement import timed

    start = time.perf_counter()
    seconds, value = timed(lambda: time.sleep(0.01) or "done")
    assert value == "done"
    assert 0.01 <= seconds <= time.perf_counter() - start


def test_the_first_call_is_not_timed(monkeypatch):
    pytest.importorskip("matplotlib")
    from gbackprop.experiments.demo import measurement

    calls, timed = [], []
    monkeypatch.setattr(measurement, "timed", lambda call: (timed.append(call()) or 1.0, None))
    assert measurement._median_time(lambda: calls.append(0)) == 1
    assert (len(calls), len(timed)) == (measurement.FEWEST + 1, measurement.FEWEST)


@pytest.mark.long
def test_every_quantity_agrees_with_its_oracle(oracle_errors):
    errors = oracle_errors()
    assert list(errors) == NAMES
    assert max(errors.values()) < 1e-10


@pytest.mark.parametrize("name", one_in(3, ["DiagGGN", "Variance", "KFAC"]))
def test_a_planted_fault_is_found_and_nothing_else_accused(oracle_errors, monkeypatch, name):
    quantity = getattr(gb.quantities, name)
    finish = quantity.finish

    def faulty(self, scale, *values):
        right = finish(self, scale, *values)
        return replace(right, B=right.B * 1.000001) if hasattr(right, "B") else right * 1.000001

    monkeypatch.setattr(quantity, "finish", faulty)
    wrong = [key for key, error in oracle_errors().items() if not error <= 1e-8]
    assert wrong == [quantity.name]


def test_the_loop_finds_samples_that_changed_places(problem):
    from gbackprop.experiments.demo.measurement import loop_error

    net, loss, x, y = problem
    batch_grad = gb.backward(net, loss, x, y, gb.quantities.BatchGrad())["batch_grad"]
    assert loop_error(net, loss, x, y, batch_grad) < 1e-5
    swapped = {name: value[[1, 0, 2, 3, 4]] for name, value in batch_grad.items()}
    assert loop_error(net, loss, x, y, swapped) > 1e-2


def test_what_is_not_within_its_tolerance_is_wrong():
    report = pytest.importorskip("gbackprop.experiments.demo.report")
    for error, loop, right in ((1e-9, 1e-6, True), (1e-7, 1e-6, False), (1e-9, 1e-4, False), (np.nan, 1e-6, False)):
        assert report.Figures({}, {"kfra": error}, (1.0, loop)).right is right
    assert "ok" in report._judged(1e-9, 1e-8)[1]
    assert "WRONG" in report._judged(1e-7, 1e-8)[1]
    assert "WRONG" in report._judged(float("nan"), 1e-8)[1]
    assert [report._duration(seconds) for seconds in (0.0123, 0.9996, 12.0)] == ["12.3 ms", "1.00 s", "12.00 s"]


def test_every_set_of_images_has_a_schedule():
    assert tuple(SCHEDULES) == data.NAMES


# --- the demo -------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    """The demo with a tiny plan, and timing that does not repeat itself."""
    for package in ("rich", "matplotlib", "sklearn"):
        pytest.importorskip(package)
    from gbackprop.experiments.demo import measurement

    monkeypatch.setitem(SCHEDULES, "digits", TINY)
    monkeypatch.setattr(measurement, "FEWEST", 1)
    monkeypatch.setattr(measurement, "BUDGET", 0.0)


@pytest.fixture
def judged(tiny, monkeypatch):
    """The demo with brute force left out: what it would have found, by name."""
    from gbackprop.experiments.demo import measurement

    errors = dict.fromkeys(NAMES, 0.0)
    monkeypatch.setattr(measurement, "oracle_errors", lambda *_: errors)
    return errors


def test_demo_from_end_to_end(tiny, tmp_path, capsys):
    picture = tmp_path / "[b]picture.png"  # no markup
    assert main(["demo", "--epochs", "1", "--seed", "5", "--output", str(picture)]) == 0
    captured = capsys.readouterr()
    out = captured.out
    assert captured.err == ""
    assert f"picture: {picture}" in out.splitlines()
    assert "160 of 1438 training images, 359 held out" in out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for name in NAMES:
        assert rows[name].split()[-1] == "ok", rows[name]
    assert "WRONG" not in out
    assert "every verdict is ok" in out
    assert "tolerance 1e-08" in " ".join(out.split())
    import matplotlib.image

    pixels = matplotlib.image.imread(picture)
    assert min(pixels.shape[:2]) > 800
    assert pixels[..., :3].std() > 0.1  # something is drawn


def test_a_wrong_number_makes_the_demo_fail(judged, tmp_path, capsys, monkeypatch):
    judged["kfra"] = 1e-3
    monkeypatch.setattr("gbackprop.experiments.demo.command.picture.draw", lambda batch, path: None)
    assert main(["demo", "--output", str(tmp_path / "picture.svg")]) == 1
    out = capsys.readouterr().out
    wrong = [line.split()[0] for line in out.splitlines() if "WRONG" in line]
    assert wrong == ["kfra", "at"]
    assert "at least one number is WRONG" in out


def test_same_seed_same_run(judged, tmp_path, monkeypatch):
    from gbackprop.experiments import demo

    drawn = []
    monkeypatch.setattr(demo.command.picture, "draw", lambda batch, path: drawn.append(batch))
    setup = demo.prepare("digits", None, "cpu", 1, tmp_path / "picture.png")
    for seed in (0, 0, 1):
        demo.demonstrate(setup, seed, tmp_path / "picture.png")
    first, again, other = drawn
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.norms, again.norms)
    for weight, factors in first.result["kfac"].items():  # a draw
        np.testing.assert_array_equal(factors.B, again.result["kfac"][weight].B)
    assert np.any(first.x != other.x)
    assert np.any(first.norms != other.norms)


def test_the_bar_of_training_is_full_at_its_end(judged, tmp_path, monkeypatch):
    from gbackprop.experiments import demo

    command, bars = demo.command, []
    made = command._bar
    monkeypatch.setattr(command, "_bar", lambda *given, **named: bars.append(made(*given, **named)) or bars[-1])
    monkeypatch.setattr(command.picture, "draw", lambda batch, path: None)
    demo.demonstrate(demo.prepare("digits", None, "cpu", 1, tmp_path / "p.png"), 0, tmp_path / "p.png")
    for bar in bars:
        assert [(task.completed, task.finished) for task in bar.tasks] == [(task.total, True) for task in bar.tasks]
    assert len(bars) == 2


def test_the_picture_shows_what_the_sweep_says(judged, tmp_path, monkeypatch):
    from matplotlib.colors import to_rgba
    from matplotlib.figure import Figure

    from gbackprop.experiments import demo

    batches, figures, picture = [], [], demo.command.picture

    @contextmanager
    def kept(path, title, **options):
        figures.append(Figure())
        yield figures[-1]

    with monkeypatch.context() as patch:
        patch.setattr(picture, "draw", lambda batch, path: batches.append(batch))
        demo.demonstrate(demo.prepare("digits", None, "cpu", 1, tmp_path / "p.png"), 0, tmp_path / "p.png")
    monkeypatch.setattr(picture, "written_figure", kept)
    (batch,) = batches
    picture.draw(batch, tmp_path / "p.png")
    histogram, *images = figures[0].axes[:15]
    diagonals, *factors = figures[0].axes[15:]
    sweep, norms, right = batch.result, batch.norms, batch.y == batch.answers
    each = [sum((g[n] ** 2).sum() for g in sweep["batch_grad"].values()) for n in range(10)]
    np.testing.assert_allclose(norms, 10 * np.sqrt(each), rtol=1e-5)

    counts = [[bar.get_height() for bar in bars] for bars in histogram.containers]
    assert [sum(some) for some in counts] == [right.sum(), (~right).sum()]
    texts = [text.get_text() for text in histogram.get_legend().texts]
    assert texts == [f"classified rightly ({right.sum()})", f"classified wrongly ({(~right).sum()})"]
    order = [*np.argsort(norms)[::-1][:7], *np.argsort(norms)[:7]]
    for axes, n in zip(images, order, strict=True):
        label, answer = (batch.images.classes[some[n]] for some in (batch.y, batch.answers))
        assert (axes.get_title(), axes.get_xlabel()) == (label, f"→ {answer}\n{norms[n]:.2g}")
        color = picture.RIGHT if label == answer else picture.WRONG
        assert (axes.xaxis.label.get_color(), axes.spines["top"].get_edgecolor()) == (color, to_rgba(color))
        np.testing.assert_array_equal(axes.images[0].get_array(), batch.x[n, 0])
        assert axes.images[0].get_clim() == (0, 1)

    ggn, hessian = sweep["diag_ggn"], sweep["diag_hessian"]
    for line, name in zip(diagonals.lines[-len(ggn) :], ggn, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.stack([ggn[name].ravel(), hessian[name].ravel()], 1))
    largest = max(abs(part).max() for both in (ggn, hessian) for part in both.values())
    lowest = min(0, *(part.min() for part in hessian.values()))
    assert diagonals.get_xlim() == pytest.approx((-largest / 5e4, 2 * largest))
    assert not [*diagonals.xaxis.get_minorticklocs(), *diagonals.yaxis.get_minorticklocs()]
    assert diagonals.get_ylim() == pytest.approx((min(-largest / 5e4, 2 * lowest), 2 * largest))
    shown = [axes for axes in factors if axes.get_title()]
    weights = [name for name in sweep.gradient if name.endswith("weight")][:2]
    kinds = ("kfac", "kflr", "kfra")
    wanted = [part for w in weights for part in (sweep["kflr"][w].A, *(sweep[kind][w].B for kind in kinds))]
    for number, (axes, matrix) in enumerate(zip(shown, wanted, strict=True)):
        np.testing.assert_array_equal(axes.images[0].get_array(), matrix)
        common = wanted[number : number + 1] if number % 4 == 0 else wanted[number // 4 * 4 + 1 : number // 4 * 4 + 4]
        high = max(abs(part).max() for part in common)
        assert axes.images[0].get_clim() == pytest.approx((-high, high))
        tenth = axes.images[0].norm(high / 10)  # on a linear scale 0.55
        assert tenth == pytest.approx(0.55) if number % 4 == 0 else 0.7 < tenth < 0.8


def test_ticks_of_a_symmetric_scale_are_powers_of_ten_above_its_linear_part():
    ticks = pytest.importorskip("gbackprop.experiments.demo.picture")._decades(0.2, 0.2e-4)
    assert ticks == pytest.approx([-0.1, -0.01, -1e-3, -1e-4, 0, 1e-4, 1e-3, 0.01, 0.1])


# --- what cannot start ----------------------------------------------------------------------------


def test_data_that_are_not_there(capsys, tmp_path):
    assert "did you mean 'fashion-mnist'?" in refused(capsys, "demo", "--data", "fashion-minst")
    assert "data_dir is needed" in refused(capsys, "demo", "--data", "mnist")
    nowhere = tmp_path / "nowhere"
    assert f"{nowhere}: no such folder" in refused(capsys, "demo", "--data", "mnist", "--data-dir", nowhere)
    line = refused(capsys, "demo", "--data", "mnist", "--data-dir", str(tmp_path))
    assert "t10k-labels-idx1-ubyte.gz" in line
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{part}-ubyte").write_bytes(b"\0\0\x08\x03\0\0")
    line = refused(capsys, "demo", "--data", "mnist", "--data-dir", str(tmp_path))
    assert "train-images-idx3-ubyte: truncated" in line


def test_picture_that_cannot_be_written(capsys, tmp_path):
    assert "ends in .png" in refused(capsys, "demo", "--output", str(tmp_path / "picture.gif"))
    assert "no such folder" in refused(capsys, "demo", "--output", str(tmp_path / "nowhere" / "picture.png"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_picture_on_a_full_disk(judged, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("full.png").symlink_to("/dev/full")
    line = refused(capsys, "demo", "--epochs", "1", "--output", "full.png", prints=True)
    assert line == "full.png: cannot be written: No space left on device"


def test_device_that_is_not_there(capsys, monkeypatch):
    assert "'quantum'" in refused(capsys, "demo", "--device", "quantum")
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy" in refused(capsys, "demo", "--device", "cuda")


@pytest.mark.parametrize("package", ["rich", "matplotlib"])
def test_missing_package_is_named(capsys, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    line = refused(capsys, "demo")
    assert f"{package!r} is not installed; pip install \"gbackprop[experiments]\"" in line


@pytest.mark.parametrize(
    "arguments",
    [[], ["dance"], ["demo", "--seed", "-1"], ["demo", "--epochs", "0"], ["demo", "--epochs", "two"]],
)
def test_arguments_that_make_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"gbackprop {gb.__version__}\n"


# --- check ----------------------------------------------------------------------------------------


def write_case(path, gradient_factor=1.0):
    """A reference file of a linear layer with squared error, whose gradient is written out here."""
    rng = np.random.default_rng(0)
    x, y, weight = rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), rng.normal(size=(2, 3))
    gradient = 2 * (x @ weight.T - y).T @ x * gradient_factor
    spec = {"layers": [["Linear", {"in_features": 3, "out_features": 2, "bias": False}]]}
    spec |= {"loss": ["MSELoss", "sum"], "input": [3], "batch": 4, "parameters": ["0.weight"]}
    arrays = {"x": x, "y": y, "param/0.weight": weight, "gradient/0.weight": gradient, "output": x @ weight.T}
    np.savez(path, spec=json.dumps(spec), **arrays)


def test_check_counts_cells(tmp_path, capsys):
    write_case(tmp_path / "right.npz")
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 2"
    write_case(tmp_path / "wrong.npz", gradient_factor=1 + 1e-6)
    assert main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "3 of 4"
    assert "gradient" in out
    assert main(["check", str(tmp_path), "--tolerance", "1e-5"]) == 0


def test_check_of_nothing(tmp_path, capsys):
    assert main(["check", str(tmp_path / "nowhere")]) == 2
    assert main(["check", str(tmp_path)]) == 2
    assert "nowhere" in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize("tolerance", ["0", "-1", "nan", "small"])
def test_check_tolerance_is_a_positive_number(tolerance, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["check", ".", "--tolerance", tolerance])
    assert stop.value.code == 2
    assert "--tolerance" in capsys.readouterr().err

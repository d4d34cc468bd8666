"""``python -m gbackprop plot``: the curves, the tables and the pictures of a file of results."""

import re
import sqlite3
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import refused

pytest.importorskip("filelock")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from gbackprop.__main__ import main
from gbackprop.experiments import curves, plots, published, tables
from gbackprop.experiments.optimizers import OPTIMIZERS
from gbackprop.experiments.plots import COLORS, draw
from gbackprop.experiments.runs import EpochRow, Outcome
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.store import Store


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def put(store, spec, phase, accuracy, status="done", epochs=3):
    """A run whose accuracies rise evenly."""
    parts = [(epoch, accuracy * epoch / epochs) for epoch in range(epochs + 1)]
    rows = [EpochRow(e, 1 - e / 10, rising, 1, accuracy, 1 - e / 9, rising, 1) for e, rising in parts]
    store.add([(spec, phase)])
    store.start(spec)
    store.finish(Outcome(spec, status, tuple(rows)))


@pytest.fixture
def results():
    """KFAC: a grid whose best lies at its edge in lr; DiagGGN: fixed, three seeds, one of which diverged."""
    with Store("r.sqlite") as store:
        for lr in (1e-3, 1e-2, 1e-1):
            for damping in (1e-2, 1e-1, 1.0):
                spec = RunSpec("mnist_logreg", "KFAC", lr, damping, epochs=3)
                put(store, spec, "grid", 0.5 + lr - abs(np.log10(damping) + 1) / 100)
        store.add([(RunSpec("mnist_logreg", "KFAC", 1e-1, 1e-1, epochs=3), "repeat")])
        put(store, RunSpec("mnist_logreg", "KFAC", 1e-1, 1e-1, seed=43, epochs=3), "repeat", 0.7)
        for seed, accuracy in ((42, 0.8), (43, 0.9), (44, 0.6), (45, 0.7)):
            status = "diverged" if seed == 45 else "done"
            put(store, RunSpec("mnist_logreg", "DiagGGN", 1e-3, 1e-3, seed=seed, epochs=3), "fixed", accuracy, status)
        put(store, RunSpec("fmnist_2c2d", "Adam", 1e-3, epochs=3), "fixed", 0.9)
        return store.runs()


def test_curves_are_medians_and_quartiles(results):
    diag, kfac = curves.curves(results, "mnist_logreg")
    assert (diag.spec.optimizer, len(diag.runs), diag.diverged) == ("DiagGGN", 3, 1)
    epochs, (lower, median, upper) = diag.quartiles("test_accuracy")
    np.testing.assert_array_equal(epochs, [0, 1, 2, 3])
    np.testing.assert_allclose(median, [0, 0.8 / 3, 1.6 / 3, 0.8])
    np.testing.assert_allclose((lower[-1], upper[-1]), (0.7, 0.85))  # halfway to the neighbours
    assert (kfac.spec.lr, kfac.spec.damping, [r.spec.seed for r in kfac.runs]) == (0.1, 0.1, [42, 43])
    assert (kfac.lr_place, kfac.damping_place) == ("edge", "interior")
    assert (diag.lr_place, diag.damping_place) == ("none", "none")
    assert curves.labels([diag, kfac]) == ["DiagGGN", "KFAC"]


def test_the_table(results):
    shown = curves.curves(results, "mnist_logreg")
    lines = tables.markdown(shown).splitlines()
    assert lines[2].startswith("| DiagGGN | 0.001 | 0.001 | – | 3 (1 diverged) | 0.8000 (0.7000–0.8500) | – |")
    assert lines[3].startswith("| KFAC | 0.1 | 0.1 | lr: edge, damping: interior | 2 | 0.6500 (0.6250–0.6750) | – |")
    assert {line.count("|") for line in lines} == {10}


def test_the_seed_of_a_grid_is_none_of_the_seeds_unless_it_is_repeated():
    """Chosen by its validation accuracy, it would raise the median; while no other is done, it is shown."""
    with Store("r.sqlite") as store:
        for lr, accuracy in ((1e-3, 0.5), (1e-2, 0.9)):
            put(store, RunSpec("mnist_logreg", "Adam", lr, seed=7, epochs=3), "grid", accuracy)
        first, second = (RunSpec("mnist_logreg", "Adam", 1e-2, seed=seed, epochs=3) for seed in (42, 43))
        store.add([(first, "repeat"), (second, "repeat")])
        for spec, seeds in ((first, [7]), (second, [42]), (None, [42, 43])):
            (curve,) = curves.curves(store.runs(), "mnist_logreg")
            assert [run.spec.seed for run in curve.runs] == seeds
            if spec:
                put(store, spec, "repeat", 0.6)
    assert curve.final("test_accuracy")[1] == 0.6


def test_a_grid_with_points_to_come_says_so(results):
    with Store("r.sqlite") as store:
        store.add([(RunSpec("mnist_logreg", "KFAC", 1.0, 1e-1, epochs=3), "grid")])
        _, kfac = curves.curves(store.runs(), "mnist_logreg")
    assert (kfac.missing, kfac.lr_place, kfac.spec.lr) == (1, "interior", 0.1)
    assert tables.rows([kfac])[0][3] == "interior (1 points to come)"


def test_published_figures_stand_beside_runs_of_their_length():
    with Store("p.sqlite") as store:
        put(store, RunSpec("mnist_logreg", "KFAC", 1e-2, 1e-2), "fixed", 0.92, epochs=50)
        (row,) = tables.rows(curves.curves(store.runs(), "mnist_logreg"))
    assert row[6::2] == ("0.9245", "0.2722")
    assert len(published.FIGURES) == 7 + 7 + 5
    sums = Counter()
    for figure in published.FIGURES:
        sums[figure.problem, figure.epoch, figure.metric] += figure.value
    assert [(key, round(value, 4)) for key, value in sums.items()] == [  # checksums of what was published
        *((("mnist_logreg", 50, "test_accuracy"), 6.4787), (("mnist_logreg", 50, "test_loss"), 1.8852)),
        (("cifar10_3c3d", 10, "test_accuracy"), 3.7361),
    ]


def test_several_curves_of_an_optimizer_are_told_apart(results):
    with Store("r.sqlite") as store:
        put(store, RunSpec("mnist_logreg", "DiagGGN", 1e-2, 1e-3, epochs=3), "fixed", 0.8)
        put(store, RunSpec("mnist_logreg", "DiagGGN", 1e-3, 1e-3, epochs=3, average="ema"), "fixed", 0.8)
        shown = curves.curves(store.runs(), "mnist_logreg")
    assert curves.labels(shown) == [
        *("DiagGGN lr 0.001 average mean", "DiagGGN lr 0.01 average mean", "DiagGGN lr 0.001 average ema", "KFAC"),
    ]
    draw(shown, "mnist_logreg", "several.png")
    assert plots._styles(shown) == ["-", "--", ":", "-"]
    assert [plots._seeds(some) for some in (shown, shown[:1], shown[1:2])] == ["1 to 3 seeds", "3 seeds", "1 seed"]


def test_a_panel_shows_medians_quartiles_and_published_figures_aside(monkeypatch):
    figures = []

    @contextmanager
    def kept(path, title, **options):
        figures.append(Figure())
        yield figures[-1]

    monkeypatch.setattr(plots, "written_figure", kept)
    with Store("p.sqlite") as store:
        for optimizer, seed, accuracy in (("Adam", 42, 0.9), ("KFAC", 42, 0.92), ("KFAC", 43, 0.96)):
            damping = 1e-2 if optimizer == "KFAC" else None
            put(store, RunSpec("mnist_logreg", optimizer, 1e-2, damping, seed=seed), "fixed", accuracy, epochs=50)
        shown = curves.curves(store.runs(), "mnist_logreg")
    draw(shown, "mnist_logreg", "p.png")
    (figure,) = figures
    assert [axes.get_title() for axes in figure.axes] == [plots.NAMES[metric] for metric in curves.METRICS]
    accuracy = figure.axes[1]
    assert [len(axes.lines) for axes in figure.axes] == [4, 4, 2, 2]  # the training has no published figures
    adam, kfac = accuracy.lines[2:]
    assert [line.get_linestyle() for line in (adam, kfac)] == ["-.", "-"]
    np.testing.assert_allclose(kfac.get_ydata(), 0.94 * np.arange(51) / 50)
    band = accuracy.collections[1].get_paths()[0].vertices
    assert {round(y, 6) for x, y in band if x == 50} == {0.93, 0.95}
    assert [(*mark.get_xdata(), *mark.get_ydata()) for mark in accuracy.lines[:2]] == [(51.5, 0.9265), (53.0, 0.9245)]
    assert [mark.get_color() for mark in accuracy.lines[2:]] == [COLORS["Adam"], COLORS["KFAC"]]
    low, high = 0.18, 0.95  # after the first ten epochs
    np.testing.assert_allclose(accuracy.get_ylim(), (low - 0.06 * (high - low), high + 0.06 * (high - low)))
    assert accuracy.get_xlim() == pytest.approx((-1, 54.5))
    assert accuracy.get_xticks()[[0, -1]].tolist() == [0, 50]
    assert accuracy.get_xlabel() == "epoch"
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["Adam", "KFAC", "published median (last epoch: on the right)"]
    assert plots._range(shown[:1], "train_accuracy") == pytest.approx((0.18 - 0.06 * 0.72, 0.9 + 0.06 * 0.72))
    flat = replace(shown[0], runs=(replace(shown[0].runs[0], rows=shown[0].runs[0].rows[:1]),))
    assert plots._range([flat], "train_accuracy") == (-0.01, 0.01)


def test_every_optimizer_has_a_colour_of_its_own():
    assert tuple(COLORS) == OPTIMIZERS
    assert len(set(COLORS.values())) == len(OPTIMIZERS)


def test_plot_of_each_problem(results, capsys):
    assert main(["plot", "r.sqlite", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("picture")] == [
        *("picture: r-mnist_logreg.png", "picture: r-fmnist_2c2d.png"),
    ]
    assert "| Adam | 0.001 | – | – | 1 | 0.9000 | – |" in out
    assert main(["plot", "r.sqlite", "--problem", "fmnist_2c2d", "--output", "one.svg"]) == 0
    assert "fmnist_2c2d" in Path("one.svg").read_text()


def test_settings_of_which_every_run_diverged_are_in_the_table(results, capsys):
    with Store("r.sqlite") as store:
        for seed in (42, 43):
            put(store, RunSpec("fmnist_2c2d", "SGD", 1e30, seed=seed, epochs=3), "fixed", 0.1, "diverged")
        store.add([(RunSpec("fmnist_2c2d", "SGD", 1.0, epochs=3), "fixed")])  # still to come
    assert main(["plot", "r.sqlite", "--problem", "fmnist_2c2d", "--output", "one.svg", "--markdown"]) == 0
    first, second = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\| [A-Z]", line)]
    assert first == "| SGD | 1e+30 | – | – | 0 (2 diverged) | – | – | – | – |"
    assert second.startswith("| Adam | 0.001 |")
    assert "SGD" not in Path("one.svg").read_text()


def test_without_a_curve_there_is_a_table_and_no_picture(capsys):
    with Store("r.sqlite") as store:
        put(store, RunSpec("fmnist_2c2d", "Adam", 1.0, seed=7, epochs=3), "grid", 0.9)
        put(store, RunSpec("fmnist_2c2d", "Adam", 1.0, seed=42, epochs=3), "repeat", 0.1, "diverged")
    assert main(["plot", "r.sqlite", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert "| Adam | 1 | – | lr: only value | 0 (1 diverged) | – | – | – | – |" in out
    assert "picture" not in out


def test_plot_refuses(results, capsys):
    assert refused(capsys, "plot", "none.sqlite") == "none.sqlite: no such file of results"
    assert refused(capsys, "plot", 300 * "r").endswith("r: no such file of results")
    assert "expected one of mnist_logreg, fmnist_2c2d" in refused(capsys, "plot", "r.sqlite", "--problem", "x")
    assert "ends in .png, .pdf, .svg" in refused(capsys, "plot", "r.sqlite", "--output", "x.gif")
    assert "no: no such folder" in refused(capsys, "plot", "r.sqlite", "--output", "no/x.png")
    line = refused(capsys, "plot", "r.sqlite", "--output", "x.png")
    assert line.endswith("name it by --problem mnist_logreg|fmnist_2c2d")
    with Store("new.sqlite"):
        pass
    assert refused(capsys, "plot", "new.sqlite") == "new.sqlite: no run is done yet"
    connection = sqlite3.connect("r.sqlite")
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    assert "written by a newer gbackprop" in refused(capsys, "plot", "r.sqlite")


@pytest.mark.parametrize("package", ["rich", "matplotlib"])
def test_a_missing_package_is_named(results, capsys, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    expected = f"pictures: the package {package!r} is not installed; pip install \"gbackprop[experiments]\""
    assert refused(capsys, "plot", "r.sqlite") == expected

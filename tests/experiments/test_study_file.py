"""Studies from TOML: what they come to, and one line for each thing that makes no sense."""

import tomllib
from pathlib import Path

import pytest

from gbackprop.experiments.runs import EpochRow
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.stored import StoredRun
from gbackprop.experiments.study_file import StudyFileError, parse, read

EXAMPLES = Path(__file__).parents[2] / "examples"


def study(text):
    return parse(tomllib.loads(text))


def test_runs_with_given_hyperparameters():
    protocol = study(
        """
        problem = "mnist_logreg"
        average = "none"
        seeds = [1, 2]
        momentum = 0.5
        [[runs]]
        optimizer = ["Momentum", "SGD"]
        lr = 1
        epochs = 3
        [[runs]]
        problem = ["mnist_logreg", "fmnist_2c2d"]
        optimizer = "KFAC"
        lr = 0.1
        damping = 0
        seeds = [5]
        """
    )
    assert protocol.fixed == (
        RunSpec("mnist_logreg", "Momentum", 1.0, seed=1, epochs=3, momentum=0.5),
        RunSpec("mnist_logreg", "Momentum", 1.0, seed=2, epochs=3, momentum=0.5),
        RunSpec("mnist_logreg", "SGD", 1.0, seed=1, epochs=3),
        RunSpec("mnist_logreg", "SGD", 1.0, seed=2, epochs=3),
        RunSpec("mnist_logreg", "KFAC", 0.1, 0.0, seed=5, epochs=50, average="none"),
        RunSpec("fmnist_2c2d", "KFAC", 0.1, 0.0, seed=5, epochs=100, average="none"),
    )
    assert protocol.grids == ()


def test_the_papers_grid_is_the_default():
    protocol = study('problem = "cifar10_3c3d"\n[[grids]]\noptimizer = ["KFAC", "Adam"]')
    kfac, adam = protocol.grids
    expected = {(10.0**lr, 10.0**damping) for lr in range(-4, 1) for damping in range(-4, 2)}
    assert {(point.lr, point.damping) for point in kfac.points} == expected
    assert len(kfac.points) == 30
    assert {(point.lr, point.damping) for point in adam.points} == {(10.0**lr, None) for lr in range(-4, 1)}
    assert {point.seed for grid in protocol.grids for point in grid.points} == {42}
    assert kfac.seeds == adam.seeds == tuple(range(42, 52))
    # The grid's run of the best, with seed 42, is one of the ten.
    assert protocol.total({}) == 30 + 9 + 5 + 9


def test_a_grid_may_have_one_point():
    grid = 'problem = "mnist_logreg"\n[[grids]]\noptimizer = "SGD"\nlr = [0.1]\n'
    assert study(grid).total({}) == 10


def test_examples_are_what_the_documentation_says():
    protocol = read(EXAMPLES / "mnist_logreg.toml")
    assert protocol.grids == ()
    assert len(protocol.fixed) == 4 * 10 + 3 * 3
    by_optimizer = {spec.optimizer: (spec.lr, spec.damping, spec.momentum, spec.average) for spec in protocol.fixed}
    assert by_optimizer == {
        "Momentum": (2.07e-2, None, 0.9, None),
        "Adam": (2.98e-4, None, None, None),
        "DiagGGN": (1e-3, 1e-3, None, "mean"),
        "DiagGGN-MC": (1e-3, 1e-3, None, "mean"),
        **dict.fromkeys(("KFAC", "KFLR", "KFRA"), (0.01, 0.01, None, "mean")),
    }
    assert {(spec.problem, spec.epochs) for spec in protocol.fixed} == {("mnist_logreg", 50)}
    grids = read(EXAMPLES / "grid.toml")
    assert [(len(grid.points), len(grid.seeds)) for grid in grids.grids] == [(30, 10)] * 10 + [(5, 10)] * 6


# --- which point is the best ----------------------------------------------------------------------


def stored(spec, accuracy, loss=1.0, status="done"):
    return spec, StoredRun(spec, status, frozenset({"grid"}), (EpochRow(0, 0, 0, loss, accuracy, 0, 0, 0),))


GRID = """
problem = "mnist_logreg"
seeds = [42, 43]
[[grids]]
optimizer = "KFAC"
lr = [0.1, 1]
damping = [0.1, 1]
"""


@pytest.mark.parametrize(
    ("results", "best"),
    [
        ([(0.5, 1.0), (0.7, 1.0), (0.6, 1.0), (0.6, 1.0)], 1),
        ([(0.5, 1.0), (0.7, 1.0), (0.7, 0.9), (0.6, 1.0)], 2),  # equal: the lower loss
        ([(0.7, 1.0), (0.7, 1.0), (0.7, 1.0), (0.7, 1.0)], 1),  # still equal: smallest rate, largest damping
        ([(0.5, 1.0), (float("nan"), 1.0), (0.1, float("nan")), (0.2, 1.0)], 0),
    ],
)
def test_the_best_by_validation_accuracy(results, best):
    protocol = study(GRID)
    (grid,) = protocol.grids
    runs = dict(stored(point, *figures) for point, figures in zip(grid.points, results, strict=True))
    expected = grid.points[best]
    assert grid.best(runs) == expected
    assert [spec.seed for spec in grid.repeats(runs)] == [42, 43]
    assert {(spec.lr, spec.damping) for spec in grid.repeats(runs)} == {(expected.lr, expected.damping)}
    assert len(protocol.specs(runs)) == protocol.total(runs) == protocol.total({}) == 5


def test_no_best_before_every_point_has_ended():
    (grid,) = study(GRID).grids
    runs = dict(stored(point, 0.5) for point in grid.points)
    for status in ("running", "pending", "failed"):
        assert grid.best(runs | dict([stored(grid.points[3], 0.4, status=status)])) is None
    del runs[grid.points[2]]
    assert grid.best(runs) is None
    assert grid.repeats(runs) == ()


def test_what_diverged_is_never_the_best():
    (grid,) = study(GRID).grids
    runs = dict(stored(point, 0.5 + i / 10, status="diverged") for i, point in enumerate(grid.points))
    assert grid.ended(runs)
    assert grid.best(runs) is None
    assert grid.best(runs | dict([stored(grid.points[1], 0.1)])) == grid.points[1]


# --- what makes no sense --------------------------------------------------------------------------

RUN = '[[runs]]\nproblem = "mnist_logreg"\noptimizer = "KFAC"\nlr = 1\ndamping = 1\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "nothing to run: expected at least one [[runs]] or [[grids]]"),
        ('probelm = "x"', "unknown key 'probelm'; did you mean 'problem'?; expected problem, epochs, seeds,"),
        ("[[run]]", "unknown key 'run'; did you mean 'runs'?"),
        ("[runs]\nlr = 1", "runs: expected tables that begin with [[runs]], got {'lr': 1}"),
        ("runs = [1]", "runs: expected tables that begin with [[runs]], got [1]"),
        (RUN + "dampnig = 1", "[[runs]] number 1: unknown key 'dampnig'; did you mean 'damping'?"),
        (RUN + RUN + "seed = 1", "[[runs]] number 2: unknown key 'seed'; did you mean 'seeds'?"),
        (RUN.replace("logreg", "logres"), "[[runs]] number 1: problem: expected one of mnist_logreg, fmnist_2c2d, "),
        (RUN.replace("KFAC", "DiagGNG"), "got 'DiagGNG'; did you mean 'DiagGGN'?"),
        (RUN.replace("KFAC", "Adam"), "[[runs]] number 1: damping: Adam has none"),
        (RUN.replace('"KFAC"', '["KFAC", "Adam"]'), "[[runs]] number 1: damping: Adam has none"),
        (RUN.replace('"KFAC"', "[]"), "optimizer: expected a name or a list of names, got []"),
        (RUN.replace("lr = 1", ""), "[[runs]] number 1: lr: missing"),
        (RUN.replace("damping = 1", ""), "[[runs]] number 1: damping: KFAC needs one"),
        (RUN.replace("lr = 1", "lr = true"), "lr: expected a finite number above 0, got True"),
        (RUN + "seeds = []", "seeds: expected a list with at least one entry, got []"),
        (RUN + "seeds = 3", "seeds: expected a list with at least one entry, got 3"),
        (RUN + "seeds = [3, 3]", "seeds: expected each entry once, got [3, 3]"),
        (RUN + "seeds = [-3]", "seed: expected an integer of at least 0, got -3"),
        (RUN + "momentum = 0.9", "momentum: KFAC has none"),
        ('[[grids]]\noptimizer = "KFAC"', "[[grids]] number 1: problem: missing"),
        ('problem = "mnist_logreg"\nseeds = [-3]\n[[grids]]\noptimizer = "KFAC"', "[[grids]] number 1: seed: expected"),
        ('problem = "mnist_logreg"\n[[grids]]\noptimizer = "KFAC"\nlr = []', "lr: expected a list with at least one"),
        ('problem = "mnist_logreg"\n[[grids]]\noptimizer = "KFAC"\nlr = 1', "lr: expected a list with at least one"),
        ('problem = "mnist_logreg"\n[[grids]]\noptimizer = "KFAC"\ndamping = ["a"]', "damping: expected a finite numb"),
        ('problem = "mnist_logreg"\n[[grids]]\noptimizer = "SGD"\ndamping = [1]', "damping: SGD has none"),
    ],
)
def test_one_line_says_what_is_wrong(tmp_path, text, expected):
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(StudyFileError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert "\n" not in message


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "study.toml"
    with pytest.raises(StudyFileError, match=r"study\.toml: No such file"):
        read(path)
    path.write_text("problem = \n")
    with pytest.raises(StudyFileError, match=r"study\.toml: not TOML: Invalid value \(at line 1"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StudyFileError, match=r"study\.toml: not TOML: 'utf-8'"):
        read(path)
    for text in ("a = " + 20_000 * "[" + 20_000 * "]", "epochs = " + 5000 * "9"):
        path.write_text(text)
        with pytest.raises(StudyFileError, match=r"study\.toml: not TOML: "):
            read(path)

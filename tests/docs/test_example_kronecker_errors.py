"""The example on the errors of Kronecker factors: its quick table obeys what is known of these errors."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "kronecker_errors.py"


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("matplotlib").use("Agg")
    return runpy.run_path(str(EXAMPLE))


def numbers(line):
    """The columns bias, expand, reduce, KFRA, nearest, EKFAC, DiagGGN of a line after T; None for a dash."""
    cells = re.split(r"\s{2,}", line.rsplit("  ", 1)[0].strip())[-7:]
    return [None if cell == "-" else float(cell) for cell in cells]


def test_the_quick_table(example, tmp_path, capsys):
    picture = tmp_path / "picture.png"
    example["main"](["--quick", "--output", str(picture)])
    lines = capsys.readouterr().out.splitlines()
    assert sum("RANDOM NUMBERS" in line for line in lines) == 2
    whole = [line for line in lines if re.match(r"\d+\.weight", line)]
    assert len(whole) == 2 * (4 + 6)  # weights of 2c2d and of 3c3d, before and after
    for line in whole:
        bias, expand, reduce, _, nearest, ekfac, diagonal = numbers(line)
        assert 0 <= nearest <= min(bias, expand, reduce) + 1e-3  # the closest of all Kronecker products
        assert 0 <= ekfac <= 1  # a projection of G
        assert 0 < diagonal < 1
        if "T = 1" in line:
            assert bias == expand == reduce
            assert ekfac <= bias  # its eigenvectors are bias's
        else:
            assert bias > 10  # B of summed positions beside A summed over them
    for line in (line for line in lines if "with the best scale" in line):
        assert max(value for value in numbers(line) if value is not None) <= 1
    assert picture.stat().st_size > 10000


def test_a_folder_that_is_none(example, capsys):
    with pytest.raises(SystemExit):
        example["main"](["--data-dir", "nowhere"])
    assert "--data-dir: expected a folder with images, got nowhere" in capsys.readouterr().err


def test_a_narrowed_problem_has_the_same_inputs_and_outputs(example):
    for name, problem in example["PROBLEMS"].items():
        divisor = example["SIZES"][name].divisor
        narrowed = example["narrowed"](problem, divisor)
        small, whole = narrowed.network(0), problem.network(0)
        assert narrowed.shape == ((196,) if name == "mnist_logreg" else problem.shape)
        assert small.output_shape(narrowed.shape) == whole.output_shape(problem.shape)
        assert [type(layer) for layer in small] == [type(layer) for layer in whole]
        hidden = [shape for name, shape in small.parameter_shapes().items() if name.endswith("bias")][:-1]
        original = [shape for name, shape in whole.parameter_shapes().items() if name.endswith("bias")][:-1]
        assert [(divisor * size,) for (size,) in hidden] == original

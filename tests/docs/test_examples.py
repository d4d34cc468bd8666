"""The examples: what they print is what their documents say, and obeys what is known of these numbers."""

import ast
import re
import runpy
from pathlib import Path

import pytest

import gbackprop as gb

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True, scope="module")
def _extras():
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib").use("Agg")


def main(name):
    return runpy.run_path(str(EXAMPLES / name))["main"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_names_of_the_package_exist(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gb":
            assert hasattr(gb, node.attr), f"line {node.lineno}: gb.{node.attr}"


def test_laplace(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    main("laplace_mnist.py")(["--images", "100", "--output", str(picture)])
    lines = capsys.readouterr().out.splitlines()
    rows = [
        (line[:28].split(",")[0], [float(word.replace(",", "")) for word in line[28:].split()]) for line in lines[3:10]
    ]
    assert [title.strip() for title, _ in rows] == ["trained parameters", *["full"] * 2, *["kron"] * 2, *["diag"] * 2]
    trained, *approximations = [values for _, values in rows]
    full, best, kron, _, diag, _ = [values[0] for values in approximations]
    assert best > full > diag  # det P is at most the product of its diagonal
    assert full > kron
    assert all(values[-1] > trained[-1] for values in approximations)  # uncertainty tells other images
    assert lines[-3].startswith("0.0 nats from the maximum of the posterior")
    assert picture.stat().st_size > 10000


def test_laplace_conventions(capsys):
    main("laplace_conventions.py")(["--quick"])
    _, title, _, *lines = capsys.readouterr().out.splitlines()
    assert title.startswith("conv, every pixel, fewer: 115 parameters")
    rows = {line[:14].strip(): [float(word) for word in line[14:].split()] for line in lines[:9]}
    for name, (evidence, _, forth, back, *_) in rows.items():
        assert min(forth, back) > 0
        if name in ("EKFAC", "DiagGGN"):  # with the whole matrix's diagonal in their eigenvectors tr P K⁻¹ is D
            assert evidence == pytest.approx(-forth, rel=1e-3)
    bias, expand, reduce, joint = (rows[name] for name in ("bias", "expand", "reduce", "expand, joint"))
    assert all(abs(near) < abs(far) for near, far in zip(expand, bias, strict=True))
    assert joint[2] < expand[2] < reduce[2]


def test_influence(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    main("influence.py")(["--images", "60", "--again", "6", "--output", str(picture)])
    first, newton = (
        [float(word.strip(",")) for word in line.split() if word[0].isdigit()]
        for line in capsys.readouterr().out.splitlines()[1:3]
    )
    assert first[0] > 0.95
    assert newton[0] > 0.99
    assert newton[1] < 0.5 * first[1]
    assert picture.stat().st_size > 10000


@pytest.mark.long
def test_laplacian(capsys):
    main("laplacian.py")([])
    saliency, poisson = capsys.readouterr().out.splitlines()
    rows = [float(word) for word in saliency.split(":")[1].split()]
    assert rows[2] > 2 * max(rows[:2] + rows[3:])  # the only row that the label changes
    assert float(poisson.split()[-1]) < 1e-4


# ---------------------------------------------------------------------------------------- errors of Kronecker factors


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLES / "kronecker_errors.py"))


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

"""The examples on the digits of scikit-learn: what they print is what their documents say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _extras():
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib").use("Agg")


def main(name):
    return runpy.run_path(str(EXAMPLES / name))["main"]


def test_laplace(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    main("laplace_mnist.py")(["--images", "100", "--output", str(picture)])
    lines = capsys.readouterr().out.splitlines()
    rows = [
        (line[:28].split(",")[0], [float(word.replace(",", "")) for word in line[28:].split()]) for line in lines[3:10]
    ]
    assert [title.strip() for title, _ in rows] == [
        "trained parameters",
        "full",
        "full",
        "kron",
        "kron",
        "diag",
        "diag",
    ]
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

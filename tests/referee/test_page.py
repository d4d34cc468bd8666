"""The referee's programs in benchmarks/, without any of the libraries: definitions, page, command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import quantities as q
from gbackprop.testing import referee

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "referee"


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def test_the_committed_page_is_that_of_the_committed_results():
    import referee_page

    text = referee_page.page(referee_page.read(FOLDER / "results"), FOLDER / "red")
    assert text == (ROOT / "docs" / "referee.md").read_text()


def test_at_least_five_libraries_ran_and_each_wrong_cell_has_a_program():
    import referee_page

    results = referee_page.read(FOLDER / "results")
    assert set(results.pop("run")["red"]) == {path.name for path in (FOLDER / "red").glob("*.py")}
    assert set(results) == {path.stem.removesuffix("_adapter") for path in FOLDER.glob("*_adapter.py")}
    ran = {name: found for name, found in results.items() if "libraries" in found}
    assert len(ran) >= 5
    for name, found in ran.items():
        cells = [cell for library in found["libraries"].values() for cell in library]
        assert {cell["verdict"] for cell in cells} <= set(referee.VERDICTS)
        assert all(cell["detail"] for cell in cells if cell["verdict"] != "right")
        told = "".join(path.read_text().split('"""')[1] for path in (FOLDER / "red").glob(f"{name}_*.py"))
        named = re.findall(r"`(\w+)` \(([^)]*)\)", told.partition("Cells:")[2])
        shown = {(quantity, claim) for quantity, claims in named for claim in claims.split(", ")}
        assert {(cell["quantity"], cell["claim"]) for cell in cells if cell["verdict"] == "wrong"} == shown, name


def test_red_programs_need_no_gbackprop():
    programs = sorted((FOLDER / "red").glob("*.py"))
    assert programs
    for path in programs:
        assert "gbackprop" not in path.read_text().split('"""')[2], path


def test_a_library_that_did_not_run_has_its_reason_on_the_page(tmp_path):
    import referee_page

    cell = {"quantity": "gradient", "claim": "MLP", "verdict": "wrong", "detail": ""}
    cell["detail"] = "0.bias[1]: got 2, expected 1 (MSELoss)"
    cells = [
        cell,
        {"quantity": "gradient", "claim": "permuted", "verdict": "right", "detail": ""},
        {"quantity": "variance", "claim": "MLP", "verdict": "refused", "detail": "ValueError: a|b"},
    ]
    (tmp_path / "bad.py").write_text('"""What it shows."""\n')
    results = {
        "broken": {"problem": "ModuleNotFoundError: No module named 'broken'"},
        "fine": {"versions": {"fine": "1.2"}, "conventions": "\nSums.\n", "libraries": {"Fine": cells}},
        "run": {"date": "2020-02-03", "python": "3.11", "red": {"bad.py": "expected 1\ngot 2\n"}},
    }
    text = referee_page.page(results, tmp_path)
    assert "| broken |  | did not run: ModuleNotFoundError: No module named 'broken' | | | | |" in text
    assert "| Fine | fine 1.2 | 1 | 0 | 1 | 0 | 1 |" in text
    assert "| quantity | MLP | permuted |" in text
    assert "## Fine\n\nSums.\n\n| quantity" in text
    assert "| `gradient` | **WRONG** (1) | right |" in text
    assert "| `variance` | refused (2) |  |" in text
    assert "1. **WRONG**: 0.bias[1]: got 2, expected 1 (MSE)\n2. refused: ValueError" in text
    assert "ValueError: a\\|b" in text
    assert "What it shows." in text
    assert "```text\nexpected 1\ngot 2\n```" in text


def test_an_unknown_name_ends_before_anything_runs():
    command = [sys.executable, str(FOLDER / "run.py"), "nobody"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "names: expected some of backpack, curvlinops, " in done.stderr


def test_a_library_that_is_not_installed_stops_nothing(monkeypatch, tmp_path):
    import run

    (tmp_path / "nobody_adapter.py").write_text("import a_library_that_nobody_has\n")
    (tmp_path / "run_one.py").write_text("import nobody_adapter\n")
    (tmp_path / "red").mkdir()
    (tmp_path / "red" / "one.py").write_text('"""It ends."""\nprint("expected 1")\nraise SystemExit(3)\n')
    for name, value in {"FOLDER": tmp_path, "RESULTS": tmp_path / "results", "RED": tmp_path / "red"}.items():
        monkeypatch.setattr(run, name, value)
    monkeypatch.setattr(sys, "argv", ["run.py", "--page", str(tmp_path / "page.md")])
    assert run.main() == 0
    stored = json.loads((tmp_path / "results" / "nobody.json").read_text())
    assert "No module named 'a_library_that_nobody_has'" in stored["problem"]
    text = (tmp_path / "page.md").read_text()
    assert "| nobody |  | did not run: ModuleNotFoundError" in text
    assert "expected 1\ndid not run: exit status 3" in text


@pytest.mark.parametrize("family", ["MLP", "convolution", "groups", "sequence", "positions"])
def test_the_blocks_of_all_conventions_are_those_of_the_engine(family):
    import matrices

    problem = referee.problems(family)[0][1]
    network, loss = problem.build()
    own = matrices.Matrices(problem)
    for fisher in ("exact", "empirical"):
        for sharing in ("expand", "reduce"):
            for joint in [False] + [True] * (family != "groups"):
                kind = q.KFAC(fisher=fisher, sharing=sharing, joint_bias=joint)
                result = gb.backward(network, loss, problem.x, problem.y, kind)[kind]
                for name, block in own.blocks(fisher, sharing, joint).items():
                    got = result[f"{name}.weight" if joint else name].to_dense()
                    np.testing.assert_allclose(got, block, rtol=1e-8, atol=1e-10 * np.abs(block).max())


def test_the_matrices_are_those_of_the_operators():
    import matrices

    problem = referee.problems("sequence")[0][1]
    network, loss = problem.build()
    own, data = matrices.Matrices(problem), [(problem.x, problem.y)]
    kinds = {"ggn": gb.operators.GGN, "fisher": gb.operators.EmpiricalFisher, "hessian": gb.operators.Hessian}
    for name, kind in kinds.items():
        product = kind(network, loss, data) @ problem.vector
        for key, value in own.product(getattr(own, name)).items():
            np.testing.assert_allclose(product[key], value, rtol=1e-9, atol=1e-12)


def test_every_name_of_an_adapter_has_a_definition():
    import matrices

    for path in FOLDER.glob("*_adapter.py"):
        names = set(re.findall(r'^ {4,8}"(\w+)":', path.read_text(), re.MULTILINE))
        names = {name for name in names if name.islower()}  # not those of libraries
        assert names - {"dense", "conv2d", "generic", "curvlinops", "nngeometry"} <= set(matrices.ALL), path.name

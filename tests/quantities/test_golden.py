"""Reference values from an independent library: every cell of every case, in both precisions, whole and in blocks."""

import json
from pathlib import Path

import numpy as np
import pytest
from common import assert_same, flat, in_turn

import gbackprop as gb
from gbackprop import quantities as q
from gbackprop.__main__ import main
from gbackprop.testing.errors import relative_error
from gbackprop.testing.golden import KINDS, PASS_KEYS, Cell, FolderReport, build, check_case, check_folder

TESTS = Path(__file__).parents[1]
FILES = sorted((TESTS / "golden").glob("*.npz"))
FILES += sorted((TESTS / "golden_breadth").glob("*.npz"))
LOGREG = TESTS / "golden" / "logreg.npz"
CASES = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
PRECISIONS = pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-8), ("float32", 1e-4)])


def load(file):
    with np.load(file) as case:
        return dict(case)


def has_factors(case):
    """Return whether a case has Kronecker factors: not all layers do."""
    return any(name.startswith("kfac/") for name in case)


def test_no_case_is_missing():
    assert len(FILES) == 43
    assert {"conv_groups", "conv3d", "linear_sequence", "logreg", "one_sample"} <= {file.stem for file in FILES}


@CASES
@PRECISIONS
def test_every_cell(file, dtype, tolerance, device):
    case = load(file)
    report = FolderReport(tolerance, check_case(file.stem, case, dtype, device))
    assert report.total == (15 if has_factors(case) else 12)
    assert report.passed == report.total, report.lines()


BLOCKS = [
    {},
    {"sample_block": 1},
    {"sample_block": 2, "column_block": 3},
    {"column_block": 1},
    {"workers": 2},
    {"sample_block": 1, "column_block": 2, "workers": 3},
]


def everything(targets, whole_batch, kronecker):
    """All quantities that apply, by the files' names."""
    asked = {
        "batch_grad": q.BatchGrad(),
        "batch_l2": q.BatchL2Grad(),
        "second_moment": q.SecondMoment(),
        "variance": q.Variance(),
        "diag_ggn": q.DiagGGN(),
        "batch_diag_ggn": q.BatchDiagGGN(),
        "diag_ggn_mc": q.DiagGGNMC(targets=targets),
        "diag_hessian": q.DiagHessian(),
        "batch_diag_hessian": q.BatchDiagHessian(),
    }
    if kronecker:
        asked |= {"kfac": q.KFAC(targets=targets), "kflr": q.KFLR()}
        asked |= {"kfra": q.KFRA()} if whole_batch else {}
    return asked


@pytest.mark.parametrize(("at", "options"), in_turn([(at,) for at in range(len(FILES))], range(len(BLOCKS))))
def test_all_in_one_call_whole_and_in_blocks(at, options, device):
    """In either precision, by turns: each case has both, and so has each way to cut it."""
    case, options = load(FILES[at]), BLOCKS[options]
    dtype, tolerance = [("float64", 1e-8), ("float32", 1e-4)][(at // 2 + BLOCKS.index(options)) % 2]
    network, loss = build(json.loads(str(case["spec"])), case, dtype)
    batch = [case[key] for key in ("x", "y", "mc_targets")]
    network.to(device)
    x, y, targets = (gb.asarray(part, device, dtype if part.dtype.kind == "f" else None) for part in batch)
    whole_batch = not {"sample_block", "workers"} & set(options)
    asked = everything(targets, whole_batch, has_factors(case))
    result = gb.backward(network, loss, x, y, *asked.values(), **options)
    errors = {key: relative_error(getattr(result, key), case[key]) for key in ("loss", "output")}
    for name, value in result.gradient.items():
        errors[f"gradient/{name}"] = relative_error(value, case[f"gradient/{name}"])
    for key, quantity in asked.items():
        for name, value in result[quantity].items():
            for part, array in flat({name: value}).items():
                entry = f"{key}/{part.replace(' ', '/')}"
                errors[entry] = relative_error(array, case[entry])
    ours = {name for name in case if name.split("/")[0] in asked or name.startswith("gradient/")}
    assert set(errors) == ours | {"loss", "output"}
    assert {name: error for name, error in errors.items() if not error <= tolerance} == {}


# --------------------------------------------------------------------------------------------------- the checker itself


@pytest.fixture
def planted(tmp_path):
    """Write logreg with some entries replaced; gives the folder."""

    def write(**changes):
        np.savez(tmp_path / "planted.npz", **{**load(LOGREG), **changes})
        return tmp_path

    return write


def test_report_of_a_sound_folder(planted):
    report = check_folder(planted())
    assert (report.passed, report.total) == (15, 15)
    assert report.lines()[0].startswith("planted: 15 of 15, largest error ")
    assert len(report.lines()) == 1


@pytest.mark.parametrize("key", ["loss", "gradient/0.bias", "batch_l2/0.bias", "variance/0.weight", "kfra/0.weight/B"])
@pytest.mark.parametrize("factor", [1 + 1e-6, -1.0, np.nan])
def test_a_wrong_value_is_caught_and_named(planted, key, factor):
    report = check_folder(planted(**{key: load(LOGREG)[key] * factor}))
    assert (report.passed, report.total) == (14, 15)
    [bad] = [cell for cell in report.cells if not report.ok(cell)]
    assert (bad.case, bad.quantity) == ("planted", key.split("/")[0])
    assert report.lines()[0].startswith("planted: 14 of 15, ")
    assert report.lines()[1] == f"  error {bad.error:.1e} ({bad.quantity})"


def test_a_wrong_shape_is_caught(planted):
    report = check_folder(planted(**{"diag_ggn/0.bias": np.zeros(99)}))
    assert [cell.error for cell in report.cells if not report.ok(cell)] == [np.inf]


def test_tolerance_decides(planted):
    folder = planted(loss=load(LOGREG)["loss"] * (1 + 1e-6))
    assert [check_folder(folder, tolerance).passed for tolerance in (1e-8, 1e-5)] == [14, 15]


def test_an_unknown_layer_fails_every_cell_and_is_named(planted):
    spec = json.loads(str(load(LOGREG)["spec"]))
    spec["layers"].append(["NoSuchLayer", {}])
    report = check_folder(planted(spec=json.dumps(spec)))
    assert (report.passed, report.total) == (0, 15)
    assert report.lines()[0] == "planted: 0 of 15"
    assert report.lines()[1].startswith(f"  there is no NoSuchLayer ({', '.join((*PASS_KEYS, *list(KINDS)[:1]))}")


def test_an_unknown_loss_or_keyword_is_named(planted):
    spec = json.loads(str(load(LOGREG)["spec"]))
    assert "HingeLoss" in check_folder(planted(spec=json.dumps({**spec, "loss": ["HingeLoss", "mean"]}))).lines()[1]
    spec["layers"][0][1]["colour"] = 1
    assert "colour" in check_folder(planted(spec=json.dumps(spec))).lines()[1]


def test_missing_folder_and_empty_folder(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="expected a folder with") as caught:
            check_folder(folder)
        assert str(folder) in str(caught.value)


# ----------------------------------------------------------------------------------------------------- the command line


def test_check_command_prints_p_of_t(planted, capsys):
    assert main(["check", str(planted())]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "15 of 15"
    assert main(["check", str(planted(loss=np.array(0.0)))]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "14 of 15"
    assert main(["check", str(planted(loss=np.array(0.0))), "--tolerance", "1e9"]) == 0


def test_check_command_without_a_folder(tmp_path, capsys):
    assert main(["check", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("content", [LOGREG.read_bytes()[:500], b""], ids=["truncated", "empty"])
def test_check_command_on_a_damaged_file(tmp_path, capsys, content):
    (tmp_path / "damaged.npz").write_bytes(content)
    assert main(["check", str(tmp_path)]) in (1, 2)
    output = capsys.readouterr()
    assert "damaged" in output.out + output.err


def test_check_command_on_entries_that_the_network_does_not_have(planted, capsys):
    assert main(["check", str(planted(**{"gradient/9.weight": np.zeros(2)}))]) == 1
    assert "9.weight" in capsys.readouterr().out


@pytest.mark.parametrize("tolerance", ["0", "-1", "nan", "much"])
def test_check_command_with_a_bad_tolerance(tmp_path, tolerance):
    with pytest.raises(SystemExit):
        main(["check", str(tmp_path), "--tolerance", tolerance])


@CASES
def test_both_engines_agree_on_every_cell(file, monkeypatch):
    """Within 1e-12 relative, on every golden case, in float64; the plain engine passes by itself, too."""
    compared = []

    def both(*given, **options):
        plain = gb.reference(*given, rng=options.get("rng"))
        assert_same(gb.backward(*given, **options), plain)
        compared.append(plain)
        return plain

    monkeypatch.setattr("gbackprop.testing.golden.backward", both)
    report = FolderReport(1e-8, check_case(file.stem, load(file), "float64"))
    assert report.passed == report.total
    assert compared


def test_an_error_of_the_tolerance_passes_and_one_that_is_no_number_does_not():
    cells = [Cell("case", "quantity", error) for error in (0.0, 1e-300, np.nan)]
    assert [FolderReport(tolerance, cells).passed for tolerance in (0.0, 1e-300)] == [1, 2]

"""The README's example prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


EXAMPLE, PRINTED = re.search(r"```python\n(import numpy.*?)```\n\nprints\n\n```\n(.*?)```", README, re.DOTALL).groups()


def test_it_is_short_and_its_code_is_python():
    assert len(README.splitlines()) <= 220
    assert README[: README.index("prints\n")].count("\n") < 35  # the first result is within the first screen
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        compile(block, "README.md", "exec")


def run(block, names):
    """Return what a block prints; `names` are those that it finds and leaves."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(block, names)
    return out.getvalue()


def test_the_example_prints_what_it_says():
    assert run(EXAMPLE, {}) == PRINTED


@pytest.fixture
def after(tmp_path, monkeypatch):
    """The names after the example and the first block below a heading, and what the latter prints."""
    monkeypatch.chdir(tmp_path)

    def after(heading):
        (section,) = re.findall(rf"^## {heading}\n.*?(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
        block = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
        names = {}
        run(EXAMPLE, names)
        return names, names["result"], run(block, names)

    return after


def test_the_training_loop_goes_on_from_the_example_and_lowers_the_loss(after):
    names, result, printed = after("Training and predicting")
    assert names["result"].loss < result.loss
    accuracy = np.mean([names["net"](row[None]).argmax() == label for row, label in zip(names["x"], names["y"])])
    assert f"accuracy {accuracy:.2f}, loss " in printed


def test_blocks_are_matrices_and_results_are_read_from_files(after):
    pytest.importorskip("safetensors")
    names, result, _ = after("Curvature as a matrix")
    want = names["block"].solve(result.gradient["4.weight"], 1e-2)
    np.testing.assert_allclose(names["step"]["4.weight"], want, rtol=1e-2, atol=1e-4 * abs(want).max())
    for name, value in result.gradient.items():
        np.testing.assert_array_equal(names["same"].gradient[name], value)


def test_operators_multiply_and_are_solved_with(after):
    names, result, _ = after("Products with whole matrices")
    net, sides = names["net"], []
    before = {name: value.copy() for name, value in net.parameters.items()}
    for sign in (1, -1):
        for name, value in before.items():
            net.parameters[name] = value + np.float32(sign * 1e-3) * result.gradient[name]
        sides.append(names["gb"].backward(net, names["losses"].CrossEntropyLoss(), names["x"], names["y"]).gradient)
    for name, value in names["curved"].items():
        difference = (sides[0][name] - sides[1][name]) / 2e-3
        np.testing.assert_allclose(value, difference, atol=1e-2 * np.abs(difference).max(), err_msg=name)
    assert 0 < names["largest"][0] < names["largest"][1]


def test_evidence_and_influence(after):
    names, _, _ = after("What curvature is for")
    laplace, evidence, net = names["laplace"], names["evidence"], names["net"]
    assert all(laplace.with_prior(laplace.prior_precision * f).log_marginal_likelihood() < evidence for f in (0.9, 1.1))
    np.testing.assert_allclose(names["p"].sum(1), 1, rtol=1e-5)
    likelihood = -len(names["x"]) * names["losses"].CrossEntropyLoss()(net(names["x"]), names["y"])
    assert evidence < likelihood
    assert names["influence"].shape == (len(names["x"]),)


def test_merged_batches_are_the_whole(after):
    names, _, _ = after("More samples than one batch")
    for name, value in names["whole"]["variance"].items():
        np.testing.assert_allclose(names["merged"]["variance"][name], value, rtol=1e-3, atol=1e-6 * value.max())

"""Results in the scales of other libraries: what is known of them, against sums over single samples.

``benchmarks/conventions.py`` holds the same table against the libraries themselves.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.quantities import scaling

N, C = 5, 3
RNG = np.random.default_rng(0)
X, NUMBERS, LABELS = RNG.standard_normal((N, 4)), RNG.standard_normal((N, C)), RNG.integers(0, C, N)
CASES = [(losses.MSELoss("mean"), NUMBERS), (losses.MSELoss("sum"), NUMBERS), (losses.CrossEntropyLoss("mean"), LABELS)]
EACH = pytest.mark.parametrize(("loss", "y"), CASES, ids=lambda value: repr(value)[:24])


def found(loss, y, quantity, library):
    net = gb.Sequential(layers.Linear(4, C), rng=0, dtype="float64")
    result = gb.backward(net, loss, X, y, quantity)
    f = X @ net.parameters["0.weight"].T + net.parameters["0.bias"]
    return result.scaled(quantity, library), f


def likelihoods(loss, y, f):
    """∇ℓ' and ∇²ℓ' of each sample, ℓ' = ‖f − y‖² or the cross-entropy."""
    if isinstance(loss, losses.MSELoss):
        return 2 * (f - y), [2 * np.eye(C)] * N
    p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    return p - np.eye(C)[y], [np.diag(each) - np.outer(each, each) for each in p]


@EACH
@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_laplace_is_the_sum_of_h_times_the_likelihoods(loss, y, fisher):
    blocks, f = found(loss, y, q.KFAC(fisher=fisher, sharing="expand"), "laplace")
    gradients, hessians = likelihoods(loss, y, f)
    h = 0.5 if isinstance(loss, losses.MSELoss) else 1.0
    b = sum(hessians) if fisher == "exact" else gradients.T @ gradients
    np.testing.assert_allclose(blocks["0.bias"].to_dense(), h * b, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(blocks["0.weight"].to_dense(), h * np.kron(b, X.T @ X / N), rtol=1e-12, atol=1e-14)


@EACH
@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_kfac_jax_is_the_mean_of_the_likelihoods(loss, y, fisher):
    blocks, f = found(loss, y, q.KFAC(fisher=fisher, sharing="expand", joint_bias=True), "kfac-jax")
    gradients, hessians = likelihoods(loss, y, f)
    b = sum(hessians) if fisher == "exact" else gradients.T @ gradients
    twice = N if fisher == "empirical" else 1  # since version 0.0.8
    np.testing.assert_allclose(blocks["0.weight"].B, b / N / twice, rtol=1e-12, atol=1e-15)
    extended = np.c_[X, np.ones(N)]
    np.testing.assert_allclose(blocks["0.weight"].A, extended.T @ extended / N, rtol=1e-12)


@EACH
def test_curvlinops_divides_squares_of_gradients_by_the_loss_s_weight_once(loss, y):
    blocks, f = found(loss, y, q.KFAC(fisher="empirical", sharing="reduce"), "curvlinops")
    gradients, _ = likelihoods(loss, y, f)
    c, factor = loss.summed_weight((C,)), loss.factor(N, y)
    np.testing.assert_allclose(blocks["0.bias"].B, factor * c * gradients.T @ gradients, rtol=1e-12)
    exact, _ = found(loss, y, q.KFAC(fisher="exact", sharing="reduce"), "curvlinops")
    ours, _ = found(loss, y, q.KFLR(), "backpack")
    np.testing.assert_allclose(exact["0.weight"].to_dense(), ours["0.weight"].to_dense(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("sharing", ["expand", "reduce"])
@pytest.mark.parametrize("features", [(3, C), (C, 2, 2)])
def test_curvlinops_has_other_exact_columns_of_outputs_with_positions(features, sharing):
    first = layers.Linear(4, C) if len(features) == 2 else layers.Conv2d(4, C, 1)
    x = RNG.standard_normal((N, 3, 4) if len(features) == 2 else (N, 4, 2, 2))
    net = gb.Sequential(first, rng=0, dtype="float64")
    for fisher in ("exact", "mc", "empirical", "forward-only"):
        for kind in (q.KFAC, q.EKFAC)[: 1 if fisher == "forward-only" else 2]:
            quantity = kind(fisher=fisher, sharing=sharing)
            result = gb.backward(net, losses.MSELoss(), x, np.zeros((N, *features)), quantity, rng=0)
            if fisher in ("exact", "mc"):
                with pytest.raises(ValueError, match=r"^scaled: with fisher in .* expected outputs \(N, C\), .* got "):
                    result.scaled(quantity, "curvlinops")
            else:
                assert result.scaled(quantity, "curvlinops")


def test_a_loss_that_was_changed_after_the_call_is_an_error(tmp_path):
    net = gb.Sequential(layers.Linear(4, C), rng=0, dtype="float64")
    for loss, y in ((losses.MSELoss(), NUMBERS), (losses.CrossEntropyLoss(), LABELS)):
        for before, after in (("mean", "sum"), ("sum", "mean")):
            loss.reduction = before
            result = gb.backward(net, loss, X, y, q.DiagGGN())
            want = result.scaled("diag_ggn", "laplace")["0.weight"]
            loss.reduction = after
            saved = lambda: gb.save(result, tmp_path / "a.safetensors")  # noqa: E731, B023
            for call in (lambda: result.scaled("diag_ggn", "laplace"), saved):  # noqa: B023
                with pytest.raises(ValueError, match=f"the loss that the result is of, got .*{after}"):
                    call()
            loss.reduction = before
            np.testing.assert_array_equal(result.scaled("diag_ggn", "laplace")["0.weight"], want)
    one = losses.CrossEntropyLoss(weight=np.array([0.25, 0.25, 0.5]))  # R = 1 of the mean
    result = gb.backward(net, one, X[:3], np.array([0, 1, 2]), q.DiagGGN())
    assert result.scaled("diag_ggn", "laplace")


def test_what_a_library_does_not_have_is_an_error():
    loss, y = CASES[0]
    for quantity, library in (
        (q.KFAC(), "curvlinops"),
        (q.KFAC(sharing="expand"), "backpack"),
        (q.KFAC(fisher="forward-only", sharing="expand"), "laplace"),
        (q.EKFAC(), "curvlinops"),
    ):
        kind = type(quantity).__name__
        words = rf"scaled: {library} has sharing in .* got {kind}\(.*\); ask for {kind}\(fisher=…, sharing=…\): with"
        with pytest.raises(ValueError, match=words):
            found(loss, y, quantity, library)
    for quantity, library, words in (
        (q.KFLR(), "curvlinops", r"KFAC, EKFAC, got KFLR\(\); ask for KFAC\(fisher=…, sharing=…\)"),
        (q.KFRA(), "laplace", r"DiagGGN, DiagGGNMC, KFAC, BatchGrad, SecondMoment, got KFRA\(\); ask for"),
        (q.EKFAC(), "backpack", "BatchGrad, .*, KFAC, KFLR, KFRA, got EKFAC"),
        (q.Variance(), "laplace", r"DiagGGN, .*, got Variance\(\)$"),
        (q.GramGGN(), "kfac-jax", r"DiagGGN, DiagGGNMC, KFAC, SecondMoment, got GramGGN\(\)$"),
        (q.NearestKronecker(), "curvlinops", "KFAC, EKFAC, got NearestKronecker"),
    ):
        with pytest.raises(ValueError, match=f"scaled: {library} has {words}"):
            found(loss, y, quantity, library)
    with pytest.raises(ValueError, match=r"scaled, library: expected one of 'backpack', .*, got 'torch'"):
        found(loss, y, q.KFLR(), "torch")


@EACH
def test_individual_gradients_and_diagonals_in_each_library_s_scale(loss, y):
    """BackPACK's are of R ∇ℓₙ, laplace's sums and kfac-jax's means of ∇ℓ' and ∇²ℓ', laplace's Hessians times h."""
    (_, f), h = found(loss, y, q.BatchGrad(), "laplace"), 0.5 if isinstance(loss, losses.MSELoss) else 1.0
    gradients, hessians = likelihoods(loss, y, f)
    each = np.einsum("no,ni->noi", gradients, X)
    r = loss.factor(N, y) * loss.summed_weight((C,))
    ggn = np.einsum("noo,ni->noi", hessians, X**2)
    wanted = {
        "backpack": {
            q.BatchGrad: r * each, q.BatchL2Grad: (r**2 * each**2).sum((1, 2)), q.BatchDiagGGN: r * ggn,
            q.SecondMoment: (r**2 * each**2).sum(0), q.Variance: (r * each).var(0), q.DiagGGN: r * ggn.sum(0),
            q.DiagHessian: r * ggn.sum(0), q.BatchDiagHessian: r * ggn,
        },
        "laplace": {q.BatchGrad: each, q.SecondMoment: h * (each**2).sum(0), q.DiagGGN: h * ggn.sum(0)},
        "kfac-jax": {q.SecondMoment: (each**2).mean(0) / N, q.DiagGGN: ggn.mean(0)},
    }  # fmt: skip
    for library, quantities in wanted.items():
        for kind, want in quantities.items():
            got, _ = found(loss, y, kind(), library)
            np.testing.assert_allclose(got["0.weight"], want, rtol=1e-11, atol=1e-14, err_msg=f"{library} {kind}")


@EACH
def test_curvlinops_ekfac_is_ours_and_has_c_once_for_empirical(loss, y):
    for fisher in ("exact", "empirical"):
        got, _ = found(loss, y, q.EKFAC(fisher=fisher, sharing="expand"), "curvlinops")
        net = gb.Sequential(layers.Linear(4, C), rng=0, dtype="float64")
        ours = gb.backward(net, loss, X, y, q.EKFAC(fisher=fisher, sharing="expand"))["ekfac"]
        c = loss.summed_weight((C,)) if fisher == "empirical" else 1.0
        np.testing.assert_allclose(got["0.weight"].to_dense() * c, ours["0.weight"].to_dense(), rtol=1e-12, atol=1e-15)


def cell(library, kind):
    """Return what the page says of a quantity in a library."""
    entry = scaling.LIBRARIES[library]
    if kind not in entry.factors:
        return "–"
    factor = entry.factors[kind]
    said = f"A {entry.a}, B {factor / entry.a}" if str(entry.a) != "1" and kind is q.KFAC else str(factor)
    return f"`{entry.names[kind]}`: {said}"


def test_the_page_shows_the_table():
    kinds = dict.fromkeys(kind for entry in scaling.LIBRARIES.values() for kind in entry.factors)
    rows = [["quantity", *scaling.LIBRARIES], ["---"] * 5]
    rows += [[f"`{kind.__name__}`", *(cell(library, kind) for library in scaling.LIBRARIES)] for kind in kinds]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows).replace("| --- ", "|---").replace("--- |", "---|")
    page = (Path(__file__).parents[2] / "docs" / "derivations" / "README.md").read_text(encoding="utf-8")
    assert table in page, f"write there\n{table}"
    assert f"`sum_grad_squared` = {scaling.LIBRARIES['backpack'].factors[q.SecondMoment]} × ours" in page
    assert f"`variance` = {scaling.LIBRARIES['backpack'].factors[q.Variance]} × ours" in page


def test_factors_are_written_as_formulas():
    factor = scaling.Powers(n=1, r=-1, c=-2, h=0.5)
    assert (str(factor), str(factor / factor), str(scaling.Powers(c=-1))) == ("N √h/(R c²)", "1", "1/c")
    assert factor(3, 0.5, 0.25, 4.0) == 3 * 2 / (0.5 * 0.0625)


def test_a_result_without_a_loss_has_no_scale():
    loss, y = CASES[0]
    net = gb.Sequential(layers.Linear(4, C), rng=0, dtype="float64")
    result = replace(gb.backward(net, loss, X, y, q.KFLR()), objective=None)
    with pytest.raises(ValueError, match=r"scaled: expected a result of gb\.backward, got one that does not say"):
        result.scaled("kflr", "backpack")


def test_a_loss_with_an_r_of_its_own_that_is_1_is_not_a_changed_one(tmp_path):
    class Labelled(losses.MSELoss):
        """The mean over samples with a target that is not zero."""

        def factor(self, batch, target):
            return 1 / max(1.0, float((target != 0).any(1).sum()))

    target = np.zeros((6, 3))
    target[2] = 1.0
    network = gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64")
    result = gb.backward(network, Labelled(), np.ones((6, 2)), target, q.SecondMoment())
    assert result.scale.factor == 1
    gb.save(result, tmp_path / "result.safetensors")
    result.scaled(q.SecondMoment(), "backpack")

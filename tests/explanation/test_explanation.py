"""The sweep written out: its shapes and counts are those of a real sweep."""

import re

import numpy as np
import pytest
from common import assert_equal, batch, chain, in_module_of

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.layer import Layer
from gbackprop.plain.explanation.letters import LETTERS, meanings
from gbackprop.plain.plan import make_plan
from gbackprop.plain.reference import Sweep
from gbackprop.testing.runs import every_quantity


@pytest.fixture
def case():
    parts = layers.Conv2d(1, 4, 3, padding=1), layers.Sigmoid(), layers.MaxPool2d(2), layers.Flatten()
    net = chain(*parts, gb.Sequential(layers.Linear(64, 10)), dtype="float32")
    return net, losses.CrossEntropyLoss(), *batch(3, 1, 8, 8, classes=10, dtype="float32")


def test_the_stops_are_those_of_the_sweep(case):
    explained = gb.explain(*case, q.DiagHessian(), q.KFRA())
    assert [step.name for step in explained.steps] == ["loss", "4.0", "3", "2", "1", "0"]
    assert [step.carries != "" for step in explained.steps[1:]] == [True, True, True, True, False]


def test_counts_and_shapes(case):
    loss, linear, *_, sigmoid, convolution = gb.explain(*case, q.DiagHessian(), q.KFRA()).steps
    appended = [("gradient", (1, 3, 10)), ("exact", (10, 3, 10)), ("average", (10, 10))]
    assert [(c.signal, c.shape) for c in loss.appended] == appended
    assert linear.leaving_shapes == [(11, 3, 64)]
    residual = ("residual", (256, 3, 4, 8, 8), 256 * 3 * 256 * 4)
    assert [(c.signal, c.shape, c.nbytes) for c in sigmoid.appended] == [residual]
    assert {c.signal: c.shape for c in convolution.arriving} == {
        "gradient": (1, 3, 4, 8, 8),
        "exact": (10, 3, 4, 8, 8),
        "residual": (256, 3, 4, 8, 8),
        "average": (256, 256),
    }


def test_what_each_layer_carries_is_what_its_mjp_saw(case, monkeypatch):
    seen = []
    plain = layers.Linear.mjp

    def counted(self, saved, mat):
        seen.append(mat.shape)
        return plain(self, saved, mat)

    monkeypatch.setattr(layers.Linear, "mjp", in_module_of(plain, counted))
    steps = gb.explain(*case, q.KFLR(), q.DiagGGNMC(mc_samples=3)).steps
    columns = sum(carried.shape[0] for carried in steps[1].arriving)
    assert seen == [(columns, 3, 10)] == [(14, 3, 10)]


def test_shared_statistics_name_all_who_want_them(case):
    steps = gb.explain(*case, q.DiagGGN(), q.DiagHessian(), q.KFAC(), q.KFLR()).steps
    wanted = {(e.parameter, e.reduction, e.signal): e.wanted_by for e in steps[1].extracted}
    assert wanted["4.0.weight", "square", "exact"] == ("diag_ggn", "diag_hessian")
    assert wanted["4.0.weight", "input_square", None] == ("kfac", "kflr")
    assert wanted["4.0.weight", "sum", "gradient"] == ("gradient",)
    assert ("4.0.bias", "input_square", None) not in wanted


def test_the_text_says_it_all(case):
    text = str(gb.explain(*case, q.DiagHessian(), q.Variance()))
    for part in (
        "from CrossEntropyLoss('mean'); N = 3, R = 0.333333, float32",
        "layer 1, Sigmoid():  y = σ(x)",
        "appends   residual    [256, 3, 4, 8, 8]      768.0 KiB  √|r|, signs of r, r = y (1 − y) (1 − 2y) g",
        "carries   Jᵀ g = y (1 − y) g, all columns at once: now [11, 3, 4, 8, 8]",
        "for diag_hessian",
        "ends      nothing below has parameters",
    ):
        assert part in text


def test_a_layer_without_formulas_of_its_own_is_told_in_general(case):
    class Doubled(Layer):
        def forward(self, x):
            return 2 * x, None

        def mjp(self, saved, mat):
            return 2 * mat

    text = str(gb.explain(chain(layers.Linear(3, 2), Doubled()), losses.CrossEntropyLoss(), *batch(1, 3, classes=2)))
    assert "layer 1, Doubled():  y = f(x)" in text


def test_the_averaged_curvature_is_carried_in_a_step_of_its_own(case):
    explained = gb.explain(*case, q.KFRA())
    assert [step.average_shape for step in explained.steps[1:]] == [(64, 64), (64, 64), (256, 256), (256, 256), None]
    assert "carries   Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ: now [256, 256]" in str(explained)
    assert "Ḡ" not in str(gb.explain(*case, q.KFLR()))


def test_a_dense_residual_starts_as_eigenvectors(case):
    class Softmax(Layer):
        curvature = "dense"

        def forward(self, x):
            e = np.exp(x)
            return e / e.sum(1, keepdims=True), e / e.sum(1, keepdims=True)

        def mjp(self, p, mat):
            return p * (mat - (p * mat).sum(2, keepdims=True))

        def residual(self, p, g):
            slope = p * (g - (p * g).sum(1, keepdims=True))
            cross = p[:, :, None] * slope[:, None]
            return (slope[:, :, None] * np.eye(2) - cross - cross.swapaxes(1, 2)).astype(p.dtype)

    given = chain(layers.Linear(3, 2), Softmax()), losses.CrossEntropyLoss(), *batch(1, 3, classes=2)
    text = str(gb.explain(*given, q.DiagHessian()))
    assert "√|λ| q, signs of λ: r q = λ q, r = Σⱼ (∇² yⱼ) gⱼ" in text


def test_bad_input_is_refused_as_by_backward(case):
    net, loss, x, y = case
    with pytest.raises(ValueError, match="labels 0 to 9"):
        gb.explain(net, loss, x, y + 10)


# --------------------------------------------------------------- each letter has a meaning, and no other letter has one


def explained(*quantities):
    net = chain(layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.Flatten(), layers.Linear(8, 3))
    return str(gb.explain(net, losses.CrossEntropyLoss(), *batch(2, 1, 3, 3), *quantities, rng=0))


def test_all_letters_of_all_quantities_are_explained():
    told, letters = explained(*every_quantity()).split("\nletters\n")
    formulas = "\n".join(re.sub(r"[A-Za-z_]{2,}\d*\w*|'[^']*'", " ", line) for line in told.splitlines()[6:])
    found = set(re.findall(r"[A-Zℓ](?![a-z])", formulas))
    explained_letters = "".join(f"{letter} {meaning}" for letter, meaning in meanings(told))
    assert {letter for letter in found if letter not in explained_letters} == set()
    for letter in ("R", "N", "V", "ℓₙ", "Sₙ", "Hₙ", "ŷₙₘ", "Ḡ", "A", "Q", "r", "u"):
        assert f"\n  {letter} " in f"\n{letters}", letter


def test_each_sample_s_columns_have_a_formula_where_samples_meet():
    net, (x, y) = chain(layers.Linear(4, 2), layers.BatchNorm1d(2), layers.Linear(2, 3)), batch(3, 4)
    told = gb.explain(net, losses.CrossEntropyLoss(), x, y, q.DiagGGN(), q.BatchGrad(coupled=True), training=True)
    (row,) = (line for line in str(told).splitlines() if line.startswith("  starts    samples"))
    assert re.search(r"\[3, 3, 3\] .* R ∇ℓₙ, a column for each n$", row)


def test_letters_that_do_not_occur_are_left_out():
    letters = explained().split("\nletters\n")[1]
    assert re.findall(r"^  (\S+)", letters, re.MULTILINE) == ["N", "R", "ℓₙ", "V", "g", "Jᵀ", "t", "u", "W"]


def test_letters_hold_for_a_loss_whose_labels_have_positions_and_weights():
    loss = losses.CrossEntropyLoss(weight=np.array([1.0, 3.0]))
    net, (x, y) = chain(layers.Linear(5, 4)), (batch(2, 2, 5)[0], np.array([[0, 1, 1, 1], [1, 0, 0, 0]]))
    told = " ".join(str(gb.explain(net, loss, x, y, q.KFAC(), rng=0)).split())
    assert (loss.factor(2, y), loss.summed_weight((2, 4))) == (1 / 4, 1 / 4)  # neither 1/N nor 1
    for part in ("1/N for \"mean\", but by the weights of labels", "1/T over T positions of labels", "has their roots"):
        assert part in told


@pytest.mark.parametrize(
    ("text", "letters"),
    [("√R Sₙ", ["R", "Sₙ"]), ("Result, Vector, carry", []), ("c M", ["c"]), ("Wᵀ g", ["g", "W"]), ("[t, s]", ["t"])],
)
def test_a_letter_is_a_word_of_its_own(text, letters):
    assert [letter for letter, _ in meanings(text)] == letters


def test_meanings_are_in_the_order_of_the_table():
    assert [letter for letter, _ in meanings(" ".join(LETTERS))] == list(LETTERS)


# -------------------------------------- the last step of each quantity, from the statistics of the plain sweep

N = 5
FORMULAS = {
    "as extracted": lambda N, R, value: value,
    "(Q/N + m²) / R²": lambda N, R, moments: (moments.centered / N + moments.mean**2) / R**2,
    "Q / (N R²)": lambda N, R, moments: moments.centered / (N * R**2),
    "square of exact + square of residual": lambda N, R, exact, residual: exact + residual,
    "batch_square of exact + batch_square of residual": lambda N, R, exact, residual: exact + residual,
    "A = input_square / N, B as extracted": lambda N, R, inputs, b: (None if inputs is None else inputs / N, b),
}


def small(reduction="mean"):
    net = chain(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2))
    return net, losses.CrossEntropyLoss(reduction), *batch(N, 3, classes=2, seed=1)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("quantity", every_quantity(), ids=lambda quantity: quantity.name)
def test_the_formula_that_is_told_gives_the_result(quantity, reduction):
    net, loss, x, y = small(reduction)
    told = gb.explain(net, loss, x, y, quantity, rng=0).finished[1]
    assert (told.name, told.scale) == (quantity.name, quantity.scale)
    plan = make_plan(net, loss, x, y, [quantity], 0)
    sweep = Sweep(plan)
    output, saved = sweep.forward(x)
    sweep.backward(output, y, saved)
    result = gb.reference(net, loss, x, y, quantity, rng=0)[quantity]
    for name, value in result.items():
        statistics = [sweep.found.get((statistic, name), 0) for statistic in quantity.statistics()]
        computed = FORMULAS[told.formula](N, 1 / N if reduction == "mean" else 1, *statistics)
        assert_equal({name: value}, {name: computed}, 1e-12, least=1e-3)


def test_the_text_ends_the_sweep_with_them():
    text = str(gb.explain(*small(), q.Variance(), q.KFLR()))
    assert "finishes  variance           Q / (N R²)  " in text
    assert "it is 1/N Σₙ (∇ℓₙ)² − (1/N Σₙ ∇ℓₙ)²" in text
    assert text.index("ends      nothing below") < text.index("finishes  gradient") < text.index("finishes  kflr")


def test_a_users_formula_is_told_or_said_to_be_missing():
    class Doubled(q.DiagGGN):
        name = "doubled"

        def finish(self, scale, square):
            return 2 * square

    class Told(Doubled):
        finishes = "2 square"

    missing, told = gb.explain(*small(), Doubled(), Told()).finished[1:]
    assert missing.formula == "by its method finish, whose formula it does not say"
    assert told.formula == "2 square"


def test_a_joint_bias_is_in_the_formula_of_a():
    net = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64")
    for joint in (False, True):
        kfac = q.KFAC(fisher="exact", sharing="expand", joint_bias=joint)
        steps = gb.explain(net, losses.MSELoss(), np.ones((2, 3)), np.ones((2, 2)), kfac).steps
        formulas = [each.formula for step in steps for each in step.extracted if each.reduction == "input_square"]
        assert ["u ← [u, 1]" in formula for formula in formulas] == [joint]

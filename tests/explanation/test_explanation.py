"""The sweep written out: its shapes and counts are those of a real sweep."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.layer import Layer


@pytest.fixture
def case():
    net = gb.Sequential(
        layers.Conv2d(1, 4, 3, padding=1),
        layers.Sigmoid(),
        layers.MaxPool2d(2),
        layers.Flatten(),
        gb.Sequential(layers.Linear(64, 10)),
        rng=0,
    )
    rng = np.random.default_rng(0)
    return net, losses.CrossEntropyLoss(), rng.random((3, 1, 8, 8), dtype=np.float32), rng.integers(0, 10, 3)


def test_the_stops_are_those_of_the_sweep(case):
    explained = gb.explain(*case, q.DiagHessian(), q.KFRA())
    assert [step.name for step in explained.steps] == ["loss", "4.0", "3", "2", "1", "0"]
    assert [step.carries != "" for step in explained.steps[1:]] == [True, True, True, True, False]


def test_counts_and_shapes(case):
    loss, linear, *_, sigmoid, convolution = gb.explain(*case, q.DiagHessian(), q.KFRA()).steps
    assert [(c.signal, c.shape) for c in loss.appended] == [
        ("gradient", (1, 3, 10)),
        ("exact", (10, 3, 10)),
        ("average", (10, 10)),
    ]
    assert linear.leaving_shapes == [(11, 3, 64)]
    assert [(c.signal, c.shape, c.nbytes) for c in sigmoid.appended] == [
        ("residual", (256, 3, 4, 8, 8), 256 * 3 * 256 * 4)
    ]
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

    monkeypatch.setattr(layers.Linear, "mjp", counted)
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

    net = gb.Sequential(layers.Linear(3, 2), Doubled(), rng=0)
    text = str(gb.explain(net, losses.CrossEntropyLoss(), np.ones((1, 3), np.float32), np.array([1])))
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

    net = gb.Sequential(layers.Linear(3, 2), Softmax(), rng=0)
    text = str(gb.explain(net, losses.CrossEntropyLoss(), np.ones((1, 3), np.float32), np.array([1]), q.DiagHessian()))
    assert "√|λ| q, signs of λ: r q = λ q, r = Σⱼ (∇² yⱼ) gⱼ" in text


def test_bad_input_is_refused_as_by_backward(case):
    net, loss, x, y = case
    with pytest.raises(ValueError, match="labels 0 to 9"):
        gb.explain(net, loss, x, y + 10)

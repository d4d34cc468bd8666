"""The figure: every layer and signal, on at most a page."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.plain.explanation.figure import HEIGHT, WIDTH

FEW = [q.DiagHessian(), q.KFAC(mc_samples=2)]
ALL = [*FEW, q.DiagGGNMC(mc_samples=3), q.Variance(), q.KFRA()]


def figure(depth, quantities):
    chain = [layers.Linear(3, 3) if i % 2 else layers.Sigmoid() for i in range(1, depth + 1)]
    net = gb.Sequential(*chain[:-1], layers.Linear(3, 3), rng=0)
    x = np.random.default_rng(0).random((2, 3), dtype=np.float32)
    return gb.explain(net, losses.CrossEntropyLoss(), x, np.array([0, 2]), *quantities, rng=0).figure()


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("depth", [1, 3, 10, 25, 60])
@pytest.mark.parametrize("quantities", [[], ALL], ids=["gradient", "all"])
def test_every_layer_is_on_one_page(depth, quantities):
    drawn = figure(depth, quantities)
    width, height = drawn.get_size_inches()
    assert width <= WIDTH + 1e-9
    assert height <= HEIGHT + 1e-9
    titles = [text for text in texts(drawn) if ": Linear" in text or ": Sigmoid" in text]
    assert titles == [f"{i}: {'Linear' if i % 2 == 0 or i == depth - 1 else 'Sigmoid'}" for i in reversed(range(depth))]


@pytest.mark.parametrize("depth", [3, 10, 25])
def test_nothing_is_beyond_the_edge_or_too_small_to_read(depth):
    drawn = figure(depth, ALL)
    drawn.canvas.draw()
    width, height = drawn.get_size_inches() * drawn.dpi
    for text in drawn.axes[0].texts:
        box = text.get_window_extent()
        assert 0 <= box.x0 <= box.x1 <= width, text
        assert 0 <= box.y0 <= box.y1 <= height, text
        assert text.get_fontsize() >= 5


def test_there_is_a_lane_for_each_signal_with_its_columns():
    told = texts(figure(3, FEW))
    for lane in ("gradient", "exact", "mc (M = 2)", "residual"):
        assert lane in told
    assert "average" not in told
    assert told.count("V = 2") == 3


def test_rows_name_their_lanes_again_and_go_on_from_the_right_edge():
    drawn = figure(25, FEW)
    assert texts(drawn).count("gradient") == 4
    assert texts(drawn).count("V = 1") == 25  # an arrow of the gradient into each layer


def test_the_legend_says_what_signs_signals_and_letters_are():
    told = "\n".join(texts(figure(3, ALL)))
    for part in (
        "◆ a signal starts    ● a layer's parameters reduce it    ← Jᵀ times its V columns",
        "← Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ, D² numbers",
        "exact: √R Sₙ, S Sᵀ = ∇²ℓₙ, for diag_hessian",
        "mc (M = 2): √(R/(c M)) ∇ℓ(fₙ, ŷₙₘ), for kfac",
        "inputs: Σₙₜ u uᵀ, for kfac, kfra",
        "N: samples in the batch",
    ):
        assert part in told

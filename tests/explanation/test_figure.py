"""The figure: every layer and signal, on at most a page."""

import numpy as np
import pytest
from common import batch, chain

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.plain.explanation.figure import HEIGHT, WIDTH

FEW = [q.DiagHessian(), q.KFAC(mc_samples=2)]
ALL = [*FEW, q.DiagGGNMC(mc_samples=3), q.Variance(), q.KFRA()]


def figure(depth, quantities):
    inner = [layers.Linear(3, 3) if i % 2 else layers.Sigmoid() for i in range(1, depth + 1)]
    net = gb.Sequential(*inner[:-1], layers.Linear(3, 3), rng=0)
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


@pytest.mark.parametrize("depth", [3, 10, pytest.param(25, marks=pytest.mark.long)])
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


def test_there_is_a_lane_for_columns_of_single_samples_where_samples_meet():
    net, (x, y) = chain(layers.Linear(4, 2), layers.BatchNorm1d(2), layers.Linear(2, 3)), batch(3, 4)
    told = gb.explain(net, losses.CrossEntropyLoss(), x, y, q.BatchGrad(coupled=True), training=True)
    told = texts(told.figure())
    assert "samples" in told
    assert "samples: R ∇ℓₙ, a column for each n, for batch_grad" in told


def test_rows_name_their_lanes_again_and_go_on_from_the_right_edge():
    drawn = figure(25, FEW)
    assert texts(drawn).count("gradient") == 4
    assert texts(drawn).count("V = 1") == 25  # an arrow of the gradient into each layer


@pytest.mark.parametrize("depth", [1, 25, 60])
def test_marks_are_as_small_as_the_words_beside_them(depth):
    axes = figure(depth, ALL).axes[0]
    words = next(text.get_fontsize() for text in axes.texts if text.get_text() == "gradient")
    np.testing.assert_allclose([line.get_markersize() for line in axes.lines], 6 / 8 * words)


def test_the_legend_says_what_signs_signals_and_letters_are():
    told = "\n".join(texts(figure(3, ALL)))
    for part in (
        "◆ a signal starts    ● a layer's parameters reduce it    ← Jᵀ times its V columns",
        "← Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ, D² numbers",
        "exact: √R Sₙ, where Sₙ Sₙᵀ = ∇²ℓₙ, for diag_hessian",
        "mc (M = 2): √(R/(c M)) ∇ℓ(fₙ, ŷₙₘ), for kfac",
        "inputs: Σₙₜ u uᵀ, for kfac, kfra",
        "N: samples in the batch",
    ):
        assert part in told


def test_where_everything_is_on_a_page():
    """In inches: layers from the right, 1.75 apart; a row's head, its two lanes, its foot; the legend below."""
    drawn = figure(2, [q.DiagHessian()])
    (axes,) = drawn.axes
    assert drawn.get_size_inches() == pytest.approx((8, 2.96))
    assert (*axes.get_xlim(), *axes.get_ylim()) == pytest.approx((0, 8, 0, 2.96))
    found = [(t.get_text(), t.get_fontsize(), *t.get_position(), t.get_va()) for t in axes.texts if t.get_text()]
    written = [
        ("Backward from CrossEntropyLoss('mean'); N = 2, R = 0.5, float32", 10, 4, 2.86, "top"),
        ("loss", 8, 7.125, 2.56, "top"), ("gradient", 8, 0.05, 1.9, "center"), ("exact", 8, 0.05, 1.58, "center"),
    ]  # fmt: skip
    for name, x in (("1", 5.375), ("0", 3.625)):
        written += [(f"{name}: Linear", 8, x, 2.56, "top"), ("y = W x + b", 6.4, x, 2.39, "top")]
        written += [(f"{name}.weight, {name}.bias", 6.4, x, 1.42, "top")]
        written += [("V = 1", 6.5, x + 0.875, 1.93, "bottom"), ("V = 3", 6.5, x + 0.875, 1.61, "bottom")]
    assert [place for place in found if place[3] > 1.05] == [
        (words, pytest.approx(size), pytest.approx(x), pytest.approx(y), va) for words, size, x, y, va in written
    ]
    legend = [place for place in found if place[3] < 1.05]
    assert [(x, size) for _, size, x, _, _ in legend] == [(0.05, 7)] * 6
    assert [y for *_, y, _ in legend] == pytest.approx([1.04, 0.88, 0.72, 0.56, 0.4, 0.24])
    arrows = [(*t.xy, *t.get_position()) for t in axes.texts if not t.get_text() and hasattr(t, "xy")]
    lanes = (1.9, 1.58)
    assert arrows == [pytest.approx((x + 0.08, y, x + 1.63, y)) for x in (5.375, 3.625) for y in lanes]
    marks = [(m.get_marker(), *m.get_xdata(), *m.get_ydata(), m.get_markersize()) for m in axes.lines]
    places = [("D", 7.125), ("o", 5.375), ("o", 3.625)]
    assert marks == [(mark, pytest.approx(x), pytest.approx(y), 6) for mark, x in places for y in lanes]
    columns = [band.get_paths()[0].get_extents().extents for band in axes.collections]
    np.testing.assert_allclose(columns, [(x - 0.1, 1.22, x + 0.1, 2.56) for x in (7.125, 5.375, 3.625)])

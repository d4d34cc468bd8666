"""Pictures of differences: colors, the worst entry, what is said of the whole; and the markup that they are made of."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from gbackprop import layers, losses
from gbackprop.network import Sequential
from gbackprop.testing.audit.drawing import (
    describe,
    difference_classes,
    difference_legend,
    drawing,
    heading,
    value_classes,
    value_legend,
)
from gbackprop.testing.audit.markup import Markup, join, tag
from gbackprop.testing.audit.picture import Axis, Picture, _worst_sample, layer_pictures, loss_pictures
from gbackprop.testing.cases import ALL_LAYERS
from gbackprop.testing.cases.loss_rows import outputs, targets
from gbackprop.testing.points import smooth_point
from gbackprop.testing.probe import Probe, is_container

SHOWN = {layers.Linear, layers.Conv1d, layers.Sigmoid, layers.Softmax, layers.BatchNorm2d, Sequential}


def picture(got, want, tolerance=1e-11):
    got, want = np.array(got, float), np.array(want, float)
    axes = [Axis(name, (size,), np.arange(size)) for name, size in zip("yx", want.shape, strict=True)]
    return Picture("J", "mjp", *axes, 1, got, want, float(np.abs(want).max()), "complex step", tolerance)


@pytest.mark.parametrize(("shape", "some", "words"), [
    ((6,), 6, "x, 6"), ((2, 3), 6, "x, 6 (2×3)"), ((2, 3, 1), 4, "x, 4 of 6 (2×3×1)"), ((), 1, "x, 1"),
])  # fmt: skip
def test_an_axis_says_its_size_and_its_shape(shape, some, words):
    assert str(Axis("x", shape, np.arange(some))) == words


def test_the_worst_entry_is_marked_with_both_values():
    want = np.array([[1.0, 2.0], [4.0, 0.0]])
    got = want + np.array([[0, 1e-12], [-0.25, 0]])
    drawn = drawing(picture(got, want), "difference", "p")
    ElementTree.fromstring(drawn)  # well-formed
    assert "y[1], x[0] of sample 1: mjp gives 3.75, expected 4, |difference| 2.5e-01, relative 6.2e-02" in drawn
    ring = re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+" class="ring">', drawn)
    x, y, w, h = map(int, re.search(r'<path d="M(\d+) (\d+)h(\d+)v(\d+)[^"]*" class="e8">', drawn).groups())
    wide, high = map(float, re.search(r'transform="scale\(([\d.]+) ([\d.]+)\)"', drawn).groups())
    assert (float(ring[1]), float(ring[2])) == pytest.approx((wide * (x + w / 2), high * (y + h / 2)))
    assert 'class="same"' in drawn


def test_the_sample_that_differs_most_is_shown():
    want = np.random.default_rng(0).standard_normal((3, 2, 2))  # [N, R, C]
    for sample, error in ((0, 1e-3), (2, 1e-9), (1, np.nan)):
        got = want.transpose(1, 0, 2) + 1e-12
        got[1, sample, 0] += error
        axes = [Axis(name, (2,), np.arange(2)) for name in "yx"]
        shown = _worst_sample(("J", "mjp"), *axes, got, want, SimpleNamespace(oracle="", tolerance=0))
        assert (shown.sample, shown.worst, shown.scale) == (sample, (1, 0), np.abs(want).max())
        np.testing.assert_array_equal(shown.want, want[sample])


@pytest.mark.parametrize("row", [row for row in ALL_LAYERS if row.kind in SHOWN], ids=str)
def test_every_matrix_of_a_sound_layer_is_drawn_beside_the_same(row):
    layer, rng = row.layer(), np.random.default_rng(1)
    probe = Probe.at(layer, row.x(3, rng=2), None, False, rng)
    shown = list(layer_pictures(probe, smooth_point(probe, rng), rng))
    curved = layer.curvature != "zero" and not is_container(layer)
    assert [each.method for each in shown] == [
        *("mjp", *(["residual"] if curved else []), *(f"{name}.per_sample" for name in probe.parameters)),
    ]
    for each in shown:
        assert each.tight, each.title
        assert each.got.shape == each.want.shape == (len(each.rows.where), len(each.columns.where))
        assert each.scale >= np.abs(each.want).max() > 0


@pytest.mark.parametrize("loss", [losses.CrossEntropyLoss(), losses.MSELoss("sum")], ids=repr)
def test_the_matrices_of_a_sound_loss_are_drawn_beside_the_same(loss):
    rng = np.random.default_rng(0)
    output, target = outputs(loss, (3, 4), 0), targets(loss, (3, 4), 1)
    gradients, hessian = loss_pictures(loss, output, target, rng)
    assert gradients.tight
    assert hessian.tight
    assert (gradients.want.shape, gradients.sample) == ((3, 4), None)
    np.testing.assert_allclose(gradients.got, loss.gradients(output, target))
    assert hessian.want.shape == (4, 4)


class OfReals(losses.MSELoss):
    def values(self, output, target):
        return super().values(np.real(output), target)

    def gradients(self, output, target):
        return super().gradients(np.real(output), target)


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_differences_go_by_the_size_of_the_outputs(size):
    output, target = size * np.random.default_rng(0).standard_normal((2, 3, 4))
    for each in loss_pictures(OfReals(), output, target, np.random.default_rng(1)):
        assert each.tight
        assert each.oracle == "central differences"
        assert each.tolerance < 1e-6


def test_a_drawing_says_whether_it_is_of_what_was_got_or_of_the_difference():
    shown = picture(np.eye(2), 2 * np.eye(2))
    words = {side: heading(shown, side) for side in ("got", "expected", "difference")}
    assert words == {"got": "J, got", "expected": "J, expected", "difference": "|difference| of J"}
    assert all(f">{text}</title>" in drawing(shown, side, "p") for side, text in words.items())


def test_colors_are_decades():
    got = [[0, 0, 1e-17, 1.5e-16, 1e-3, 0.5, np.inf, 1]]
    shown = picture(got, [[0] * 7 + [1]])
    assert difference_classes(shown).tolist() == [["", "", "e0", "e1", "e7", "e8", "e8", "same"]]
    assert '<i class="e1"></i>≥ 1e-16</li>' in difference_legend()


def test_nothing_differs_or_is_no_number():
    assert describe(picture(np.eye(2), np.eye(2))) == "No entry differs."
    assert "ring" not in drawing(picture(np.eye(2), np.eye(2)), "difference", "p")
    lost = picture([[np.nan, 1], [0, 1]], np.eye(2))
    assert lost.worst == (0, 0)
    assert "mjp gives nan, expected 1" in describe(lost)


def test_markup_escapes():
    assert tag("p", "<&>", None, [1.5, Markup("<br>")], title='"', hidden=False, open=True, class_="a") == (
        '<p title="&quot;" open class="a">&lt;&amp;&gt;1.5<br></p>'
    )
    assert tag("meta", name="x") == '<meta name="x">'
    assert join("a\x00\x1b[1mb") == "a[1mb"


def test_colors_of_values_go_by_their_part_of_the_largest():
    parts = np.array([[0, 0.005, 0.05, 0.3, 1, 1 + 1e-12, 1.1, -1, -0.05, np.nan, np.inf]])
    shown = picture(2 * parts, 2 * np.eye(1, 11))
    expected = ["", "p1", "p2", "p3", "p4", "p4", "p5", "n4", "n2", "nan", "p5"]
    assert value_classes(shown, "got").tolist() == [expected]
    assert value_classes(shown, "expected").tolist() == [["p4"] + 10 * [""]]


def test_the_legend_of_values_goes_from_the_lowest_to_the_highest():
    classes = re.findall(r'<i class="(\w+)"></i>', value_legend(2.0))
    shown = picture([[-3, -2, -0.6, -0.1, -0.01, 0.01, 0.1, 0.6, 2, 3, np.nan]], 2 * np.eye(1, 11))
    assert [classes] == value_classes(shown, "got").tolist()
    words = re.findall("</i>([^<]*(?:&lt;|&gt;)?[^<]*)</li>", value_legend(2.0))
    bounds = ["0.02", "0.2", "1", "2"]
    below = [f"≥ −{bound}" for bound in reversed(bounds)]
    assert words == ["&lt; −2", *below, *(f"≤ {bound}" for bound in bounds), "&gt; 2", "NaN"]

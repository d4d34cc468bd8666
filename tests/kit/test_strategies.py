"""What the strategies draw: every layer and option, small when it shrinks; and the kit without Hypothesis."""

import subprocess
import sys
from functools import partial
from random import Random

import numpy as np
import pytest
from common import one_in
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from gbackprop import Sequential, layers, losses
from gbackprop.calculus.layer import leaves_of
from gbackprop.layers import Elementwise, Layer
from gbackprop.testing import strategies
from gbackprop.testing.cases.branches import JOINS
from gbackprop.testing.graphs import graph_problems, maps
from gbackprop.testing.shape_strategies import OVER_AXES, instance_norms, max_pools, shuffles
from gbackprop.testing.strategies import OF_ANY, layer_cases, loss_cases, problems

MANY = settings(max_examples=15000, database=None, deadline=None)
DRAWN = settings(MANY, max_examples=60000, phases=[Phase.generate])  # not made smaller; it ends when all were drawn
JOINED = {row.kind for row in JOINS}
KINDS = [kind for kind in vars(layers).values() if isinstance(kind, type) and issubclass(kind, Layer)]


def of(kind, condition):
    return lambda case: isinstance(case.layer, kind) and condition(case.layer)


OPTIONS = {
    "groups": of(layers.Conv2d, lambda layer: layer.groups > 1),
    "same": of(layers.Conv2d, lambda layer: layer.padding == "same" and max(layer.window.kernel) > 1),
    "stride, dilation and bias": of(
        layers.Conv2d, lambda layer: max(layer.window.stride) > 1 and max(layer.window.dilation) > 1 and layer.bias
    ),
    "frame": of(layers.Conv2d, lambda layer: layer.frame is not None and any(map(any, layer.frame.padding))),
    "ceil": of(layers.MaxPool2d, lambda layer: layer.window.ceil_mode and max(layer.window.dilation) > 1),
    "count": of(layers.AvgPool2d, lambda layer: not layer.count_include_pad and any(map(any, layer.window.padding))),
    "divisor": of(layers.AvgPool2d, lambda layer: layer.divisor_override is not None),
    "cropped": of(layers.ZeroPad2d, lambda layer: min(map(min, layer.padding)) < 0),
    "sequences": lambda case: isinstance(case.layer, layers.Linear) and len(case.shape) == 3,
}
APART = {Layer, Elementwise, layers.Embedding, layers.Operation, layers.Parameter, layers.Constant, *JOINED}


FEATURES = {0: (4,), 1: (4, 4), 2: (4, 4, 4), 3: (2, 3, 3, 3)}
"""Those for which layers with windows of as many axes are drawn, or none; None stands for any features."""
AXES = {"Select": None, "sequences": None, "Upsample": 2, "PixelShuffle": 2, "PixelUnshuffle": 2}


def axes_of(kind):
    name = kind.__name__ if isinstance(kind, type) else kind
    return AXES.get(name, 2 if name in OPTIONS else int(name[-2]) if name[-2:] in ("1d", "2d", "3d") else 0)


@pytest.mark.parametrize("axes", one_in(2, [None, *FEATURES]))
def test_every_layer_and_every_option_is_drawn(axes, monkeypatch):
    missing = {each for each in {*KINDS, *OPTIONS} - APART if axes_of(each) == axes}
    if axes is not None:
        monkeypatch.setattr(strategies, "shapes", lambda: st.just(FEATURES[axes]))

    def was_the_last(case):
        missing.difference_update([type(case.layer), *[name for name in missing & {*OPTIONS} if OPTIONS[name](case)]])
        assert case.layer.forward(case.x)[0].shape[1:] == case.layer.output_shape(case.shape)
        return not missing

    find(layer_cases(), was_the_last, settings=DRAWN, random=Random(0))


SMALLEST = (1, 1), (3, 1, 2), (1, 2, 1, 1)


@pytest.mark.parametrize("strategy", [s for s in (*OF_ANY, *OVER_AXES) if s not in (max_pools, instance_norms)])
def test_a_strategy_takes_the_smallest_features(strategy):
    """But those whose layers may refuse them: windows that all stand in the padding, and single numbers."""

    @given(st.sampled_from(SMALLEST).flatmap(lambda shape: st.tuples(st.just(shape), strategy(shape))))
    def takes(drawn):
        assert min(drawn[1].output_shape(drawn[0])) > 0

    takes()


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", [layers.Linear, layers.Conv1d, layers.MaxPool3d, layers.GroupNorm, layers.ReLU, layers.ConstantPad2d]
)
def test_a_layer_shrinks_to_a_small_case(kind):
    case = find(layer_cases(), lambda case: type(case.layer) is kind, settings=MANY)
    assert (case.batch, case.seed) == (1, 0)
    assert np.prod(case.shape) <= 2


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 2), (4, 3, 3), (3, 2, 2), (8, 4, 2), (1, 3, 3), (5, 2, 4)])
def test_pixels_are_shuffled_by_all_factors_that_the_shape_allows(shape):
    kinds, found = (layers.PixelShuffle, layers.PixelUnshuffle), set()
    divides = shape[0] % 4 == 0, shape[1] % 2 == 0 and shape[2] % 2 == 0
    possible = {(kind, factor) for kind, also in zip(kinds, divides, strict=True) for factor in (1, 2)[: 1 + also]}

    @settings(max_examples=50, database=None, derandomize=True)
    @given(shuffles(shape))
    def drawn(layer):
        assert np.prod(layer.output_shape(shape)) == np.prod(shape)
        (factor,) = (value for name, value in vars(layer).items() if name.endswith("factor"))
        found.add((type(layer), factor))

    drawn()
    assert found == possible


@pytest.mark.long
def test_every_loss_is_drawn():
    kinds = losses.CrossEntropyLoss, losses.MSELoss, losses.BCEWithLogitsLoss
    missing = {(kind, reduction) for kind in kinds for reduction in ("mean", "sum")}

    def was_the_last(case):
        missing.discard((type(case.loss), case.loss.reduction))
        case.loss.value(case.output, case.target)
        return not missing

    find(loss_cases(), was_the_last, settings=DRAWN, random=Random(0))


@pytest.mark.long
def test_a_loss_shrinks_to_a_single_output():
    assert find(loss_cases(), lambda c: isinstance(c.loss, losses.MSELoss), settings=MANY).shape == (1,)


def test_outputs_of_several_axes_are_drawn_but_for_classes_that_share_a_bias():
    """Of these the gradient in the bias is 0, and what is computed is rounding."""
    seen = set()

    @settings(max_examples=70, database=None, deadline=None, phases=[Phase.generate], derandomize=True)
    @given(problems(depth=1))
    def draw(problem):
        axes = len(problem.network.output_shape(problem.shape))
        seen.add((axes > 1, isinstance(problem.loss, losses.CrossEntropyLoss)))

    draw()
    assert seen == {(False, False), (False, True), (True, False)}


@pytest.mark.long
def test_a_network_shrinks_to_what_matters():
    def matters(problem):
        return any(isinstance(layer, layers.MaxPool2d) for _, layer in problem.network.named_layers())

    problem = find(problems(), matters, settings=MANY)
    assert len(problem.network) == 2
    assert repr(problem.network).startswith("Sequential(MaxPool2d(kernel_size=(1, 1), stride=(1, 1)), Linear(1, 1")


def test_every_join_and_shared_parameters_are_drawn():
    missing = {*JOINED, "shared"}

    def was_the_last(problem):
        leaves = leaves_of(problem.network, problem.shape)
        missing.difference_update(type(leaf.layer) for leaf in leaves)
        linear = [leaf.layer for leaf in leaves if leaf.parameters]
        if len(set(map(id, linear))) < len(linear):
            missing.discard("shared")
        return not missing

    find(graph_problems(), was_the_last, settings=DRAWN)


def test_networks_nest():
    find(problems(), lambda p: any(isinstance(layer, Sequential) for layer in p.network), settings=DRAWN)


def test_the_kit_needs_neither_hypothesis_nor_pytest():
    code = (
        "import sys; sys.modules.update(hypothesis=None, pytest=None); import numpy; "
        "from gbackprop.testing import check_layer; from gbackprop.layers import Linear; "
        "check_layer(Linear(2, 2), numpy.ones((2, 2))).assert_ok()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@st.composite
def pairs(draw):
    """A layer that may be shared, and one that is drawn beside it."""
    shared = layers.Linear(3, 3)
    return shared, draw(maps((3,), [shared]))


def test_beside_a_layer_that_may_be_shared_all_kinds_are_drawn():
    find(pairs(), lambda pair: pair[1] is pair[0], settings=MANY, random=Random(0))
    for kind in (layers.Linear, Elementwise, layers.Softmax, layers.Identity):
        find(pairs(), partial(has_another, kind), settings=MANY, random=Random(0))


@st.composite
def two_maps(draw):
    shared = []
    return draw(maps((3,), shared)), draw(maps((3,), shared))


@pytest.mark.parametrize("kind", [layers.Linear, layers.PReLU, layers.LayerNorm])
def test_each_kind_of_layer_with_parameters_is_drawn_at_two_places(kind):
    find(two_maps(), lambda pair: pair[0] is pair[1] and isinstance(pair[0], kind), settings=MANY, random=Random(0))


def has_another(kind, pair):
    return isinstance(pair[1], kind) and pair[1] is not pair[0]

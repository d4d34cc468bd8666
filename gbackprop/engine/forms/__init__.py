"""The fast forms of the package's layers: the only table in the engine with particular layers."""

from typing import Any

from gbackprop.calculus.jacobian import Outer
from gbackprop.calculus.layer import Layer
from gbackprop.engine.forms import (
    bias,
    conv,
    elementwise,
    gram,
    images,
    linear,
    moments,
    outer,
    parts,
    pooling,
    recurrent,
    routed,
    transposed,
)
from gbackprop.engine.registry import Forms
from gbackprop.layers.elementwise.activation import Elementwise
from gbackprop.layers.elementwise.dropout import Dropout
from gbackprop.layers.linear import Linear
from gbackprop.layers.moves.indexing import Select, Slice, _Move
from gbackprop.layers.moves.reshape import Flatten, Identity, ZeroPad2d
from gbackprop.layers.recurrent import GRUSteps, LSTMSteps, RNNSteps, Steps
from gbackprop.layers.windows.conv import _Conv as Conv
from gbackprop.layers.windows.conv_transpose import _ConvTranspose as ConvTranspose
from gbackprop.layers.windows.pooling import AvgPool2d, MaxPool2d


def _own(kind: type, *names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, getattr(kind, name)) for name in names)


PURE = (Linear, Conv, ConvTranspose, MaxPool2d, AvgPool2d, ZeroPad2d, Elementwise, Dropout, Flatten, Identity)
"""Layers that refer to no columns after a product with them."""

FORMS = Forms(
    forward={
        Linear.forward: linear.forward,
        Conv.forward: conv.forward,
        ConvTranspose.forward: transposed.forward,
        MaxPool2d.forward: pooling.max_forward,
        AvgPool2d.forward: pooling.mean_forward,
        ZeroPad2d.forward: images.forward,
        Elementwise.forward: elementwise.forward,
        LSTMSteps.forward: recurrent.forward,
    },
    carry={
        Linear.mjp: linear.carry,
        Conv.mjp: conv.carry,
        ConvTranspose.mjp: transposed.carry,
        MaxPool2d.mjp: pooling.max_carry,
        AvgPool2d.mjp: pooling.mean_carry,
        ZeroPad2d.mjp: images.carry,
        Elementwise.mjp: elementwise.carry,
        LSTMSteps.mjp: recurrent.carry,
    },
    in_place={Elementwise.mjp: elementwise.in_place},
    add_to={(_Move.mjp, kind.back): parts.into for kind in (Slice, Select)},
    pure=frozenset(kind.mjp for kind in PURE),
    average={(MaxPool2d.mjp, Layer.average): pooling.max_average},
    jacobians={Conv.parameter_jacobians: conv.jacobians},
    jacobians_at_input={
        (Steps.parameter_jacobians, kind.mjp): Steps.jacobians_below for kind in (RNNSteps, LSTMSteps, GRUSteps)
    },
    gradients={Linear.parameter_jacobians: linear.gradients},
    reduce={**bias.REDUCE, **outer.REDUCE, **moments.REDUCE, **gram.REDUCE, **transposed.REDUCE},
    write_rows={**outer.WRITE_ROWS, **transposed.WRITE_ROWS},
    routes=routed.ROUTES,
    beginnings=frozenset([routed.through_max_pool]),
    routed=routed.ROUTED,
    helpers={
        Conv.forward: _own(Conv, "_unfolded", "_multiplied", "_matrix"),
        Conv.mjp: _own(Conv, "_matrix", "rows"),
        Conv.parameter_jacobians: _own(Conv, "_unfolded", "_matrix", "rows", "_to_parameter", "_from_parameter"),
        ConvTranspose.forward: _own(ConvTranspose, "_folded", "_rows", "_matrix", "_cut", "_sides", "_full"),
        ConvTranspose.mjp: _own(ConvTranspose, "unfolded", "_matrix", "_sides"),
        MaxPool2d.forward: _own(MaxPool2d, "_views"),
        MaxPool2d.mjp: _own(MaxPool2d, "_views", "_places", "_spread"),
        AvgPool2d.forward: _own(AvgPool2d, "jmp", "_gathered", "_shares", "share", "_counts"),
        AvgPool2d.mjp: _own(AvgPool2d, "_spread", "_shares", "share", "_counts"),
        ZeroPad2d.forward: _own(ZeroPad2d, "_padded"),
        ZeroPad2d.mjp: _own(ZeroPad2d, "_padded"),
        **{kind.back: _own(kind, "_where") for kind in (Slice, Select)},
        LSTMSteps.forward: _own(LSTMSteps, "hidden", "linear", "parts_of", "ordered", "restored"),
        LSTMSteps.mjp: _own(LSTMSteps, "slopes", "back", "parts_of", "ordered", "restored"),
        Dropout.forward: _own(Dropout, "noise", "forward_training"),
        Outer.per_sample: _own(Outer, "split", "joined"),
    },
)

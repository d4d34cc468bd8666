"""The fast forms of the package's layers: this table is all that the engine knows of particular layers."""

from gbackprop.engine.forms import bias, conv, elementwise, images, linear, outer, pooling, routed
from gbackprop.engine.registry import Forms
from gbackprop.layers.activation import Elementwise
from gbackprop.layers.base import Layer
from gbackprop.layers.conv import _Conv as Conv
from gbackprop.layers.dropout import Dropout
from gbackprop.layers.linear import Linear
from gbackprop.layers.pooling import AvgPool2d, MaxPool2d
from gbackprop.layers.reshape import Flatten, Identity, ZeroPad2d

FORMS = Forms(
    forward={
        Linear.forward: linear.forward,
        Conv.forward: conv.forward,
        MaxPool2d.forward: pooling.max_forward,
        AvgPool2d.forward: pooling.mean_forward,
        ZeroPad2d.forward: images.forward,
        Elementwise.forward: elementwise.forward,
    },
    carry={
        Linear.mjp: linear.carry,
        Conv.mjp: conv.carry,
        MaxPool2d.mjp: pooling.max_carry,
        AvgPool2d.mjp: pooling.mean_carry,
        ZeroPad2d.mjp: images.carry,
        Elementwise.mjp: elementwise.carry,
    },
    in_place={Elementwise.mjp: elementwise.in_place},
    pure=frozenset(
        kind.mjp for kind in (Linear, Conv, MaxPool2d, AvgPool2d, ZeroPad2d, Elementwise, Dropout, Flatten, Identity)
    ),
    average={(MaxPool2d.mjp, Layer.average): pooling.max_average},
    jacobians={Conv.parameter_jacobians: conv.jacobians},
    reduce={**bias.REDUCE, **outer.REDUCE},
    write_rows=outer.WRITE_ROWS,
    routes=routed.ROUTES,
    routed=routed.ROUTED,
)

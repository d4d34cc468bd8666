"""Layers, named as in torch.nn."""

from gbackprop.layers.activation import Elementwise, ReLU, Sigmoid, Tanh
from gbackprop.layers.adaptive import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
)
from gbackprop.layers.base import Layer
from gbackprop.layers.conv import Conv2d
from gbackprop.layers.dimensions import AvgPool1d, AvgPool3d, Conv1d, Conv3d, MaxPool1d, MaxPool3d
from gbackprop.layers.dropout import Dropout
from gbackprop.layers.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.layers.joins import Add, Concat, MatMul, Multiply
from gbackprop.layers.linear import Linear
from gbackprop.layers.pooling import AvgPool2d, MaxPool2d
from gbackprop.layers.prelu import PReLU
from gbackprop.layers.rectifiers import (
    CELU,
    ELU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    ReLU6,
    Softshrink,
    Threshold,
)
from gbackprop.layers.reshape import Flatten, Identity, ZeroPad2d
from gbackprop.layers.smooth import GELU, LogSigmoid, Mish, SiLU, Softplus, Softsign, Tanhshrink
from gbackprop.layers.softmax import LogSoftmax, Softmax

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "SELU",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "Add",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "Bias",
    "Concat",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Dropout",
    "Elementwise",
    "Flatten",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "Layer",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MatMul",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Mish",
    "Multiply",
    "Outer",
    "PReLU",
    "ParameterJacobian",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "ZeroPad2d",
]

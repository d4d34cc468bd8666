"""Layers, named as in torch.nn."""

from gbackprop.layers.activation import Elementwise, ReLU, Sigmoid, Tanh
from gbackprop.layers.base import Layer
from gbackprop.layers.conv import Conv2d
from gbackprop.layers.dropout import Dropout
from gbackprop.layers.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.layers.linear import Linear
from gbackprop.layers.pooling import AvgPool2d, MaxPool2d
from gbackprop.layers.reshape import Flatten, Identity, ZeroPad2d

__all__ = [
    "AvgPool2d",
    "Bias",
    "Conv2d",
    "Dropout",
    "Elementwise",
    "Flatten",
    "Identity",
    "Layer",
    "Linear",
    "MaxPool2d",
    "Outer",
    "ParameterJacobian",
    "ReLU",
    "Sigmoid",
    "Tanh",
    "ZeroPad2d",
]

"""Layers, named as in torch.nn."""

from gbackprop.base.names import listing
from gbackprop.calculus.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.calculus.layer import Layer
from gbackprop.layers.dimensions import AvgPool1d, AvgPool3d, Conv1d, Conv3d, MaxPool1d, MaxPool3d
from gbackprop.layers.elementwise.activation import Elementwise, ReLU, Sigmoid, Tanh
from gbackprop.layers.elementwise.dropout import Dropout
from gbackprop.layers.elementwise.prelu import PReLU
from gbackprop.layers.elementwise.rectifiers import (
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
from gbackprop.layers.elementwise.smooth import GELU, LogSigmoid, Mish, SiLU, Softplus, Softsign, Tanhshrink
from gbackprop.layers.elementwise.softmax import LogSoftmax, Softmax
from gbackprop.layers.embedding import Embedding
from gbackprop.layers.joins import Add, Concat, MatMul, Multiply
from gbackprop.layers.linear import Linear
from gbackprop.layers.moves.indexing import Permute, PixelShuffle, PixelUnshuffle, Select, Slice, Unflatten
from gbackprop.layers.moves.reshape import Flatten, Identity, ZeroPad2d
from gbackprop.layers.norms.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from gbackprop.layers.norms.samples import (
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)
from gbackprop.layers.norms.scale import Scale
from gbackprop.layers.operations.leaves import Constant, Parameter
from gbackprop.layers.operations.operation import Operation
from gbackprop.layers.windows.adaptive import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
)
from gbackprop.layers.windows.conv import Conv2d
from gbackprop.layers.windows.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from gbackprop.layers.windows.padding import (
    CircularPad1d,
    CircularPad2d,
    CircularPad3d,
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad3d,
)
from gbackprop.layers.windows.pooling import AvgPool2d, MaxPool2d
from gbackprop.layers.windows.upsample import Upsample

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
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bias",
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "Concat",
    "Constant",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "Elementwise",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "Layer",
    "LayerNorm",
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
    "Operation",
    "Outer",
    "PReLU",
    "Parameter",
    "ParameterJacobian",
    "Permute",
    "PixelShuffle",
    "PixelUnshuffle",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "Scale",
    "Select",
    "SiLU",
    "Sigmoid",
    "Slice",
    "Softmax",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "Unflatten",
    "Upsample",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]
__dir__ = listing(__all__)

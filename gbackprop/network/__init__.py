"""Networks: containers of layers, which are layers themselves and nest."""

from gbackprop.base.names import listing
from gbackprop.network.attention import MultiheadAttention, TransformerEncoderLayer
from gbackprop.network.branches import Concatenate, Product, Residual, Sum
from gbackprop.network.container import Container
from gbackprop.network.files import load, save
from gbackprop.network.graph import Graph
from gbackprop.network.recurrent import GRU, LSTM, RNN
from gbackprop.network.sequential import Sequential

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Concatenate",
    "Container",
    "Graph",
    "MultiheadAttention",
    "Product",
    "Residual",
    "Sequential",
    "Sum",
    "TransformerEncoderLayer",
    "load",
    "save",
]
__dir__ = listing(__all__)

"""Networks: containers of layers, which are layers themselves and nest."""

from gbackprop.network.branches import Concatenate, Product, Residual, Sum
from gbackprop.network.container import Container
from gbackprop.network.graph import Graph
from gbackprop.network.sequential import Sequential

__all__ = ["Concatenate", "Container", "Graph", "Product", "Residual", "Sequential", "Sum"]

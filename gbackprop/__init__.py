"""Backpropagation that shows what automatic differentiation hides.

One backward sweep through a network gives the gradient, the individual gradients and their statistics, and
diagonal and Kronecker-factored curvature, in NumPy or CuPy.

"The paper" in docstrings is Dangel, Kunstner, Hennig: "BackPACK: Packing more into Backprop", ICLR 2020.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gbackprop import interop, kronecker, layers, losses, operators, optim, quantities
from gbackprop.array import asarray, asnumpy
from gbackprop.base.errors import NotConvergedWarning, NotFiniteError, NotFiniteWarning, TooLargeError, UnsupportedError
from gbackprop.base.names import listing
from gbackprop.base.recording.refused import TraceError
from gbackprop.calculus import signals as signals  # the signals of a quantity's statistics
from gbackprop.curvature import data, influence, laplace, spectra
from gbackprop.curvature.data import accumulate
from gbackprop.engine.backward import backward, prepare
from gbackprop.engine.kernels.precision import tf32
from gbackprop.engine.memory import free_memory
from gbackprop.interop.files import load_result, save
from gbackprop.interop.recording.loss import trace_loss
from gbackprop.interop.recording.network import trace
from gbackprop.network import (
    GRU,
    LSTM,
    RNN,
    Concatenate,
    Graph,
    MultiheadAttention,
    Product,
    Residual,
    Sequential,
    Sum,
    TransformerEncoderLayer,
    load,
)
from gbackprop.plain.explanation import explain
from gbackprop.plain.programs import Program, program
from gbackprop.plain.reference import reference
from gbackprop.quantities.result import Result

__version__ = "0.1.0"

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Concatenate",
    "Graph",
    "MultiheadAttention",
    "NotConvergedWarning",
    "NotFiniteError",
    "NotFiniteWarning",
    "Product",
    "Program",
    "Residual",
    "Result",
    "Sequential",
    "Sum",
    "TooLargeError",
    "TraceError",
    "TransformerEncoderLayer",
    "UnsupportedError",
    "accumulate",
    "asarray",
    "asnumpy",
    "backward",
    "data",
    "explain",
    "free_memory",
    "influence",
    "interop",
    "kronecker",
    "laplace",
    "layers",
    "load",
    "load_result",
    "losses",
    "operators",
    "optim",
    "prepare",
    "program",
    "quantities",
    "reference",
    "save",
    "spectra",
    "tf32",
    "trace",
    "trace_loss",
]
__dir__ = listing([*__all__, "__version__"])

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return what is imported when it is asked for."""
        if name == "referee":
            return import_module("gbackprop.testing.referee")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

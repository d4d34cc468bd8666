"""Networks from torch, and torch modules from networks. Torch is imported when one of the functions is called."""

from __future__ import annotations

from typing import Any

from gbackprop.base.extras import needed
from gbackprop.base.names import listing
from gbackprop.network import Container, Graph, Sequential

__all__ = ["from_torch", "to_torch"]
__dir__ = listing(__all__)


def from_torch(module: Any, example: Any, output: Any = None) -> Graph | Sequential:
    """Take a torch module over: its layers, its functions, and copies of its weights, under torch's names.

    The module is captured in evaluation mode by torch.export, in non-strict mode, for any number of samples. BatchNorm
    takes its running statistics here, and dropout drops nothing unless ``training=True``. Parameters that do not
    require a gradient are frozen. A module of torch.nn is the layer of its name, and so is a function that a module
    calls on its own weight and bias. Parameters that are used otherwise are nodes, with rows of the table.

    Parameters
    ----------
    module : torch.nn.Module
        On the CPU, in float32 or float64, with one input. It is not changed.
    example : array or tensor, shape (N, *in)
        A batch by which shapes are found, and on which the outputs of both are compared; so they are on a batch of one
        more sample, and on each sample alone. With two positions or more if there is a causal mask.
    output : str or int, optional
        The key or the number of the output, for a module that returns several.

    Returns
    -------
    Sequential or Graph
        A Sequential if the module is one of layers and Sequentials, otherwise a Graph whose nodes have the modules'
        paths as names. The names of parameters are those of the module; a parameter with several names has the first,
        as in ``named_parameters()``. Parameters on which the output does not depend are left out, and so are buffers
        that are no layer's: what is computed from these alone is a fixed array.

    Raises
    ------
    UnsupportedError
        If the module has something that is not there in gbackprop, mixes samples, or computes with their number other
        than as a size of ``view``, ``reshape`` or ``expand``; for each the message has the module, the function and
        the line of the user's code. Also if the outputs differ on other batches than the example.
    TypeError
        If `module` is not a torch module, or `example` not a batch of numbers.
    ValueError
        If the module cannot compute `example`, or if the outputs differ by more than 1e-5 of the largest in float32
        (1e-10 in float64, unless torch casts to float32); the message names the first layer that differs.
    MissingExtraError
        If torch is not installed.
    """
    with needed("torch", "gb.interop.from_torch", "torch"):
        from gbackprop.interop.importing import imported
    return imported(module, example, output)


def to_torch(network: Container) -> Any:
    """Make a torch module of a network, with copies of its weights under the same names.

    Parameters
    ----------
    network : Container
        On any device.

    Returns
    -------
    torch.nn.Module
        On the CPU, in evaluation mode, which is how networks compute by default. A torch.nn.Sequential if the network
        is a Sequential that has each layer once. Frozen parameters do not require a gradient. An attention or recurrent
        layer is torch's own, in a class that takes one sequence and returns the output alone.

    Raises
    ------
    UnsupportedError
        If a layer is not there in torch, such as one of the user's own; the message names it.
    TypeError
        If `network` is not a network.
    MissingExtraError
        If torch is not installed.
    """
    with needed("torch", "gb.interop.to_torch", "torch"):
        from gbackprop.interop.exporting import exported
    return exported(network)

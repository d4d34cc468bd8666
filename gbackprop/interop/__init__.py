"""Networks from torch and from ONNX, and torch modules from networks. What they need is imported by each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gbackprop.base.extras import needed
from gbackprop.base.names import listing
from gbackprop.network import Container, Graph, Sequential

__all__ = ["from_onnx", "from_torch", "to_torch"]
__dir__ = listing(__all__)


def from_onnx(
    model: Any, example: Any = None, constants: Collection[str] = (), parameters: Collection[str] = ()
) -> Graph | Sequential:
    """Take an ONNX model over: operations, layers, and its weights under the names that they have in the file.

    Parameters
    ----------
    model : str, Path or bytes
        A file, or its contents; with one output, the samples along axis 0 of it and of each input.
    example : array, shape (N, *in), or a tuple or dictionary of these, optional
        A batch on which outputs are compared with those of onnx.reference, and by which shapes are found where the file
        leaves them open. By default drawn from the normal distribution.
    constants, parameters : collection of str
        Initializers that are constants, or parameters, against the rule: parameters are arrays of floats, without
        masks (infinite or at least 1e9) and single numbers, but for weights and biases.

    Returns
    -------
    Sequential or Graph
        A Sequential if the operators are a chain of layers whose names are numbers in it. Nodes have the names of
        ONNX's values. A weight ``path.weight`` that one operator takes is that of a layer `path`; others are nodes.

    Raises
    ------
    UnsupportedError
        If the model has what cannot be taken over; the message names the file, each such node and the reason.
    ValueError
        If the file is not a whole model, or its data is missing; or if the outputs differ by more than 1e-5 of the
        largest in float32 (1e-10 in float64; 1e-6 where ONNX has numbers in float32 alone).
    TypeError
        If `model` is no path or bytes, or `example` no batch of numbers.
    MissingExtraError
        If onnx is not installed.
    """
    with needed("onnx", "gb.interop.from_onnx", "onnx"):
        from gbackprop.interop.onnx_import import imported
    return imported(model, example, constants, parameters)


def from_torch(module: Any, example: Any, output: Any = None) -> Container:
    """Take a torch module over: its layers, its functions, and copies of its weights, under torch's names.

    The module is captured in evaluation mode by torch.export, in non-strict mode, for any number of samples. BatchNorm
    takes its running statistics here, and dropout drops nothing unless ``training=True``. If the module does anything
    else in training mode (attention with a mask that drops weights, noise, other code), ``training=True`` is an error
    that says what; ``network.evaluation_only`` is the same text. Parameters that do not require a gradient are frozen.
    A module of torch.nn is the layer of its name, and so is a function that a module calls on its own weight and bias.
    Parameters that are used otherwise are nodes, with rows of the table.

    Parameters
    ----------
    module : torch.nn.Module
        On the CPU, in float32 or float64. It is not changed.
    example : array or tensor, shape (N, *in), or a tuple or dictionary of these
        A batch by which shapes are found, and on which the outputs of both are compared; so they are on a batch of one
        more sample, and on each sample alone. With two positions or more if there is a causal mask. A tuple is of the
        module's arguments in order, a dictionary of those by name; the network then takes its inputs so.
    output : str or int, optional
        The key or the number of the output, for a module that returns several.

    Returns
    -------
    Container
        A Sequential if the module is one of layers and Sequentials, otherwise a Graph whose nodes have the modules'
        paths as names, or has the layer that the module is; a recurrent layer is a network itself. The names of
        parameters are those of the module; one with several names has the first, as in ``named_parameters()``.
        Parameters on which the output does not depend are left out, and so are buffers that are no layer's: what is
        computed from these alone is a fixed array.

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

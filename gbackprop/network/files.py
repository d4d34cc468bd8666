"""Files of state dicts: `save` and `load`, in the safetensors format."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from gbackprop.array import asnumpy
from gbackprop.base.tensors import check_tensors, read_tensors, write_tensors
from gbackprop.network.container import Container, check_network

Network = TypeVar("Network", bound=Container)

KIND = "state dict"
"""The name of the kind of file in its header."""


def save(network: Container, path: str | Path) -> None:
    """Write the parameters and buffers of a network into a file, under their names in its state dict."""
    check_network(network)
    check_tensors(path, "gb.save")
    values = {name: asnumpy(value) for name, value in network.state_dict().items()}
    write_tensors(path, values, "gb.save", KIND, {})


def load(network: Network, path: str | Path) -> Network:
    """Set all parameters and buffers of a network from a safetensors file; return the network.

    Parameters
    ----------
    network : Container
        With the structure of the one that was saved. The numbers are converted to its dtype and moved to its device.
    path : str or Path
        As `save` writes it, or torch's state dict in that format.

    Returns
    -------
    Container
        `network`.

    Raises
    ------
    TypeError
        If `network` is not a network, or the file has numbers of another kind than the network.
    ValueError
        If the file is no safetensors file or is damaged, or has a result, or its names or shapes are not those of the
        network, or a number is not finite. The message names the file; nothing is loaded then.
    OSError
        If the file cannot be read.
    MissingExtraError
        If the package safetensors is not installed.
    """
    check_network(network)
    values, tree = read_tensors(path, "gb.load")
    if tree is not None and tree["kind"] != KIND:
        raise ValueError(f"{path}: expected a state dict, got a {tree['kind']} of gb.save: gb.load_result reads it")
    try:
        return network.load_state_dict(values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from error

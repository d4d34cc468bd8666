"""`save` for networks, results and blocks, and `load_result`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gbackprop import network as networks
from gbackprop.kronecker import Block, BlockDiagonal
from gbackprop.network import Container
from gbackprop.quantities import Scale
from gbackprop.result import Result
from gbackprop.storage.standins import loss_of, loss_tree, quantity_of, quantity_tree
from gbackprop.storage.values import Writer, value_of
from gbackprop.system.tensors import OWN, check_tensors, read_tensors, write_tensors

VERSION = 1
"""The version of the format: what a reader must know."""


def save(value: Container | Result | Block | BlockDiagonal, path: str | Path) -> None:
    """Write a network's state dict, a result or a block into a file, in the safetensors format.

    Of a network these are the parameters and buffers, under their names in its state dict; `gb.load` reads them. Of a
    result these are loss, output, gradient, all values of its quantities, the quantities' and the loss's classes and
    arguments (pseudo-targets and weights, too), N and R; `gb.load_result` gives it back, equal in every bit. Arrays on
    a GPU are copied to the host.

    Parameters
    ----------
    value : Container, Result, Block or BlockDiagonal
        A network on any device; a result of `gb.backward` or `gb.data.merge`; a block of `gb.kronecker`.
    path : str or Path
        The safetensors file, whole or not at all. A file that is there already is replaced.

    Raises
    ------
    TypeError
        If it is nothing of these, or a quantity has values that a file cannot have.
    MissingExtraError
        If the package safetensors is not installed.
    OutputError
        If the file cannot be written; the message names it.
    """
    if isinstance(value, Container):
        return networks.save(value, path)
    if not isinstance(value, Result | Block | BlockDiagonal):
        raise TypeError(
            "value: expected a network such as gb.Sequential, a Result or a block of gb.kronecker, "
            f"got {type(value).__name__}"
        )
    check_tensors(path, "gb.save")
    writer = Writer()
    tree: dict[str, Any] = {"version": VERSION, "kind": "result" if isinstance(value, Result) else "block"}
    tree |= _result_tree(writer, value) if isinstance(value, Result) else {"value": writer.tree("block", value)}
    write_tensors(path, writer.arrays, "gb.save", {OWN: json.dumps(tree)})


def load_result(path: str | Path, network: Container | None = None) -> Result | Any:
    """Read a result, or a block, that `gb.save` wrote.

    All arrays are on the host. A quantity or a loss of a class that is not gbackprop's is a `StoredQuantity` or a
    `StoredLoss`: values are there under the quantity's name, but nothing can be computed with it. A quantity with given
    pseudo-targets has a copy of these, so it is not found by the quantity that was passed, but by its name, or by those
    in ``result.quantities``.

    Parameters
    ----------
    path : str or Path
        As `gb.save` writes it.
    network : Container, optional
        Whose result it is to be: names and shapes of its trainable parameters are compared with those of the gradient.

    Returns
    -------
    Result, Block or BlockDiagonal
        Equal to what was saved, in every bit.

    Raises
    ------
    ValueError
        If the file is no safetensors file or is damaged, has a state dict, is of another version of the format, or its
        result is of another network. The message names the file.
    TypeError
        If `network` is no network, or the file has numbers of a dtype that NumPy lacks.
    OSError
        If the file cannot be read.
    MissingExtraError
        If the package safetensors is not installed.
    """
    if network is not None and not isinstance(network, Container):
        raise TypeError(f"network: expected a network such as gb.Sequential, got {type(network).__name__}")
    arrays, texts = read_tensors(path, "gb.load_result")
    tree = _checked_tree(path, arrays, texts)
    try:
        found = _result_of(tree, arrays) if tree["kind"] == "result" else value_of(tree["value"], arrays)
        if not isinstance(found, Result | Block | BlockDiagonal):
            raise ValueError(f"expected a result or a block, got {type(found).__name__}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: damaged: what it says does not fit its arrays ({error})") from error
    if network is not None:
        _check_network(path, found, network)
    return found


def _checked_tree(path: str | Path, arrays: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    if OWN not in texts:
        raise ValueError(
            f"{path}: expected a result or a block of gb.save, got a state dict or other arrays, "
            f"{sorted(arrays)[:3]}{', …' * (len(arrays) > 3)}: gb.load(network, path) reads a state dict"
        )
    try:
        tree = json.loads(texts[OWN])
        version = tree["version"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: damaged: its header does not say what it has ({error})") from error
    if version != VERSION:
        raise ValueError(f"{path}: expected version {VERSION} of the format of results, got {version!r}")
    return tree


def _check_network(path: str | Path, found: Any, network: Container) -> None:
    if not isinstance(found, Result):
        raise ValueError(f"{path}: expected a result, as a network is given, got a {type(found).__name__}")
    shapes = network.parameter_shapes()
    want = {name: shapes[name] for name in network.trainable}
    got = {name: value.shape for name, value in found.gradient.items()}
    if got != want:
        raise ValueError(f"{path}: expected the parameters of the network, {want}, got a result of {got}")


def _result_tree(writer: Writer, result: Result) -> dict[str, Any]:
    names = [quantity.name for quantity in result.quantities]
    keys = [name if names.count(name) == 1 else f"{name} {i}" for i, name in enumerate(names)]
    scale, objective = result.scale, result.objective
    return {
        "loss": writer.tree("loss", result.loss),
        "output": writer.tree("output", result.output),
        "gradient": writer.tree("gradient", result.gradient),
        "quantities": [quantity_tree(writer, quantity) for quantity in result.quantities],
        "values": [writer.tree(key, values) for key, values in zip(keys, result.values, strict=True)],
        "objective": None if objective is None else loss_tree(writer, objective),
        "scale": None if scale is None else {"batch": scale.batch, "factor": scale.factor, "dtype": scale.dtype},
    }


def _result_of(tree: dict[str, Any], arrays: Mapping[str, Any]) -> Result:
    quantities = tuple(quantity_of(part, arrays) for part in tree["quantities"])
    values = [value_of(part, arrays) for part in tree["values"]]
    if len(values) != len(quantities):
        raise ValueError(f"expected the values of {len(quantities)} quantities, got {len(values)}")
    loss, output, gradient = (value_of(tree[name], arrays) for name in ("loss", "output", "gradient"))
    objective = None if tree["objective"] is None else loss_of(tree["objective"], arrays)
    scale = None if tree["scale"] is None else Scale(**tree["scale"])
    return Result(loss, output, gradient, quantities, values, objective, scale)

"""`save` for networks, results, blocks and Laplace approximations, and `load_result` for all but networks."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop import network as networks
from gbackprop.array import FLOATS, asarray, device_of, is_array
from gbackprop.base.tensors import check_tensors, read_tensors, write_tensors
from gbackprop.calculus.several import ByInput, Inputs, of_inputs
from gbackprop.curvature.laplace import Laplace
from gbackprop.interop.files.posteriors import check_point, laplace_of, laplace_tree
from gbackprop.interop.files.standins import StoredQuantity, loss_of, loss_tree, quantity_of, quantity_tree
from gbackprop.interop.files.values import KINDS, Reader, Writer, expect, is_number, parts
from gbackprop.kronecker import Block, BlockDiagonal
from gbackprop.network import Container
from gbackprop.network.container import check_network
from gbackprop.quantities import Scale
from gbackprop.quantities.result import Result, check_objective

Saved = Result | Block | BlockDiagonal | Laplace


def save(value: Container | Saved, path: str | Path) -> None:
    """Write a network's state dict, a result, a block or a Laplace approximation into a file of safetensors' format.

    Of a network these are the parameters and buffers, under their names in its state dict; `gb.load` reads them. Of a
    result these are loss, output, gradient, all values of its quantities, the quantities' and the loss's classes and
    arguments (pseudo-targets and weights, too), N and R; `gb.load_result` gives it back, equal in every bit. Of an
    approximation these are its curvature and hyperparameters, and not its network. Arrays on a GPU are copied to the
    host. The file has a digest of all of its bytes, and is not read where it has another.

    Parameters
    ----------
    value : Container, Result, Block, BlockDiagonal or Laplace
        A network on any device; a result of `gb.backward` or `gb.data.merge`; a block of `gb.kronecker`; an
        approximation of `gb.laplace`.
    path : str or Path
        The safetensors file, whole or not at all. A file that is there already is replaced.

    Raises
    ------
    TypeError
        If it is nothing of these, or a quantity has values that a file cannot have.
    ValueError
        If the file's name ends as one of another format does, such as .npz.
    MissingExtraError
        If the package safetensors is not installed.
    OutputError
        If the file cannot be written; the message names it.
    """
    if isinstance(value, Container):
        return networks.save(value, path)
    if not isinstance(value, Saved):
        raise TypeError(
            "value: expected a network such as gb.Sequential, a Result, a block of gb.kronecker or a Laplace "
            f"approximation, got {type(value).__name__}"
        )
    check_tensors(path, "gb.save")
    writer = Writer()
    if isinstance(value, Result):
        kind, tree = "result", _result_tree(writer, value)
    elif isinstance(value, Laplace):
        kind, tree = "Laplace approximation", laplace_tree(writer, value)
    else:
        kind, tree = "block", {"value": writer.tree("block", value)}
    write_tensors(path, writer.arrays, "gb.save", kind, tree)


def load_result(path: str | Path, network: Container | None = None) -> Saved | Any:
    """Read a result, a block or a Laplace approximation that `gb.save` wrote.

    All arrays are on the host, but those of an approximation are on the device of its network. A quantity or a loss of
    a class that is not gbackprop's is a `StoredQuantity` or a `StoredLoss`: values are there under the quantity's name,
    but nothing can be computed with it. A quantity with given pseudo-targets has a copy of these, so it is not found by
    the quantity that was passed, but by its name, or by those in ``result.quantities``.

    Parameters
    ----------
    path : str or Path
        As `gb.save` writes it.
    network : Container, optional
        Whose result it is to be: names and shapes of its trainable parameters are compared with those of the gradient.
        For an approximation the network must be given, with the parameters and buffers that it had then.

    Returns
    -------
    Result, Block, BlockDiagonal or Laplace
        Equal to what was saved, in every bit.

    Raises
    ------
    ValueError
        If the file is no safetensors file or is damaged, has a state dict, is of another version of the format, or is
        of another network. The message names the file.
    TypeError
        If `network` is no network, or the file has numbers of a dtype that NumPy lacks.
    OSError
        If the file cannot be read.
    MissingExtraError
        If the package safetensors is not installed.
    """
    if network is not None:
        check_network(network)
    arrays, tree = read_tensors(path, "gb.load_result")
    if tree is None or tree["kind"] not in READERS:
        names = f"{sorted(arrays)[:3]}{', …' * (len(arrays) > 3)}"
        raise ValueError(
            f"{path}: expected a result, a block or a Laplace approximation of gb.save, got a state dict or other "
            f"arrays, {names}: gb.load(network, path) reads a state dict"
        )
    if tree["kind"] == "Laplace approximation":
        network = check_point(path, tree, network)
        device = device_of(next(iter(network.parameters.values())))
        arrays = {name: asarray(value, device) for name, value in arrays.items()}
    reader = Reader(arrays)
    try:
        found = READERS[tree["kind"]](reader, tree, network)
        expect("header", sorted(reader.left), "all arrays", not reader.left)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{path}: damaged: what it says does not fit its arrays ({error})") from error
    if network is not None and not isinstance(found, Laplace):
        _check_network(path, found, network)
    return found


def _check_network(path: str | Path, found: Any, network: Container) -> None:
    if not isinstance(found, Result):
        raise ValueError(f"{path}: expected a result, as a network is given, got a {type(found).__name__}")
    shapes = network.parameter_shapes()
    want = {name: shapes[name] for name in network.trainable}
    got = {name: value.shape for name, value in found.gradient.items()}
    if got != want:
        raise ValueError(f"{path}: expected the parameters of the network, {want}, got a result of {got}")


def _result_tree(writer: Writer, result: Result) -> dict[str, Any]:
    check_objective(result, "result")
    names = [quantity.name for quantity in result.quantities]
    keys = [name if names.count(name) == 1 else f"{name} {i}" for i, name in enumerate(names)]
    scale, objective = result.scale, result.objective
    more: dict[str, Any] = {"rows": sorted(scale.rows)} if scale and scale.rows else {}
    more |= {"meets": True} if scale and scale.meets else {}
    inputs = {"inputs": result.gradient.inputs.shapes} if isinstance(result.gradient, ByInput) else {}
    return inputs | {
        "loss": writer.tree("loss", result.loss),
        "output": writer.tree("output", result.output),
        "gradient": writer.tree("gradient", result.gradient),
        "quantities": [quantity_tree(writer, quantity) for quantity in result.quantities],
        "values": [writer.tree(key, values) for key, values in zip(keys, result.values, strict=True)],
        "objective": None if objective is None else loss_tree(writer, objective),
        "scale": None if scale is None else {"batch": scale.batch, "factor": scale.factor, "dtype": scale.dtype} | more,
    }


def _result_of(reader: Reader, tree: dict[str, Any], _: Any) -> Result:
    parts("header", tree, "version kind loss output gradient quantities values objective scale", "inputs")
    for name in ("quantities", "values"):
        expect(name, tree[name], "a list", isinstance(tree[name], list))
    quantities = tuple(quantity_of(reader, f"quantity {i}", part) for i, part in enumerate(tree["quantities"]))
    expect("values", tree["values"], f"those of {len(quantities)} quantities", len(tree["values"]) == len(quantities))
    loss = reader.value("loss", tree["loss"])
    expect("loss", loss, "a scalar", is_number(loss) or (is_array(loss) and loss.ndim == 0))
    output = reader.array("output", tree["output"])
    gradient = reader.mapping("gradient", tree["gradient"], "an array", _is_shaped)
    values = []
    for quantity, part in zip(quantities, tree["values"], strict=True):
        right = _anything if isinstance(quantity, StoredQuantity) else _computed
        values.append(reader.mapping(quantity.name, part, "an array or a block", right))
    objective = None if tree["objective"] is None else loss_of(reader, "objective", tree["objective"])
    if "inputs" in tree:
        inputs = _inputs_of(tree["inputs"])
        gradient, *values = (of_inputs(inputs, each) for each in (gradient, *values))
    return Result(loss, output, gradient, quantities, values, objective, _scale_of(tree["scale"]))


def _inputs_of(shapes: Any) -> Inputs:
    try:
        return Inputs(shapes)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _anything(value: Any) -> bool:
    return True


def _computed(value: Any) -> bool:
    return _is_shaped(value) or isinstance(value, KINDS)


def _is_shaped(value: Any) -> bool:
    """Return whether a value is an array, or a number of NumPy's, as sums of shape () are."""
    return is_array(value) or isinstance(value, np.number)


def _scale_of(tree: Any) -> Scale | None:
    if tree is None:
        return None
    found = parts("scale", tree, "batch factor dtype", "rows meets")
    batch, factor, dtype, rows = (found.get(name, []) for name in ("batch", "factor", "dtype", "rows"))
    meets = found.get("meets", False)
    expect("batch", batch, "a number of samples", type(batch) is int and batch > 0)
    expect("factor", factor, "a finite number above 0", type(factor) is float and isfinite(factor) and factor > 0)
    expect("dtype", dtype, " or ".join(FLOATS), isinstance(dtype, str) and dtype in FLOATS)
    expect("rows", rows, "names", isinstance(rows, list) and all(isinstance(each, str) for each in rows))
    expect("meets", meets, "true or false", isinstance(meets, bool))
    return Scale(batch, factor, dtype, frozenset(rows), meets)


def _block_of(reader: Reader, tree: dict[str, Any], _: Any) -> Any:
    block = reader.value("block", parts("header", tree, "version kind value")["value"])
    return expect("block", block, "a block", isinstance(block, Block | BlockDiagonal))


READERS: dict[str, Callable[[Reader, dict[str, Any], Any], Any]] = {
    "result": _result_of,
    "block": _block_of,
    "Laplace approximation": laplace_of,
}
"""The function that reads each kind of file."""

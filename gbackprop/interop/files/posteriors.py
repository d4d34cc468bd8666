"""Laplace approximations in files: without their network, which is given again and compared."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from gbackprop.array import Array, asnumpy, is_array
from gbackprop.calculus.state import digest, parts_of, settings_of
from gbackprop.curvature.laplace import Laplace
from gbackprop.curvature.laplace.arguments import checked_hyperparameters, restricted
from gbackprop.curvature.laplace.evidence import Evidence
from gbackprop.curvature.laplace.likelihoods import check_loss
from gbackprop.curvature.laplace.structures import Blocks, Diagonal, Full, Structure
from gbackprop.interop.files.standins import loss_of, loss_tree
from gbackprop.interop.files.values import Reader, Writer, expect, parts
from gbackprop.kronecker import EigenKronecker, GroupedKronecker, Kronecker
from gbackprop.losses import MSELoss
from gbackprop.network import Container

STRUCTURES = {"full": Full, "kron": Blocks, "diag": Diagonal}

KINDS = (Kronecker, GroupedKronecker, EigenKronecker)
"""The blocks of "kron"."""

NETWORK = "text numbers attributes"
"""The names in the description of the network."""

NAMES = "names loss prior_precision noise_variance temperature output slope total outputs structure curvature"
"""The names in the tree of an approximation beside its network."""


def laplace_tree(writer: Writer, laplace: Laplace) -> dict[str, Any]:
    """Return the tree of an approximation: numbers, arrays, and what its network is."""
    evidence = laplace.evidence
    structure: Any = evidence.structure
    (kind,) = [name for name, each in STRUCTURES.items() if type(structure) is each]
    return {
        "network": network_tree(laplace._network),
        "loss": loss_tree(writer, laplace.loss),
        "names": list(laplace.mean),
        "prior_precision": writer.tree("prior_precision", laplace.prior_precision),
        "noise_variance": laplace.noise_variance,
        "temperature": laplace.hyperparameters.temperature,
        "output": list(laplace._out),
        "slope": writer.tree("slope", laplace._slope),
        "total": evidence.total,
        "outputs": evidence.outputs,
        "structure": kind,
        "curvature": writer.tree("curvature", structure.matrix if isinstance(structure, Full) else structure.blocks),
    }


def network_tree(network: Container) -> dict[str, Any]:
    """Return a network's text, a digest of its parameters and buffers, and one of the attributes of each layer."""
    numbers = {name: asnumpy(value) for name, value in network.state_dict().items()}
    return {"text": repr(network), "numbers": digest(numbers), "attributes": settings_of(network)}


def check_point(path: str | Path, tree: Mapping[str, Any], network: Container | None) -> Container:
    """Check that a network is the one of the approximation in a file, at the same parameters; return it."""
    if network is None:
        raise ValueError(f"{path}: expected its network, too, as a Laplace approximation is read: network=…")
    there, here = parts(f"{path}: network", tree.get("network"), NETWORK), network_tree(network)
    if there["text"] != here["text"] and there["attributes"] != here["attributes"]:  # a text alone may have an address
        raise ValueError(f"{path}: expected the network of the approximation, {there['text']}, got {here['text']}")
    if there["numbers"] != here["numbers"]:
        raise ValueError(
            f"{path}: expected the parameters and buffers around which the approximation was made, got a network of "
            "other shapes, dtypes or numbers"
        )
    if there["attributes"] != here["attributes"]:
        before = there["attributes"] if isinstance(there["attributes"], dict) else {}
        others = [name for name, each in here["attributes"].items() if before.get(name) != each]
        named = ", ".join(f"{name}, {part!r}" for name, part in parts_of(network).items() if name in others[:1])
        raise ValueError(f"{path}: expected the network of the approximation, got other attributes of {named}")
    return network


def laplace_of(reader: Reader, tree: Mapping[str, Any], network: Container) -> Laplace:
    """Return the approximation of a tree; the arrays of `reader` are on the network's device."""
    parts("header", tree, f"version kind network {NAMES}")
    names, output, noise = tree["names"], tree["output"], tree["noise_variance"]
    total, outputs = tree["total"], tree["outputs"]
    expect("names", names, "a list", isinstance(names, list))
    expect("names", names, "parameters, each once", names == [name for name in network.parameters if name in names])
    expect("output", output, "a shape", isinstance(output, list) and all(type(n) is int and n > 0 for n in output))
    expect("outputs", outputs, "a number of outputs", type(outputs) is int and outputs > 0)
    expect("total", total, "a finite number", type(total) is float and isfinite(total))
    loss = loss_of(reader, "loss", tree["loss"])
    prior = reader.value("prior_precision", tree["prior_precision"])
    expect("noise_variance", noise, "a number for MSELoss alone", (noise is None) != isinstance(loss, MSELoss))
    mean = {name: network.parameters[name].copy() for name in names}
    slope = _arrays(reader, "slope", tree["slope"], mean)
    computed = {name: mean[name] for name in slope}  # the gradient has the order of computation, as a GGN's matrix has
    structure = _structure(reader, tree["structure"], tree["curvature"], computed)
    try:
        check_loss(loss)
        hyperparameters = checked_hyperparameters(structure.names, loss, prior, noise, tree["temperature"])
        copied = restricted(network, names)
    except TypeError as error:
        raise ValueError(str(error)) from error
    laplace = Laplace.__new__(Laplace)
    evidence = Evidence.around(mean, loss, total, outputs, structure)
    vars(laplace).update(loss=loss, mean=mean, hyperparameters=hyperparameters, evidence=evidence)
    vars(laplace).update(_network=copied, _out=tuple(output), _slope=slope)
    return laplace


def _structure(reader: Reader, kind: Any, tree: Any, mean: Mapping[str, Array]) -> Structure:
    """Return H of a tree; `mean` has the parameters in the order of its rows."""
    if kind == "full":
        matrix, d = reader.array("curvature", tree), sum(value.size for value in mean.values())
        expect("curvature", matrix, f"shape {(d, d)} in float64", (matrix.shape, matrix.dtype) == ((d, d), "float64"))
        return Full({name: value.shape for name, value in mean.items()}, matrix)
    expect("structure", kind, " or ".join(STRUCTURES), kind in ("kron", "diag"))
    if kind == "diag":
        return Diagonal(_arrays(reader, "curvature", tree, mean))
    blocks = reader.mapping("curvature", tree, "a Kronecker block", lambda block: isinstance(block, KINDS))
    sizes = {name: (block.shape[0], block.dtype) for name, block in blocks.items()}
    want = {name: (value.size, "float64") for name, value in mean.items()}
    for name in mean.keys() - sizes.keys():  # a bias in the block of its weight
        weight = f"{name.removesuffix('bias')}weight"
        if name.endswith("bias") and weight in sizes and weight in want:
            want[weight] = (want[weight][0] + want.pop(name)[0], "float64")
    expect("curvature", sizes, f"blocks of {want}", sizes == want)
    return Blocks(blocks)


def _arrays(reader: Reader, where: str, tree: Any, mean: Mapping[str, Array]) -> dict[str, Any]:
    """Return arrays in float64 of the parameters' shapes."""
    found = reader.mapping(where, tree, "an array", is_array)
    shapes = {name: (value.shape, value.dtype) for name, value in found.items()}
    want = {name: (value.shape, "float64") for name, value in mean.items()}
    return expect(where, found, f"arrays of {want}", shapes == want)

"""The arguments of a Laplace approximation, checked: its curvature, its parameters, its hyperparameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gbackprop.array import Array, device_of, is_array
from gbackprop.base.checks import kind_of, number
from gbackprop.base.memory import check_memory
from gbackprop.curvature.laplace.evidence import Hyperparameters
from gbackprop.losses import Loss, MSELoss
from gbackprop.network import Container
from gbackprop.quantities import KFAC, KFLR, DiagGGN, DiagGGNMC, Quantity

QUANTITIES: dict[str, tuple[type[Quantity], ...]] = {"kron": (KFLR, KFAC), "diag": (DiagGGN, DiagGGNMC)}
"""The curvature that each structure may have."""

DEFAULTS: dict[str, Callable[[], Quantity]] = {
    "kron": lambda: KFAC(fisher="exact", sharing="expand"),
    "diag": DiagGGN,
}
"""The curvature of each structure where none is given: examples/laplace_conventions.py compares those of "kron"."""

COPIES = 4
"""Matrices in float64 that "full" has at a time: the GGN, its eigenvectors, and what these are computed with."""

JOINT_COPIES = 2
"""Matrices of all samples' outputs that a joint covariance has at a time: in float64, and in the parameters' dtype."""


def quantities_of(structure: Any, curvature: Any) -> list[Quantity]:
    """Return the quantity of which a structure is made; none for "full"."""
    if not isinstance(structure, str) or structure not in ("full", *QUANTITIES):
        raise ValueError(f"structure: expected 'full', 'kron' or 'diag', got {structure!r}")
    kinds = QUANTITIES.get(structure, ())
    if curvature is None:
        return [DEFAULTS[structure]()] if kinds else []
    if not isinstance(curvature, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds) or "none, as it is the GGN"
        raise ValueError(f"curvature of structure {structure!r}: expected {expected}, got {curvature!r}")
    if isinstance(curvature, KFAC) and curvature.fisher not in ("mc", "exact"):
        raise ValueError(
            "curvature of structure 'kron': expected an estimate of the GGN, KFAC with fisher='mc' or 'exact', "
            f"got {curvature!r}"
        )
    return [curvature]


def check_joint_prior(asked: list[Quantity], precision: Any) -> None:
    """Check that the prior is one number where a weight and its bias have one block."""
    if isinstance(precision, Mapping) and any(isinstance(kind, KFAC) and kind.joint_bias for kind in asked):
        raise ValueError(
            "prior_precision: expected one number for a curvature with joint_bias (with_prior takes one for each "
            f"block), got one for each of {list(precision)}"
        )


def batches_of(data: Any) -> Any:
    """Return the batches of a data set; those in a list or tuple are checked."""
    if isinstance(data, tuple) and data and (all(map(is_array, data)) or (len(data) == 2 and is_array(data[1]))):
        _check_pair("", data)
        return [data]
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(f"data: expected a batch (x, y) or several, got {kind_of(data)}")
    return list(pairs(data)) if isinstance(data, list | tuple) else data


def pairs(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches, each checked before: samples have no weights."""
    for i, batch in enumerate(batches):
        _check_pair(f"batch {i} of ", batch)
        yield batch


def _check_pair(where: str, batch: Any) -> None:
    if isinstance(batch, tuple | list) and len(batch) != 2:
        got = f"{len(batch)} array{'s' * (len(batch) != 1)}"
        raise TypeError(f"{where}data: expected batches (x, y), got {got}: samples have no weights here")


def restricted(network: Container, chosen: Any) -> Container:
    """Return a copy of the network in which all parameters but the chosen ones are frozen."""
    _ = [*network.parameters.values()]  # drawn now, if they were not
    network = copy.deepcopy(network)
    free = list(network.trainable)
    if chosen is not None and chosen != "last" and (isinstance(chosen, str) or not isinstance(chosen, Iterable)):
        raise TypeError(f"parameters: expected 'last', or names in a list, got {chosen!r}")
    if chosen == "last":
        last = network.parameters.owners[free[-1]][0] if free else None
        chosen = [name for name in free if network.parameters.owners[name][0] is last]
    if chosen is not None:
        names = list(chosen)
        network.freeze()
        try:
            if names:  # without a name it would be all
                network.unfreeze(*names)
        except ValueError as error:
            raise ValueError(f"parameters: {error}") from None
    if not network.trainable:
        raise ValueError("network: expected at least one parameter that is not frozen, got none")
    return network


def check_full(parameters: Mapping[str, Array]) -> None:
    """Check that the matrices of the structure "full" fit into memory; raise a TooLargeError otherwise."""
    d, device = sum(value.size for value in parameters.values()), device_of(next(iter(parameters.values())))
    rest = " ('kron' and 'diag' need less, and parameters='last' does)"
    check_memory(device, COPIES * 8 * d * d, f"structure 'full': matrices of {d} × {d} numbers need", rest)


def check_joint(output: Array) -> None:
    """Check that a joint covariance of outputs fits into memory; raise a TooLargeError otherwise."""
    what = f"joint=True: covariances of {output.size} × {output.size} numbers need"
    check_memory(device_of(output), JOINT_COPIES * 8 * output.size**2, what, " (fewer samples at a time need less)")


def checked_hyperparameters(
    names: list[str], loss: Loss, precision: Any, variance: float | None, temperature: float
) -> Hyperparameters:
    """Check the hyperparameters."""
    if isinstance(precision, Mapping):
        if set(precision) != set(names):
            raise ValueError(f"prior_precision: expected a number for each of {names}, got {list(precision)}")
        deltas = {name: number(f"prior_precision[{name!r}]", precision[name], above=0) for name in names}
    else:
        deltas = dict.fromkeys(names, number("prior_precision", precision, above=0))
    if variance is not None and not isinstance(loss, MSELoss):
        raise ValueError(f"noise_variance: expected none, as {loss!r} has no noise; got {variance!r}")
    sigma = 0.5 if variance is None else number("noise_variance", variance, above=0)
    cooled = number("temperature", temperature, above=0)
    return Hyperparameters(deltas, not isinstance(precision, Mapping), sigma, cooled)

"""A call written down: the sweep as a straight function of NumPy calls, to read, to keep, and to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from html import escape
from importlib import import_module
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, asarray, asnumpy, device_of, on_device_of, scipy_module
from gbackprop.base.checks import batch_of, positive
from gbackprop.base.recording.tape import TapeStep
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.state import digests_of, parts_of
from gbackprop.losses.base import Loss
from gbackprop.losses.sample_weights import Targets, weighted
from gbackprop.plain.completion import by_inputs, complete
from gbackprop.plain.plan import Plan, plan_of
from gbackprop.plain.programs.check import check_of
from gbackprop.plain.programs.comparison import check_result, check_there, compare, forget, other_numbers
from gbackprop.plain.programs.cost import Cost, cost_of
from gbackprop.plain.programs.module import source_of
from gbackprop.plain.programs.recording import inputs_of, leaves_in, mapped_arrays, on_host, recorded, results_of
from gbackprop.plain.programs.simplify import needed, simplified
from gbackprop.plain.reference import run
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result


def program(
    network: Layer, loss: Loss, x: Array, y: Array, *quantities: Quantity, training: bool = False,
    sample_weight: Array | None = None, wrt: Any = None, fold: bool = True, functional: bool = False,
) -> Program:  # fmt: skip
    """Write down what `gbackprop.reference` does for arrays of these shapes, as a function of NumPy calls.

    Parameters
    ----------
    network, loss, x, y, *quantities, training, sample_weight, wrt
        As for `gbackprop.backward`. Of x, y and weights the program needs shapes and dtypes alone; one that was written
        with weights takes others in each call. On a device it runs with `cupy` in place of `numpy`.
    fold : bool
        Whether what nobody needs is left out, what is computed twice is computed once, constants are computed, and
        values that are used once are written where they are used. Without, each line is a step of the plain sweep,
        and the results are equal to those of `gbackprop.reference` in every bit (exceptions: docs/programs.md).
    functional : bool
        Whether assignments to parts of an array are functions of whole arrays, so that the program runs with
        `jax.numpy` in place of `numpy`.

    Returns
    -------
    Program

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `gbackprop.reference` does; and if a layer, the loss or a quantity reads a number from an array (`if x > 0`,
        `float(x)`), which would be a constant of the program: the message names it, and its line; and if the program
        gives another result for x and y than `gbackprop.reference`.
    """
    x = batch_of(network, x)
    loss, y = (loss, y) if sample_weight is None else weighted(loss, y, sample_weight)
    with on_device_of(x):
        plan = plan_of(network, loss, x, quantities, training, wrt).with_batch(x, y, 0, first=True)
        return Program(plan, x, y, fold, functional)


class Program:
    """A call as a program of NumPy calls: see `gbackprop.program`.

    Attributes
    ----------
    source : str
        The text of a Python module with a function of x, y, a mapping of parameters and one of random numbers.
    constants : dict of str to ndarray
        The larger arrays that neither follow from these nor change.
    function : callable
        That function; it returns dictionaries of arrays.
    """

    def __init__(self, plan: Plan, x: Array, y: Any, fold: bool, functional: bool) -> None:
        self.plan, self.fold, self.functional = plan, fold, functional
        self.device, modules = device_of(x), {"np": array_module(x), "special": scipy_module(x, "special")}
        plan, x, y = on_host(plan, x, y)
        self.recording = recorded(plan, x, y)
        forget(self.recording.tape)
        with other_numbers(self.recording, x, y) as other:
            second = recorded(plan, *other)
        compare(self.recording, second)
        second.tape.values.clear()  # now, not when the circle of its layers' classes is found
        self.kinds = {name: _kind(self.recording.tape.values[i]) for name, i in self.recording.inputs.items()}
        self.settings = self._settings()
        self.results = results_of(self.recording.result)
        self.paths = {number: path for path, number in leaves_in(self.results)}
        self.steps, self.same = self._steps()
        self.source, self.constants, self.copied = source_of(self)
        scope: dict[str, Any] = {}
        exec(compile(self.source, "<program>", "exec"), scope)
        check_there(self.source, modules["special"])
        self.function, self.constants_there = scope["program"], self.constants
        device, self.device = self.device, "cpu"
        with np.errstate(all="ignore"):
            weights = [y.weight] if isinstance(y, Targets) else []
            want = complete(plan, x, run(plan, x, y), lambda following: run(following, x, y))
            check_result(self._run(plan, x, y.y if weights else y, weights), want, fold)
        scope.update(modules)
        self.device = device
        self.kinds = {name: (shape, dtype, device) for name, (shape, dtype, _) in self.kinds.items()}
        self.constants_there = {name: asarray(each, device) for name, each in self.constants.items()}

    def __call__(
        self, x: Array, y: Array, rng: int | np.random.Generator | None = None, sample_weight: Array | None = None
    ) -> Result:
        """Run the program with the network's parameters as they are now.

        Parameters
        ----------
        x, y
            Of the shapes and dtypes of the program.
        rng : None, int or numpy.random.Generator
            As for `gbackprop.reference`.
        sample_weight : ndarray, shape (N), optional
            Given, if the program was written with weights.

        Raises
        ------
        ValueError
            If shapes or dtypes are others, or the network, the loss or a quantity has changed since.
        """
        x = batch_of(self.plan.network, x)
        weights = [] if sample_weight is None else [sample_weight]
        self._check({"x": x, "y": y, "sample_weight": sample_weight})
        if (found := self._settings()) != self.settings:
            parts = [name for name in (*self.settings, *found) if self.settings.get(name) != found.get(name)]
            raise ValueError(f"program: {parts[0]} has changed since it was written; write it again")
        return self._run(self._planned(x, y, rng, sample_weight), x, y, weights)

    def inputs(
        self, x: Array, y: Array, rng: int | np.random.Generator | None = None, sample_weight: Array | None = None
    ) -> dict[str, Array]:
        """Return all that a saved program takes by name, on the host: ``numpy.savez(path, **program.inputs(x, y))``.

        Raises
        ------
        ValueError
            If shapes or dtypes are not those of the program.
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        x = batch_of(self.plan.network, x)
        self._check({"x": x, "y": y, "sample_weight": sample_weight})
        values = inputs_of(self._planned(x, y, rng, sample_weight))
        named = {f"{kind}/{name}": array for kind, arrays in values.items() for name, array in arrays.items()}
        return {name: asnumpy(array) for name, array in {"x": x, "y": y, **weights, **named}.items()}

    def save(self, path: str | Path) -> list[Path]:
        """Write the program as a Python file that runs without gbackprop.

        ``python FILE`` runs it with made-up inputs, ``python FILE inputs.npz`` with those of `inputs`; both compare the
        gradient with differences of the loss and print by how much they differ.

        Parameters
        ----------
        path : str or Path
            Ending in ``.py``. Larger constants go to a file beside it that ends in ``.npz``.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        ValueError
            If the path has another ending.
        """
        path = Path(path)
        if path.suffix != ".py":
            raise ValueError(f"path: expected one that ends in .py, got {str(path)!r}")
        path.write_text(self.source + "\n\n" + check_of(self))
        if not self.constants:
            return [path]
        beside = path.with_suffix(".npz")
        np.savez(beside, **self.constants)  # type: ignore[arg-type]
        return [path, beside]

    def cost(self, runs: int = 0) -> Cost:
        """Count the operations of each step on numbers, the bytes that it reads and writes, and those in use.

        Parameters
        ----------
        runs : int
            How often each step is run for its time, of which the median is taken; with 0 there are no times.

        Returns
        -------
        Cost
            `operations`, `read`, `written` and `largest`, the most bytes in use, in all; `by_section()`, `by_layer()`
            and `by_quantity()`; `rows`, one for each step; `figure()`. It is shown as a table.

        Raises
        ------
        UnsupportedError
            If there is no count for a function of NumPy.
        """
        with np.errstate(all="ignore"):
            return cost_of(self, positive("runs", runs, least=0))

    def __repr__(self) -> str:
        return self.source

    def _repr_html_(self) -> str:
        """Return the source with colours, if Pygments is there, for notebooks."""
        try:
            pygments, lexers, formatters = (import_module(f"pygments{each}") for each in ("", ".lexers", ".formatters"))
        except ImportError:
            return f"<pre>{escape(self.source)}</pre>"
        return str(pygments.highlight(self.source, lexers.PythonLexer(), formatters.HtmlFormatter(noclasses=True)))

    # ------------------------------------------------------------------------------------------------------- inside

    def _planned(self, x: Array, y: Array, rng: Any, weight: Array | None) -> Plan:
        """Return the plan of a batch, in which layers of training mode have the parameters as they are now."""
        plan, quantities = self.plan, [quantity for quantity, _ in self.plan.needs]
        plan = plan_of(plan.network, plan.loss, x, quantities, plan.training, plan.wrt)
        return plan.with_batch(x, y if weight is None else Targets(y, weight), rng)  # type: ignore[arg-type]

    def _run(self, plan: Plan, x: Array, y: Any, weights: Sequence[Array]) -> Result:
        """Run the program with a plan and its batch."""
        values = inputs_of(plan)
        values["random"] = {name: asarray(each, self.device) for name, each in values["random"].items()}
        self._check({f"{kind}/{key}": array for kind, arrays in values.items() for key, array in arrays.items()})
        got = self.function(x, y, values["parameters"], values["random"], self.constants_there, *weights)
        arrays = (reduce(getitem, path, got) for path, _ in leaves_in(self.results))
        result = mapped_arrays(self.recording.result, lambda ref: next(arrays))
        plan.loss.check_output(result.output)
        result = replace(result, objective=plan.loss.plain or plan.loss, scale=plan.scale)
        return by_inputs(plan, result) if plan.scale.rows else result

    def _settings(self) -> dict[str, str]:
        """Return a digest of each part of the call without parameters and buffers, which are read in each call."""
        parts = parts_of(self.plan.network, self.plan.loss, [quantity for quantity, _ in self.plan.needs])
        known = set(map(id, parts.values()))
        parts |= {f"layer {each.name} here": each.layer for each in self.plan.leaves if id(each.layer) not in known}
        return digests_of(parts, left_out=("drawn", "buffers"))[0]

    def _check(self, arrays: Mapping[str, Any]) -> None:
        """Check shapes and dtypes."""
        if arrays.get("sample_weight") is not None and "sample_weight" not in self.kinds:
            raise ValueError("sample_weight: expected None, as the program was written without weights")
        for name, array in arrays.items():
            if name in self.kinds and (given := _kind(array)) != self.kinds[name]:
                want, got = ("{} {} on {}".format(*each).removesuffix(" on cpu") for each in (self.kinds[name], given))
                raise ValueError(f"{name}: expected {want}, for which the program was written, got {got}")

    def _steps(self) -> tuple[list[TapeStep], dict[int, int]]:
        """Return the steps of the program, and which value takes the place of another."""
        if self.fold:
            return simplified(self.recording.tape, list(self.paths), self.recording.names)
        return list(self.recording.tape.steps), {}

    def needed_by(self) -> dict[int, list[str]]:
        """Return for each step, by the number of its first result, the results that need it."""
        found: dict[int, list[str]] = {step.results[0]: [] for step in self.steps}
        for name in self.results:
            wanted = [self.same.get(number, number) for path, number in leaves_in(self.results) if path[0] == name]
            for step in needed(self.steps, wanted):
                found[step.results[0]].append(name)
        return found


def _kind(array: Any) -> tuple[Any, Any, str]:
    """Return the shape and dtype of an array, and where it is; of anything else the name of its class."""
    shape = array.shape if hasattr(array, "shape") else np.shape(array)
    return shape, getattr(array, "dtype", type(array).__name__), device_of(array)

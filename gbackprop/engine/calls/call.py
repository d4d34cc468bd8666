"""Small calls written down: what one did, as a function of its arrays, for calls that differ in numbers alone.

A call is recorded with numbers that are made up: twice, so that a number which was read from them is noticed. What is
recorded must give the results of a call to every bit; otherwise the sweep runs, as it does for larger calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gbackprop.array import Array, all_finite
from gbackprop.base.checks import foreign_in, is_shipped, own_methods
from gbackprop.base.threads import NO_CONTEXT, one_blas_thread
from gbackprop.calculus.layer import Layer
from gbackprop.engine.arena import arena
from gbackprop.engine.calls.functions import Functions
from gbackprop.engine.calls.recorded import arrays_of, drawn_in, places_of, recorded
from gbackprop.engine.finite import is_finite
from gbackprop.engine.sweep import Execution
from gbackprop.losses.base import Loss
from gbackprop.plain.plan import Plan
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result

AFTER = 8
"""The number of equal calls after which one is written down: that takes as long as some forty calls."""


Parts = tuple[Layer, Loss, Sequence[Quantity]]
"""Network, loss and quantities."""


class WrittenCall:
    """A call as a function of its arrays.

    Attributes
    ----------
    run : function of arrays
        If it `takes` large arrays, its last argument makes one of a shape and dtype. Returns loss, output, gradient,
        the values of the quantities, and sums of squares: where their total is below `limit`, neither the results nor
        x and the layers' arrays have NaN or infinity.
    kinds : list of (type, shape, strides, dtype)
        Of x, y, each array of the layers, and random numbers.
    plain : bool
        Whether a call needs no batch in its plan: x is of floats, and all that can be wrong in arrays of these kinds is
        that x or a parameter is not finite, or that the loss refuses y.
    draws : bool
        Whether it takes random numbers.
    used : Functions
        The functions to which the classes of the call refer.
    """

    def __init__(
        self, run: Callable[..., Any], call: Execution, layers: Sequence[Layer], used: Functions, threads: bool
    ) -> None:
        plan, self.run, self.places, self.used = call.plan, run, places_of(layers), used
        self.takes = run.__defaults__ is not None
        drawn = drawn_in(vars(plan))
        arrays = [*arrays_of(call.x, call.y, self.places), *drawn]
        self.kinds, self.scale = [(type(a), a.shape, a.strides, a.dtype) for a in arrays], plan.scale
        self.plain, self.draws = plan.floats and plan.wrt is None, bool(drawn)
        self.shape = len(call.x), *plan.output_shape
        self.where = f"y of {type(plan.loss).__name__}({plan.loss.reduction!r})"
        self.context = one_blas_thread() if threads and call.cut.small else NO_CONTEXT
        self.limit = float(np.finfo(plan.scale.dtype).max) / 8 if self._notices(arrays) else 0.0

    def __call__(
        self, parts: Parts, x: Array, y: Array, drawn: Sequence[Array] = (), plan: Plan | None = None
    ) -> Result | None:
        """Return the result of a call with random numbers; None where its arrays are of other kinds.

        Where there is a plan with this batch, all arguments are checked. Without, for a call that is `plain`, the
        numbers are checked here; None where one is not finite, so that a plan says which.
        """
        _, loss, quantities = parts
        try:
            arrays = [*arrays_of(x, y, self.places), *drawn]
            if [(type(a), a.shape, a.strides, a.dtype) for a in arrays] != self.kinds:
                return None
        except (AttributeError, KeyError):  # what is no array, or not there any more
            return None
        if self.used.changed():
            return None
        if plan is None:
            try:
                loss.check_values(self.where, y, self.shape, x)  # their kinds are those that were checked before
            except (TypeError, ValueError):  # x or a parameter may be wrong, too, and comes first
                return None
        elif plan.scale != self.scale:
            return None
        errors: list[str] = []
        noted = lambda kind, flag: errors.append(kind)  # noqa: E731
        with np.errstate(all="call", call=noted):
            found = self._found(arrays)
        treated = [name for name, how in np.geterr().items() if how != "ignore"] if errors else []
        if any(kind.startswith(name) for kind in errors for name in treated):
            return None  # it is done again, and its errors are treated as the caller asks
        result = self._result(found, loss, quantities)
        squares = sum(map(float, found[4:]), abs(float(result.loss)))
        return result if squares < self.limit or (all_finite(x, *arrays[2:]) and is_finite(result)) else None

    def _found(self, arrays: Sequence[Array]) -> Any:
        with self.context:
            if not self.takes:
                return self.run(*arrays)
            with arena() as memory:
                return self.run(*arrays, partial(memory.empty, arrays[0]))

    def _notices(self, arrays: Sequence[Array]) -> bool:
        """Return whether the sums of squares notice NaN in each array where x is 0: a BLAS may leave out zeros."""
        given = [np.zeros_like(arrays[0]), *arrays[1:]]
        for i, array in enumerate(arrays):
            if i != 1 and array.dtype.kind == "f":
                other = given[i].copy()
                other.flat[-1] = np.nan
                with self.context, np.errstate(all="ignore"):
                    squares = self.run(*given[:i], other, *given[i + 1 :])[4:]
                if sum(map(float, squares)) < np.inf:
                    return False
        return True

    def _result(self, found: Sequence[Any], loss: Loss, quantities: Sequence[Quantity]) -> Result:
        new: Result = object.__new__(Result)  # a frozen dataclass sets its attributes one by one
        new.__dict__.update(loss=found[0], output=found[1], gradient=found[2], quantities=tuple(quantities))
        new.__dict__.update(values=found[3], objective=loss, scale=self.scale)
        return new


def write_call(call: Execution, result: Result, layers: Sequence[Layer]) -> WrittenCall | None:
    """Write down a small call, which gave a result; return None if that cannot be done."""
    plan = call.plan
    if not call.cut.written or not call.reuse or call.updates or plan.loss.plain is not None or plan.loss.weighted:
        return None  # R may depend on targets that have weights
    parts = [plan.network, *layers, plan.loss, *[each for each, _ in plan.needs]]
    kinds = {kind for part in parts for kind in type(part).__mro__ if is_shipped(kind)} | {*call.known.kinds}
    functions = Functions(kinds)
    if any(map(own_methods, parts)) or any(map(foreign_in, kinds)) or functions.foreign:
        return None
    try:
        (text, scope, threads), again = (recorded(call, layers, np.random.default_rng(seed)) for seed in (0, 1))
        if not _same((text, scope, threads), again):
            return None
        exec(compile(text, "<call>", "exec"), scope)
        written = WrittenCall(scope["run"], call, layers, functions, threads)
        with written.context:
            found = written.run(*arrays_of(call.x, call.y, written.places), *drawn_in(vars(plan)))
    except Exception:  # whatever a form, or NumPy, says of arrays that write down what is done
        return None
    return written if _same(found[:4], (result.loss, result.output, result.gradient, [*result.values])) else None


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, arrays in every bit and in their order in memory."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        alike = (one.shape, one.dtype, _order(one)) == (other.shape, other.dtype, _order(other))
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if hasattr(one, "__dict__") and not callable(one) and not isinstance(one, type):
        return _same(vars(one), vars(other))
    return bool(one == other)


def _order(array: Any) -> list[int]:
    """Return the strides of an array's axes, but for those of length 1."""
    return [stride for stride, n in zip(array.strides, array.shape, strict=True) if n > 1]

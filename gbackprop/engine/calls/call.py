"""Programs of small calls: what one did, as a function of its arrays, for calls that differ in numbers alone.

A call is recorded with numbers that are made up: twice, so that a number which was read from them is noticed. What is
recorded must give the results of a call to every bit; otherwise the sweep runs, as it does for larger calls.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from gbackprop.array import FLOATS, Array, all_finite, sum_of_squares
from gbackprop.base.checks import SHIPPED, is_shipped
from gbackprop.base.threads import NO_CONTEXT, one_blas_thread
from gbackprop.calculus.inputs import check_input
from gbackprop.engine.calls.sweeping import inputs_of, layers_of, places_of, random_of, recorded, state_of
from gbackprop.engine.finite import is_finite
from gbackprop.engine.memory import result_array
from gbackprop.engine.sweep import Execution
from gbackprop.plain.plan import Plan
from gbackprop.quantities.result import Result

AFTER = 8
"""The number of equal calls after which there is a program: it takes as long to write as some forty calls."""

MAKERS = (np.empty, np.empty_like, result_array)
"""Functions whose arrays have any numbers."""

LARGEST = {name: float(np.finfo(name).max) for name in FLOATS}
"""The largest number of each dtype."""


class RecordedCall:
    """A call as a function of its arrays.

    Attributes
    ----------
    run : function of arrays
        Returns loss, output, gradient and the values of the quantities; and the arrays in which to look for NaN: of
        an outer product its factors, which are smaller.
    kinds : list of (type, shape, strides, dtype)
        Of x, y and each array of the layers.
    """

    def __init__(self, run: Callable[..., Any], call: Execution) -> None:
        plan = call.plan
        self.run, self.places = run, places_of(plan)
        self.kinds = [_kind(array) for array in (call.x, call.y, *state_of(self.places))]
        self.context = one_blas_thread() if call.cut.small else NO_CONTEXT
        self.definitions = [(kind, function) for kind, function, *_ in call.known.jacobians]
        self.scale, self.batch_shape = plan.scale, (plan.scale.batch, *plan.output_shape)
        self.where = f"y of {type(plan.loss).__name__}({plan.loss.reduction!r})"
        self.random = plan.training or bool(plan.mc_noise)

    def __call__(self, plan: Plan, x: Array, y: Array, rng: Any) -> tuple[Result | None, bool]:
        """Return the result of a call, and whether it is finite; None where the sweep must look at the arguments."""
        try:
            arrays = [x, y, *state_of(self.places)]
            if [_kind(array) for array in arrays] != self.kinds or not all_finite(x, *arrays[2:]):
                return None, False
        except (AttributeError, KeyError):  # what is no array, or not there any more
            return None, False
        if any(kind.per_sample is not function for kind, function in self.definitions):
            return None, False
        if self.random or rng is not None:
            plan = plan.with_batch(x, y, rng)
            arrays += random_of(plan.noise, plan.mc_noise)
        else:
            like = x if plan.floats else check_input(plan.leaves, x)
            plan.loss.check_values(self.where, y, self.batch_shape, like)  # what else is checked is in `kinds`
        with self.context:
            loss, output, gradient, values, numbers = self.run(*arrays)
        asked = tuple([quantity for quantity, _ in plan.needs])
        result = Result(loss, output, gradient, asked, values, plan.loss, self.scale)
        # |a b| ≤ a² + b²: below the largest number no product of two is beyond it
        return result, sum_of_squares(numbers) < LARGEST[self.scale.dtype] or is_finite(result)


def _kind(array: Array) -> Any:
    return type(array), array.shape, array.strides, array.dtype


def program_of(run: Execution, result: Result) -> RecordedCall | None:
    """Return the program of a small call, which gave a result; None if there can be none."""
    plan = run.plan  # R may depend on targets that have weights
    if not run.cut.written or not run.reuse or run.updates or plan.loss.plain is not None or plan.loss.weighted:
        return None
    if not all(map(_is_as_shipped, [plan.network, *layers_of(plan), plan.loss, *[each for each, _ in plan.needs]])):
        return None
    try:
        (text, scope), again = (recorded(run, np.random.default_rng(seed)) for seed in (0, 1))
        if not _same((text, scope), again):
            return None
        code = compile(text, "<call>", "exec")
        makers = {name: _dirty(value) for name, value in scope.items() if any(value is each for each in MAKERS)}
        found = _function(code, {**scope, **makers})(*inputs_of(plan, run.x, run.y))[:4]
        if not _same(found, (result.loss, result.output, result.gradient, list(result.values))):
            return None
        return RecordedCall(_function(code, scope), run)
    except Exception:  # whatever a form, or NumPy, says of arrays that write down what is done
        return None


def _is_as_shipped(part: Any) -> bool:
    """Return whether an object's functions are gbackprop's: another one may do more than compute, in each call."""
    if any(callable(value) and hasattr(type(part), name) for name, value in vars(part).items()):
        return False
    kinds = [kind for kind in type(part).__mro__ if is_shipped(kind)]
    return all(_is_ours(value) for kind in kinds for value in vars(kind).values())


def _is_ours(value: Any) -> bool:
    """Return whether an attribute of a class is no function of somebody else's, whatever name that bears."""
    function = getattr(value, "__func__", getattr(value, "fget", value))
    if isinstance(function, FunctionType):
        return str(function.__globals__["__name__"]).startswith(SHIPPED)
    return isinstance(function, type) or not callable(function)


def _function(code: Any, scope: dict[str, Any]) -> Callable[..., Any]:
    scope = {**scope}
    exec(code, scope)
    run: Callable[..., Any] = scope["run"]
    return run


def _dirty(make: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function that makes arrays as another one does, with numbers that no result has."""

    def made(*args: Any, **named: Any) -> Array:
        array = make(*args, **named)
        array.fill(np.nan if array.dtype.kind == "f" else 77)
        return array

    return made


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

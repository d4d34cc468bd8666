"""The errors of recording a function: a class for each kind, each of which has a paragraph in docs/trace.md."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path

from gbackprop.base.errors import UnsupportedError

PACKAGES = ("gbackprop", "numpy", "scipy")
"""The packages between a line of the user's and the recorder."""

RECORDERS, PROGRAM = ("gbackprop.base.recording", "gbackprop.plain.programs"), "gbackprop.plain.programs.written"


class TraceError(ValueError):
    """A function cannot be traced; the message begins with the line at which it stopped."""


class NumberReadError(TraceError):
    """A number was read from an array: `if x > 0`, `float(x)`, `x.item()`."""


class PlainArrayError(TraceError):
    """A recorded array was given to a plain one, by an assignment or a conversion, which would lose its derivative."""


class MixedSamplesError(TraceError):
    """A sample's result depends on other samples, or the batch axis is no longer in order."""


class BatchSizeError(TraceError):
    """The number of samples is used as a number, or decides what is computed."""


class RandomNumbersError(TraceError):
    """Two calls compute with other numbers: random ones, or what an earlier call left."""


class NotDeterministicError(TraceError):
    """Two calls do different things."""


class MissingFunctionError(TraceError, UnsupportedError):
    """A NumPy function or an argument is not in the table."""


class InPlaceError(TraceError):
    """The function writes into its input, into a parameter, or into a view that cannot be written."""


class BroadcastError(TraceError):
    """Shapes do not fit together."""


class NoDerivativeError(TraceError, TypeError):
    """Integers or booleans stand where derivatives are asked for."""


class LeakedArrayError(TraceError):
    """An array of an earlier call is used."""


class NonConvexLossError(TraceError):
    """The loss's Hessian has a negative eigenvalue, so that it has no real root."""


@dataclass(frozen=True)
class UserLine:
    """A line of the user's function."""

    file: str
    number: int

    @property
    def source(self) -> str:
        """The text of the line."""
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}: `{self.source}`" if self.source else f"{self.file}:{self.number}"


def user_line() -> UserLine:
    """Return the line that called NumPy or a recorded array; of the package's own if a program is being recorded."""
    frame, own = sys._getframe(1), None
    while frame.f_back is not None and (name := frame.f_globals.get("__name__", "")).partition(".")[0] in PACKAGES:
        if own is None and name.startswith("gbackprop") and not name.startswith(RECORDERS):
            own = UserLine(frame.f_code.co_filename, frame.f_lineno)
        if own is not None and name == PROGRAM:
            return own
        frame = frame.f_back
    return UserLine(frame.f_code.co_filename, frame.f_lineno)


def called(name: str) -> str:
    """Return how a step's function is named in messages."""
    return {"getitem": "an index", "setitem": "an assignment"}.get(name, f"np.{name}")

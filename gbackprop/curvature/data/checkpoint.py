"""Checkpoints of `gbackprop.accumulate`: what was merged so far, in one .npz file, written whole or not at all.

Its header has the format's number, what the call is, and the number of batches; ``digests`` has one number for each of
these batches, by which they are compared; ``first`` says what the first one's result was; the other arrays are the
sums.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gbackprop.array import Array, asnumpy, is_array, like
from gbackprop.base.errors import UnsupportedError
from gbackprop.base.files import check_output
from gbackprop.base.npz import read_checkpoint, write_checkpoint
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.moments import Moments
from gbackprop.calculus.state import digest, digests_of, parts_of
from gbackprop.curvature.data.merging import Merged, Totals
from gbackprop.curvature.data.summary import differing, summary
from gbackprop.losses.base import Loss
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.merging_rules import Pair

FORMAT = 3

HEADER = {"call": dict, "entropy": list, "done": int, "samples": int, "divisor": str, "sums": list}
"""The fields of the header beside the format's number, and their types."""

TEXTS = ("network", "loss", "quantities")
"""The attributes of a call that a message shows; calls are compared by the digests of all."""


class Checkpoint:
    """The state of a call in a file, which may be there already."""

    def __init__(
        self,
        path: str | Path,
        every: float,
        network: Layer,
        loss: Loss,
        quantities: Sequence[Quantity],
        options: Mapping[str, Any],
        entropy: tuple[int, ...],
        any_entropy: bool,
    ) -> None:
        self.path, self.every, self.entropy = Path(path), every, entropy
        self.call = {
            "network": repr(network),
            "numbers of the network": digest({**network.parameters, **getattr(network, "buffers", {})}),
            "frozen parameters": str([(at, sorted(each.frozen)) for at, each in network.named_layers() if each.frozen]),
            "loss": repr(loss),
            "quantities": repr(list(quantities)),
            "options": repr(sorted(options.items())),
        }
        parts = parts_of(network, loss, quantities)
        self.call |= {f"attributes of {_named(name, parts[name])}": each for name, each in digests_of(parts)[0].items()}
        self.done, self.due = 0, time.monotonic() + every
        self.digests: list[int] = []
        self.first = np.zeros(0)
        self.arrays: dict[str, np.ndarray] = {}
        self.header: dict[str, Any] = {}
        check_output(path)
        if self.path.exists():
            self._read(any_entropy)

    def _read(self, any_entropy: bool) -> None:
        try:
            self.header, self.arrays = read_checkpoint(self.path, FORMAT, HEADER)
            missing = {"digests", "first"} - self.arrays.keys()
            if missing:
                raise ValueError(f"expected an entry {min(missing)!r}, got {', '.join(self.arrays) or 'none'}")
        except ValueError as error:
            raise ValueError(f"{self.path}: expected a checkpoint of gb.accumulate: {error}") from error
        there = self.header["call"]
        differ = [what for what in self.call | there if there.get(what) != self.call.get(what)]
        if not set(differ) <= set(TEXTS):  # a text alone may have an address
            what = differ[0]
            shown = what in TEXTS or what in ("options", "frozen parameters")
            more = f": expected {self.call[what]}, got {there.get(what)}" if shown else ""
            raise ValueError(f"{self.path}: the checkpoint is of another call, with other {what}{more}")
        entropy = tuple(self.header["entropy"])
        if entropy != self.entropy and not any_entropy:
            raise ValueError(f"{self.path}: the checkpoint is of another call, with another rng")
        self.entropy, self.done = entropy, self.header["done"]
        self.digests, self.first = self.arrays.pop("digests").tolist(), self.arrays.pop("first")
        if len(self.digests) != self.done:
            raise ValueError(f"{self.path}: expected digests of {self.done} batches, got {len(self.digests)}")

    def lacks(self, number: int, *arrays: Array) -> bool:
        """Compare a batch with the one of that number in the file; return whether there is none."""
        found = int(digest(*arrays)[:16], 16)
        if number >= self.done:
            self.digests.append(found)
            return True
        if found != self.digests[number]:
            raise ValueError(f"{self.path}: the checkpoint is of other data: batch {number} differs")
        return False

    def begin(self, merged: Merged) -> None:
        """Check that the sums over the first batch can be stored, and replace them by those of the file, if any."""
        packed = {key: _packed(total) for key, total in merged.sums.items()}
        if not self.done:
            self.first = summary(packed)
            return
        keys = list(merged.sums)
        if self.header["sums"] != [str(key) for key in keys]:
            raise ValueError(f"{self.path}: expected the sums {keys}, got {self.header['sums']}")
        key = differing(packed, self.first, merged.first.output.dtype.name)
        if key is not None:
            raise ValueError(
                f"{self.path}: the checkpoint is of another call: batch 0 has another result now, first in its "
                f"{merged.name(key)} (code has changed that no attribute shows)"
            )
        sums: dict[Any, tuple[Any, int]] = {}
        for i, (key, before) in enumerate(merged.sums.items()):
            prefix = f"{i}."
            parts = {name.removeprefix(prefix): v for name, v in self.arrays.items() if name.startswith(prefix)}
            total = _unpacked(before, parts)
            sums[key] = total, len(total) if isinstance(total, list) else 0
        merged.state = Totals(self.done, self.header["samples"], float.fromhex(self.header["divisor"]), sums)
        self.arrays = {}

    def write(self, merged: Merged) -> None:
        """Write the state so far, unless the file has it; before `begin` there is nothing to write."""
        state = merged.state
        if state.results > self.done and self.first.size:
            arrays = {f"{i}.{name}": v for i, s in enumerate(merged.sums.values()) for name, v in _packed(s).items()}
            digests = np.array(self.digests[: state.results], np.uint64)
            header = {
                "format": FORMAT,
                "call": self.call,
                "entropy": self.entropy,
                "done": state.results,
                "samples": state.count,
                "divisor": state.divisor.hex(),
                "sums": [str(key) for key in merged.sums],
            }
            write_checkpoint(self.path, header, {"digests": digests, "first": self.first, **arrays})
            self.done = state.results
        self.due = time.monotonic() + self.every


def _packed(total: Any) -> dict[str, np.ndarray]:
    """Return a sum as arrays."""
    if isinstance(total, list):
        return {"rows": np.concatenate([asnumpy(rows) for rows in total])}
    if isinstance(total, Moments):
        parts = {"count": np.array(total.count), "mean": total.mean, "centered": total.centered, "low": total.low}
    elif isinstance(total, Pair):
        parts = {"a": total.a, "b": total.b}
    elif is_array(total) or np.isscalar(total):
        parts = {"value": total}
    else:
        raise UnsupportedError(f"checkpoint: expected sums that are arrays, got {type(total).__name__}")
    return {name: asnumpy(part) for name, part in parts.items() if part is not None}


def _unpacked(before: Any, parts: Mapping[str, np.ndarray]) -> Any:
    """Return a sum from its arrays, of the kind and on the device of the sum `before`."""
    if isinstance(before, list):
        return [like(parts["rows"], before[0])]
    if isinstance(before, Moments):
        mean, centered = (like(parts[name], before.mean) for name in ("mean", "centered"))
        return Moments(int(parts["count"]), mean, centered, like(parts["low"], mean) if "low" in parts else None)
    if isinstance(before, Pair):
        return Pair(None if before.a is None else like(parts["a"], before.a), like(parts["b"], before.b), before.like)
    return like(parts["value"], before) if is_array(before) else parts["value"][()]


def _named(name: str, part: Any) -> str:
    """Return the name of a part without its text, which may have an address."""
    return f"{name}, {type(part).__name__}" if name.startswith("layer") else f"the {name}"

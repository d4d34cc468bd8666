"""The check of a saved program: inputs that are made up, and the gradient beside differences of the loss."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.wrt import InputRows

CHECK = '''def made_up(rng):
    """Return inputs of the right shapes."""
    return {
{inputs}
    }


def check(inputs):
    """Return by how much the gradient differs from differences of the loss along a direction, relatively."""
    groups = {"parameters": {}, "random": {}}
    for name, array in inputs.items():
        kind, _, key = name.partition("/")
        if key:
            groups[kind][key] = array
    x, y, parameters, random = inputs["x"], inputs["y"], *groups.values()
    rng = np.random.default_rng(1)
    gradient = program(x, y, parameters, random, constants)["gradient"]
    direction = {name: rng.standard_normal(np.shape(g)) for name, g in gradient.items()}
    slope = sum((g * direction[name]).sum() for name, g in gradient.items())
    size = {size}
    losses = []
    for step in (size, -size):
        moved = {name: (a + step * direction.get(name, 0)).astype(a.dtype) for name, a in parameters.items()}
        at = x.reshape(len(x), -1).copy()
        for name, start, stop in {columns}:
            at[:, start:stop] += step * direction[name].reshape(len(x), -1)
        losses.append(float(program(at.reshape(x.shape), y, moved, random, constants)["loss"]))
    return abs((losses[0] - losses[1]) / (2 * size) - slope) / max(abs(slope), size * abs(losses[0]), 1e-300)


if __name__ == "__main__":
    import pathlib
    import sys

    beside = pathlib.Path(__file__).with_suffix(".npz")
    constants = dict(np.load(beside)) if beside.exists() else {}
    made = made_up(np.random.default_rng(0))
    given = dict(np.load(sys.argv[1])) if len(sys.argv) > 1 else made
    want, got = ({name: f"{a.dtype}{list(a.shape)}" for name, a in arrays.items()} for arrays in (made, given))
    for name in want | got:
        if want.get(name) != got.get(name):
            sys.exit(f"{name}: expected {want.get(name)}, for which the program was written, got {got.get(name)}")
    error = check(given)
    print(f"gradient against differences of the loss: relative error {error:.1e}, at most {bound}")
    sys.exit(not error < {bound})
'''


def check_of(program: Any) -> str:
    """Return the part of a saved file that makes inputs, runs the program, and checks its gradient."""
    recording = program.recording
    lines = [f"        {name!r}: {_made_up(recording.tape.values[i])}," for name, i in recording.inputs.items()]
    single = recording.tape.values[recording.result.loss.number].dtype == np.float32
    weight = ", inputs['sample_weight']" * ("sample_weight" in recording.inputs)
    text = CHECK.replace("constants)", f"constants{weight})")
    text = text.replace("{inputs}", "\n".join(lines)).replace("{size}", "1e-2" if single else "1e-5")
    inputs = [leaf for leaf in program.plan.leaves if isinstance(leaf.layer, InputRows)]
    columns = [(name, at := getattr(leaf.layer, "start", 0), at + prod(leaf.output_shape))
               for leaf in inputs for name in leaf.parameters.values()]  # fmt: skip
    text = text.replace("{columns}", repr(columns))
    return text.replace("{bound}", "0.1" if single else "1e-5")


def _made_up(value: np.ndarray) -> str:
    """Return an expression of numbers like those of an input: every label that occurs, parts that add up to 1."""
    shape, dtype = tuple(value.shape), value.dtype.name
    if value.dtype.kind != "f":
        found = np.unique(value)
        if found.size > 50 or not value.ndim:
            return f"rng.integers({found[0]}, {found[-1]} + 1, {shape}).astype({dtype!r})"
        return f"rng.permuted(np.resize({found.tolist()}, {shape})).astype({dtype!r})"
    if value.ndim > 1 and value.size and (value >= 0).all() and np.allclose(value.sum(1), 1):
        return f"(lambda a: a / a.sum(1, keepdims=True))(rng.uniform(0.1, 1, {shape})).astype({dtype!r})"
    low, high = ((value.min(), value.max()) if value.size else (0.0, 1.0))
    return f"rng.uniform({float(low):.3g}, {float(high):.3g}, {shape}).astype({dtype!r})"

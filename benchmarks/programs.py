"""Programs compiled by JAX beside `gb.backward`: the table in docs/programs.md. It needs numpy, scipy and jax alone.

``python benchmarks/programs.py [samples]``
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import jax
import numpy as np
from specs import SPECS
from timing import take_turns

import gbackprop as gb
from gbackprop import layers, losses, quantities

SETTINGS = [("3c3d", 1, ""), ("3c3d", 1, "KFAC"), ("3c3d", 1, "DiagGGN"), ("3c3d with one sigmoid", 4, "DiagHessian")]
"""Networks, by what their channels and features are divided, and what is computed beside the gradient."""


def calls(name: str, narrow: int, quantity: str, samples: int) -> tuple[dict[str, Callable[[], Any]], float, float]:
    """Return a call of each side, of one batch in float32; seconds for the text of the program, and to compile it."""
    spec, shape, classes = SPECS[name]
    sizes = ("in_channels", "out_channels", "in_features", "out_features")

    def divided(keywords: dict[str, Any]) -> dict[str, Any]:
        return {key: each // narrow if key in sizes and each > classes else each for key, each in keywords.items()}

    net = gb.Sequential(*(getattr(layers, kind)(**divided(given)) for kind, given in spec), rng=0, dtype="float32")
    rng, loss = np.random.default_rng(0), losses.CrossEntropyLoss()
    x, y = rng.standard_normal((samples, *shape), dtype=np.float32), rng.integers(0, classes, samples)
    asked = [getattr(quantities, quantity)()] if quantity else []
    start = perf_counter()
    program = gb.program(net, loss, x, y, *asked, functional=True)
    written = perf_counter()
    scope: dict[str, Any] = {}
    exec(program.source.replace("import numpy as np", "import jax.numpy as np"), scope)
    given: dict[str, dict[str, Any]] = {"parameters": {}, "random": {}}
    for key, array in program.inputs(x, y, rng=1).items():
        kind, _, inner = key.partition("/")
        given.setdefault(kind, {})[inner] = array
    arguments = jax.device_put((x, y, given["parameters"], given["random"], program.constants))
    run, begun = jax.jit(scope["program"]), perf_counter()
    jax.block_until_ready(run(*arguments))
    compiled = perf_counter() - begun
    prepared = gb.prepare(net, loss, *asked)
    pair = {"ours": lambda: prepared(x, y, rng=1), "JAX": lambda: jax.block_until_ready(run(*arguments))}
    _compare(pair["ours"](), pair["JAX"](), asked)
    return pair, written - start, compiled


def _compare(want: Any, got: Any, asked: list[Any]) -> None:
    """Check that both sides compute the same to the accuracy of float32."""
    for name, values in [("gradient", want.gradient), *((each.name, want[each.name]) for each in asked)]:
        for key, value in values.items():
            other = got[name][key]
            pairs = [(value, other)] if isinstance(value, np.ndarray) else [(value.B, other["B"])]
            for a, b in pairs:
                np.testing.assert_allclose(np.asarray(b), a, rtol=1e-3, atol=1e-3 * np.abs(a).max())


def main(samples: str = "8") -> None:
    """Print the table: medians in milliseconds of calls that take turns."""
    print(f"N = {samples}, NumPy {np.__version__}, JAX {jax.__version__}")
    print("| network | quantity | `gb.backward` [ms] | compiled program [ms] | text [s] | compilation [s] |")
    print("|---|---|---|---|---|---|")
    jax.config.update("jax_enable_x64", True)  # some sums over samples are in float64, as ours
    for name, narrow, quantity in SETTINGS:
        pair, written, compiled = calls(name, narrow, quantity, int(samples))
        times = {side: each["median"] for side, each in take_turns(pair, repetitions=7).items()}
        cells = [name + f", width / {narrow}" * (narrow > 1), quantity or "the gradient"]
        cells += [f"{times[side]:.3g}" for side in ("ours", "JAX")]
        print("|", " | ".join([*cells, f"{written:.2g}", f"{compiled:.2g}"]), "|", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

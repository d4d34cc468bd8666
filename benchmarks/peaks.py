"""Peak memory of our calls: a process for each, so that one's peak does not hide another's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CASES = {
    "DiagGGN, All-CNN-C, 100 classes, N = 32": ("All-CNN-C", 32, "DiagGGN", None),
    "KFLR, All-CNN-C, 100 classes, N = 32": ("All-CNN-C", 32, "KFLR", None),
    "DiagHessian, 3c3d with one sigmoid, N = 32": ("3c3d with one sigmoid", 32, "DiagHessian", None),
    "DiagGGN, All-CNN-C, 100 classes, N = 32, memory='1GiB'": ("All-CNN-C", 32, "DiagGGN", "1GiB"),
}


def peaks() -> dict[str, Any]:
    """MiB for each case: the process before the call, at its peak, and what was estimated."""
    found = {}
    for label, case in CASES.items():
        command = [sys.executable, str(Path(__file__)), json.dumps(case)]
        found[label] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def measure(name: str, samples: int, quantity: str, memory: str | None) -> dict[str, float]:
    """The peak of one call in this process."""
    import numpy as np
    from specs import SPECS

    import gbackprop as gb
    from gbackprop import blocks, losses
    from gbackprop import layers as kinds
    from gbackprop.plain import plan

    spec, shape, classes = SPECS[name]
    net = gb.Sequential(*(getattr(kinds, kind)(**keywords) for kind, keywords in spec), rng=0, dtype="float32")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((samples, *shape), dtype=np.float32), rng.integers(0, classes, samples)
    asked, loss = getattr(gb.quantities, quantity)(), losses.CrossEntropyLoss()
    gb.backward(net, loss, x[:1], y[:1])  # libraries, compiled kernels
    made = plan.make_plan(net, loss, x, y, [asked], None)
    cut = blocks.choose_blocks(made, x, memory=memory)
    estimate = blocks.estimate(made, x, cut.samples[0].stop, cut.columns, cut.threads, blocks.saved_bytes(made, x))
    before = largest_rss()
    gb.backward(net, loss, x, y, asked, memory=memory)
    return {"before": before, "peak": largest_rss(), "estimate": estimate / 2**20}


def largest_rss() -> float:
    """MiB of this process at its peak; getrusage would give the parent's if that was larger."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(measure(*json.loads(sys.argv[1]))))

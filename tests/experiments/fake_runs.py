"""A run that costs nothing but does everything a study can see: checkpoints, reports, divergence, errors, a log.

Its state after an epoch depends on the state before, so an epoch that is lost or done twice changes the numbers.
"""

import os
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gbackprop.experiments import checkpoint as checkpoints
from gbackprop.experiments.runs import EpochRow, Outcome, Progress

EPOCH = 0.01  # seconds
DIVERGES = 1.0  # learning rates from here
RAISES = 0.3  # exactly this one, while the file "raise" is beside the log
KILLS = 0.7  # exactly this one ends its process, while the file "kill" is there


def run(spec, data_dir, device="cpu", checkpoint=None, report=None):
    """As `runs.run`, with the log in `data_dir`."""
    state, rows = np.array(spec.seed, np.int64), []
    if checkpoint is not None and checkpoint.exists():
        saved, parameters, _ = checkpoints.load(checkpoint, spec.key())
        rows, state = [EpochRow(**row) for row in saved], parameters["state"]
    while len(rows) <= spec.epochs:
        epoch = len(rows)
        write(data_dir, spec, "start", epoch)
        if spec.lr == KILLS and epoch == 2 and (data_dir / "kill").exists():
            os._exit(1)
        if spec.lr == RAISES and epoch == 2 and (data_dir / "raise").exists():
            raise ValueError("too hot\ntoday")
        if report:
            report(Progress(epoch - 1, spec.epochs, 0, 1))
        time.sleep(EPOCH)
        state = (state * 1103515245 + epoch) % 2**31
        if spec.lr >= DIVERGES and epoch == 2:
            return Outcome(spec, "diverged", tuple(rows))
        rows.append(row(spec, epoch, int(state)))
        if checkpoint is not None:
            checkpoints.save(checkpoint, spec.key(), [asdict(r) for r in rows], {"state": state}, {})
        write(data_dir, spec, "end", epoch)
        if report:
            report(Progress(epoch, spec.epochs, 0, 1, rows[-1]))
    return Outcome(spec, "done", tuple(rows))


def row(spec, epoch, state):
    """Figures of an epoch: the best learning rate is 1e-2, the best damping 1e-1."""
    far = abs(np.log10(spec.lr) + 2) + abs(np.log10(spec.damping or 0.1) + 1)
    return EpochRow(epoch, state / 2**31, 0.5, 1.0 + far, 0.9 - far / 100, state / 2**30, 0.25, EPOCH)


def write(folder, spec, what, epoch):
    """A line of the log, in one piece."""
    with open(Path(folder) / "log", "a") as file:
        file.write(f"{spec.key()}\t{os.getpid()}\t{what}\t{epoch}\n")


def read(folder):
    """The log's lines, as (key, process, "start" or "end", epoch); a line that a kill cut off is left out."""
    path = Path(folder) / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    parts = [line.split("\t") for line in lines]
    return [(key, int(process), what, int(epoch)) for key, process, what, epoch in (p for p in parts if len(p) == 4)]

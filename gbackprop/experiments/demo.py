"""The demonstration: train a small network on real images, then ask one backward sweep for everything.

Ten quantities come with the gradient. Each is timed, verified against brute force, and shown.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import gbackprop as gb
from gbackprop import losses
from gbackprop.experiments import data, picture, report, verification
from gbackprop.experiments.measurement import median_time, sweep_times
from gbackprop.experiments.problems import PLANS, Plan, make_network
from gbackprop.experiments.training import predict, train

NARROWEST = 132  # columns that the table needs; a file or pipe has no width of its own
FORMATS = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Setup:
    """What the demo works on, after everything that the user asked for was found possible."""

    images: data.Dataset
    plan: Plan
    device: str


def prepare(
    name: str, data_dir: str | Path | None, device: str, epochs: int | None, output: str | Path
) -> Setup:
    """Look at everything that may be missing or wrong before any work is done.

    Parameters
    ----------
    name : str
        The data set, see `data.load`.
    data_dir : str or Path, optional
        Where its files are.
    device : {"cpu", "cuda"}
        Where to compute.
    epochs : int, optional
        Passes over the training images; the plan's by default.
    output : str or Path
        Where the picture is to go.

    Returns
    -------
    Setup
        What `run` needs.

    Raises
    ------
    ValueError, FileNotFoundError, RuntimeError, MissingExtraError
        With a message of one line that says what is wrong.
    """
    output = Path(output)
    if output.suffix not in FORMATS:
        raise ValueError(f"output: expected a name that ends in {', '.join(FORMATS)}, got {str(output)!r}")
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: no such folder to write the picture to")
    gb.asarray(np.zeros(1), device=device)
    images = data.load(name, data_dir)
    plan = PLANS[name]
    return Setup(images, plan if epochs is None else replace(plan, epochs=epochs), device)


def run(setup: Setup, seed: int, output: str | Path, console: Console | None = None) -> bool:
    """Train, sweep, verify, and show.

    Parameters
    ----------
    setup : Setup
        From `prepare`.
    seed : int
        Of everything random: the same seed gives the same run.
    output : str or Path
        Where the picture goes.
    console : Console, optional
        Where to print; standard output by default.

    Returns
    -------
    bool
        Whether every verdict is "ok".
    """
    console = console or _console()
    start, order, draws = np.random.default_rng(seed).spawn(3)
    images, loss = setup.images, losses.CrossEntropyLoss()
    net = make_network(images.train_x.shape[1:], len(images.classes), start).to(setup.device)
    _train(console, setup, net, loss, order)

    chosen = order.permutation(len(images.test_x))[: setup.plan.batch]
    batch = images.test_x[chosen], images.test_y[chosen]
    x, y = (gb.asarray(part, device=setup.device) for part in batch)
    quantities = verification.all_quantities()
    with console.status("one sweep for everything, then each quantity alone"):
        result = gb.backward(net, loss, x, y, *quantities, rng=seed)
        times = sweep_times(net, loss, x, y, quantities, seed)
    with console.status("verifying"):
        few = (part[: verification.SAMPLES] for part in batch)
        errors = verification.oracle_errors(net, loss, *few, draws)
        loop = verification.loop(net, loss, x, y, result["batch_grad"])
    sections = report.make_sections(result, quantities, times, errors, loop)
    console.print(report.make_table(*_captions(setup, net, batch, times), sections))

    picture.draw(_findings(setup, net, result, *batch), output)
    console.print(f"picture: {output}", soft_wrap=True)
    passed = all(row.passed for section in sections for row in section)
    console.print("every verdict is ok" if passed else "[bold red]at least one number is WRONG[/]")
    return passed

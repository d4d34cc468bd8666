"""The demonstration: train a small network on real images, then ask one backward sweep for everything.

Ten quantities come with the gradient. Each is timed, verified against brute force, and shown.
"""

import argparse
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import gbackprop as gb
from gbackprop import losses
from gbackprop.base.extras import MissingExtraError
from gbackprop.base.files import OutputError, check_output
from gbackprop.experiments import data
from gbackprop.experiments.cli.arguments import PICTURES, users_errors
from gbackprop.experiments.demo import measurement, picture, report
from gbackprop.experiments.demo.training import SCHEDULES, Schedule, make_network, predict, train

NARROWEST = 132  # columns that the table needs; a file or pipe has no width of its own


@dataclass(frozen=True)
class Setup:
    """The data, the schedule and the device of the demo, once everything that the user asked for was found possible."""

    images: data.Dataset
    schedule: Schedule
    device: str


def prepare(name: str, data_dir: str | Path | None, device: str, epochs: int | None, output: str | Path) -> Setup:
    """Look at everything that may be missing or wrong before any work is done."""
    output = Path(output)
    if output.suffix not in PICTURES:
        raise ValueError(f"output: expected a name that ends in {', '.join(PICTURES)}, got {str(output)!r}")
    check_output(output)
    gb.asarray(np.zeros(1), device=device)
    images = data.load(name, data_dir)
    schedule = SCHEDULES[name]
    return Setup(images, schedule if epochs is None else replace(schedule, epochs=epochs), device)


def run(options: argparse.Namespace) -> int:
    """Carry out ``python -m gbackprop demo``."""
    with users_errors(ValueError, OSError, RuntimeError, MissingExtraError):
        setup = prepare(options.data, options.data_dir, options.device, options.epochs, options.output)
    with users_errors(OutputError):
        return 0 if demonstrate(setup, options.seed, options.output) else 1


def demonstrate(setup: Setup, seed: int, output: str | Path) -> bool:
    """Train, sweep, verify, and show; return whether every number is right."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, NARROWEST))
    start, order, draws = np.random.default_rng(seed).spawn(3)
    images, loss = setup.images, losses.CrossEntropyLoss()
    net = make_network(images.train_x.shape[1:], len(images.classes), start).to(setup.device)
    _train(console, setup, net, loss, order)

    chosen = order.permutation(len(images.test_x))[: setup.schedule.shown]
    batch = images.test_x[chosen], images.test_y[chosen]
    x, y = (gb.asarray(part, device=setup.device) for part in batch)
    quantities = measurement.all_quantities()
    sweep = partial(gb.backward, net, loss, x, y, rng=seed)
    result, times = sweep(*quantities), {}
    # A bar that moves by itself would disturb the measurements.
    with _bar(console, "timing  ", "sweeps", auto_refresh=False) as progress:
        task = progress.add_task("", total=len(quantities) + 2)
        for name, seconds in measurement.sweep_times(sweep, quantities):
            times[name] = seconds
            progress.update(task, advance=1, refresh=True)
    loop = measurement.timed(lambda: measurement.loop_error(net, loss, x, y, result["batch_grad"]))
    with console.status("verifying"):
        few_x, few_y = (part[: measurement.SAMPLES] for part in batch)
        errors = measurement.oracle_errors(net, loss, few_x, few_y, draws)
    figures = report.Figures(times, errors, loop)
    console.print(report.make_table(result, figures))
    picture.draw(picture.Batch(images, *batch, result), output)
    console.print(f"picture: {output}", markup=False, highlight=False, soft_wrap=True)
    console.print("every verdict is ok" if figures.right else "[bold red]at least one number is WRONG[/]")
    return figures.right


def _bar(console: Console, doing: str, done: str, auto_refresh: bool = True) -> Progress:
    columns = TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn(done), TimeElapsedColumn()
    return Progress(*columns, console=console, auto_refresh=auto_refresh)


def _train(console: Console, setup: Setup, net: gb.Sequential, loss: losses.Loss, rng: np.random.Generator) -> None:
    """Train with a bar that shows the loss, and after each epoch the accuracy on the held-out images."""
    images, schedule = setup.images, setup.schedule
    chosen = rng.permutation(len(images.train_x))[: schedule.images]
    _introduce(console, setup, net, len(chosen))

    def accuracy() -> float:
        return float(np.mean(predict(net, images.test_x) == images.test_y))

    steps = -(-len(chosen) // schedule.batch)
    done = "epochs, loss {task.fields[loss]}, held-out accuracy {task.fields[accuracy]:.1%}"
    with _bar(console, "training", done) as progress:
        task = progress.add_task("", total=schedule.epochs, loss="…", accuracy=accuracy())
        pairs = images.train_x[chosen], images.train_y[chosen]
        for step, value in enumerate(train(net, loss, pairs, schedule, rng), start=1):
            progress.update(task, completed=step / steps, loss=f"{value:.3f}")
            if step % steps == 0:
                progress.update(task, accuracy=accuracy())


def _introduce(console: Console, setup: Setup, net: gb.Sequential, used: int) -> None:
    images = setup.images
    size = sum(int(parameter.size) for parameter in net.parameters.values())
    subset = f"{used}" if used == len(images.train_x) else f"{used} of {len(images.train_x)}"
    console.print(f"[bold]{images.name}[/]: {subset} training images, {len(images.test_x)} held out")
    if images.note:
        console.print(images.note)
    console.print(f"{size} parameters on {setup.device}: {net!r}", highlight=False, soft_wrap=True)

"""The demonstration: train a small network on real images, then ask one backward sweep for everything.

Ten quantities come with the gradient. Each is timed, verified against brute force, and shown.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import gbackprop as gb
from gbackprop import losses
from gbackprop.base.files import check_output
from gbackprop.experiments import data
from gbackprop.experiments.demo import picture, report, verification
from gbackprop.experiments.demo.measurement import sweep_times, timed
from gbackprop.experiments.demo.plans import PLANS, Plan, make_network
from gbackprop.experiments.demo.training import predict, train

NARROWEST = 132  # columns that the table needs; a file or pipe has no width of its own
FORMATS = (".png", ".pdf", ".svg")

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """The data, the plan and the device of the demo, once everything that the user asked for was found possible."""

    images: data.Dataset
    plan: Plan
    device: str


def prepare(
    name: str, data_dir: str | Path | None, device: str, epochs: int | None, output: str | Path
) -> Setup:
    """Look at everything that may be missing or wrong before any work is done."""
    output = Path(output)
    if output.suffix not in FORMATS:
        raise ValueError(f"output: expected a name that ends in {', '.join(FORMATS)}, got {str(output)!r}")
    check_output(output)
    gb.asarray(np.zeros(1), device=device)
    images = data.load(name, data_dir)
    plan = PLANS[name]
    return Setup(images, plan if epochs is None else replace(plan, epochs=epochs), device)


def run(setup: Setup, seed: int, output: str | Path, console: Console | None = None) -> bool:
    """Train, sweep, verify, and show."""
    console = console or _console()
    start, order, draws = np.random.default_rng(seed).spawn(3)
    images, plan, loss = setup.images, setup.plan, losses.CrossEntropyLoss()
    net = make_network(images.train_x.shape[1:], len(images.classes), start).to(setup.device)
    _train(console, setup, net, loss, order)

    chosen = order.permutation(len(images.test_x))[: plan.shown]
    batch = images.test_x[chosen], images.test_y[chosen]
    x, y = (gb.asarray(part, device=setup.device) for part in batch)
    quantities = verification.all_quantities()
    result = gb.backward(net, loss, x, y, *quantities, rng=seed)
    measured = sweep_times(net, loss, x, y, quantities, seed)
    times = dict(_watch(console, measured, len(quantities) + 2))
    loop = timed(lambda: verification.loop_error(net, loss, x, y, result["batch_grad"]))
    with console.status("verifying"):
        few_x, few_y = (part[: verification.SAMPLES] for part in batch)
        errors = verification.oracle_errors(net, loss, few_x, few_y, draws)
    sections = report.make_sections(result, times, errors, loop)
    console.print(report.make_table(sections, result, times))
    picture.draw(_findings(setup, net, result, *batch), output)
    return _conclude(console, sections, output)


def _conclude(console: Console, sections: list[list[report.Row]], output: str | Path) -> bool:
    console.print(f"picture: {output}", soft_wrap=True)
    passed = all(row.passed for section in sections for row in section)
    console.print("every verdict is ok" if passed else "[bold red]at least one number is WRONG[/]")
    return passed


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, NARROWEST))


def _watch(console: Console, measured: Iterable[T], total: int) -> Iterator[T]:
    """Pass measurements on, and move a bar between them: a bar that moves by itself would disturb them."""
    columns = (
        TextColumn("timing  "),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("sweeps"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        task = progress.add_task("", total=total)
        for measurement in measured:
            progress.update(task, advance=1, refresh=True)
            yield measurement


def _train(
    console: Console, setup: Setup, net: gb.Sequential, loss: losses.Loss, rng: np.random.Generator
) -> None:
    """Train with a bar that shows the loss, and after each epoch the accuracy on the held-out images."""
    images, plan = setup.images, setup.plan
    chosen = rng.permutation(len(images.train_x))[: plan.images]
    x, y = images.train_x[chosen], images.train_y[chosen]
    _introduce(console, setup, net, len(x))
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs, loss {task.fields[loss]}, held-out accuracy {task.fields[accuracy]:.1%}"),
        TimeElapsedColumn(),
    )

    def accuracy() -> float:
        return float(np.mean(predict(net, images.test_x) == images.test_y))

    steps = -(-len(x) // plan.batch)
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=plan.epochs, loss="…", accuracy=accuracy())
        for step, value in enumerate(train(net, loss, x, y, plan, rng), start=1):
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


def _findings(
    setup: Setup, net: gb.Sequential, result: gb.Result, x: np.ndarray, y: np.ndarray
) -> picture.Findings:
    """Return the numbers of the picture, copied to the host."""
    squares = sum(gb.asnumpy(value).astype(np.float64) for value in result["batch_l2_grad"].values())
    weights = [name for name in net.parameters if name.endswith("weight")]
    return picture.Findings(
        title=f"{setup.images.name}: one backward sweep over {len(x)} held-out images",
        images=x,
        labels=y,
        predictions=gb.asnumpy(result.output.argmax(1)),
        classes=setup.images.classes,
        norms=len(x) * np.sqrt(squares),  # the sweep's gradients carry 1/N
        diag_ggn={name: gb.asnumpy(value) for name, value in result["diag_ggn"].items()},
        diag_hessian={name: gb.asnumpy(value) for name, value in result["diag_hessian"].items()},
        factors={name: _factors(result, name) for name in weights[:2]},
    )


def _factors(result: gb.Result, name: str) -> dict[str, np.ndarray]:
    """Return the input factor of a weight, and the three output factors."""
    titles = {"kfac": "B of KFAC, one draw", "kflr": "B of KFLR, exact", "kfra": "B of KFRA, averaged"}
    factors = {title: gb.asnumpy(result[quantity][name].B) for quantity, title in titles.items()}
    return {"A, common to all": gb.asnumpy(result["kflr"][name].A)} | factors

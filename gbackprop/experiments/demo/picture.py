"""The demo's picture: what the quantities say of a trained network and one batch of images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

import gbackprop as gb
from gbackprop.experiments.data import Dataset
from gbackprop.experiments.plots import written_figure

RIGHT, WRONG, LINE = "#4878a8", "#d1603d", "#555555"
FACTORS = {"kfac": "B of KFAC, one draw", "kflr": "B of KFLR, exact", "kfra": "B of KFRA, averaged"}
SHOWN = 7  # images in a row
DECADES = 4  # of the symmetric logarithmic scales, below the largest magnitude


@dataclass(frozen=True)
class Batch:
    """Images and labels on the host, and what one sweep says of them."""

    images: Dataset
    x: np.ndarray
    y: np.ndarray
    result: gb.Result

    @cached_property
    def answers(self) -> np.ndarray:
        """The most likely classes, shape (N,)."""
        return gb.asnumpy(self.result.output.argmax(1))

    @cached_property
    def norms(self) -> np.ndarray:
        """‖∇ℓₙ‖ over all parameters, shape (N,)."""
        squares = sum(gb.asnumpy(value).astype(np.float64) for value in self.result["batch_l2_grad"].values())
        return len(self.x) * np.sqrt(squares)  # the sweep's gradients carry 1/N


def draw(batch: Batch, path: str | Path) -> None:
    """Draw the picture and write it to a file."""
    title = f"{batch.images.name}: one backward sweep over {len(batch.x)} held-out images"
    with written_figure(path, title, figsize=(14, 8.6), dpi=120) as figure:
        panels = iter((_histogram, _extremes, _diagonals, _factors))
        for row in _split(figure, 2, 1, height_ratios=[1, 1.08]):
            for part in _split(row, 1, 2, width_ratios=[1, 1.5]):
                next(panels)(part, batch)


def _split(figure: Figure | SubFigure, rows: int, columns: int, **ratios: Sequence[float]) -> list[SubFigure]:
    grid = figure.add_gridspec(rows, columns, **ratios)
    return [figure.add_subfigure(grid[place]) for place in range(rows * columns)]


def _histogram(figure: SubFigure, batch: Batch) -> None:
    axes = figure.subplots()
    right = batch.y == batch.answers
    floor = batch.norms.max() * 1e-12  # a logarithm has no place for a gradient that vanishes
    norms = np.maximum(batch.norms, floor)
    bins = np.geomspace(norms.min(), norms.max() * 1.0001, 25).tolist()
    labels = [f"classified rightly ({right.sum()})", f"classified wrongly ({(~right).sum()})"]
    axes.hist([norms[right], norms[~right]], bins, stacked=True, color=[RIGHT, WRONG], label=labels)
    axes.set_xscale("log")
    axes.margins(y=0.3)  # room for the legend
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "Norms of the individual gradients", r"$\|\nabla\ell_n\|$ over all parameters", "images")
    axes.legend(frameon=False, loc="upper left")


def _extremes(figure: SubFigure, batch: Batch) -> None:
    """Draw the images of the largest and smallest gradients, with their labels and the network's answers."""
    order = np.argsort(batch.norms)
    rows = (("Largest gradients", order[::-1]), ("Smallest gradients", order))
    for part, (title, chosen) in zip(_split(figure, 2, 1), rows, strict=True):
        part.suptitle(f"{title} (above: label, below: answer and norm)", fontsize=11)
        for axes, sample in zip(part.subplots(1, SHOWN), chosen, strict=False):
            image = np.moveaxis(batch.x[sample], 0, -1)
            axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
            label, answer = (batch.images.classes[y[sample]] for y in (batch.y, batch.answers))
            color = RIGHT if label == answer else WRONG
            axes.spines[:].set(color=color, linewidth=1.5)
            axes.set_title(label, fontsize=9)
            axes.set_xlabel(f"→ {answer}\n{batch.norms[sample]:.2g}", fontsize=9, color=color)


def _diagonals(figure: SubFigure, batch: Batch) -> None:
    axes = figure.subplots()
    ggns, hessians = (
        {name: gb.asnumpy(value) for name, value in batch.result[diagonal].items()}
        for diagonal in ("diag_ggn", "diag_hessian")
    )
    largest = max(np.abs(d).max() for part in (ggns, hessians) for d in part.values())
    axes.axline((0, 0), (1, 1), color=LINE, linewidth=0.8, zorder=0)
    axes.axhline(0, color=LINE, linewidth=0.5, linestyle=":")
    for name, ggn in ggns.items():
        hessian, order = hessians[name], 2 + 1 / ggn.size  # few points above many
        axes.plot(ggn.ravel(), hessian.ravel(), ".", markersize=4, alpha=0.6, label=name, zorder=order)
    # The Hessian's diagonal may be negative, the GGN's not; both span decades and reach zero.
    smallest = largest * 10.0**-DECADES
    for axis, set_scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        set_scale("symlog", linthresh=smallest)
        axis.set_major_locator(FixedLocator(_decades(largest, smallest)))
        axis.set_minor_locator(NullLocator())
    lowest = min(d.min() for d in hessians.values())
    axes.set_xlim(-smallest / 5, 2 * largest)
    axes.set_ylim(min(-smallest / 5, 2 * lowest), 2 * largest)
    _label(axes, "Diagonal of the Hessian against that of the GGN", "GGN", "Hessian")
    axes.legend(frameon=False, loc="lower left", markerscale=2)


def _decades(largest: float, smallest: float) -> list[float]:
    """Ticks of a symmetric logarithmic axis: powers of ten above the linear part, and zero."""
    exponents = range(math.ceil(math.log10(smallest) + 0.3), math.floor(math.log10(largest)) + 1)
    powers = [10.0**exponent for exponent in exponents]
    return [*(-power for power in reversed(powers)), 0.0, *powers]


def _factors(figure: SubFigure, batch: Batch) -> None:
    """Draw a row of matrices per layer: A with a scale of its own, the estimates of B with a common one."""
    weights = [name for name in batch.result.gradient if name.endswith("weight")][:2]
    for part, weight in zip(_split(figure, len(weights), 1), weights, strict=True):
        part.suptitle(f"Kronecker factors of {weight} (B on a symmetric logarithmic scale)", fontsize=11)
        a = gb.asnumpy(batch.result["kflr"][weight].A)
        estimates = [gb.asnumpy(batch.result[name][weight].B) for name in FACTORS]
        inputs, *outputs = part.subplots(1, 1 + len(FACTORS))
        image = _matrix(inputs, "A, common to all", a, Normalize(*_range([a])))
        part.colorbar(image, ax=inputs, shrink=0.85).ax.tick_params(labelsize=8)
        # An outlier of one estimate must not bleach the others.
        low, high = _range(estimates)
        norm = SymLogNorm(high / 10, vmin=low, vmax=high)
        for axes, title, matrix in zip(outputs, FACTORS.values(), estimates, strict=True):
            image = _matrix(axes, title, matrix, norm)
        ticks = [low, low / 10, 0, high / 10, high]
        bar = part.colorbar(image, ax=outputs, shrink=0.85, ticks=ticks)
        bar.ax.set_yticklabels([f"{tick:.1g}" for tick in ticks], fontsize=8)


def _range(matrices: Sequence[np.ndarray]) -> tuple[float, float]:
    """Limits of a color scale with zero in its middle."""
    largest = max(float(np.abs(matrix).max()) for matrix in matrices)
    return -largest, largest


def _matrix(axes: Axes, title: str, matrix: np.ndarray, norm: Normalize) -> AxesImage:
    axes.set_title(title, fontsize=9)
    axes.set(xticks=[], yticks=[])
    return axes.imshow(matrix, cmap="RdBu_r", norm=norm)


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)

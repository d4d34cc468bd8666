"""A picture of differences as inline SVG: a cell for each entry, its color the size of the error on a log scale."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from gbackprop.testing.audit.markup import Markup, tag
from gbackprop.testing.audit.picture import Picture

DECADES = (-16, -14, -12, -10, -8, -6, -4, -2)
"""Powers of ten between one color and the next."""

LEVELS = len(DECADES) + 1

PARTS = (0.01, 0.1, 0.5, 1.0)
"""Of the largest expected value: bounds between the colors of values, for each sign; the last is for what is larger."""

STRENGTHS = len(PARTS) + 1

LARGEST, CELL, SLENDER, MARGIN = 320, 24, 6, 16
"""Longest side of a matrix, side of a cell and space around, in pixels; where there are many, a cell is smaller, and
may be longer one way than the other, but not by more than the third of these.
"""


def drawing(picture: Picture, side: str, name: str) -> Markup:
    """Return the matrix that was got, that was expected, or their difference, with a ring around the worst entry."""
    classes = difference_classes(picture) if side == "difference" else value_classes(picture, side)
    rows, columns = classes.shape
    wide, high = (min(CELL, LARGEST / max(count, 1)) for count in (columns, rows))
    wide, high = min(wide, SLENDER * high), min(high, SLENDER * wide)
    width, height = columns * wide, rows * high
    cells = [tag("path", d=_path(classes == kind), class_=kind) for kind in np.unique(classes) if kind]
    ring = None
    if picture.worst is not None:
        row, column = picture.worst
        at = {"cx": (column + 0.5) * wide, "cy": (row + 0.5) * high, "r": max(0.62 * max(wide, high), 6)}
        ring = tag("circle", **at, class_="halo"), tag("circle", **at, class_="ring")
    return tag(
        "svg",
        tag("title", heading(picture, side), id=f"{name}-title"),
        tag("desc", describe(picture), id=f"{name}-desc"),
        tag("g", cells, transform=f"scale({wide:.6g} {high:.6g})"),
        tag("rect", width=width, height=height, class_="frame"),
        ring,
        viewBox=f"{-MARGIN} {-MARGIN} {width + 2 * MARGIN:.6g} {height + 2 * MARGIN:.6g}",
        width=width + 2 * MARGIN,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def heading(picture: Picture, side: str) -> str:
    """Return the words above a drawing."""
    return f"|difference| of {picture.title}" if side == "difference" else f"{picture.title}, {side}"


def describe(picture: Picture) -> str:
    """Return the worst entry in words."""
    if picture.worst is None:
        return "No entry differs."
    row, column = picture.worst
    got, want = float(picture.got[row, column]), float(picture.want[row, column])
    of = f" of sample {picture.sample}" if picture.sample is not None else ""
    return (
        f"Worst entry: {picture.rows.entry(row)}, {picture.columns.entry(column)}{of}: {picture.method} gives "
        f"{got:.8g}, expected {want:.8g}, |difference| {picture.difference[row, column]:.1e}, "
        f"relative {picture.error[row, column]:.1e}, allowed {picture.tolerance:.0e}."
    )


def difference_classes(picture: Picture) -> np.ndarray:
    """Return each entry's color by its error: e0 and up, "same" for none where the value is not zero, else ""."""
    bounds = np.array([10.0**power for power in DECADES])
    levels = np.char.add("e", np.searchsorted(bounds, picture.error, side="right").astype(str))
    return np.where(picture.error > 0, levels, np.where(picture.want != 0, "same", ""))


def value_classes(picture: Picture, side: str) -> np.ndarray:
    """Return each entry's color by its part of the largest expected value: n1 and up below zero, p1 and up above."""
    parts = (picture.got if side == "got" else picture.want) / picture.scale
    bounds = np.array(PARTS) * (1 + 1e-9)  # what is as large as the largest is not larger for rounding
    strengths = (1 + np.searchsorted(bounds, np.abs(parts))).astype(str)
    shades = np.char.add(np.where(parts < 0, "n", "p"), strengths)
    return np.where(np.isnan(parts), "nan", np.where(parts == 0, "", shades))


def legend(classes: dict[str, str]) -> Markup:
    """Return a list of colors with what each stands for."""
    return tag("ul", [tag("li", tag("i", class_=kind), words) for kind, words in classes.items()], class_="legend")


def difference_legend() -> Markup:
    """Return the colors of relative differences."""
    words = [f"< 1e{DECADES[0]}", *(f"≥ 1e{power}" for power in DECADES)]
    return legend({f"e{k}": word for k, word in enumerate(words)} | {"same": "none"})


def value_legend(scale: float) -> Markup:
    """Return the colors of values, negative ones first."""
    bounds = [f"{part * scale:.2g}" for part in PARTS]
    below = {f"n{k}": f"≥ −{bounds[k - 1]}" for k in range(STRENGTHS - 1, 0, -1)}
    above = {f"p{k}": f"≤ {bounds[k - 1]}" for k in range(1, STRENGTHS)}
    beyond = f"n{STRENGTHS}", f"p{STRENGTHS}"
    return legend({beyond[0]: f"< −{bounds[-1]}"} | below | above | {beyond[1]: f"> {bounds[-1]}", "nan": "NaN"})


def _path(where: np.ndarray) -> str:
    """Return a path of rectangles over runs of cells in each row, one unit a cell."""
    moves = []
    for row, line in enumerate(where):
        at = 0
        for inside, run in groupby(line):
            length = len(list(run))
            moves += [f"M{at} {row}h{length}v1h-{length}z"] if inside else []
            at += length
    return "".join(moves)

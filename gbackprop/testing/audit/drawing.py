"""A picture of differences as inline SVG: a cell for each entry, its color the size of the error on a log scale."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from gbackprop.testing.audit.markup import Markup, join, tag
from gbackprop.testing.audit.picture import Picture

DECADES = (-16, -14, -12, -10, -8, -6, -4, -2)
"""Powers of ten between one color and the next."""

LEVELS = len(DECADES) + 1

TOP, RIGHT, LETTER = 26, 16, 6.6
"""Space above and to the right of a matrix, and width of a letter in a label."""

LARGEST, CELL, SLENDER = 320, 24, 6
"""Longest side of a matrix, and side of a cell, in pixels; where there are many, a cell is smaller, and may be longer
one way than the other, but not by more than the last of these.
"""

SWATCH, LEGEND = 30, 66
"""Width of a color in the legend, and the legend's height."""

PARTS = (0.01, 0.1, 0.5, 1.0)
"""Of the largest expected value: bounds between the colors of values, for each sign; the last is for what is larger."""

STRENGTHS = len(PARTS) + 1


@dataclass(frozen=True)
class Frame:
    """The rectangle in which the cells of a matrix are drawn."""

    rows: int
    columns: int
    left: float

    @staticmethod
    def of(picture: Picture) -> Frame:
        """Return a frame with space for the name of the worst entry's row."""
        letters = 0 if picture.worst is None else len(picture.rows.entry(picture.worst[0]))
        rows, columns = picture.difference.shape
        return Frame(rows, columns, max(48, LETTER * letters + 10))

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a cell."""
        wide, high = (min(CELL, LARGEST / max(count, 1)) for count in (self.columns, self.rows))
        return min(wide, SLENDER * high), min(high, SLENDER * wide)

    @property
    def width(self) -> float:
        """Of the matrix."""
        return self.columns * self.cell[0]

    @property
    def whole(self) -> float:
        """Width of the drawing."""
        return self.left + max(self.width, SWATCH * LEVELS) + RIGHT

    @property
    def height(self) -> float:
        """Of the matrix."""
        return self.rows * self.cell[1]

    def middle(self, row: int, column: int) -> tuple[float, float]:
        """Return the middle of a cell."""
        return self.left + (column + 0.5) * self.cell[0], TOP + (row + 0.5) * self.cell[1]


def levels(error: np.ndarray) -> np.ndarray:
    """Color of each relative error: −1 for none at all, else 0 to `LEVELS` − 1."""
    bounds = np.array([10.0**power for power in DECADES])
    return np.where(error == 0, -1, np.searchsorted(bounds, error, side="right"))


def svg(picture: Picture, name: str) -> Markup:
    """Return the matrix of differences with its legend."""
    frame = Frame.of(picture)
    legend = _legend(frame.left, TOP + frame.height + 22, picture.tolerance)
    return _drawing(picture, f"|difference| of {picture.title}", name, frame, _cells(picture, frame), legend)


def values_svg(picture: Picture, side: str, name: str) -> Markup:
    """Return the matrix that was got, or that was expected, with its legend."""
    frame, values = Frame.of(picture), picture.got if side == "got" else picture.want
    shades = strengths(values / picture.scale)
    paths = [tag("path", d=_path(np.isnan(values), frame), class_="nan")] if np.isnan(values).any() else []
    for sign, letter in ((-1, "n"), (1, "p")):
        for k in range(1, STRENGTHS + 1):
            where = shades == sign * k
            paths += [tag("path", d=_path(where, frame), class_=f"{letter}{k}")] if where.any() else []
    legend = _values_legend(frame.left, TOP + frame.height + 22, picture.scale)
    return _drawing(picture, f"{picture.title}, {side}", name, frame, join(paths), legend)


def strengths(parts: np.ndarray) -> np.ndarray:
    """Color of each part of the largest expected value: 0 for zero and NaN, else 1 to `STRENGTHS`, with its sign."""
    bounds = np.array(PARTS) * (1 + 1e-9)  # what is as large as the largest is not larger for rounding
    shades = np.sign(parts) * (1 + np.searchsorted(bounds, np.abs(parts)))
    return np.nan_to_num(shades, nan=0).astype(int)


def _drawing(picture: Picture, title: str, name: str, frame: Frame, cells: Markup, legend: Markup) -> Markup:
    """Return cells in a frame, with the worst entry and a legend."""
    height = TOP + frame.height + LEGEND
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", describe(picture), id=f"{name}-desc"),
        cells,
        tag("rect", x=frame.left, y=TOP, width=frame.width, height=frame.height, class_="frame"),
        _worst(picture, frame),
        legend,
        viewBox=f"0 0 {frame.whole:.6g} {height:.6g}",
        width=frame.whole,
        height=height,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


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


def _cells(picture: Picture, frame: Frame) -> Markup:
    """Return a path for each color; entries that do not differ show only whether they should be zero."""
    shades = levels(picture.error)
    expected = (shades == -1) & (picture.want != 0)
    paths = [tag("path", d=_path(expected, frame), class_="same")] if expected.any() else []
    paths += [tag("path", d=_path(shades == k, frame), class_=f"e{k}") for k in range(LEVELS) if (shades == k).any()]
    return join(paths)


def _path(where: np.ndarray, frame: Frame) -> str:
    """Return a path of rectangles over runs of cells in each row."""
    (wide, high), moves = frame.cell, []
    for row, line in enumerate(where):
        at = 0
        for inside, run in groupby(line):
            length = len(list(run))
            if inside:
                x, y, w = frame.left + at * wide, TOP + row * high, length * wide
                moves.append(f"M{x:.6g} {y:.6g}h{w:.6g}v{high:.6g}h{-w:.6g}z")
            at += length
    return "".join(moves)


def _worst(picture: Picture, frame: Frame) -> Markup | None:
    """Return a ring around the worst entry, and the names of its row and column."""
    if picture.worst is None:
        return None
    row, column = picture.worst
    x, y = frame.middle(row, column)
    radius = max(0.62 * max(frame.cell), 6)
    above = picture.columns.entry(column)
    half = LETTER * len(above) / 2
    middle = min(max(x, half), frame.whole - half)
    return tag(
        "g",
        tag("path", d=f"M{frame.left:.6g} {y:.6g}H{x - radius:.6g}M{x:.6g} {TOP}V{y - radius:.6g}", class_="hair"),
        tag("circle", cx=x, cy=y, r=radius, class_="halo"),
        tag("circle", cx=x, cy=y, r=radius, class_="ring"),
        tag("text", picture.rows.entry(row), x=frame.left - 6, y=y + 4, text_anchor="end"),
        tag("text", above, x=middle, y=TOP - 8, text_anchor="middle"),
        class_="worst",
    )


def _legend(left: float, top: float, tolerance: float) -> Markup:
    """Return the colors from left to right, the powers of ten between them, and what is allowed."""
    swatches = [
        tag("rect", x=left + k * SWATCH, y=top, width=SWATCH, height=10, class_=f"e{k}") for k in range(LEVELS)
    ]
    labels = [
        tag("text", f"1e{power}", x=left + (k + 1) * SWATCH, y=top + 22, text_anchor="middle")
        for k, power in enumerate(DECADES)
        if k % 2 == 0
    ]
    power = np.log10(tolerance)
    x = left + SWATCH * float(np.clip((power - DECADES[0]) / 2 + 1, 0, LEVELS))
    mark = tag("path", d=f"M{x:.6g} {top}l-4 -6h8z", class_="allowed")
    allowed = tag("text", "allowed", x=x, y=top - 9, text_anchor="middle")
    return tag("g", swatches, labels, mark, allowed, class_="legend")


def _values_legend(left: float, top: float, scale: float) -> Markup:
    """Return the colors of negative values, then of positive ones, and the values between them."""
    names = [f"n{k}" for k in range(STRENGTHS, 0, -1)] + [f"p{k}" for k in range(1, STRENGTHS + 1)]
    width = SWATCH * LEVELS / len(names)  # as wide as the other legend
    swatches = [
        tag("rect", x=left + k * width, y=top, width=width, height=10, class_=name) for k, name in enumerate(names)
    ]
    marks = {1: -1.0, 3: -PARTS[1], STRENGTHS: 0.0, len(names) - 3: PARTS[1], len(names) - 1: 1.0}
    labels = [
        tag("text", f"{part * scale:.2g}", x=left + at * width, y=top + 22, text_anchor="middle")
        for at, part in marks.items()
    ]
    return tag("g", swatches, labels, class_="legend")

"""Shipped layers that pool, pad and move, as `subjects` lists them: a layer, its feature shape, and the function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from gbackprop import layers
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.testing.audit import plain

Case = tuple[Layer, Shape, Callable[..., np.ndarray]]


def cases() -> Iterator[Case]:
    """Yield all of them, parameters not drawn yet. `Embedding` takes integers, which cannot be moved by small steps."""
    for group in (_pools, _transposed, _factors, _paddings, _moves):
        yield from group()


def _pools() -> Iterator[Case]:
    one: dict[str, Any] = {"kernel": (2,), "stride": (2,), "out": (2,)}
    three: dict[str, Any] = {"kernel": (2, 2, 1), "stride": (1, 1, 1), "out": (2, 1, 2)}
    yield (layers.MaxPool1d(2), (2, 5), partial(plain.max_pool, before=(0,), dilation=(1,), **one))
    yield (layers.AvgPool1d(2), (2, 5), partial(plain.average_pool, padding=(0,), counted=(0,), **one))
    yield (
        layers.MaxPool3d((2, 2, 1), 1),
        (1, 3, 2, 2),
        partial(plain.max_pool, before=(0, 0, 0), dilation=(1, 1, 1), **three),
    )
    yield (
        layers.AvgPool3d((2, 2, 1), 1),
        (1, 3, 2, 2),
        partial(plain.average_pool, padding=(0, 0, 0), counted=(0, 0, 0), **three),
    )
    long, wide, all_of = [range(3), range(2, 5), range(4, 7)], [range(1), range(0, 2), range(1, 2)], [range(2)]
    for bins, size, shape in (
        ([long], 3, (2, 7)),
        ([long, wide], 3, (2, 7, 2)),
        ([long, all_of, wide], (3, 1, 3), (1, 7, 2, 2)),
    ):
        for most in (True, False):
            name = f"Adaptive{'Max' if most else 'Avg'}Pool{len(bins)}d"
            yield (getattr(layers, name)(size), shape, partial(plain.adaptive_pool, bins=bins, most=most))


def _transposed() -> Iterator[Case]:
    cases: list[tuple[Layer, Shape, dict[str, Any]]] = [
        (layers.ConvTranspose1d(2, 3, 3, 2, 1, 1), (2, 3), {"out": (6,), "stride": (2,), "before": (1,)}),
        (
            layers.ConvTranspose2d(4, 2, 2, groups=2, bias=False),
            (4, 2, 3),
            {"out": (3, 4), "stride": (1, 1), "before": (0, 0), "groups": 2},
        ),
        (
            layers.ConvTranspose3d(1, 2, (1, 2, 2), (2, 1, 1)),
            (1, 2, 2, 1),
            {"out": (3, 3, 2), "stride": (2, 1, 1), "before": (0, 0, 0)},
        ),
    ]
    for layer, shape, named in cases:
        yield (layer, shape, partial(plain.transposed, dilation=(1,) * len(named["out"]), **named))


def _factors() -> Iterator[Case]:
    mean, variance = np.array([0.5, -1.0]), np.array([0.3, 4.0])
    for layer, shape in (
        (layers.BatchNorm1d(2), (2,)),
        (layers.BatchNorm1d(2, affine=False), (2, 3)),
        (layers.BatchNorm2d(2), (2, 2, 3)),
        (layers.BatchNorm3d(2), (2, 1, 2, 2)),
    ):
        layer.buffers |= {"running_mean": mean, "running_var": variance}
        yield (layer, shape, partial(plain.normalized, mean=mean, variance=variance))
    yield (layers.Scale(init=0.5), (3, 2), lambda x, weight: np.asarray([weight.item() * each for each in x]))
    yield (layers.Scale(3), (3, 2), lambda x, weight: np.einsum("nct,c->nct", x, weight))


def _paddings() -> Iterator[Case]:
    modes = {"Reflection": "reflect", "Replication": "edge", "Circular": "wrap"}
    for dims, shape in ((1, (2, 4)), (2, (1, 2, 3)), (3, (1, 2, 3, 2))):
        sides = [(1, 0), (1, 2), (0, 1)][:dims]
        numbers = tuple(number for pair in reversed(sides) for number in pair)
        out = tuple(size + sum(pair) for size, pair in zip(shape[1:], sides))
        rule = partial(plain.pad, out=out, before=tuple(before for before, _ in sides))
        yield (getattr(layers, f"ZeroPad{dims}d")(numbers), shape, rule)
        yield (getattr(layers, f"ConstantPad{dims}d")(numbers, 0.5), shape, partial(rule, value=0.5))
        for name, mode in modes.items():
            around: Any = partial(np.pad, pad_width=((0, 0), (0, 0), *sides), mode=mode)
            yield (getattr(layers, f"{name}Pad{dims}d")(numbers), shape, around)


def _moves() -> Iterator[Case]:
    yield (layers.PixelShuffle(2), (4, 2, 3), lambda x: plain.shuffle(x, 2))
    yield (layers.PixelUnshuffle(2), (1, 4, 6), lambda x: plain.unshuffle(x, 2))
    yield (layers.Unflatten(1, (2, -1)), (6, 2), lambda x: np.stack([x[:, :3], x[:, 3:]], 1))
    yield (layers.Permute((0, 2, 1)), (2, 3), lambda x: np.stack([each.T for each in x]))
    yield (layers.Slice(1, 1, None, 2), (4, 2), lambda x: np.stack([x[:, 1], x[:, 3]], 1))
    yield (layers.Select(-1, 1), (2, 3), lambda x: np.stack([each[:, 1] for each in x]))
    yield (layers.Upsample(scale_factor=2), (1, 2, 2), lambda x: np.kron(x, np.ones((2, 2))))
    yield (layers.Upsample(size=(3,)), (2, 2), lambda x: np.stack([x[:, :, 0], x[:, :, 0], x[:, :, 1]], 2))

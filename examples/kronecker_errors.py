"""How far Kronecker factors are from the GGN's blocks, in each layer of the paper's four problems.

Run it from the top of the repository: ``python examples/kronecker_errors.py --data-dir DIR`` (DIR as for
``python -m gbackprop train``), in an environment with the extra ``experiments``. It prints a table for each problem,
before and after a short training, and writes ``kronecker_errors.png``, in some minutes. So that the distances can be
computed, hidden layers have a fraction of the paper's features. ``--quick`` takes seconds, with random numbers as
images. What it prints is explained in docs/kronecker_errors.md.
"""

import argparse
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q
from gbackprop.experiments.problems import PROBLEMS, load_problem

LOSS = losses.CrossEntropyLoss()
CONVENTIONS = ("bias", "expand", "reduce")
COLUMNS = (*CONVENTIONS, "KFRA", "nearest", "EKFAC", "DiagGGN")
INSTEAD = {"cifar-100": "cifar-10"}  # the images that are taken where those of a problem are not there
FLOOR = 1e-3  # of the picture


@dataclass(frozen=True)
class Size:
    """The size of a problem: hidden layers (or vectors of pixels) have 1/divisor of the features."""

    divisor: int
    images: int
    kfra: bool = True


SIZES = {
    "mnist_logreg": Size(4, 64),
    "fmnist_2c2d": Size(8, 16),
    "cifar10_3c3d": Size(8, 8),
    "cifar100_allcnnc": Size(16, 2, kfra=False),  # KFRA would store a matrix of 6,936² numbers
}
QUICK = {"fmnist_2c2d": Size(32, 2), "cifar10_3c3d": Size(32, 2, kfra=False)}


def narrowed(problem, divisor):
    """The problem with 1/divisor of the features of hidden layers; of images that are vectors, of the pixels."""
    pixels = divisor if len(problem.shape) == 1 else 1

    def smaller():
        whole = problem.layers()
        places = [i for i, layer in enumerate(whole) if isinstance(layer, layers.Conv2d | layers.Linear)]
        for i in places:
            layer, before, after = whole[i], divisor if i > places[0] else pixels, divisor if i < places[-1] else 1
            if isinstance(layer, layers.Linear):
                whole[i] = layers.Linear(layer.in_features // before, layer.out_features // after)
            else:
                channels = layer.in_channels // before, layer.out_channels // after
                whole[i] = layers.Conv2d(*channels, layer.window.kernel, layer.window.stride)
        return whole

    return replace(problem, layers=smaller, shape=(problem.shape[0] // pixels, *problem.shape[1:]))


def images(problem, data_dir, rng):
    """Images to train on, their labels, and what they are; without a folder, random numbers."""
    names = [problem.data, INSTEAD.get(problem.data, problem.data)] if data_dir else []
    for name in names:
        try:
            split = load_problem(replace(PROBLEMS[problem.name], data=name), data_dir)
        except FileNotFoundError:
            continue
        missing = "" if name == problem.data else f", for want of {problem.data}"
        words = f"{len(split.train_x):,} training images of {name}{missing}"
        x = split.train_x[:, :: split.train_x.shape[1] // problem.shape[0]]  # all channels, or each k-th pixel
        return x.astype("float64"), split.train_y, words
    return rng.standard_normal((512, *problem.shape)), rng.integers(0, 10, 512), "RANDOM NUMBERS, no images"


def train(network, x, y, steps, rng):
    """Train on batches of 64."""
    optimizer = optim.Adam(network, lr=1e-3)
    for _ in range(steps):
        rows = rng.choice(len(x), 64, replace=False)
        optimizer.step(gb.backward(network, LOSS, x[rows], y[rows], training=True, rng=rng))


def errors(network, x, y, size):
    """The loss, and the errors of each weight's approximations by the heading of their column."""
    kinds = {sharing: q.KFAC(fisher="exact", sharing=sharing) for sharing in CONVENTIONS}
    kinds |= {"KFRA": q.KFRA()} if size.kfra else {}
    kinds |= {"nearest": q.NearestKronecker(tolerance=1e-6), "EKFAC": q.EKFAC(fisher="exact"), "DiagGGN": q.DiagGGN()}
    asked = map(q.KroneckerError, kinds.values())
    result = gb.backward(network, LOSS, x, y, *asked)
    weights = [name for name in network.parameters if name.endswith("weight")]
    return float(result.loss), {
        name: {title: result.error(kind)[name] for title, kind in kinds.items()} for name in weights
    }


def positions(network, shape):
    """T of each weight: the pixels at the output of a convolution, else 1."""
    found = {}
    for i, layer in enumerate(network):
        shape = layer.output_shape(shape)
        if layer.parameters:
            found[f"{i}.weight"] = prod(shape[1:])
    return found


def rescaled(error):
    """‖G − a K‖ / ‖G‖ with the best number a: the sine of the angle between G and K."""
    cosine = error.inner / (error.norm * error.approximation_norm)
    return max(0.0, 1 - cosine**2) ** 0.5


def shown(value):
    """A number in at most 7 characters."""
    return f"{value:.1e}" if value < 5e-4 else f"{value:.3f}" if value < 10 else f"{value:.0f}"


def rows(network, shape, found):
    """Yield the lines of a table: the errors of each weight and, where it is shared, those with the best scale."""
    head = f"{'weight':<24}{'T':>5}" + "".join(f"{title:>9}" for title in COLUMNS)
    yield head + "  nearest of the first three"
    for name, t in positions(network, shape).items():
        shape_of = "×".join(map(str, network.parameters[name].shape))
        for scaled, value in ((False, lambda error: error.relative), (True, rescaled)):
            if scaled and t == 1:
                continue
            values = {title: value(error) for title, error in found[name].items()}
            cells = "".join(f"{shown(values[title]) if title in values else '-':>9}" for title in COLUMNS)
            best = min(CONVENTIONS, key=values.get) if t > 1 else "T = 1: all the same"
            words = "   with the best scale" if scaled else f"{name:<10} {shape_of}"
            yield f"{words:<24}{t:>5}{cells}  {best}"


def draw(pictures, path):
    """A panel for each problem and time, a point for each weight and approximation."""
    figure, axes = plt.subplots(
        len(pictures) // 2, 2, figsize=(11, 1 + 1.5 * len(pictures)), sharey="row", layout="constrained"
    )
    for (title, found), panel in zip(pictures.items(), axes.flat, strict=True):
        for column, mark in zip(COLUMNS, "os^DPXv", strict=True):
            values = [max(each[column].relative, FLOOR) if column in each else np.nan for each in found.values()]
            label = f"KFAC {column}" if column in CONVENTIONS else column
            panel.plot(range(len(values)), values, mark + ":", markersize=6, linewidth=0.7, alpha=0.8, label=label)
        panel.axhline(1, color="0.6", linewidth=1, zorder=0)
        panel.set_xticks(range(len(found)), [name.removesuffix(".weight") for name in found])
        panel.set_xlim(-0.5, len(found) - 0.5)
        panel.set(yscale="log", title=title)
    for panel in axes[:, 0]:
        panel.set_ylabel("‖G − K‖ / ‖G‖")
    for panel in axes[-1]:
        panel.set_xlabel("number of the layer")
    figure.suptitle(f"Errors of approximations of the GGN's blocks (below {FLOOR}: drawn there; grey: K = 0)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(COLUMNS))
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", help="folder with a folder of each image set")
    parser.add_argument("--quick", action="store_true", help="two problems, tiny, on random numbers")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", default="kronecker_errors.png")
    options = parser.parse_args(arguments)
    if not options.quick and not Path(options.data_dir or "").is_dir():
        parser.error(f"--data-dir: expected a folder with images, got {options.data_dir}")
    pictures, steps, sizes = {}, 2 if options.quick else options.steps, QUICK if options.quick else SIZES
    for name, size in sizes.items():
        rng, problem = np.random.default_rng(0), narrowed(PROBLEMS[name], size.divisor)
        network = problem.network(0, "float64")
        x, y, words = images(problem, None if options.quick else options.data_dir, rng)
        few = rng.choice(len(x), size.images, replace=False)
        print(f"{name}, features divided by {size.divisor}; {words}")
        for when in ("before training", f"after {steps} steps"):
            if when != "before training":
                train(network, x, y, steps, rng)
            loss, found = errors(network, x[few], y[few], size)
            print(f"\n{when}, blocks of {size.images} images, their loss {loss:.3f}; ‖G − K‖ / ‖G‖:")
            print(*rows(network, problem.shape, found), sep="\n", flush=True)
            pictures[f"{name}, {when}"] = found
        print()
    draw(pictures, options.output)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

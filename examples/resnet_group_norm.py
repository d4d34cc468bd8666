"""A residual network with group normalization on Fashion-MNIST, and where its Hessian departs from the GGN.

Run it from the top of the repository: ``python examples/resnet_group_norm.py --data-dir DIR`` (DIR as for
``python -m gbackprop demo``), in an environment with the extra ``experiments``. It writes ``resnet_group_norm.png``.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q
from gbackprop.experiments.data import load


def block(before, channels, stride=1):
    """Two convolutions beside a shortcut, which is a convolution where the shape changes."""
    changes = stride > 1 or before != channels
    shortcut = layers.Conv2d(before, channels, 1, stride, bias=False) if changes else None
    return gb.Sequential(
        gb.Residual(
            layers.Conv2d(before, channels, 3, stride, 1, bias=False),
            layers.GroupNorm(4, channels),
            layers.SiLU(),
            layers.Conv2d(channels, channels, 3, 1, 1, bias=False),
            layers.GroupNorm(4, channels),
            shortcut=shortcut,
        ),
        layers.SiLU(),
    )


def resnet8(rng):
    """Three blocks of two convolutions each, between one more convolution and a linear layer."""
    return gb.Sequential(
        layers.Conv2d(1, 8, 3, padding=1, bias=False), layers.GroupNorm(4, 8), layers.SiLU(),
        block(8, 8), block(8, 16, 2), block(16, 16, 2),
        layers.AdaptiveAvgPool2d(1), layers.Flatten(), layers.Linear(16, 10),
        rng=rng,
    )  # fmt: skip


def prepared(images):
    """Images as floats of mean 0, every other row and column."""
    return (images[..., ::2, ::2] - images.mean()) / images.std()


def accuracy(network, x, y):
    """The share of right answers."""
    return float((network(x).argmax(1) == y).mean())


def departures(result):
    """‖diagonal of the Hessian − diagonal of the GGN‖ / ‖diagonal of the GGN‖ of each weight."""
    hessian, ggn = result["diag_hessian"], result["diag_ggn"]
    return {name: float(np.linalg.norm(hessian[name] - ggn[name]) / np.linalg.norm(ggn[name])) for name in hessian}


def largest_error(network, loss, x, y, result):
    """Entries of the Hessian's diagonal, one of each parameter, beside differences of the gradient."""
    found, h = [], 1e-4
    for name, value in network.parameters.items():
        place, slopes = (0,) * value.ndim, []
        for step in (h, -2 * h, h):  # there, to the other side, and back
            value[place] += step
            slopes.append(gb.backward(network, loss, x, y).gradient[name][place])
        bend = (slopes[0] - slopes[1]) / (2 * h)
        found.append(abs(result["diag_hessian"][name][place] - bend) / max(abs(bend), 1e-3))
    return max(found)


def draw(before, after, path):
    """One bar for each parameter, before training and after."""
    _, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    places = np.arange(len(before))
    axes.bar(places - 0.2, list(before.values()), 0.4, label="before training")
    axes.bar(places + 0.2, list(after.values()), 0.4, label="after training")
    axes.set_xticks(places, list(before), rotation=90, fontsize=7)
    axes.set_yscale("log")  # the last layer has no bar: the network is linear in it, and both diagonals are the same
    axes.set_ylabel("‖diag H − diag G‖ / ‖diag G‖")
    axes.set_title("Where the Hessian departs from the GGN")
    axes.legend()
    plt.savefig(path, dpi=120)
    plt.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", required=True, help="folder with the files of Fashion-MNIST")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", default="resnet_group_norm.png")
    options = parser.parse_args()

    data, loss = load("fashion-mnist", options.data_dir), losses.CrossEntropyLoss()
    train, test = prepared(data.train_x), prepared(data.test_x)
    network, rng = resnet8(0), np.random.default_rng(0)
    print(f"{sum(value.size for value in network.parameters.values()):,} parameters")

    few = slice(0, 8)
    exact = copied(network)
    asked = q.DiagGGN(), q.DiagHessian()
    sample = train[few].astype("float64"), data.train_y[few]
    before = departures(gb.backward(exact, loss, *sample, *asked))

    optimizer = optim.Adam(network, lr=3e-3)
    for step in range(options.steps):
        rows = rng.choice(len(train), 128, replace=False)
        result = gb.backward(network, loss, train[rows], data.train_y[rows])
        optimizer.step(result)
        if step % 50 == 0 or step == options.steps - 1:
            print(f"step {step:4}  loss {float(result.loss):.3f}")
    print(f"test accuracy {accuracy(network, test[:2000], data.test_y[:2000]):.3f} on 2,000 images")

    exact = copied(network)
    result = gb.backward(exact, loss, *sample, *asked)
    after = departures(result)
    error = largest_error(exact, loss, *sample, result)
    print(f"diagonal of the Hessian beside differences: largest error {error:.1e}")
    plain = gb.reference(exact, loss, *sample, q.BatchGrad(), q.DiagGGN())
    print(f"plain engine, diagonal of the GGN: largest difference {difference(plain, result, 'diag_ggn'):.1e}")
    draw(before, after, options.output)
    print(f"picture: {options.output}")


def copied(network):
    """The same network in float64."""
    return resnet8(0).load_state_dict(network.state_dict()).astype("float64")


def difference(one, other, name):
    """The largest difference of a quantity between two results, relative to its largest entry."""
    largest = max(np.abs(value).max() for value in other[name].values())
    return max(np.abs(one[name][key] - value).max() for key, value in other[name].items()) / largest


if __name__ == "__main__":
    main()

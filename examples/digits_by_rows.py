"""An LSTM and an attention network that read digits row by row, and where their Hessians depart from the GGN.

Run it from the top of the repository, ``python examples/digits_by_rows.py``, in an environment with the extra
``experiments``: the digits, 8 × 8 pixels, come with scikit-learn. It writes ``digits_by_rows.png``.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q
from gbackprop.experiments.data import load

LOSS = losses.CrossEntropyLoss()
SAMPLES = slice(0, 8)


def lstm():
    """The state after the last of eight rows, and a linear layer."""
    return gb.Sequential(gb.LSTM(8, 12), layers.Select(1, -1), layers.Linear(12, 10), rng=0)


def attention():
    """Rows of eight pixels as tokens of width 8, attention among them with a shortcut, and a linear layer."""
    return gb.Sequential(
        layers.Linear(8, 8), gb.Residual(layers.LayerNorm(8), gb.MultiheadAttention(8, 2)), layers.SiLU(),
        layers.Flatten(), layers.Linear(64, 10), rng=0,
    )  # fmt: skip


def rows(images):
    """Images ``[N, 1, 8, 8]`` as sequences of eight rows, ``[N, 8, 8]``."""
    return images[:, 0]


def train(network, x, y, steps):
    """Train on batches of 64 and return the loss of the last."""
    optimizer, rng = optim.Adam(network, lr=1e-2), np.random.default_rng(0)
    for _ in range(steps):
        some = rng.choice(len(x), 64, replace=False)
        result = gb.backward(network, LOSS, x[some], y[some])
        optimizer.step(result)
    return float(result.loss)


def curvature(network, x, y):
    """Both diagonals on a few samples, in float64, and the relative error of one entry of each parameter."""
    exact = network.astype("float64")
    x, y = x[SAMPLES].astype("float64"), y[SAMPLES]
    result = gb.backward(exact, LOSS, x, y, q.DiagGGN(), q.DiagHessian())
    return result, max(errors(exact, x, y, result))


def errors(network, x, y, result, h=1e-4):
    """Yield the error of an entry of the Hessian's diagonal beside differences of the gradient, for each parameter."""
    for name, value in network.parameters.items():
        place, slopes = (0,) * value.ndim, []
        for step in (h, -2 * h, h):  # there, to the other side, and back
            value[place] += step
            slopes.append(gb.backward(network, LOSS, x, y).gradient[name][place])
        bend = (slopes[0] - slopes[1]) / (2 * h)
        yield abs(result["diag_hessian"][name][place] - bend) / max(abs(bend), 1e-3)


def draw(axes, title, result):
    """Every entry of the Hessian's diagonal beside that of the GGN, a colour for each parameter."""
    for name, ggn in result["diag_ggn"].items():
        axes.plot(ggn.ravel(), result["diag_hessian"][name].ravel(), ".", markersize=4, label=name)
    most = max(float(ggn.max()) for ggn in result["diag_ggn"].values())
    axes.plot([0, most], [0, most], color="0.6", linewidth=1, zorder=0)
    axes.set(title=title, xlabel="diagonal of the GGN", ylabel="diagonal of the Hessian")
    axes.legend(fontsize=7)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", default="digits_by_rows.png")
    options = parser.parse_args()
    data = load("digits")
    figure, panels = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    for axes, network, title in zip(panels, (lstm(), attention()), ("LSTM", "attention"), strict=True):
        loss = train(network, rows(data.train_x), data.train_y, options.steps)
        right = float((network(rows(data.test_x)).argmax(1) == data.test_y).mean())
        print(f"{title}: loss {loss:.3f}, test accuracy {right:.3f}")
        result, error = curvature(network, rows(data.train_x), data.train_y)
        print(f"  diagonal of the Hessian beside differences of the gradient: largest relative error {error:.1e}")
        draw(axes, title, result)
    figure.savefig(options.output, dpi=120)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

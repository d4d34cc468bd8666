"""Which Kronecker blocks give the Laplace approximation that is nearest to that of the whole GGN, on small networks.

Run it from the top of the repository, ``python examples/laplace_conventions.py``, in an environment with the extra
``experiments``: the digits, 8 × 8 pixels, come with scikit-learn. Each network is trained to the maximum of its
posterior at a prior precision of 1, and each block approximation of the GGN is then compared as a dense matrix. The
table is explained in docs/derivations/laplace.md. About a minute; ``--networks`` chooses some.
"""

import argparse
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.experiments.data import load

CE, MSE = losses.CrossEntropyLoss("sum"), losses.MSELoss("sum")
NOISE = 0.1  # the variance of a regression's targets
KINDS = {
    **{sharing: q.KFAC(fisher="exact", sharing=sharing) for sharing in ("bias", "expand", "reduce")},
    **{f"{sharing}+b": q.KFAC(fisher="exact", sharing=sharing, joint_bias=True) for sharing in ("expand", "reduce")},
    "nearest": q.NearestKronecker(tolerance=1e-8),
    "EKFAC": q.EKFAC(fisher="exact"),
    "DiagGGN": q.DiagGGN(),
}


def digits(rng, count=200, test=50):
    """Images ``[N, 1, 8, 8]`` and labels, to train on and others."""
    data = load("digits")
    order = rng.permutation(len(data.train_x))[:count]
    x, new = data.train_x[order].astype("float64"), data.test_x[:test].astype("float64")
    return x, data.train_y[order], new


def classes(*parts, change=lambda x: x):
    def make(rng):
        x, y, new = digits(rng)
        return gb.Sequential(*parts, rng=rng, dtype="float64"), CE, change(x), y, change(new)

    return make


def curve(rng):
    """A multilayer perceptron on a function of three numbers."""
    x = rng.standard_normal((150, 3))
    y = np.sin(x @ [1.0, 2.0, -1.0])[:, None] + NOISE**0.5 * rng.standard_normal((150, 1))
    parts = layers.Linear(3, 16), layers.Tanh(), layers.Linear(16, 16), layers.Tanh(), layers.Linear(16, 1)
    return gb.Sequential(*parts, rng=rng, dtype="float64"), MSE, x, y, rng.standard_normal((50, 3))


def noisy(parts, change=lambda x: x):
    """Digits without their noise, from those with it: the loss sees every position."""

    def make(rng):
        x, _, new = digits(rng, 100, 20)
        with_noise, other = (change(each + NOISE**0.5 * rng.standard_normal(each.shape)) for each in (x, new))
        return gb.Sequential(*parts, rng=rng, dtype="float64"), MSE, with_noise, change(x), other

    return make


def rows(x):
    return x[:, 0]


def halved(x):
    """2 × 2 pixels as one: vectors of 16 numbers."""
    return x.reshape(len(x), 4, 2, 4, 2).mean((2, 4)).reshape(len(x), 16)


def flat(inputs):
    return layers.Flatten(), layers.Linear(inputs, 10)


NETWORKS = {
    "mlp, classes": classes(
        layers.Linear(16, 12), layers.Tanh(), layers.Linear(12, 12), layers.Tanh(), layers.Linear(12, 10),
        change=halved,
    ),
    "mlp, regression": curve,
    "conv, max pooling": classes(layers.Conv2d(1, 6, 3), layers.ReLU(), layers.MaxPool2d(2), *flat(54)),
    "conv, conv, flatten": classes(
        layers.Conv2d(1, 4, 3, stride=2, padding=1), layers.Tanh(), layers.Conv2d(4, 6, 3), layers.Tanh(), *flat(24)
    ),
    "conv, mean": classes(
        layers.Conv2d(1, 6, 3), layers.Tanh(), layers.Conv2d(6, 8, 3), layers.Tanh(),
        layers.AdaptiveAvgPool2d(1), *flat(8),
    ),
    "residual conv": classes(
        layers.Conv2d(1, 5, 3, stride=2, padding=1), layers.ReLU(),
        gb.Residual(layers.Conv2d(5, 5, 3, padding=1), layers.Tanh()), layers.AvgPool2d(2), *flat(20),
    ),
    "attention": classes(
        layers.Linear(8, 8), gb.Residual(layers.LayerNorm(8), gb.MultiheadAttention(8, 2)), layers.SiLU(),
        *flat(64), change=rows,
    ),
    "linear, mean": classes(
        layers.Linear(8, 12), layers.Tanh(), layers.Linear(12, 12), layers.Tanh(), layers.Permute((0, 2, 1)),
        layers.AvgPool1d(8), *flat(12), change=rows,
    ),
    "rnn": classes(gb.RNN(8, 12), layers.Select(1, -1), layers.Linear(12, 10), change=rows),
    "conv, every pixel": noisy(
        (layers.Conv2d(1, 6, 3, padding=1), layers.Tanh(), layers.Conv2d(6, 1, 3, padding=1))
    ),
    "linear, every row": noisy((layers.Linear(8, 12), layers.Tanh(), layers.Linear(12, 8)), rows),
}  # fmt: skip


def train(network, loss, x, y, b, steps):
    """Go to the maximum of the posterior with δ = 1, where b Σ ℓ' + ½ ‖θ‖² is least, by L-BFGS."""
    parameters = network.parameters
    shapes = {name: value.shape for name, value in parameters.items()}
    stops = np.cumsum([value.size for value in parameters.values()])[:-1]

    def objective(theta):
        parts = np.split(theta, stops)
        parameters.load({name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)})
        result = gb.backward(network, loss, x, y)
        slope = np.concatenate([value.ravel() for value in result.gradient.values()])
        return b * float(result.loss) + theta @ theta / 2, b * slope + theta

    start = np.concatenate([value.ravel() for value in parameters.values()])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": steps})
    objective(found.x)
    return float(found.fun), found.x


@dataclass
class Posterior:
    """The eigenvalues and eigenvectors of b H."""

    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, matrix):
        values, vectors = np.linalg.eigh(matrix)
        return cls(np.maximum(values, 0), vectors)

    def logdet(self, delta):
        return np.log(self.values + delta).sum()

    def covariance(self, delta):
        return (self.vectors / (self.values + delta)) @ self.vectors.T


def dense(network, values):
    """The matrix over all parameters, of blocks, of diagonals, or of weights with their biases as one."""
    places, start = {}, 0
    for name, value in network.parameters.items():
        places[name] = np.arange(start, start := start + value.size)
    matrix = np.zeros((start, start))
    for name, block in values.items():
        rows = places[name]
        if name.removesuffix("weight") + "bias" in places.keys() - values.keys():
            outputs = len(network.parameters[name])
            rows = np.c_[rows.reshape(outputs, -1), places[name.removesuffix("weight") + "bias"]].ravel()
        matrix[np.ix_(rows, rows)] = np.diag(block.ravel()) if isinstance(block, np.ndarray) else block.to_dense()
    return matrix


def measure(network, loss, x, y, new, steps):
    """The evidence, its maximum, the divergence and the error of variances of each matrix, by its name."""
    b = 1.0 if loss is CE else 1 / (2 * NOISE)
    _, theta = train(network, loss, x, y, b, steps)
    total = b * float(gb.backward(network, loss, x, y).loss) + (loss is MSE) * y.size / 2 * np.log(2 * np.pi * NOISE)

    def evidence(posterior, delta):
        prior = (len(theta) * np.log(delta) - delta * theta @ theta) / 2
        return -total + prior - posterior.logdet(delta) / 2

    matrices = {"full": gb.operators.GGN(network, loss, (x, y)).to_dense()}
    for name, kind in KINDS.items():
        try:
            matrices[name] = dense(network, gb.backward(network, loss, x, y, kind)[kind])
        except gb.errors.UnsupportedError:
            continue
    j = gb.operators.Jacobian(network, new).to_dense()
    posteriors = {name: Posterior.of(b * matrix) for name, matrix in matrices.items()}
    full, found = posteriors["full"], {}
    precision, exact = b * matrices["full"] + np.eye(len(theta)), full.covariance(1.0)
    want = (j @ exact * j).sum(1)
    for name, posterior in posteriors.items():
        best = minimize_scalar(lambda s, p=posterior: -evidence(p, np.exp(s)), bounds=(-7, 9), method="bounded")
        covariance = posterior.covariance(1.0)
        # KL(N_K ‖ N_full) and of N_full from N_K
        dets = posterior.logdet(1.0) - full.logdet(1.0)
        forth = ((precision * covariance).sum() - len(theta) + dets) / 2
        back = (((b * matrices[name] + np.eye(len(theta))) * exact).sum() - len(theta) - dets) / 2
        variance = (j @ covariance * j).sum(1)
        found[name] = (
            evidence(posterior, 1.0), -best.fun, np.exp(best.x), forth, back,
            np.abs(np.log(variance / want)).mean(), np.linalg.norm(covariance - exact) / np.linalg.norm(exact),
        )  # fmt: skip
    return len(theta), found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args(arguments)
    for title in options.networks:
        total = defaultdict(list)
        for seed in range(options.seeds):
            size, found = measure(*NETWORKS[title](np.random.default_rng(seed)), options.steps)
            for name, values in found.items():
                total[name].append(values)
        print(f"\n{title}, {size} parameters")
        for name, values in total.items():
            one = np.mean(values, 0)
            print(f"{name:<10}" + "".join(f"{v:>11.3f}" if abs(v) < 10 else f"{v:>11.1f}" for v in one), flush=True)


if __name__ == "__main__":
    main()

"""Which Kronecker blocks give the Laplace approximation that is nearest to that of the whole GGN, on small networks.

Run it from the top of the repository, ``python examples/laplace_conventions.py``, in an environment with the extra
``experiments``: the digits, 8 × 8 pixels, come with scikit-learn. Each network is trained to the maximum of its
posterior at a prior precision of 1, and each block approximation of the GGN is then compared as a dense matrix. The
table, means over three seeds, is explained in docs/laplace_conventions.md. About two minutes; ``--quick``, seconds.
"""

import argparse
import copy
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
    **{
        f"{each}, joint": q.KFAC(fisher="exact", sharing=each, joint_bias=True) for each in ("bias", "expand", "reduce")
    },
    "nearest": q.NearestKronecker(tolerance=1e-8),
    "EKFAC": q.EKFAC(fisher="exact"),
    "DiagGGN": q.DiagGGN(),
}
HEADINGS = ("Δ evidence", "Δ at best δ", "KL(K‖full)", "KL(full‖K)", "variances", "covariance")


def digits(rng, count=200, test=50):
    """Images ``[N, 1, 8, 8]`` and labels, to train on and others."""
    data = load("digits")
    order = rng.permutation(len(data.train_x))[:count]
    x, new = data.train_x[order].astype("float64"), data.test_x[:test].astype("float64")
    return x, data.train_y[order], new


def fresh(parts, rng):
    """A network of copies of the layers: layers that are used again would have their trained parameters."""
    return gb.Sequential(*copy.deepcopy(parts), rng=rng, dtype="float64")


def classes(*parts, change=lambda x: x):
    def make(rng):
        x, y, new = digits(rng)
        return fresh(parts, rng), CE, change(x), y, change(new)

    return make


def curve(rng):
    """A multilayer perceptron on a function of three numbers."""
    x = rng.standard_normal((150, 3))
    y = np.sin(x @ [1.0, 2.0, -1.0])[:, None] + NOISE**0.5 * rng.standard_normal((150, 1))
    parts = layers.Linear(3, 16), layers.Tanh(), layers.Linear(16, 16), layers.Tanh(), layers.Linear(16, 1)
    return fresh(parts, rng), MSE, x, y, rng.standard_normal((50, 3))


def noisy(parts, change=lambda x: x, count=100):
    """Digits without their noise, from those with it: the loss sees every position."""

    def make(rng):
        x, _, new = digits(rng, count, 20)
        with_noise, other = (change(each + NOISE**0.5 * rng.standard_normal(each.shape)) for each in (x, new))
        return fresh(parts, rng), MSE, with_noise, change(x), other

    return make


def rows(x):
    return x[:, 0]


def halved(x):
    """2 × 2 pixels as one: vectors of 16 numbers."""
    return x.reshape(len(x), 4, 2, 4, 2).mean((2, 4)).reshape(len(x), 16)


def flat(inputs):
    return layers.Flatten(), layers.Linear(inputs, 10)


PIXELS = layers.Conv2d(1, 6, 3, padding=1), layers.Tanh(), layers.Conv2d(6, 1, 3, padding=1)

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
    "conv, every pixel": noisy(PIXELS),
    "linear, every row": noisy((layers.Linear(8, 12), layers.Tanh(), layers.Linear(12, 8)), rows),
}  # fmt: skip
QUICK = {"conv, every pixel, fewer": noisy(PIXELS, count=15)}


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
    """The evidence of the whole GGN and its maximum, and the errors of each approximation K by its name.

    The errors are, in the order of HEADINGS: of the evidence at a prior precision of 1, and at that of the largest
    evidence of each; both divergences of the posteriors; the mean absolute logarithm of the ratio of the variances
    of outputs; the relative error of the covariance in the Frobenius norm.
    """
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
        except gb.UnsupportedError:
            continue
    j = gb.operators.Jacobian(network, new).to_dense()
    posteriors = {name: Posterior.of(b * matrix) for name, matrix in matrices.items()}
    full, eye = posteriors.pop("full"), np.eye(len(theta))
    precision, exact = b * matrices["full"] + eye, full.covariance(1.0)
    want = (j @ exact * j).sum(1)
    top, found = best(evidence, full), {}
    for name, posterior in posteriors.items():
        covariance = posterior.covariance(1.0)
        dets = posterior.logdet(1.0) - full.logdet(1.0)
        found[name] = (
            evidence(posterior, 1.0) - evidence(full, 1.0),
            best(evidence, posterior) - top,
            ((precision * covariance).sum() - len(theta) + dets) / 2,
            (((b * matrices[name] + eye) * exact).sum() - len(theta) - dets) / 2,
            np.abs(np.log((j @ covariance * j).sum(1) / want)).mean(),
            np.linalg.norm(covariance - exact) / np.linalg.norm(exact),
        )
    return evidence(full, 1.0), top, found


def best(evidence, posterior):
    """The largest evidence over the prior precision."""
    return -minimize_scalar(lambda s: -evidence(posterior, np.exp(s)), bounds=(-7, 9), method="bounded").fun


def shown(values):
    """A line of the table."""
    cells = [f"{v:>12.1f}" if abs(v) >= 100 else f"{v:>12.2f}" if abs(v) >= 10 else f"{v:>12.3f}" for v in values]
    return "".join(cells)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small network, 15 images, one seed, 30 steps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500, help="most steps of L-BFGS")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.steps = 1, 30
    networks = QUICK if options.quick else NETWORKS
    shared = defaultdict(list)
    for title, make in networks.items():
        total, evidences = defaultdict(list), []
        for seed in range(options.seeds):
            case = make(np.random.default_rng(seed))
            evidence, top, found = measure(*case, options.steps)
            evidences.append((evidence, top))
            for name, values in found.items():
                total[name].append(values)
        evidence, top = np.mean(evidences, 0)
        size = sum(value.size for value in case[0].parameters.values())
        print(f"\n{title}: {size} parameters; evidence of the whole GGN {evidence:.1f}, {top:.1f} at its best δ")
        print(f"{'':<14}" + "".join(f"{heading:>12}" for heading in HEADINGS))
        for name, values in total.items():
            print(f"{name:<14}" + shown(np.mean(values, 0)), flush=True)
            if not title.startswith("mlp"):
                shared[name].append(np.abs(np.mean(values, 0)))
    count = max(map(len, shared.values()))
    print(f"\nGeometric means of the absolute errors, all networks with shared weights ({count})")
    for name, values in shared.items():
        if len(values) == count:
            print(f"{name:<14}" + shown(np.exp(np.log(values).mean(0))))


if __name__ == "__main__":
    main()

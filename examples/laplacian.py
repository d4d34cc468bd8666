"""Derivatives in the input: saliency of a classifier, and Laplacians of a network that solve Poisson's equation.

Prints, in a second:

- the pixels in which the loss of a network for images of bars has its largest slopes;
- the error of u(x) = Σⱼ wⱼ φⱼ(x) with Δu = f inside of the unit square and u given on its boundary, where φ are the
  outputs of a network with random weights. Both conditions are linear in w, so that w follows by least squares from
  the Laplacians Δφⱼ(xₙ). These are sums of the Hessian's diagonal in the entries of x: with the loss −φⱼ(xₙ), which is
  linear in the outputs, one call has all of them.
"""

import argparse

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q


def laplacians(network: gb.Sequential, x: np.ndarray) -> np.ndarray:
    """Compute the sum of ∂²fⱼ/∂xᵢ² over i of each output j at each point, shape (N, C)."""
    outputs = network(x).shape[1]
    points, chosen = np.repeat(x, outputs, axis=0), np.tile(np.arange(outputs), len(x))
    result = gb.backward(network, losses.NLLLoss(reduction="sum"), points, chosen, q.DiagHessian(), wrt="x")
    return -result["diag_hessian"]["x"].sum(1).reshape(len(x), outputs)


def poisson(features: int, points: int, rng: np.random.Generator) -> float:
    """Solve Δu = f with u = g on the boundary; return the largest error at points that were not used."""

    def solution(x: np.ndarray) -> np.ndarray:
        return np.sin(np.pi * x[:, 0]) * np.exp(x[:, 1])

    network = gb.Sequential(layers.Linear(2, features), layers.Tanh(), rng=rng, dtype="float64")
    network.parameters["0.weight"][...] *= 3
    inside, edge, new = (rng.random((count, 2)) for count in (points, points // 2, 200))
    edge[np.arange(len(edge)), rng.integers(2, size=len(edge))] = rng.integers(2, size=len(edge))
    rows = np.concatenate([laplacians(network, inside), 10 * network(edge)])
    right = np.concatenate([(1 - np.pi**2) * solution(inside), 10 * solution(edge)])
    weights = np.linalg.lstsq(rows, right, rcond=None)[0]
    return float(abs(network(new) @ weights - solution(new)).max())


def saliency(rng: np.random.Generator) -> np.ndarray:
    """Train a network to tell whether the middle row of noisy images is bright; return the mean of |∂ℓₙ/∂xₙ| (5, 5)."""
    labels = rng.integers(2, size=400)
    x = rng.standard_normal((400, 5, 5))
    x[:, 2] += labels[:, None]
    network = gb.Sequential(
        layers.Flatten(), layers.Linear(25, 8), layers.Tanh(), layers.Linear(8, 2), rng=rng, dtype="float64"
    )
    loss = losses.CrossEntropyLoss()
    for _ in range(200):
        for name, slope in gb.backward(network, loss, x, labels).gradient.items():
            network.parameters[name][...] -= 0.5 * slope
    return len(x) * abs(gb.backward(network, loss, x, labels, wrt="x").gradient["x"]).mean(0)


def main(arguments=None):
    """Run both from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=120, help="number of outputs φ of the random network")
    parser.add_argument("--points", type=int, default=500, help="number of points inside of the square")
    given = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    rows = saliency(rng).mean(1)
    print("mean of |∂ℓ/∂x| in each row of pixels:", *(f"{row:.3f}" for row in rows))
    print(f"largest error of the solution of Poisson's equation: {poisson(given.features, given.points, rng):.1e}")


if __name__ == "__main__":
    main()

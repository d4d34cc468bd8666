"""A library of a few lines of NumPy as an adapter: gradients of chains of linear layers, sigmoid, tanh and ReLU."""

import numpy as np

FUNCTIONS = {
    "Sigmoid": (lambda u: 1 / (1 + np.exp(-u)), lambda h: h * (1 - h)),
    "Tanh": (np.tanh, lambda h: 1 - h**2),
    "ReLU": (lambda u: np.maximum(u, 0), lambda h: (h > 0) * 1.0),
}
"""Functions, and their derivatives from their values."""


def batch_grad(problem):
    """R ∇ℓₙ of each sample."""
    values = [problem.x]
    for i, (kind, _) in enumerate(problem.layers):
        x, p = values[-1], problem.parameters
        values.append(x @ p[f"{i}.weight"].T + p[f"{i}.bias"] if kind == "Linear" else FUNCTIONS[kind][0](x))
    f = values[-1]
    if problem.loss == "MSELoss":
        g = 2 * (f - problem.y) / (f.shape[1] if problem.reduction == "mean" else 1)
    else:
        g = np.exp(f) / np.exp(f).sum(1, keepdims=True) - np.eye(f.shape[1])[problem.y]
    g, found = g / (len(f) if problem.reduction == "mean" else 1), {}
    for i, (kind, _) in reversed(list(enumerate(problem.layers))):
        if kind == "Linear":
            found[f"{i}.weight"], found[f"{i}.bias"] = g[:, :, None] * values[i][:, None], g
            g = g @ problem.parameters[f"{i}.weight"]
        else:
            g = g * FUNCTIONS[kind][1](values[i + 1])
    return found


def scale(problem):
    """R."""
    return 1 / len(problem.x) if problem.reduction == "mean" else 1.0


def of(statistic):
    """A function for a statistic of the gradients of all samples."""
    return lambda problem: {name: statistic(g, scale(problem)) for name, g in batch_grad(problem).items()}


ADAPTER = {
    "gradient": of(lambda g, r: g.sum(0)),
    "batch_grad": batch_grad,
    "batch_l2": of(lambda g, r: (g**2).reshape(len(g), -1).sum(1)),
    "second_moment": of(lambda g, r: (g**2).mean(0) / r**2),
    "variance": of(lambda g, r: g.var(0) / r**2),
}

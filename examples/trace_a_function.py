"""A mixture density network, written as two NumPy functions: trained, with the noise of its gradient.

The model returns logits, means and the logarithms of standard deviations; the loss is the negative log-likelihood of
the mixture. Neither is a layer or a loss of the library. Run it from the top of the repository,
``python examples/trace_a_function.py``.
"""

import numpy as np

import gbackprop as gb
from gbackprop import quantities as q


def model(p, x):
    h = np.tanh(x @ p["hidden"]["w"] + p["hidden"]["b"])
    return np.concatenate([h @ p["logits"], h @ p["means"], h @ p["scales"]], axis=1)


def negative_log_likelihood(output, target):
    logits, means, scales = np.split(output, 3, axis=1)
    logits = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    each = logits - scales - 0.5 * ((target - means) / np.exp(scales)) ** 2
    largest = each.max(axis=1, keepdims=True)
    return -(largest[:, 0] + np.log(np.exp(each - largest).sum(1)))


def problem(n=200):
    """An arc, of which two heights belong to most x."""
    rng = np.random.default_rng(0)
    y = rng.uniform(-1, 1, (n, 1))
    x = y + 0.6 * np.sin(2 * np.pi * y) + 0.05 * rng.standard_normal((n, 1))
    shapes = {"logits": (8, 3), "means": (8, 3), "scales": (8, 3)}
    parameters = {name: 0.5 * rng.standard_normal(shape) for name, shape in shapes.items()}
    parameters["hidden"] = {"w": 2 * rng.standard_normal((1, 8)), "b": rng.standard_normal(8)}
    return parameters, x, y


def main(steps=300):
    """Train, print the loss and the variance of individual gradients, and return the network and its loss."""
    parameters, x, y = problem()
    network = gb.trace(model, parameters, x)
    loss = gb.trace_loss(negative_log_likelihood, network(x), y)
    print("parameters:", {name: value.shape for name, value in network.parameters.items()})
    for step in range(steps):
        result = gb.backward(network, loss, x, y, q.Variance())
        if step % 100 == 0 or step == steps - 1:
            noise = sum(float(value.sum()) for value in result["variance"].values())
            print(f"step {step}: loss {result.loss:.3f}, variance of individual gradients {noise:.2f}")
        for name, slope in result.gradient.items():
            network.parameters[name] -= 0.1 * slope
    return network, loss


if __name__ == "__main__":
    main()

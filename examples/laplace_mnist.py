"""Logistic regression on MNIST that knows what it does not know: Laplace approximation, evidence, predictions.

Run it from the top of the repository: ``python examples/laplace_mnist.py --data-dir DIR``, in an environment with the
extra ``experiments``; DIR has the folders ``mnist`` and ``fashion-mnist``. Without DIR it takes scikit-learn's digits.
It writes ``laplace_mnist.png``.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.experiments.data import load

LOSS = losses.CrossEntropyLoss()


def read(folder):
    """Training images, test images, and images of something else: clothes, or digits with their pixels shuffled."""
    if folder is None:
        data = load("digits")
        order = np.random.default_rng(0).permutation(64)
        other = data.test_x.reshape(-1, 64)[:, order].reshape(data.test_x.shape)
        return data, other, "digits, pixels shuffled"
    return load("mnist", folder), load("fashion-mnist", folder).test_x, "Fashion-MNIST"


def train(network, x, y, precision, steps):
    """Go to the maximum of the posterior, where L + δ/(2N) ‖θ‖² is least, by L-BFGS."""
    parameters = network.parameters
    shapes = {name: value.shape for name, value in parameters.items()}
    stops = np.cumsum([value.size for value in parameters.values()])[:-1]

    def objective(theta):
        parts = np.split(theta, stops)
        parameters.load({name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)})
        result = gb.backward(network, LOSS, x, y)
        slope = np.concatenate([value.ravel() for value in result.gradient.values()]).astype("float64")
        weight = precision / len(x)
        return float(result.loss) + weight / 2 * theta @ theta, slope + weight * theta

    start = np.concatenate([value.ravel() for value in parameters.values()]).astype("float64")
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": steps})
    objective(found.x)
    return found.nit


def softmax(f):
    """Probabilities of the classes."""
    e = np.exp(f - f.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def bins(p, y, count=15):
    """The share of samples, the mean confidence and the accuracy in each interval of confidence that has samples."""
    confidence, right = p.max(1), p.argmax(1) == y
    place = np.minimum((confidence * count).astype(int), count - 1)
    masks = [place == i for i in range(count) if (place == i).any()]
    return [(mask.mean(), confidence[mask].mean(), right[mask].mean()) for mask in masks]


def calibration_error(p, y):
    """The expected difference of confidence and accuracy (ECE)."""
    return sum(share * abs(confidence - accuracy) for share, confidence, accuracy in bins(p, y))


def entropy(p):
    """−Σ p log p of each sample."""
    return -(p * np.log(np.maximum(p, 1e-30))).sum(1)


def auroc(low, high):
    """The probability that a number of `high` is above one of `low`; half of it where they are equal."""
    order = np.sort(low)
    below, most = (np.searchsorted(order, high, side) for side in ("left", "right"))
    return (below + most).mean() / (2 * len(low))


def row(title, p, other, y, evidence=None):
    """Print accuracy, −log p of the labels, calibration error, and how well entropy tells the other images."""
    nll = -np.log(p[np.arange(len(y)), y]).mean()
    told = "" if evidence is None else f"{evidence:,.0f}"
    known = auroc(entropy(p), entropy(other))
    right = (p.argmax(1) == y).mean()
    print(f"{title:<28} {told:>12} {right:9.4f} {nll:8.4f} {calibration_error(p, y):8.4f} {known:8.4f}")


def draw(path, pairs, y, other_name):
    """Accuracy beside confidence, and the entropy of both kinds of images, before and after."""
    figure, panels = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    panels[0].plot([0, 1], [0, 1], color="0.6", linewidth=1)
    for axes, (title, p, other) in zip(panels[1:], pairs, strict=True):
        each = np.array(bins(p, y))
        panels[0].plot(each[:, 1], each[:, 2], "o-", label=title)
        scale = np.linspace(0, np.log(10), 40)
        axes.hist(entropy(p), scale, alpha=0.6, density=True, label="test images")
        axes.hist(entropy(other), scale, alpha=0.6, density=True, label=other_name)
        axes.set(title=title, xlabel="entropy of the prediction", yscale="log")
        axes.legend()
    panels[0].set(title="Calibration", xlabel="confidence", ylabel="accuracy")
    panels[0].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", help="folder with MNIST and Fashion-MNIST; scikit-learn's digits without it")
    parser.add_argument("--steps", type=int, default=400, help="most steps of L-BFGS")
    parser.add_argument("--precision", type=float, default=1.0, help="the prior's precision while training")
    parser.add_argument("--images", type=int, default=1000, help="test images of either kind")
    parser.add_argument("--output", default="laplace_mnist.png")
    options = parser.parse_args(arguments)
    data, other, other_name = read(options.data_dir)
    some = slice(0, options.images)
    x, y, other = data.test_x[some], data.test_y[some], other[some]
    pixels = data.train_x[0].size
    network = gb.Sequential(layers.Flatten(), layers.Linear(pixels, 10), rng=0)
    steps = train(network, data.train_x, data.train_y, options.precision, options.steps)
    print(f"{len(data.train_x):,} training images, {10 * (pixels + 1):,} parameters, {steps} steps of L-BFGS\n")

    batches = list(gb.data.batches(data.train_x, data.train_y, 5000))
    structures = ["full"] * (pixels < 100) + ["kron", "diag"]  # the whole matrix of MNIST's has 60 million entries
    print(f"{'':<28} {'log evidence':>12} {'accuracy':>9} {'NLL':>8} {'ECE':>8} {'AUROC':>8}")
    pairs = [("trained parameters", softmax(network(x)), softmax(network(other)))]
    row(*pairs[0], y)
    for structure in structures:
        first = gb.laplace.Laplace(network, LOSS, batches, structure, prior_precision=options.precision)
        for laplace in (first, first.optimize_prior()):
            title = f"{structure}, prior precision {laplace.prior_precision:.3g}"
            found = (title, laplace.predict(x, "mc", rng=0), laplace.predict(other, "mc", rng=0))
            row(*found, y, laplace.log_marginal_likelihood())
        if structure == structures[0]:
            pairs.append(found)
            notes = first.decrement(), sum(laplace.effective_parameters().values())
    print(f"\n{notes[0]:.1f} nats from the maximum of the posterior; the data determines {notes[1]:.0f} parameters")
    print(f"AUROC: entropy tells {other_name} from test images")
    draw(options.output, pairs, y, other_name)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

"""Which training images does a prediction rest on? Influence functions, beside training again without each image.

Run it from the top of the repository, ``python examples/influence.py``, in an environment with the extra
``experiments``: the digits, 8 × 8 pixels, come with scikit-learn. It writes ``influence.png``.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.curvature.influence import on_loss, removal
from gbackprop.experiments.data import load

LOSS = losses.CrossEntropyLoss("sum")  # so that the other images count the same when one is removed


def trained(network, x, y, strength, steps=30):
    """Minimize L + ½ λ ‖θ‖² by Newton's method with the dense Hessian, from the network's parameters on."""
    for _ in range(steps):
        hessian = gb.operators.Hessian(network, LOSS, (x, y))
        theta = hessian.pack(dict(network.parameters))
        slope = hessian.pack(gb.backward(network, LOSS, x, y).gradient) + strength * theta
        network.parameters.load(
            hessian.unpack(theta - np.linalg.solve(hessian.to_dense() + strength * np.eye(len(theta)), slope))
        )
        if np.abs(slope).max() < 1e-9:
            return network
    raise RuntimeError("Newton's method has not converged: use a larger --strength")


def logistic(pixels, start=None):
    """Two classes as two outputs, with the parameters of `start`."""
    network = gb.Sequential(layers.Flatten(), layers.Linear(pixels, 2), rng=0, dtype="float64")
    return network if start is None else network.load_state_dict(start.state_dict())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=100, help="training images")
    parser.add_argument("--again", type=int, default=40, help="for how many of them to train again")
    parser.add_argument("--strength", type=float, default=1.0, help="λ")
    parser.add_argument("--output", default="influence.png")
    options = parser.parse_args(arguments)
    data = load("digits")
    pairs = [(data.train_x, data.train_y), (data.test_x, data.test_y)]
    (x, y), (test_x, test_y) = [
        (images[np.isin(labels, (3, 8))].astype("float64"), (labels[np.isin(labels, (3, 8))] == 8).astype("int64"))
        for images, labels in pairs
    ]
    x, y = x[: options.images], y[: options.images]
    network = trained(logistic(x[0].size), x, y, options.strength)
    worst = int(LOSS.values(network(test_x), test_y).argmax())
    test = test_x[[worst]], test_y[[worst]]
    before = float(LOSS(network(test[0]), test[1]))
    print(f"{len(x)} images of 3 and 8; the test image with the largest loss is number {worst}: {before:.4f}")

    influence = on_loss(network, LOSS, (x, y), test, damping=options.strength)
    chosen = np.argsort(-np.abs(influence))[: options.again]
    steps = removal(network, LOSS, (x, y), chosen.tolist(), damping=options.strength)
    newton, again = [], []
    for k, i in enumerate(chosen):
        moved = logistic(x[0].size, network)
        moved.parameters.load({name: value + steps[name][k] for name, value in network.parameters.items()})
        newton.append(float(LOSS(moved(test[0]), test[1])) - before)
        without = trained(moved, np.delete(x, i, 0), np.delete(y, i), options.strength)
        again.append(float(LOSS(without(test[0]), test[1])) - before)
    for title, found in (("influence function", influence[chosen]), ("one Newton step", newton)):
        correlation, error = np.corrcoef(found, again)[0, 1], np.linalg.norm(found - np.array(again))
        print(
            f"{title:<20} correlation with training again {correlation:.4f}, error {error / np.linalg.norm(again):.4f}"
        )

    figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    panels[0].plot(again, influence[chosen], "o", label="influence function")
    panels[0].plot(again, newton, "x", label="one Newton step")
    panels[0].plot([min(again), max(again)], [min(again), max(again)], color="0.6", linewidth=1)
    panels[0].set(xlabel="change of the loss, trained again", ylabel="change of the loss, estimated")
    panels[0].legend()
    shown = [test[0][0], x[influence.argmax()], x[influence.argmin()]]
    panels[1].imshow(np.concatenate([image.reshape(8, 8) for image in shown], axis=1), cmap="gray_r")
    panels[1].set(title="test image, its best helper, its worst harm", xticks=[], yticks=[])
    figure.savefig(options.output, dpi=120)
    plt.close(figure)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

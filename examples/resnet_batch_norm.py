"""ResNet-20 with batch normalization on Fashion-MNIST: trained by the batches' statistics, evaluated by running ones.

Run it from the top of the repository: ``python examples/resnet_batch_norm.py --data-dir DIR`` (DIR as for
``python -m gbackprop demo``). By default it takes a part of the images, at half their width, and a minute or two.
"""

import argparse
import time

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q
from gbackprop.experiments.data import load


def convolution(before, channels, stride=1):
    """A convolution without a bias, which the normalization after it would subtract."""
    return layers.Conv2d(before, channels, 3, stride, 1, bias=False), layers.BatchNorm2d(channels)


def block(before, channels, stride=1):
    """Two convolutions beside a shortcut, which is a convolution where the shape changes."""
    shortcut = None
    if stride > 1:
        shortcut = gb.Sequential(layers.Conv2d(before, channels, 1, stride, bias=False), layers.BatchNorm2d(channels))
    inside = *convolution(before, channels, stride), layers.ReLU(), *convolution(channels, channels)
    return gb.Sequential(gb.Residual(*inside, shortcut=shortcut), layers.ReLU())


def resnet20(rng):
    """Three stages of three blocks, between one more convolution and a linear layer: 20 layers with weights."""
    return gb.Sequential(
        *convolution(1, 16), layers.ReLU(),
        block(16, 16), block(16, 16), block(16, 16),
        block(16, 32, 2), block(32, 32), block(32, 32),
        block(32, 64, 2), block(64, 64), block(64, 64),
        layers.AdaptiveAvgPool2d(1), layers.Flatten(), layers.Linear(64, 10),
        rng=rng,
    )  # fmt: skip


def accuracy(network, x, y):
    """The share of right answers, in evaluation mode."""
    blocks = [slice(start, start + 500) for start in range(0, len(x), 500)]
    return float(np.mean([(network(x[rows]).argmax(1) == y[rows]).mean() for rows in blocks]))


def prepared(images, whole):
    """Images as floats of mean 0, every other row and column or all."""
    step = 1 if whole else 2
    return (images[..., ::step, ::step] - images.mean()) / images.std()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", required=True, help="folder with the files of Fashion-MNIST")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=10_000, help="training images, of 60,000")
    parser.add_argument("--whole", action="store_true", help="images of 28 x 28 pixels, which take four times as long")
    options = parser.parse_args()

    data, loss = load("fashion-mnist", options.data_dir), losses.CrossEntropyLoss()
    x, y = prepared(data.train_x[: options.images], options.whole), data.train_y[: options.images]
    test = prepared(data.test_x, options.whole), data.test_y
    network, rng, batch = resnet20(0), np.random.default_rng(0), 128
    print(f"{sum(value.size for value in network.parameters.values()):,} parameters, {len(x):,} images")

    optimizer = optim.SGD(network, lr=0.1, momentum=0.9, nesterov=True)
    steps = len(x) // batch
    for epoch in range(options.epochs):
        order, start, total = rng.permutation(len(x)), time.perf_counter(), 0.0
        for step in range(steps):
            optimizer.lr = 0.1 * (1 - (epoch * steps + step) / (options.epochs * steps))
            rows = order[step * batch : (step + 1) * batch]
            result = gb.backward(network, loss, x[rows], y[rows], training=True)
            optimizer.step(result)
            total += float(result.loss)
        seconds = time.perf_counter() - start
        right = accuracy(network, *test)
        print(f"epoch {epoch + 1}  loss {total / steps:.3f}  test accuracy {right:.3f}  ({seconds:.0f} s)")

    few = x[:4], y[:4]
    result = gb.backward(network, loss, *few, q.DiagGGN(), q.DiagGGNMC(mc_samples=50), training=True, rng=0)
    exact, drawn = (sum(float(value.sum()) for value in result[name].values()) for name in ("diag_ggn", "diag_ggn_mc"))
    print(f"trace of the GGN of four images that meet: {exact:.3f} exactly, {drawn:.3f} from 50 draws")


if __name__ == "__main__":
    main()

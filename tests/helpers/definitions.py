"""What layers and losses compute, in plain loops: nothing says more directly what is meant.

Each function makes a reference: ``(x, **parameters) -> y`` for a layer, ``(output, target) -> ℓ`` for a loss.
"""

import itertools
import math

import numpy as np

from gbackprop import losses


def linear():
    def reference(x, weight, bias=0.0):
        return np.einsum("n...i,oi->n...o", x, weight) + bias

    return reference


def elementwise(function):
    return lambda x: function(x)


def prelu():
    """x where it is positive, else its channel's slope times x; one slope is for all channels."""

    def reference(x, weight):
        slopes = np.resize(weight, x.shape[1]) if x.ndim > 1 else weight[0]
        return np.where(x > 0, x, x * np.reshape(slopes, (-1, *[1] * (x.ndim - 2))))

    return reference


def softmax(axis):
    return lambda x: np.exp(x) / np.exp(x).sum(axis, keepdims=True)


def log_softmax(axis):
    return lambda x: np.log(np.exp(x) / np.exp(x).sum(axis, keepdims=True))


MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""NumPy's names of the padding modes."""


def conv(stride, padding, dilation, groups=1, mode="zeros"):
    """y[n, o, *t] = b[o] + Σ over the window of W[o] and the channels of o's group."""

    def reference(x, weight, bias=None):
        padded = np.pad(x, ((0, 0), (0, 0), *padding), MODES[mode])
        size = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation, strict=True)]
        out = [(s - r) // step + 1 for s, r, step in zip(padded.shape[2:], size, stride, strict=True)]
        y = np.zeros((len(x), len(weight), *out))
        outputs, inputs = len(weight) // groups, x.shape[1] // groups
        for o, *t in np.ndindex(y.shape[1:]):
            first = o // outputs * inputs
            where = [slice(i * s, i * s + r, d) for i, s, r, d in zip(t, stride, size, dilation, strict=True)]
            seen = padded[:, first : first + inputs, *where]
            y[:, o, *t] = (seen * weight[o]).reshape(len(x), -1).sum(1) + (0 if bias is None else bias[o])
        return y

    return reference


def conv2d(stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1, mode="zeros"):
    return conv(stride, padding, dilation, groups, mode)


def windows(size, kernel, stride, padding, dilation, ceil):
    """Along one axis: for each window, its places, counted on the input; those outside are in the padding."""
    starts = itertools.takewhile(
        lambda start: start + dilation * (kernel - 1) < size + padding
        or (ceil and start < size and start + dilation * (kernel - 1) < size + padding + stride - 1),
        itertools.count(-padding, stride),
    )
    return [[start + dilation * k for k in range(kernel)] for start in starts]


def pool(kernel, stride, padding, dilation, ceil, reduce):
    """y = reduce(the numbers that a window sees, the places that it covers, the image's size)."""

    def reference(x):
        sizes = x.shape[2:]
        axes = [windows(*axis, ceil) for axis in zip(sizes, kernel, stride, padding, dilation, strict=True)]
        y = np.zeros((*x.shape[:2], *map(len, axes)))
        for t in np.ndindex(y.shape[2:]):
            places = list(itertools.product(*[axis[i] for axis, i in zip(axes, t, strict=True)]))
            inside = [place for place in places if all(0 <= at < s for at, s in zip(place, sizes, strict=True))]
            seen = np.stack([x[:, :, *place] for place in inside])
            y[:, :, *t] = reduce(seen, places, sizes)
        return y

    return reference


def max_pool(kernel, stride, padding, dilation, ceil=False):
    return pool(kernel, stride, padding, dilation, ceil, lambda seen, *_: seen.max(0))


def max_pool2d(kernel, stride, padding=(0, 0), dilation=(1, 1), ceil=False):
    return max_pool(kernel, stride, padding, dilation, ceil)


def avg_pool(kernel, stride, padding, ceil=False, count_include_pad=True, divisor=None):
    """The mean of what a window sees; zeros of the padding count, if they do, but never what is beyond it."""

    def mean(seen, places, size):
        counted = [
            all(-p <= at < s + p for at, s, p in zip(place, size, padding, strict=True)) for place in places
        ]
        return seen.sum(0) / (divisor or (sum(counted) if count_include_pad else len(seen)))

    return pool(kernel, stride, padding, (1,) * len(kernel), ceil, mean)


def avg_pool2d(kernel, stride, padding=(0, 0), ceil=False, count_include_pad=True, divisor=None):
    return avg_pool(kernel, stride, padding, ceil, count_include_pad, divisor)


def adaptive(out, reduce):
    """Along an axis of S places, bin i has those from ⌊i S/O⌋ to before ⌈(i + 1) S/O⌉; None for O = S."""

    def reference(x):
        sizes = x.shape[2:]
        counts = [s if o is None else o for s, o in zip(sizes, out, strict=True)]
        y = np.zeros((*x.shape[:2], *counts))
        for t in np.ndindex(*counts):
            bins = zip(t, sizes, counts, strict=True)
            where = [slice(math.floor(i * s / o), math.ceil((i + 1) * s / o)) for i, s, o in bins]
            y[:, :, *t] = reduce(x[:, :, *where].reshape(*x.shape[:2], -1), -1)
        return y

    return reference


def transposed(stride, padding, output_padding, dilation, groups=1):
    """Each number of the input adds its multiple of the weight to the image, from place t s − p on."""

    def reference(x, weight, bias=None):
        axes = list(zip(x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation, strict=True))
        size = [(n - 1) * s - 2 * p + d * (k - 1) + more + 1 for n, k, s, p, more, d in axes]
        inputs, outputs = len(weight) // groups, weight.shape[1]
        y = np.zeros((len(x), outputs * groups, *size))
        for c, o, *place in np.ndindex(weight.shape):
            for t in np.ndindex(x.shape[2:]):
                moves = zip(t, stride, padding, place, dilation, strict=True)
                at = [i * s - p + k * d for i, s, p, k, d in moves]
                if all(0 <= a < n for a, n in zip(at, size, strict=True)):
                    y[:, c // inputs * outputs + o, *at] += x[:, c, *t] * weight[c, o, *place]
        return y + (0 if bias is None else bias.reshape(-1, *(1,) * len(size)))

    return reference


def normalized(mean, variance, eps=1e-5):
    def reference(x, weight=None, bias=None):
        y = np.zeros_like(x)
        for c in range(x.shape[1]):
            y[:, c] = (x[:, c] - mean[c]) / np.sqrt(variance[c] + eps)
            y[:, c] = y[:, c] if weight is None else weight[c] * y[:, c] + bias[c]
        return y

    return reference


def scaled(x, weight):
    return np.stack([x[:, c] * weight[c % len(weight)] for c in range(x.shape[1])], axis=1)


def framed(padding, mode, **value):
    """NumPy's padding; torch's numbers begin with the last axis."""
    pairs = list(zip(padding[::2], padding[1::2], strict=True))[::-1]
    return lambda x: np.pad(x, ((0, 0), (0, 0), *pairs), MODES[mode], **value)


def nearest(sources):
    """For each spatial axis, the place of which each place of the output is a copy."""
    return lambda x: x[(slice(None), slice(None), *np.ix_(*sources))]


def shuffled(r):
    def reference(x):
        n, c, h, w = x.shape
        y = np.zeros((n, c // r**2, h * r, w * r))
        for k, i, j in np.ndindex(y.shape[1:]):
            y[:, k, i, j] = x[:, k * r**2 + i % r * r + j % r, i // r, j // r]
        return y

    return reference


def unshuffled(r):
    def reference(x):
        n, c, h, w = x.shape
        y = np.zeros((n, c * r**2, h // r, w // r))
        for k, i, j in np.ndindex(x.shape[1:]):
            y[:, k * r**2 + i % r * r + j % r, i // r, j // r] = x[:, k, i, j]
        return y

    return reference


def zero_pad2d(left, right, top, bottom):
    def reference(x):
        y = np.pad(x, ((0, 0), (0, 0), (max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0))))
        rows = slice(max(-top, 0), y.shape[2] - max(-bottom, 0))
        return y[:, :, rows, slice(max(-left, 0), y.shape[3] - max(-right, 0))]

    return reference


def reshape(*shape):
    return lambda x: np.reshape(x, (len(x), *shape))


# -------------------------------------------------------------------------------------------------------------- losses


def cross_entropy(reduction, weight=None, ignore_index=-100, smoothing=0.0):
    """Position by position; labels as probabilities. A sum over positions, or with "mean" their mean."""

    def at(f, label):
        """−Σ w q log p at one position; `label` is a class, or the probabilities of all."""
        w = np.ones(len(f)) if weight is None else weight
        if np.ndim(label) == 0 and label == ignore_index:
            return 0.0
        q = np.array([float(k == label) for k in range(len(f))]) if np.ndim(label) == 0 else label
        log_p = [f[k] - np.log(sum(np.exp(f))) for k in range(len(f))]
        return -sum(w[k] * ((1 - smoothing) * q[k] + smoothing / len(f)) * log_p[k] for k in range(len(f)))

    def reference(output, target):
        found = []
        for f, y in zip(output, target, strict=True):
            each = [at(f[(slice(None), *t)], y[(slice(None), *t)] if y.shape == f.shape else y[t])
                    for t in np.ndindex(f.shape[1:])]  # fmt: skip
            found.append({"mean": np.mean, "sum": np.sum}[reduction](each))
        return np.array(found)

    return reference


def divisor(loss, target):
    """What torch's "mean" divides the sum over all positions by: of labels, the sum of the weights that count."""
    if target.dtype.kind == "f":
        return target.size / target.shape[1] if isinstance(loss, losses.CrossEntropyLoss) else size_of(loss, target)
    total = 0
    for label in target.ravel():
        if label != loss.ignore_index:
            total += 1 if loss.weight is None else loss.weight[label]
    return total


def size_of(loss, target):
    return target[:, 0].size if isinstance(loss, losses.GaussianNLLLoss) else target.size


def squared_error(reduction):
    """A sum over the outputs, or with "mean" their mean."""
    total = {"mean": np.mean, "sum": np.sum}[reduction]
    return lambda output, target: np.array([total((f - y) ** 2) for f, y in zip(output, target, strict=True)])


def binary_cross_entropy(reduction, weight=None, pos_weight=None):
    total = {"mean": np.mean, "sum": np.sum}[reduction]
    w, u = (1.0 if each is None else each for each in (weight, pos_weight))

    def reference(output, target):
        p = 1 / (1 + np.exp(-output))
        return np.array([total(each) for each in -w * (u * target * np.log(p) + (1 - target) * np.log(1 - p))])

    return reference


def likely_bits(reduction, weight=None):
    """Of probabilities; logarithms are cut off at −100."""
    total, w = {"mean": np.mean, "sum": np.sum}[reduction], 1.0 if weight is None else weight

    def reference(output, target):
        rows = zip(output, target, strict=True)
        each = [-w * (y * np.maximum(np.log(p), -100) + (1 - y) * np.maximum(np.log(1 - p), -100)) for p, y in rows]
        return np.array([total(row) for row in each])

    return reference


def chosen_classes(reduction, weight=None, ignore_index=None):
    """Minus what the label chooses, of as many as there are labels."""
    def reference(output, target):
        found = []
        for f, y in zip(output, target, strict=True):
            each = [-f[(y[t], *t)] * (1 if weight is None else weight[y[t]]) if y[t] != ignore_index else 0
                    for t in np.ndindex(y.shape)]  # fmt: skip
            found.append({"mean": np.mean, "sum": np.sum}[reduction](each))
        return np.array(found)

    return reference


def normal(reduction, full, eps):
    total, constant = {"mean": np.mean, "sum": np.sum}[reduction], np.log(2 * np.pi) if full else 0

    def reference(output, target):
        rows = zip(output, target[:, 0], np.where(target[:, 1] < eps, eps, target[:, 1]), strict=True)
        return np.array([total(np.log(v) + (f - y) ** 2 / v + constant) / 2 for f, y, v in rows])

    return reference


def of_each(reduction, rule):
    """A sum over the outputs, or with "mean" their mean, of a rule for one output and one target."""
    total = {"mean": np.mean, "sum": np.sum}[reduction]

    def reference(output, target):
        flat = zip(output.reshape(len(output), -1), target.reshape(len(target), -1), strict=True)
        return np.array([total([rule(f, y) for f, y in zip(*pair, strict=True)]) for pair in flat])

    return reference


def huber(reduction, delta):
    def rule(f, y):
        return (f - y) ** 2 / 2 if abs(f - y) <= delta else delta * (abs(f - y) - delta / 2)

    return of_each(reduction, rule)


def smooth_absolute(reduction, beta):
    return of_each(reduction, lambda f, y: (f - y) ** 2 / (2 * beta) if abs(f - y) < beta else abs(f - y) - beta / 2)


def poisson(reduction, log_input, full, eps):
    def rule(f, y):
        stirling = y * np.log(y) - y + np.log(2 * np.pi * y) / 2 if full and y > 1 else 0
        return (np.exp(f) - y * f if log_input else f - y * np.log(f + eps)) + stirling

    return of_each(reduction, rule)


def of_loss(loss):
    """The reference of a shipped loss, by its name."""
    return {
        "CrossEntropyLoss": lambda: cross_entropy(
            loss.reduction, loss.weight, loss.ignore_index, loss.label_smoothing
        ),
        "MSELoss": lambda: squared_error(loss.reduction),
        "BCEWithLogitsLoss": lambda: binary_cross_entropy(loss.reduction, loss.weight, loss.pos_weight),
        "BCELoss": lambda: likely_bits(loss.reduction, loss.weight),
        "NLLLoss": lambda: chosen_classes(loss.reduction, loss.weight, loss.ignore_index),
        "L1Loss": lambda: of_each(loss.reduction, lambda f, y: abs(f - y)),
        "GaussianNLLLoss": lambda: normal(loss.reduction, loss.full, loss.eps),
        "HuberLoss": lambda: huber(loss.reduction, loss.delta),
        "SmoothL1Loss": lambda: smooth_absolute(loss.reduction, loss.beta),
        "PoissonNLLLoss": lambda: poisson(loss.reduction, loss.log_input, loss.full, loss.eps),
    }[type(loss).__name__]()

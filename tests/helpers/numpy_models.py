"""Networks as plain NumPy functions of parameters and a batch, as people write them, and layers that do the same."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import gbackprop as gb
from gbackprop import layers


def softmax(z, axis=-1):
    e = np.exp(z - z.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def mlp(p, x):
    for layer in p[:-1]:
        x = np.tanh(x @ layer["w"].T + layer["b"])
    return x @ p[-1]["w"].T + p[-1]["b"]


def convolution(p, x):
    """Slices of a padded image, one for each place of the kernel; ReLU and pooling by a reshape."""
    n, _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = p["b"][:, None, None]
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i : i + height, j : j + width]
            y = y + np.einsum("nchw,oc->nohw", part, p["w"][:, :, i, j])
    y = np.maximum(y, 0).reshape(n, -1, height // 2, 2, width // 2, 2).max(axis=(3, 5))
    return y.reshape(len(x), -1) @ p["v"]


def rnn(p, x):
    """All states in an array that is there before."""
    h = np.zeros_like(x, shape=(len(x), x.shape[1] + 1, p["h"].shape[0]))
    for t in range(x.shape[1]):
        h[:, t + 1] = np.tanh(x[:, t] @ p["i"].T + h[:, t] @ p["h"].T + p["b"])
    return h[:, 1:].reshape(x.shape[0], -1)


def attention(p, x):
    q, k, v = np.split(x @ p["qkv"], 3, axis=-1)
    n, t, d = q.shape
    q, k, v = (each.reshape(n, t, 2, d // 2).transpose(0, 2, 1, 3) for each in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d // 2)
    scores = np.where(np.tril(np.ones((t, t))) == 0, -1e9, scores)
    mixed = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(n, t, d)
    return (x + mixed @ p["out"]).mean(axis=1)


def mixture(p, x):
    hidden = np.tanh(x @ p["w"] + p["b"])
    logits, means, scales = hidden @ p["logits"], hidden @ p["means"], np.logaddexp(0, hidden @ p["scales"])
    return np.concatenate([logits - np.log(np.exp(logits).sum(1, keepdims=True)), means, scales], axis=1)


def siren(p, x):
    x = np.sin(30 * (x @ p["first"]["w"].T + p["first"]["b"]) / 10)
    return np.sin(x @ p["second"]["w"].T + p["second"]["b"]) @ p["out"]


def physics(p, x):
    """A network with hard boundary conditions, u = t(1 − t) f + sin(πx)."""
    t, s = x[:, :1], x[:, 1:]
    features = np.hstack([t, s, np.cos(np.pi * s), t * s])
    return t * (1 - t) * (np.tanh(features @ p["w"] + p["b"]) @ p["v"]) + np.sin(np.pi * s)


def kernel(p, x):
    squares = ((x[:, None] - p["centers"]) ** 2 * np.exp(-2 * p["log_length"])).sum(-1)
    rbf = np.exp(p["log_scale"]) * np.exp(-0.5 * squares)
    fourier = np.sqrt(2 / 3) * np.cos(x @ p["frequencies"] + p["phases"])
    return np.concatenate([rbf, fourier], 1) @ p["weights"]


ADJACENCY = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1.0]])


def graph_convolution(p, x):
    root = ADJACENCY.sum(1) ** -0.5
    normal = root[:, None] * ADJACENCY * root
    h = np.maximum(normal @ x @ p["w"], 0.01 * (normal @ x @ p["w"]))
    return (normal @ h @ p["v"]).sum(1)


def low_rank(p, x):
    return x @ (p["base"] + 0.5 * (p["b"] @ p["a"])).T


def weight_norm(p, x):
    w = p["g"][:, None] * p["v"] / np.linalg.norm(p["v"], axis=1, keepdims=True)
    return np.einsum("ni,oi->no", x, w) + p["b"]


def deep_set(p, x):
    """Each element by itself, all samples' elements in one matrix, then pooled three ways."""
    n, count, d = x.shape
    h = np.tanh(x.reshape(n * count, d) @ p["inner"]).reshape(n, count, -1)
    pooled = np.stack([h.mean(1), h.max(1), h.std(1)], axis=1)
    return np.tensordot(pooled, p["outer"], axes=([1, 2], [0, 1]))


def drawn(rng, shapes):
    """Parameters of a (nested) dictionary or list of shapes."""
    if isinstance(shapes, dict):
        return {key: drawn(rng, value) for key, value in shapes.items()}
    if isinstance(shapes, list):
        return [drawn(rng, value) for value in shapes]
    return np.asarray(rng.standard_normal(shapes) * 0.7)


def pair(o, i):
    return {"w": (o, i), "b": (o,)}


MODELS = {
    "MLP": (mlp, [pair(4, 3), pair(4, 4), pair(2, 4)], (3,)),
    "convolution": (convolution, {"w": (3, 2, 3, 3), "b": (3,), "v": (12, 2)}, (2, 4, 4)),
    "RNN": (rnn, {"i": (3, 2), "h": (3, 3), "b": (3,)}, (4, 2)),
    "attention": (attention, {"qkv": (4, 12), "out": (4, 4)}, (3, 4)),
    "mixture": (mixture, {"w": (2, 4), "b": (4,), "logits": (4, 2), "means": (4, 2), "scales": (4, 2)}, (2,)),
    "SIREN": (siren, {"first": pair(4, 2), "second": pair(4, 4), "out": (4, 2)}, (2,)),
    "physics": (physics, {"w": (4, 5), "b": (5,), "v": (5, 1)}, (2,)),
    "kernel": (
        kernel, {"centers": (4, 2), "log_length": (2,), "log_scale": (), "frequencies": (2, 3), "phases": (3,),
                 "weights": (7, 2)}, (2,),
    ),
    "graph convolution": (graph_convolution, {"w": (2, 3), "v": (3, 2)}, (4, 2)),
    "LoRA": (low_rank, {"base": (3, 4), "a": (1, 4), "b": (3, 1)}, (4,)),
    "weight norm": (weight_norm, {"v": (3, 4), "g": (3,), "b": (3,)}, (4,)),
    "DeepSet": (deep_set, {"inner": (2, 4), "outer": (3, 4, 2)}, (3, 2)),
}  # fmt: skip
"""By name: a function, the shapes of its parameters, and that of a sample."""


def problem(name, n=4):
    """A function, parameters and a batch."""
    function, shapes, features = MODELS[name]
    rng = np.random.default_rng(0)
    return function, drawn(rng, shapes), rng.standard_normal((n, *features))


# ------------------------------------------------------------------------------------------- layers, and what they do


def windows(x, size, stride):
    return sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


def conv2d(p, x, in_channels, out_channels, kernel_size, stride=1, padding=0):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    y = np.einsum("ncijkl,ockl->noij", windows(x, kernel_size, stride), p["weight"])
    return y + p["bias"][:, None, None]


STEPS = {
    "Conv2d": conv2d,
    "Linear": lambda p, x, in_features, out_features: x @ p["weight"].T + p["bias"],
    "ReLU": lambda p, x: np.maximum(x, 0),
    "Sigmoid": lambda p, x: 1 / (1 + np.exp(-x)),
    "Flatten": lambda p, x: x.reshape(x.shape[0], -1),
    "ZeroPad2d": lambda p, x, padding: np.pad(x, ((0, 0), (0, 0), padding[2:], padding[:2])),
    "MaxPool2d": lambda p, x, kernel_size, stride=None: windows(x, kernel_size, stride or kernel_size).max((-1, -2)),
    "AvgPool2d": lambda p, x, kernel_size: windows(x, kernel_size, kernel_size).mean((-1, -2)),
}  # fmt: skip


def as_function(spec):
    """Layers as one NumPy function, with parameters under the names of `Sequential`."""

    def function(p, x):
        for i, (name, options) in enumerate(spec):
            x = STEPS[name](p.get(str(i)), x, **options)
        return x

    return function


def as_layers(spec):
    return gb.Sequential(*[getattr(layers, name)(**options) for name, options in spec], rng=0, dtype="float64")


def narrow(spec):
    """The same layers with a 32th of their channels, at least two, and those of 10 or fewer as they are."""
    few = {"in_channels", "out_channels", "in_features", "out_features"}
    return [(n, {k: v // 32 if k in few and v > 10 else v for k, v in options.items()}) for n, options in spec]

"""The networks of the comparison, as layer names and keywords that both frameworks understand."""

from __future__ import annotations

from typing import Any

Spec = list[tuple[str, dict[str, Any]]]


def conv(i: int, o: int, k: int, **keywords: Any) -> tuple[str, dict[str, Any]]:
    return "Conv2d", {"in_channels": i, "out_channels": o, "kernel_size": k, **keywords}


def linear(i: int, o: int) -> tuple[str, dict[str, Any]]:
    return "Linear", {"in_features": i, "out_features": o}


RELU: tuple[str, dict[str, Any]] = ("ReLU", {})
POOL: Spec = [("ZeroPad2d", {"padding": (0, 1, 0, 1)}), ("MaxPool2d", {"kernel_size": 3, "stride": 2})]


def three_c_three_d(before_last: str = "ReLU") -> Spec:
    """3c3d of the paper, 895,210 parameters."""
    convolutions = [conv(3, 64, 5), RELU, *POOL, conv(64, 96, 3), RELU, *POOL, conv(96, 128, 3, padding=1), RELU, *POOL]
    head = [("Flatten", {}), linear(1152, 512), RELU, linear(512, 256), (before_last, {}), linear(256, 10)]
    return [*convolutions, *head]


def all_cnn_c(classes: int = 100) -> Spec:
    """All-CNN-C of the paper without its dropout, 1,387,108 parameters for 100 classes, images of 32 × 32."""
    spec: Spec = []
    shapes = [(3, 96, 3, 1, 1), (96, 96, 3, 1, 1), (96, 96, 3, 2, 1), (96, 192, 3, 1, 1), (192, 192, 3, 1, 1)]
    shapes += [(192, 192, 3, 2, 1), (192, 192, 3, 1, 0), (192, 192, 1, 1, 0), (192, classes, 1, 1, 0)]
    for i, o, k, stride, padding in shapes:
        spec += [conv(i, o, k, stride=stride, padding=padding), RELU]
    return [*spec, ("AvgPool2d", {"kernel_size": 6}), ("Flatten", {})]


def logistic() -> Spec:
    """Logistic regression on 28 × 28 pixels."""
    return [("Flatten", {}), linear(784, 10)]


def mlp(between: str) -> Spec:
    """Three linear layers, 784-128-64-10."""
    return [linear(784, 128), (between, {}), linear(128, 64), (between, {}), linear(64, 10)]


SPECS = {
    "3c3d": (three_c_three_d(), (3, 32, 32), 10),
    "3c3d with one sigmoid": (three_c_three_d("Sigmoid"), (3, 32, 32), 10),
    "All-CNN-C": (all_cnn_c(), (3, 32, 32), 100),
    "logistic regression": (logistic(), (1, 28, 28), 10),
    "784-128-64-10 with sigmoids": (mlp("Sigmoid"), (784,), 10),
    "784-128-64-10 with ReLU": (mlp("ReLU"), (784,), 10),
}

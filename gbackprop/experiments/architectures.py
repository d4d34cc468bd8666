"""The layers of the four problems, as DeepOBS has them.

Source: Schneider, Balles, Hennig: "DeepOBS: A Deep Learning Optimizer Benchmark Suite", ICLR 2019.
"""

from gbackprop.layers import AvgPool2d, Conv2d, Dropout, Flatten, Layer, Linear, MaxPool2d, ReLU, ZeroPad2d


def same(size: int, kernel: int, stride: int = 1) -> ZeroPad2d:
    """Zeros around a square image such that ⌈size / stride⌉ windows fit: TensorFlow's "SAME"."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    before, after = total // 2, total - total // 2
    return ZeroPad2d((before, after, before, after))


def logreg() -> list[Layer]:
    """Logistic regression of 784 pixels in 10 classes."""
    return [Linear(784, 10)]


def net_2c2d() -> list[Layer]:
    """Two convolutions and two linear layers: ``[N, 1, 28, 28] -> [N, 10]``."""
    return [
        *(same(28, 5), Conv2d(1, 32, 5), ReLU(), MaxPool2d(2)),
        *(same(14, 5), Conv2d(32, 64, 5), ReLU(), MaxPool2d(2)),
        *(Flatten(), Linear(64 * 7 * 7, 1024), ReLU(), Linear(1024, 10)),
    ]


def net_3c3d() -> list[Layer]:
    """Three convolutions and three linear layers: ``[N, 3, 32, 32] -> [N, 10]``."""
    return [
        *(Conv2d(3, 64, 5), ReLU(), same(28, 3, 2), MaxPool2d(3, 2)),
        *(Conv2d(64, 96, 3), ReLU(), same(12, 3, 2), MaxPool2d(3, 2)),
        *(same(6, 3), Conv2d(96, 128, 3), ReLU(), same(6, 3, 2), MaxPool2d(3, 2)),
        *(Flatten(), Linear(128 * 3 * 3, 512), ReLU(), Linear(512, 256), ReLU(), Linear(256, 10)),
    ]


def net_allcnnc() -> list[Layer]:
    """Nine convolutions, of which two have a stride instead of pooling: ``[N, 3, 32, 32] -> [N, 100]``."""
    return [
        Dropout(0.2),
        *(same(32, 3), Conv2d(3, 96, 3), ReLU()),
        *(same(32, 3), Conv2d(96, 96, 3), ReLU()),
        *(same(32, 3, 2), Conv2d(96, 96, 3, stride=2), ReLU()),
        Dropout(0.5),
        *(same(16, 3), Conv2d(96, 192, 3), ReLU()),
        *(same(16, 3), Conv2d(192, 192, 3), ReLU()),
        *(same(16, 3, 2), Conv2d(192, 192, 3, stride=2), ReLU()),
        Dropout(0.5),
        *(Conv2d(192, 192, 3), ReLU()),
        *(Conv2d(192, 192, 1), ReLU()),
        *(Conv2d(192, 100, 1), ReLU()),
        *(AvgPool2d(6), Flatten()),
    ]

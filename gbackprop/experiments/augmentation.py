"""Random changes of training images, all images of a batch at once.

`augment` shifts and mirrors an image, then changes its brightness, saturation and contrast, in this order. The last
three are torchvision's: a blend of the image with something duller, clipped to [0, 1] after each.
"""

import numpy as np

PADDING = 2
BRIGHTNESS = (1 - 63 / 255, 1 + 63 / 255)
SATURATION = (0.5, 1.5)
CONTRAST = (0.2, 1.8)
LUMA = (0.299, 0.587, 0.114)
"""The weights of red, green and blue in grey (ITU-R BT.601)."""


def augment(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Change images at random, each in its own way."""
    samples = len(x)
    rows, columns = (rng.integers(0, 2 * PADDING + 1, samples) for _ in range(2))
    x = crop(x, rows, columns)
    x = mirror(x, rng.random(samples) < 0.5)
    x = brightness(x, rng.uniform(*BRIGHTNESS, samples))
    x = saturation(x, rng.uniform(*SATURATION, samples))
    return contrast(x, rng.uniform(*CONTRAST, samples))


def crop(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Put `PADDING` zeros around each image and cut one of its size out."""
    border = (PADDING, PADDING)
    padded = np.pad(x, ((0, 0), (0, 0), border, border))
    windows = np.lib.stride_tricks.sliding_window_view(padded, x.shape[2:], axis=(2, 3))
    return windows[np.arange(len(x)), :, rows, columns]


def mirror(x: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Swap left and right of the chosen images."""
    return np.where(chosen[:, None, None, None], x[..., ::-1], x)


def brightness(x: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """f x, clipped to [0, 1]."""
    return _blend(x, np.zeros((), np.float32), factor)


def saturation(x: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """f x + (1 - f) g with g the grey of each pixel, clipped to [0, 1]."""
    return _blend(x, _grey(x), factor)


def contrast(x: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """f x + (1 - f) m with m the mean grey of each image, clipped to [0, 1]."""
    return _blend(x, _grey(x).mean((1, 2, 3), keepdims=True), factor)


def _grey(x: np.ndarray) -> np.ndarray:
    red, green, blue = (np.float32(share) * x[:, channel] for channel, share in enumerate(LUMA))
    return (red + green + blue)[:, None]


def _blend(x: np.ndarray, dull: np.ndarray, factor: np.ndarray) -> np.ndarray:
    factor = factor.astype(np.float32)[:, None, None, None]
    mixed = factor * x
    mixed += (1 - factor) * dull
    return np.clip(mixed, 0, 1, out=mixed)

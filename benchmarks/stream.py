"""The memory of `gb.accumulate` while a data set that is generated on the fly goes through.

    python benchmarks/stream.py --gigabytes 50

prints, for each gigabyte, the peak of the resident set so far. It must not grow with the data set.
"""

import argparse
import resource
import sys
from collections.abc import Iterator

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses, quantities

FEATURES, CLASSES, SAMPLES = 3 * 32 * 32, 10, 1024
BATCH_BYTES = SAMPLES * FEATURES * 4


def generated(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of images and labels, each drawn from its number."""
    for number in range(count):
        rng = np.random.default_rng(number)
        yield rng.random((SAMPLES, FEATURES), dtype=np.float32), rng.integers(0, CLASSES, SAMPLES)


def main() -> None:
    """Stream the data set through `gb.accumulate`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=50.0, help="size of the data set (default: 50)")
    parser.add_argument("--executor", default="threads", help="as for gb.accumulate (default: threads)")
    parser.add_argument("--workers", type=int, help="batches at a time (default: one a processor)")
    options = parser.parse_args()
    count = max(1, round(options.gigabytes * 1e9 / BATCH_BYTES))
    each = max(1, round(1e9 / BATCH_BYTES))

    def report(done: int, total: int | None) -> None:
        if done % each == 0 or done == count:
            print(f"{done * BATCH_BYTES / 1e9:6.1f} GB, peak of RSS {peak():6.0f} MiB", flush=True)

    net = gb.Sequential(layers.Linear(FEATURES, 64), layers.Sigmoid(), layers.Linear(64, CLASSES), rng=0)
    asked = quantities.Variance(), quantities.DiagGGN(), quantities.KFAC(), quantities.BatchL2Grad()
    print(f"network and package: {peak():.0f} MiB")
    result = gb.accumulate(
        net, losses.CrossEntropyLoss(), generated(count), *asked,
        rng=0, executor=options.executor, workers=options.workers, progress=report,
    )  # fmt: skip
    print(result)


def peak() -> float:
    """Return the largest resident set of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()

"""What a device double keeps count of: transfers, kernels, memory; and which device is the current one."""

import sys
import threading
from pathlib import Path

import gbackprop

PACKAGE = Path(gbackprop.__file__).parent
MEMORY = 2**33

local = threading.local()


class OutOfMemoryError(MemoryError):
    """As `cupy.cuda.memory.OutOfMemoryError`."""


class Ledger:
    """The calls of the device since `clear`, and the bytes that live there."""

    def __init__(self):
        self.lock = threading.RLock()  # collecting garbage in between gives arrays back, in this thread
        self.used, self.limit = 0, MEMORY
        self.clear()

    def clear(self):
        self.transfers, self.operations, self.peak = [], 0, self.used

    def transfer(self, direction):
        where = asker()
        with self.lock:
            self.transfers.append((direction, where))

    def launch(self):
        with self.lock:
            self.operations += 1

    def allocate(self, size):
        with self.lock:
            if self.used + size > self.limit:
                raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes (allocated so far: {self.used:,}).")
            self.used += size
            self.peak = max(self.peak, self.used)


ledger = Ledger()


def asker():
    """The function of the package, outside `array`, that leads to here: "losses.base.Loss.draw"."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE) and path.name != "array.py":
            return ".".join([*path.relative_to(PACKAGE).with_suffix("").parts, frame.f_code.co_qualname])
        frame = frame.f_back
    return "caller"


class Device:
    """As `cupy.cuda.Device`: a context that makes it the thread's current device; each thread starts on device 0."""

    def __init__(self, id=None):
        self.id = current_device() if id is None else int(id)

    def __enter__(self):
        self.before, local.device = [*getattr(self, "before", []), current_device()], self.id
        return self

    def __exit__(self, *error):
        *self.before, local.device = self.before

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    __hash__ = None

    def synchronize(self):
        ledger.transfer("wait")


def current_device():
    return getattr(local, "device", 0)

"""A layer that kills the process that computes it, for tests in which processes die."""

import os
import signal
from pathlib import Path

from gbackprop.layers import Layer


class Mortal(Layer):
    """The identity, which at a batch of `size` samples dies; once if it can leave a note, else always."""

    def __init__(self, note: Path | None, size: int) -> None:
        self.note, self.size, self.parent = note, size, os.getpid()

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        if len(x) == self.size and os.getpid() != self.parent and not (self.note and self.note.exists()):
            if self.note:
                self.note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x, None

    def mjp(self, saved, mat):
        return mat

    jmp = mjp

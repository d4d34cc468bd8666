"""A loss, a layer, a container, a quantity and a plain object of a user's own, with attributes that no text shows."""

import hashlib
import threading
import weakref
from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial, update_wrapper
from pathlib import Path

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.signals import GRADIENT


class ScaledLoss(losses.MSELoss):
    """MSELoss times a number that is an attribute."""

    note = None

    def __init__(self, times=1.0):
        super().__init__()
        self.times = times

    def values(self, output, target):
        return self.times * super().values(output, target)

    def gradients(self, output, target):
        return self.times * super().gradients(output, target)


class Multiplied(layers.Layer):
    """x times a factor that is an attribute."""

    note = None
    factor = 1.0

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.factor * x, None

    def jmp(self, saved, mat):
        return self.factor * mat

    mjp = jmp


class Chain(gb.Sequential):
    note = None


class Powers(q.Quantity):
    """The second moment to a power that is an attribute."""

    name, scale = "powers", "none"
    merging = gb.data.Summed()
    power = 1
    note = None

    def statistics(self):
        return (q.Statistic("square", GRADIENT),)

    def finish(self, scale, square):
        return square**self.power


class Wrapper:
    """A function with an option, by the function's name."""

    def __init__(self, function, option):
        update_wrapper(self, function)
        self.option = option


class Slotted:
    __slots__ = ("__hidden", "seen")

    def __init__(self, hidden):
        self.__hidden = hidden


@dataclass
class Plain:
    value: object = None

    @cached_property
    def derived(self):
        return 3


class Colour(Enum):
    RED = 1
    BLUE = 2


def enclosing(number):
    return lambda x: number * x


def every_kind():
    """An object of each kind whose digest is the same in each process."""
    rng, cyclic = np.random.default_rng(3), Plain()
    rng.random(5)
    cyclic.value = [cyclic, {"again": cyclic}]
    words = {"a", "b", "c", 3, None, ("x", 1.0)}
    kinds = [Colour.RED, Path("a/b"), 1 + 2j, b"\0", "\ud800", -(10**5000), float("nan"), range(3), slice(1), Plain]
    kinds += [np.float32(3), np.dtype("f4"), np.arange(6).reshape(2, 3).T, np.ma.masked_array([1, 2], [0, 1]), np.exp]
    kinds += [np.array(["x", None, {1}], object), np.array([(1, 2.0)], "i4,f8"), hashlib.md5, len, threading, object()]
    kinds += [words, frozenset(words), OrderedDict(a=1), Counter("abca"), enclosing(3), partial(enclosing, number=2)]
    return [*kinds, rng, np.random.RandomState(2), cyclic, Slotted([1]), Slotted, threading.Lock(), weakref.ref(Plain)]

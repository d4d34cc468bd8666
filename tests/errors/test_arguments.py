"""Arguments that a constructor lacks are told with the class that the user wrote, and with what it takes."""

import copy
import pickle
from dataclasses import dataclass

import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q

CONV = "; it takes in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias"
NET = gb.Sequential(layers.Linear(2, 2), rng=0)


class Mine(layers.Conv2d):
    """A subclass without a constructor of its own."""


WRONG = [
    (lambda: layers.Conv2d(1, 2, 3, device="cpu"), "Conv2d has no argument 'device'" + CONV),
    (lambda: Mine(1, 2, 3, a=1, b=2), "Mine has no argument 'a', 'b'" + CONV),
    (lambda: layers.Conv2d(1, 2), "Conv2d: missing a required argument: 'kernel_size'" + CONV),
    (lambda: layers.Conv2d(1, 2, 3, 1, 0, 1, 1, True, "zeros", 5), "Conv2d: too many positional arguments" + CONV),
    (lambda: layers.Linear(2, 2, device="cpu"), "Linear has no argument 'device'; it takes in_features, "),
    (lambda: layers.ReLU(inplace=True), "ReLU has no argument 'inplace'; it takes none"),
    (lambda: layers.Identity(54), "Identity: too many positional arguments; it takes none"),
    (lambda: gb.Sequential(layers.ReLU(), seed=0), "Sequential has no argument 'seed'; it takes *layers, rng, dtype"),
    (lambda: losses.MSELoss(weight=1), "MSELoss has no argument 'weight'; it takes reduction"),
    (lambda: losses.CrossEntropyLoss(weights=1), "'weights'; it takes reduction, weight, ignore_index, label_"),
    (lambda: optim.SGD(NET, 0.1, dampening=1), "SGD has no argument 'dampening'; it takes network, lr, momen"),
    (lambda: q.KFAC(samples=3), "KFAC has no argument 'samples'; it takes mc_samples, targets"),
    (lambda: q.DiagGGN(mc_samples=3), "DiagGGN has no argument 'mc_samples'; it takes none"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message.split(";")[0] for _, message in WRONG])
def test_wrong_arguments_are_told_with_the_class(make, message):
    refuse(TypeError, [message], make)


def test_errors_inside_a_constructor_are_left_alone():
    class Broken(layers.Layer):
        def __init__(self, size, **others):
            self.size = size + "1"

    refuse(TypeError, ["unsupported operand"], lambda: Broken(1, more=2))
    refuse(TypeError, ["Broken: missing a required argument: 'size'; it takes size, **others"], lambda: Broken(more=2))


def test_constructors_of_other_bases_and_dataclasses_get_their_arguments():
    class Named:
        def __new__(cls, name):
            new = super().__new__(cls)
            new.name = name
            return new

        def __init__(self, name):
            self.length = len(name)

    class Both(layers.Layer, Named):
        """A layer with another class's constructor."""

    @dataclass
    class Data(layers.Layer):
        slope: float = 0.1

    assert (Both("abc").name, Both("abc").length, Data(0.3).slope) == ("abc", 3, 0.3)
    refuse(TypeError, ["Data has no argument 'slop'; it takes slope"], lambda: Data(slop=1))


@pytest.mark.parametrize("made", [layers.Conv2d(1, 2, 3), losses.MSELoss("sum"), q.KFAC(3), layers.ReLU()], ids=repr)
def test_copies_are_made_without_arguments(made):
    assert repr(copy.deepcopy(made)) == repr(pickle.loads(pickle.dumps(made))) == repr(made)

"""Constructors that bear the names of torch.nn's have its parameters and its defaults, but for a short list."""

import inspect

import pytest

import gbackprop as gb
from gbackprop import layers, losses

torch = pytest.importorskip("torch")

KINDS = {name: kind for name, kind in vars(torch.nn).items() if isinstance(kind, type)}
MODULES = {name for name, kind in KINDS.items() if issubclass(kind, torch.nn.Module)}
CLASSES = {
    name: getattr(room, name)
    for room in (layers, losses, gb)
    for name in room.__all__
    if name in MODULES and name != "Sequential"  # which has parts, and no defaults
}
BATCH_FIRST = dict.fromkeys(["RNN", "LSTM", "GRU", "MultiheadAttention", "TransformerEncoderLayer"], (True, False))
DIFFERENT = {
    "batch_first": BATCH_FIRST,  # axis 0 is the batch, of everything
    # a label that is no class is an error, unless it is asked for
    "ignore_index": dict.fromkeys(["CrossEntropyLoss", "NLLLoss"], (None, -100)),
}
"""By parameter and class: the default here, and torch's."""

OWN = {
    "rng": {"RNN", "LSTM", "GRU", "MultiheadAttention", "TransformerEncoderLayer"},  # where parameters are drawn from
    "is_causal": {"MultiheadAttention", "TransformerEncoderLayer"},  # torch takes a mask in each call
}
"""Parameters that torch lacks, with their classes."""


def parameters_of_torch(name):
    kind = getattr(torch.nn, name)
    is_recurrent = issubclass(kind, torch.nn.RNNBase)  # whose own signatures are *args and **kwargs
    given = inspect.signature(torch.nn.RNNBase if is_recurrent else kind).parameters
    found = {key: parameter.default for key, parameter in given.items()}
    if name == "RNN":
        found["nonlinearity"] = torch.nn.RNN(2, 3).nonlinearity
    return {key: value.__name__ if inspect.isroutine(value) else value for key, value in found.items()}


def test_every_default_is_torchs_but_for_those_that_are_listed():
    different, own = {}, {}
    for name, kind in CLASSES.items():
        theirs = parameters_of_torch(name)
        for key, parameter in inspect.signature(kind).parameters.items():
            if key not in theirs:
                own.setdefault(key, set()).add(name)
            elif parameter.default != theirs[key]:
                different.setdefault(key, {})[name] = parameter.default, theirs[key]
    assert len(CLASSES) > 80
    assert different == DIFFERENT
    assert own == OWN

"""The table of cases: no two rows are equal, and each option of a layer or loss is not its default in some row.

That is what a row has to bring: its sizes may be others, so that `tests/mutants/changes.py` leaves them as they are.
"""

import inspect
import re
from collections import Counter, defaultdict
from unittest.mock import patch

import numpy as np

from gbackprop.losses.bit_weights import BitWeights
from gbackprop.testing.cases import ALL_LAYERS, LAYERS, LOSSES, NETWORKS
from gbackprop.testing.cases.loss_rows import targets
from gbackprop.testing.cases.sequences import SEQUENCES

ELSEWHERE = {
    "BatchNorm": {"track_running_stats"},
    "InstanceNorm": {"momentum", "track_running_stats"},
    "Upsample": {"mode"},
    "MultiheadAttention": {"batch_first", "kdim", "vdim", "add_bias_kv", "add_zero_attn", "dropout", "dtype", "rng"},
    "RNN": {"batch_first", "nonlinearity", "proj_size", "dropout", "dtype", "rng"},
    "TransformerEncoderLayer": {"batch_first", "bias", "dropout", "is_causal", "dtype", "rng"},
}
"""Options with one value here, and those that the tests of these layers check, in tests/layers and tests/interop."""


def options(kind):
    """Return the defaults of the options of a class."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name != "reduction"}


def given(kind, make):
    """Return the options that an object is made with which are not defaults."""
    init, calls = kind.__init__, []

    def record(self, *args, **named):
        calls.append(inspect.signature(init).bind(self, *args, **named).arguments)
        init(self, *args, **named)

    with patch.object(kind, "__init__", record):
        make()
    return {name for name, default in options(kind).items() if repr(calls[0].get(name, default)) != repr(default)}


def test_each_option_of_a_layer_is_not_its_default_in_some_row():
    every, seen = defaultdict(set), defaultdict(set)
    for row in (*LAYERS, *SEQUENCES):
        family = re.sub("LSTM|GRU", "RNN", re.sub("[123]d$", "", row.kind.__name__))
        every[family] |= options(row.kind).keys()
        seen[family] |= given(row.kind, row.make)
    missing = {family: names - seen[family] for family, names in every.items()}
    assert {family: names for family, names in missing.items() if names} == ELSEWHERE


def test_a_layer_whose_jacobian_is_the_same_for_each_sample_says_so():
    unsaid = set()
    for row in LAYERS:
        layer, x = row.layer(np.random.default_rng(0)), row.x(rng=np.random.default_rng(4))
        columns = np.random.default_rng(2).standard_normal((1, 1, *layer.output_shape(x.shape[1:])))
        carried = layer.mjp(layer.forward(x)[1], columns.repeat(len(x), 1))
        same = not (carried - carried[:, :1]).any()
        unsaid |= {type(layer).__name__} if same and not layer.constant_jacobian else set()
    assert unsaid == {"Dropout", "Hardsigmoid"}  # in training it draws; between its kinks


def test_each_option_of_a_loss_is_not_its_default_in_some_row():
    for kind in {row.kind for row in LOSSES}:
        rows = [row for row in LOSSES if row.kind is kind]
        assert set().union(*[given(kind, row.loss) for row in rows]) == options(kind).keys(), kind


def test_no_two_rows_are_equal():
    rows = [f"{row.loss()!r} on {row.shape}, {row.soft}" for row in LOSSES] + [*map(str, ALL_LAYERS)]
    rows += [f"{row.make()!r}, {row.loss!r} on {row.batch_shape}" for row in NETWORKS]
    assert [row for row, count in Counter(rows).items() if count > 1] == []


def test_targets_of_bits_are_0_and_1_and_what_is_between():
    for row in LOSSES:
        if issubclass(row.kind, BitWeights):
            found = targets(row.kind(), (64, 4), 0)
            assert {*found[(found == 0) | (found == 1)].tolist()} == {0, 1}
            assert 0.2 < ((found > 0) & (found < 1)).mean() < 0.8

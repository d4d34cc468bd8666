"""Digests of objects are those of their copies in any process, and others where any attribute is another one."""

import copy
import functools
import os
import pickle
import subprocess
import sys
from enum import Enum
from pathlib import Path

import foreign
import numpy as np
import pytest
from around import around
from hypothesis import given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers
from gbackprop.calculus.state import Watch, digest, digests_of, parts_of
from gbackprop.testing.cases import LAYERS

ROOT = Path(__file__).parents[2]


def arrays():
    made = st.builds(np.array, st.lists(st.integers(0, 2), max_size=3), dtype=st.sampled_from(["f4", "f8", "i8"]))
    return made | made.map(lambda array: array[None])


LEAVES = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, -0.0, 1.0, 0.5])
LEAVES |= st.text("ab", max_size=2)
LEAVES |= arrays() | st.sampled_from([b"a", 1j, np.float32(1), np.int64(1)]) | st.frozensets(st.text("ab"), max_size=2)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2)
        | st.builds(foreign.Plain, inner)
        | st.builds(foreign.Slotted, inner)
    ),
    max_leaves=4,
)


def spelled(value):
    """Return a value written out: an account of its own of what counts."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tolist()}"
    if isinstance(value, frozenset):
        return f"set {sorted(value)}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} {[spelled(each) for each in value]}"
    if isinstance(value, dict):
        return f"dict {[(key, spelled(each)) for key, each in value.items()]}"
    if isinstance(value, foreign.Plain):
        return f"Plain {spelled(value.value)}"
    if isinstance(value, foreign.Slotted):
        return f"Slotted {spelled(value._Slotted__hidden)}"
    return f"{type(value)} {value!r}"


def called():
    """Network, loss and quantity of a user's own, the network with a container inside."""
    inner = foreign.Chain(foreign.Multiplied(), layers.Linear(2, 2))
    return gb.Sequential(inner, rng=0), foreign.ScaledLoss(), foreign.Powers()


PLACES = {
    "layer 0.0": lambda net, loss, quantity: net.layers[0].layers[0],
    "layer 0": lambda net, loss, quantity: net.layers[0],
    "loss": lambda net, loss, quantity: loss,
    "quantity 0": lambda net, loss, quantity: quantity,
}


@settings(max_examples=60)
@given(VALUES, VALUES, st.sampled_from(sorted(PLACES)))
def test_any_attribute_of_any_part_counts(one, other, place):
    net, loss, quantity = called()
    changed = PLACES[place](net, loss, quantity)
    changed.note = one
    before = digests_of(parts_of(net, loss, [quantity]))[0]
    watch = Watch(net, loss, [quantity])
    assert digests_of(parts_of(*pickle.loads(pickle.dumps((net, loss, [quantity])))))[0] == before
    changed.note = copy.deepcopy(one)
    assert watch.changed() is None
    changed.note = other
    after = digests_of(parts_of(net, loss, [quantity]))[0]
    differ = [name for name in after if before[name] != after[name]]
    assert differ == ([] if spelled(one) == spelled(other) else [place])
    assert ((watch.changed() or "").partition(",")[0] or None) == (differ[0] if differ else None)


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: foreign.Plain([[1]]), lambda it: it.value[0].append(2)),
        (lambda: foreign.Plain({"a": {"b": 1}}), lambda it: it.value["a"].update(b=2)),
        (lambda: foreign.Plain({1}), lambda it: it.value.add(2)),
        (lambda: foreign.Plain(np.zeros(3)), lambda it: it.value.fill(1)),
        (lambda: foreign.Plain(np.array([[1]], object)), lambda it: it.value[0].fill(2)),
        (lambda: foreign.Plain(np.random.default_rng(0)), lambda it: it.value.random()),
        (lambda: foreign.Plain(foreign.Slotted(1)), lambda it: setattr(it.value, "seen", None)),
        (lambda: foreign.Plain(foreign.enclosing(2)), lambda it: setattr(it, "value", foreign.enclosing(3))),
        (lambda: foreign.Plain(lambda x: x), lambda it: setattr(it, "value", lambda x: 2 * x)),
        (lambda: foreign.Plain(lambda x=1: x), lambda it: setattr(it.value, "__defaults__", (2,))),
        (lambda: foreign.Plain(foreign.Colour.RED), lambda it: setattr(it, "value", foreign.Colour.BLUE)),
        (lambda: foreign.Plain(foreign.Counter(a=1)), lambda it: it.value.update("a")),
        (lambda: foreign.Plain(foreign.Wrapper(foreign.enclosing, 1)), lambda it: setattr(it.value, "option", 2)),
        (lambda: foreign.Plain(np.datetime64(1, "s")), lambda it: setattr(it, "value", np.datetime64(1, "D"))),
    ],
)
def test_a_change_within_an_attribute_is_noticed(make, change):
    net, loss, _ = called()
    loss.note = make()
    watch, before = Watch(net, loss), digest(loss)
    assert digest(loss) == before
    change(loss.note)
    assert digest(loss) != before
    assert watch.changed().startswith("loss, ScaledLoss(")


@pytest.mark.parametrize(
    ("name", "value"),
    [("note", {"a": [1]}), ("values", lambda self, *given: 1), ("extra", 1)],
    ids=["note", "values", "extra"],
)
def test_what_is_changed_in_a_class_is_noticed(name, value, monkeypatch):
    net, loss, _ = called()
    watch, before = Watch(net, loss), digest(loss)
    monkeypatch.setattr(foreign.ScaledLoss, name, value, raising=False)
    assert digest(loss) != before
    assert watch.changed() is not None
    monkeypatch.undo()
    assert digest(loss) == before
    assert watch.changed() is None
    monkeypatch.setattr(layers.Linear, "mjp", lambda self, saved, mat: mat)
    assert watch.changed() == "class Linear"


def test_what_a_function_has_cached_does_not_count():
    cached = functools.lru_cache(foreign.enclosing)
    before = digest(cached)
    cached.seen = cached(2)
    assert digest(cached) == before != digest(functools.lru_cache(foreign.every_kind))


def test_what_changes_no_number_does_not_count():
    it = foreign.Plain(3)
    before = digest(it)
    assert it.derived == 3
    assert digest(it) == before
    source = "def f(x):\n    {}\n    return x"
    one, other = {}, {}
    exec(source.format("'''A function.'''"), one)
    exec(source.format("'''The same,\n    in other words.'''\n    # and with a comment"), other)
    assert digest(one["f"]) == digest(other["f"])


def test_what_is_set_to_the_value_of_the_class_is_as_if_it_was_not_set():
    plain, layer = layers.Linear(2, 2), layers.Linear(2, 2)
    layer.frozen, layer.shown = frozenset(), tuple(layer.shown)
    assert digest(layer) == digest(plain)
    layer.frozen = frozenset({"bias"})
    assert digest(layer) != digest(plain)


def test_every_layer_is_its_copy():
    for row in LAYERS:
        net = around(row)
        if "draw" not in vars(net.layers[2]):  # a function of the table's, which cannot be pickled
            assert digest(net) == digest(pickle.loads(pickle.dumps(net)))


def test_attributes_of_a_function_count_unless_it_is_a_librarys(monkeypatch):
    """Importing torch writes one into a function of Python's, to which each enumeration refers."""
    library, own = foreign.Plain(foreign.Colour.RED), foreign.Plain(foreign.enclosing(2))
    net, loss, _ = called()
    loss.note = [library]
    watch, before = Watch(net, loss), [digest(library), digest(own)]
    with monkeypatch.context() as patch:
        patch.setattr(Enum.__new__, "mark", 1, raising=False)
        assert digest(library) == before[0]
        assert watch.changed() is None
    own.value.mark = 1
    assert digest(own) != before[1]


def test_another_process_finds_the_same():
    script = "import foreign; from gbackprop.calculus.state import digest; print(*map(digest, foreign.every_kind()))"
    paths = os.pathsep.join(map(str, [ROOT, ROOT / "tests" / "helpers"]))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "11", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    mine = [digest(each) for each in foreign.every_kind()]
    assert done.stdout.split() == mine
    assert len(set(mine)) == len(mine)


class Items:
    """An object whose items are what its class reduces it to, behind a state."""

    def __init__(self, *items):
        self.items = items

    def __reduce__(self):
        return Items, (), None, iter(self.items)


def test_items_of_a_reduced_object_count():
    assert digest(Items(1, 2)) == digest(Items(1, 2)) != digest(Items(1, 3))


def test_a_layer_at_two_places_is_one_part():
    shared = layers.Tanh()
    found = parts_of(gb.Sequential(shared, gb.Sequential(shared, layers.ReLU())))
    assert found.keys() == {"network", "layer 0", "layer 1", "layer 1.1"}

"""The registry of fast forms: who has the functions of a row's class has its forms, and nobody else."""

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.views import Seen
from gbackprop.engine.forms import FORMS
from gbackprop.engine.forms.conv import TiledOuter
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, find

CE = losses.CrossEntropyLoss()
RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((5, 4)), RNG.integers(0, 2, 5)


def network(*between):
    return gb.Sequential(
        layers.Linear(4, 3), layers.ReLU(), *between, layers.Linear(3, 2), rng=0, dtype="float64"
    )


def agrees(net, x=X, y=Y, *asked):
    """Hold the two engines against each other; gives the fast one's result."""
    asked = asked or (q.DiagGGN(), q.BatchGrad(), q.KFAC())
    fast, plain = (call(net, CE, x, y, *asked, rng=0) for call in (gb.backward, gb.reference))
    pairs = [(fast.gradient, plain.gradient)]
    for one in asked:
        kronecker = isinstance(one, q.KFAC)
        pairs.append([{n: v.B if kronecker else v for n, v in result[one].items()} for result in (fast, plain)])
    for got, want in pairs:
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-12 * np.abs(value).max())
    return fast


# ----------------------------------------------------------------------------------------- functions that nobody knows


class Keeps(layers.Identity):
    """Keeps what it got, behind the name and module of the function that it wraps."""

    @functools.wraps(layers.Identity.mjp)
    def mjp(self, saved, mat):
        self.seen, self.copy = mat, mat.copy()
        return mat


def test_what_a_wrapped_function_keeps_is_not_written_over():
    layer = Keeps()
    agrees(network(layer))
    np.testing.assert_array_equal(layer.seen, layer.copy)


def test_what_a_wrapped_function_of_an_object_keeps_is_not_written_over():
    layer, seen = layers.Identity(), []

    @functools.wraps(layer.mjp)
    def mjp(saved, mat):
        seen.append((mat, mat.copy()))
        return mat

    layer.mjp = mjp
    agrees(network(layer))
    for given, copy in seen:
        np.testing.assert_array_equal(given, copy)


def test_a_function_without_a_module_is_called():
    names = {"layers": layers}
    exec("class Negative(layers.Identity):\n    def mjp(self, saved, mat):\n        return -mat\n", names)
    names["Negative"].mjp.__module__ = None
    both = layers.Identity(), names["Negative"]()
    plain, negative = (agrees(network(layer)).gradient["0.weight"] for layer in both)
    np.testing.assert_allclose(negative, -plain, rtol=1e-12)


def test_a_function_made_by_exec_is_called():
    names = {}
    exec("def mjp(self, saved, mat):\n    return -mat\n", names)

    class Negative(layers.Identity):
        mjp = names["mjp"]

    plain, negative = (agrees(network(layer)).gradient["0.weight"] for layer in (layers.Identity(), Negative()))
    np.testing.assert_allclose(negative, -plain, rtol=1e-12)


def test_a_patched_object_is_called():
    layer = layers.ReLU()
    net = gb.Sequential(layers.Linear(4, 3), layer, layers.Linear(3, 2), rng=0, dtype="float64")
    with mock.patch.object(layer, "mjp", side_effect=lambda saved, mat: 0 * mat) as patched:
        assert not gb.backward(net, CE, X, Y).gradient["0.weight"].any()
    assert patched.call_count == 1


def test_a_method_of_another_object_is_that_objects():
    """A bound method set on another layer: the form is of the object that it is bound to."""
    one, other = (layers.Linear(3, 3) for _ in range(2))
    net = network(one)
    other.dtype = "float64"
    other.initialize(np.random.default_rng(5))
    one.mjp = other.mjp
    want = agrees(net).gradient["0.weight"]
    one.mjp = lambda saved, mat: mat @ other.parameters["weight"]
    np.testing.assert_allclose(agrees(net).gradient["0.weight"], want, rtol=1e-12)


IMAGES = RNG.standard_normal((3, 2, 6, 6)), RNG.integers(0, 2, 3)
OVERRIDES = [
    (layers.Conv2d, (2, 2, 3), "forward"), (layers.Conv2d, (2, 2, 3), "mjp"),
    (layers.Conv2d, (2, 2, 3), "parameter_jacobians"), (layers.MaxPool2d, (2,), "forward"),
    (layers.MaxPool2d, (2,), "mjp"), (layers.AvgPool2d, (2,), "mjp"), (layers.ZeroPad2d, (1,), "mjp"),
    (layers.Sigmoid, (), "forward"), (layers.Sigmoid, (), "mjp"), (layers.MaxPool2d, (2,), "average"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "method"), OVERRIDES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_a_subclass_with_a_method_of_its_own_is_asked_for_it(kind, arguments, method):
    """Its own method gives what the parent's gives, and counts how often it is asked."""
    counts = []

    def own(self, *given):
        counts.append(1)
        return getattr(kind, method)(self, *given)

    made = type("Own", (kind,), {method: own})(*arguments)
    net = gb.Sequential(layers.Conv2d(2, 2, 3, padding=1), made, layers.Flatten(), rng=0, dtype="float64")
    size = net.output_shape((2, 6, 6))[0]
    net = gb.Sequential(*net, layers.Linear(size, 2), rng=0, dtype="float64")
    asked = [q.DiagGGN(), q.KFRA()]
    want = gb.reference(net, CE, *IMAGES, *asked)
    by_plain = len(counts)
    counts.clear()
    got = gb.backward(net, CE, *IMAGES, *asked)
    assert len(counts) >= 1
    assert by_plain >= 1
    for name, value in want["diag_ggn"].items():
        np.testing.assert_allclose(got["diag_ggn"][name], value, rtol=1e-10)
        np.testing.assert_allclose(got["kfra"][name].B, want["kfra"][name].B, rtol=1e-10, atol=1e-14)


REDUCED = ["sum", "batch", "square", "batch_square", "square_norm", "kronecker", "input_square"]


@pytest.mark.parametrize("method", REDUCED)
def test_a_jacobian_with_a_reduction_of_its_own_is_asked_for_it(method):
    def own(self, *given):
        return 100 * getattr(layers.Outer, method)(self, *given)

    layer, context = layers.Linear(4, 3), Context(FORMS, Allocator())
    layer.dtype = "float64"
    saved = layer.forward(X)[1]
    plain, changed = (context.jacobians(layer, saved)["weight"] for _ in range(2))
    changed.__class__ = type("Own", (layers.Outer,), {method: own})
    given = () if method == "input_square" else (RNG.standard_normal((2, 5, 3)), None)
    reduction = REDUCTIONS[method]
    want = 100 * context.reduce(plain, reduction, *given)
    np.testing.assert_allclose(context.reduce(changed, reduction, *given), want, rtol=1e-12)


# ------------------------------------------------------------------------------------------------------ without forms


SCRIPT = """
import numpy as np
import gbackprop as gb
from gbackprop import layers, losses, operators, quantities as q

net = gb.Sequential(
    layers.Conv2d(1, 3, 3, padding=1), layers.Sigmoid(), layers.MaxPool2d(2), layers.Dropout(0.2), layers.Flatten(),
    layers.Linear(27, 4), rng=0, dtype="float64",
)
rng = np.random.default_rng(0)
x, y = rng.standard_normal((6, 1, 6, 6)), rng.integers(0, 4, 6)
asked = [q.BatchGrad(), q.Variance(), q.DiagHessian(), q.KFAC(), q.KFLR()]
result = gb.backward(net, losses.CrossEntropyLoss(), x, y, *asked, rng=1, training=True, sample_block=2)
arrays = [result.loss, *result.gradient.values(), *(v for one in asked[:3] for v in result[one].values())]
for kind in (operators.GGN, operators.Hessian):
    product = kind(net, losses.CrossEntropyLoss(), (x, y))
    arrays.append(product @ rng.standard_normal(product.shape[0]))
for value in arrays:
    print(repr(float(np.abs(value).sum())))
"""


def test_a_reader_can_delete_the_fast_forms(tmp_path):
    """The package without the folders of forms and kernels, and with an empty registry, gives the same numbers.

    Operators need none of them, but what is made with operators is left out.
    """
    package = Path(gb.__file__).parent
    copy = tmp_path / "copy" / "gbackprop"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    gone = ["curvature/laplace", "curvature/influence", "curvature/spectra", "interop/files"]
    for folder in ["engine/forms", "engine/kernels", *gone]:
        shutil.rmtree(copy / folder)
    (copy / "engine" / "forms.py").write_text("from gbackprop.engine.registry import Forms\n\nFORMS = Forms()\n")
    text = (copy / "__init__.py").read_text()
    names, text = text[text.index("__all__") :], text[: text.index("__all__")]
    text = re.sub(r"^from gbackprop\.(engine\.kernels\.precision|interop\.files) import .*\n", "", text, flags=re.M)
    for name in (*[folder.rpartition("/")[2] for folder in gone], "load_result", "save", "tf32"):
        text = re.sub(rf" {name},|, {name}\b", "", text)
        names = names.replace(f'    "{name}",\n', "")
    (copy / "__init__.py").write_text(text + names)
    printed = []
    for folder in (package.parent, copy.parent):
        run = subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        printed.append([float(line) for line in run.stdout.split()])
    assert len(printed[0]) == 19
    np.testing.assert_allclose(printed[1], printed[0], rtol=1e-11)


# ---------------------------------------------------------------------------------------------------------- whose rows


def overriding(kind, **body):
    return type("Own", (kind,), body)


UNRELATED = {
    "__repr__": lambda self: "own",
    "__doc__": "Own.",
    "describe": lambda self: "own",
    "output_shape": lambda self, shape: shape,
    "more": lambda self: 1,
}


@pytest.mark.parametrize("name", UNRELATED)
def test_what_no_form_depends_on_ends_no_row(name):
    own = overriding(layers.Sigmoid, **{name: UNRELATED[name]})()
    assert find(FORMS, own) is FORMS[layers.Sigmoid]


@pytest.mark.parametrize("name", ["forward", "mjp", "jmp", "average", "forward_training"])
def test_a_method_of_a_subclass_ends_all_forms_of_its_row(name):
    kind = layers.MaxPool2d
    own = overriding(kind, **{name: lambda self, *given: getattr(kind, name)(self, *given)})(2)
    assert find(FORMS, kind(2)) is not None
    assert find(FORMS, own) is None


def test_a_row_of_a_base_class_is_taken_if_it_is_valid():
    """ReLU's row holds its own values; that of all elementwise layers calls those of the layer."""
    own = overriding(layers.ReLU, first=lambda self, x, y: 2.0 * (x > 0))()
    assert find(FORMS, own) is FORMS[layers.Elementwise]
    assert find(FORMS, layers.ReLU()) is FORMS[layers.ReLU]


def test_a_patched_class_has_no_row():
    layer = layers.Linear(2, 2)
    with mock.patch.object(layers.Linear, "mjp"):
        assert find(FORMS, layer) is None
    assert find(FORMS, layer) is FORMS[layers.Linear]


def test_a_reduction_of_a_subclass_leaves_the_others_their_forms():
    """The registry has rows for the package's own subclasses of `Outer`, without what these compute themselves."""
    for kind, name in ((Seen, "input_square"), (TiledOuter, "sum")):
        reduced = {reduction.name for reduction in FORMS[kind].reduce}
        assert {reduction.name for reduction in FORMS[layers.Outer].reduce} - reduced == {name}


STANDS_FOR = {
    "forward": "forward", "mjp": "carry in_place add_to pure routes", "average": "average", "jmp": "jmp",
    "parameter_jacobians": "jacobians jacobians_at_input gradients mixed_input mixed_parameter",
    "residual": "residual_product", "per_sample": "reduce write_batch push pull", "hessian_sqrt": "hessian_product",
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMS, ids=lambda kind: kind.__name__)
def test_each_row_guards_the_methods_that_its_forms_stand_for(kind):
    row = FORMS[kind]
    for method, forms in STANDS_FOR.items():
        if any(getattr(row, form, None) for form in forms.split()):
            assert row.functions[method] is getattr(kind, method)

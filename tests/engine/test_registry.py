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
from common import batch, both, chain, hundredfold

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
BATCH = batch(5, 4, classes=2)
ASKED = q.DiagGGN(), q.BatchGrad(), q.KFAC()


def network(*between):
    return chain(layers.Linear(4, 3), layers.ReLU(), *between, layers.Linear(3, 2))


# ----------------------------------------------------------------------------------------- functions that nobody knows


def test_what_a_wrapped_function_keeps_is_not_written_over():
    """Behind the name and module of the function that it wraps, of a class or of an object."""
    seen, layer = [], layers.Identity()

    class Keeps(layers.Identity):
        @functools.wraps(layers.Identity.mjp)
        def mjp(self, saved, mat):
            seen.append((mat, mat.copy()))
            return mat

    @functools.wraps(layer.mjp)
    def mjp(saved, mat):
        return Keeps.mjp(layer, saved, mat)

    layer.mjp = mjp
    for each in (Keeps(), layer):
        seen.clear()
        both(network(each), CE, *BATCH, *ASKED)
        assert seen
        for given, copy in seen:
            np.testing.assert_array_equal(given, copy)


@pytest.mark.parametrize("module", [None, "builtins"])
def test_a_function_without_a_module_and_one_made_by_exec_are_called(module):
    names = {"layers": layers}
    exec("class Negative(layers.Identity):\n    def mjp(self, saved, mat):\n        return -mat\n", names)
    names["Negative"].mjp.__module__ = module
    kinds = layers.Identity, names["Negative"]
    plain, negative = (both(network(kind()), CE, *BATCH, *ASKED).gradient["0.weight"] for kind in kinds)
    np.testing.assert_allclose(negative, -plain, rtol=1e-12)


def test_a_patched_object_is_called():
    layer = layers.ReLU()
    net = chain(layers.Linear(4, 3), layer, layers.Linear(3, 2))
    with mock.patch.object(layer, "mjp", side_effect=lambda saved, mat: 0 * mat) as patched:
        assert not gb.backward(net, CE, *BATCH).gradient["0.weight"].any()
    assert patched.called


def test_a_method_of_another_object_is_that_objects():
    """A bound method set on another layer: the form is of the object that it is bound to."""
    one, other = (layers.Linear(3, 3) for _ in range(2))
    net = network(one)
    other.dtype = "float64"
    other.initialize(np.random.default_rng(5))
    one.mjp = other.mjp
    want = both(net, CE, *BATCH, *ASKED).gradient["0.weight"]
    one.mjp = lambda saved, mat: mat @ other.parameters["weight"]
    np.testing.assert_allclose(both(net, CE, *BATCH, *ASKED).gradient["0.weight"], want, rtol=1e-12)


IMAGES = batch(3, 2, 6, 6, classes=2)
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
    net = chain(layers.Conv2d(2, 2, 3, padding=1), made, layers.Flatten())
    net = chain(*net, layers.Linear(net.output_shape((2, 6, 6))[0], 2))
    for engine in (gb.reference, gb.backward):
        counts.clear()
        engine(net, CE, *IMAGES, q.DiagGGN(), q.KFRA())
        assert counts
    both(net, CE, *IMAGES, q.DiagGGN(), q.KFRA(), tolerance=1e-10)


REDUCED = ["sum", "batch", "square", "batch_square", "square_norm", "kronecker", "input_square"]


@pytest.mark.parametrize("method", REDUCED)
def test_a_jacobian_with_a_reduction_of_its_own_is_asked_for_it(method):
    layer, context = layers.Linear(4, 3), Context(FORMS, Allocator())
    layer.dtype = "float64"
    saved = layer.forward(BATCH[0])[1]
    plain, changed = (context.jacobians(layer, saved)["weight"] for _ in range(2))
    changed.__class__ = type("Own", (layers.Outer,), hundredfold(method))
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


def test_below_which_layers_no_step_is_in_place():
    """Of those that have forms, these are not declared pure: the layer below gets columns that it must not change."""
    others = {kind.__name__ for kind, row in FORMS.items() if not getattr(row, "pure", True)}
    assert others == {"GRUSteps", "LSTMSteps", "MatMul", "Multiply", "Norm", "PReLU", "RNNSteps", "Scale", "_AlongAxis",
                      "_BatchNorm"}  # fmt: skip


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

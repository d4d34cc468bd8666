"""Methods that only say which class lacks them."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import gbackprop as gb

ROOT = Path(gb.__file__).parent


def abstract():
    """Yield the module, class and name of each method that only raises "… has no …"."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(["gbackprop", *path.relative_to(ROOT).with_suffix("").parts])
        for kind in [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]:
            for method in [node for node in kind.body if isinstance(node, ast.FunctionDef)]:
                last = ast.unparse(method.body[-1])
                if last.startswith("raise NotImplementedError(") and f"has no {method.name}" in last:
                    yield pytest.param(module, kind.name, method.name, id=f"{kind.name}.{method.name}")


METHODS = list(abstract())


@pytest.mark.parametrize(("module", "kind", "name"), METHODS)
def test_a_class_that_lacks_a_method_says_so(module, kind, name):
    owner = getattr(import_module(module), kind)
    lacking = type("Own", (owner,), {}, **({"dims": 1} if "dims" in str(inspect.signature(owner)) else {}))
    method = vars(owner)[name]
    with pytest.raises(NotImplementedError, match=f"^Own has no {name}"):
        method(object.__new__(lacking), *[None] * (len(inspect.signature(method).parameters) - 1))


def test_there_are_such_methods_of_layers_and_losses():
    names = {each.id for each in METHODS}
    assert {"Layer.forward", "Layer.jmp", "Layer.mjp", "Layer.residual", "Loss.values", "Loss.gradients"} <= names

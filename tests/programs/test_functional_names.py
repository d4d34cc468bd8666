"""Functional programs write into no array, and use functions that jax.numpy has by the same names."""

import ast

import numpy as np
import pytest
from program_cases import of_layer, of_loss

import gbackprop as gb
from gbackprop import quantities as q
from gbackprop.base.errors import UnsupportedError
from gbackprop.testing.cases import ALL_LAYERS, LOSSES

NAMES = """
abs arange arctan argmax argmin array bincount broadcast_to ceil clip concatenate copy cos cosh cumsum diff dot einsum
exp expm1 eye flip float32 float64 full inf int32 int64 isfinite isinf isnan linalg.cholesky linalg.eigh linalg.inv
linalg.norm linalg.qr linalg.solve linalg.svd log log10 log1p log2 logical_and logical_not logical_or max maximum mean
min minimum moveaxis nan ones pad prod repeat rint roll round s_ sign sin sinh split sqrt square stack sum take
take_along_axis tan tanh tensordot tile trace tril triu vecdot where zeros
"""
"""Names that functional programs may take from NumPy."""

METHODS = "T argmax astype copy cumsum max mean min prod reshape sum swapaxes transpose"
SPECIAL = "pdtrik pdtr erf erfc erfinv expit gammaln digamma polygamma log_ndtr logsumexp ndtr ndtri xlogy"


def cases(start, step):
    yield from (of_layer(row, "float64") for row in ALL_LAYERS[start::step])
    yield from (of_loss(row, "mean", "float64") for row in LOSSES[start::step])


def texts(node):
    """The longest chains of attributes, `np.linalg.svd`."""
    inner = {id(each.value) for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return {ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.Attribute) and id(each) not in inner}


def check(start, step):
    known = {f"np.{name}" for name in NAMES.split()} | {f"special.{name}" for name in SPECIAL.split()}
    written = 0
    for network, loss, (x, y), _ in cases(start, step):
        try:
            program = gb.program(network, loss, x, y, q.DiagHessian(), functional=True)
        except UnsupportedError:
            program = gb.program(network, loss, x, y, functional=True)
        module = ast.parse(program.source).body
        function = ast.Module([node for node in module if getattr(node, "name", "assigned") != "assigned"], [])
        for node in ast.walk(function):
            assert not isinstance(node, ast.AugAssign), ast.unparse(node)
            targets = node.targets if isinstance(node, ast.Assign) else []
            assert not any(isinstance(each, ast.Subscript) for each in targets), ast.unparse(node)
            written += isinstance(node, ast.Call) and ast.unparse(node.func) == "assigned"
        for text in texts(function):
            root, _, method = text.rpartition(".")
            plain = root.replace("linalg", "").strip(".") in ("np", "special")
            assert text in known if plain else method in METHODS.split(), (network, text)
    assert written


def test_functional_programs_write_into_no_array_and_use_names_of_jax_numpy():
    check(3, 16)


@pytest.mark.long
@pytest.mark.parametrize("group", range(12))
def test_of_every_layer_and_loss(group):
    check(group, 12)


def test_the_names_are_those_of_numpy_and_of_jax_numpy():
    modules = [np]
    try:
        import jax.numpy

        modules.append(jax.numpy)
    except ImportError:
        pass
    for module in modules:
        for name in NAMES.split():
            found = module
            for part in name.split("."):
                found = getattr(found, part)

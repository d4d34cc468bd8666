"""Every name of NumPy's that the package asks of `xp` is one of CuPy's, with CuPy's keywords."""

import ast
import functools
from pathlib import Path

import cupy_names
import numpy as np
import pytest

import gbackprop
from gbackprop.engine.kernels import device

NAMES = cupy_names.committed()
PACKAGE = Path(gbackprop.__file__).parent
ON_HOST = {"testing", "experiments"}
"""Parts of the package whose arrays are NumPy's: methods of arrays are not looked at there, names of `xp` are."""

@functools.cache
def trees():
    """Return the syntax of each module by its path in the package."""
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


METHODS = {name for name in dir(np.ndarray) if not name.startswith("_")}


def modules_in(tree):
    """Local names that hold an array module: `xp`, and whatever else was assigned `array_module(…)`."""
    found = {"xp"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_array_module(node.value):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def is_array_module(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "array_module"


def path_of(node, names):
    """"linalg.eigh" of `xp.linalg.eigh`, or None if this does not begin with an array module."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    begins = is_array_module(node) or (isinstance(node, ast.Name) and node.id in names)
    return ".".join(reversed(parts)) if parts and begins else None


@functools.cache
def uses(tree):
    """(path, keywords, line) of what is taken from an array module; the longest path counts."""
    return list(_uses(tree))


def _uses(tree):
    names, nodes = modules_in(tree), list(ast.walk(tree))
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        path = path_of(node, names) if isinstance(node, ast.Attribute) and id(node) not in inner else None
        if path is not None:
            call = calls.get(id(node))
            yield path, [k.arg for k in call.keywords if k.arg] if call else [], node.lineno


@functools.cache
def used():
    """Every path that the package takes."""
    return {path for tree in trees().values() for path, _, _ in uses(tree)}


def problems(tree):
    """Return what the module's code takes that CuPy does not have."""
    found = []
    for path, keywords, line in uses(tree):
        module, _, name = path.rpartition(".")
        functions = NAMES["functions"].get(module, {})
        if name not in functions and not (module == "" and name in NAMES["values"]):
            found.append(f"{line}: xp.{path}")
            continue
        known = functions.get(name)
        if known is not None and "kwargs" not in known:
            found += [f"{line}: xp.{path}({keyword}=…)" for keyword in keywords if keyword not in known]
    return found


def test_every_name_is_cupys():
    assert {path: found for path, tree in trees().items() if (found := problems(tree))} == {}
    paths = used()
    assert paths >= {"linalg.eigh", "lib.stride_tricks.as_strided", "concatenate", "zeros"}
    assert len(paths) > 25


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("xp = array_module(x)\nxp.putmask(x)", []),
        ("xp.ma.array(x)", ["1: xp.ma.array"]),
        ("array_module(x).bartlett_(3)", ["1: xp.bartlett_"]),
        ("module = array_module(x)\nmodule.sum_(x)", ["2: xp.sum_"]),
        ("xp.linalg.eigh(x, method=1)", ["1: xp.linalg.eigh(method=…)"]),
        ("xp.exp(x, where=y)", ["1: xp.exp(where=…)"]),
        ("other.no_such_name(x)", []),
    ],
)
def test_the_scan_finds_what_cupy_lacks(code, problem):
    assert problems(ast.parse(code)) == problem


def test_every_method_is_cupys():
    """Any attribute with the name of one of NumPy's, of whatever: arrays cannot be told apart in the source."""
    lacking = METHODS - set(NAMES["methods"]) - set(NAMES["attributes"])
    for path, tree in trees().items():
        if path.partition("/")[0] not in ON_HOST:
            attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            assert [f"{path}, line {node.lineno}: .{node.attr}" for node in attributes if node.attr in lacking] == []


def imports(tree):
    """The first parts of the modules that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_only_one_file_imports_cupy():
    assert [path for path, tree in trees().items() if "cupy" in imports(tree)] == ["array.py"]


# ------------------------------------------------------------------------------------------------------- the real CuPy


@pytest.fixture(scope="module")
def cupy():
    reason = "CuPy is not installed: its names are taken from tests/device/cupy_names.json"
    return pytest.importorskip("cupy", reason=reason)


def test_the_committed_names_are_those_of_the_cupy_that_is_here(cupy):
    found = cupy_names.collect(cupy)
    if found["version"] != NAMES["version"]:
        pytest.skip(f"the list is of CuPy {NAMES['version']}, this is {found['version']}")
    assert found == NAMES


def test_every_use_is_there_in_the_cupy_that_is_here(cupy):
    """Whatever its version."""
    for path in used():
        value = cupy
        for part in path.split("."):
            value = getattr(value, part)


def test_cupy_takes_the_kernels_parameters(cupy):
    """It reads them when a kernel is made, before it compiles anything."""
    for name, (inputs, outputs, body) in device.SOURCES.items():
        kernel = cupy.ElementwiseKernel(inputs, outputs, body, name)
        assert kernel.nin + kernel.nout == len(f"{inputs}, {outputs}".split(", "))


@pytest.mark.parametrize("name", device.SOURCES)
@pytest.mark.parametrize("real", ["float", "double"])
def test_nvidias_compiler_takes_the_kernels(cupy, name, real):
    """Without a GPU too, where the compiler's library can be loaded."""
    inputs, outputs, body = device.SOURCES[name]
    arguments, before = ["ptrdiff_t _size"], []
    for *raw, kind, parameter in [part.split() for part in f"{inputs}, {outputs}".split(", ")]:
        kind = {"T": real, "int32": "int"}[kind]
        is_array = raw or parameter in outputs.split() or (parameter in ("x", "y"))
        arguments.append(f"{kind}* _{parameter}" if is_array else f"{kind} {parameter}")
        if is_array:
            before.append(f"{kind}* {parameter} = _{parameter};" if raw else f"{kind}& {parameter} = _{parameter}[i];")
    loop = "const ptrdiff_t i = (ptrdiff_t)blockIdx.x * blockDim.x + threadIdx.x; if (i >= _size) return;"
    lines = [f"typedef {real} T;"]
    lines += [f'extern "C" __global__ void run({", ".join(arguments)}) {{', loop, *before, body, "}"]
    compiled = compile_for_gpu("\n".join(lines))
    assert b"run" in compiled


def compile_for_gpu(source):
    """By NVRTC, for a Hopper; skips where its library is missing."""
    from cupy_backends.cuda.libs import nvrtc

    try:
        program = nvrtc.createProgram(source, "run.cu", [], [])
    except Exception as error:
        pytest.skip(f"NVRTC cannot be loaded: {error}")
    try:
        nvrtc.compileProgram(program, ["-arch=compute_90"])
    except Exception as error:
        raise AssertionError(nvrtc.getProgramLog(program)) from error
    ptx = nvrtc.getPTX(program)
    return ptx if isinstance(ptx, bytes) else ptx.encode()


def test_signatures_are_read():
    assert "keepdims" in NAMES["methods"]["sum"]
    assert NAMES["functions"]["linalg"]["eigh"] == ["a", "UPLO"]

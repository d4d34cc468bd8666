"""A double of `cupy.ElementwiseKernel` that runs a kernel's own source on the host, compiled as C++.

CUDA's body of a loop and C++'s are one language as far as our kernels go; here every index is held to its bounds.
"""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from device_double import ndarray, started

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
C_NAMES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}

HEAD = """
#include <cmath>
#include <cstddef>
using std::exp; using std::ptrdiff_t;
template <typename E> struct Raw {
    E* data; ptrdiff_t size; int* bad;
    E& operator[](ptrdiff_t at) const { if (at < 0 || at >= size) { *bad = 1; at = 0; } return data[at]; }
};
"""


class ElementwiseKernel:
    """As `cupy.ElementwiseKernel`, for arrays that lie or are laid side by side in memory."""

    def __init__(self, in_params, out_params, operation, name="kernel", **kwargs):
        self.parameters = [parameter.split() for parameter in f"{in_params}, {out_params}".split(", ")]
        self.operation, self.name = operation, name

    def __call__(self, *args):
        if COMPILER is None:
            pytest.skip("no C++ compiler to run the kernels' source with")
        assert len(args) == len(self.parameters), f"{self.name}: {len(self.parameters)} arguments, not {len(args)}"
        started([arg for arg in args if isinstance(arg, ndarray)])
        [t] = {arg.dtype.name for (*_, kind, _), arg in zip(self.parameters, args, strict=True) if kind == "T"}
        out, bad, laid = args[-1]._host, ctypes.c_int(0), []
        values, arguments, before, inside = [ctypes.c_ssize_t(out.size), ctypes.byref(bad)], [], [], []
        for (*raw, kind, name), arg in zip(self.parameters, args, strict=True):
            kind = t if kind == "T" else kind
            if not isinstance(arg, ndarray):
                values.append(ctypes.c_int(arg))
                arguments.append(f"int {name}")
                continue
            assert arg.dtype == kind, f"{self.name}, {name}: expected {kind}, got {arg.dtype}"
            laid.append(np.ascontiguousarray(arg._host if raw else np.broadcast_to(arg._host, out.shape)))
            values += [ctypes.c_void_p(laid[-1].ctypes.data), ctypes.c_ssize_t(laid[-1].size)]
            c = C_NAMES[kind] if arg is args[-1] else f"const {C_NAMES[kind]}"
            arguments.append(f"{c}* _{name}, ptrdiff_t _size_{name}")
            before.append(f"const Raw<{c}> _raw_{name} = {{_{name}, _size_{name}, _bad}};")
            inside.append(f"const Raw<{c}>& {name} = _raw_{name};" if raw else f"{c}& {name} = _raw_{name}[i];")
        lines = [f'extern "C" void run(ptrdiff_t _size, int* _bad, {", ".join(arguments)}) {{']
        lines += [f"typedef {C_NAMES[t]} T;", *before, "for (ptrdiff_t i = 0; i < _size; ++i) {", *inside]
        _compiled("\n".join([HEAD, *lines, self.operation, "}}"])).run(*values)
        if bad.value:
            raise IndexError(f"{self.name}: an index is out of range")
        out[...] = laid[-1]
        return args[-1]


@functools.cache
def _folder():
    return tempfile.TemporaryDirectory()


@functools.cache
def _compiled(source):
    """A source as a shared library."""
    base = Path(_folder().name) / f"kernel{abs(hash(source))}"
    base.with_suffix(".cpp").write_text(source)
    flags = ["-O1", "-shared", "-fPIC", "-std=c++17", "-Wall", "-Werror", "-Wno-unused-local-typedefs"]
    command = [COMPILER, *flags, "-o", f"{base}.so", f"{base}.cpp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(f"{base}.so")

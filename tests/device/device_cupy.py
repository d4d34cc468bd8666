"""A module that stands for CuPy, around the arrays of `device_double`: only names and keywords that CuPy has."""

import sys
import types
from contextlib import contextmanager
from functools import partial

import numpy as np
from device_double import NAMES, SYNCHRONIZING, check_keywords, ndarray, refuse, run
from device_elementwise import ElementwiseKernel
from device_ledger import MEMORY, Device, OutOfMemoryError, current_device, ledger
from scipy import special
from scipy.sparse import linalg

FROM_HOST = {"array", "asarray", "ascontiguousarray", "asanyarray", "asfortranarray"}
OF_SEQUENCES = {"concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"}
"""Functions that take arrays in a tuple or a list: the others do not make one array of them, as NumPy's do."""

DEVICES = 2


class CUDARuntimeError(RuntimeError):
    """As `cupy.cuda.runtime.CUDARuntimeError`."""


class Module(types.ModuleType):
    """CuPy, or one of its modules."""

    def __init__(self, path=""):
        super().__init__(f"cupy.{path}".rstrip("."))
        self.path = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.path}.{name}".lstrip(".")
        if any(f"{known}.".startswith(f"{path}.") for known in NAMES["functions"]):
            value = Module(path)
        elif name in NAMES["functions"].get(self.path, {}):
            value = self._function(name)
        elif not self.path and name in NAMES["values"]:
            value = getattr(np, name)
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        setattr(self, name, value)
        return value

    def _function(self, name):
        known, original = NAMES["functions"][self.path][name], np
        for part in filter(None, self.path.split(".")):
            original = getattr(original, part)
        original = getattr(original, name)

        def function(*args, **kwargs):
            check_keywords(name, known, kwargs)
            if name in FROM_HOST:
                return from_host(name, *args, **kwargs)
            if name not in OF_SEQUENCES:
                _check_sequences(args)
            if name in SYNCHRONIZING or (name == "where" and len(args) == 1):
                ledger.transfer("to host")
            found = run(original, args, kwargs)
            if name.startswith("empty"):  # whoever reads it before he writes it shall see
                found._host.fill(np.nan if found.dtype.kind in "fc" else True)
            return found

        return function


def from_host(name, value, *args, **kwargs):
    """`cupy.asarray` and its kin: host data is a transfer, a device array is moved or taken as it is."""
    if not isinstance(value, ndarray):
        ledger.transfer("to device")
        return ndarray(np.array(value, *args, **kwargs))
    if value.device.id != current_device():
        ledger.transfer("between devices")
        return ndarray(np.array(value._host, *args, **kwargs))
    return run(getattr(np, name), (value, *args), kwargs)


def _check_sequences(args):
    for arg in args:
        if isinstance(arg, tuple | list) and any(isinstance(part, ndarray | tuple | list) for part in arg):
            refuse(arg)


def _special(function, x):
    return run(function, (x,), {}) if isinstance(x, ndarray) and x.dtype.kind == "f" else refuse(x)


def make():
    """A new module `cupy`."""
    cupy = Module()
    cupy.__version__ = NAMES["version"]
    cupy.ndarray, cupy.ElementwiseKernel = ndarray, ElementwiseKernel
    cupy.asnumpy = lambda x: x.get() if isinstance(x, ndarray) else np.asarray(x)
    cupy.get_default_memory_pool = lambda: types.SimpleNamespace(free_bytes=lambda: 0)
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: DEVICES,
        memGetInfo=lambda: (ledger.limit - ledger.used, ledger.limit),
        CUDARuntimeError=CUDARuntimeError,
    )
    cupy.cuda = types.SimpleNamespace(
        Device=Device, runtime=runtime, memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    )
    types_ = {"f": 1, "d": 1}
    cupy._core = types.SimpleNamespace(
        _routines_linalg=types.SimpleNamespace(COMPUTE_TYPE_TF32=7),
        get_compute_type=lambda dtype: types_[np.dtype(dtype).char],
        set_compute_type=lambda dtype, kind: types_.update({np.dtype(dtype).char: kind}),
    )
    return cupy


class LinearOperator:
    """As `cupyx.scipy.sparse.linalg.LinearOperator`, with what the package's operators are used for."""

    def __new__(cls, *given, **named):
        return object.__new__(Custom if cls is LinearOperator else cls)

    def __init__(self, dtype, shape):
        self.dtype, self.shape = np.dtype(dtype), shape

    def matvec(self, x):
        return self._matvec(given(x)).reshape(self.shape[0], *x.shape[1:])

    def matmat(self, x):
        return self._matmat(given(x))

    def rmatvec(self, x):
        return self._rmatvec(given(x)).reshape(self.shape[1], *x.shape[1:])

    def rmatmat(self, x):
        return self._rmatmat(given(x))

    def _rmatvec(self, x):
        return self.H.matvec(x)

    def _rmatmat(self, x):
        return self.H.matmat(x)

    def dot(self, x):
        return (self.matvec if x.ndim == 1 else self.matmat)(given(x))

    def __matmul__(self, x):
        return self.dot(x)

    def _adjoint(self):
        return Adjoint(self)

    def _transpose(self):
        return Adjoint(self)

    H = property(lambda self: self._adjoint())
    T = property(lambda self: self._transpose())


class Custom(LinearOperator):
    """As CuPy's, of functions."""

    def __init__(self, shape, matvec, rmatvec=None, dtype=None):
        self.shape, self.dtype, self._matvec, self._rmatvec = shape, np.dtype(dtype), matvec, rmatvec


def moved(v):
    """An array of the double for one of the host."""
    return from_host("asarray", v)


def on_host(A):
    """SciPy's operator for an operator of the double."""
    there = [lambda v, f=f: f(moved(v)).get() for f in (A.matvec, A.rmatvec)]
    return linalg.LinearOperator(A.shape, *there, dtype=A.dtype)


def cg(A, b, x0=None, tol=1e-5, maxiter=None, M=None, callback=None, atol=None):
    """As CuPy's, whose tolerance has SciPy's older name."""
    told = None if callback is None else lambda x: callback(moved(x))
    x, steps = linalg.cg(on_host(A), given(b).get(), rtol=tol, maxiter=maxiter, atol=atol or 0.0, callback=told)
    return moved(x), steps


def lsmr(A, b, x0=None, damp=0.0, atol=1e-6, btol=1e-6, conlim=1e8, maxiter=None):
    """As CuPy's."""
    x, *rest = linalg.lsmr(on_host(A), given(b).get(), damp, atol, btol, conlim, maxiter)
    return moved(x), *rest


class Adjoint(LinearOperator):
    """As CuPy's, of a real operator."""

    def __init__(self, of):
        self.shape, self.dtype = of.shape[::-1], of.dtype
        self._matvec, self._matmat, self._rmatvec, self._rmatmat = of._rmatvec, of._rmatmat, of._matvec, of._matmat


def given(x):
    return x if isinstance(x, ndarray) else refuse(x)


def make_cupyx():
    """The modules `cupyx`, `cupyx.scipy` and those in it, with what the package takes from them."""
    device_special = types.SimpleNamespace(
        **{name: partial(_special, getattr(special, name)) for name in ("erf", "erfc")}
    )
    solvers = types.SimpleNamespace(LinearOperator=LinearOperator, cg=cg, lsmr=lsmr)
    sparse = types.SimpleNamespace(linalg=solvers)
    scipy = types.SimpleNamespace(special=device_special, sparse=sparse)
    inside = {"special": device_special, "sparse": sparse, "sparse.linalg": solvers}
    modules = {f"cupyx.scipy.{name}": module for name, module in inside.items()}
    return {"cupyx": types.SimpleNamespace(scipy=scipy), "cupyx.scipy": scipy, **modules}


@contextmanager
def installed():
    """`import cupy` gives the double meanwhile; yields the module."""
    doubles = {"cupy": make(), **make_cupyx()}
    before = {name: sys.modules.get(name) for name in doubles}
    sys.modules.update(doubles)
    ledger.clear()
    ledger.limit = MEMORY
    try:
        yield doubles["cupy"]
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module

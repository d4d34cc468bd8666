"""A strict double of CuPy's array: a NumPy array that refuses what a GPU would refuse, or get wrong in silence.

Where CuPy itself is lenient the double is not: it refuses NumPy's functions even where CuPy would take them over, lists
and NumPy arrays as indices, indices out of range (CuPy wraps them around), several values for one place in an
assignment (CuPy keeps any of them), and arithmetic while another device is the current one. It counts transfers, with
the function of the package that asked for each, and operations that would start a kernel. `device_ledger` keeps the
counts, `device_cupy` makes the module around the array.
"""

import operator
from types import SimpleNamespace

import cupy_names
import numpy as np
from device_ledger import Device, current_device, ledger

NAMES = cupy_names.committed()
SYNCHRONIZING = {"nonzero", "argwhere", "flatnonzero", "unique", "extract", "compress", "allclose", "array_equal"}
"""Functions whose results' shapes depend on the numbers, or that give a Python number: CuPy waits for the GPU there."""


def refuse(value):
    raise TypeError(f"Unsupported type {type(value)}")


def host(value, inputs):
    """`value` as NumPy takes it, nested or not; device arrays in it are noted in `inputs`."""
    if isinstance(value, ndarray):
        inputs.append(value)
        return value._host
    if isinstance(value, np.ndarray):
        refuse(value)
    if isinstance(value, tuple | list):
        return type(value)(host(part, inputs) for part in value)
    if isinstance(value, slice):
        return slice(*(host(part, inputs) for part in (value.start, value.stop, value.step)))
    return value


def wrapped(value, inputs, creates=False):
    """NumPy's answer as device arrays, which count as kernels that were started unless they are views."""
    if isinstance(value, tuple | list):
        return tuple(wrapped(part, inputs, creates) for part in value)  # CuPy gives plain tuples
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        return value
    whole = next((x for x in inputs if np.may_share_memory(x._host, value)), None)
    if whole is not None:
        return ndarray(value, whole.device, whole if whole.base is None else whole.base)
    started(inputs)
    return ndarray(value if value.base is None else value.copy(order="K"))


def started(inputs):
    """A kernel was started: on the current device, where its inputs must lie."""
    for x in inputs:
        if x.device.id != current_device():
            raise ValueError(
                f"Array device must be same as the current device: array device = {x.device.id} while current = "
                f"{current_device()}"
            )
    ledger.launch()


def run(function, args, kwargs, out=None):
    """Call one of NumPy's functions on device arrays; `out` is where it writes."""
    inputs = []
    plain, named = host(args, inputs), {key: host(value, inputs) for key, value in kwargs.items()}
    with np.errstate(all="ignore"):  # a GPU does not warn
        value = function(*plain, **named)
    out = kwargs.get("out", out)
    if out is not None:
        started(inputs)
        return out
    return wrapped(value, inputs)


def check_keywords(name, known, kwargs):
    if known is not None and "kwargs" not in known and not set(kwargs) <= set(known):
        raise TypeError(f"{name}() got an unexpected keyword argument: {kwargs.keys() - set(known)}")


class ndarray:
    """As `cupy.ndarray`."""

    __hash__ = None
    _owned = 0

    def __init__(self, array, device=None, base=None):
        if array.dtype.kind not in "biufc":
            raise ValueError(f"Unsupported dtype {array.dtype}")
        self._host, self.base = array, base
        self.device = Device(None if device is None else device.id)
        if base is None:
            ledger.allocate(array.nbytes)
            self._owned = array.nbytes

    def __del__(self):
        with ledger.lock:
            ledger.used -= self._owned

    # ------------------------------------------------------------------------------------------------ what is refused

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, *args, **kwargs):
        raise TypeError(f"NumPy's {args[0].__name__} on a device array")

    def __array_function__(self, function, *args):
        raise TypeError(f"NumPy's {function.__name__} on a device array")

    # ---------------------------------------------------------------------------------------------------- transfers

    def get(self, stream=None, order="C", out=None, blocking=True):
        ledger.transfer("to host")
        return self._host.copy()

    def item(self):
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    def __complex__(self):
        return complex(self.get())

    def __index__(self):
        return operator.index(self.get())

    def __repr__(self):
        return f"device{self.get()!r}"

    def __format__(self, spec):
        return format(self.get(), spec)

    def __reduce__(self):
        raise TypeError("a device array cannot be pickled here")

    # ---------------------------------------------------------------------------------------------------- structure

    T = property(lambda self: run(np.transpose, (self,), {}))
    real = property(lambda self: self if self.dtype.kind != "c" else run(np.real, (self,), {}))
    imag = property(lambda self: run(np.imag, (self,), {}))

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __deepcopy__(self, memo):
        return self.copy()

    def __getitem__(self, index):
        inputs = [self]
        plain = host(checked_index(index), inputs)
        return wrapped(np.asarray(self._host[plain]), inputs)  # out of range: NumPy raises, CuPy would not

    def __setitem__(self, index, value):
        inputs = [self]
        plain, value = host(checked_index(index), inputs), host(value, inputs)
        if any(isinstance(part, np.ndarray) for part in (plain if isinstance(plain, tuple) else (plain,))):
            places = np.arange(self.size).reshape(self.shape)[plain]
            if len(np.unique(places)) != places.size:
                raise ValueError("several values for one place: which one stays is undefined on a GPU")
        started(inputs)
        self._host[plain] = value

    def __getattr__(self, name):
        if name not in NAMES["methods"]:
            raise AttributeError(f"'ndarray' object has no attribute {name!r}")
        known = NAMES["methods"][name]

        def method(*args, **kwargs):
            check_keywords(name, known, kwargs)
            if name in ("transpose", "reshape", "swapaxes") and any(isinstance(arg, ndarray) for arg in args):
                raise TypeError("'ndarray' object cannot be interpreted as an integer")
            if name in SYNCHRONIZING:
                ledger.transfer("to host")
            return run(getattr(np.ndarray, name), (self, *args), kwargs)

        return method


def checked_index(index):
    """An index as it came; lists are refused, and a mask is a transfer: CuPy counts its entries on the host."""
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, list):
            refuse(part)
        if isinstance(part, ndarray) and part.dtype.kind == "b":
            ledger.transfer("to host")
    return index


def operand(x):
    """Return whether an operator takes `x`; a host array is refused, as CuPy does."""
    if isinstance(x, np.ndarray | list | tuple):
        refuse(x)
    return isinstance(x, ndarray | np.generic | int | float | complex)


def _binary(name, reflected=False, in_place=False):
    function = getattr(operator, f"__{'i' if in_place else ''}{name}__")

    def method(self, other):
        if not operand(other):
            return NotImplemented
        return run(function, (other, self) if reflected else (self, other), {}, self if in_place else None)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(ndarray, f"__{_name}__", _binary(_name))
    setattr(ndarray, f"__r{_name}__", _binary(_name, reflected=True))
    setattr(ndarray, f"__i{_name}__", _binary(_name, in_place=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(ndarray, f"__{_name}__", _binary(_name))
for _name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"):
    setattr(ndarray, _name, property(lambda self, name=_name: getattr(self._host, name)))
FLAGS = "c_contiguous", "f_contiguous", "owndata", "fnc", "forc"
"""The flags that CuPy has: no array is read-only."""
ndarray.flags = property(lambda self: SimpleNamespace(**{name: getattr(self._host.flags, name) for name in FLAGS}))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", lambda self, name=_name: run(getattr(operator, f"__{name}__"), (self,), {}))

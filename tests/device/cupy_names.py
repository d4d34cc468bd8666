"""CuPy's names and keywords, as the strict double (`device_double`) and the scan of the package take them.

They are committed, so that both work where CuPy is not installed. ``make cupy-names`` writes them anew from the CuPy
that is; no GPU is needed for that. Where CuPy can be imported, a test holds the file against it.
"""

import inspect
import json
import re
import types
from pathlib import Path

FILE = Path(__file__).with_name("cupy_names.json")
MODULES = ("", "linalg", "lib.stride_tricks")
"""Those that the package may take from; random numbers come from the host and other modules are not needed."""


def committed():
    """{"version": …, "functions": {"": {name: keywords}, "linalg": …}, "values": [name, …], "methods": …}."""
    return json.loads(FILE.read_text())


def collect(cupy):
    """The same from the real CuPy. Keywords are None where a function does not tell them."""
    found = {"version": cupy.__version__, "functions": {}, "values": [], "methods": {}, "attributes": []}
    for path in MODULES:
        module = cupy
        for part in filter(None, path.split(".")):
            module = getattr(module, part)
        public = {name: getattr(module, name) for name in sorted(dir(module)) if not name.startswith("_")}
        functions = {name: keywords(value) for name, value in public.items() if is_function(value)}
        found["functions"][path] = functions
        if not path:
            others = (float, int, types.NoneType, type)
            rest = {name: value for name, value in public.items() if name not in functions}
            found["values"] = [name for name, value in rest.items() if isinstance(value, others)]
    for name in sorted(dir(cupy.ndarray)):
        value = getattr(cupy.ndarray, name)
        if name.startswith("_"):
            continue
        if callable(value):
            found["methods"][name] = documented_keywords(value)
        else:
            found["attributes"].append(name)
    return found


def is_function(value):
    return callable(value) and not isinstance(value, type)


def keywords(function):
    if type(function).__name__ == "ufunc":
        return ["out", "dtype", "casting"]
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def documented_keywords(method):
    """Cython's methods tell their arguments in the first line of their docstring alone."""
    match = re.match(r"[\w.]+\(self(?:, )?(.*?)\)(?: ->.*)?$", (method.__doc__ or "").strip().split("\n")[0])
    if match is None:
        return None
    return [re.sub(r"=.*", "", argument).split()[-1] for argument in match[1].split(", ") if argument]


def write():
    """Take the names of the CuPy that is installed."""
    import cupy

    parts = [f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in collect(cupy).items()]
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    print(f"{FILE.name}: CuPy {cupy.__version__}")


if __name__ == "__main__":
    write()

"""A network from an ONNX model: reading, taking each node over, and comparing the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.inliner import inline_local_functions, inline_selected_functions
from onnx.numpy_helper import to_array
from onnx.reference import ReferenceEvaluator

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.several import Inputs
from gbackprop.interop.onnx_call import Draft, OnnxCall
from gbackprop.interop.onnx_rows import TABLE
from gbackprop.interop.onnx_values import BATCH, Known, OnnxTensor, is_free, starts_of
from gbackprop.interop.onnx_windows import COMPARED
from gbackprop.interop.outputs import FIXED_STATISTICS, unlike
from gbackprop.layers import Identity, Parameter
from gbackprop.network import Graph, Sequential
from gbackprop.network.graph import INPUT_NAME, sources_of
from gbackprop.network.patterns import replaced

NEWEST = 28
"""The newest opset whose operators the table knows; what has not changed since is known in newer ones, too."""

SAMPLES = (1_000_003, 1_000_033)
"""Numbers of samples with which a graph of a dynamic batch is read: primes of which no other size is a multiple."""

CONTROL = {"If", "Loop", "Scan", "SequenceMap"}
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
BY_SIZES = {"Expand", "ConstantOfShape"}
"""Operators of which not even constants are folded where the sizes follow from the number of samples."""

WEIGHTED = {"Gemm", "Conv", "ConvTranspose", "MatMul", "PRelu", "BatchNormalization", "LayerNormalization",
            "InstanceNormalization", "GroupNormalization", "RMSNormalization"}  # fmt: skip
"""Operators for which an array of one number is a parameter, too."""

ROUGH = {"Erf", "Gelu", "HardSwish", "Selu"}
"""Operators that onnx.reference computes, or has constants for, in float32 alone."""

MASKED = 1e9
"""An array with a number of at least this size is a mask, and no parameter."""


def imported(source: Any, example: Any, constants: Collection[str], parameters: Collection[str]) -> Graph | Sequential:
    """Return the network that is an ONNX model; see `gbackprop.interop.from_onnx`."""
    if not isinstance(source, bytes | str | Path):
        raise TypeError(f"model: expected a path or bytes, got {type(source).__name__}")
    where = f"model of {len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        model = _read(source)
        x, fixed = _batch(model, example)
        taken = _Taken(_inlined(model), x, fixed, (constants, parameters))
        network = taken.network()
        _compare(network, model, x, fixed, taken.draft.rounded)
    except UnsupportedError as error:
        raise UnsupportedError(f"{where}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return network


# -------------------------------------------------------------------------------------------------------------- reading


def _read(source: Any) -> Any:
    """Return the model with all of its data, checked."""
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        model = onnx.load_model_from_string(data)
        folder = "" if isinstance(source, bytes) else str(Path(source).parent)
        onnx.load_external_data_for_model(model, folder)
        for each in model.graph.initializer:
            to_array(each)
        versions, newest = {each.domain: each.version for each in model.opset_import}, onnx.defs.onnx_opset_version()
        if versions and not 7 <= versions.get("", 7) <= newest:
            words = f"expected an opset from 7 to {newest}, which onnx {onnx.__version__} knows"
            raise UnsupportedError(f"{words}, got {versions['']}")
        if not _unknown(model):
            onnx.checker.check_model(model)
    except UnsupportedError:
        raise
    except Exception as error:  # classes of the parser, of the checker, and of what reads files
        raise ValueError(f"expected a whole ONNX model, with all of its data: {error}") from error
    return model


def _schema(op: str, domain: str, version: int) -> Any:
    """Return the definition of an operator, None if there is none in onnx."""
    known = not domain and onnx.defs.has(op, max_inclusive_version=version)
    return onnx.defs.get_schema(op, max_inclusive_version=version) if known else None


def _version(model: Any) -> int:
    return next((each.version for each in model.opset_import if not each.domain), 1)


def _unknown(model: Any) -> list[str]:
    own = {(each.domain, each.name) for each in model.functions}
    ops = {(node.domain, node.op_type) for node in model.graph.node} - own
    return [op for domain, op in ops if _schema(op, domain, _version(model)) is None]


def _inlined(model: Any) -> Any:
    """Return a model without calls of functions, but of those that the table has."""
    model, before = inline_local_functions(model), None
    for each in model.graph.initializer:  # the inliner does not look at these for types
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims))
    while before != (now := [node.op_type for node in model.graph.node]):  # not all opsets have a function's body
        before = now
        ops = {node.op_type for node in model.graph.node if not node.domain} - {*TABLE, "Range"}
        schemas = [_schema(op, "", _version(model)) for op in ops]
        bodies = [("", s.name) for s in schemas if s and (s.has_function or s.has_context_dependent_function)]
        model = inline_selected_functions(model, bodies, inline_schema_functions=True) if bodies else model
    return model


def _batch(model: Any, example: Any) -> tuple[dict[str, np.ndarray], int | None]:
    """Return a batch of the model's inputs, and the number of samples if that is fixed."""
    graph = model.graph
    inputs = [each for each in graph.input if each.name not in {array.name for array in graph.initializer}]
    if not inputs or len(graph.output) != 1:
        got = f"{[each.name for each in inputs]} and {[each.name for each in graph.output]}"
        raise UnsupportedError(f"expected inputs and one output, got {got}")
    names = [each.name for each in inputs]
    given = dict.fromkeys(names) if example is None else {names[0]: example}
    if isinstance(example, tuple | Mapping):
        given = dict(example if isinstance(example, Mapping) else zip(names, example, strict=False))
    if given.keys() != set(names) or (isinstance(example, tuple) and len(example) != len(names)):
        raise ValueError(f"example: expected the inputs {names}, in a tuple or a dictionary, got {len(given)}")
    found = {each.name: _one_of(each, given[each.name]) for each in inputs}
    x, alike = {name: array for name, (array, _) in found.items()}, {(len(a), a.dtype, n) for a, n in found.values()}
    if len(alike) > 1:
        raise UnsupportedError(f"expected inputs of one dtype, and of one number of samples, got {sorted(alike)}")
    return x, found[names[0]][1]


def _one_of(given: Any, example: Any) -> tuple[np.ndarray, int | None]:
    """Return a batch of one input, and the number of samples if that is fixed."""
    kind, name = given.type.tensor_type, given.name
    dtype = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.DOUBLE: "float64"}.get(kind.elem_type)
    if dtype is None:
        got = onnx.TensorProto.DataType.Name(kind.elem_type)
        raise UnsupportedError(f"input {name!r}: expected float32 or float64, got {got}")
    if example is None:
        sizes = [each.dim_value for each in kind.shape.dim]
        if not sizes or 0 in sizes[1:]:
            raise ValueError(f"example: expected a batch, as input {name!r} has no fixed shape, got None")
        example = np.random.default_rng(0).standard_normal((sizes[0] or 2, *sizes[1:]))
    x = np.asarray(example)
    fixed = kind.shape.dim[0].dim_value if kind.shape.dim else 0
    if x.ndim < 1 or len(x) < 1 or x.dtype.kind not in "fiu":
        raise TypeError(f"example: expected an array of at least one sample, got {example!r:.80}")
    return x[np.arange(fixed or len(x)) % len(x)].astype(dtype), fixed or None


# --------------------------------------------------------------------------------------------------------------- taking


class _Taken:
    """A graph that is being taken over, node by node."""

    def __init__(
        self, model: Any, x: dict[str, np.ndarray], fixed: int | None, chosen: tuple[Collection[str], ...]
    ) -> None:
        self.graph, self.inputs = model.graph, Inputs.of(x) if len(x) > 1 else None
        dtype = next(iter(x.values())).dtype.name
        self.draft = Draft(SAMPLES if fixed is None else (fixed,), _version(model), dtype, chosen=chosen[1])
        inputs = {name: OnnxTensor(-i, (BATCH, *each.shape[1:])) for i, (name, each) in enumerate(x.items())}
        self.values: dict[str, Any] = {"": None, **inputs}
        self.problems: list[str] = []
        self._take_initializers(*chosen)
        for node in self.graph.node:
            self._take(node)
        if self.problems:
            raise UnsupportedError("; ".join(self.problems))

    def _take_initializers(self, constants: Collection[str], parameters: Collection[str]) -> None:
        """Add parameters, and remember the other arrays."""
        arrays = {each.name: to_array(each) for each in self.graph.initializer}
        unknown = sorted({*constants, *parameters} - set(arrays))
        if unknown:
            raise ValueError(f"constants, parameters: expected names of initializers {sorted(arrays)}, got {unknown}")
        uses, weights = self._uses()
        for name, array in arrays.items():
            many = array.size > 1 or (array.ndim > 0 and name in weights)
            mask = array.dtype.kind == "f" and not (abs(array) < MASKED).all()
            if name in parameters or (array.dtype.kind == "f" and many and not mask and name not in constants):
                number = self.draft.add(name, Parameter(array.shape))
                self.draft.parameters[number] = array
                self.values[name] = OnnxTensor(number, array.shape)
                if uses[name] == 1:
                    self.draft.alone.add(number)
            else:
                self.values[name] = Known(name, (array,) * len(self.draft.sizes))

    def _uses(self) -> tuple[Counter[str], set[str]]:
        """Return how often each value is taken, under whatever name, and those that operators take as weights."""
        names: dict[str, str] = {}
        uses, weights, products = Counter[str](), set[str](), set[str]()
        for node in self.graph.node:
            taken = [names.get(name, name) for name in node.input]
            if node.op_type == "Identity":
                names[node.output[0]] = taken[0]
                continue
            uses.update(taken)
            if node.op_type in WEIGHTED or (node.op_type == "Add" and products & set(taken)):
                weights.update(taken)
            if node.op_type == "MatMul":
                products.update(node.output)
        return uses, weights

    def _take(self, node: Any) -> None:
        """Add the nodes of a node, or remember why there are none."""
        lacking = [name for name in node.input if name not in self.values]
        if lacking and self.problems:
            return  # what it follows from is refused
        try:
            if lacking:
                raise UnsupportedError(f"{lacking[0]!r} is a further output of a node, which is not taken over")
            found = self._found(node)
        except (ValueError, TypeError, IndexError, RuntimeError) as error:
            self.problems.append(f"node {node.name or node.output[0]!r}, {node.op_type}: {error}")
            return
        self.values |= {name: value for name, value in zip(node.output, found, strict=False) if name}

    def _found(self, node: Any) -> Any:
        """Return the outputs of a node."""
        op, given = node.op_type, [self.values[name] for name in node.input]
        schema = _schema(op, node.domain, self.draft.version)
        if schema is None:
            raise UnsupportedError(f"expected an operator of ONNX, got one of domain {node.domain or 'ai.onnx'!r}")
        if op in CONTROL | RANDOM:
            raise UnsupportedError(f"{'control flow' if op in CONTROL else 'random numbers'} cannot be taken over")
        if any(each.name == "sparse_value" for each in node.attribute):
            raise UnsupportedError("expected a dense array, got a sparse one")
        fold = all(value is None or isinstance(value, Known) for value in given)
        if fold and not (op in BY_SIZES and given[-1].depends):
            return self._folded(node, given)
        if op not in TABLE:
            raise UnsupportedError("there is no operation for it")
        if schema.since_version > NEWEST:
            raise UnsupportedError(f"expected its version of opset {NEWEST} or older, got {schema.since_version}")
        self.draft.rounded |= op in ROUGH
        found = TABLE[op](OnnxCall(self.draft, node, given))
        return found if isinstance(found, tuple) else (found,)

    def _folded(self, node: Any, given: list[Any]) -> list[Known]:
        """Return the outputs of a node that depends on known arrays alone."""
        inputs, outputs = ([onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name]
                           for names in (node.input, node.output))  # fmt: skip
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "constants", inputs, outputs))
        model.opset_import[0].version = self.draft.version  # a node alone has attributes as the newest opset has them
        run, each = ReferenceEvaluator(model).run, []
        for i in range(len(self.draft.sizes) if any(value.depends for value in given if value) else 1):
            feeds = {name: value.arrays[i] for name, value in zip(node.input, given, strict=True) if value}
            each.append(run(None, feeds))
        whole = each * (len(self.draft.sizes) // len(each))
        named = dict(zip(filter(None, node.output), zip(*whole, strict=True), strict=True))
        return [Known(name, named.get(name, ())) for name in node.output]

    # ------------------------------------------------------------------------------------------------------- network

    def network(self) -> Graph | Sequential:
        """Return the network, with its numbers."""
        draft, last = self.draft, self.values.get(self.graph.output[0].name)
        if not isinstance(last, OnnxTensor) or last.axes[:1] != (BATCH,):
            raise UnsupportedError(f"output {self.graph.output[0].name!r}: expected the samples along axis 0")
        output = last.node if last.node > 0 else draft.add(self.graph.output[0].name, Identity(), last.node)
        names = self._names(output)
        nodes = {names[i]: (draft.nodes[i][0], *[names[k] for k in draft.nodes[i][1:]]) for i in sorted(names) if i > 0}
        inputs = self.inputs and self.inputs.shapes
        found = replaced(nodes, names[output])
        chain = None if inputs or draft.fixed_statistics else _chain(nodes)
        network = chain or Graph(found, names[output], inputs=inputs)
        if isinstance(network, Graph):
            network.evaluation_only = FIXED_STATISTICS * draft.fixed_statistics
        network.astype(draft.dtype)
        arrays = {draft.names[number]: array for number, array in draft.parameters.items()}
        arrays |= {names[number]: array for number, array in draft.parameters.items() if number in names}
        arrays = {name: arrays[name] for name in network.parameter_shapes()}
        wrong = {array.dtype.name for array in arrays.values()} - {draft.dtype}
        if wrong:
            raise UnsupportedError(f"expected parameters in {draft.dtype} as the input is, got {sorted(wrong)}")
        network.parameters.load(arrays)
        network.buffers.load(draft.buffers)
        return network

    def _names(self, output: int) -> dict[int, str]:
        """Return the names of the nodes that an output depends on: those of ONNX, parameters' first."""
        used, waiting = set(), [output]
        while waiting:
            number = waiting.pop()
            if number > 0 and number not in used:
                used.add(number)
                waiting += self.draft.nodes[number][1:]
        names = {-i: name for i, name in enumerate(sources_of(self.inputs))}
        taken = set(names.values())
        order = sorted(used, key=lambda number: (not self.draft.nodes[number][0].parameter_shapes(), -number))
        for number in order:
            wanted = ".".join(filter(None, self.draft.names[number].split("."))) or "node"
            name, k = wanted, 0
            while not is_free(name, taken):
                name, k = f"{wanted.replace('.', '_')}_{k + 1}", k + 1
            names[number] = name
            taken |= {name, *(f"{start}." for start in starts_of(name))}
        return names


def _chain(nodes: dict[str, tuple[Any, ...]]) -> Sequential | None:
    """Return the Sequential that nodes are, if parameters have the same names in it."""
    befores = [(INPUT_NAME,), *[(name,) for name in nodes]]
    if any(node[1:] != before for node, before in zip(nodes.values(), befores, strict=False)):
        return None
    network = Sequential(*[node[0] for node in nodes.values()])
    return network if network.parameter_shapes().keys() == Graph(nodes).parameter_shapes().keys() else None


def _compare(network: Any, model: Any, x: dict[str, np.ndarray], fixed: int | None, rounded: bool) -> None:
    """Check that the outputs are those of ONNX's reference, for two numbers of samples if any is possible."""
    first = next(iter(x.values()))
    tolerance = 1e-5 if first.dtype == "float32" else 1e-6 if rounded else 1e-10
    more = np.arange(len(first) + 1) % len(first)
    for i, node in enumerate(model.graph.node):  # onnx.reference takes "" for the input that another node leaves out
        node.output[:] = [name or f"output {k} of node {i}" for k, name in enumerate(node.output)]
    for feeds in [x] if fixed else [x, {name: each[more] for name, each in x.items()}]:
        batch = next(iter(feeds.values()))
        try:
            expected = ReferenceEvaluator(model, new_ops=COMPARED).run(None, feeds)[0]
        except Exception as error:  # of onnx.reference's own classes
            raise UnsupportedError(f"onnx.reference, with which outputs are compared, fails: {error}") from error
        ours = network(feeds if len(feeds) > 1 else batch)
        words = unlike(ours, expected, tolerance, "that of onnx.reference")
        if words:
            raise ValueError(f"output: {words}")

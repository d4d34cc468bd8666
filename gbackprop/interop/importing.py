"""A network from a torch module."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import INPUT, Layer, leaves_of
from gbackprop.calculus.several import Inputs, items_of
from gbackprop.calculus.walk import values_upwards
from gbackprop.interop.arguments import at, first_line
from gbackprop.interop.assembly import KNOWN, Assembly, Failed
from gbackprop.interop.calls import as_torch
from gbackprop.interop.capture import calling, captured, evaluating, keeping
from gbackprop.interop.gradients import check_gradients, is_hooked
from gbackprop.interop.marks import columns
from gbackprop.interop.outputs import FIXED_STATISTICS, unlike
from gbackprop.interop.sizes import check_beyond
from gbackprop.interop.training import unlike_in_training
from gbackprop.interop.wholes import RECURRENT, WholeModule, converted, is_known, is_patched, shared, wholes_of
from gbackprop.network import Container, Graph, Sequential
from gbackprop.network.container import inside
from gbackprop.network.graph import INPUT_NAME

TOLERANCES = {"float32": 1e-5, "float64": 1e-10}
"""Largest difference of outputs, relative to the largest output."""

DECOMPOSED = frozenset({
    "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input", "lstm_cell", "gru_cell", "rnn_tanh_cell",
    "rnn_relu_cell", "_weight_norm", "_weight_norm_interface", "addcdiv", "lerp.Scalar", "lerp.Tensor",
})  # fmt: skip
"""Functions that are decomposed into others."""


def imported(module: Any, example: Any, output: Any = None) -> Container:
    """Return the network that is a torch module; see `gbackprop.interop.from_torch`."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise at(path, part, "expected a module of Python, got TorchScript (give what it was made of)")
    with keeping(module):
        return _imported(module, example, output)


def _imported(module: torch.nn.Module, example: Any, output: Any) -> Container:
    """Return the network that is a module, whose forward may change its buffers."""
    x, dtype, inputs = _batch(example, _dtype(module))
    dtypes = {key: _batch(each, dtype)[0].dtype for key, each in items_of(example)}
    integers = {key: each for key, each in dtypes.items() if not each.is_floating_point}
    chosen = _chosen(module, output, inputs, integers)
    theirs = [_output(module, chosen, x)]
    _check_memory(module)
    names: Any = None
    network: Any = _of_layers(module, output, tuple(x.shape[1:])) if inputs is None else None
    if network is None:
        network, names = _graph(module, chosen, x, dtype, inputs)
    _load(network, module, dtype)
    theirs += _others(module, chosen, x, inputs)
    _compare(network, x, theirs, names)
    if names is not None:
        output_of = lambda batch: _output(module, chosen, batch)[1].numpy()  # noqa: E731
        check_beyond(module, output_of, network, names[1].conditions, x)
        fixed = FIXED_STATISTICS * names[0].fixed_statistics
        try:
            copied = copy.deepcopy(module)  # whose training mode may change more than buffers
        except Exception:  # of what cannot be copied, as a tensor that was computed
            copied = module
        chosen = _chosen(copied, output, inputs, integers)
        buffers = names[1].buffers.values()
        network.evaluation_only = fixed or unlike_in_training(copied, chosen, x, names[2], buffers)
    return network


def _graph(
    module: torch.nn.Module, chosen: Any, x: torch.Tensor, dtype: str, inputs: Inputs | None
) -> tuple[Graph, Any]:
    """Return the graph of a module, and what compares its layers with torch's calls."""
    without: set[str] = set()
    while True:
        wholes = wholes_of(module, without)
        own = partial(chosen, part=torch.ops.gbackprop.columns)
        with calling({each.module: each.forward for each in wholes.values()} | {module: own}):
            capture = captured(module, x if len(x) > 1 else _larger(x, inputs), DECOMPOSED, KNOWN)
        assembly = Assembly(module, capture, wholes, getattr(torch, dtype), without, inputs)
        try:
            graph = assembly.graph()
        except Failed:
            without |= assembly.broken
            continue
        check_gradients(module, chosen, capture, x, partial(_run_whole, wholes))
        return graph, (assembly, capture, wholes)


def _dtype(module: torch.nn.Module) -> str | None:
    """Return the dtype of all parameters and buffers of floats, None if there are none."""
    values = list(module.state_dict().values())
    kinds = {str(value.dtype).removeprefix("torch.") for value in values if value.is_floating_point()}
    devices = {value.device.type for value in values}
    if len(kinds) > 1 or not kinds <= set(TOLERANCES) or devices - {"cpu"}:
        got = f"{' and '.join(sorted(kinds))} on {' and '.join(sorted(devices))}"
        raise at("", module, f"expected parameters of float32 or float64 on cpu, got {got}")
    return kinds.pop() if kinds else None


def _check_memory(module: torch.nn.Module) -> None:
    """Check that no parameter is in the memory of another one or of a buffer, which a step of torch's changes, too."""
    known: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if value.layout is not torch.strided or value.is_neg():
            continue
        others = known.setdefault(value.untyped_storage().data_ptr(), [])
        for other, each in others:
            if any(x.requires_grad for x in (value, each)) and np.shares_memory(value.detach(), each.detach()):
                words = f"got {other} and {name} in the same (make them one, or clone one)"
                raise at("", module, f"expected parameters in memory of their own, {words}")
        others.append((name, value))


def _batch(example: Any, dtype: str | None) -> tuple[torch.Tensor, str, Inputs | None]:
    """Return the example as a tensor, the network's dtype, and several inputs; floats are in it, None is for theirs."""
    if isinstance(example, tuple | Mapping):
        parts = {key: _batch(value, dtype) for key, value in items_of(example)}
        dtype = dtype or max([of for _, of, _ in parts.values()], default="float32")
        floats = {key: x for key, (x, *_) in parts.items() if x.is_floating_point()}
        arrays = {key: x.numpy().astype(dtype if key in floats else x.numpy().dtype) for key, (x, *_) in parts.items()}
        given = arrays if isinstance(example, Mapping) else tuple(arrays.values())
        inputs = Inputs.of(given)
        if inputs is not None:
            return torch.from_numpy(inputs.packed(given, dtype)), dtype, inputs
    if not isinstance(example, torch.Tensor | np.ndarray) or example.ndim < 1 or len(example) < 1:
        got = getattr(example, "shape", type(example).__name__)
        raise TypeError(f"example: expected an array or a tensor of at least one sample, got {got}")
    x = torch.as_tensor(example.copy() if isinstance(example, np.ndarray) else example).detach().cpu()
    if dtype is None:
        dtype = "float64" if x.dtype == torch.float64 else "float32"
    return (x.to(getattr(torch, dtype)) if x.is_floating_point() else x).clone(), dtype, None


# ------------------------------------------------------------------------------------------------------------- outputs


def _chosen(module: torch.nn.Module, output: Any, inputs: Inputs | None, dtypes: dict[str, torch.dtype]) -> Any:
    """Return the function of a batch that gives one tensor, where `part` takes each of several inputs from it."""
    own = module.forward
    taken = inspect.signature(own).parameters.values()
    several = [p for p in taken if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    none = not several and all(p.kind is p.VAR_KEYWORD for p in taken)
    if inputs is None and (none or any(p.default is p.empty for p in several[1:])):
        words = f"got {[p.name for p in several]} (give several as a tuple or a dictionary, as example)"
        raise at("", module, f"expected one input, {words}")

    def forward(x: torch.Tensor, part: Any = columns) -> torch.Tensor:
        parts = {} if inputs is None else {
            key: part(x, each.start, (x.shape[0], *each.shape), dtypes.get(key, x.dtype), key)
            for key, each in inputs.parts.items()
        }  # fmt: skip
        by_name = inputs is not None and inputs.named
        args: Any = () if by_name else [*parts.values()] or [x]
        given = own(*args, **(parts if by_name else {}))
        try:
            found = given if output is None else given[output]
        except (KeyError, IndexError, TypeError) as error:
            raise at("", module, f"output: expected one of its outputs, got {output!r}: {error!r}") from error
        if not isinstance(found, torch.Tensor):
            named = list(given) if isinstance(given, dict) else len(given) if isinstance(given, tuple | list) else ""
            words = f"one tensor as its output, or output= with its key or number, got {type(found).__name__} {named}"
            raise at("", module, f"expected {words}".strip())
        return found

    return forward


def _output(module: torch.nn.Module, chosen: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch, and the module's output in evaluation mode."""
    with evaluating(module), calling({module: chosen}):
        try:
            return x, module(x.clone()).detach()
        except UnsupportedError:
            raise
        except Exception as error:  # torch has no common class for what layers raise
            raise ValueError(f"example: the module cannot compute it: {first_line(error)}") from error


def _others(
    module: torch.nn.Module, chosen: Any, x: torch.Tensor, inputs: Inputs | None
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return a batch of one more sample, and the example again with its samples alone; both with the outputs."""
    found = []
    for several in ([_larger(x, inputs)], x.split(1)):
        try:
            outputs = [_output(module, chosen, batch)[1] for batch in several]
        except ValueError as error:
            words = str(error).removeprefix("example: the module cannot compute it: ")
            raise UnsupportedError(f"the module cannot compute {len(several[0])} samples: {words}") from error
        if not outputs[-1].ndim:
            words = "got a single number for each sample alone (give squeeze an axis)"
            raise UnsupportedError(f"output: expected the samples along axis 0, {words}")
        found.append((torch.cat(tuple(several)), torch.cat(outputs)))
    return found


def _larger(x: torch.Tensor, inputs: Inputs | None = None) -> torch.Tensor:
    """Return a batch of one more sample: the others in turned order, and before them one of new floats."""
    if inputs is not None:
        x = torch.cat([x[:1], x.flip(0)])
        for part in inputs.parts.values() if x.is_floating_point() else ():
            x[0, part.start : part.start + prod(part.shape)] /= 2 if part.kind == "floats" else 1
        return x
    new = x[:1].flip(tuple(range(1, x.ndim))) / 2 if x.is_floating_point() else x[:1]
    return torch.cat([new, x.flip(0)])


# ------------------------------------------------------------------------------------------------------------ structure


def _of_layers(module: torch.nn.Module, output: Any, shape: tuple[int, ...]) -> Container | None:
    """Return the network of a module that is layers: a chain, or one, with its own names; None for any other."""
    if chain := _is_chain(module) and output is None and not shared(module):
        network: Layer = _sequential(module, "", {})
    elif output == (0 if type(module) in RECURRENT else None) and is_known(module) and _is_convertible(module):
        network = converted(module)
    else:
        return None
    if not isinstance(network, Container):
        network = Graph({type(network).__name__.lower(): (network, INPUT_NAME)})
        network.own = frozenset(network.children)
    try:
        leaves_of(network, shape)
    except ValueError as error:
        if chain:
            raise UnsupportedError(str(error)) from error
        return None  # torch takes the input otherwise, as one sample without a batch
    return network


def _is_chain(module: torch.nn.Module) -> bool:
    """Return whether a module is a Sequential of layers and Sequentials, with torch's own names, without hooks."""
    numbers = [str(i) for i in range(len(module._modules))]
    plain = type(module) is torch.nn.Sequential and list(module._modules) == numbers and not is_patched(module)
    plain = plain and _has_no_hooks(module)
    return plain and all((is_known(p) and _is_convertible(p)) or _is_chain(p) for p in module._modules.values())


def _has_no_hooks(module: torch.nn.Module) -> bool:
    hooks = [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks]
    return not any(hooks) and not any(map(is_hooked, module.parameters(recurse=False)))


def _is_convertible(part: torch.nn.Module) -> bool:
    try:
        converted(part)
    except UnsupportedError:
        return False
    return all(map(_has_no_hooks, part.modules()))


def _sequential(module: Any, path: str, known: dict[int, Layer]) -> Sequential:
    parts: list[Layer] = []
    for name, part in module._modules.items():
        if id(part) not in known:
            known[id(part)] = converted(part) if is_known(part) else _sequential(part, inside(path, name), known)
        parts.append(known[id(part)])
    return Sequential(*parts)


# -------------------------------------------------------------------------------------------------------------- numbers


def _load(network: Container, module: torch.nn.Module, dtype: str) -> None:
    """Load the weights of a module, under the first name of each."""
    values = {name: value.detach() for name, value in module.state_dict().items()}
    network.astype(dtype)
    network.load_state_dict({name: values[name] for name in network.state_dict() if name in values})
    frozen = [name for name, value in module.named_parameters() if not value.requires_grad]
    known = set(network.parameters)
    if known.intersection(frozen):
        network.freeze(*known.intersection(frozen))


def _compare(network: Container, x: torch.Tensor, theirs: list[tuple[torch.Tensor, torch.Tensor]], names: Any) -> None:
    """Check that the outputs for batches of several sizes are torch's."""
    for i, (batch, expected) in enumerate(theirs):
        ours = network(batch.numpy())
        difference = _differ(ours, expected, "float32" if names and names[0].casts else expected.numpy().dtype.name)
        if not difference:
            continue
        if i == 0:
            raise ValueError(f"{_first(network, batch, names) or 'output: '}{difference}")
        words = f"{len(batch)} samples" if i == 1 else "each sample alone"
        raise UnsupportedError(f"output: {difference} for {words}, but none for {len(x)}")


def _first(network: Container, x: torch.Tensor, names: Any) -> str:
    """Return the start of a message that names the first layer whose output differs from torch's call."""
    if names is None:
        return ""
    assembly, capture, wholes = names
    outputs: dict[int, Any] = {INPUT: x.numpy()}
    leaves = leaves_of(network, tuple(x.shape[1:]))
    for leaf, inputs in values_upwards(leaves, outputs):
        outputs[leaf.position] = leaf.layer.forward(*inputs)[0]
    values = capture.run(x, partial(_run_whole, wholes))
    for node, name in assembly.names.items():
        place = assembly.values.get(node)
        last = [leaf for leaf in leaves if leaf.name == name or leaf.name.startswith(f"{name}.")]
        if not last or not hasattr(place, "layout") or node not in values:
            continue
        rows = len(x) if place.layout.axis is not None else 1  # the same for all samples, of which there may be rows
        ours = np.broadcast_to(outputs[last[-1].position][:rows], (rows, *place.layout.features))
        if _differ(as_torch(torch.from_numpy(ours.copy()), place.layout).numpy(), values[node], str(x.numpy().dtype)):
            return f"layer {name}, {last[-1].layer!r}: "
    return ""


def _run_whole(wholes: dict[str, WholeModule], x: Any, mask: Any, path: str, entry: str, *others: Any) -> Any:
    """Compute a module that is called as a whole."""
    if path not in wholes:  # dropout
        return x
    module = wholes[path].module
    given = {} if mask is None else {"attn_mask" if isinstance(module, torch.nn.MultiheadAttention) else "mask": mask}
    with evaluating(module):
        if type(module) is torch.nn.MultiheadAttention:
            found = module.forward(x, x, x, **given)
        else:
            found = module.forward(x, *given.values())  # without its hooks, which are captured
    if not entry:
        return found[0] if isinstance(found, tuple) else found
    return found[1]["hc".index(entry)] if isinstance(found[1], tuple) else found[1]


def _differ(ours: np.ndarray, theirs: torch.Tensor, precision: str) -> str:
    """Return how an output differs from torch's by more than in a precision, or an empty text."""
    return unlike(ours, theirs.numpy(), TOLERANCES.get(precision, 0), "torch's output")

"""`Container`, what all networks have in common: a graph of layers, parameters by name, state dicts, devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from gbackprop.array import Array, array_module, asarray, check_device, on_device_of
from gbackprop.base.checks import batch_of, check_batch, check_parameters, check_shapes, float_name, generator, shown
from gbackprop.base.errors import naming
from gbackprop.base.names import inside
from gbackprop.calculus.inputs import check_input, noise_of
from gbackprop.calculus.layer import INPUT, Layer, Nodes, Shape, leaves_of
from gbackprop.calculus.several import Inputs
from gbackprop.calculus.walk import add_below, downwards, upwards, values_upwards
from gbackprop.engine.forms import FORMS
from gbackprop.engine.forward import output_of
from gbackprop.network.parameters import (
    Buffers,
    Parameters,
    buffers_of,
    convert,
    copy_of,
    may_be_missing,
    name_in,
    set_dtype,
)
from gbackprop.plain.contract import checked


class Container(Layer):
    """Base class of networks: layers that are put together. A subclass defines `place`.

    Parameters
    ----------
    children : mapping of str to Layer
        By the names that start those of their parameters. A layer at several places is one layer: its parameters have
        one name, that of the first place.
    rng : None, int or numpy.random.Generator
        Draws the parameters of all layers that have none yet; see `Sequential`.
    dtype : {"float32", "float64"}, optional

    Raises
    ------
    TypeError
        If a child is not a layer.
    ValueError
        If `dtype` is not one of the two, or not that of parameters that are drawn.
    """

    remade = False

    def __init__(self, children: Mapping[str, Layer], rng: Any = None, dtype: Any = None) -> None:
        self.children = layers_of(children)
        if dtype is not None:
            set_dtype(self.named_layers(), float_name(dtype))
        if rng is not None:
            source = generator(rng)
            for _, layer in self.named_layers():
                if layer.drawn is None:
                    layer.initialize(source)

    # ----------------------------------------------------------------------------------------------------- structure

    own: frozenset[str] = frozenset()
    """Names of the children whose parameters are the container's: they have its path before their names."""

    several: Inputs | None = None
    """The inputs of a network that has several."""

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no place")

    def describe(self) -> str:
        return ", ".join(map(repr, self.children.values()))

    def every_layer(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        """Yield (path, layer) of the layers inside, in order; a layer at several places several times."""
        for key, child in self.children.items():
            yield from child.named_layers(name if key in self.own else inside(name, key))

    def claim(self, nodes: Nodes, name: str) -> None:
        """Give the layers in `own` the path of the container, from which their parameters are named."""
        for key in self.own & self.children.keys():
            nodes.names.setdefault(id(self.children[key]), name)

    def named_layers(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        seen: set[int] = set()
        for path, layer in self.every_layer(name):
            if id(layer) not in seen:
                seen.add(id(layer))
                yield path, layer

    def output_shape(self, shape: Shape) -> Shape:
        leaves = leaves_of(self, shape)
        return leaves[-1].output_shape if leaves else shape

    # ------------------------------------------------------------------------------------------------------ function

    def __call__(self, x: Array) -> Array:
        """Compute the output for a batch in evaluation mode.

        Parameters
        ----------
        x : ndarray, shape (N, *in)
            On the network's device and of its dtype; integers if the first layer takes them. A tuple or a dictionary of
            arrays if the network has several inputs.

        Returns
        -------
        ndarray, shape (N, *out)

        Raises
        ------
        TypeError, ValueError
            If `x` does not fit; the message names the layer or the argument.
        """
        x = batch_of(self, x)
        check_batch(x)
        leaves = leaves_of(self, x.shape[1:])
        check_shapes(leaves)
        check_parameters(self.parameters, check_input(leaves, x))
        with on_device_of(x), naming(lambda: f"forward pass of {x.shape[0]} samples"):
            return output_of(leaves, x, FORMS)

    def forward(self, x: Array) -> tuple[Array, Any]:
        return self._forward(x, None)

    def forward_training(self, x: Array, noise: Any) -> tuple[Array, Any]:
        return self._forward(x, noise)

    def _forward(self, x: Array, noise: Any) -> tuple[Array, Any]:
        leaves, saved, at = leaves_of(self, x.shape[1:], training=noise is not None), [], {INPUT: x}
        for leaf, inputs in values_upwards(leaves, at):
            layer = leaf.layer
            training = noise is not None and len(inputs) == 1
            made = layer.forward_training(inputs[0], noise[leaf.position]) if training else layer.forward(*inputs)
            at[leaf.position], kept = checked(leaf, "forward_training" if training else "forward", made, inputs)
            saved.append(kept)
        return at[len(leaves) - 1], (leaves, saved)

    def noise(self, batch_shape: Shape, rng: np.random.Generator) -> Any:
        n, *shape = batch_shape
        return tuple(noise_of(leaf, n, rng) for leaf in leaves_of(self, tuple(shape), training=True))

    def jmp(self, saved: Any, mat: Array) -> Array:
        leaves, kept = saved
        at = {INPUT: mat}
        for leaf, mats in upwards(leaves, at):
            if leaf.sources:
                at[leaf.position] = leaf.layer.jmp(kept[leaf.position], *mats)
            else:
                at[leaf.position] = array_module(mat).zeros((*mat.shape[:2], *leaf.output_shape), dtype=mat.dtype)
        return at[len(leaves) - 1]

    def mjp(self, saved: Any, mat: Array) -> Array:
        leaves, kept = saved
        arriving = {len(leaves) - 1: mat}
        for leaf, columns in downwards(leaves, arriving):
            below = leaf.layer.mjp(kept[leaf.position], columns)
            add_below(leaf, below, arriving, lambda total, part, _: total + part)
        return arriving[INPUT]

    # ---------------------------------------------------------------------------------------------------- parameters

    @property
    def parameters(self) -> Parameters:  # type: ignore[override]
        """Parameters by name, in order; assigning to a name or changing an array in place changes the network."""
        return Parameters(self._named(lambda layer: layer.parameter_shapes()))

    def _named(self, keys: Callable[[Layer], Iterable[str]]) -> dict[str, tuple[Layer, str]]:
        """Return the layer and the name there of each of its `keys`, by the name in the network."""
        layers = self.named_layers()
        return {name_in(layer, path, key): (layer, key) for path, layer in layers for key in keys(layer)}

    @property
    def trainable(self) -> Parameters:
        """The parameters that are not frozen, by name: those that have gradients and quantities."""
        owners = self.parameters.owners
        return Parameters({name: (layer, key) for name, (layer, key) in owners.items() if key not in layer.frozen})

    @property
    def frozen(self) -> frozenset[str]:  # type: ignore[override]
        """Names of the parameters that are frozen: those that are not in `trainable`."""
        return frozenset(self.parameters) - frozenset(self.trainable)

    @property
    def buffers(self) -> Buffers:
        """Buffers by name, in order: what a state dict has beside parameters, such as running statistics."""
        return Buffers(self._named(buffers_of))

    def parameter_shapes(self) -> dict[str, Shape]:
        return {name: layer.parameter_shapes()[key] for name, (layer, key) in self.parameters.owners.items()}

    def initialize(self, rng: int | np.random.Generator | None) -> None:
        """Draw new values of all parameters; an integer seeds the draws, None draws fresh entropy."""
        source = generator(rng)
        for _, layer in self.named_layers():
            layer.initialize(source)

    def freeze(self, *names: str) -> Self:
        """Compute no gradient and no quantity of some parameters from now on; return the network.

        Parameters
        ----------
        *names : str
            Parameters, or layers by their paths: all of their parameters. All parameters by default.

        Raises
        ------
        ValueError
            If there is no such parameter or layer; none is frozen then.
        """
        self._set_frozen(names, True)
        return self

    def unfreeze(self, *names: str) -> Self:
        """Undo `freeze`, of all parameters by default; return the network."""
        self._set_frozen(names, False)
        return self

    def _set_frozen(self, names: tuple[str, ...], frozen: bool) -> None:
        owners = self.parameters.owners
        chosen: dict[str, Any] = {} if names else dict(owners)
        for name in names:
            found = {key: owner for key, owner in owners.items() if key == name or key.startswith(f"{name}.")}
            if not found:
                raise ValueError(f"expected a parameter or layer among {list(owners)}, got {name!r}")
            chosen |= found
        for layer, key in chosen.values():
            layer.frozen = layer.frozen | {key} if frozen else layer.frozen - {key}

    def state_dict(self) -> dict[str, Array]:
        """Return copies of parameters and buffers by name, named and in order as in torch, on the network's device."""
        values = {**self.parameters, **self.buffers}
        return {name: copy_of(values[name]) for name in self._named(_in_state)}

    def load_state_dict(self, mapping: Mapping[str, Any]) -> Self:
        """Set all parameters and buffers, converted to the network's dtype and moved to its device.

        Parameters
        ----------
        mapping : mapping of str to array
            As `state_dict` returns it; tensors of torch on the CPU, too. Extra or missing names are errors, but for
            ``num_batches_tracked``: state dicts that lack it, as torch's before it had that buffer, leave it as it is.

        Raises
        ------
        ValueError
            If names are unknown or missing, a shape is wrong, or a number is NaN, infinite or beyond the range of the
            network's dtype; nothing is loaded then.
        TypeError
            If a value is not an array of floats, or of integers where the buffer has integers; nothing is loaded then.
        """
        if not isinstance(mapping, Mapping):
            raise TypeError(f"state dict: expected a mapping of names to arrays, got {type(mapping).__name__}")
        names = list(self._named(_in_state))
        known = set(names)
        unknown = [k for k in mapping if k not in known]
        missing = [k for k in names if k not in mapping and not may_be_missing(k, mapping)]
        if unknown or missing:
            raise ValueError(f"state dict: unknown keys {unknown}, missing keys {missing}; expected {names}")
        views = (self.parameters, self.buffers)
        given = [(view, {name: mapping[name] for name in view if name in mapping}) for view in views]
        for view, values in [(view, view.checked(values)) for view, values in given]:
            for name, value in values.items():
                view.put(name, value)
        return self

    def to(self, device: str) -> Self:
        """Move all parameters and buffers to ``"cpu"``, ``"cuda"`` or ``"cuda:1"``, in place; return the network.

        Raises
        ------
        RuntimeError
            If the device is a GPU and CuPy is missing or finds none.
        """
        check_device(device)
        owned = [values for _, layer in self.named_layers() for values in (layer.parameters, buffers_of(layer))]
        moved = [(values, {key: asarray(value, device) for key, value in values.items()}) for values in owned]
        for values, there in moved:
            values.update(there)
        return self

    def astype(self, dtype: Any) -> Self:
        """Convert all parameters and buffers of floats to ``"float32"`` or ``"float64"``, in place; return the network.

        Parameters that are not drawn yet will be drawn in that dtype. An optimizer of the network has a state in the
        old one: make another.

        Raises
        ------
        ValueError
            If `dtype` is another one, or a number is NaN, infinite or beyond its range; nothing is converted then.
        """
        convert(list(self.named_layers()), float_name(dtype))
        return self


def layers_of(children: Mapping[str, Layer]) -> dict[str, Layer]:
    """Return the layers inside a container by name; all must be layers."""
    for name, layer in children.items():
        if not isinstance(layer, Layer):
            raise TypeError(f"layer {name}: expected a Layer, got {shown(layer)}")
    return dict(children)


def check_network(network: Any) -> None:
    """Check that an argument is a network."""
    if not isinstance(network, Container):
        raise TypeError(f"network: expected a network such as gb.Sequential, got {type(network).__name__}")


def _in_state(layer: Layer) -> tuple[str, ...]:
    """Return the names in a layer's state dict."""
    return (*layer.parameter_shapes(), *(buffers_of(layer) if getattr(layer, "persistent", True) else ()))

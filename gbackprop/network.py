"""`Sequential`, a chain of layers. A network is itself a layer, so networks can be nested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self, overload

import numpy as np

from gbackprop.array import Array, asarray, check_device, on_device_of
from gbackprop.checks import check_batch, check_parameters, float_name, generator
from gbackprop.engine.forms import FORMS
from gbackprop.engine.sweep import output_of
from gbackprop.errors import UnsupportedError, naming
from gbackprop.layers.base import Layer, Leaf, Shape
from gbackprop.parameters import Parameters, check_numbers, converted, copy_of

OWN = ("forward", "forward_training", "noise", "jmp", "mjp")
"""Methods that a subclass of `Sequential` cannot override: a sweep visits the layers one by one."""

STRUCTURE = ("named_layers", "leaves", "output_shape", "initialize")
"""Methods by which a container says what is inside; those of a subclass are called."""


class Sequential(Layer):
    """A chain of layers.

    Parameters
    ----------
    *layers : Layer
        Sequentials can be among them. Parameters are named as in torch: "0.weight", "1.0.bias", …
    rng : None, int or numpy.random.Generator
        Draws the parameters of all layers that have none yet, one after the other, as torch does by default. With
        None they are drawn from fresh entropy on first use, unless an outer Sequential's `rng` or `load_state_dict`
        sets them before.
    dtype : {"float32", "float64"}, optional
        dtype of the parameters; float32 if no container sets another.

    Raises
    ------
    TypeError
        If an argument is not a layer.
    ValueError
        If a layer with parameters appears twice, or `dtype` is not one of the two.
    """

    _reused = True
    """Whether a layer inside may also be in another container."""

    def __init__(self, *layers: Layer, rng: int | np.random.Generator | None = None, dtype: Any = None) -> None:
        for i, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise TypeError(f"layer {i}: expected a Layer, got {layer!r}")
        self.layers = layers
        self._forbid_sharing()
        if dtype is not None:
            self._set_dtype(dtype)
        if rng is not None:
            source = generator(rng)
            for _, layer in self.named_layers():
                if layer.drawn is None:
                    layer.initialize(source)

    def _forbid_sharing(self) -> None:
        """Check that no layer with parameters appears twice.

        It can only do so if some container inside has a layer that was in a container before. The search is left out
        where there is none: a deep network is built in linear time.
        """
        self._reused = False
        for layer in self.layers:
            ours = type(layer).named_layers in (Layer.named_layers, Sequential.named_layers)
            self._reused |= layer.placed or not ours or (isinstance(layer, Sequential) and layer._reused)
            if isinstance(layer, Sequential) or layer.parameter_shapes():
                layer.placed = True
        if not self._reused:
            return
        seen: dict[int, str] = {}
        for name, layer in self.named_layers():
            if id(layer) in seen and layer.parameter_shapes():
                raise ValueError(
                    f"layer {name}, {layer!r}: expected a layer of its own, got the one at {seen[id(layer)]} again "
                    "(layers cannot share parameters)"
                )
            seen[id(layer)] = name

    def _set_dtype(self, dtype: Any) -> None:
        wanted = float_name(dtype)
        for name, layer in self.named_layers():
            for key, value in (layer.drawn or {}).items():
                if value.dtype != wanted:
                    raise ValueError(
                        f"dtype: layer {name}, {layer!r}, has its {key} in {value.dtype}, not {wanted} "
                        "(astype converts a network)"
                    )
            layer.dtype = wanted

    # ----------------------------------------------------------------------------------------------------- structure

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, index: int) -> Layer: ...

    @overload
    def __getitem__(self, index: slice) -> Sequential: ...

    def __getitem__(self, index: int | slice) -> Layer:
        """Return a layer, or for a slice a network of these very layers: it shares their parameters with this one."""
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __repr__(self) -> str:
        words: list[str] = []
        waiting: list[Any] = [self]
        while waiting:
            at = waiting.pop()
            if isinstance(at, Sequential) and not _own(at, ("__repr__",)):
                parts = [part for child in at.layers for part in (", ", child)][1:]
                waiting += reversed(["Sequential(", *parts, ")"])
            else:
                words.append(at if isinstance(at, str) else repr(at))
        return "".join(words)

    def chain(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        """Yield (path, layer) of the layers inside, from input to output, with a loop: nesting may be of any depth.

        A subclass of Sequential with methods of its own is given whole.
        """
        waiting: list[tuple[str, Layer]] = [(name, self)]
        while waiting:
            path, layer = waiting.pop()
            if isinstance(layer, Sequential) and (layer is self or not _own(layer, OWN + STRUCTURE)):
                inside = [(f"{path}.{i}" if path else str(i), child) for i, child in enumerate(layer.layers)]
                waiting += reversed(inside)
            else:
                yield path, layer

    def named_layers(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        for path, layer in self.chain(name):
            yield from layer.named_layers(path)

    def leaves(self, shape: Shape, name: str = "") -> list[Leaf]:
        plain = type(self) is Sequential and vars(self).keys().isdisjoint(OWN)
        for method in () if plain else _own(self, OWN):
            raise UnsupportedError(
                f"layer {name or '(the network)'}, {type(self).__name__}: expected a chain of layers, got a "
                f"subclass of Sequential with a {method} of its own (write a Layer instead)"
            )
        found: list[Leaf] = []
        for path, layer in self.chain(name):
            found += layer.leaves(shape, path)
            shape = found[-1].output_shape if found else shape
        return found

    def output_shape(self, shape: Shape) -> Shape:
        leaves = self.leaves(shape)
        return leaves[-1].output_shape if leaves else shape

    # ------------------------------------------------------------------------------------------------------ function

    def __call__(self, x: Array) -> Array:
        """Compute the output for a batch in evaluation mode.

        Parameters
        ----------
        x : ndarray, shape (N, *in)
            On the network's device and of its dtype.

        Returns
        -------
        ndarray, shape (N, *out)

        Raises
        ------
        TypeError, ValueError
            If `x` does not fit; the message names the layer or the argument.
        """
        check_batch(x)
        leaves = self.leaves(x.shape[1:])
        check_parameters(self.parameters, x)
        with on_device_of(x), naming(lambda: f"forward pass of {x.shape[0]} samples"):
            return output_of(leaves, x, FORMS)

    def forward(self, x: Array) -> tuple[Array, Any]:
        saved = []
        for _, layer in self.chain():
            x, kept = layer.forward(x)
            saved.append(kept)
        return x, saved

    def forward_training(self, x: Array, noise: Any) -> tuple[Array, Any]:
        saved = []
        for (_, layer), drawn in zip(self.chain(), noise, strict=True):
            x, kept = layer.forward_training(x, drawn)
            saved.append(kept)
        return x, saved

    def noise(self, batch_shape: Shape, rng: np.random.Generator) -> Any:
        drawn = []
        for _, layer in self.chain():
            drawn.append(layer.noise(batch_shape, rng))
            batch_shape = (batch_shape[0], *layer.output_shape(batch_shape[1:]))
        return tuple(drawn)

    def jmp(self, saved: Any, mat: Array) -> Array:
        for (_, layer), kept in zip(self.chain(), saved, strict=True):
            mat = layer.jmp(kept, mat)
        return mat

    def mjp(self, saved: Any, mat: Array) -> Array:
        for (_, layer), kept in reversed(list(zip(self.chain(), saved, strict=True))):
            mat = layer.mjp(kept, mat)
        return mat

    # ---------------------------------------------------------------------------------------------------- parameters

    @property
    def parameters(self) -> Parameters:  # type: ignore[override]
        """Parameters by name, in order; assigning to a name or changing an array in place changes the network."""
        named = [(path, layer, name) for path, layer in self.named_layers() for name in layer.parameter_shapes()]
        return Parameters({f"{path}.{name}": (layer, name) for path, layer, name in named})

    def parameter_shapes(self) -> dict[str, Shape]:
        return {
            f"{path}.{name}": shape
            for path, layer in self.named_layers()
            for name, shape in layer.parameter_shapes().items()
        }

    def initialize(self, rng: np.random.Generator) -> None:
        for _, layer in self.chain():
            layer.initialize(rng)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters by name, named as in torch, on the network's device."""
        return {name: copy_of(value) for name, value in self.parameters.items()}

    def load_state_dict(self, mapping: Mapping[str, Any]) -> Self:
        """Set all parameters, converted to the network's dtype and moved to its device.

        Parameters
        ----------
        mapping : mapping of str to array
            As `state_dict` returns it. Extra or missing names are errors.

        Raises
        ------
        ValueError
            If names are unknown or missing, a shape is wrong, or a number is NaN, infinite or beyond the range of the
            network's dtype; nothing is loaded then.
        TypeError
            If a value is not an array of floats; nothing is loaded then.
        """
        if not isinstance(mapping, Mapping):
            raise TypeError(f"state dict: expected a mapping of names to arrays, got {type(mapping).__name__}")
        shapes = self.parameter_shapes()
        unknown, missing = [k for k in mapping if k not in shapes], [k for k in shapes if k not in mapping]
        if unknown or missing:
            raise ValueError(f"state dict: unknown keys {unknown}, missing keys {missing}; expected {list(shapes)}")
        self.parameters.load({name: mapping[name] for name in shapes})
        return self

    def to(self, device: str) -> Self:
        """Move all parameters to ``"cpu"``, ``"cuda"`` or ``"cuda:1"``, in place; return the network.

        Raises
        ------
        RuntimeError
            If the device is a GPU and CuPy is missing or finds none.
        """
        check_device(device)
        held = [layer.parameters for _, layer in self.named_layers()]
        moved = [{key: asarray(value, device) for key, value in values.items()} for values in held]
        for values, there in zip(held, moved, strict=True):
            values.update(there)
        return self

    def astype(self, dtype: Any) -> Self:
        """Convert all parameters to ``"float32"`` or ``"float64"``, in place; return the network.

        Parameters that are not drawn yet will be drawn in that dtype. An optimizer of the network has a state in the
        old one: make another.

        Raises
        ------
        ValueError
            If `dtype` is another one, or a number is NaN, infinite or beyond its range; nothing is converted then.
        """
        wanted, named = float_name(dtype), list(self.named_layers())
        before = {(path, key): value for path, layer in named for key, value in (layer.drawn or {}).items()}
        after = {place: converted(value, wanted) for place, value in before.items()}
        check_numbers(*({f"{path}.{key}": value for (path, key), value in some.items()} for some in (before, after)))
        for path, layer in named:
            layer.dtype = wanted
            (layer.drawn or {}).update({key: after[path, key] for key in layer.drawn or ()})
        return self


def _own(layer: Layer, methods: tuple[str, ...]) -> list[str]:
    """Return which of the methods are not those of `Sequential`."""
    ours = Sequential
    return [name for name in methods if getattr(getattr(layer, name), "__func__", None) is not getattr(ours, name)]

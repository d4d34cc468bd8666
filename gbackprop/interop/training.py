"""The difference between a torch module in training mode and the network that it became."""

from __future__ import annotations

import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gbackprop.interop.arguments import at, first_line
from gbackprop.interop.capture import calling, evaluating
from gbackprop.interop.outputs import unlike
from gbackprop.interop.wholes import WholeModule


def unlike_in_training(
    module: torch.nn.Module,
    chosen: Callable[..., Any],
    x: torch.Tensor,
    wholes: Mapping[str, WholeModule],
    buffers: Collection[str],
) -> str:
    """Return what a module, which it may change, does in training mode beside dropout and batch norms, or "".

    Both of these are put into evaluation mode where they are functions or layers of the network; what is left has to
    draw no random numbers, to change none of the `buffers` that are constants, and to give the same output.
    """
    paths = {id(part): path for path, part in module.named_modules()}
    of_evaluation, of_training = Still(False, paths, wholes), Still(True, paths, wholes)
    with evaluating(module):
        before = of_evaluation.output(module, chosen, x)
    kept = {name: value.clone() for name, value in module.named_buffers() if name in buffers}
    with evaluating(module):  # it gets the modes that it had
        try:
            module.train()
            left = next((path for path, part in module.named_modules() if not part.training), None)
            after = of_training.output(module, chosen, x)
        except Exception as error:  # the module's own code runs here, and may raise anything
            return f"in training mode the module raises an error: {first_line(error)}"
    for more, other in ((of_training, of_evaluation), (of_evaluation, of_training)):
        for where, words in (more.found - other.found).elements():
            mode = "training" if more is of_training else "evaluation"
            return str(at(where, module.get_submodule(where), f"{words} in {mode} mode alone, which is not taken"))
    if left is not None:
        return str(at(left, module.get_submodule(left), "is left in evaluation mode by the module's own train()"))
    now = dict(module.named_buffers())
    for path, _, name in (buffer.rpartition(".") for buffer, value in kept.items()
                          if now.get(buffer) is None or not np.array_equal(value, now[buffer], equal_nan=True)):
        words = f"changes its buffer {name} in training mode, which is not taken"
        return str(at(path, module.get_submodule(path), words))
    difference = unlike(after.numpy(), before.numpy(), 1e-5, "its output in evaluation mode")
    return f"in training mode the module computes something else: {difference}" if difference else ""


class Still(TorchFunctionMode):
    """Makes calls of dropout and batch norms those of evaluation mode, and notes what draws random numbers.

    `found` counts a module's path and what is done there.
    """

    def __init__(self, training: bool, paths: Mapping[int, str], wholes: Mapping[str, WholeModule]) -> None:
        super().__init__()
        self.training, self.paths, self.inside = training, paths, 0
        self.layers = [path for path, whole in wholes.items() if whole.calls]
        self.found: Counter[tuple[str, str]] = Counter()

    def output(self, module: torch.nn.Module, chosen: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
        """Return the module's output for a batch."""
        layers = [module.get_submodule(path) for path in self.layers]
        forwards = {layer: self._still(layer) for layer in layers} | {module: chosen}
        before = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad(), calling(forwards), Draws(self), self:
                return module(x.clone()).detach()
        finally:
            if repr((random.getstate(), np.random.get_state())) != repr(before):  # noqa: NPY002
                self.found["", "draws random numbers of Python or NumPy"] += 1
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002

    def _still(self, layer: torch.nn.Module) -> Callable[..., Any]:
        """Return the `forward` of a module that is a layer of the network: that of evaluation mode."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.inside += 1
            try:
                with evaluating(layer):
                    return type(layer).forward(layer, *args, **kwargs)
            finally:
                self.inside -= 1

        return forward

    def note(self, words: str) -> None:
        """Count what is done in the innermost module that is called."""
        frame: Any = sys._getframe(1)
        while frame is not None and id(frame.f_locals.get("self")) not in self.paths:
            frame = frame.f_back
        where = "" if frame is None else self.paths[id(frame.f_locals["self"])]
        self.found[where, words] += not self.inside

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        words = WORDS.get(func)
        if words is None:
            return func(*args, **(kwargs or {}))
        given = inspect.signature(func).bind(*args, **(kwargs or {}))
        given.apply_defaults()
        asked = given.arguments
        if asked["training"] == self.training and asked.get("p", 1) and asked.get("running_mean", self) is not None:
            self.note(words.format(**asked))
            asked["training"] = False
        return func(*given.args, **given.kwargs)


WORDS = {functional.dropout: "drops numbers with p = {p}", functional.batch_norm: "normalizes as a batch norm"}
"""Functions that the network has in training mode, too, with what they do."""


class Draws(TorchDispatchMode):
    """Notes the functions that draw random numbers."""

    def __init__(self, still: Still) -> None:
        super().__init__()
        self.still = still

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.still.note(f"draws random numbers ({func._schema.name.partition('::')[2]})")
        return func(*args, **(kwargs or {}))

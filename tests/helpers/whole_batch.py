"""Brute force through the whole batch: Jacobian and Hessian of a network in training mode, by complex steps."""

import numpy as np

from gbackprop.calculus.layer import leaves_of
from gbackprop.calculus.walk import add_below, downwards, values_upwards

STEP = 1e-30


class WholeBatch:
    """A network in training mode at a batch, as a function of all its parameters."""

    def __init__(self, network, loss, x, y):
        self.network, self.loss, self.x, self.y = network, loss, x, y
        self.leaves = leaves_of(network, x.shape[1:], training=True)
        self.values = {name: np.array(value) for name, value in network.parameters.items()}
        self.output, self.factor = self.run(self.values)[0], loss.factor(len(x), y)
        outputs = self._derivatives(lambda values: self.run(values)[0])
        self.jacobian = outputs.reshape(len(x), -1, outputs.shape[-1])  # [N, C, D]
        root = loss.hessian_sqrt(self.output, y)
        root = root.reshape(*root.shape[:2], -1)
        self.gradients = loss.gradients(self.output, y)
        each = self.gradients.reshape(len(x), -1)
        self.individual = self.factor * np.einsum("nci,nc->ni", self.jacobian, each)
        pushed = np.einsum("vnc,nci->vni", root, self.jacobian)
        self.ggn = self.factor * np.einsum("vni,vnj->ij", pushed, pushed)

    def run(self, values):
        """The outputs at other values of the parameters, and what each layer saved."""
        owned = [leaf.layer for leaf in self.leaves]
        before = [layer.drawn for layer in owned]
        for leaf in self.leaves:
            leaf.layer.drawn = {key: values[name] for key, name in leaf.parameters.items()}
        at, saved = {-1: self.x}, []
        for leaf, inputs in values_upwards(self.leaves, at):
            at[leaf.position], kept = leaf.layer.forward(*inputs)
            saved.append((kept, leaf.layer.parameter_jacobians(kept)))
        below = self._pull(saved) if hasattr(self, "gradients") else None
        for layer, drawn in zip(owned, before, strict=True):
            layer.drawn = drawn
        return at[len(self.leaves) - 1], below

    def _pull(self, saved):
        """R Σₙ Jᵀ g for the gradient g at the outputs, which is not moved."""
        arrived = {len(self.leaves) - 1: self.factor * self.gradients[None] + 0j}
        found = dict.fromkeys(self.values, 0)
        for leaf, mat in downwards(self.leaves, arrived):
            kept, jacobians = saved[leaf.position]
            for key, name in leaf.parameters.items():
                found[name] = found[name] + jacobians[key].per_sample(mat).sum((0, 1))
            if leaf.sources:
                add_below(leaf, leaf.layer.mjp(kept, mat), arrived, lambda one, other, _: one + other)
        return np.concatenate([value.ravel() for value in found.values()])

    def hessian(self):
        """The GGN and what moves in Jᵀ g, shape (D, D)."""
        return self.ggn + self._derivatives(lambda values: self.run(values)[1])

    def _derivatives(self, function):
        """The derivative in each entry of each parameter, as the last axis."""
        found = []
        for name, value in self.values.items():
            for entry in range(value.size):
                moved = value.astype(complex)
                moved.flat[entry] += 1j * STEP
                found.append(function(self.values | {name: moved}).imag / STEP)
        return np.stack(found, -1)

    def joined(self, values):
        """The arrays of a quantity as one vector, or one for each sample."""
        parts = [values[name] for name in self.values]
        lead = () if parts[0].shape == next(iter(self.values.values())).shape else (len(self.x),)
        return np.concatenate([np.reshape(part, (*lead, -1)) for part in parts], -1)

    def block(self, name):
        """The rows and columns of a parameter."""
        start = 0
        for other, value in self.values.items():
            if other == name:
                return slice(start, start + value.size)
            start += value.size

"""The exact blocks of parameters, formed from dense Jacobians by complex steps."""

import numpy as np

from gbackprop.testing.oracles import Dense


def blocks(network, loss, x, y, joint=False, empirical=False):
    """R Σₙ Jₙᵀ Hₙ Jₙ of each parameter, or R Σₙ ∇ℓₙ ∇ℓₙᵀ; with `joint` of the matrices [W, b]."""
    found = {}
    parts = Dense(network, loss, x, y).parts
    for name, part in parts.items():
        if joint and name.endswith("bias"):
            continue
        jacobian = part.jacobians.reshape(*part.jacobians.shape[:2], part.jacobians.shape[2], -1)
        if joint:
            bias = parts[name.removesuffix("weight") + "bias"].jacobians
            jacobian = np.concatenate([jacobian, bias[..., None]], axis=-1)
        flat = jacobian.reshape(*jacobian.shape[:2], -1)
        if empirical:
            each = part.gradients.reshape(len(x), -1)
            found[name] = part.factor * each.T @ each
        else:
            found[name] = part.factor * np.einsum("nca,ncd,ndb->ab", flat, part.hessians, flat, optimize=True)
    return found


def distance(block, approximation):
    """‖G − K‖ / ‖G‖ of dense matrices."""
    return np.linalg.norm(block - approximation) / np.linalg.norm(block)


def dense(value):
    """A result for one parameter as a matrix: a diagonal's entries are the parameter's."""
    return value.to_dense() if hasattr(value, "to_dense") else np.diag(value.ravel())

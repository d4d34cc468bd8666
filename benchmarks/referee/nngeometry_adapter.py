"""nngeometry: Fisher matrices in several representations, Hessian, Jacobian and tangent kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from modules import SAMPLES, array, batch_of, by_name, loss_of, module_of, stacked
from nngeometry import layercollection, metrics
from nngeometry.gram import GramMatrix
from nngeometry.hessian import Hessian
from nngeometry.jacobian import Jacobian
from nngeometry.object import PMatDense, PMatDiag, PMatImplicit, PMatKFAC, PVector
from torch.utils.data import DataLoader, TensorDataset

from gbackprop.testing.referee import Problem

torch.set_default_dtype(torch.float64)  # FIM of classes multiplies with a matrix of the default


def loader(problem: Problem) -> DataLoader:
    """Return the whole batch as one of a loader."""
    return DataLoader(TensorDataset(*batch_of(problem)), batch_size=len(problem.x))


def fisher(problem: Problem, representation: Any) -> Any:
    """Return the Fisher matrix, of a normal distribution for squared error."""
    variant = "regression" if problem.loss == "MSELoss" else "classif_logits"
    return metrics.FIM(module_of(problem), loader(problem), representation, variant=variant)


def drawn(problem: Problem, _: int) -> Any:
    """Return a draw of the Fisher matrix, which exists for classes alone."""
    if problem.loss == "MSELoss":
        raise NotImplementedError("not asked: FIM_MonteCarlo has no variant for regression")
    return {
        "": array(metrics.FIM_MonteCarlo(module_of(problem), loader(problem), PMatDense, trials=SAMPLES).to_torch())
    }


def product(problem: Problem) -> Any:
    module = module_of(problem)
    collection = layercollection.LayerCollection.from_model(module)
    variant = "regression" if problem.loss == "MSELoss" else "classif_logits"
    matrix = metrics.FIM(module, loader(problem), PMatImplicit, variant=variant, layer_collection=collection)
    vector = torch.cat([torch.tensor(v).flatten() for v in problem.vector.values()])
    return by_name(problem, matrix.mv(PVector(layer_collection=collection, vector_repr=vector)).to_torch())


def diagonal(problem: Problem) -> Any:
    """The diagonal, cut by nngeometry's own sizes of the parameters."""
    collection = layercollection.LayerCollection.from_model(module_of(problem))
    parts = PVector(layer_collection=collection, vector_repr=fisher(problem, PMatDiag).get_diag()).to_dict()
    return {f"{name}.{key}": array(v) for name, own in parts.items() for key, v in zip(("weight", "bias"), own)}


def kfac(problem: Problem) -> Any:
    """G ⊗ A of each layer, with the bias in A."""
    blocks = fisher(problem, PMatKFAC).data
    return {name: np.kron(array(g), array(a)) for name, (a, g) in blocks.items()}


def jacobian(problem: Problem) -> Any:
    """J, from (C, N, D)."""
    return array(Jacobian(module_of(problem), loader(problem)).to_torch()).swapaxes(0, 1)


def ntk(problem: Problem) -> Any:
    """The tangent kernel, from (C, N, C, N)."""
    return array(GramMatrix(module_of(problem), loader(problem)).to_torch()).transpose(1, 3, 0, 2)


def hessian(problem: Problem) -> Any:
    return array(Hessian(module_of(problem), loader(problem), PMatDense, function=loss_of(problem)).to_torch())


def dense(representation: Any) -> Callable[[Problem], Any]:
    return lambda problem: array(fisher(problem, representation).to_torch())


ADAPTERS = {
    "nngeometry": {
        "jacobian": jacobian,
        "ntk": ntk,
        "ggn": dense(PMatDense),
        "ggn_mc": stacked(drawn),
        "diag_ggn": diagonal,
        "ggn_product": product,
        "kfac_exact_expand_joint": kfac,
        "hessian": hessian,
    }
}
PACKAGES = ("nngeometry", "torch")
CONVENTIONS = """
There is no reduction: the Fisher matrix is an expectation over the loader, 1/N Σₙ. For "regression" it is that of a
normal distribution "with identity covariance", Jᵀ J, where squared error has 2 Jᵀ J.
"""

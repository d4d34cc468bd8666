"""gbackprop itself as an adapter: NumPy in, NumPy out."""

import numpy as np

import gbackprop as gb
from gbackprop import quantities as q
from gbackprop.quantities import Quantity


def of(make):
    """A function for one of gbackprop's quantities; Kronecker blocks become dense."""

    def function(problem):
        network, loss = problem.build()
        result = gb.backward(network, loss, problem.x, problem.y, *([make()] if make else []), rng=0)
        values = result[result.quantities[0]] if make else result.gradient
        return {name: value.to_dense() if hasattr(value, "to_dense") else value for name, value in values.items()}

    return function


def drawn(make, draws=30):
    """A function that stacks draws with different seeds."""

    def function(problem):
        network, loss = problem.build()
        every = []
        for seed in range(draws):
            quantity: Quantity = make()
            values = gb.backward(network, loss, problem.x, problem.y, quantity, rng=seed)[quantity]
            every.append({k: v.to_dense() if hasattr(v, "to_dense") else v for k, v in values.items()})
        return {name: np.stack([each[name] for each in every]) for name in every[0]}

    return function


ADAPTER = {
    "gradient": of(None),
    "batch_grad": of(q.BatchGrad),
    "batch_l2": of(q.BatchL2Grad),
    "second_moment": of(q.SecondMoment),
    "variance": of(q.Variance),
    "diag_ggn": of(q.DiagGGN),
    "diag_ggn_mc": drawn(lambda: q.DiagGGNMC(40)),
    "batch_diag_ggn": of(q.BatchDiagGGN),
    "diag_hessian": of(q.DiagHessian),
    "batch_diag_hessian": of(q.BatchDiagHessian),
    "kfac_exact_bias": of(q.KFLR),
    "kfac_mc_bias": drawn(lambda: q.KFAC(40)),
    "kfra": of(q.KFRA),
}

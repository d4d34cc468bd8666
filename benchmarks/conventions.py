"""Hold `Result.scaled` against the libraries whose scales it states: ``python benchmarks/conventions.py``.

For each library that is installed: vectors, sequences and images; squared error and cross-entropy, "mean" and "sum";
each convention that the library has and that draws nothing. Prints the largest relative error of each case and ends
with status 1 if one is above 1e-8. laplace-torch (0.3) and kfac-jax (0.0.6, on vectors) are used if
they are there.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from backpack import backpack, extend
from backpack.extensions import KFLR
from curvlinops import KFACLinearOperator
from torch import nn

import gbackprop as gb
from gbackprop import losses
from gbackprop import quantities as q

ALLOWED = 1e-8
N, C = 5, 3
FISHER = {"exact": "type-2", "empirical": "empirical", "forward-only": "forward-only"}


class Mean(nn.Module):
    """The mean over positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


def modules(sequences: bool) -> dict[str, tuple[nn.Sequential, tuple[int, ...]]]:
    """Torch's networks, with the shapes of their inputs."""
    torch.manual_seed(0)
    found: dict[str, tuple[nn.Sequential, tuple[int, ...]]] = {
        "vectors": (nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, C)), (4,)),
        "images": (
            nn.Sequential(nn.Conv2d(2, 3, 2), nn.Sigmoid(), nn.Flatten(), nn.Linear(27, C)),
            (2, 4, 4),
        ),
    }
    if sequences:
        parts = (nn.Linear(4, 6), nn.Sigmoid(), nn.Flatten(), nn.Linear(12, C))
        found["sequences"] = (nn.Sequential(*parts), (2, 4))
    return {name: (module.double(), shape) for name, (module, shape) in found.items()}


def problems(sequences: bool = True) -> Iterator[tuple[str, nn.Sequential, Any, Any, Any, Any]]:
    """Yield a name, a module, torch's loss and ours, inputs and targets."""
    rng = np.random.default_rng(0)
    for name, (module, shape) in modules(sequences).items():
        x = rng.standard_normal((N, *shape))
        for reduction in ("mean", "sum"):
            numbers, labels = rng.standard_normal((N, C)), rng.integers(0, C, N)
            yield (
                f"{name}, MSE {reduction}",
                module,
                nn.MSELoss(reduction=reduction),
                losses.MSELoss(reduction),
                x,
                numbers,
            )
            cross = nn.CrossEntropyLoss(reduction=reduction), losses.CrossEntropyLoss(reduction)
            yield f"{name}, CE {reduction}", module, *cross, x, labels


def ours(module: nn.Sequential, loss: Any, x: Any, y: Any, quantity: q.Quantity, library: str) -> dict[str, Any]:
    """Our factors in the library's scale."""
    net = gb.interop.from_torch(copy.deepcopy(module), x)
    return gb.backward(net, loss, x, y, quantity).scaled(quantity, library)


def error(got: dict[str, Any], want: dict[str, tuple[Any, Any]]) -> float:
    """The largest relative error of any factor: A (None for a bias) and B by parameter."""
    assert got.keys() == want.keys(), (got.keys(), want.keys())
    worst = 0.0
    for name, (a, b) in want.items():
        pairs = [(got[name].B, b)] + ([] if a is None else [(got[name].A, a)])
        for mine, theirs in pairs:
            theirs = theirs.detach().numpy()
            worst = max(worst, float(np.abs(mine - theirs).max() / np.abs(theirs).max()))
    return worst


def of_backpack() -> Iterator[tuple[str, float]]:
    """BackPACK's KFLR: B first; it has no linear layers on sequences."""
    for name, module, theirs, loss, x, y in problems(sequences=False):
        extended = extend(copy.deepcopy(module))
        with backpack(KFLR()):
            extend(theirs)(extended(torch.tensor(x)), torch.tensor(y)).backward()
        want = {key: (p.kflr[1] if len(p.kflr) > 1 else None, p.kflr[0]) for key, p in extended.named_parameters()}
        yield f"{name}, KFLR", error(ours(module, loss, x, y, q.KFLR(), "backpack"), want)


def of_curvlinops() -> Iterator[tuple[str, float]]:
    """curvlinops' KFAC: factors by the name of the module."""
    for name, module, theirs, loss, x, y in problems():
        for sharing in ("expand", "reduce"):
            for fisher, word in FISHER.items():
                parameters = [p for p in module.parameters() if p.requires_grad]
                linop = KFACLinearOperator(
                    module, theirs, parameters, [(torch.tensor(x), torch.tensor(y))],
                    fisher_type=word, kfac_approx=sharing, check_deterministic=False,
                )  # fmt: skip
                linop.compute_kronecker_factors()
                want = {}
                for key in linop._mapping:
                    b = linop._gradient_covariances[key]
                    want |= {f"{key}.weight": (linop._input_covariances[key], b), f"{key}.bias": (None, b)}
                quantity = q.KFAC(fisher=fisher, sharing=sharing)
                yield f"{name}, {fisher}, {sharing}", error(ours(module, loss, x, y, quantity, "curvlinops"), want)


def of_laplace() -> Iterator[tuple[str, float]]:
    """laplace-torch's factors of its curvlinops backends: [B, A] and [B] in the order of the parameters."""
    from laplace.curvature import CurvlinopsEF, CurvlinopsGGN

    for name, module, theirs, loss, x, y in problems():
        likelihood = "regression" if isinstance(theirs, nn.MSELoss) else "classification"
        for sharing in ("expand", "reduce"):
            for fisher, kind in (("exact", CurvlinopsGGN), ("empirical", CurvlinopsEF)):
                backend = kind(module, likelihood)
                found = backend.kron(torch.tensor(x), torch.tensor(y), N, kfac_approx=sharing)[1]
                names = [key for key, _ in module.named_parameters()]
                want = {
                    key: ((f[1], f[0]) if len(f) > 1 else (None, f[0]))
                    for key, f in zip(names, found.kfacs, strict=True)
                }
                quantity = q.KFAC(fisher=fisher, sharing=sharing)
                yield f"{name}, {fisher}, {sharing}", error(ours(module, loss, x, y, quantity, "laplace"), want)


def of_kfac_jax() -> Iterator[tuple[str, float]]:
    """kfac-jax's factors of weight and bias as one matrix, for vectors: A and B of each block in order."""
    import jax
    import jax.numpy as jnp
    import kfac_jax

    jax.config.update("jax_enable_x64", True)

    for name, module, theirs, loss, x, y in problems(sequences=False):
        if not name.startswith("vectors"):
            continue
        squared = isinstance(theirs, nn.MSELoss)
        pairs = [(layer.weight, layer.bias) for layer in module if isinstance(layer, nn.Linear)]
        weights = [(jnp.array(w.detach().numpy().T), jnp.array(b.detach().numpy())) for w, b in pairs]

        def call(parameters: Any, batch: Any, squared: bool = squared) -> Any:
            (first, second), (inputs, targets) = parameters, batch
            f = jax.nn.sigmoid(inputs @ first[0] + first[1]) @ second[0] + second[1]
            register = kfac_jax.register_squared_error_loss if squared else kfac_jax.register_softmax_cross_entropy_loss
            register(f, targets=targets)
            return f.sum()

        arguments = (weights, (jnp.array(x), jnp.array(y)))
        for fisher, mode in (("exact", "fisher_exact"), ("empirical", "fisher_empirical")):
            curvature, key = kfac_jax.BlockDiagonalCurvature(call, default_estimation_mode=mode), jax.random.PRNGKey(0)
            state = curvature.init(key, arguments, None, None)
            state = curvature.update_curvature_matrix_estimate(state, 0.0, 1.0, N, key, arguments)
            factors = [[torch.tensor(np.asarray(f.value)) for f in block.factors] for block in state.blocks_states]
            names = [key for key, _ in module.named_parameters() if key.endswith("weight")]
            want = {key: (a, b) for key, (a, b) in zip(names, factors, strict=True)}
            quantity = q.KFAC(fisher=fisher, sharing="expand", joint_bias=True)
            yield f"{name}, {fisher}, joint bias", error(ours(module, loss, x, y, quantity, "kfac-jax"), want)


def main() -> int:
    """Print all cases; return 1 if one fails."""
    warnings.simplefilter("ignore")
    status = 0
    libraries = {"backpack": of_backpack, "curvlinops": of_curvlinops, "laplace": of_laplace, "kfac-jax": of_kfac_jax}
    for library, cases in libraries.items():
        try:
            for name, worst in cases():
                status |= worst > ALLOWED
                print(f"{library:<11} {name:<45} {worst:.1e} {'ok' if worst <= ALLOWED else 'FAILS'}")
        except ModuleNotFoundError as missing:
            print(f"{library:<11} is not installed ({missing.name}): not checked")
    return status


if __name__ == "__main__":
    sys.exit(main())

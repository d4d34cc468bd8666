"""Hold `Result.scaled` against the libraries whose scales it states: ``python benchmarks/conventions.py``.

For each library that is installed: vectors, sequences and images; squared error and cross-entropy, "mean" and "sum";
each quantity and convention that the library has. Monte-Carlo quantities are compared at given draws, where these can
be put in the library's place. Prints the largest relative error of each case and ends with status 1 if one is above
1e-8. laplace-torch (0.3) and kfac-jax (0.0.8, on vectors) are used if they are there.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from backpack import backpack, extend, extensions
from backpack.core.derivatives.crossentropyloss import CrossEntropyLossDerivatives
from backpack.core.derivatives.mseloss import MSELossDerivatives
from curvlinops import EKFACLinearOperator, KFACLinearOperator
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
    """Our values in the library's scale."""
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


def distance(got: dict[str, Any], want: dict[str, torch.Tensor]) -> float:
    """The largest relative error of arrays by parameter."""
    assert got.keys() == want.keys(), (got.keys(), want.keys())
    arrays = {name: value.detach().numpy() for name, value in want.items()}
    return max(float(np.abs(got[name] - value).max() / np.abs(value).max()) for name, value in arrays.items())


def by_name(module: nn.Module, flat: torch.Tensor) -> dict[str, torch.Tensor]:
    """The parts of a tensor (..., D) by parameter, in their order."""
    named = dict(module.named_parameters())
    parts = torch.split(flat, [p.numel() for p in named.values()], dim=-1)
    return {key: part.reshape(*flat.shape[:-1], *p.shape) for (key, p), part in zip(named.items(), parts, strict=True)}


BACKPACK: dict[str, tuple[Any, Any]] = {
    "grad_batch": (extensions.BatchGrad, q.BatchGrad),
    "batch_l2": (extensions.BatchL2Grad, q.BatchL2Grad),
    "sum_grad_squared": (extensions.SumGradSquared, q.SecondMoment),
    "variance": (extensions.Variance, q.Variance),
    "diag_ggn_exact": (extensions.DiagGGNExact, q.DiagGGN),
    "diag_ggn_exact_batch": (extensions.BatchDiagGGNExact, q.BatchDiagGGN),
    "diag_ggn_mc": (extensions.DiagGGNMC, q.DiagGGNMC),
    "diag_h": (extensions.DiagHessian, q.DiagHessian),
    "diag_h_batch": (extensions.BatchDiagHessian, q.BatchDiagHessian),
    "kfac": (extensions.KFAC, q.KFAC),
    "kflr": (extensions.KFLR, q.KFLR),
    "kfra": (extensions.KFRA, q.KFRA),
}
"""BackPACK's extension and our quantity for each of its names."""


def of_backpack() -> Iterator[tuple[str, float]]:
    """All that BackPACK has, Monte-Carlo quantities at our draws; it has no linear layers on sequences."""
    for name, module, theirs, loss, x, y in problems(sequences=False):
        drawn = loss.draw(module(torch.tensor(x)).detach().numpy(), 2, rng=0)
        fixed = SimpleNamespace(sample=lambda *_, drawn=drawn, **__: torch.tensor(drawn))
        for field, (extension, kind) in BACKPACK.items():
            extended, sampled = extend(copy.deepcopy(module)), issubclass(kind, q.DiagGGNMC | q.KFAC)
            given = {"mc_samples": 2} if sampled else {}
            kinds = (MSELossDerivatives, CrossEntropyLossDerivatives)
            patches = [mock.patch.object(each, "_make_distribution", lambda *_, f=fixed: f) for each in kinds]
            with patches[0], patches[1], backpack(extension(**given)):
                extend(theirs)(extended(torch.tensor(x)), torch.tensor(y)).backward()
            found = {key: getattr(p, field) for key, p in extended.named_parameters()}
            mine = ours(module, loss, x, y, kind(2, drawn) if sampled else kind(), "backpack")
            if field.startswith("kf"):  # B first
                pairs = {key: (each[1] if len(each) > 1 else None, each[0]) for key, each in found.items()}
                yield f"{name}, {field}", error(mine, pairs)
            else:
                yield f"{name}, {field}", distance(mine, found)


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


def of_curvlinops_ekfac() -> Iterator[tuple[str, float]]:
    """curvlinops' EKFAC, as dense blocks; their traces alone where eigenvectors are not unique.

    These are B's where it is a multiple of I, and A's where there are fewer mean inputs than entries.
    """
    for name, module, theirs, loss, x, y in problems():
        for sharing in ("expand", "reduce"):
            for fisher in ("exact", "empirical"):
                linop = EKFACLinearOperator(
                    module, theirs, list(module.parameters()), [(torch.tensor(x), torch.tensor(y))],
                    fisher_type=FISHER[fisher], kfac_approx=sharing, check_deterministic=False,
                )  # fmt: skip
                matrix = linop @ torch.eye(linop.shape[1], dtype=torch.float64)
                mine = ours(module, loss, x, y, q.EKFAC(fisher=fisher, sharing=sharing), "curvlinops")
                got = {key: mine[key].to_dense() for key, _ in module.named_parameters()}
                starts = np.cumsum([0, *[len(block) for block in got.values()]])
                spans = {key: slice(a, b) for key, a, b in zip(got, starts, starts[1:], strict=False)}
                want = {key: matrix[some, some] for key, some in spans.items()}
                several = ("MSE" in name and fisher == "exact") or (name.startswith("images") and sharing == "reduce")
                if several:
                    got = {key: np.trace(block) for key, block in got.items()}
                    want = {key: block.trace() for key, block in want.items()}
                yield f"{name}, EKFAC {fisher}, {sharing}{', traces' * several}", distance(got, want)


def of_laplace_diagonals() -> Iterator[tuple[str, float]]:
    """laplace-torch's individual gradients and diagonals; the drawn one for regression, at given draws."""
    from laplace.curvature import CurvlinopsEF, CurvlinopsGGN

    for name, module, theirs, loss, x, y in problems():
        likelihood = "regression" if isinstance(theirs, nn.MSELoss) else "classification"
        given = torch.tensor(x), torch.tensor(y)
        empirical = CurvlinopsEF(module, likelihood)
        cases = {
            "gradients": (q.BatchGrad(), empirical.gradients(*given)[0]),
            "EF diag": (q.SecondMoment(), empirical.diag(*given)[1]),
            "GGN diag": (q.DiagGGN(), CurvlinopsGGN(module, likelihood).diag(*given)[1]),
        }
        if likelihood == "regression":
            noise, output = torch.randn(N, C, dtype=torch.float64), module(given[0]).detach()
            stochastic = CurvlinopsGGN(module, likelihood, stochastic=True)
            stochastic.num_samples = 1
            with mock.patch("torch.randn", lambda *_, noise=noise, **__: noise):
                diagonal = stochastic.diag(*given)[1]
            cases["GGN diag, drawn"] = q.DiagGGNMC(1, (output + noise / 2**0.5).numpy()[None]), diagonal
        for case, (quantity, want) in cases.items():
            mine = ours(module, loss, x, y, quantity, "laplace")
            yield f"{name}, {case}", distance(mine, by_name(module, want))


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
    """kfac-jax for vectors: A and B of weight and bias as one matrix, and diagonals; of each block in order."""
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
            found = {}
            for kind in (kfac_jax.DenseTwoKroneckerFactored, kfac_jax.DenseDiagonal):
                curvature = kfac_jax.BlockDiagonalCurvature(
                    call, layer_tag_to_block_ctor={"dense": kind}, default_estimation_mode=mode
                )
                key = jax.random.PRNGKey(0)
                state = curvature.init(key, arguments, None, None)
                options = {"ema_old": 0.0, "ema_new": 1.0, "identity_weight": 0.0, "batch_size": N, "rng": key}
                found[kind] = curvature.update_curvature_matrix_estimate(state, func_args=arguments, **options)
            blocks = found[kfac_jax.DenseTwoKroneckerFactored].blocks_states
            factors = [[torch.tensor(np.asarray(f.value)) for f in block.factors] for block in blocks]
            names = [key for key, _ in module.named_parameters() if key.endswith("weight")]
            want = {key: (a, b) for key, (a, b) in zip(names, factors, strict=True)}
            quantity = q.KFAC(fisher=fisher, sharing="expand", joint_bias=True)
            yield f"{name}, {fisher}, joint bias", error(ours(module, loss, x, y, quantity, "kfac-jax"), want)
            blocks = found[kfac_jax.DenseDiagonal].blocks_states
            parts = [np.asarray(f.value).T for block in blocks for f in block.diagonal_factors]  # inputs first
            diagonals = {key: torch.tensor(d) for (key, _), d in zip(module.named_parameters(), parts, strict=True)}
            asked = q.DiagGGN() if fisher == "exact" else q.SecondMoment()
            yield f"{name}, diagonal {fisher}", distance(ours(module, loss, x, y, asked, "kfac-jax"), diagonals)


def main() -> int:
    """Print all cases; return 1 if one fails."""
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)  # BackPACK's KFRA begins with a matrix of the default
    status = 0
    libraries = [
        ("backpack", of_backpack), ("curvlinops", of_curvlinops), ("curvlinops", of_curvlinops_ekfac),
        ("laplace", of_laplace), ("laplace", of_laplace_diagonals), ("kfac-jax", of_kfac_jax),
    ]  # fmt: skip
    for library, cases in libraries:
        try:
            for name, worst in cases():
                status |= worst > ALLOWED
                print(f"{library:<11} {name:<45} {worst:.1e} {'ok' if worst <= ALLOWED else 'FAILS'}")
        except ModuleNotFoundError as missing:
            print(f"{library:<11} is not installed ({missing.name}): not checked")
    return status


if __name__ == "__main__":
    sys.exit(main())

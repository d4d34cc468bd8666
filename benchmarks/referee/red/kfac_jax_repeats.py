"""kfac-jax: the exact block of a linear layer on (N, T, I), whose outputs are the network's, with squared error.

The network is linear, so that Kronecker factors lose nothing: B ⊗ A is the GGN. `RepeatedDenseKroneckerFactored` takes
positions where all derivatives are 0 for masked and sets their inputs to 0, but then appends a 1 for the bias to each:
the last entry of A counts all T positions, `average_repeats` and the other entries those that are not masked. The mode
"fisher_exact" goes through the outputs one by one, so that all positions but one look masked.

Checked: the docstrings of the block and of the mode state no such restriction; with use_masking=False the block is the
GGN; with the last entry of A divided by T it is, too.

Cells: `kfac_exact_expand_joint` (positions).
"""

import functools

import jax
import jax.numpy as jnp
import kfac_jax
import numpy as np

jax.config.update("jax_enable_x64", True)
N, T, I, O = 4, 5, 2, 1  # noqa: E741
rng = np.random.default_rng(0)
x, y = jnp.array(rng.normal(size=(N, T, I))), jnp.array(rng.normal(size=(N, T, O)))
weights = {"w": jnp.array(rng.normal(size=(I, O))), "b": jnp.zeros(O)}


def loss(weights, batch):
    f = batch[0] @ weights["w"] + weights["b"]
    kfac_jax.register_squared_error_loss(f, targets=batch[1])
    return jnp.sum((f - batch[1]) ** 2)


u = np.concatenate([x, np.ones((N, T, 1))], 2).reshape(-1, I + 1)
print("expected (2/N Σ u uᵀ, diagonal):", np.diag(2 * u.T @ u / N).round(6).tolist())
for masking in (True, False):
    block = functools.partial(kfac_jax.RepeatedDenseKroneckerFactored, use_masking=masking)
    curvature = kfac_jax.BlockDiagonalCurvature(
        loss, layer_tag_to_block_ctor={"repeated_dense": block}, default_estimation_mode="fisher_exact"
    )
    key, arguments = jax.random.PRNGKey(0), (weights, (x, y))
    state = curvature.update_curvature_matrix_estimate(
        curvature.init(key, arguments, None, None), ema_old=0.0, ema_new=1.0, identity_weight=0.0, batch_size=N,
        rng=key, func_args=arguments,
    )  # fmt: skip
    (found,) = state.blocks_states
    a, b = (np.asarray(factor.value) for factor in found.factors)
    got = np.kron(b, a) / float(found.average_repeats.value)
    print(f"got with use_masking={masking}:", np.diag(got).round(6).tolist())

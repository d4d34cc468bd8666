"""Gram matrices over the samples of a batch: inner products of gradients, and of the GGN's columns."""

from __future__ import annotations

from gbackprop.calculus.gram import GRAM
from gbackprop.calculus.signals import EXACT, GRADIENT
from gbackprop.quantities.base import Quantity, Statistic


class GramGradients(Quantity):
    """Inner products of the individual gradients in each parameter, shape (N, N) for each parameter.

    Scale: R² ⟨∇ℓₙ, ∇ℓₘ⟩, so that the diagonal is `BatchL2Grad` and the sum of all entries ‖∇L‖². The sum over
    parameters is the Gram matrix of the whole gradients.

    It pairs samples, so the batch cannot be cut into blocks of samples.
    """

    name = "gram_gradients"
    scale = "R² ⟨∇ℓₙ, ∇ℓₘ⟩"
    merging, powers = "it pairs samples of all batches", (2, 2)
    needs = (Statistic(GRAM, GRADIENT),)


class GramGGN(Quantity):
    """Inner products of the GGN's columns in each parameter, shape (N V, N V) for each parameter.

    Scale: R ⟨Jₙᵀ sₙᵥ, Jₘᵀ sₘᵤ⟩ with the V columns s of Sₙ, Hₙ = Sₙ Sₙᵀ; row n V + v, column m V + u. The sum over
    parameters is Wᵀ W, where the GGN is W Wᵀ: its nonzero eigenvalues are those of the GGN of L. Each parameter's
    matrix has those of the GGN's block of that parameter. Without the loss's Hessian it is the neural tangent kernel.

    It pairs samples and columns, so neither can be cut into blocks.

    Source: Dangel, Tatzel, Hennig 2022 (ViViT); Jacot, Gabriel, Hongler 2018 (neural tangent kernel).
    """

    name = "gram_ggn"
    scale = "R ⟨Jₙᵀ sₙᵥ, Jₘᵀ sₘᵤ⟩"
    merging, powers = GramGradients.merging, (1, 1)
    needs = (Statistic(GRAM, EXACT),)

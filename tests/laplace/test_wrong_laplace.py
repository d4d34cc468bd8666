"""Wrong arguments of Laplace approximations: errors that name what is wrong, before anything is computed."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.curvature.laplace import Laplace

RNG = np.random.default_rng(0)
NETWORK = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")
X, Y = RNG.standard_normal((5, 3)), RNG.integers(0, 2, 5)
W = np.ones(5)
WEIGHTS = r"data: expected batches \(x, y\), got 3 arrays: samples have no weights here"
CE, MSE = losses.CrossEntropyLoss(), losses.MSELoss()
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]


def made(network=NETWORK, loss=CE, data=(X, Y), structure="kron", **given):
    return Laplace(network, loss, data, structure, **given)


def smoothed():
    return losses.CrossEntropyLoss(label_smoothing=0.1)


def with_values_of_its_own():
    loss, plain = losses.CrossEntropyLoss(), losses.CrossEntropyLoss()
    loss.values = lambda output, target: 3 * plain.values(output, target)
    return loss


WRONG = {
    "a layer": (lambda: made(layers.Linear(3, 2)), TypeError, r"network: expected a network .*got Linear\(3, 2\)"),
    "no loss": (lambda: made(loss="mse"), TypeError, "loss: expected a Loss, got 'mse'"),
    "no likelihood": (lambda: made(loss=losses.HuberLoss()), ValueError, "loss: .*known likelihood.*got HuberLoss"),
    "a user's": (lambda: made(loss=type("Mine", (losses.MSELoss,), {})()), ValueError, "known likelihood.*got Mine"),
    "values of its own": (
        lambda: made(loss=with_values_of_its_own()),
        ValueError,
        r"known likelihood.*got CrossEntropyLoss\('mean'\) with values of its own",
    ),
    "smoothing": (lambda: made(loss=smoothed()), ValueError, "loss: .*without weights.*label_smoothing=0.1"),
    "structure": (
        lambda: made(structure="kfac"),
        ValueError,
        "structure: expected 'full', 'kron' or 'diag', got 'kfac'",
    ),
    "curvature": (
        lambda: made(curvature=q.DiagGGN()),
        ValueError,
        "curvature of structure 'kron': expected KFLR or KFAC",
    ),
    "free of R": (lambda: made(curvature=q.KFAC(fisher="forward-only")), ValueError, "fisher='mc' or 'exact'"),
    "gradients": (lambda: made(curvature=q.KFAC(fisher="empirical")), ValueError, "got KFAC.*fisher='empirical'"),
    "joint_bias": (
        lambda: made(curvature=q.KFAC(joint_bias=True), prior_precision=dict.fromkeys(NAMES, 1.0)),
        ValueError,
        "prior_precision: expected one number .*joint_bias .*, got one for each of .*0.bias",
    ),
    "of blocks": (
        lambda: made(curvature=q.KFAC(joint_bias=True)).with_prior(dict.fromkeys(NAMES, 1.0)),
        ValueError,
        r"prior_precision: expected a number for each of \['0.weight', '2.weight'\], got",
    ),
    "of full": (lambda: made(structure="full", curvature=q.KFLR()), ValueError, "curvature of .*'full': expected none"),
    "all frozen": (
        lambda: made(gb.Sequential(layers.Linear(3, 2), rng=0).freeze()),
        ValueError,
        "network: .*not frozen",
    ),
    "parameters": (lambda: made(parameters="2"), TypeError, "parameters: expected 'last', or names in a list, got '2'"),
    "unknown": (lambda: made(parameters=["7"]), ValueError, "parameters: .*among .*0.weight.*got '7'"),
    "none chosen": (lambda: made(parameters=[]), ValueError, "network: expected at least one parameter"),
    "precision": (lambda: made(prior_precision=0.0), ValueError, "prior_precision: .*above 0, got 0.0"),
    "of names": (
        lambda: made(prior_precision={"0.weight": 1}),
        ValueError,
        r"prior_precision: .*2.bias.*got \['0.weight'\]",
    ),
    "in names": (
        lambda: made(prior_precision=dict.fromkeys(NAMES, 1.0) | {"2.bias": -1}),
        ValueError,
        r"prior_precision\['2.bias'\]: .*above 0, got -1",
    ),
    "noise": (lambda: made(noise_variance=1.0), ValueError, "noise_variance: expected none, as CrossEntropyLoss"),
    "no noise": (lambda: made(loss=MSE, noise_variance=0), ValueError, "noise_variance: .*above 0, got 0"),
    "temperature": (lambda: made(temperature=-1), ValueError, "temperature: .*above 0, got -1"),
    "a generator": (
        lambda: made(data=((X, Y) for _ in range(1)), structure="full"),
        TypeError,
        "data: .*which can be gone through once",
    ),
    "too large": (
        lambda: made(gb.Sequential(layers.Linear(3, 10**6), layers.Linear(10**6, 2), rng=0), structure="full"),
        MemoryError,
        r"structure 'full': matrices of 6000002 × 6000002 numbers need .* free .'kron' and 'diag' need less",
    ),
    "targets": (lambda: made(data=(X, Y + 5)), ValueError, "labels|target|y of"),
    "weights": (lambda: made(data=(X, Y, W)), TypeError, WEIGHTS),
    "weights in a list": (lambda: made(data=[(X, Y), (X, Y, W)]), TypeError, f"batch 1 of {WEIGHTS}"),
    "weights of full": (lambda: made(data=[(X, Y, W)], structure="full"), TypeError, f"batch 0 of {WEIGHTS}"),
    "weights of a generator": (lambda: made(data=((X, Y, W) for _ in range(1))), TypeError, f"batch 0 of {WEIGHTS}"),
    "no targets": (lambda: made(data=(X,)), TypeError, r"data: expected batches \(x, y\), got 1 array:"),
    "no data": (lambda: made(data=3), TypeError, r"data: expected a batch \(x, y\) or several, got int"),
    "keyword": (lambda: made(precision=1.0), TypeError, "Laplace has no argument 'precision'; it takes network"),
    "method": (lambda: made().predict(X, "exact"), ValueError, "method: expected 'probit' or 'mc', got 'exact'"),
    "samples": (lambda: made().predict(X, "mc", 0), ValueError, "samples: .*at least 1, got 0"),
    "k": (lambda: made().sample(0), ValueError, "k: .*at least 1, got 0"),
    "k of functions": (lambda: made().sample_functions(X, 0), ValueError, "k: .*at least 1, got 0"),
    "joint": (lambda: made().functional(X, joint="yes"), TypeError, "joint: expected True or False, got 'yes'"),
    "x of functions": (lambda: made().sample_functions(X[:, :2], 1), ValueError, r"layer 0, Linear\(3, 4.*"),
    "x": (lambda: made().predict(X[:, :2]), ValueError, r"layer 0, Linear\(3, 4.*"),
    "noise of classes": (
        lambda: made().optimize_prior(noise_variance=True),
        ValueError,
        "noise_variance: expected MSELoss",
    ),
    "noise as a number": (
        lambda: made(loss=MSE, data=(X, X[:, :2]), noise_variance=0.5).optimize_prior(noise_variance=0.3),
        TypeError,
        "noise_variance: expected True or False, got 0.3",
    ),
    "other prior": (lambda: made().with_prior(-2.0), ValueError, "prior_precision: .*above 0, got -2.0"),
    "other noise": (lambda: made().with_prior(noise_variance=2.0), ValueError, "noise_variance: expected none"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        call()


def test_a_joint_covariance_that_is_too_large(monkeypatch):
    laplace = made()
    monkeypatch.setattr("gbackprop.base.memory.available_memory", lambda device: 1599)
    message = r"joint=True: covariances of 10 × 10 numbers need 1.6 KiB, with 1.6 KiB free .fewer samples"
    with pytest.raises(MemoryError, match=message):
        laplace.functional(X, joint=True)


def test_classes_at_several_positions_have_no_predictive():
    network = gb.Sequential(layers.Conv2d(1, 2, 2), rng=0, dtype="float64")
    x, y = RNG.standard_normal((3, 1, 3, 3)), RNG.integers(0, 2, (3, 2, 2))
    laplace = Laplace(network, CE, (x, y))
    with pytest.raises(ValueError, match=r"network: expected outputs of shape \(N, C\) .*got \('N', 2, 2, 2\)"):
        laplace.predict(x)


def test_hyperparameters_are_read_as_they_were_given():
    laplace = made(loss=MSE, data=(X, X[:, :2]), prior_precision=2.0, noise_variance=0.3, temperature=1.5)
    assert (laplace.prior_precision, laplace.noise_variance, laplace.hyperparameters.temperature) == (2.0, 0.3, 1.5)
    changed = laplace.with_prior(dict.fromkeys(NAMES, 3.0), temperature=1.0)
    assert changed.prior_precision == dict.fromkeys(NAMES, 3.0)
    assert (changed.noise_variance, changed.hyperparameters.temperature) == (0.3, 1.0)
    assert made().noise_variance is None

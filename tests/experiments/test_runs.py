"""Runs: their settings, their curves; on a problem of four pixels."""

import dataclasses
import json
import time

import numpy as np
import pytest
from logreg_runs import SPLIT, numbers, spec

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.experiments import problems, runs
from gbackprop.experiments.optimizers import OPTIMIZERS
from gbackprop.experiments.runs import RunSpec, run
from gbackprop.experiments.spec import make_optimizer

# ------------------------------------------------------------------------------------------------------------ settings


def test_defaults_are_filled_in_where_they_apply():
    assert dataclasses.asdict(RunSpec("fmnist_2c2d", "Momentum", 0.1)) == {
        **{"problem": "fmnist_2c2d", "optimizer": "Momentum", "lr": 0.1, "damping": None, "seed": 42},
        **{"epochs": 100, "momentum": 0.9, "average": None},
    }
    curved = RunSpec("mnist_logreg", "KFAC", 1, damping=0)
    assert (curved.average, curved.damping, curved.momentum, curved.epochs) == ("mean", 0.0, None, 50)


def test_a_key_is_equal_for_equal_runs_alone():
    specs = [
        *(spec(), spec(seed=1), spec(epochs=4), spec(lr=0.2), spec("Momentum"), spec("Momentum", momentum=0.8)),
        *(spec("KFAC"), spec("KFLR"), spec("KFAC", damping=0.2), spec("KFAC", average="ema")),
        spec("KFAC", average="none"),
    ]
    assert len({one.key() for one in specs}) == len(specs)
    assert spec(lr=1).key() == spec(lr=1.0).key()
    assert RunSpec.from_mapping(json.loads(spec("KFAC").key())) == spec("KFAC")


def test_the_settings_in_a_key_are_in_alphabetical_order():
    """Files of finished runs have this text: they are found whatever the order in which settings are declared."""
    (names,) = {tuple(json.loads(each.key())) for each in (spec(), spec("KFAC"), spec("Momentum"))}
    assert list(names) == sorted(names)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "KFACC"}, r"optimizer: expected one of SGD, .*KFRA, got 'KFACC'; did you mean 'KFAC'\?"),
        ({"problem": "mnist_logref"}, r"problem: expected one of .* got 'mnist_logref'; did you mean 'mnist_logreg'\?"),
        ({"problem": "mnist_logref", "epochs": 3}, r"problem: expected one of .* got 'mnist_logref'; did you mean"),
        ({"problem": ["mnist_logreg"]}, r"problem: expected one of .* got \['mnist_logreg'\]"),
        ({"lr": 0}, r"lr: expected a finite number above 0, got 0"),
        ({"lr": "1e-3"}, r"lr: expected"),
        ({"seed": -1}, r"seed: expected an integer of at least 0, got -1"),
        ({"seed": 1.5}, r"seed: expected an integer"),
        ({"epochs": 0}, r"epochs: expected an integer of at least 1, got 0"),
        ({"seed": 2**63}, r"seed: expected an integer of at most 9223372036854775807, got 9223372036854775808"),
        ({"epochs": 10**30}, r"epochs: expected an integer of at most 9223372036854775807, got 10{30}"),
        ({"damping": 0.1}, r"damping: SGD has none, got 0.1"),
        ({"momentum": 0.9}, r"momentum: SGD has none, got 0.9"),
        ({"average": "mean"}, r"average: SGD has none, got 'mean'"),
        ({"optimizer": "KFAC"}, r"damping: KFAC needs one"),
        ({"optimizer": "KFAC", "damping": -1}, r"damping: expected a finite number of at least 0, got -1"),
        ({"optimizer": "KFAC", "damping": 1, "average": "men"}, r"average: expected one of mean, ema, none, got 'men'"),
        ({"optimizer": "KFAC", "damping": 1, "average": False}, r"average: expected one of mean, .* got False"),
        ({"optimizer": "KFAC", "damping": 1, "average": ""}, r"average: expected one of mean, .* got ''"),
        ({"optimizer": "KFAC", "damping": 1, "average": ["x"]}, r"average: expected one of mean, .* got \['x'\]"),
        ({"optimizer": "Momentum", "momentum": 1}, r"momentum: expected .* below 1, got 1"),
        ({"learning_rate": 1}, r"learning_rate: no such setting of a run.*; there are problem, optimizer, lr"),
        ({"sead": 1}, r"sead: no such setting of a run; did you mean 'seed'\?"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RunSpec.from_mapping({"problem": "mnist_logreg", "optimizer": "SGD", "lr": 0.1} | settings)
    with pytest.raises(ValueError, match="a run needs optimizer, lr"):
        RunSpec.from_mapping({"problem": "mnist_logreg"})


# -------------------------------------------------------------------------------------------------------------- curves


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_learns(optimizer):
    outcome = run(spec(optimizer), split=SPLIT)
    assert outcome.status == "done"
    assert [row.epoch for row in outcome.rows] == [0, 1, 2, 3]
    first, last = outcome.rows[0], outcome.rows[-1]
    assert first.test_loss == pytest.approx(np.log(10), rel=1e-6)
    assert last.test_loss < 0.8 * first.test_loss
    assert last.valid_accuracy > first.valid_accuracy + 0.2


def test_a_run_is_the_plain_loop_over_its_batches():
    """Two epochs by hand: whole batches alone, in the order that the epoch's generator gives."""
    problem = problems.problem("mnist_logreg")
    weight, bias = np.zeros((10, 784)), np.zeros(10)

    def forward(x, y):
        z = x @ weight.T + bias
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return p, -np.log(p[np.arange(len(y)), y]).mean(), (z.argmax(1) == y).mean()

    rows = run(spec(epochs=2, seed=7), split=SPLIT).rows
    for epoch in range(3):
        if epoch:
            for x, y in problems.batches(SPLIT, problem, np.random.default_rng([7, runs.ORDER, epoch])):
                assert len(x) == 128
                g = (forward(x, y)[0] - np.eye(10)[y]) / 128
                weight, bias = weight - 0.1 * g.T @ x, bias - 0.1 * g.sum(0)
        for part, count in (("train", 133), ("valid", 133), ("test", 133)):
            whole = count // 128 * 128
            x, y = getattr(SPLIT, f"{part}_x")[:whole], getattr(SPLIT, f"{part}_y")[:whole]
            _, loss, accuracy = forward(x, y)
            assert getattr(rows[epoch], f"{part}_loss") == pytest.approx(loss, rel=1e-5)
            assert getattr(rows[epoch], f"{part}_accuracy") == accuracy


def test_networks_are_trained_in_training_mode(monkeypatch):
    modes, backward = [], gb.backward

    def recorded(*given, training, **options):
        modes.append(training)
        return backward(*given, training=training, **options)

    monkeypatch.setattr(runs.gb, "backward", recorded)
    run(spec(epochs=1), split=SPLIT)
    assert set(modes) == {True}


def test_the_first_row_took_no_time_and_the_others_did():
    start = time.perf_counter()
    first, *others = run(spec(epochs=2), split=SPLIT).rows
    assert first.seconds == 0 < min(row.seconds for row in others)
    assert sum(row.seconds for row in others) < time.perf_counter() - start


def test_reported_losses_include_the_l2_term():
    problem = dataclasses.replace(problems.problem("mnist_logreg"), l2=0.5)
    state = runs._State(spec(), "cpu", SPLIT, lambda _: None, None)
    state.problem = problem
    state.network.parameters["0.weight"] = np.full((10, 784), 0.01, "float32")
    state.network.parameters["0.bias"] = np.full(10, 0.7, "float32")
    figures, output = state._evaluate(), state.network(SPLIT.test_x[:128])
    plain = float(losses.CrossEntropyLoss()(output, SPLIT.test_y[:128]))
    assert figures["test_loss"] == pytest.approx(plain + 0.5 * 0.5 * 7840 * 0.01**2, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_weights_decay_and_biases_do_not(optimizer):
    network = gb.Sequential(layers.Linear(3, 2), rng=0)
    strengths = make_optimizer(network, 0.5, spec(optimizer)).l2
    assert (strengths["0.weight"], strengths.get("0.bias", 0)) == (0.5, 0)


@pytest.mark.parametrize("optimizer", ["SGD", "KFAC"])
def test_a_seed_decides_the_numbers(optimizer):
    one, again, other = (run(spec(optimizer, seed=seed, epochs=1), split=SPLIT) for seed in (1, 1, 2))
    assert numbers(one) == numbers(again)
    assert one.rows[1].test_loss != other.rows[1].test_loss


def test_kfra_which_no_thread_can_share_runs_with_any_number_of_them():
    alone, shared = (run(spec("KFRA", epochs=1), split=SPLIT, workers=workers) for workers in (None, 2))
    assert numbers(alone) == numbers(shared)


def test_progress_is_reported_step_by_step_and_evaluations_batch_by_batch():
    events = []
    outcome = run(spec(epochs=2), split=SPLIT, report=events.append)
    expected = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    steps = [event for event in events if event.evaluated is None]
    assert [(event.epoch, event.step) for event in steps] == expected
    assert [event.row for event in events if event.row] == list(outcome.rows)
    assert {(event.epochs, event.steps) for event in events} == {(2, 3)}
    found = [(event.epoch, event.step, event.evaluated) for event in events if event.evaluated is not None]
    parts = [1 / 3, 2 / 3, 1.0]  # one batch each of the images to train, validate and test on
    assert found == [(epoch, step, part) for epoch, step in ((-1, 0), (0, 3), (1, 3)) for part in parts]


def test_the_loss_that_is_reported_is_the_mean_of_the_batches_so_far():
    """The first batch's is that of a network of zeros; a network that is hardly trained stays near it."""
    events = []
    run(spec(epochs=2, lr=1e-9), split=SPLIT, report=events.append)
    assert [event.loss for event in events if event.step > 0] == pytest.approx([np.log(10)] * 12, rel=1e-6)
    assert {event.loss for event in events if event.step == 0} == {None}
    learning = []
    run(spec(epochs=1), split=SPLIT, report=learning.append)
    one, two, three = (event.loss for event in learning if event.step > 0 and event.evaluated is None)
    assert one == pytest.approx(np.log(10), rel=1e-6)
    assert 3 * three < 2 * two + one < 3 * one  # each batch's own loss is below that of the one before


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_size_that_is_too_large_ends_as_diverged(optimizer, recwarn):
    outcome = run(spec(optimizer, lr=1e39, epochs=5), split=SPLIT)  # beyond float32
    assert outcome.status == "diverged"
    assert 1 <= len(outcome.rows) < 6
    assert all(np.isfinite(list(dataclasses.astuple(row))).all() for row in outcome.rows)
    assert not recwarn.list


def test_an_unknown_device_is_refused_before_data_are_read():
    with pytest.raises(ValueError, match="device: expected 'cpu'"):
        run(spec(), "/nowhere", device="gpu")


def test_evaluation_leaves_the_partial_batch_out():
    net = problems.problem("mnist_logreg").network(0)
    x, y = np.zeros((300, 784), "float32"), np.r_[np.zeros(200, int), np.ones(100, int)]
    loss, accuracy = runs.evaluate(net, x, y, 128)
    assert accuracy == 200 / 256
    assert loss == pytest.approx(np.log(10), rel=1e-6)
    assert gb.asnumpy(net(x)).argmax(1).max() == 0

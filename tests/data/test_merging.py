"""Results of batches, merged, are the result of one call with all samples."""

import copy
import dataclasses
import inspect
import re

import foreign
import numpy as np
import pytest
from accumulating import assert_close, network, numbers

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.signals import GRADIENT
from gbackprop.testing.runs import SHIPPED
from gbackprop.testing.strategies import targets

N = 11
CUTS = pytest.mark.parametrize("cuts", [[], [4], [1, 2, 9], list(range(1, N))], ids=str)
MERGED = [q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.DiagHessian(), q.KFLR()]
MERGED += [q.BatchDiagGGN(), q.BatchDiagHessian()]


def batch(loss, dtype="float64"):
    x = np.random.default_rng(0).standard_normal((N, 1, 3, 3)).astype(dtype)
    y = targets(loss, (N, 3), 0)
    return x, y.astype(dtype) if y.dtype.kind == "f" else y


def parts(cuts):
    return [slice(start, stop) for start, stop in zip([0, *cuts], [*cuts, N])]


def weighted(reduction):
    """A loss whose R is not 1/N of any batch, and differs between them."""
    return losses.CrossEntropyLoss(reduction, weight=np.array([0.5, 2.0, 3.0]), label_smoothing=0.1)


@CUTS
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", [losses.CrossEntropyLoss, losses.MSELoss, losses.BCEWithLogitsLoss, weighted])
def test_merged_batches_are_one_call(kind, reduction, cuts):
    net, loss = network(), kind(reduction)
    x, y = batch(loss)
    merged = gb.data.merge(gb.backward(net, loss, x[rows], y[rows], *MERGED) for rows in parts(cuts))
    whole = gb.backward(net, loss, x, y, *MERGED)
    assert_close(merged, whole)
    assert merged.scale.factor == pytest.approx(whole.scale.factor, rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_parameter_without_axes_is_merged_as_others_are(dtype):
    nodes = {"a": (layers.Parameter(()),), "y": (layers.Operation("multiply"), "input", "a")}
    net, loss = gb.Graph(nodes, rng=0, dtype=dtype), losses.MSELoss()
    x, y = np.random.default_rng(0).standard_normal((2, 7, 3)).astype(dtype)
    asked = q.Variance(), q.SecondMoment(), q.BatchGrad(), q.BatchL2Grad(), q.DiagGGN(), q.DiagHessian()
    whole = gb.backward(net, loss, x, y, *asked)
    merged = gb.accumulate(net, loss, [(x[i : i + 2], y[i : i + 2]) for i in (0, 2, 4)] + [(x[6:], y[6:])], *asked)
    assert_close(merged, whole, 1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", [q.KFAC, q.DiagGGNMC])
def test_monte_carlo_quantities_merge_at_given_targets(kind, reduction):
    net, loss = network(), losses.CrossEntropyLoss(reduction)
    x, y = batch(loss)
    drawn = np.random.default_rng(1).integers(0, 3, (2, N))
    results = (gb.backward(net, loss, x[rows], y[rows], kind(2, drawn[:, rows])) for rows in parts([3, 8]))
    assert_close(gb.data.merge(results), gb.backward(net, loss, x, y, kind(2, drawn)))


@CUTS
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_factors_of_groups_merge_group_by_group(reduction, cuts):
    chain = layers.Conv2d(2, 4, 2, groups=2), layers.Sigmoid(), layers.Flatten(), layers.Linear(16, 3)
    net, loss = gb.Sequential(*chain, rng=0, dtype="float64"), losses.CrossEntropyLoss(reduction)
    rng = np.random.default_rng(0)
    x, y, drawn = rng.standard_normal((N, 2, 3, 3)), rng.integers(0, 3, N), rng.integers(0, 3, (2, N))
    results = (gb.backward(net, loss, x[rows], y[rows], q.KFLR(), q.KFAC(2, drawn[:, rows])) for rows in parts(cuts))
    merged = gb.data.merge(results)
    assert_close(merged, gb.backward(net, loss, x, y, q.KFLR(), q.KFAC(2, drawn)))
    assert isinstance(merged["kflr"]["0.weight"], q.GroupedKronecker)


def test_merging_goes_on_from_what_is_merged():
    net, loss = network(), losses.CrossEntropyLoss()
    x, y = batch(loss)
    one, two, three = (gb.backward(net, loss, x[rows], y[rows], *MERGED) for rows in parts([2, 7]))
    assert_close(gb.data.merge([gb.data.merge([one, two]), three]), gb.backward(net, loss, x, y, *MERGED))


def test_results_that_went_in_are_left_as_they_were():
    net, loss = network(), losses.CrossEntropyLoss("sum")
    x, y = batch(loss)
    results = [gb.backward(net, loss, x[rows], y[rows], *MERGED) for rows in parts([5])]
    again = [gb.backward(net, loss, x[rows], y[rows], *MERGED) for rows in parts([5])]
    merged = gb.data.merge(results)
    for result, before in zip(results, again, strict=True):
        assert_close(result, before, 0.0)
        assert not any(np.shares_memory(merged.gradient[name], value) for name, value in result.gradient.items())


def test_float32_stays_float32():
    net, loss = network("float32"), losses.MSELoss()
    x, y = batch(loss, "float32")
    merged = gb.data.merge(gb.backward(net, loss, x[rows], y[rows], *MERGED) for rows in parts([4, 6]))
    assert_close(merged, gb.backward(net, loss, x, y, *MERGED), 1e-4)
    assert {value.dtype.name for value in numbers(merged).values()} == {"float32"}


def test_many_equal_batches_in_float32_are_one():
    net, loss = gb.Sequential(layers.Linear(4, 3), rng=0), losses.CrossEntropyLoss()
    x, y = np.random.default_rng(0).standard_normal((1, 4)).astype("float32"), np.array([1])
    asked = q.DiagGGN(), q.SecondMoment(), q.KFLR()
    one = gb.backward(net, loss, x, y, *asked)
    merged = gb.data.merge(one for _ in range(1000))
    np.testing.assert_array_equal(merged.output, np.repeat(one.output, 1000, axis=0))
    assert_close(dataclasses.replace(merged, output=one.output), one, 1e-7)


def test_the_mean_of_the_batches_variances_is_another_number():
    net, loss = network(), losses.CrossEntropyLoss()
    x, y = batch(loss)
    order = np.argsort(y)  # batches that differ
    results = [gb.backward(net, loss, x[i], y[i], q.Variance()) for i in np.array_split(order, 3)]
    merged = gb.data.merge(results)["variance"]["3.bias"]
    assert np.mean([result["variance"]["3.bias"] for result in results], axis=0).max() < 0.8 * merged.max()


def test_on_a_device_nothing_moves(double):
    from device_ledger import ledger

    net, loss = network().to("cuda:1"), losses.CrossEntropyLoss()
    x, y = (gb.asarray(part, "cuda:1") for part in batch(loss))
    whole = gb.backward(net, loss, x, y, *MERGED)
    results = [gb.backward(net, loss, *each, *MERGED) for each in gb.data.batches(x, y, 4)]
    ledger.clear()
    merged = gb.data.merge(results)
    assert ledger.transfers == []
    for name, value in merged["variance"].items():
        np.testing.assert_allclose(gb.asnumpy(value), gb.asnumpy(whole["variance"][name]), rtol=1e-10)


# ---------------------------------------------------------------------------------------------------------------- rules


def test_every_quantity_that_ships_has_a_rule_or_a_reason():
    assert [name for name, kind in SHIPPED.items() if kind.merging is None] == []


class SumGradSquared(q.Quantity):
    name = "sum_grad_squared"
    merging = gb.data.Summed(power=2)

    def statistics(self):
        return (q.Statistic("square", GRADIENT),)

    def finish(self, scale, square):
        return square


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_users_quantity_states_its_rule(reduction):
    net, loss = network(), losses.CrossEntropyLoss(reduction)
    x, y = batch(loss)
    results = (gb.backward(net, loss, x[rows], y[rows], SumGradSquared()) for rows in parts([4, 5]))
    assert_close(gb.data.merge(results), gb.backward(net, loss, x, y, SumGradSquared()))


class Unruled(SumGradSquared):
    merging = None


class Halved(q.DiagGGN):
    """A subclass whose results are not those of its parent."""


# ------------------------------------------------------------------------------------------------------------ bad input


def run(*quantities, loss=losses.CrossEntropyLoss("mean"), net=None):  # noqa: B008
    net = net or network()
    dtype = next(iter(net.parameters.values())).dtype
    return gb.backward(net, loss, *batch(loss, dtype), *quantities, rng=0)


def test_a_rule_is_not_that_of_a_method_which_an_object_has_of_its_own():
    plain, variance, ruled = q.Variance(), q.Variance(), q.Variance()
    for each in (variance, ruled):
        each.finish = lambda *values: np.sqrt(plain.finish(*values))  # the standard deviation
    with pytest.raises(gb.UnsupportedError, match=r"Variance.. cannot be merged: it has no rule"):
        gb.data.merge([run(variance)])
    ruled.merging = gb.data.Rows(0)
    result = run(plain, ruled)
    for name, value in gb.data.merge([result])[ruled].items():
        np.testing.assert_allclose(value, np.sqrt(result[plain][name]), rtol=1e-12)


@pytest.mark.parametrize(
    ("quantity", "reason"),
    [
        (q.KFRA(), "KFRA.. cannot be merged: its recursion averages over the whole batch"),
        (q.GramGGN(), "GramGGN.. cannot be merged: it pairs samples of all batches"),
        (Unruled(), "Unruled.. cannot be merged: it has no rule: give it one, `merging = "),
        (Halved(), "Halved.. cannot be merged: it has no rule"),
    ],
    ids=repr,
)
def test_what_has_no_rule_is_refused(quantity, reason):
    with pytest.raises(gb.UnsupportedError, match=reason):
        gb.data.merge([run(quantity)])


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (lambda: 3, TypeError, "result 1: expected a Result, got int"),
        (lambda: run(q.DiagGGN()), ValueError, r"result 1: expected quantities \[Variance\(\)\] as in result 0"),
        (
            lambda: run(q.Variance(), loss=losses.CrossEntropyLoss("sum")),
            ValueError,
            r"result 1: expected the loss CrossEntropyLoss\('mean'\) as in result 0, got CrossEntropyLoss\('sum'\)",
        ),
        (
            lambda: run(q.Variance(), net=gb.Sequential(network()[0:3], layers.Linear(8, 3), rng=0, dtype="float64")),
            ValueError,
            "result 1: expected parameters .* as in result 0, got .*'0.0.weight'",
        ),
        (
            lambda: run(q.Variance(), net=network("float32")),
            TypeError,
            "result 1: expected float64 on cpu as in result 0, got float32 on cpu",
        ),
    ],
    ids=["no result", "quantities", "loss", "network", "dtype"],
)
def test_results_that_do_not_belong_together_are_told(other, error, message):
    with pytest.raises(error, match=message):
        gb.data.merge([run(q.Variance()), other()])


@pytest.mark.parametrize(
    ("make", "attributes", "message"),
    [
        (foreign.ScaledLoss, {"times": 2.0}, r"the loss ScaledLoss\('mean'\) as in result 0, got other attributes"),
        (foreign.ScaledLoss, {"note": [{"a": np.zeros(2)}]}, "the loss ScaledLoss"),
        (foreign.Powers, {"power": 2}, r"quantities \[Powers\(\)\] as in result 0, got other attributes"),
        (foreign.Powers, {"note": foreign.enclosing(2)}, "quantities"),
    ],
)
def test_attributes_that_no_text_shows_are_told(make, attributes, message):
    def result(some):
        parts_of_it = [foreign.ScaledLoss(), foreign.Powers()]
        for part in parts_of_it:
            vars(part).update(some if type(part) is make else {})
        return gb.backward(network(), parts_of_it[0], batch(losses.MSELoss())[0], np.ones((N, 3)), parts_of_it[1])

    gb.data.merge([result({}), result({})])
    gb.data.merge([result(attributes), copy.deepcopy(result(attributes))])
    with pytest.raises(ValueError, match=f"result 1: expected {message}"):
        gb.data.merge([result({}), result(attributes)])


def test_a_loss_that_changes_between_two_results_is_told():
    net, loss, x = network(), foreign.ScaledLoss(), batch(losses.MSELoss())[0]

    def results():
        for times in (1.0, 2.0):
            loss.times = times
            yield gb.backward(net, loss, x, np.ones((N, 3)))

    with pytest.raises(ValueError, match="result 1: expected the loss"):
        gb.data.merge(results())


def test_the_documentation_names_what_has_no_rule():
    text = " ".join(inspect.getdoc(gb.accumulate).split())
    told = re.search(r"all have one but (.*?)\. batches", text).group(1)
    without = sorted(kind.__name__ for kind in SHIPPED.values() if isinstance(kind.merging, str))
    assert re.findall(r"`(\w+)`", told) == without


def test_no_result_at_all_and_one_alone():
    with pytest.raises(ValueError, match="results: expected at least one, got none"):
        gb.data.merge([])
    with pytest.raises(TypeError, match="expected an iterable of Results, got a Result"):
        gb.data.merge(gb.Result(1.0, np.zeros(1), {}, (), (), None))


def test_outputs_of_another_length_are_told():
    net, rng = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64"), np.random.default_rng(0)
    of = [gb.backward(net, losses.MSELoss("sum"), rng.standard_normal((4, t, 3)), np.ones((4, t, 2))) for t in (2, 5)]
    with pytest.raises(ValueError, match=r"result 1: expected outputs .*'N', 2, 2.* got .*'N', 5, 2"):
        gb.data.merge(of)

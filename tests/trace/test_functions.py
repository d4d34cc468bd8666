"""What NumPy's functions and methods become: outputs and derivatives of short functions, in float64 and float32."""

import re
import runpy
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from scipy import special
from test_models import brute_force, leaves

import gbackprop as gb
from gbackprop import losses
from gbackprop import quantities as q


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def gated(p, x):
    h = np.zeros((x.shape[0], 3))
    for t in range(x.shape[1]):
        both = np.concatenate([x[:, t], h], axis=1)
        z, r = sigmoid(both @ p["z"]), sigmoid(both @ p["r"])
        h = (1 - z) * h + z * np.tanh(np.concatenate([x[:, t], r * h], axis=-1) @ p["c"])
    return h


def listed(p, x):
    states, h = [], np.zeros((len(x), 3))
    for t in range(x.shape[1]):
        h = np.tanh(np.hstack((x[:, t, :], h)) @ p["z"])
        states.append(h)
    return np.stack(states)[-1] + np.stack(states, axis=1).sum(1) * np.stack(states).mean(axis=0)


def filled(p, x):
    h = np.empty_like(x)
    h[:, 0] = x[:, 0] * p["s"]
    for i in range(1, x.shape[1]):
        h[:, i] = 0.5 * h[:, i - 1] + x[:, i] * p["s"]
    h[:, ::2] *= 2
    part = h[:, 3:]
    part += p["s"]
    h[:, 1] = 7
    return h


def summed(p, x):
    y = np.zeros((len(x), 2))
    for k in range(3):
        y += np.sin(x @ p["w"] * (k + 1))
    y *= 2
    y -= 1
    return -y / 3


def masked(p, x):
    m = x > 0
    ties = (x >= x) + 2.0 * (x > x) + 3.0 * (x <= x) + 4.0 * (x < x) + 5.0 * (x == x) + 6.0 * (x != x)
    steps = ties * m.astype(float) + (x <= 0.2) + (x != 0.1) + (x == 1) + (x >= 2) + ((x < -1) | m)
    return np.where(m & ~(x > 1), x, 0.2 * x) @ p["w"] + (steps * x) @ p["w"]


def class_token(p, x):
    token = np.broadcast_to(p["token"], (x.shape[0], 1, x.shape[2]))
    other = np.tile(p["token"], (x.shape[0], 1, 1))
    return np.concatenate([token, x, other], axis=1).reshape(len(x), -1) * p["g"]


def normalized(p, x):
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * p["g"] + centered / x.std(1)[:, None]


def curves(p, x):
    z = x @ p["w"]
    smooth = np.log1p(np.exp(z)) + np.logaddexp(0, z) + np.logaddexp(z, x[:, :2]) + special.expit(z) + special.erf(z)
    smooth = smooth + np.logaddexp(1, z) + 0.5**z + np.exp2(z) + 1 / (2 + z**2)
    return smooth + 2.0**z + np.log2(1 + z**2) + (z**2 + 1) ** -0.5 + 2 / (3 + z**2) + np.log10(z**2 + 2) + z**3


def pieces(p, x):
    z = x @ p["w"]
    z = np.maximum(z, 1) - np.maximum(0, z) + np.minimum(z, 0) + np.clip(z, None, 0.5) + np.clip(z, -0.3, None)
    return np.clip(z, -1, 1) + z.clip(0) + np.minimum(z, 0.3) + np.abs(z) + np.sign(z) + np.maximum(z, p["v"][:2])


def moves(p, x):
    padded = np.pad(x, ((0, 0), (1, 1)), mode="edge")[:, 2:] * np.hstack([p["v"][1:], p["v"][:1]])
    padded = padded + np.pad(p["v"][:2], (1, 0)) + np.pad(x[:, 1:], ((0, 0), (0, 1)), constant_values=2.0)
    turned = np.roll(x, 1, axis=1) + np.flip(x, 1) + x[:, ::-1] + x[:, [2, 0, 1]] + x[:, None, :].squeeze(1)
    return padded + turned + np.repeat(x, 2, axis=1)[:, :3] + np.cumsum(x, 1) * np.expand_dims(x, 1)[:, 0] + x[..., :1]


def columns(p, x):
    first, second, third = x.T
    turned = (p["v"] @ x.T)[:, None] * (x @ p["v"])[:, None] + np.einsum("dn,de->ne", x.T, p["w"])
    turned = turned + (p["w"].T @ x.T).T + ((p["w"] + x[:, :1, None]).mT @ x[:, :, None]).mT[:, 0] + x @ p["w"].mT.T
    return turned + (first * second * p["v"][0] + third)[:, None] + (p["w"].T @ x[:, :, None])[..., 0]


def matrices(p, x):
    norm = np.linalg.norm(p["m"], axis=0) + np.diagonal(p["m"]) + np.prod(x, axis=1, keepdims=True)
    norm = norm + np.linalg.norm(x, 2, axis=1)[:, None] + np.linalg.norm(x[:, :, None] * p["m"], "fro", (1, 2))[:, None]
    norm = norm + np.dot(x, p["m"]) + np.dot(2.0, x) + np.tril(x[:, :, None] * p["m"], -1).sum(1)
    return x @ (np.eye(3) + np.outer(p["v"], p["v"])) + norm + np.dot(x, p["v"])[:, None] + np.triu(p["m"]) @ p["v"]


def polynomials(p, x):
    z = x @ p["w"]
    return (x[:, :, None] ** np.arange(5) * p["v"]).sum(1) + (z**2)[:, :1] ** np.array([0.5, 1, 1.5, 2, 3]) + z ** [[3]]


def contractions(p, x):
    y = np.einsum("nti,nsi->nts", np.einsum("ntd,de->nte", x, p["m"]), x).sum((1, 2))
    z = np.tensordot(x, p["m"], axes=1) + np.tensordot(x, p["m"], axes=([2], [1]))
    y = y * np.einsum("ntd,nt->n", x, p["m"][:1, [0, 1, 1]]) + x.T.sum((0, 1)) * x.T.sum(1)[0]
    y = y + np.tensordot(x, np.ones((3, 2))) * np.einsum("ntd->ndt", z)[:, 1, 0]
    y = y + np.einsum("abc,cd", x, p["m"])[:, 2, 1]
    return y[:, None] + np.einsum("ntd->nd", z) + np.matmul(z, x.transpose(0, 2, 1)).max(axis=(1, 2))[:, None]


def swapped(p, x):
    both = np.stack([x @ p["w"], np.tanh(x @ p["w"])])  # the batch is axis 1
    columns = np.swapaxes(both, 0, 1).reshape((len(x), -1), order="F") * np.ravel(p["w"], "F")[1:5]
    columns += p["w"].flatten("F")[2:]
    return np.moveaxis(both, 0, -1).reshape(len(x), -1) + both.transpose(1, 0, 2).reshape(x.shape[0], -1) + columns


def flat(p, x):
    n, t, d = x.shape
    beside = np.concatenate([x[:, 0], np.ones((n, 1))], 1)[:, 1:]
    return (x.reshape(-1, d) @ p["m"]).reshape((n, t, d)).sum(axis=1) + beside


def joined(p, x):
    y = x * p["w"] + np.concatenate([p["w"][1:], np.tanh(p["w"][:1])])  # the first axis
    both = np.concatenate([np.stack([y, np.ones_like(y), x], axis=-1), np.stack([x, y, y], axis=2)], axis=-1)
    return np.stack([both[:, :, 1], both[:, :, 5], y], axis=1)


FUNCTIONS = {
    gated: ({"z": (5, 3), "r": (5, 3), "c": (5, 3)}, (3, 2)), listed: ({"z": (5, 3)}, (3, 2)),
    joined: ({"w": (3,)}, (3,)),
    filled: ({"s": (1,)}, (5,)), summed: ({"w": (3, 2)}, (3,)), masked: ({"w": (3, 2)}, (3,)),
    class_token: ({"token": (1, 2), "g": (8,)}, (2, 2)), normalized: ({"g": (3,)}, (3,)), curves: ({"w": (3, 2)}, (3,)),
    pieces: ({"w": (3, 2), "v": (3,)}, (3,)), moves: ({"v": (3,)}, (3,)), columns: ({"w": (3, 2), "v": (3,)}, (3,)),
    matrices: ({"m": (3, 3), "v": (3,)}, (3,)), contractions: ({"m": (2, 2)}, (3, 2)), swapped: ({"w": (3, 2)}, (3,)),
    flat: ({"m": (2, 2)}, (3, 2)), polynomials: ({"w": (3, 1), "v": (5,)}, (3,)),
}  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_function(function):
    shapes, features = FUNCTIONS[function]
    rng = np.random.default_rng(3)
    parameters = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    x = rng.standard_normal((4, *features))
    network = gb.trace(function, parameters, x[:1])
    np.testing.assert_allclose(network(x), function(parameters, x), rtol=1e-14, atol=1e-13)
    y = rng.standard_normal(network(x).shape)
    result = gb.backward(network, losses.MSELoss(), x, y, q.BatchGrad(), q.DiagGGN(), q.DiagHessian())
    for key, want in brute_force(function, parameters, x, y).items():
        lead = (len(x),) if key == "batch_grad" else ()
        got = np.concatenate([result[key][name].reshape(*lead, -1) for name in parameters], -1)
        allowed = (3e-8 if key == "diag_hessian" else 1e-10) * max(1, abs(want).max(), result.loss)
        np.testing.assert_allclose(got, want, rtol=0, atol=allowed, err_msg=key)
    small = {name: value.astype("float32") for name, value in parameters.items()}
    single = gb.trace(function, small, x.astype("float32"))
    assert single(x.astype("float32")).dtype == "float32"
    np.testing.assert_allclose(single(x.astype("float32")), network(x), rtol=1e-3, atol=1e-3)


def test_sums_have_no_other_nodes_beside():
    both = lambda p, x: x.sum(1) + np.add.reduce(x, 1) + np.linalg.norm(x, axis=1) + x.std(1) + p["w"] * np.array(2.0)  # noqa: E731
    network = gb.trace(both, {"w": np.ones(())}, np.ones((1, 3)))
    assert not any("reshape" in name or "constant" in name for name in network.children)
    network = gb.trace(lambda p, x: np.einsum("nij->nj", x @ p["w"]), {"w": np.ones((3, 2))}, np.ones((1, 4, 3)))
    assert list(network.children) == ["matmul1", "sum1"]


def test_an_index_of_features_is_one_node():
    """Without the axis of samples; so a sweep reshapes nothing."""
    given = {"w": np.ones((3, 4))}, np.ones((2, 3))
    for index in (np.s_[:, 0], np.s_[:, 1:], np.s_[..., 0], np.s_[:, ::-1]):
        network = gb.trace(lambda p, x, index=index: (x @ p["w"])[index], *given)
        assert list(network.children) == ["matmul1", "getitem1"]


def test_tokens_are_indices_and_a_table_may_be_shared():
    def language(p, x):
        return np.tanh(p["table"][x] + p["position"]).mean(1) @ p["table"].T + np.take(p["table"], x, axis=0)[:, 0, :1]

    rng = np.random.default_rng(0)
    parameters = {"table": rng.standard_normal((5, 3)), "position": rng.standard_normal((4, 3))}
    x, y = rng.integers(5, size=(6, 4)), rng.standard_normal((6, 5))
    network = gb.trace(language, parameters, x)
    result = gb.backward(network, losses.MSELoss(), x, y, q.BatchGrad(), q.DiagGGN(), q.DiagHessian())
    for key, want in brute_force(language, parameters, x, y).items():
        got = np.concatenate([result[key][name].reshape(*want.shape[:-1], -1) for name in parameters], -1)
        np.testing.assert_allclose(got, want, atol=1e-8, err_msg=key)
    with pytest.raises(ValueError, match="expected indices from 0 to 4, got 7"):
        network(x + 7 * (x == x.max()) - x * (x == x.max()))


def test_fixed_exponents_are_right_for_bases_of_all_signs():
    x = np.array([[1.0, 2.0], [-1.0, 0.0]])
    network = gb.trace(lambda p, x: x**[2, 3] * p["v"] + x[:, :1] ** np.arange(2), {"v": np.ones(2)}, x[:1])
    np.testing.assert_allclose(network(x), x**[2, 3] + x[:, :1] ** np.arange(2), rtol=1e-15)
    found = gb.backward(network, losses.MSELoss("sum"), x, np.zeros((2, 2)), wrt="x").gradient["x"]
    np.testing.assert_allclose(found, [[26, 216], [-10, 0]])


def test_fixed_exponents_that_need_no_base_above_zero_beside_others_that_do():
    x = np.array([[-1.0, 4.0], [0.0, 1.0]])
    network = gb.trace(lambda p, x: x ** np.array([2, 0.5]) * p["v"], {"v": np.ones(2)}, x)
    with np.errstate(all="raise"):
        result = gb.backward(network, losses.MSELoss("sum"), x, np.zeros((2, 2)), q.DiagHessian(), wrt=["x", "v"])
    np.testing.assert_allclose(result.gradient["x"], [[-4, 1], [0, 1]], atol=1e-15)
    np.testing.assert_allclose(result["diag_hessian"]["x"], [[12, 0], [0, 0]], atol=1e-15)


BOOLEANS = {
    "add": lambda x: (x > 1) + (x > 2),
    "add in place": lambda x: np.add(x > 1, x > 2) + (x > 3),
    "matmul": lambda x: (x > 1) @ np.ones((3, 3), bool),
    "dot": lambda x: np.dot(x > 1, np.eye(3, dtype=bool)) + (x > 2),
    "einsum": lambda x: np.einsum("ni,ij->nj", x > 1, np.ones((3, 3), bool)),
    "tensordot": lambda x: np.tensordot(x > 1, np.ones((3, 3), bool), 1),
    "cast": lambda x: (x * (x > 1)).astype(bool),
    "numbers": lambda x: (x > 1).sum(1, keepdims=True) + (x > 2) * 1 + ((x > 1) + (x > 2)).mean(1, keepdims=True),
}


@pytest.mark.parametrize("name", BOOLEANS)
def test_sums_of_booleans_are_or_whatever_the_example(name):
    x = np.array([[0.0, 0.0, 0.0], [0.5, 1.5, 2.5], [2.5, 3.5, 3.0]])
    network = gb.trace(lambda p, x: BOOLEANS[name](x) * p["v"], {"v": np.ones(3)}, x[:1])
    np.testing.assert_array_equal(network(x), 1.0 * BOOLEANS[name](x))


def test_functions_in_float32():
    def function(p, x):
        h, k = np.zeros((len(x), 3), np.float32), np.zeros_like(x, dtype=np.float32)
        h += x * p["w"].astype(np.float32)
        k[:, 1] = x[:, 0]
        return (h * (x > 0).astype("f4")).astype(np.float32) + k

    x, w = (np.random.default_rng(0).standard_normal(shape).astype("f4") for shape in ((4, 3), 3))
    network = gb.trace(function, {"w": w}, x)
    np.testing.assert_allclose(network(x), function({"w": w}, x), rtol=1e-6)


def test_names_are_paths():
    parameters = {"blocks": [{"w": np.ones((2, 2))}, {"w": np.ones((2, 2))}], "scale": 0.5}

    def function(p, x):
        for block in p["blocks"]:
            x = x + p["scale"] * np.tanh(x @ block["w"])
        return x

    network = gb.trace(function, parameters, np.ones((1, 2)))
    assert sorted(network.parameters) == ["blocks.0.w", "blocks.1.w", "scale"]
    assert network.parameters["scale"].shape == ()
    pair = namedtuple("pair", "w b")(np.ones((2, 2)), np.ones(2))
    assert sorted(gb.trace(lambda p, x: x @ p.w + p.b, pair, np.ones((1, 2))).parameters) == ["0", "1"]
    parameters["blocks"][0]["w"][:] = 0
    assert network.parameters["blocks.0.w"].all()


def test_rows_of_a_table_are_taken_at_several_conditions_and_none_where_there_is_no_row():
    function = lambda p, x: p["t"][3 * (x[:, :2] > 5) + (x[:, :2] > 0)].sum(1) * x  # noqa: E731
    rng = np.random.default_rng(0)
    table, x = {"t": rng.standard_normal((3, 4))}, rng.standard_normal((5, 4))
    network = gb.trace(function, table, x)
    np.testing.assert_allclose(network(-x), function(table, -x), rtol=1e-14)
    with np.errstate(invalid="ignore"):
        assert np.isnan(network(np.full((1, 4), 9.0))).all()  # the row 4 of 3


def test_results_of_a_number_are_taken_as_arrays_are(tmp_path):
    function, rng = lambda p, x: np.tanh(p["s"] * x) @ p["w"], np.random.default_rng(0)
    (x, y), loss = rng.standard_normal((2, 4, 3)), losses.MSELoss()
    network = gb.trace(function, {"s": 1.5, "w": np.eye(3)}, x)
    asked = q.SecondMoment(), q.Variance(), q.DiagGGN(), q.DiagHessian()
    results = [call(network, loss, x, y, *asked) for call in (gb.backward, gb.backward, gb.reference)]
    for result in [*results, gb.data.merge(results)]:
        assert all(values["s"].shape == () for values in (result.gradient, *result.values))
    hessian = gb.operators.Hessian(network, loss, (x, y))
    twice = hessian @ (hessian @ result.gradient)
    assert twice["s"].shape == ()
    np.testing.assert_allclose(hessian.pack(twice), hessian.to_dense() @ (hessian @ hessian.pack(result.gradient)))
    network.parameters.load({"w": network.parameters["w"], "s": network.parameters["s"] - result.gradient["s"]})
    pytest.importorskip("safetensors")
    gb.save(result, tmp_path / "result.safetensors")
    loaded = gb.load_result(tmp_path / "result.safetensors")
    assert loaded["variance"]["s"] == result["variance"]["s"]
    assert loaded.gradient["s"] == result.gradient["s"]


@pytest.mark.long
def test_a_graph_of_five_thousand_nodes():
    def deep(p, x):
        for _ in range(1251):
            x = x + 0.01 * np.tanh(x @ p["w"] + p["b"])
        return x

    x = np.random.default_rng(0).standard_normal((2, 3))
    network = gb.trace(deep, {"w": np.eye(3), "b": np.zeros(3)}, x)
    assert len(network.children) > 5000
    result = gb.backward(network, losses.MSELoss(), x, x)
    assert all(np.isfinite(value).all() and value.any() for value in result.gradient.values())


def test_what_was_traced_is_left_as_it_was():
    x, w = np.ones((2, 3)), np.ones((3, 3))
    gb.trace(lambda p, x: x @ p["w"], {"w": w}, x)
    assert (x == 1).all()
    assert (w == 1).all()
    assert leaves({"w": w})[0] is w


def test_the_page_prints_what_it_says(capsys):
    page = (Path(gb.__file__).parents[1] / "docs" / "trace.md").read_text()
    code, printed = re.search(r"```python\n(import.*?)```\n\nprints\n\n```text\n(.*?)```", page, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == printed


def test_the_example_trains(capsys):
    path = Path(gb.__file__).parents[1] / "examples" / "trace_a_function.py"
    runpy.run_path(str(path))["main"](steps=60)
    first, last = (float(line.split("loss ")[1].split(",")[0]) for line in capsys.readouterr().out.splitlines()[1:])
    assert last < first - 0.5

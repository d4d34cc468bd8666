"""Whatever a subclass or an object has of its own, both engines use it: methods, their helpers, reductions, losses."""

import copy
import pickle
from functools import partial
from types import MethodType

import numpy as np
import pytest
from common import batch, both, chain, with_weight

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.signals import AVERAGE, EXACT, GRADIENT
from gbackprop.engine import costs
from gbackprop.layers.norms.affine import Times, Zeros
from gbackprop.layers.norms.batch_statistics import BatchStatistics

CE = losses.CrossEntropyLoss()
IMAGES = batch(4, 2, 6, 6, seed=3)


def images(*between):
    """A convolution, some layers, a pool, and a linear layer."""
    parts = [layers.Conv2d(2, 32, 3, padding=1), *between, layers.MaxPool2d(2), layers.Conv2d(32, 33, 3, padding=1)]
    size = gb.Sequential(*parts, layers.Flatten(), rng=0).output_shape((2, 6, 6))[0]
    for layer in parts:
        layer.drawn = None
    return chain(*parts, layers.Flatten(), layers.Linear(size, 3))


@pytest.fixture(params=[0.0, -np.inf], ids=["", "routed"])
def routing(request, monkeypatch):
    """With columns routed wherever they can be, and as they are by default."""
    if request.param:
        monkeypatch.setattr(costs, "SAMPLE_COST", request.param)


ASKED = q.DiagGGN(), q.BatchGrad(), q.DiagHessian()


def last_places(self, saved):
    found = sum((seen >= saved[1]) * (k + 1) for k, seen in enumerate(self._views(saved[0])))
    return np.minimum(found, 3).astype(np.int32) // 2


OWN = {
    "unfolded": (layers.Conv2d, (32, 32, 1), {"_unfolded": lambda self, x: 2 * layers.Conv2d._unfolded(self, x)}),
    "matrix": (layers.Conv2d, (32, 32, 3), {"_matrix": lambda self: 2 * layers.Conv2d._matrix(self)}),
    "places": (layers.MaxPool2d, (2, 1), {"_places": last_places}),
    "padded": (layers.ZeroPad2d, (1,), {"_padded": lambda self, mat, p: 2 * layers.ZeroPad2d._padded(self, mat, p)}),
    "jmp": (layers.AvgPool2d, (2, 1), {"jmp": lambda self, saved, mat: 2 * layers.AvgPool2d.jmp(self, saved, mat)}),
    "first": (layers.Sigmoid, (), {"first": lambda self, x, y: 2 * layers.Sigmoid.first(self, x, y)}),
    "value": (layers.ReLU, (), {"value": lambda self, x: np.maximum(x, 0.1)}),
}


@pytest.mark.parametrize("name", OWN)
def test_a_helper_of_a_subclass_is_used_by_both_engines(name, routing):
    kind, arguments, body = OWN[name]
    both(images(type("Own", (kind,), body)(*arguments)), CE, *IMAGES, *ASKED, tolerance=1e-11)


BOUND = [
    (layers.Sigmoid(), layers.Tanh()),
    (layers.ZeroPad2d(1), layers.ZeroPad2d((0, 2, 0, 2))),
    (layers.Dropout(0.3), layers.Identity()),
]


@pytest.mark.parametrize(("layer", "other"), BOUND, ids=str)
def test_a_method_of_another_object_is_that_objects(layer, other, routing):
    layer = copy.deepcopy(layer)
    layer.mjp = other.mjp
    both(images(layer), CE, *IMAGES, *ASKED, tolerance=1e-11)


def test_a_mask_for_each_channel(routing):
    class Dropout2d(layers.Dropout):
        def noise(self, batch_shape, rng):
            return rng.random((*batch_shape[:2], 1, 1)) >= self.p

    both(images(Dropout2d(0.4)), CE, *IMAGES, q.DiagGGN(), rng=5, training=True, tolerance=1e-11)


def masked(self, result):
    """The order of a weight's entries, of which half do not count."""
    found = layers.Outer.joined(self, result)
    return found * (np.arange(found.shape[-1]) % 2)


@pytest.mark.parametrize("options", [{}, {"sample_block": 4}], ids=str)
def test_a_jacobian_with_an_order_of_its_own(options):
    net = chain(with_weight(layers.Linear, joined=masked)(4, 3), layers.Tanh(), layers.Linear(3, 2))
    asked = q.BatchGrad(), q.BatchL2Grad(), q.Variance()
    both(net, CE, *batch(6, 4, classes=2), *asked, tolerance=1e-11, **options)


# ---------------------------------------------------------------------------------------------------------- reductions


@pytest.mark.parametrize("name", ["sum", "batch", "split", "rows", "u", "cube"])
@pytest.mark.parametrize("options", [{}, {"sample_block": 2}, {"column_block": 1}])
def test_a_users_reduction_may_bear_any_name(name, options):
    class Cube(q.Quantity):
        name = "cubes"

        def statistics(self):
            reduction = q.Reduction(name_of, "Σₙ (Jᵀ g)³", np.prod, False, lambda each, sign: (each**3).sum((0, 1)))
            return (q.Statistic(reduction, GRADIENT),)

        def finish(self, scale, value):
            return value

    name_of = name
    net, (x, y) = chain(layers.Linear(4, 3), layers.Tanh(), layers.Linear(3, 2)), batch(6, 4, classes=2)
    result = gb.backward(net, CE, x, y, Cube(), q.BatchGrad(), q.DiagGGN(), **options)
    for key, each in result["batch_grad"].items():
        np.testing.assert_allclose(result["cubes"][key], (each**3).sum(0), rtol=1e-11)
        np.testing.assert_allclose(result.gradient[key], each.sum(0), rtol=1e-11, atol=1e-15)
    assert "Σₙ (Jᵀ g)³" in str(gb.explain(net, CE, x, y, Cube()))


def test_statistics_are_pickled_and_copied():
    for statistic in (q.Statistic("square", EXACT), q.Statistic("batch", GRADIENT)):
        for twin in (pickle.loads(pickle.dumps(statistic)), copy.deepcopy(statistic)):
            assert twin == statistic
            assert twin.reduction is statistic.reduction
            assert {statistic: 1}[twin] == 1
    assert copy.deepcopy(q.Reduction("own", "", np.prod)) == q.Reduction("own", "", np.prod)


def test_statistics_that_cannot_be():
    assert q.Statistic("kronecker", AVERAGE) == q.Statistic("average_kronecker", AVERAGE)
    for name, signal in (("square", None), ("sum", AVERAGE), ("input_square", EXACT)):
        with pytest.raises(ValueError, match=f"'{name}': expected a signal that it can reduce"):
            q.Statistic(name, signal)


# --------------------------------------------------------------------------------------------------- losses, containers


def linear():
    return chain(layers.Linear(4, 3))


def test_a_loss_that_ignores_which_columns_are_wanted_is_named():
    class Forgetful(losses.CrossEntropyLoss):
        def hessian_sqrt(self, output, target, columns=slice(None)):
            return super().hessian_sqrt(output, target)

    net, (x, y) = linear(), batch(5, 4)
    gb.backward(net, Forgetful(), x, y, q.DiagGGN())
    with pytest.raises(ValueError, match=r"Forgetful\('mean'\), hessian_sqrt: expected shape \(2, 5, 3\), got \(3"):
        gb.backward(net, Forgetful(), x, y, q.DiagGGN(), column_block=2)


@pytest.mark.parametrize("method", ["forward", "forward_training", "noise", "jmp", "mjp"])
def test_a_chain_with_a_function_of_its_own_is_refused(method):
    own = type("Own", (gb.Sequential,), {method: lambda self, *given: getattr(gb.Sequential, method)(self, *given)})
    net = own(layers.Linear(4, 3), rng=0)
    with pytest.raises(gb.UnsupportedError, match=f"Own: expected a chain of layers, .* with a {method} of its own"):
        gb.backward(net, CE, *batch(5, 4, dtype="float32"))


def test_results_are_in_the_order_of_the_parameters():
    net = linear()
    net[0].drawn = dict(reversed(net[0].drawn.items())) | {"buffer": np.zeros(2)}
    result = gb.backward(net, CE, *batch(5, 4), q.Variance())
    assert list(result.gradient) == list(net.parameters) == list(result["variance"]) == ["0.weight", "0.bias"]


def test_kfra_in_blocks_is_refused_before_anything_is_drawn():
    net, rng = linear(), np.random.default_rng(7)
    before = rng.bit_generator.state
    with pytest.raises(ValueError, match="KFRA averages over the whole batch"):
        gb.backward(net, CE, *batch(5, 4), q.KFRA(), rng=rng, sample_block=2)
    assert rng.bit_generator.state == before


STORED = np.diag([1.0, 2.0, 3.0])


@pytest.mark.parametrize("engine", [gb.reference, gb.backward])
def test_what_a_layer_stores_is_not_divided_in_place(engine):
    """An input factor that is computed once, and stored."""
    net = chain(with_weight(layers.Linear, input_square=lambda self: STORED)(3, 2))
    for _ in range(2):
        found = engine(net, CE, np.ones((4, 3)), np.zeros(4, int), q.KFAC(), q.KFLR(), rng=0)
        for name in ("kfac", "kflr"):
            np.testing.assert_array_equal(found[name]["0.weight"].A, np.diag([1.0, 2.0, 3.0]) / 4)
    np.testing.assert_array_equal(STORED, np.diag([1.0, 2.0, 3.0]))


def test_a_class_that_gives_other_functions_than_it_defines():
    class Tripled(layers.ReLU):
        def __getattribute__(self, name):
            function = super().__getattribute__(name)
            return (lambda *given: 3 * function(*given)) if name == "mjp" else function

    both(chain(layers.Linear(4, 3), Tripled(), layers.Linear(3, 3)), CE, *batch(4, 4), tolerance=1e-11)


def test_a_property_of_a_subclass_is_used_by_operators():
    class Doubled(layers.ConvTranspose2d):
        parameters = property(lambda self: {k: 2 * v for k, v in layers.Layer.parameters.fget(self).items()})

    net, (x, y) = chain(Doubled(2, 2, 2), layers.Flatten(), layers.Linear(32, 3)), batch(4, 2, 3, 3)
    diagonal = gb.reference(net, CE, x, y, q.DiagGGN())["diag_ggn"]
    found = np.diag(gb.operators.GGN(net, CE, (x, y)).to_dense())
    np.testing.assert_allclose(found, np.concatenate([each.ravel() for each in diagonal.values()]), atol=1e-12)


class Ones(Zeros):
    def forward(self, x):
        y, saved = super().forward(x)
        return y + 1, saved


class Steeper(layers.Tanh):
    def mjp(self, saved, mat):
        return 2 * super().mjp(saved, mat)


def with_another_child(layer):
    child = layer.children["weight_hh_l0"]
    child.mjp = lambda saved, mat: 2 * type(child).mjp(child, saved, mat)


INSIDE = {
    "minus of the class": (type("Own", (gb.GRU,), {"minus": Times(-2.0)}), lambda layer: None),
    "minus": (gb.GRU, lambda layer: setattr(layer, "minus", Times(-2.0))),
    "start": (gb.GRU, lambda layer: setattr(layer, "start", Ones(3))),
    "nonlinearity": (gb.RNN, lambda layer: setattr(layer, "nonlinearity", Steeper)),
    "child": (gb.LSTM, with_another_child),
}


@pytest.mark.parametrize("name", INSIDE)
def test_another_layer_inside_of_a_recurrent_step(name):
    kind, change = INSIDE[name]
    layer = kind(2, 3)
    change(layer)
    both(chain(layer, layers.Flatten(), layers.Linear(12, 3)), CE, *batch(3, 4, 2), q.DiagGGN(), tolerance=1e-11)


def test_an_outer_product_that_is_joined_in_another_way():
    class Doubled(layers.Outer):
        def joined(self, rows):
            return 2 * super().joined(rows)

    class Twice(layers.Linear):
        def parameter_jacobians(self, saved):
            found = super().parameter_jacobians(saved)
            found["weight"].__class__ = Doubled
            return found

    net, x = chain(layers.Tanh(), Twice(3, 2, bias=False)), batch(4, 3)[0]
    jacobian = gb.operators.Jacobian(net, x)
    dense = jacobian @ np.eye(jacobian.shape[1])
    np.testing.assert_allclose(gb.spectra.ntk(net, x).reshape(8, 8), dense @ dense.T, atol=1e-12)


class Shifted(layers.Linear):
    """y = W x + 2 b."""

    def forward(self, x):
        return x @ self.parameters["weight"].T + 2 * self.parameters["bias"], x

    def parameter_jacobians(self, saved):
        found = super().parameter_jacobians(saved)
        return found | {"bias": self.doubled(found["bias"])}

    def doubled(self, bias):
        class Doubled(layers.Bias):
            def per_sample(self, mat):
                return 2 * super().per_sample(mat)

        return Doubled(bias.rows)


class ShiftedByObject(Shifted):
    def doubled(self, bias):
        own = layers.Bias(bias.rows)
        own.per_sample = lambda mat: 2 * bias.per_sample(mat)
        return own


@pytest.mark.parametrize("kind", [Shifted, ShiftedByObject])
def test_a_bias_with_a_product_of_its_own_at_two_places(kind):
    layer, (x, y) = kind(4, 4), batch(5, 4)
    net = chain(layer, layers.Tanh(), layer, layers.Linear(4, 3))
    found, bias = both(net, CE, x, y, q.DiagHessian()).gradient["0.bias"], layer.parameters["bias"]
    for i, step in enumerate(1e-6 * np.eye(4)):
        sides = [CE.value(net(x), y) for layer.parameters["bias"] in (bias + step, bias - step)]
        np.testing.assert_allclose((sides[0] - sides[1]) / 2e-6, found[i], rtol=1e-6)


@pytest.mark.parametrize("sharing", ["bias", "reduce", "expand"])
@pytest.mark.parametrize("kind", [Shifted, ShiftedByObject])
def test_the_factor_of_a_bias_with_a_product_of_its_own(kind, sharing):
    net, plain = (chain(each(4, 5), layers.Tanh(), layers.Linear(5, 3)) for each in (kind, layers.Linear))
    (x, y), kfac = batch(5, 4), q.KFAC(fisher="exact", sharing=sharing)
    for name, value in net.parameters.items():
        plain.parameters[name][...] = 2 * value if name == "0.bias" else value
    want = gb.backward(plain, CE, x, y, kfac)[kfac]["0.bias"].B
    np.testing.assert_allclose(both(net, CE, x, y, kfac)[kfac]["0.bias"].B, 4 * want, rtol=1e-12)


MASK = np.array([[1.0, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 1]])


class Masked(layers.Outer):
    def per_sample(self, mat):
        return super().per_sample(mat) * MASK


class WithFactors(Masked):
    """One whose factors are its own business."""

    def kronecker(self, mat, sign=None):
        return np.eye(3)

    def input_square(self):
        return np.eye(4)


class MaskedLinear(layers.Linear):
    jacobian_kind = Masked

    def forward(self, x):
        return x @ (self.parameters["weight"] * MASK).T + self.parameters["bias"], x

    def mjp(self, saved, mat):
        return mat @ (self.parameters["weight"] * MASK)

    def parameter_jacobians(self, saved):
        found = super().parameter_jacobians(saved)
        if self.jacobian_kind is None:
            plain = copy.copy(found["weight"])
            found["weight"].per_sample = lambda mat: plain.per_sample(mat) * MASK
        else:
            found["weight"].__class__ = self.jacobian_kind
        return found


OF_FACTORS = [*[q.KFAC(fisher="exact", sharing=each) for each in ("bias", "expand", "reduce")], q.KFLR(), q.KFRA(),
              q.EKFAC(fisher="exact"), q.NearestKronecker()]  # fmt: skip


@pytest.mark.parametrize("kind", [Masked, None])
@pytest.mark.parametrize("asked", OF_FACTORS, ids=repr)
def test_a_weight_with_a_product_of_its_own_has_no_kronecker_factors(kind, asked):
    layer, (x, y) = MaskedLinear(4, 3), batch(5, 4)
    layer.jacobian_kind = kind
    found = both(chain(layer), CE, x, y, q.DiagGGN())
    assert np.count_nonzero(found["diag_ggn"]["0.weight"]) == MASK.sum()
    with pytest.raises(gb.UnsupportedError, match="its weight has no Kronecker factors"):
        gb.backward(chain(layer), CE, x, y, asked)


def test_a_weight_with_a_product_and_factors_of_its_own():
    layer, (x, y), kfac = MaskedLinear(4, 3), batch(5, 4), q.KFAC(fisher="exact")
    layer.jacobian_kind = WithFactors
    block = both(chain(layer), CE, x, y, kfac)[kfac]["0.weight"]
    np.testing.assert_allclose(block.A, np.eye(4) / 5)
    np.testing.assert_allclose(block.B, np.eye(3))


class OfSquares(layers.ParameterJacobian):
    """That of the weight W in y = (W * W) x."""

    def __init__(self, layer, u):
        self.layer, self.u = layer, u

    def per_sample(self, mat):
        return 2 * self.layer.parameters["weight"] * mat[..., :, None] * self.u[:, None]


SQUARED = {
    "forward": lambda self, x: (x @ (self.parameters["weight"] ** 2).T, x),
    "mjp": lambda self, saved, mat: mat @ self.parameters["weight"] ** 2,
    "jmp": lambda self, saved, mat: mat @ (self.parameters["weight"] ** 2).T,
    "parameter_jacobians": lambda self, saved: {"weight": OfSquares(self, saved)},
}
"""Methods of a layer that is not affine in its weight."""


def assign(how, layer, methods, monkeypatch):
    for name, function in methods.items():
        method = partial(function, layer) if how == "closure" else MethodType(function, layer)
        monkeypatch.setattr(layer, name, method, raising=False)


@pytest.mark.parametrize("how", ["object", "closure"])
def test_a_shipped_layer_with_methods_of_its_own_is_tested_as_a_users_is(how, monkeypatch):
    layer, (x, y) = layers.Linear(4, 3, bias=False), batch(5, 4)
    net = chain(layer, layers.Tanh())
    gb.backward(net, CE, x, y, q.DiagHessian())
    assign(how, layer, SQUARED, monkeypatch)
    reason = "its forward is no method" if how == "closure" else "it is not affine in its parameter weight"
    for call in (gb.backward, gb.reference):
        with pytest.raises(gb.UnsupportedError, match=f"cannot give DiagHessian: {reason}"):
            call(net, CE, x, y, q.DiagHessian())
        call(net, CE, x, y, q.DiagGGN())
    with pytest.raises(gb.UnsupportedError, match=f"cannot give Hessian: {reason}"):
        gb.operators.Hessian(net, CE, (x, y))


@pytest.mark.parametrize("how", ["object", "closure"])
def test_a_shipped_layer_with_a_forward_of_its_own_keeps_the_shapes(how, monkeypatch):
    layer, (x, y) = layers.Sigmoid(), batch(5, 4, classes=4)
    net = chain(layers.Linear(4, 4), layer)
    before = gb.backward(net, CE, x, y).loss
    with monkeypatch.context() as patch:
        assign(how, layer, {"forward": lambda self, x: (x.mean(0, keepdims=True), x)}, patch)
        for call in (gb.backward, gb.reference, lambda net, *given: net(x)):
            with pytest.raises(ValueError, match=r"layer 1, Sigmoid\(\), forward: expected shape \(5, 4\)"):
                call(net, CE, x, y)
    assert gb.backward(net, CE, x, y).loss == before


def test_a_users_layer_in_which_samples_meet_keeps_its_contract():
    class Own(BatchStatistics):
        """The layer in training mode of a batch norm."""

    class Norm(layers.BatchNorm1d):
        def in_training(self):
            return Own(self)

    x, y = batch(5, 3)
    found = []
    for kind in (Norm, layers.BatchNorm1d):
        net = chain(layers.Linear(3, 4), kind(4), layers.Tanh(), layers.Linear(4, 3))
        found.append(gb.backward(net, CE, x, y, q.DiagHessian(), training=True)["diag_hessian"])
    for name, value in found[1].items():
        np.testing.assert_allclose(found[0][name], value, rtol=1e-12, atol=1e-15)


def test_a_method_of_a_module_without_a_name_is_a_users():
    room = {"half": 0.5}
    exec("def values(self, output, target):\n    return half * ((output - target) ** 2).sum(1)", room)
    room["values"].__globals__.pop("__name__", None)
    (x, _), y = batch(5, 4), np.zeros((5, 3))
    with pytest.raises(gb.UnsupportedError, match="expected L = R"):
        gb.backward(chain(layers.Linear(4, 3)), type("Own", (losses.MSELoss,), {"value": room["values"]})(), x, y)
    gb.backward(chain(layers.Linear(4, 3)), type("Own", (losses.MSELoss,), {"values": room["values"]})(), x, y)

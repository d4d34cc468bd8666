"""Certificates: what ships is proved; what is planted in code or formulas is refuted, or not certified."""

import builtins
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from command_line import refused
from common import one_in

from gbackprop import layers, losses
from gbackprop.__main__ import main
from gbackprop.layers import Elementwise
from gbackprop.testing import certify
from gbackprop.testing.audit.command import shipped_functions
from gbackprop.testing.audit.findings import Auditor
from gbackprop.testing.certificate.enclosure import IV, Enclosed
from gbackprop.testing.certificate.notation import Formula, FormulaError, plain
from gbackprop.testing.certificate.subjects import settings_of
from gbackprop.testing.certificate.sweep import _piece

EXAMPLE = run_path(str(Path(__file__).parents[2] / "examples" / "audit_a_layer.py"))
Swish, sigmoid = EXAMPLE["Mended"], EXAMPLE["sigmoid"]

SLOW = ("CrossEntropyLoss", "GELU", "Mish", "HuberLoss", "SmoothL1Loss", "PoissonNLLLoss", "GaussianNLLLoss", "BCELoss",
        "BCEWithLogitsLoss")  # fmt: skip
ALL = sorted(shipped_functions(Auditor()), key=lambda each: type(each).__name__ in SLOW)
QUICK = [each for each in ALL if type(each).__name__ not in SLOW]
SHIPPED = [*one_in(5, QUICK), *[pytest.param(each, marks=pytest.mark.long) for each in ALL[len(QUICK) :]]]


def planted(method, fault, **formulas):
    """Swish with a method that a fault has changed, and with other formulas."""
    wrong = {"formulas": {**Swish.formulas, **formulas}}
    if fault:
        wrong[method] = lambda self, x, y: fault(x, getattr(Swish, method)(self, x, y))
    return type("Planted", (Swish,), wrong)()


def verdicts(certificate):
    return {(proof.of, proof.method): proof.verdict for proof in certificate.proofs}


# --- what ships -----------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", SHIPPED, ids=repr)
def test_what_ships_is_certified(subject):
    certificate = certify(subject)
    assert certificate.ok, str(certificate)
    assert len({proof.method for proof in certificate.proofs if proof.of == "code"}) == 3  # the second derivative, too


def test_all_activations_and_losses_are_among_these():
    found = {type(each.values[0]).__name__ for each in SHIPPED}
    smooth = {each for each in vars(layers) if isinstance(getattr(layers, each), type)}
    own = {each for each in smooth if issubclass(getattr(layers, each), Elementwise)} - {"Elementwise", "Gated"}
    assert own | {"PReLU", "Dropout"} | (set(losses.__all__) - {"Loss"}) <= found


def test_a_layer_that_draws_is_certified_for_each_number_that_it_draws():
    found = [*settings_of(layers.Dropout(0.2), -1.0, 1.0)]
    assert [each.title for each in found] == ["", "training, drawn False", "training, drawn True"]
    assert [(each.options["training"], each.options["drawn"]) for each in found] == [(0, 0), (1, 0), (1, 1)]
    (alone,) = settings_of(layers.Tanh(), -1.0, 1.0)
    assert (alone.title, alone.options["training"]) == ("", 0)


def test_a_loss_is_certified_at_outputs_where_it_is_defined():
    found = [*settings_of(losses.BCELoss(), -5.0, 5.0)]
    assert all(0 < each.numbers[f"f{n}"] < 1 for each in found for n in (1, 2, 3))
    assert {(each.low, each.high) for each in found} == {(0.0, 1.0)}


def test_a_loss_is_certified_with_the_targets_that_it_takes():
    found = {each.title.partition("target ")[2] for each in settings_of(losses.BCEWithLogitsLoss(), -1.0, 1.0)}
    assert found == {"(0.3, 1.0, 0.6)"}
    found = {each.title.partition("target ")[2] for each in settings_of(losses.PoissonNLLLoss(), -1.0, 1.0)}
    assert found == {"(0.3, 1.0, 0.6)", "(3.0, 0.0, 1.0)"}


@pytest.mark.parametrize("count", [3, 4])
def test_a_loss_of_classes_is_certified_with_each_as_the_target_and_an_output_of_the_target_and_others(count):
    found = [each.title for each in settings_of(losses.CrossEntropyLoss(weight=np.ones(count)), -1.0, 1.0)]
    targets = [0, 3, 2, 1] if count == 4 else [0, 2, 1]
    assert found == [f"output {k} of {count}, target {target}" for k, target in enumerate(targets, 1)]


def test_the_derivation_and_the_kink():
    certificate = certify(layers.LeakyReLU(0.1))
    assert certificate.kinks == (0.0,)
    assert "(0, 50]: φ'(x) = 1" in certificate.derivation
    assert "[-50, 0): φ'(x) = 1/10" in certificate.derivation


def test_kinks_are_told_if_there_are_any():
    assert "kinks, not judged: 0; " in str(certify(layers.LeakyReLU(0.1)))
    assert "no kinks; " in str(certify(layers.Tanh()))


@pytest.mark.parametrize("loss", [losses.MSELoss("sum"), losses.NLLLoss(), losses.NLLLoss("sum")], ids=repr)
def test_losses_without_a_factor_are_certified(loss):
    """Their formulas have c = 1: of a mean over single samples, too, where each has one term."""
    assert certify(loss).ok


def test_code_that_is_near_its_derivative_and_hyperbolic():
    class Sinh(Elementwise):
        formulas = {"forward": "y = sinh(x)", "mjp": "cosh(x) g", "residual": "y g"}

        def value(self, x):
            return np.sinh(x)

        def first(self, x, y):
            return np.cosh(x) * (1 + 1e-15)

        def second(self, x, y):
            return y

    assert certify(Sinh(), -3.0, 3.0).ok


def test_a_root_of_a_square():
    class Rooted(Elementwise):
        formulas = {"forward": "y = √(σ(x)²)"}

        def value(self, x):
            return np.sqrt(sigmoid(x) ** 2)

        def first(self, x, y):
            return y * (1 - y)

        def second(self, x, y):
            return y * (1 - y) * (1 - 2 * y)

    assert certify(Rooted(), -3.0, 3.0).ok
    Rooted.formulas = {"forward": "y = √(2x²)", "mjp": "2x/y g"}
    with pytest.raises(ValueError, match=r"Rooted\(\), forward: expected \|x\| for the root of x², whose kink"):
        certify(Rooted(), -3.0, 3.0)


def test_a_formula_that_begins_with_a_condition_of_indices():
    class Brackets(losses.MSELoss):
        formulas = {**losses.MSELoss.formulas, "hessian": "[i = j] 2c"}

    assert certify(Brackets(), -5.0, 5.0).ok


# --- what is planted ------------------------------------------------------------------------------


def test_a_missing_term_is_shown_beside_the_right_formula():
    certificate = certify(planted("second", lambda x, right: right - sigmoid(x) * (1 - sigmoid(x))))
    assert certificate.summary == "residual: the code is wrong, the formula is right"
    (refuted,) = [proof for proof in certificate.proofs if proof.verdict == "refuted"]
    assert (refuted.given, refuted.right) == (
        "(σ(x) − 1) (2 x σ(x) − x − 1) σ(x)",
        "(σ(x) − 1) (2 x σ(x) − x − 2) σ(x)",
    )


@pytest.mark.parametrize(("method", "fault"), [
    ("first", lambda x, right: right / 2),
    ("first", lambda x, right: right * (1 + 1e-9)),
    ("second", lambda x, right: np.where((x > 1.2345) & (x < 1.2346), 2 * right, right)),
    ("second", lambda x, right: right + np.exp(-((1e5 * (x - 1.2345)) ** 2))),
    ("second", lambda x, right: np.where(x < -30, -right, right)),
    ("first", lambda x, right: np.where(x > 30, 0.5, right)),
    ("first", lambda x, right: np.where(x == 7.25, 0.0, right)),
], ids=["factor", "small factor", "narrow interval", "narrow bump", "sign below -30", "branch above 30", "one float"])
def test_a_fault_is_not_certified(method, fault):
    certificate = certify(planted(method, fault))
    name = {"first": "mjp", "second": "residual"}[method]
    assert verdicts(certificate)["code", name] != "proved", str(certificate)
    assert all(verdict == "proved" for key, verdict in verdicts(certificate).items() if key != ("code", name))


def test_a_wrong_formula_beside_right_code():
    certificate = certify(planted("first", None, mjp="(σ + x σ) g"))
    assert certificate.summary == "mjp: the formula is wrong, the code is right"
    (refuted,) = [proof for proof in certificate.proofs if proof.verdict == "refuted"]
    assert refuted.given == "(x + 1) σ(x)"


def test_the_rows_of_a_certificate():
    """They have no error of their own: the bound is among their words."""
    rows = certify(planted("second", lambda x, d: 2 * d)).report().rows
    assert [(row.claim.split(" on ")[0], row.method) for row in rows] == [
        ("formula is φ'(x)", "mjp"), ("formula is φ''(x)", "residual"), ("code is y", "forward"),
        ("code is φ'(x)", "mjp"), ("code is φ''(x)", "residual")]  # fmt: skip
    assert [row.verdict for row in rows] == ["ok"] * 4 + ["FAILED"]
    assert all(row.error == 0 and "error at most" in row.oracle for row in rows)
    assert ["refuted" in row.problem for row in rows] == [False] * 4 + [True]


def test_a_wrong_kink():
    class Leaky(layers.LeakyReLU):
        def first(self, x, y):
            return np.where(x > 0.1, 1.0, self.negative_slope)

    certificate = certify(Leaky())
    (refuted,) = [proof for proof in certificate.proofs if proof.verdict == "refuted"]
    assert refuted.method == "mjp"
    assert refuted.where.startswith("(0, 0.1)")


def test_a_loss_without_its_factor():
    class Mean(losses.MSELoss):
        def gradients(self, output, target):
            return output - target

    certificate = certify(Mean())
    assert certificate.summary == "gradients: the code is wrong, the formula is right"


def test_code_that_loses_digits_is_not_certified():
    class Cancels(layers.Tanh):
        def value(self, x):
            return (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x)) + 1e6 - 1e6

    certificate = certify(Cancels(), -2.0, 2.0)
    assert verdicts(certificate)["code", "forward"] == "not proved"
    assert "ulp" in str(certificate)


def test_code_that_does_not_run_on_intervals_is_not_certified():
    class Looked(layers.Tanh):
        most = 1.0

        def value(self, x):
            return np.interp(x, [-1.0, 1.0], [-1.0, self.most])

    certificate = certify(Looked())
    assert not certificate.ok
    assert "does not run on intervals" in str(certificate)
    wrong = type("Wrong", (Looked,), {"most": 1.5})()  # at the ends, where it is run on floats
    assert verdicts(certify(wrong))["code", "forward"] == "refuted"


# --- errors ---------------------------------------------------------------------------------------


def test_formulas_that_cannot_be_parsed_are_named():
    with pytest.raises(FormulaError, match=r"Planted\(\), formula 'mjp': 'σ \+ q g', character 5: expected a number"):
        certify(planted("first", None, mjp="σ + q g"))
    with pytest.raises(FormulaError, match=r"formula 'residual': '\(2 \+ x', character 1: expected a formula"):
        certify(planted("first", None, residual="(2 + x"))
    with pytest.raises(FormulaError, match=r"'Σ x g', character 3: expected an index after Σ"):
        certify(planted("first", None, residual="Σ x g"))


@pytest.mark.parametrize("subject", [layers.Linear(3, 3), layers.Softmax(1), layers.Flatten(), layers.LayerNorm(1)])
def test_layers_that_are_not_elementwise_are_refused(subject):
    with pytest.raises(TypeError, match="expected an elementwise layer"):
        certify(subject)


@pytest.mark.parametrize("method", ["value", "first", "second"])
@pytest.mark.parametrize("fault", [
    lambda x, y: y / x.size, lambda x, y: y + (x - x.max()), lambda x, y: y * (1 + (x.ndim > 3)), lambda x, y: y[::-1],
    lambda x, y: y + (x - x.mean(0)), lambda x, y: y * x.shape[-1],
])  # fmt: skip
def test_a_method_that_depends_on_the_other_numbers_is_refused(method, fault):
    with pytest.raises(TypeError, match="from itself alone"):
        certify(planted(method, fault))


@pytest.mark.parametrize("kind", [losses.MSELoss, losses.CrossEntropyLoss, losses.GaussianNLLLoss])
@pytest.mark.parametrize("method", ["values", "gradients", "hessian_sqrt"])
def test_a_loss_that_depends_on_the_number_of_samples_is_refused(kind, method):
    wrong = {method: lambda self, f, target: getattr(kind, method)(self, f, target) / len(f)}
    with pytest.raises(TypeError, match="each sample from itself alone"):
        certify(type("Planted", (kind,), wrong)())


def test_a_loss_that_depends_on_the_other_samples_is_refused():
    class Centered(losses.MSELoss):
        def gradients(self, output, target):
            return super().gradients(output, target) + (output - output.mean(0))

    with pytest.raises(TypeError, match="each sample from itself alone"):
        certify(Centered())


def test_what_raises_is_not_certified():
    def raising(*given):
        raise ZeroDivisionError("division by zero")

    assert not certify(type("Own", (layers.Tanh,), {"second": raising})()).ok
    assert not certify(type("Own", (losses.MSELoss,), {"hessian_sqrt": raising})()).ok


def test_other_arguments_are_refused():
    with pytest.raises(TypeError, match="subject: expected a layer or a loss, got str"):
        certify("tanh")
    with pytest.raises(ValueError, match="low, high: expected two finite numbers in order"):
        certify(layers.Tanh(), 1.0, 1.0)
    for ulps in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="ulps: expected a number above 0"):
            certify(layers.Tanh(), ulps=ulps)


@pytest.mark.parametrize("formulas", [Elementwise.formulas, {"mjp": "(1 − y²) g"}])
def test_a_layer_that_states_no_function_of_its_own_is_refused(formulas):
    kind = type("Own", (layers.Tanh,), {"formulas": formulas})
    with pytest.raises(ValueError, match=r"Own\(\): expected its function in formulas\['forward'\], got none"):
        certify(kind())


@pytest.mark.parametrize("ulps", [0.5, 1])
def test_what_is_exact_is_certified_to_less_than_an_ulp(ulps):
    assert "certified" in str(certify(layers.ReLU(), ulps=ulps)).splitlines()[0]


def test_without_sympy_the_extra_is_named(monkeypatch):
    plain = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("gbackprop.testing.certificate.judge"):
            raise ModuleNotFoundError("No module named 'sympy'", name="sympy")
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"certificates: the package 'sympy' is not installed.*symbolic"):
        certify(layers.Tanh())


# --- the command ----------------------------------------------------------------------------------


def test_the_command_prints_the_derivation_and_writes_the_page(capsys, tmp_path):
    page = tmp_path / "page.html"
    assert main(["audit", "--certificate", "gbackprop.layers:Tanh", "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "φ'(x) = 1 − tanh(x)²" in out
    assert "1 of 1 certified" in out
    text = page.read_text(encoding="utf-8")
    assert "1 − tanh(x)²" in text
    assert "derived, [-50, 50], 1<" in text


def test_the_command_refuses_what_cannot_be_certified(capsys):
    assert "expected an elementwise layer" in refused(capsys, "audit", "--certificate", "gbackprop.layers:Flatten")
    line = refused(capsys, "audit", "--certificate", "gbackprop.layers:Tanh", "--input", "4")
    assert line.startswith("--certificate goes without --input")


@pytest.mark.parametrize(("value", "ulps"), [(0.5, 2.0), (4.0, 0.5)])
def test_errors_of_pieces_are_in_ulps_of_numbers_of_size_1_at_least(value, ulps):
    entry = Enclosed(IV.mpf([value, value]), 2.0**-51, None, [])
    assert _piece(0.0, 1.0, {("code", "forward"): [entry], ("formula", "forward"): [entry]}).worst == ulps


@pytest.mark.parametrize("k", range(-2, 3))
@pytest.mark.parametrize("root", [1, 2, 3])
def test_a_float_stands_for_a_fraction_times_roots_and_powers_of_pi(root, k):
    sympy = pytest.importorskip("sympy")
    from gbackprop.testing.certificate.symbols import recognized

    for fraction in (sympy.Integer(1), sympy.Rational(1, 2), sympy.Rational(3, 7)):
        number = fraction * sympy.sqrt(root) * sympy.pi ** sympy.Rational(k, 2)
        found, error = recognized(float(number))
        assert sympy.simplify(found - number) == 0
        assert error <= 2.0**-50 * float(number)


def test_a_sum_ends_where_its_parentheses_do():
    """Σⱼ (aⱼ + Σₖ bₖ) cⱼ is 1·(2 + 5 + 7) + 3·(4 + 5 + 7) for a = 2, 4, b = 5, 7 and c = 1, 3."""
    given = {"a": [2.0, 4.0], "b": [5.0, 7.0], "c": [1.0, 3.0]}
    formula = Formula("Σⱼ (aⱼ + Σₖ bₖ) cⱼ + 1", given, {}, "this")
    own = {name: values.__getitem__ for name, values in given.items()}
    scope = {plain(name): value for name, value in own.items()}
    scope |= {plain("Σ"): lambda part: sum(map(part, range(2))), plain("N"): float}
    assert formula(scope) == 1 * (2 + 12) + 3 * (4 + 12) + 1


@pytest.mark.parametrize("text", ["t; t a b = 3", "t; t a = 3", "t; 3"])
def test_what_is_no_definition_is_refused(text):
    with pytest.raises(FormulaError, match="a definition, as in t = tanh"):
        Formula(text, ["t", "a", "b"], {}, "this")

"""Planted faults in losses, the driver and quantities."""

import importlib
from dataclasses import replace

import numpy as np
from faults import Fault, after, before, instead, on_loss, on_network, times
from scipy import special

from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.calculus.moments import Moments
from gbackprop.calculus.signals import EXACT, GRADIENT, Columns
from gbackprop.engine import blocks, spans
from gbackprop.engine.registry import Context
from gbackprop.engine.rows import SampleRows
from gbackprop.engine.spans import SpanSweep
from gbackprop.engine.sweep import FastSweep
from gbackprop.layers.elementwise.activation import sigmoid
from gbackprop.losses import cross_entropy, huber
from gbackprop.losses.base import Loss
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.losses.flat import FlatLoss
from gbackprop.plain import branching
from gbackprop.plain.plan import Plan
from gbackprop.plain.reference import AtLoss, Sweep
from gbackprop.quantities import kronecker
from gbackprop.testing.strategies import IGNORED

driver = importlib.import_module("gbackprop.engine.backward")  # the functions of the same names hide the modules
plain = importlib.import_module("gbackprop.plain.reference")
loss_root = Loss.hessian_sqrt_mc

# -------------------------------------------------------------------------------------------------------------- checks

cross = on_loss(losses.CrossEntropyLoss, (4,))
squared = on_loss(losses.MSELoss, (3,))
bits = on_loss(losses.BCEWithLogitsLoss, (3,))
classes = on_loss(losses.CrossEntropyLoss, (4, 2), weight=np.array([0.5, 2.0, 1.0, 3.0]), ignore_index=IGNORED)
smoothed = on_loss(losses.CrossEntropyLoss, (4,), label_smoothing=0.2)
weighted_bits = on_loss(losses.BCEWithLogitsLoss, (3,), pos_weight=np.array([0.5, 2.0, 3.0]))
edged, smooth = on_loss(losses.HuberLoss, (4,)), on_loss(losses.SmoothL1Loss, (4,), beta=2.5)
counted, rated = on_loss(losses.PoissonNLLLoss, (3,)), on_loss(losses.PoissonNLLLoss, (3,), log_input=False)
likely, absolute = on_loss(losses.BCELoss, (3,), weight=np.array([0.5, 2.0, 3.0])), on_loss(losses.L1Loss, (3,))
chosen, normal = on_loss(losses.NLLLoss, (4, 2)), on_loss(losses.GaussianNLLLoss, (3,))
network = on_network()

# ----------------------------------------------------------------------------------------------- longer wrong functions


def in_place(self, output, target):
    output -= target
    return self.summed(output**2)


def of_bare_probabilities(self, output, target):
    p = np.where(special.softmax(output, axis=1) < 0.5, 0, 1)
    with np.errstate(divide="ignore"):
        return -np.log(p[np.arange(len(p)), target])


def without_rank_one(self, output, target, columns=slice(None)):
    p = special.softmax(output, axis=1)
    return (np.sqrt(p).T[:, :, None] * np.eye(p.shape[1], dtype=p.dtype)[:, None])[columns]


def of_logits(self, p, y):
    return (p - y) * self.weight.astype(p.dtype) * self.summed_weight(p.shape[1:])


def with_weights_of_the_drawn(self, output, targets, target):
    s = [loss_root(self, output, drawn[None], drawn) for drawn in targets]
    return np.concatenate(s) / len(targets) ** 0.5


def without_class_weights(self, target, p):
    return losses.CrossEntropyLoss(ignore_index=self.ignore_index), target, p


def root_times_weights(sound):
    def wrong(self, output, targets, target):
        return sound(self, output, targets, target) * np.sqrt(self.curvature_weights(output, target))

    return wrong


def with_twice_the_weights(self):
    return losses.CrossEntropyLoss(self.reduction, weight=np.full(4, 2.0))


def next_position(values):
    return np.roll(values, 1, axis=-1)


def with_normal_counts(self, output, noise):
    counts = np.round(np.exp(output) + np.exp(output / 2) * (noise - 0.5) * 12**0.5)
    return np.maximum(counts, 0).astype(output.dtype)


def divided_by_all_targets(sound):
    return lambda self, output, targets, target: sound(self, output, targets, target) * targets.shape[0] ** 0.5


def with_x_in_place(run, *others):
    run.x[...] += 1e-9
    return run, *others


def in_every_pass(sound):
    def arriving(self, leaf, signals):
        first, self.first = self.first, True
        found = sound(self, leaf, signals)
        self.first = first
        return found if first else {signal: given for signal, given in found.items() if signal is not None}

    return arriving


def without_noise(draws):
    return draws | {"mc_noise": {signal: np.full_like(noise, 0.3) for signal, noise in draws["mc_noise"].items()}}


def second_of(moments):
    return moments.centered + moments.count * moments.mean**2


def right_for_a_mean(self, scale, moments):
    return (second_of(moments) * scale.batch).astype(scale.dtype)


def second_moment_in_place(self, scale, moments):
    found = second_of(moments) / (scale.batch * scale.factor**2)
    moments.centered[...] = found
    return found.astype(scale.dtype)


def in_float64(self, scale, moments):
    return second_of(moments) / (scale.batch * scale.factor**2)


def without_r(sound):
    def start(self, output, target):
        plan = self.plan
        self.plan = replace(plan, scale=replace(plan.scale, factor=1.0))
        arriving = sound(self, output, target)
        self.plan = plan
        return arriving

    return start


def average_times_n(arriving):
    return arriving if arriving.average is None else replace(arriving, average=5 * arriving.average)


def without_share(self, signal, output, target):
    some = self.take(spans.loss_column_count(self.plan, signal))
    if some.start == some.stop:
        return None
    if signal == EXACT:
        return self.plan.loss.hessian_sqrt(output, target, some)
    return self.plan.loss.hessian_sqrt_mc(output, self.plan.targets_of(signal, output, self.rows)[some], target)


def unsigned(self, jacobian, reduction, *arriving):
    return self, jacobian, reduction, *((*arriving[:1], None) if len(arriving) == 2 else arriving)


def without_any_signs(self, leaf, saved, signals):
    spans = tuple((signal, width, None, origins) for signal, width, _, origins in signals.stack.spans)
    return self, leaf, saved, replace(signals, stack=replace(signals.stack, spans=spans))


def gradient_times_n(result):
    return replace(result, gradient={name: 5 * value for name, value in result.gradient.items()})


def without_signs(columns):
    return Columns(columns.values)


def from_another_column(self, leaf, saved, signals, below):
    stack = signals.stack.with_values(signals.stack.values[::-1])
    return self, leaf, saved, replace(signals, stack=stack), below


def doubled(signals):
    return replace(signals, stack=signals.stack.with_values(2 * signals.stack.values))


def added_apart(self, other):
    return Moments(self.count + other.count, (self.mean + other.mean) / 2, self.centered + other.centered)


def latest_alone(self, statistic, name, value):
    self.found.pop((statistic, name), None)
    return self, statistic, name, value


def first_rows(plan, signal, output, rows):
    return plan, signal, output, slice(0, len(output))


def not_from_the_mean(self, scale, moments):
    return (second_of(moments) / scale.batch / scale.factor**2).astype(scale.dtype)


def divided_by_n_minus_one(sound):
    return lambda self, scale, moments: sound(self, scale, moments) * scale.batch / (scale.batch - 1)


def kronecker_in_exact(self):
    return kronecker.INPUT_SQUARE, q.Statistic("kronecker", EXACT)


def swapped(result):
    return result if result.A is None else q.Kronecker(result.A.T + np.eye(len(result.A)), result.B)


# --------------------------------------------------------------------------------------------------------------- faults

FAULTS = [
    # losses
    Fault(losses.CrossEntropyLoss, "gradients", "wrong sign", times(-1), cross, "gradients"),
    Fault(losses.CrossEntropyLoss, "gradients", "next class",
          before(lambda s, o, y: (s, o, (y + 1) % 4)), cross, "gradients"),
    Fault(losses.MSELoss, "gradients", "no factor 2", times(0.5), squared, "gradients"),
    Fault(losses.BCEWithLogitsLoss, "second", "σ alone", instead(lambda self, o, y: sigmoid(o)), bits, "hessian_sqrt"),
    Fault(losses.CrossEntropyLoss, "hessian_sqrt", "no rank-one part",
          instead(without_rank_one), cross, "hessian_sqrt"),
    Fault(losses.CrossEntropyLoss, "hessian_sqrt", "window ignored",
          before(lambda self, output, target, columns=slice(None): (self, output, target)), cross, "hessian_sqrt"),
    Fault(ElementwiseLoss, "hessian_sqrt", "c instead of √c", times(3**-0.5), squared, "hessian_sqrt"),
    Fault(Loss, "columns", "one too many", after(lambda n: n + 1), squared, "columns"),
    Fault(Loss, "hessian_sum", "mean instead of sum", times(1 / 3), cross, "hessian_sum"),
    Fault(Loss, "hessian_sqrt_mc", "missing 1/√M", divided_by_all_targets, cross, "hessian_sqrt_mc"),
    Fault(Loss, "hessian_sqrt_mc", "c instead of √c", times(3**-0.5), bits, "hessian_sqrt_mc"),
    Fault(Loss, "factor", "missing 1/N", instead(lambda self, n, y: 1.0), squared, "factor"),
    Fault(Loss, "value", "sum of squares", after(lambda value: value**2), cross, "value"),
    Fault(cross_entropy, "exponentials", "not shifted",
          instead(lambda f: (f, e := np.exp(f), e.sum(1, keepdims=True) - 1)), cross, "values"),
    Fault(losses.CrossEntropyLoss, "noise", "one for all samples",
          after(lambda noise: np.broadcast_to(noise[:, :1], noise.shape)), cross, "draw"),
    Fault(losses.CrossEntropyLoss, "pseudo_targets", "next class", after(lambda y: (y + 1) % 4), cross, "draw"),
    Fault(losses.MSELoss, "pseudo_targets", "variance 1, not ½",
          instead(lambda self, output, noise: output + noise.astype(output.dtype)), squared, "draw"),
    Fault(losses.BCEWithLogitsLoss, "pseudo_targets", "the other bit",
          instead(lambda self, output, noise: (noise >= sigmoid(output)).astype(output.dtype)), bits, "draw"),
    Fault(ElementwiseLoss, "summed_weight", "missing 1/C", instead(lambda self, shape: 1.0), bits, "values"),
    Fault(losses.MSELoss, "values", "float64 for float32", after(lambda v: v.astype(np.float64)), squared, "values"),
    Fault(losses.MSELoss, "values", "in place", instead(in_place), squared, "values"),
    Fault(Loss, "hessian_sqrt_mc", "one part in five", times(1.2), squared, "hessian_sqrt_mc"),
    Fault(losses.CrossEntropyLoss, "values", "less the mean", after(lambda v: v - v.mean()), cross, "values"),
    Fault(losses.CrossEntropyLoss, "values", "log of zero", instead(of_bare_probabilities), cross, "values"),
    Fault(losses.CrossEntropyLoss, "target_shape", "one axis too many",
          after(lambda n: (*n, 1)), cross, "target_shape"),
    Fault(losses.CrossEntropyLoss, "summed_weight", "2 for 1", times(2), cross, "summed_weight"),
    # weights, positions, and further losses
    Fault(losses.CrossEntropyLoss, "factor", "1/N²", instead(lambda self, n, y: 1 / n**2), classes, "factor"),
    Fault(losses.CrossEntropyLoss, "shares", "no class weights", before(without_class_weights), classes, "values"),
    Fault(losses.CrossEntropyLoss, "shares", "twice the smoothing",
          after(lambda a: a * 0.8 + 0.05), smoothed, "values"),
    Fault(losses.CrossEntropyLoss, "summed_weight", "1, not 1/T", instead(lambda self, shape: 1.0), classes, "values"),
    Fault(losses.CrossEntropyLoss, "gradients", "position shifted", after(next_position), classes, "gradients"),
    Fault(losses.CrossEntropyLoss, "hessian_sqrt", "position shifted", after(next_position), classes, "hessian_sqrt"),
    Fault(losses.CrossEntropyLoss, "unweighted", "twice the loss",
          instead(with_twice_the_weights), smoothed, "summed_weight"),
    Fault(Loss, "hessian_sqrt_mc", "w[ŷ] for w[y]", instead(with_weights_of_the_drawn), classes, "hessian_sqrt_mc"),
    Fault(Loss, "hessian_sqrt_mc", "w for √w", root_times_weights, classes, "hessian_sqrt_mc"),
    Fault(losses.BCEWithLogitsLoss, "shares", "no weights",
          instead(lambda self, o, y: (y, 1 - y)), weighted_bits, "values"),
    Fault(Loss, "hessian_sqrt_mc", "w for √w, bits", root_times_weights, weighted_bits, "hessian_sqrt_mc"),
    Fault(huber, "clipped", "not cut off", instead(lambda d, delta: d), edged, "gradients"),
    Fault(huber, "within", "1 everywhere", instead(lambda d, delta: np.ones_like(d)), edged, "hessian_sqrt"),
    Fault(huber, "huber", "δ for ½ δ", after(lambda h: h + (h > 0.5) * 0.5), edged, "values"),
    Fault(losses.SmoothL1Loss, "second", "not over β", times(2.5), smooth, "hessian_sqrt"),
    Fault(losses.SmoothL1Loss, "gradients", "β twice", times(1 / 2.5), smooth, "gradients"),
    Fault(losses.PoissonNLLLoss, "second", "1/λ", after(lambda value: 1 / value), counted, "hessian_sqrt"),
    Fault(losses.PoissonNLLLoss, "pseudo_targets", "uniform", instead(with_normal_counts), counted, "draw"),
    Fault(losses.PoissonNLLLoss, "gradients", "wrong sign", times(-1), rated, "gradients"),
    Fault(losses.BCELoss, "gradients", "the logits'", instead(of_logits), likely, "gradients"),
    Fault(losses.BCELoss, "second", "no weights",
          instead(lambda self, p, y: y / p**2 + (1 - y) / (1 - p) ** 2), likely, "hessian_sqrt"),
    Fault(losses.NLLLoss, "gradients", "wrong sign", times(-1), chosen, "gradients"),
    Fault(losses.L1Loss, "gradients", "half", times(0.5), absolute, "gradients"),
    Fault(FlatLoss, "hessian_sqrt", "ones", after(lambda s: s + 1), absolute, "hessian_sqrt"),
    Fault(losses.GaussianNLLLoss, "second", "1/√v", after(lambda h: h**0.5), normal, "hessian_sqrt"),
    Fault(losses.GaussianNLLLoss, "variance", "for a deviation", after(lambda v: v**2), normal, "values"),
    Fault(Loss, "check_target", "checks nothing", instead(lambda self, *given: None), squared, "check_target"),
    # the plain sweep
    Fault(Plan, "draw", "no noise", after(without_noise), network, "DiagGGNMC"),
    Fault(AtLoss, "start", "missing R", without_r, network, "sweep"),
    Fault(AtLoss, "start", "average without R", after(average_times_n), network, "sweep"),
    Fault(AtLoss, "loss_columns", "R instead of √R",
          after(lambda columns: None if columns is None else columns * 5**-0.5), network, "sweep"),
    Fault(plain, "residual_columns", "signs lost", after(without_signs), network, "sweep"),
    Fault(plain, "residual_columns", "no root", after(lambda c: Columns(c.values**2, c.sign)), network, "sweep"),
    Fault(Sweep, "append", "wrong gradient", before(from_another_column), network, "sweep"),
    Fault(Sweep, "append", "left out", instead(lambda s, leaf, saved, signals, below: below), network, "sweep"),
    Fault(Sweep, "carry", "columns times 2", after(doubled), network, "sweep"),
    Fault(Sweep, "extract", "signs lost", before(without_any_signs), network, "BatchDiagHessian"),
    Fault(plain, "finish", "loss without R", after(lambda r: replace(r, loss=r.loss * 5)), network, "reference"),
    Fault(plain, "finish", "gradient times N", after(gradient_times_n), network, "reference"),
    # the fast sweep
    Fault(driver, "_parts", "writes to x", before(with_x_in_place), network, "backward"),
    Fault(SpanSweep, "arriving", "gradient in every pass", in_every_pass, network, "backward"),
    Fault(SpanSweep, "loss_columns", "M of the block", instead(without_share), network, "DiagGGNMC"),
    Fault(SpanSweep, "start", "average without R", after(average_times_n), network, "KFRA"),
    Fault(SpanSweep, "append", "wrong gradient", before(from_another_column), network, "BatchDiagHessian"),
    Fault(branching, "residual_columns", "signs lost", after(without_signs), network, "BatchDiagHessian"),
    Fault(Context, "reduce", "signs lost", before(unsigned), network, "0.weight.batch"),
    Fault(Moments, "merge", "means not merged", instead(added_apart), network, "SecondMoment"),
    Fault(q.Statistic, "merge", "first block alone", instead(lambda self, parts: parts[0]), network, "backward"),
    Fault(SampleRows, "put", "always the first rows",
          before(lambda self, key, rows, value: (self, key, slice(0, len(value)), value)), network, "backward"),
    Fault(FastSweep, "add", "latest columns alone", before(latest_alone), network, "BatchDiagGGN"),
    Fault(Plan, "targets_of", "first rows for all blocks", before(first_rows), network, "DiagGGNMC"),
    Fault(blocks, "spans", "overlap by a column",
          after(lambda windows: [slice(max(w.start - 1, 0), w.stop) for w in windows]), network, "backward"),
    Fault(driver, "finish", "loss without R", after(lambda r: replace(r, loss=r.loss * 5)), network, "backward"),
    Fault(driver, "finish", "gradient times N", after(gradient_times_n), network, "backward"),
    # quantities
    Fault(q.BatchGrad, "finish", "divided by R", instead(lambda self, s, b: b / s.factor), network, "BatchGrad"),
    Fault(q.BatchGrad, "statistics", "sum over samples",
          instead(lambda self: (q.Statistic("sum", GRADIENT),)), network, "BatchGrad"),
    Fault(q.BatchL2Grad, "finish", "norm, not its square", after(np.sqrt), network, "BatchL2Grad"),
    Fault(q.SecondMoment, "finish", "R left in",
          instead(lambda self, scale, moments: second_of(moments) / scale.batch), network, "SecondMoment"),
    Fault(q.SecondMoment, "finish", "missing 1/N", times(5), network, "SecondMoment"),
    Fault(q.SecondMoment, "finish", "right for a mean", instead(right_for_a_mean), network, "SecondMoment"),
    Fault(q.SecondMoment, "finish", "in place", instead(second_moment_in_place), network, "Variance"),
    Fault(q.SecondMoment, "finish", "float64", instead(in_float64), network, "SecondMoment"),
    Fault(q.Variance, "finish", "second moment", instead(not_from_the_mean), network, "Variance"),
    Fault(q.Variance, "finish", "1/(N − 1)", divided_by_n_minus_one, network, "Variance"),
    Fault(q.DiagGGN, "finish", "divided by N", instead(lambda self, s, square: square / s.batch), network, "DiagGGN"),
    Fault(q.BatchDiagGGN, "finish", "times N", instead(lambda self, s, b: b * s.batch), network, "BatchDiagGGN"),
    Fault(q.DiagGGNMC, "statistics", "exact columns",
          instead(lambda self: (q.Statistic("square", EXACT),)), network, "DiagGGNMC"),
    Fault(q.DiagHessian, "finish", "residual subtracted",
          instead(lambda self, scale, ggn, residual: ggn - residual), network, "DiagHessian"),
    Fault(q.BatchDiagHessian, "finish", "no residual", instead(lambda self, s, g, r: g), network, "BatchDiagHessian"),
    Fault(plain, "with_rows", "A without 1/N", instead(lambda found, statistics, scale: found), network, "KFAC"),
    Fault(q.KFLR, "finish", "A not A", after(swapped), network, "KFLR"),
    Fault(q.KFAC, "statistics", "exact columns", instead(kronecker_in_exact), network, "KFAC"),
    Fault(q.KFRA, "statistics", "exact columns", instead(kronecker_in_exact), network, "KFRA"),
]  # fmt: skip

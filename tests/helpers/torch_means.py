"""What torch divides by where it takes a mean over labels or numbers."""

from gbackprop import losses


def divisor(loss, target):
    """Return what torch's "mean" divides the sum over positions by: of labels, the sum of the weights that count."""
    if target.dtype.kind == "f":
        classes = target.shape[1] if isinstance(loss, losses.CrossEntropyLoss | losses.GaussianNLLLoss) else 1
        return target.size / classes
    weight = 1 if loss.weight is None else loss.weight[target]
    return float((weight * (target != loss.ignore_index)).sum())

"""Published figures of the paper's experiments, to hold our own against.

Source: the runs published with Dangel, Kunstner, Hennig, "BackPACK: Packing more into Backprop", ICLR 2020; medians
over the seeds.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A published median."""

    problem: str
    optimizer: str
    epoch: int  # after which
    metric: str  # "test_accuracy" or "test_loss"
    value: float


# Test accuracy and test loss after the last epoch, by the published hyperparameters.
_LOGREG = {
    "DiagGGN": (0.9268, 0.2673), "DiagGGN-MC": (0.9270, 0.2682),
    "KFAC": (0.9245, 0.2722), "KFLR": (0.9246, 0.2719), "KFRA": (0.9246, 0.2720),
    "Adam": (0.9265, 0.2644), "Momentum": (0.9247, 0.2692),
}  # fmt: skip

# Test accuracy after 10 epochs, with all training images.
_3C3D = {"DiagGGN": 0.7197, "KFAC": 0.7794, "KFLR": 0.7816, "Adam": 0.7330, "Momentum": 0.7224}

FIGURES = (
    *(Figure("mnist_logreg", name, 50, "test_accuracy", accuracy) for name, (accuracy, _) in _LOGREG.items()),
    *(Figure("mnist_logreg", name, 50, "test_loss", loss) for name, (_, loss) in _LOGREG.items()),
    *(Figure("cifar10_3c3d", name, 10, "test_accuracy", accuracy) for name, accuracy in _3C3D.items()),
)


def published(problem: str, optimizer: str, metric: str) -> list[Figure]:
    """Return the published figures of an optimizer on a problem."""
    return [f for f in FIGURES if (f.problem, f.optimizer, f.metric) == (problem, optimizer, metric)]

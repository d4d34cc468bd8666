"""Observers of a sweep: progress, explanation and checks see the signals at the loss and at each layer."""

from __future__ import annotations

from typing import Any
from weakref import ref

from gbackprop.array import Array
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.signals import Signals


class Observer:
    """Base class of observers, which do nothing; a subclass overrides the methods that it needs."""

    def at_loss(self, signals: Signals) -> None:
        """See the signals that start at the loss."""

    def at_layer(self, leaf: Leaf, arriving: Signals, leaving: Any) -> None:
        """See the signals at a layer's output, and what the sweep's `visit` returned for its inputs."""


def observed(sweep: Any, observer: Observer) -> Any:
    """Make a sweep call an observer; return the sweep."""
    kind, itself = type(sweep), ref(sweep)  # no circle of references, in which columns would outlive the sweep

    def observed_start(output: Array, target: Array) -> Signals:
        signals = kind.start(itself(), output, target)
        observer.at_loss(signals)
        return signals

    def observed_visit(leaf: Leaf, saved: Any, arriving: Signals) -> Any:
        leaving = kind.visit(itself(), leaf, saved, arriving)
        observer.at_layer(leaf, arriving, leaving)
        return leaving

    sweep.start, sweep.visit = observed_start, observed_visit
    return sweep

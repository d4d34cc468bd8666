"""Calls that a type checker must refuse; nothing runs this file, `make lint` checks it.

mypy reports an "ignore" that it does not need: so each line below is an error that mypy finds.
"""

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

net = gb.Sequential(layers.Linear(2, 2), rng=0)
loss = losses.CrossEntropyLoss("sum")
x, y = np.ones((3, 2), np.float32), np.zeros(3, int)

losses.CrossEntropyLoss("men")  # type: ignore[arg-type]
losses.MSELoss(reduction="none")  # type: ignore[arg-type]
gb.backward(net, loss, [[1.0, 2.0]], y)  # type: ignore[arg-type]
gb.backward(net, loss, x, 3, q.Variance())  # type: ignore[arg-type]
loss.value("output", y)  # type: ignore[arg-type]
q.KFAC(targets=[[1, 0, 1]])  # type: ignore[arg-type]
gb.backward(net, loss, x, y).gradient["0.weight"].no_such_method()  # type: ignore[attr-defined]

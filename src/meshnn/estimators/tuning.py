"""Fine-tuning with quantisation in the loop: the weights learn to reproduce the float network's outputs.

The gradient is computed at the rounded weights and applied to float copies of them (a straight-through estimator). The
targets are the outputs of the float net instead of labels, because the penalties of its training are not known here.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.codes import StepRule
from meshnn.engine import Optimizer
from meshnn.export.c.nets import IntegerNet
from meshnn.export.c.quantise import Quantiser
from meshnn.mesh import Mesh


def tuned(mesh: Mesh, quantiser: Quantiser, net: IntegerNet, X: Array, inputs: Array) -> IntegerNet:
    """Return the net or a tuned one, whichever reproduces the outputs of the mesh on X (scaled: `inputs`) best."""
    if not mesh.ties.plain or not len(X) or quantiser.blueprint.timing is not None:
        return net  # not supported: a weight that several edges share has several scales
    targets = mesh.forward(inputs).astype(np.float64)
    if not np.isfinite(targets).all():
        return net
    coded = quantiser.coding(X)
    nets = [net, *(quantiser(weights) for weights in _descent(deepcopy(mesh), net, inputs, targets))]
    return min(nets, key=lambda each: float(np.square(each.outputs(coded) * each.out_scale - targets).mean()))


def _descent(
    mesh: Mesh, net: IntegerNet, inputs: Array, targets: FloatArray, steps: int = 300, batch: int = 256
) -> list[FloatArray]:
    """Return the weights after two thirds of the Adam steps and after all."""
    rng, high, step, found = np.random.default_rng(0), net.most, net.step, list[FloatArray]()
    weights = mesh.weights.astype(np.float64)
    rate = 0.01 * float(np.sqrt(np.mean(np.square(weights))))
    adam = Optimizer(StepRule.ADAM, (0.9, 0.99), 1e-12, 0.0, 0.0, *np.zeros((3, len(weights))))
    coded = step > 0
    safe = np.where(coded, step, 1.0)
    for k in range(1, steps + 1):
        mesh.weights = np.where(coded, np.clip(np.rint(weights / safe), -high, high) * safe, weights)
        part = rng.choice(len(inputs), min(batch, len(inputs)), replace=False)
        _, gradient = mesh.gradient(inputs[part], targets[part], loss="squared_error")
        adam.step(weights, gradient.astype(np.float64), rate * (1 - k / steps))
        if k in (2 * steps // 3, steps):
            found.append(weights.copy())
    return found

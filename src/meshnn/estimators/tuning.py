"""Training through the rounding of weights: last steps in which the net is run with what whole numbers leave of them.

The gradient is exact at the rounded weights and moves the ones behind them, so that a weight crosses to the next number
when many samples ask for it. What is learned is to say what the net in floats says: the samples were learned before,
with penalties that are not known here, and to learn them once more without would be to learn their noise.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.export.c.integer import IntegerNet
from meshnn.export.c.quantise import Quantiser
from meshnn.mesh import Mesh

__all__ = ["tuned"]

#: Steps, samples in each, and how far a weight may go in one, as a share of the root of the mean square of all.
STEPS, BATCH, RATE = 300, 256, 0.01
#: Adam's.
BETA1, BETA2, TINY = 0.9, 0.99, 1e-12


def tuned(mesh: Mesh, quantiser: Quantiser, net: IntegerNet, X: Array, inputs: Array) -> IntegerNet:
    """The net, or a better one, whose outputs are nearer to those of the mesh on the samples.

    `inputs` are the features X as the mesh sees them.
    """
    if not mesh.ties.plain or not len(X):
        return net  # a weight that several edges share has several scales
    wanted = mesh.forward(inputs).astype(np.float64)
    if not np.isfinite(wanted).all():
        return net
    coded = quantiser.coding(X)
    best, least = net, _apart(net, coded, wanted)
    for weights in _descent(deepcopy(mesh), net, inputs, wanted):
        other = quantiser(weights)
        found = _apart(other, coded, wanted)
        if found < least:
            best, least = other, found
    return best


def _apart(net: IntegerNet, coded: Array, wanted: FloatArray) -> float:
    return float(np.square(net.outputs(coded) * net.out_scale - wanted).mean())


def _descent(mesh: Mesh, net: IntegerNet, inputs: Array, wanted: FloatArray) -> list[FloatArray]:
    """Weights at two thirds of the way and at its end."""
    rng, high, step = np.random.default_rng(0), net.most, net.step
    weights = mesh.weights.astype(np.float64)
    rate = RATE * float(np.sqrt(np.mean(np.square(weights))))
    first, second, found = np.zeros_like(weights), np.zeros_like(weights), []
    coded = step > 0
    safe = np.where(coded, step, 1.0)
    for k in range(1, STEPS + 1):
        mesh.weights = np.where(coded, np.clip(np.rint(weights / safe), -high, high) * safe, weights)
        part = rng.choice(len(inputs), min(BATCH, len(inputs)), replace=False)
        _, gradient = mesh.gradient(inputs[part], wanted[part], loss="squared_error")
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * np.square(gradient)
        size = np.sqrt(second / (1 - BETA2**k)) + TINY
        weights = weights - rate * (1 - k / STEPS) * first / (1 - BETA1**k) / size
        if k in (2 * STEPS // 3, STEPS):
            found.append(weights.copy())
    return found

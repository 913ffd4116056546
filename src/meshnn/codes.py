"""The integers that stand for activations, losses and optimisers inside kernels. Imports nothing."""

from __future__ import annotations

__all__ = ["ACTIVATIONS", "HUBER_WIDTH", "NONZERO_AT_ZERO", "RANGES"]

IDENTITY, RELU, LEAKY_RELU, ELU, SOFTPLUS, SIGMOID, TANH, SIN, GAUSS = range(9)

ACTIVATIONS: dict[str, int] = {
    "identity": IDENTITY,
    "relu": RELU,
    "leaky_relu": LEAKY_RELU,  # slope 0.01 below zero
    "elu": ELU,
    "softplus": SOFTPLUS,
    "sigmoid": SIGMOID,
    "tanh": TANH,
    "sin": SIN,
    "gauss": GAUSS,  # exp(-t * t)
}

#: Between which numbers the values of an activation lie, if not between all.
RANGES: dict[str, tuple[float, float]] = {
    "relu": (0.0, float("inf")),
    "elu": (-1.0, float("inf")),
    "softplus": (0.0, float("inf")),
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "gauss": (0.0, 1.0),
}

#: Activations with phi(0) != 0: their neurons are awake from the first tick on.
NONZERO_AT_ZERO = frozenset({SOFTPLUS, SIGMOID, GAUSS})

CROSS_ENTROPY, SQUARED_ERROR, HUBER, POISSON, BINARY_CROSS_ENTROPY = range(5)

#: Largest error that `huber` squares; beyond it the error counts by its size.
HUBER_WIDTH = 1.0

ADAM, MOMENTUM, NESTEROV = range(3)

#: Places in the clock of a stream: samples seen, updates made, updates left out because they were not finite, states
#: set to 0, samples stored to be learned from again, the state of the generator that picks one.
SEEN, LEARNED, LEFT_OUT, RESETS, STORED, RANDOM = range(6)

"""Numbers that Python shares with the C++ core and the portable learner. Imports nothing."""

from __future__ import annotations

__all__ = ["ACTIVATIONS", "HUBER_WIDTH", "NONZERO_AT_ZERO", "QUANTILE_WIDTH", "RANGES"]

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

#: The code of a quantile is this plus its level in thousandths; up to this error its loss is a parabola.
QUANTILE, QUANTILE_WIDTH = 1000, 0.05

ADAM, MOMENTUM, NESTEROV = range(3)

#: Places in the clock of a stream: samples seen, updates made, updates skipped because they were not finite, states
#: reset to 0, samples stored for replay, state of the random generator that picks one.
SEEN, LEARNED, LEFT_OUT, RESETS, STORED, RANDOM = range(6)

#: What a stream does with a sample: run it, run it without remembering it, learn its target, compute the gradient only.
ADVANCE, PEEK, LEARN, DERIVE = 1, 2, 4, 8

#: Standard deviations that inputs and targets of a stream are cut to.
INPUT_CUT, TARGET_CUT = 4.0, 100.0

#: Rows of the moments of a stream, see `_core/standardise.hpp`: of all samples, and of the current block.
MOMENT_COUNT, MEAN, VARIANCE, BLOCK_COUNT, BLOCK_MEAN, BLOCK_SQUARES, BLOCK_OUTLIERS = range(7)
MOMENT_ROWS = 7

#: Deviation, as a share of the mean, that is rounding: such a number counts as constant.
ROUNDING_SHARE = 1e-12

#: Rows of a strip of a covariance, see `_core/covariance.hpp`; blocks of parameters are padded to a multiple of it.
STRIP = 8

#: Places in the memo of a Kalman filter: samples, log q, mean square of the agreement of steps; then the noise of every
#: output and the last change of every parameter.
SAMPLES, LOG_Q, MEAN_SQUARE, NOISE = range(4)

#: Places in the memo of the filter of a portable stream: samples, q, mean square of the agreement of steps.
MEMO_SAMPLES, MEMO_Q, MEMO_SQUARE = range(3)

#: Maximum number of classes that a filter learns a sample with: its own and the most likely others.
AT_ONCE = 50

"""Activations, and the constants that Python shares with the C++ core and the portable learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["ACTIVATIONS", "FORMULAS", "NONZERO_AT_ZERO", "RANGES", "ClockPlace", "LossCode", "Memo", "Mode",
           "MomentRow", "PortableMemo", "StepRule", "StreamNumbers"]  # fmt: skip

#: phi(t) of every activation for `xp`, which is numpy or torch.
FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "identity": lambda xp, t: t,
    "relu": lambda xp, t: xp.clip(t, 0.0, None),
    "leaky_relu": lambda xp, t: xp.where(t < 0, 0.01 * t, t),
    "elu": lambda xp, t: xp.where(t < 0, xp.expm1(xp.clip(t, None, 0.0)), t),
    "softplus": lambda xp, t: xp.logaddexp(t, xp.zeros_like(t)),
    "sigmoid": lambda xp, t: 0.5 * (1.0 + xp.tanh(0.5 * t)),
    "tanh": lambda xp, t: xp.tanh(t),
    "sin": lambda xp, t: xp.sin(t),
    "gauss": lambda xp, t: xp.exp(-xp.clip(t * t, None, 700.0)),
    "hardtanh": lambda xp, t: xp.where(xp.abs(t) >= 1.0, xp.sign(t), t),
}

#: The code of every activation.
ACTIVATIONS: dict[str, int] = {name: code for code, name in enumerate(FORMULAS)}

#: The range of each activation that is bounded on at least one side.
RANGES: dict[str, tuple[float, float]] = {
    "relu": (0.0, float("inf")),
    "elu": (-1.0, float("inf")),
    "softplus": (0.0, float("inf")),
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "gauss": (0.0, 1.0),
    "hardtanh": (-1.0, 1.0),
}

#: Codes of the activations with phi(0) != 0: their neurons have non-zero states from the first tick on.
NONZERO_AT_ZERO = frozenset(ACTIVATIONS[name] for name in ("softplus", "sigmoid", "gauss"))


class LossCode:
    """Codes of losses; the code of a quantile loss is QUANTILE plus its level in thousandths."""

    CROSS_ENTROPY, SQUARED_ERROR, HUBER, POISSON, BINARY_CROSS_ENTROPY = range(5)
    QUANTILE = 1000
    HUBER_WIDTH = 1.0  # largest error in the quadratic part of the Huber loss
    QUANTILE_WIDTH = 0.05  # largest error in the quadratic part of the quantile loss


class StepRule:
    """Codes of first-order update rules."""

    ADAM, MOMENTUM, NESTEROV = range(3)


class ClockPlace:
    """Indices into the clock of a stream.

    The first five count samples, updates, skipped updates that were not finite, resets of the state and samples stored
    for replay. RANDOM is the state of the random generator that selects samples for replay.
    """

    SEEN, LEARNED, LEFT_OUT, RESETS, STORED, RANDOM = range(6)


class Mode:
    """Flags for a sample of a stream.

    ADVANCE runs the sample, PEEK runs it without keeping the state, LEARN updates the weights, and DERIVE computes the
    gradient without an update.
    """

    ADVANCE, PEEK, LEARN, DERIVE = 1, 2, 4, 8


class MomentRow:
    """Rows of the moments of a stream (all samples, then the current block), see `_core/standardise.hpp`."""

    COUNT, MEAN, VARIANCE, BLOCK_COUNT, BLOCK_MEAN, BLOCK_SQUARES, BLOCK_OUTLIERS = range(7)
    ALL = 7  # number of rows


class Memo:
    """Indices into the memo of a Kalman filter.

    From NOISE on it holds the noise variance of every output, followed by the last change of the parameters.
    """

    SAMPLES, LOG_Q, MEAN_SQUARE, NOISE = range(4)


class PortableMemo:
    """Indices into the memo of the filter of a portable stream."""

    SAMPLES, Q, SQUARE = range(3)


class StreamNumbers:
    """Other constants of streams."""

    INPUT_CUT, TARGET_CUT = 4.0, 100.0  # inputs and targets are clipped to this number of standard deviations
    ROUNDING_SHARE = 1e-12  # a feature whose deviation is a smaller share of its mean counts as constant
    STRIP = 8  # rows per strip of a covariance; blocks of parameters are padded to a multiple of it
    AT_ONCE = 50  # maximum number of classes that a filter updates per sample: the target and the most likely others

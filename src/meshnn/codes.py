"""Activations, and the numbers that Python shares with the C++ core and the portable learner."""

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
}

#: The code of every activation.
ACTIVATIONS: dict[str, int] = {name: code for code, name in enumerate(FORMULAS)}

#: The range of an activation, if it is not all numbers.
RANGES: dict[str, tuple[float, float]] = {
    "relu": (0.0, float("inf")),
    "elu": (-1.0, float("inf")),
    "softplus": (0.0, float("inf")),
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "gauss": (0.0, 1.0),
}

#: Codes of the activations with phi(0) != 0: the states of their neurons are not 0 from the first tick on.
NONZERO_AT_ZERO = frozenset(ACTIVATIONS[name] for name in ("softplus", "sigmoid", "gauss"))


class LossCode:
    """Codes of losses; that of a quantile is QUANTILE plus its level in thousandths."""

    CROSS_ENTROPY, SQUARED_ERROR, HUBER, POISSON, BINARY_CROSS_ENTROPY = range(5)
    QUANTILE = 1000
    HUBER_WIDTH = 1.0  # largest error that is squared; beyond it the error counts by its size
    QUANTILE_WIDTH = 0.05  # up to this error the loss of a quantile is a parabola


class StepRule:
    """Codes of first-order steps."""

    ADAM, MOMENTUM, NESTEROV = range(3)


class ClockPlace:
    """Places in the clock of a stream: counts of samples, updates, updates that were not finite, resets of the state
    and samples stored for replay, then the state of the random generator that picks one of them."""

    SEEN, LEARNED, LEFT_OUT, RESETS, STORED, RANDOM = range(6)


class Mode:
    """Flags for a sample of a stream: run it, run it without keeping the state, learn it, compute the gradient only."""

    ADVANCE, PEEK, LEARN, DERIVE = 1, 2, 4, 8


class MomentRow:
    """Rows of the moments of a stream, see `_core/standardise.hpp`: of all samples, and of the current block."""

    COUNT, MEAN, VARIANCE, BLOCK_COUNT, BLOCK_MEAN, BLOCK_SQUARES, BLOCK_OUTLIERS = range(7)
    ALL = 7  # number of rows


class Memo:
    """Places in the memo of a Kalman filter; from NOISE on the noise of every output, the last change of parameters."""

    SAMPLES, LOG_Q, MEAN_SQUARE, NOISE = range(4)


class PortableMemo:
    """Places in the memo of the filter of a portable stream."""

    SAMPLES, Q, SQUARE = range(3)


class StreamNumbers:
    """Other numbers of streams."""

    INPUT_CUT, TARGET_CUT = 4.0, 100.0  # standard deviations that inputs and targets are cut to
    ROUNDING_SHARE = 1e-12  # deviation, as a share of the mean, that is rounding: such a number counts as constant
    STRIP = 8  # rows of a strip of a covariance; blocks of parameters are padded to a multiple of it
    AT_ONCE = 50  # maximum number of classes that a filter learns a sample with: its own and the most likely others

"""Synthetic streams that require memory. Seeded; rows are in order of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import SHARE, as_generator, as_list, real_number, whole_number
from meshnn.errors import MeshError

__all__ = ["delayed_xor", "narma", "trace_patterning"]

Seed = int | np.random.Generator | None
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
#: Values of `narma` above this diverge; it rarely exceeds 1.
RUNS_AWAY = 1.5


def delayed_xor(n_samples: int = 10_000, delays: Sequence[int] = (2, 5), random_state: Seed = None) -> tuple[F64, I64]:
    """Return random bits x_t with the target x_{t-a} xor x_{t-b} for two delays a and b.

    The bits are independent, so without memory, or with a linear readout of past bits, accuracy is at chance level.

    Parameters
    ----------
    n_samples : int
    delays : (int, int)
        Two different integers >= 0. Bits before the first are 0.
    random_state : int, Generator or None

    Returns
    -------
    X : array (n_samples, 1) of 0 and 1
    y : array (n_samples,) of 0 and 1

    Examples
    --------
    >>> from temporal_streams import delayed_xor
    >>> X, y = delayed_xor(1000, delays=(1, 3), random_state=0)
    >>> bool((y[3:] == (X[2:-1, 0] != X[:-3, 0])).all())
    True
    """
    n_samples, rng = whole_number("n_samples", n_samples), as_generator(random_state)
    given = [whole_number(f"delays[{k}]", delay, least=0) for k, delay in enumerate(as_list("delays", delays))]
    if len(given) != 2 or given[0] == given[1]:
        raise MeshError(f"delays must be two different integers >= 0, got {delays!r}")
    bits = rng.integers(0, 2, n_samples)
    y = np.zeros(n_samples, np.int64)
    for delay in given:
        y[delay:] ^= bits[: max(n_samples - delay, 0)]
    return bits[:, None].astype(np.float64), y


def trace_patterning(
    n_samples: int = 10_000,
    gap: int | tuple[int, int] = 8,
    n_cues: int = 6,
    n_distractors: int = 5,
    pause: tuple[int, int] = (10, 20),
    distraction: float = 0.2,
    random_state: Seed = None,
) -> tuple[F64, I64, NDArray[np.bool_]]:
    """Return patterns that last one step; some of them announce a signal, which follows after a gap.

    A pattern sets half of the cues to 1. A random half of all such patterns announces the signal, and both halves are
    equally frequent. Distractors are random and carry no information. The next pattern follows after a pause.

    Parameters
    ----------
    n_samples : int
    gap : int or (int, int)
        Steps from pattern to signal; of two numbers, one between them is drawn per pattern, both included.
    n_cues : int
        At least 2.
    n_distractors : int
    pause : (int, int)
        Minimum and maximum number of steps from a due signal to the next pattern.
    distraction : float
        Probability of a 1 per distractor and step.
    random_state : int, Generator or None
        Also selects the patterns that announce the signal.

    Returns
    -------
    X : array (n_samples, n_cues + n_distractors) of 0 and 1
    y : array (n_samples,)
        1 in steps with a signal, which X does not contain.
    due : array (n_samples,) of bool
        Steps in which a signal is possible; half of them have one. All other steps are predictable by counting.

    Examples
    --------
    >>> from temporal_streams import trace_patterning
    >>> X, y, due = trace_patterning(1000, gap=5, random_state=0)
    >>> X.shape, bool(due[y == 1].all())
    ((1000, 11), True)
    """
    n_samples, rng = whole_number("n_samples", n_samples), as_generator(random_state)
    n_cues = whole_number("n_cues", n_cues, least=2, most=20)
    n_distractors = whole_number("n_distractors", n_distractors, least=0)
    gaps, pauses = _range("gap", (gap, gap) if not isinstance(gap, (tuple, list)) else gap), _range("pause", pause)
    share = real_number("distraction", distraction, *SHARE)
    codes = np.array([code for code in range(2**n_cues) if code.bit_count() == n_cues // 2])
    codes = rng.permutation(codes)
    half = len(codes) // 2  # the first half announces a signal

    X = np.zeros((n_samples, n_cues + n_distractors))
    X[:, n_cues:] = rng.random((n_samples, n_distractors)) < share
    y, due = np.zeros(n_samples, np.int64), np.zeros(n_samples, np.bool_)
    start = int(rng.integers(*pauses, endpoint=True))
    while start < n_samples:
        announces = bool(rng.integers(2))
        code = codes[rng.integers(half) if announces else rng.integers(half, len(codes))]
        X[start, :n_cues] = code >> np.arange(n_cues) & 1
        end = start + int(rng.integers(*gaps, endpoint=True))
        if end < n_samples:
            due[end], y[end] = True, announces
        start = end + int(rng.integers(*pauses, endpoint=True))
    return X, y, due


def narma(n_samples: int = 6000, order: int = 10, random_state: Seed = None) -> tuple[F64, F64]:
    """Return NARMA, a non-linear moving average, to be predicted from its input u alone.

    The target of row t is y_t = 0.3 y_{t-1} + 0.05 y_{t-1} (y_{t-1} + ... + y_{t-order}) + 1.5 u_{t-order+1} u_t + 0.1,
    with u uniform in (0, 0.5) and 0 before the first row. (Atiya and Parlos, 2000, whose y has an index one higher.)
    About once in 200,000 rows y would diverge; the responsible inputs are then drawn again.

    Returns
    -------
    X : array (n_samples, 1)
        The input u.
    y : array (n_samples,)

    Examples
    --------
    >>> from temporal_streams import narma
    >>> X, y = narma(1000, random_state=0)
    >>> X.shape, y.shape, float(y[0])
    ((1000, 1), (1000,), 0.1)
    """
    n_samples, order = whole_number("n_samples", n_samples), whole_number("order", order, least=2, most=10)
    rng = as_generator(random_state)
    u, y = rng.uniform(0.0, 0.5, n_samples), np.zeros(n_samples)
    t = 0
    while t < n_samples:
        last = y[t - 1] if t else 0.0
        early = u[t - order + 1] if t >= order - 1 else 0.0
        y[t] = 0.3 * last + 0.05 * last * y[max(t - order, 0) : t].sum() + 1.5 * early * u[t] + 0.1
        if y[t] > RUNS_AWAY:
            t = max(t - 10 * order, 0)
            u[t:] = rng.uniform(0.0, 0.5, n_samples - t)
        else:
            t += 1
    return u[:, None], y


def _range(name: str, value: Sequence[int]) -> tuple[int, int]:
    given = as_list(name, value)
    if len(given) != 2:
        raise MeshError(f"{name} must be two integers (minimum, maximum), got {value!r}")
    low, high = (whole_number(name, steps) for steps in given)
    if low > high:
        raise MeshError(f"{name} must have the minimum first, got {value!r}")
    return low, high

"""The arrays of streams: stored state, buffers, and the checks of stored arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.codes import ClockPlace, MomentRow, StreamNumbers
from meshnn.errors import FileError
from meshnn.memory import check_fits
from meshnn.plan import ROW_BYTES
from meshnn.plan.influence import VECTOR

if TYPE_CHECKING:
    from meshnn.streaming.stream import Stream

__all__ = ["LIMITS", "Workspace", "aligned", "fill_arrays", "mean_and_scale", "new_state", "standardised"]

#: Arrays and numbers by field name of a struct of the core; `_core/stream_structs.hpp` describes those of streams.
Workspace = SimpleNamespace


@dataclass(frozen=True)
class StreamLimits:
    """The constants of streams."""

    #: Maximum of n_parameters**2 * n_outputs for a full covariance: 316 parameters with one output.
    full_covariance: int = 100_000
    #: Maximum of parameters and moments in a stored learner, in float64.
    stored: float = 1e50
    #: Initial variance of trained parameters relative to `p0`, if their posterior is unknown.
    trained: float = 0.01
    #: Number of samples that the scaling of a trained model counts as on a stream: the maximum effective number.
    trained_samples: float = 2000.0
    #: Number of samples that the noise of a trained model counts as.
    noise_samples: float = 100.0


LIMITS = StreamLimits()

#: Arrays that may be NaN, for missing inputs and forecasts, or may have overflowed (influences).
NOT_FINITE = ("J", "past_derivatives", "last_x", "replay_x", "replay_y", "pending")


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return zeros aligned to a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + VECTOR, np.uint8)
    start = -raw.ctypes.data % VECTOR
    return np.asarray(raw[start : start + size].view(dtype).reshape(shape))


def new_state(stream: Stream) -> Workspace:
    """Make the arrays of a new stream."""
    t, plan, B, dtype = stream.topology, stream.plan, stream.n_streams, stream.dtype
    n, C, N, L = t.n_neurons, t.n_outputs, stream.ties.n_parameters, ROW_BYTES // dtype.itemsize
    depth = stream.delay + 1 if stream.delay else 0
    needed = dtype.itemsize * (2.0 * B * plan.columns + (depth * B + 1.0) * C * N)
    check_fits(needed, f"the influences of {B} streams", 'use fewer streams, a smaller `delay` or method="snap-1"')
    packs = plan.course.most_packs
    m, d = stream.width, t.n_inputs
    replays = stream.learner.places if stream.memory == "none" and B == 1 else 0
    s = np.zeros((B, n), dtype)
    s[:, t.n_inputs : t.n_clamped] = 1  # the bias
    return Workspace(
        s=s,
        J=aligned((B, 2, plan.columns + VECTOR // dtype.itemsize), dtype),
        side=np.zeros(B, np.int64),
        peek_states=np.zeros(n, dtype),
        sums=aligned((packs, L), dtype),
        slopes=aligned((packs, L), dtype),
        panel=aligned((plan.course.most_sources, L), dtype),
        weights=stream.values[plan.course.weight_index],
        Y=aligned((C, L), dtype),
        y=aligned((m, L), dtype),
        share=aligned((L,), dtype),
        G=aligned((C, L), dtype),
        grad=np.zeros(len(stream.values), dtype),
        H=np.zeros((C, N), dtype),
        past_derivatives=np.zeros((depth, B, C, N), dtype),
        past_outputs=np.zeros((depth, B, C), dtype),
        target=np.zeros((B, m), dtype),
        last_x=np.zeros(d if replays else 0, dtype),
        x_moments=np.zeros((MomentRow.ALL, d if stream.scale else 0)),
        y_moments=np.zeros((MomentRow.ALL, 0 if stream.loss.likelihood or not stream.scale else m)),
        replay_x=np.zeros((replays, d), dtype),
        replay_y=np.zeros((replays, m), dtype),
        clock=np.zeros(8, np.int64),
    )


def mean_and_scale(moments: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and scale as in the core. A constant number has an infinite scale, so that it becomes 0."""
    mean, deviation = moments[MomentRow.MEAN].copy(), np.sqrt(moments[MomentRow.VARIANCE])
    return mean, np.where(deviation > StreamNumbers.ROUNDING_SHARE * np.abs(mean), deviation, np.inf)


def standardised(values: Array, mean: FloatArray, scale: FloatArray, cut: float) -> Array:
    """Return rows of numbers in the units of the net; a missing value becomes the mean."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.clip((values - mean) / scale, -cut, cut)
    return np.where(np.isfinite(found), found, 0.0)


def fill_arrays(
    into: Mapping[str, Array], stored: Any, limits: Mapping[str, tuple[Any, Any]] | None = None, gaps: bool = False
) -> None:
    """Copy stored arrays, possibly from an untrusted file, into the arrays of the same names: all of them or none.

    Names, shapes and dtypes must be the same. Numbers must be within the `limits` of their name, or finite, or NaN if
    the name is in `gaps`. Counters must not be negative.
    """
    if not isinstance(stored, dict) or set(stored) != set(into):
        found = sorted(stored) if isinstance(stored, dict) else type(stored).__name__
        raise FileError(f"the stored arrays must be {', '.join(sorted(into))}; got {found}")
    limits, most = limits or {}, np.finfo(np.float64).max
    for name, array in into.items():
        given = stored[name]
        if not isinstance(given, np.ndarray) or (given.shape, given.dtype) != (array.shape, array.dtype):
            found = f"{given.shape} {given.dtype}" if isinstance(given, np.ndarray) else type(given).__name__
            raise FileError(f"the stored {name} must be {array.shape} {array.dtype}, got {found}")
        if name in NOT_FINITE and name not in limits:
            continue
        low, high = limits.get(name, (-most, most) if array.dtype.kind == "f" else (0, 2.0**62))
        checked = (given[: ClockPlace.RANDOM] if name == "clock" else given).astype(np.float64)
        if not ((checked >= low) & (checked <= high) | (gaps & np.isnan(checked))).all():
            raise FileError(f"the stored {name} has numbers out of range; the file is damaged")
    for name, array in into.items():
        array[...] = stored[name]

"""The arrays of streams: those that are remembered, buffers to compute in, and how stored ones are checked."""

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

#: Arrays and numbers by name, as a struct of the core has them; `_core/stream_structs.hpp` describes those of streams.
Workspace = SimpleNamespace


@dataclass(frozen=True)
class StreamLimits:
    """The tunable numbers of streams."""

    #: Largest square of the number of parameters times outputs for a full covariance: 316 parameters with one output.
    full_covariance: int = 100_000
    #: Parameters and moments of a stored learner are not larger, in float64.
    stored: float = 1e50
    #: Share of the first variance that trained parameters have, if nothing else is known of them.
    trained: float = 0.01
    #: Samples that the scaling of a trained model counts as when it goes on with a stream: as many as in the long run.
    trained_samples: float = 2000.0
    #: Samples that the noise of a trained model counts as.
    noise_samples: float = 100.0


LIMITS = StreamLimits()

#: Arrays with inputs and forecasts that are missing, which are NaN, and influences, which may have overflowed.
NOT_FINITE = ("J", "past_derivatives", "last_x", "replay_x", "replay_y", "pending")


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return zeros that begin at a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + VECTOR, np.uint8)
    start = -raw.ctypes.data % VECTOR
    return np.asarray(raw[start : start + size].view(dtype).reshape(shape))


def new_state(stream: Stream) -> Workspace:
    """Make the arrays of a stream that has seen nothing."""
    t, plan, B, dtype = stream.topology, stream.plan, stream.n_streams, stream.dtype
    n, C, N, L = t.n_neurons, t.n_outputs, stream.ties.n_parameters, ROW_BYTES // dtype.itemsize
    depth = stream.delay + 1 if stream.delay else 0
    needed = dtype.itemsize * (2.0 * B * plan.columns + (depth * B + 1.0) * C * N)
    check_fits(needed, f"the influences of {B} streams", 'take fewer streams, a smaller `delay` or method="snap-1"')
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
    """Return what the core standardises by: a number that never varied has an infinite scale, so that it becomes 0."""
    mean, deviation = moments[MomentRow.MEAN].copy(), np.sqrt(moments[MomentRow.VARIANCE])
    return mean, np.where(deviation > StreamNumbers.ROUNDING_SHARE * np.abs(mean), deviation, np.inf)


def standardised(values: Array, mean: FloatArray, scale: FloatArray, cut: float) -> Array:
    """Return rows of numbers as the net sees them; a missing one counts as its mean."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.clip((values - mean) / scale, -cut, cut)
    return np.where(np.isfinite(found), found, 0.0)


def fill_arrays(
    into: Mapping[str, Array], stored: Any, limits: Mapping[str, tuple[Any, Any]] | None = None, gaps: bool = False
) -> None:
    """Copy stored arrays, which may come from a stranger's file, into the arrays of those names: all of them or none.

    Names, shapes and dtypes must be the same. Numbers lie within the `limits` of their name or are finite, or NaN where
    there are `gaps`; counters are not negative.
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
            raise FileError(f"the stored {name} has numbers that no stream holds")
    for name, array in into.items():
        array[...] = stored[name]

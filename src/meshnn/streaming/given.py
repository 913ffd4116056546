"""Samples and targets that are handed to a stream, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn import checks
from meshnn.arrays import Array
from meshnn.errors import DataError

if TYPE_CHECKING:
    from meshnn.streaming.portable import PortableStream
    from meshnn.streaming.stream import Stream

__all__ = ["as_inputs", "as_targets"]


def as_inputs(stream: Stream | PortableStream, found: Array, shape: tuple[int, ...]) -> Array:
    """Samples `(T, n_streams, n_inputs)`, which came in some shape, as kernels take them."""
    B, d = stream.n_streams, stream.topology.n_inputs
    if found.ndim != 3 or found.shape[1:] != (B, d):
        streams = f" of {B} streams" if B > 1 else ""
        raise DataError(f"samples{streams} have {d} inputs; got an array of shape {shape}")
    samples = np.require(found, stream.dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
    if not stream.scale and not np.isfinite(samples).all():
        t, b, i = np.argwhere(~np.isfinite(samples))[0].tolist()
        raise DataError(f"input {i} of sample {t} is {found[t, b, i]}; give 0 for what is missing, after scaling")
    return samples


def as_targets(stream: Stream | PortableStream, Y: Any, T: int) -> Array:
    """Targets of T samples, `(T, n_streams, width)`; NaN where missing."""
    B, m = stream.n_streams, stream.width
    found = checks.numbers("targets", Y)
    shapes: set[tuple[int, ...]] = {(T, B, m)}
    shapes |= ({(T, m)} if B == 1 else set()) | ({(T, B)} if m == 1 else set()) | ({(T,)} if B == m == 1 else set())
    if found.shape not in shapes:
        raise DataError(f"targets must have shape {' or '.join(map(str, sorted(shapes)))}, got {np.shape(Y)}")
    targets = np.array(found, stream.dtype).reshape(T, B, m)
    given = targets[~np.isnan(targets)]
    if np.isinf(given).any():
        raise DataError("targets must be finite, or NaN where they are missing")
    if stream.loss.logarithmic and (given < 0).any():
        raise DataError(f"targets of {stream.loss.name} are counts of at least 0; got {given[given < 0][0]:g}")
    most = (1 if stream.loss.several else stream.topology.n_outputs - 1) if stream.loss.classifies else np.inf
    wrong = given[(given < 0) | (given > most) | (given != np.trunc(given))] if stream.loss.classifies else given[:0]
    if wrong.size:
        raise DataError(f"labels are whole numbers from 0 to {most}, or NaN where missing; got {wrong[0]:g}")
    return targets

"""`Targets`: what the outputs of a batch are compared with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meshnn import checks
from meshnn.arrays import Array, BoolArray
from meshnn.errors import DataError
from meshnn.losses.losses import Loss

__all__ = ["Targets"]


class Targets(NamedTuple):
    """Targets of some samples, and how much each sample counts.

    Usually the outputs after the last tick are looked at. Of a run in time either `at` says how much each look counts,
    or `readout` how much each tick counts in the outputs that are read.
    """

    loss: Loss
    values: Array  # (batch, 1) labels as numbers, or (batch, n_outputs) values; one for every tick (ticks, batch, ...)
    share: Array  # (batch, 1) each sample's share of the mean
    even: bool = False  # known to be the same for all
    at: Array | None = None  # (ticks, batch, 1) the share of the mean that a look after each tick has
    readout: Array | None = (
        None  # (ticks, batch, 1) what is read is the sum of the outputs after all ticks, so weighted
    )

    @classmethod
    def make(
        cls, loss: Loss, y: Any, sample_weight: Any, size: int, n_outputs: int, dtype: np.dtype[Any], ticks: int = 1,
        loss_ticks: Any = "last", readout: Any = None, timed: bool = False,
    ) -> Targets:  # fmt: skip
        """Check what was passed for `size` samples; targets are `timed` on request even if only the last tick counts.

        `y` may be targets that were made before: they are taken as they are.
        """
        if isinstance(y, Targets):
            return y
        share = checks.shares(sample_weight, size, dtype)
        last = isinstance(loss_ticks, str) and loss_ticks == "last"
        if last and readout is None and not timed:
            return cls(loss, loss.targets(y, size, n_outputs, dtype), share, sample_weight is None)
        if readout is not None:
            if not last:
                raise DataError("pass loss_ticks or readout, not both: a readout has one loss per sample")
            weights = checks.as_readout(readout, ticks, size, dtype)
            return cls(loss, loss.targets(y, size, n_outputs, dtype), share, sample_weight is None, readout=weights)
        weights = checks.as_tick_weights(loss_ticks, ticks, size)
        looks = weights * share.astype(np.float64)[:, 0]
        if not looks.any():
            raise DataError("no sample that loss_ticks looks at has a sample_weight above 0; nothing would be learned")
        at = (looks / looks.sum()).astype(dtype)[:, :, None]
        found = _at_ticks(loss, y, weights != 0, n_outputs, dtype)
        return cls(loss, found, at.sum(axis=0, dtype=np.float64).astype(dtype), at=at)

    def of(self, rows: Any, scale: float = 1.0) -> Targets:
        """Return the targets of some samples, their shares multiplied by `scale`."""
        factor = self.share.dtype.type(scale)
        if not self.timed:
            return Targets(self.loss, self.values[rows], self.share[rows] * factor)
        values = self.values[:, rows] if self.values.ndim == 3 else self.values[rows]
        at = None if self.at is None else self.at[:, rows] * factor
        readout = None if self.readout is None else self.readout[:, rows]
        return Targets(self.loss, values, self.share[rows] * factor, at=at, readout=readout)

    @property
    def timed(self) -> bool:
        """Whether other ticks than the last are looked at."""
        return self.at is not None or self.readout is not None

    @property
    def looks(self) -> BoolArray:
        """Of targets in time, mask `(ticks, batch)` of the ticks that count."""
        weights = self.at if self.at is not None else self.readout
        assert weights is not None
        found: BoolArray = weights[:, :, 0] != 0
        return found

    @property
    def ticks(self) -> BoolArray:
        """Of targets in time, mask `(ticks,)` of those that count for some sample."""
        found: BoolArray = np.any(self.looks, axis=1)
        return found

    @property
    def stops(self) -> Array:
        """Of targets in time, the last tick that counts for each sample, from 1 on, `(batch, 1)`; 0 if none does."""
        looks = self.looks
        last = len(looks) - np.argmax(looks[::-1], axis=0)
        found: Array = np.where(looks.any(axis=0), last, 0).astype(self.share.dtype)[:, None]
        return found

    @property
    def counting(self) -> BoolArray | None:
        """Mask of the samples that count at all; None if all do.

        The others must not be looked at: one that overflows, times no share, would make every sum NaN.
        """
        if self.even:
            return None
        found: BoolArray = self.share[:, 0] != 0
        return None if found.all() else found


def _at_ticks(loss: Loss, y: Any, mask: BoolArray, n_outputs: int, dtype: np.dtype[Any]) -> Array:
    """Targets `(batch, m)` if they are the same after every tick, else `(ticks, batch, m)`; what is not looked at is 0.

    One is told from the other by its number of axes, and by its shape where outputs may be left out.
    """
    ticks, size = mask.shape
    given = checks.numbers("y", y)
    shapes = [(ticks, size)] if loss.by_label else [(ticks, size, n_outputs)] + [(ticks, size)] * (n_outputs == 1)
    if given.shape not in shapes:
        some: BoolArray = np.any(mask, axis=0)
        if given.shape in [shape[1:] for shape in shapes]:
            return _looked_at(loss, given, some, n_outputs, dtype)
        wanted = " or ".join(map(str, dict.fromkeys([*shapes, *(shape[1:] for shape in shapes)])))
        raise DataError(f"for {loss.name} at ticks y must have shape {wanted}, got {given.shape}")
    flat = given.reshape(ticks * size, *given.shape[2:])
    found = _looked_at(loss, flat, mask.ravel(), n_outputs, dtype)
    return found.reshape(ticks, size, found.shape[1])


def _looked_at(loss: Loss, y: Array, some: BoolArray, n_outputs: int, dtype: np.dtype[Any]) -> Array:
    """Targets of those that are looked at, checked; 0 for the others."""
    if some.all():
        return loss.targets(y, len(y), n_outputs, dtype)
    checked = loss.targets(y[some], int(some.sum()), n_outputs, dtype)
    found = np.zeros((len(y), checked.shape[1]), dtype)
    found[some] = checked
    return found

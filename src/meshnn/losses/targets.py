"""`Targets`: the targets of a batch and the weights of its samples and ticks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meshnn import checks
from meshnn.arrays import Array, BoolArray
from meshnn.errors import DataError
from meshnn.losses.losses import Loss

__all__ = ["Targets"]


class Targets(NamedTuple):
    """Targets of a batch, and the weight of each sample.

    By default the loss compares the outputs after the last tick. For sequences, either `at` has the weight of each tick
    in the loss, or `readout` has the weight of each tick in the output that is compared.
    """

    loss: Loss
    values: Array  # (batch, 1) labels as numbers, or (batch, n_outputs) values; (ticks, batch, ...) if they vary
    share: Array  # (batch, 1) each sample's share of the mean
    even: bool = False  # all shares are known to be equal
    at: Array | None = None  # (ticks, batch, 1) share of each tick and sample in the mean
    readout: Array | None = None  # (ticks, batch, 1) weights of the outputs after all ticks, whose sum is compared

    @classmethod
    def make(
        cls, loss: Loss, y: Any, sample_weight: Any, size: int, n_outputs: int, dtype: np.dtype[Any], ticks: int = 1,
        loss_ticks: Any = "last", readout: Any = None, timed: bool = False,
    ) -> Targets:  # fmt: skip
        """Return checked targets of `size` samples.

        With `timed` the result has weights per tick even if only the last tick counts. If `y` is a `Targets`, it is
        returned unchanged.
        """
        if isinstance(y, Targets):
            return y
        share = checks.shares(sample_weight, size, dtype)
        last = isinstance(loss_ticks, str) and loss_ticks == "last"
        if last and readout is None and not timed:
            return cls(loss, loss.targets(y, size, n_outputs, dtype), share, sample_weight is None)
        if readout is not None:
            if not last:
                raise DataError("pass loss_ticks or readout, not both")
            weights = checks.as_readout(readout, ticks, size, dtype)
            return cls(loss, loss.targets(y, size, n_outputs, dtype), share, sample_weight is None, readout=weights)
        weights = checks.as_tick_weights(loss_ticks, ticks, size)
        weighted = weights * share.astype(np.float64)[:, 0]
        if not weighted.any():
            raise DataError("no sample with a tick in loss_ticks has a sample_weight above 0; change one of the two")
        at = (weighted / weighted.sum()).astype(dtype)[:, :, None]
        found = _at_ticks(loss, y, weights != 0, n_outputs, dtype)
        return cls(loss, found, at.sum(axis=0, dtype=np.float64).astype(dtype), at=at)

    def of(self, rows: Any, scale: float = 1.0) -> Targets:
        """Return the targets of some samples, with shares multiplied by `scale`."""
        factor = self.share.dtype.type(scale)
        if not self.timed:
            return Targets(self.loss, self.values[rows], self.share[rows] * factor)
        values = self.values[:, rows] if self.values.ndim == 3 else self.values[rows]
        at = None if self.at is None else self.at[:, rows] * factor
        readout = None if self.readout is None else self.readout[:, rows]
        return Targets(self.loss, values, self.share[rows] * factor, at=at, readout=readout)

    @property
    def timed(self) -> bool:
        """Whether ticks other than the last have weights."""
        return self.at is not None or self.readout is not None

    @property
    def looks(self) -> BoolArray:
        """Mask `(ticks, batch)` of the ticks with a weight; only for `timed` targets."""
        weights = self.at if self.at is not None else self.readout
        assert weights is not None
        found: BoolArray = weights[:, :, 0] != 0
        return found

    @property
    def ticks(self) -> BoolArray:
        """Mask `(ticks,)` of the ticks with a weight for some sample; only for `timed` targets."""
        found: BoolArray = np.any(self.looks, axis=1)
        return found

    @property
    def stops(self) -> Array:
        """The last tick with a weight for each sample `(batch, 1)`, from 1, or 0 if none; only for `timed` targets."""
        looks = self.looks
        last = len(looks) - np.argmax(looks[::-1], axis=0)
        found: Array = np.where(looks.any(axis=0), last, 0).astype(self.share.dtype)[:, None]
        return found

    @property
    def counting(self) -> BoolArray | None:
        """Mask of the samples with a weight above 0; None if all have one.

        The other samples must be left out: one that overflows, multiplied by 0, would make every sum NaN.
        """
        if self.even:
            return None
        found: BoolArray = self.share[:, 0] != 0
        return None if found.all() else found


def _at_ticks(loss: Loss, y: Any, mask: BoolArray, n_outputs: int, dtype: np.dtype[Any]) -> Array:
    """Return targets `(batch, m)` if they are the same after every tick, else `(ticks, batch, m)`; 0 outside the mask.

    The number of axes distinguishes the two, and the shape where the axis of outputs may be omitted.
    """
    ticks, size = mask.shape
    given = checks.numbers("y", y)
    shapes = [(ticks, size)] if loss.by_label else [(ticks, size, n_outputs)] + [(ticks, size)] * (n_outputs == 1)
    if given.shape not in shapes:
        some: BoolArray = np.any(mask, axis=0)
        if given.shape in [shape[1:] for shape in shapes]:
            return _checked(loss, given, some, n_outputs, dtype)
        wanted = " or ".join(map(str, dict.fromkeys([*shapes, *(shape[1:] for shape in shapes)])))
        raise DataError(f"for {loss.name} at ticks y must have shape {wanted}, got {given.shape}")
    flat = given.reshape(ticks * size, *given.shape[2:])
    found = _checked(loss, flat, mask.ravel(), n_outputs, dtype)
    return found.reshape(ticks, size, found.shape[1])


def _checked(loss: Loss, y: Array, some: BoolArray, n_outputs: int, dtype: np.dtype[Any]) -> Array:
    """Return the checked targets of the rows of a mask, and 0 for the other rows."""
    if some.all():
        return loss.targets(y, len(y), n_outputs, dtype)
    checked = loss.targets(y[some], int(some.sum()), n_outputs, dtype)
    found = np.zeros((len(y), checked.shape[1]), dtype)
    found[some] = checked
    return found

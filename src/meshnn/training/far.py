"""Rows that are not in memory, and how a net sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.errors import DataError
from meshnn.losses import Loss, Targets, loss_named
from meshnn.training.samples import Dataset, InMemoryDataset

__all__ = ["Look", "OutOfCoreDataset", "Raw"]

#: Of rows as they were handed in: features (n, width), targets (n, m), of classes their codes, and weights (n,).
Raw = tuple[Array, Array, Array | None]


@dataclass(frozen=True)
class Look:
    """How a net sees raw rows: arrays and words only, so that it can be sent anywhere."""

    loss_name: str
    dtype_name: str
    x_mean: FloatArray
    x_scale: FloatArray
    y_mean: FloatArray
    y_scale: FloatArray
    places: NDArray[np.int64] | None = None  # of classes: by code, the number of the class among all, sorted
    class_weight: FloatArray | None = None  # of classes, by number

    @property
    def loss(self) -> Loss:
        """What targets are for."""
        return loss_named(self.loss_name)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the net."""
        return np.dtype(self.dtype_name)

    @property
    def _moderate(self) -> bool:
        """Whether no number on the way to a scaled feature is beyond what float32 holds."""
        return bool((np.abs(self.x_mean) < 1e30).all() and ((self.x_scale > 1e-30) & (self.x_scale < 1e30)).all())

    def inputs(self, X: Array, out: Array | None = None) -> Array:
        """Features as the net takes them, put where they are wanted, if that is said.

        float32 is scaled in float32 for a net of float32: it was as rough before.
        """
        kind = X.dtype if X.dtype == self.dtype and self._moderate else np.dtype(np.float64)
        mean, scale = (values.astype(kind) for values in (self.x_mean, 1.0 / self.x_scale))
        found = np.empty(X.shape, self.dtype) if out is None else out
        off = np.subtract(X, mean, out=found if found.dtype == kind else None, dtype=kind)
        np.multiply(off, scale, out=found, casting="same_kind")
        return found

    def outputs(self, y: Array) -> Array:
        """Targets (n, m) as a loss takes them."""
        if self.places is not None:
            return self.places[y[:, :1].astype(np.int64)].astype(self.dtype)
        if self.loss.logarithmic and (y < 0).any():  # where nobody knew the least one
            raise DataError(f"for {self.loss_name} y must not be negative, got {y.min():g}")
        return ((y - self.y_mean) / self.y_scale).astype(self.dtype)

    def weights(self, y: Array, weight: Array | None) -> FloatArray | None:
        """Of the samples; None if all count the same."""
        if self.class_weight is None or self.places is None:
            return None if weight is None else np.asarray(weight, np.float64)
        found = self.class_weight[self.places[y[:, 0].astype(np.int64)]]
        return found if weight is None else found * weight

    def samples(self, raw: Raw, mass: float) -> InMemoryDataset:
        """In memory; `mass` is the weight of all samples of the set that they are some of."""
        X, y, weight = raw
        weights = self.weights(y, weight)
        if weights is None:
            weights = np.ones(len(X))
        share = (weights / mass).astype(self.dtype)[:, None]
        targets = Targets(self.loss, self.outputs(y), share)
        return InMemoryDataset(self.inputs(X)[None], targets, float(weights.sum()))


class OutOfCoreDataset(ABC):
    """Rows of one form somewhere: what is known about all of them, and samples for a net."""

    count: int
    width: int
    names: list[str] | None  # of the features, if they have names
    several: bool  # whether targets are a matrix
    weighted: bool
    batch: int | None = None  # samples that batches have at best, if that is for the rows to say
    stamp: str  # tells these rows from others
    x_mean: FloatArray
    x_spread: FloatArray
    y_least: FloatArray | None = None  # the least of each target, if that is known
    labels: list[Any]  # of classes, by code
    label_sums: FloatArray  # weights of their rows

    @abstractmethod
    def few(self, count: int) -> Raw:
        """So many rows, evenly spaced."""

    @abstractmethod
    def hold_out(self, share: float, seed: int) -> None:
        """From now on have such a share of the rows, but no more than fit in memory, held out."""

    @abstractmethod
    def samples(self, look: Look) -> Dataset:
        """All rows that are not held out."""

    @abstractmethod
    def held_out(self, look: Look) -> InMemoryDataset:
        """Those that are."""

    @abstractmethod
    def release(self) -> None:
        """They are not needed any more."""

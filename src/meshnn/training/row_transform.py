"""`RowTransform`: rows as they were given to samples as a net takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.errors import DataError
from meshnn.losses import Loss, Targets, loss_named
from meshnn.tables.sources import RowBlock
from meshnn.training.samples import InMemorySamples


@dataclass(frozen=True)
class RowTransform:
    """Scaling of features and targets, numbers of classes and their weights; arrays and names only, to be sent."""

    loss_name: str
    dtype_name: str
    x_mean: FloatArray
    x_scale: FloatArray
    y_mean: FloatArray
    y_scale: FloatArray
    class_index: NDArray[np.int64] | None = None  # by label code, the number of the class among all, sorted
    class_weight: FloatArray | None = None  # by number of the class

    @property
    def loss(self) -> Loss:
        """The loss that the targets are for."""
        return loss_named(self.loss_name)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the net."""
        return np.dtype(self.dtype_name)

    def inputs(self, X: Array) -> Array:
        """Scale features; float32 is scaled in float32 for a net of float32, unless a number could overflow."""
        moderate = (np.abs(self.x_mean) < 1e30).all() and ((self.x_scale > 1e-30) & (self.x_scale < 1e30)).all()
        kind = X.dtype if X.dtype == self.dtype and moderate else np.dtype(np.float64)
        mean, scale = (values.astype(kind) for values in (self.x_mean, 1.0 / self.x_scale))
        found = np.subtract(X, mean, dtype=kind)
        found *= scale
        return found.astype(self.dtype, copy=False)

    def targets(self, y: Array) -> Array:
        """Return targets (n, m) as the loss takes them."""
        if self.class_index is not None:
            return self.class_index[y[:, :1].astype(np.int64)].astype(self.dtype)
        if self.loss.logarithmic and (y < 0).any():
            raise DataError(f"for {self.loss_name} y must not be negative, got {y.min():g}")
        return ((y - self.y_mean) / self.y_scale).astype(self.dtype)

    def weights(self, rows: RowBlock) -> FloatArray | None:
        """Return the weights of the rows, those of classes included; None if all are 1."""
        if self.class_weight is None or self.class_index is None:
            return None if rows.weight is None else np.asarray(rows.weight, np.float64)
        found = self.class_weight[self.class_index[rows.y[:, 0].astype(np.int64)]]
        return found if rows.weight is None else found * rows.weight

    def total_weight(self, rows: RowBlock) -> float:
        """Return the sum of the weights of the rows."""
        weights = self.weights(rows)
        return float(len(rows.X) if weights is None else weights.sum())

    def samples(self, rows: RowBlock, total_weight: float | None = None) -> InMemorySamples:
        """Return samples in memory; `total_weight` is that of the data set of which they are a part."""
        weights = self.weights(rows)
        if weights is None:
            weights = np.ones(len(rows.X))
        total = check_total(float(weights.sum())) if total_weight is None else total_weight
        targets = Targets(self.loss, self.targets(rows.y), (weights / total).astype(self.dtype)[:, None])
        return InMemorySamples(self.inputs(rows.X)[None], targets, float(weights.sum()))


def check_total(weight: float) -> float:
    """Refuse a data set of which nothing would be learned."""
    if weight <= 0:
        raise DataError("all samples have the weight 0; give some of them a weight")
    return weight

"""`Ragged`: sequences of different lengths as one array, and the forms in which users pass them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.checks import numbers
from meshnn.errors import DataError

__all__ = ["Ragged", "as_sequences", "as_step_targets"]


@dataclass(frozen=True)
class Ragged:
    """Rows of many samples one after the other: the steps of sequences, or a target for each step."""

    data: Array  # (n_rows, ...)
    offsets: IntArray  # (n_samples + 1,) where the rows of each sample begin
    weight: FloatArray | None = None  # (n_rows,), if not all rows count the same

    @property
    def lengths(self) -> IntArray:
        """Number of rows of each sample."""
        return np.diff(self.offsets)

    @property
    def longest(self) -> int:
        """Number of rows of the longest sample."""
        return int(self.lengths.max())

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_samples, ...), as if each sample were one row."""
        return (len(self), *self.data.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes of `shape`."""
        return self.data.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows."""
        return self.data.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Array]:
        return (self.data[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    def __getitem__(self, samples: Any) -> Ragged:
        """Return some samples, by their numbers or a mask."""
        chosen = np.arange(len(self))[samples]
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        return Ragged(self.data[rows], offsets, None if self.weight is None else self.weight[rows])

    def like(self, data: Array) -> Ragged:
        """Return other rows in samples of the same lengths."""
        return replace(self, data=data)

    def per_row(self, weight: Array | None) -> FloatArray | None:
        """Return weights of samples as weights of rows."""
        rows = None if weight is None else np.repeat(weight, self.lengths)
        return rows if self.weight is None else self.weight * (1.0 if rows is None else rows)


def as_sequences(X: Any, n_features: int | None = None) -> Ragged:
    """Check sequences: a list of arrays (length, features) or (length,), or one array with an axis more in front."""
    if isinstance(X, Ragged):
        return X
    if hasattr(X, "tocsr"):
        raise DataError("X is a scipy sparse matrix; pass a list of arrays (length, features), one per sequence")
    if isinstance(X, np.ndarray) and X.dtype != object:
        if X.ndim not in (2, 3):
            raise DataError(f"X must be (samples, length, features) or (samples, length), got the shape {X.shape}")
        if X.ndim == 3 and X.shape[2] == 0:
            raise DataError(f"the steps of X have no features: its shape is {X.shape}, not (samples, length, features)")
        parts = list(numbers("X", X))
    else:
        parts = [numbers(f"sequence {k} of X", item) for k, item in enumerate(_listed("X", X))]
    found = _joined(parts)
    if n_features is not None and found.shape[1] != n_features:
        raise DataError(
            f"the sequences have {found.shape[1]} features, but the model was fitted to {n_features}; pass the same "
            "ones in the same order"
        )
    finite = np.isfinite(found.data)
    if not finite.all():
        row, feature = np.argwhere(~finite)[0].tolist()
        sample = int(np.searchsorted(found.offsets, row, side="right")) - 1
        place = f"sequence {sample}, step {row - int(found.offsets[sample])}, feature {feature}"
        raise DataError(f"X holds {found.data[row, feature]} at {place}; remove the step, or fill the gap")
    return found


def _joined(parts: list[Array]) -> Ragged:
    if not parts:
        raise DataError("X has no sequences; pass at least one")
    parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    for k, part in enumerate(parts):
        if part.ndim != 2 or part.shape[1] == 0:
            raise DataError(f"sequence {k} of X must be (length, features), got the shape {part.shape}")
        if len(part) == 0:
            raise DataError(f"sequence {k} of X is empty; leave it out, or give it at least one step")
        if part.shape[1] != parts[0].shape[1]:
            turned = " Are the axes swapped?" if part.shape[0] == parts[0].shape[0] else ""
            what = f"sequence {k} of X has {part.shape[1]} features, sequence 0 has {parts[0].shape[1]}"
            raise DataError(f"{what}; pass (length, features) with the same features for all.{turned}")
    lengths = [len(part) for part in parts]
    return Ragged(np.concatenate(parts).astype(np.float64, copy=False), np.concatenate([[0], np.cumsum(lengths)]))


def as_step_targets(y: Any, X: Ragged) -> Array:
    """Check a target per step, and return those of all sequences one after the other, (n_rows,) or (n_rows, k)."""
    if isinstance(y, Ragged):
        return y.data
    items = [np.asarray(item) for item in _listed("y", y)]
    if len(items) != len(X):
        raise DataError(f"y holds targets of {len(items)} sequences, X has {len(X)}; pass one array per sequence")
    for k, (item, length) in enumerate(zip(items, X.lengths.tolist(), strict=True)):
        if item.ndim not in (1, 2) or len(item) != length:
            raise DataError(
                f'with readout="all" y has a target for each step: sequence {k} has {length} steps, '
                f"its y the shape {item.shape}; pass ({length},), or use another readout"
            )
        if item.shape[1:] != items[0].shape[1:]:
            raise DataError(f"the targets of sequence {k} have the shape {item.shape}, others {items[0].shape}")
    return np.concatenate(items)


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return list(value)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise DataError(
            f"{name} must be a list of arrays, one per sequence, or one array (samples, length, ...), "
            f"got {type(value).__name__}"
        )
    return list(value)

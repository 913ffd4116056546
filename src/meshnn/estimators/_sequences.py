"""Sequences in: many arrays of different lengths as one, checked, and as the engine takes them.

Time of a sequence is cut into steps, one a row. A step lasts for some ticks of the net, usually one; the last step is
held for some ticks more, until it has come to the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.checks import numbers
from meshnn.errors import DataError
from meshnn.memory import check_fits

__all__ = ["READOUTS", "Ragged", "as_answers", "as_sequences", "grouped", "padded", "steps_read"]

#: Where the outputs are read: after the last step, as the mean over all steps, or after each.
READOUTS = ("last", "mean", "all")


@dataclass(frozen=True)
class Ragged:
    """Rows of many samples, one sample after the other: steps of sequences, or what is to be said of each."""

    data: Array  # (n_rows, ...)
    offsets: IntArray  # (n_samples + 1,) where the rows of each sample begin
    weight: FloatArray | None = None  # (n_rows,) how much each counts, if not all count the same

    @property
    def lengths(self) -> IntArray:
        """Rows of each sample."""
        return np.diff(self.offsets)

    @property
    def longest(self) -> int:
        """Rows of the longest sample."""
        return int(self.lengths.max())

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_samples, ...), as if each sample were one row."""
        return (len(self), *self.data.shape[1:])

    @property
    def ndim(self) -> int:
        """Axes of that."""
        return self.data.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the rows."""
        return self.data.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Array]:
        return (self.data[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    def __getitem__(self, samples: Any) -> Ragged:
        """Some samples, by their numbers or a mask."""
        chosen = np.arange(len(self))[samples]
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        return Ragged(self.data[rows], offsets, None if self.weight is None else self.weight[rows])

    def like(self, data: Array) -> Ragged:
        """Other rows of samples of the same lengths."""
        return replace(self, data=data)

    def per_row(self, weight: Array | None) -> FloatArray | None:
        """Weights of samples as weights of rows."""
        rows = None if weight is None else np.repeat(weight, self.lengths)
        return rows if self.weight is None else self.weight * (1.0 if rows is None else rows)


# -- what users pass -----------------------------------------------------------------------------------------------


def as_sequences(X: Any, n_features: int | None = None) -> Ragged:
    """A list of arrays `(length, features)` or `(length,)`, or an array `(samples, length, features)` or `(samples,
    length)`, as sequences of so many features; a sentence that says what to do about anything else."""
    if isinstance(X, Ragged):
        return X
    if isinstance(X, np.ndarray) and X.dtype != object:
        found = _of_array(X)
    elif hasattr(X, "tocsr"):
        raise DataError("X is a scipy sparse matrix; pass a list of arrays (length, features), one a sequence")
    else:
        found = _of_list(_listed("X", X))
    if n_features is not None and found.shape[1] != n_features:
        raise DataError(
            f"the sequences have {_features(found.shape[1])}, but the model learned from {_features(n_features)}; pass "
            "the same ones, in the same order"
        )
    finite = np.isfinite(found.data)
    if not finite.all():
        row, feature = np.argwhere(~finite)[0].tolist()
        sample = int(np.searchsorted(found.offsets, row, side="right")) - 1
        place = f"sequence {sample}, step {row - int(found.offsets[sample])}, feature {feature}"
        raise DataError(f"X holds {found.data[row, feature]} at {place}; remove the step, or fill the gap")
    return found


def _of_array(X: Array) -> Ragged:
    if X.ndim not in (2, 3):
        raise DataError(f"X must be (samples, length, features) or (samples, length), got an array of shape {X.shape}")
    array = numbers("X", X)
    array = array[:, :, None] if array.ndim == 2 else array
    n, length, features = array.shape
    if n == 0:
        raise DataError("X has no sequences; pass at least one")
    if length == 0:
        raise DataError(f"the sequences of X have no steps, its shape is {X.shape}; each needs at least one")
    if features == 0:
        raise DataError(f"the steps of X have no features, its shape is {X.shape}; pass (samples, length, features)")
    data = np.ascontiguousarray(array, np.float64).reshape(n * length, features)
    return Ragged(data, np.arange(n + 1) * length)


def _of_list(items: list[Any]) -> Ragged:
    if not items:
        raise DataError("X has no sequences; pass at least one")
    parts: list[Array] = []
    for k, item in enumerate(items):
        part = numbers(f"sequence {k} of X", item)
        if part.ndim == 1:
            part = part[:, None]
        if part.ndim != 2:
            raise DataError(f"sequence {k} of X must be (length, features), got an array of shape {part.shape}")
        if len(part) == 0:
            raise DataError(f"sequence {k} of X is empty; leave it out, or give it at least one step")
        if part.shape[1] == 0:
            raise DataError(f"sequence {k} of X has no features, its shape is {part.shape}; pass (length, features)")
        if parts and part.shape[1] != parts[0].shape[1]:
            what = f"sequence {k} of X has {_features(part.shape[1])}, sequence 0 has {parts[0].shape[1]}"
            turned = part.shape[0] == parts[0].shape[0]
            hint = "pass (length, features): it looks as if they were the other way round"
            raise DataError(f"{what}; {hint if turned else 'give all of them the same ones'}")
        parts.append(part)
    lengths = [len(part) for part in parts]
    return Ragged(np.concatenate(parts).astype(np.float64, copy=False), np.concatenate([[0], np.cumsum(lengths)]))


def as_answers(y: Any, X: Ragged) -> Array:
    """What is to be said after each step, all steps of all sequences behind each other, `(n_rows,)` or `(n_rows, k)`.

    From a list of arrays `(length,)` or `(length, k)`, or an array `(samples, length)` or `(samples, length, k)`.
    """
    if isinstance(y, Ragged):
        return y.data
    items = [np.asarray(item) for item in _listed("y", y)]
    if len(items) != len(X):
        raise DataError(f"y holds answers of {len(items)} sequences, X has {len(X)}; pass one array a sequence")
    for k, (item, length) in enumerate(zip(items, X.lengths.tolist(), strict=True)):
        if item.ndim not in (1, 2) or len(item) != length:
            raise DataError(
                f'with readout="all" y has an answer for each step: sequence {k} has {length} steps, '
                f"its y the shape {item.shape}; pass ({length},), or use another readout"
            )
        if item.shape[1:] != items[0].shape[1:]:
            raise DataError(f"the answers of sequence {k} have the shape {item.shape}, others {items[0].shape}")
    return np.concatenate(items)


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return list(value)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise DataError(
            f"{name} must be a list of arrays, one a sequence, or one array (samples, length, ...), "
            f"got {type(value).__name__}"
        )
    return list(value)


def grouped(rows: Array, X: Ragged, given: Any) -> Any:
    """Answers to all steps, by sequence: a list if sequences came as one, an array if they came as one."""
    if isinstance(given, np.ndarray) and given.dtype != object:
        return rows.reshape(len(X), -1, *rows.shape[1:])
    return list(Ragged(rows, X.offsets))


def _features(count: int) -> str:
    return f"{count} feature{'s' * (count != 1)}"


# -- what the engine takes -----------------------------------------------------------------------------------------


def steps_read(lengths: IntArray, readout: str, per_step: int, lag: int) -> tuple[IntArray, IntArray]:
    """The ticks after which outputs are read, from 0 on, and whose: all steps of a sequence, or the last one.

    Step t, from 0 on, lasts for the ticks `per_step * t` and so on; it has come to the outputs `lag` ticks later.
    """
    if readout == "last":
        return per_step * lengths - 1 + lag, np.arange(len(lengths))
    whose = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(len(whose)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return per_step * (step + 1) - 1 + lag, whose


def padded(X: Ragged, ticks: int, per_step: int, dtype: Any = np.float64) -> Array:
    """Inputs `(ticks, n_samples, n_features)`; the last step of each sequence is held until the end."""
    n, features = X.shape
    needed = float(np.dtype(dtype).itemsize) * ticks * n * features
    check_fits(needed, f"{n:,} sequences, filled up to {ticks:,} ticks,", "cut the longest sequences, or pass fewer")
    at = np.minimum(np.arange(ticks)[:, None] // per_step, X.lengths - 1) + X.offsets[:-1]
    with np.errstate(over="ignore"):  # refused by name
        return X.data.astype(dtype, copy=False)[at]

"""Sequences: one array for all of them, how their steps become ticks of a net, and where outputs are read.

A step lasts for some ticks of the net, usually one. The last step is held for some more ticks (the delay), until it has
reached the outputs. Sequences of different lengths run side by side; outputs are read where each one ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from meshnn.arguments import known, whole_number
from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.checks import numbers
from meshnn.errors import DataError
from meshnn.estimators.preprocessing import Preprocessing
from meshnn.export.blueprint import SequenceTiming
from meshnn.losses import Loss
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.net import MOST_TICKS
from meshnn.tables.sources import RowBlock
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples


@dataclass(frozen=True)
class Ragged:
    """Rows of many samples one after the other: the steps of sequences, or a target for each step."""

    data: Array  # (n_rows, ...)
    offsets: IntArray  # (n_samples + 1,) where the rows of each sample begin
    weight: FloatArray | None = None  # (n_rows,), if not all rows count the same; includes that of their sample

    @property
    def lengths(self) -> IntArray:
        """Number of rows of each sample."""
        return np.diff(self.offsets)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_samples, ...), as if each sample were one row."""
        return (len(self), *self.data.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows."""
        return self.data.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Array]:
        return iter(np.split(self.data, self.offsets[1:-1]))

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
        return np.repeat(weight, self.lengths) if self.weight is None and weight is not None else self.weight


def as_sequences(X: Any, n_features: int | None = None) -> Ragged:
    """Check sequences: a list of arrays (length, features) or (length,), or one array with an axis more in front."""
    if isinstance(X, Ragged):
        return X
    parts = [numbers(f"sequence {k} of X", item) for k, item in enumerate(_listed("X", X))]
    if not parts:
        raise DataError("X has no sequences; pass at least one")
    parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    for k, part in enumerate(parts):
        if part.ndim != 2 or 0 in part.shape:
            raise DataError(f"sequence {k} of X must be (length, features), neither of them 0, got {part.shape}")
        wanted = parts[0].shape[1] if n_features is None else n_features
        if part.shape[1] != wanted:
            raise DataError(f"sequence {k} of X has {part.shape[1]} features, expected {wanted}: (length, features)")
        if not np.isfinite(part).all():
            step, feature = np.argwhere(~np.isfinite(part))[0].tolist()
            raise DataError(f"X holds {part[step, feature]} at sequence {k}, step {step}, feature {feature}; fill it")
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Ragged(np.concatenate(parts).astype(np.float64, copy=False), offsets)


def as_step_targets(y: Any, X: Ragged) -> Array:
    """Check a target per step, and return those of all sequences one after the other, (n_rows,) or (n_rows, k)."""
    if isinstance(y, Ragged):
        return y.data
    items = [np.asarray(item) for item in _listed("y", y)]
    if len(items) != len(X):
        raise DataError(f"y holds targets of {len(items)} sequences, X has {len(X)}; pass one array per sequence")
    for k, (item, length) in enumerate(zip(items, X.lengths.tolist(), strict=True)):
        if item.ndim not in (1, 2) or len(item) != length:
            what = f"sequence {k} has {length} steps, its y the shape {item.shape}"
            raise DataError(f'{what}; with readout="all" pass one target per step')
        if item.shape[1:] != items[0].shape[1:]:
            raise DataError(f"the targets of sequence {k} have the shape {item.shape}, others {items[0].shape}")
    return np.concatenate(items)


def _listed(name: str, value: Any) -> list[Any]:
    listed = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if not listed and not (isinstance(value, np.ndarray) and (value.ndim > 1 or value.dtype == object)):
        got = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise DataError(
            f"{name} must be a list of arrays, one per sequence, or one array (samples, length, ...), got {got}"
        )
    return list(value)


class Reading(SequenceTiming):
    """How a net is read in time; fixed when it is built."""

    @classmethod
    def of(cls, per_step: Any, delay: Any, readout: Any) -> Reading:
        """Check values that may come from anywhere."""
        ticks = whole_number("ticks", per_step, most=MOST_TICKS)
        late = whole_number("delay", delay, least=0, most=MOST_TICKS)
        return cls(ticks, late, known("readout", readout, ("last", "mean", "all")))

    def ticks(self, steps: Any) -> Any:
        """Return the ticks of a sequence of this many steps, or of several."""
        return self.per_step * steps + self.delay

    def read_at(self, lengths: IntArray) -> tuple[IntArray, IntArray]:
        """Return the ticks (from 0) after which outputs are read, and the sequence that each belongs to."""
        if self.readout == "last":
            return self.ticks(lengths) - 1, np.arange(len(lengths))
        whose = np.repeat(np.arange(len(lengths)), lengths)
        step = np.arange(len(whose)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self.ticks(step + 1) - 1, whose


def padded(X: Ragged, ticks: int, per_step: int, dtype: Any = np.float64) -> Array:
    """Return inputs (ticks, n_samples, n_features); the last step of each sequence is held until the end."""
    n, features = X.shape
    needed = float(np.dtype(dtype).itemsize) * ticks * n * features
    check_fits(needed, f"{n:,} sequences, padded to {ticks:,} ticks,", "cut the longest sequences, or pass fewer")
    at = np.minimum(np.arange(ticks)[:, None] // per_step, X.lengths - 1) + X.offsets[:-1]
    with np.errstate(over="ignore"):  # infinite inputs are refused later, by name
        return X.data.astype(dtype, copy=False)[at]


@dataclass(frozen=True)
class SequencePreprocessing(Preprocessing):
    """How sequences become inputs per tick. Features are scaled by mean and spread of all steps."""

    reading: Reading = Reading(1, 0, "last")  # noqa: RUF009  # immutable

    kind: ClassVar[str] = "sequence "

    @classmethod
    def learn(cls, X: Any, *options: Any, **rows: Any) -> tuple[Self, Any]:
        """Return the preprocessing, which does not scale yet, and the checked sequences."""
        sequences = as_sequences(X)
        return cls(sequences.shape[1]), sequences

    def features(self, X: Any, model: str) -> Ragged:
        """Return checked sequences."""
        return as_sequences(X, self.n_features)

    def dataset(self, mesh: Mesh, samples: RowBlock, loss: Loss) -> InMemorySamples:
        """Return the sequences as the trainer takes them, padded to the ticks of the mesh."""
        given: tuple[Any, Any, Array | None] = samples
        X, targets, weight = given
        inputs = padded(X.like(self.scaling.inputs(X.data)), mesh.ticks, self.reading.per_step, mesh.dtype)
        at, whose = self.reading.read_at(X.lengths)
        if isinstance(targets, Ragged):
            rows = self.scaling.targets(targets.data)
            outputs = np.zeros((mesh.ticks, len(X), *rows.shape[1:]), rows.dtype)
            counts = np.zeros((mesh.ticks, len(X)))
            outputs[at, whose], counts[at, whose] = rows, 1.0 if targets.weight is None else targets.weight
            return as_samples(mesh, inputs, outputs, loss.name, loss_ticks=counts)
        readout = None
        if self.reading.readout == "mean" or (at < mesh.ticks - 1).any():
            readout = np.zeros((mesh.ticks, len(X)))
            readout[at, whose] = 1.0 if self.reading.readout == "last" else 1.0 / X.lengths[whose]
        return as_samples(mesh, inputs, self.scaling.targets(targets), loss.name, weight, readout=readout)

    def outputs(self, mesh: Mesh, features: Ragged, n_jobs: int | None) -> Array:
        """Return what is read: (n_samples, n_outputs), or with readout="all" (n_rows, n_outputs)."""
        X = features.like(self.scaling.inputs(features.data))
        order = np.argsort(X.lengths, kind="stable")  # sequences of about the same length run together
        numbers = self.reading.ticks(X.lengths[order]) * (mesh.topology.n_inputs + mesh.topology.n_outputs)
        read: list[Array] = []
        while len(read) < len(order):  # as many at a time as keep inputs and outputs within 2**22 numbers
            rest = numbers[len(read) :]
            count = max(1, int((rest * np.arange(1, len(rest) + 1) <= 2**22).sum()))
            read += self._read(mesh, X[order[len(read) : len(read) + count]], n_jobs)
        parts = [read[k] for k in np.argsort(order)]
        return np.concatenate(parts) if self.reading.readout == "all" else np.stack(parts)

    def _read(self, mesh: Mesh, X: Ragged, n_jobs: int | None) -> list[Array]:
        """Return what is read of each of some scaled sequences."""
        ticks = -(-self.reading.ticks(X.lengths.max()) // 8) * 8  # rounded up: there is an engine per number of ticks
        inputs = padded(X, ticks, self.reading.per_step, mesh.dtype)
        read = mesh.forward(inputs, every_tick=True, n_jobs=n_jobs)[self.reading.read_at(X.lengths)]
        if self.reading.readout == "last":
            return list(read)
        steps = list(Ragged(read, X.offsets))
        if self.reading.readout == "all":
            return steps
        return [step.mean(axis=0, dtype=np.float64).astype(read.dtype) for step in steps]

    def grouped(self, values: Any, features: Ragged, given: Any) -> Any:
        """Return predictions of all steps by sequence: a list, or an array if the sequences came as one."""
        if self.reading.readout != "all":
            return values
        if isinstance(given, np.ndarray) and given.dtype != object:
            return values.reshape(len(features), -1, *values.shape[1:])
        return list(Ragged(values, features.offsets))

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        return super().to_tree() | {"reading": list(self.reading)}

    @classmethod
    def from_tree(cls, tree: Any, sizes: dict[str, int]) -> Self:
        """Return the preprocessing that a file holds."""
        return replace(super().from_tree(tree, sizes), reading=Reading.of(*tree["reading"]))

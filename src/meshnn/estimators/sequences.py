"""Sequences: storage in one array, conversion from steps to ticks of a net, and the readout of the outputs.

A step lasts for some ticks of the net, usually one. The last input is repeated for more ticks (the delay), until its
effect has reached the outputs. Sequences of different lengths run in one batch; the outputs of each are read at its
end.
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
    """Concatenated rows of samples of different lengths: the steps of sequences, or a target per step."""

    data: Array  # (n_rows, ...)
    offsets: IntArray  # (n_samples + 1,) first row of each sample
    weight: FloatArray | None = None  # (n_rows,) weights including those of the samples; None if all are equal

    @property
    def lengths(self) -> IntArray:
        """Number of rows of each sample."""
        return np.diff(self.offsets)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n_samples, ...), as if each sample were one row."""
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
        """Return the samples selected by indices, a slice or a mask."""
        chosen = np.arange(len(self))[samples]
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        return Ragged(self.data[rows], offsets, None if self.weight is None else self.weight[rows])

    def like(self, data: Array) -> Ragged:
        """Return new rows with the same sample lengths."""
        return replace(self, data=data)

    def per_row(self, weight: Array | None) -> FloatArray | None:
        """Return the weights of samples repeated for each row."""
        return np.repeat(weight, self.lengths) if self.weight is None and weight is not None else self.weight


def as_sequences(X: Any, n_features: int | None = None) -> Ragged:
    """Check sequences: a list of arrays (length, features) or (length,), or one array (samples, length, ...)."""
    if isinstance(X, Ragged):
        return X
    parts = [numbers(f"sequence {k} of X", item) for k, item in enumerate(_listed("X", X))]
    if not parts:
        raise DataError("X has no sequences; pass at least one")
    parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    for k, part in enumerate(parts):
        if part.ndim != 2 or 0 in part.shape:
            raise DataError(f"sequence {k} of X must be a non-empty (length, features), got shape {part.shape}")
        wanted = parts[0].shape[1] if n_features is None else n_features
        if part.shape[1] != wanted:
            raise DataError(f"sequence {k} of X has {part.shape[1]} features, expected {wanted}: (length, features)")
        if not np.isfinite(part).all():
            step, feature = np.argwhere(~np.isfinite(part))[0].tolist()
            where = f"sequence {k}, step {step}, feature {feature}"
            raise DataError(f"X contains {part[step, feature]} at {where}; replace it by a finite number")
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Ragged(np.concatenate(parts).astype(np.float64, copy=False), offsets)


def as_step_targets(y: Any, X: Ragged) -> Array:
    """Check targets per step and return them concatenated, (n_rows,) or (n_rows, n_outputs)."""
    if isinstance(y, Ragged):
        return y.data
    items = [np.asarray(item) for item in _listed("y", y)]
    if len(items) != len(X):
        raise DataError(f"y has targets of {len(items)} sequences, but X has {len(X)}; pass one array per sequence")
    for k, (item, length) in enumerate(zip(items, X.lengths.tolist(), strict=True)):
        if item.ndim not in (1, 2) or len(item) != length:
            what = f"sequence {k} has {length} steps, but its y has the shape {item.shape}"
            raise DataError(f'{what}; with readout="all" pass one target per step')
        if item.shape[1:] != items[0].shape[1:]:
            what = f"the targets of sequence {k} have the shape {item.shape}"
            raise DataError(f"{what}, those of sequence 0 {items[0].shape}; pass the same number of columns for all")
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
    """The ticks per step, the delay and the readout of a net, fixed when it is built."""

    @classmethod
    def of(cls, per_step: Any, delay: Any, readout: Any) -> Reading:
        """Return a `Reading` of untrusted values after checks."""
        ticks = whole_number("ticks", per_step, most=MOST_TICKS)
        ticks_after = whole_number("delay", delay, least=0, most=MOST_TICKS)
        return cls(ticks, ticks_after, known("readout", readout, ("last", "mean", "all")))

    def ticks(self, steps: Any) -> Any:
        """Return the number of ticks for a number of steps, or for an array of them."""
        return self.per_step * steps + self.delay

    def read_at(self, lengths: IntArray) -> tuple[IntArray, IntArray]:
        """Return the ticks (from 0) after which outputs are read, and the sequence of each readout."""
        if self.readout == "last":
            return self.ticks(lengths) - 1, np.arange(len(lengths))
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        step = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self.ticks(step + 1) - 1, sequence


def padded(X: Ragged, ticks: int, per_step: int, dtype: Any = np.float64) -> Array:
    """Return inputs (ticks, n_samples, n_features); the last step of each sequence is held until the end."""
    n, features = X.shape
    needed = float(np.dtype(dtype).itemsize) * ticks * n * features
    check_fits(needed, f"{n:,} sequences, padded to {ticks:,} ticks,", "cut the longest sequences, or pass fewer")
    at = np.minimum(np.arange(ticks)[:, None] // per_step, X.lengths - 1) + X.offsets[:-1]
    with np.errstate(over="ignore"):  # a later check refuses infinite inputs with their names
        return X.data.astype(dtype, copy=False)[at]


@dataclass(frozen=True)
class SequencePreprocessing(Preprocessing):
    """Conversion from sequences to inputs per tick; features are scaled over all steps."""

    reading: Reading = Reading(1, 0, "last")  # noqa: RUF009  # immutable

    kind: ClassVar[str] = "sequence "

    @classmethod
    def learn(cls, X: Any, *options: Any, **rows: Any) -> tuple[Self, Any]:
        """Return the preprocessing without a scaling, and the checked sequences."""
        sequences = as_sequences(X)
        return cls(sequences.shape[1]), sequences

    def features(self, X: Any, model: str) -> Ragged:
        """Return checked sequences."""
        return as_sequences(X, self.n_features)

    def dataset(self, mesh: Mesh, samples: RowBlock, loss: Loss) -> InMemorySamples:
        """Return the sequences in the form of the trainer, padded to the ticks of the mesh."""
        given: tuple[Any, Any, Array | None] = samples
        X, targets, weight = given
        inputs = padded(X.like(self.scaling.inputs(X.data)), mesh.ticks, self.reading.per_step, mesh.dtype)
        at, sequence = self.reading.read_at(X.lengths)
        if isinstance(targets, Ragged):
            rows = self.scaling.targets(targets.data)
            outputs = np.zeros((mesh.ticks, len(X), *rows.shape[1:]), rows.dtype)
            counts = np.zeros((mesh.ticks, len(X)))
            outputs[at, sequence], counts[at, sequence] = rows, 1.0 if targets.weight is None else targets.weight
            return as_samples(mesh, inputs, outputs, loss.name, loss_ticks=counts)
        readout = None
        if self.reading.readout == "mean" or (at < mesh.ticks - 1).any():
            readout = np.zeros((mesh.ticks, len(X)))
            readout[at, sequence] = 1.0 if self.reading.readout == "last" else 1.0 / X.lengths[sequence]
        return as_samples(mesh, inputs, self.scaling.targets(targets), loss.name, weight, readout=readout)

    def outputs(self, mesh: Mesh, features: Ragged, n_jobs: int | None) -> Array:
        """Return the outputs that are read: (n_samples, n_outputs), or with readout="all" (n_rows, n_outputs)."""
        X = features.like(self.scaling.inputs(features.data))
        order = np.argsort(X.lengths, kind="stable")  # a batch has sequences of similar lengths
        numbers = self.reading.ticks(X.lengths[order]) * (mesh.topology.n_inputs + mesh.topology.n_outputs)
        read: list[Array] = []
        while len(read) < len(order):  # a batch has at most 2**22 inputs and outputs
            rest = numbers[len(read) :]
            count = max(1, int((rest * np.arange(1, len(rest) + 1) <= 2**22).sum()))
            read += self._read(mesh, X[order[len(read) : len(read) + count]], n_jobs)
        parts = [read[k] for k in np.argsort(order)]
        return np.concatenate(parts) if self.reading.readout == "all" else np.stack(parts)

    def _read(self, mesh: Mesh, X: Ragged, n_jobs: int | None) -> list[Array]:
        """Return the outputs that are read for each scaled sequence."""
        ticks = (
            -(-self.reading.ticks(X.lengths.max()) // 8) * 8
        )  # rounded up, since each number of ticks needs an engine
        inputs = padded(X, ticks, self.reading.per_step, mesh.dtype)
        read = mesh.forward(inputs, every_tick=True, n_jobs=n_jobs)[self.reading.read_at(X.lengths)]
        if self.reading.readout == "last":
            return list(read)
        steps = list(Ragged(read, X.offsets))
        if self.reading.readout == "all":
            return steps
        return [step.mean(axis=0, dtype=np.float64).astype(read.dtype) for step in steps]

    def grouped(self, values: Any, features: Ragged, given: Any) -> Any:
        """Return predictions of all steps grouped by sequence: a list, or an array if X was one array."""
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
        """Return the preprocessing stored in a file."""
        return replace(super().from_tree(tree, sizes), reading=Reading.of(*tree["reading"]))

"""Training data of a fit: arrays in memory, or out-of-core rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.arguments import switch
from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.estimators.preprocessing import Preprocessing, is_dask
from meshnn.estimators.scaling import Scaling
from meshnn.export.ranges import Ranges
from meshnn.losses.losses import is_constant
from meshnn.mesh import Mesh
from meshnn.progress import progress
from meshnn.tables import sources
from meshnn.tables.encoder import Column, Encoder
from meshnn.tables.holdout import HoldoutSplit
from meshnn.tables.sources import RowBlock
from meshnn.training.dataset import Dataset
from meshnn.training.samples import RowTransform, Samples


def is_out_of_core(X: Any) -> bool:
    """Return whether X is not in memory: a file, an iterator of blocks, a `Dataset` or a Dask collection."""
    return sources.is_out_of_core(X) or isinstance(X, Dataset) or is_dask(X)


class ArrayData:
    """Samples in memory, as passed to `fit`; `known` is the preprocessing of a warm start."""

    batch: int | None = None  # batch size, if the data determine it
    held_out: RowBlock | None = None  # hold-out set

    def __init__(self, model: Any, X: Any, y: Any, sample_weight: Any, known: Preprocessing | None) -> None:
        self._model, self._given, self._new = model, X, known is None
        self.preprocessing, self.samples, self.n_outputs = model._checked(X, y, sample_weight, known, known is None)
        self.target_shape = self.samples.y.shape[1:]

    @property
    def longest(self) -> int:
        """Number of steps of the longest sequence; 0 if X has rows instead of sequences."""
        parts = [part.X for part in (self.samples, self.held_out) if part is not None]
        return max(int(max(getattr(X, "lengths", [0]))) for X in parts)

    @property
    def n_samples(self) -> int:
        """Number of training samples with a positive weight."""
        weight = self.samples.weight
        return int(self.samples.X.shape[0] if weight is None else np.count_nonzero(weight > 0))

    def identity(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the arrays and texts that identify the data."""
        return {"X": self.samples.X, "y": self.samples.y, "sample_weight": self.samples.weight}, {}

    def hold_out(self, share: float, seed: int) -> None:
        """Hold out a fraction of the samples; at least one is held out and at least one is left."""
        targets, weight, n = self.samples.y, self.samples.weight, len(self.samples.y)
        if n < 2:
            raise DataError("early_stopping needs at least 2 samples, got 1; set early_stopping=False")
        labels = targets if isinstance(targets, np.ndarray) and targets.ndim == 1 else None
        split = HoldoutSplit.stratified(n, min(math.ceil(share * n), n - 1), seed, labels)
        parts = (split.kept, split.held)
        if len(split.held) == 0 or (weight is not None and not all(weight[part].any() for part in parts)):
            what = "early_stopping needs samples of positive weight in the training set and in the hold-out set"
            raise DataError(f"{what}, and at least two samples of a class; set early_stopping=False")
        if self._new and self.preprocessing.encoder is not None:  # do not fit the encoder to the hold-out set
            most, name = self._model.max_categories, type(self._model).__name__
            self.preprocessing, X = self.preprocessing.learn(self._given, most, name, rows=split.kept)
            self.samples = self.samples._replace(X=X)
        self.samples, self.held_out = self.samples.take(split.kept), self.samples.take(split.held)

    def learn(self, activation: str) -> Preprocessing:
        """Return the preprocessing with a fitted scaling.

        Inputs may be rotated during training unless a parameter refers to the edges of single columns.
        """
        model = self._model
        rotate = model.mesh is None and model.structure is None and model.l1 == 0.0 and bool(model.standardize)
        rotate = rotate and self.longest == 0 and model.embedding in (None, "auto") and model.n_members in (1, "auto")
        return self.preprocessing.scaled(self.samples, model._loss, model.standardize, activation, rotate)

    @property
    def in_memory_rows(self) -> bool:
        """Whether the samples are rows in memory, not sequences."""
        return self.longest == 0

    def scaled_rows(self, learned: Preprocessing) -> Array:
        """Return the scaled rows of positive weight."""
        X, weight = self.samples.X, self.samples.weight
        return learned.scaling.inputs(X if weight is None else X[weight > 0])

    def datasets(self, mesh: Mesh, preprocessing: Preprocessing) -> tuple[Samples, Samples | None]:
        """Return the training samples and the hold-out set."""
        loss, held_out = self._model._loss, self.held_out
        validation = None if held_out is None else preprocessing.dataset(mesh, held_out, loss)
        return preprocessing.dataset(mesh, self.samples, loss), validation

    def ranges(self, mesh: Mesh, preprocessing: Preprocessing) -> Ranges | None:
        """Return the ranges of features and states of a trained net, for integer exports."""
        return Ranges.of(preprocessing.blueprint(mesh), Ranges.rows(self.samples.X))


class OutOfCoreData:
    """Out-of-core rows: on disk, in blocks or on other machines."""

    longest = 0
    in_memory_rows = False
    target_shape: tuple[int, ...]  # of one sample
    held_out: RowBlock | None = None  # passed by the user, in memory
    _class_index: Array | None = None
    _class_weight: Array | None = None

    def __init__(self, model: Any, rows: Dataset) -> None:
        self._model, self._rows, self.batch, self.n_samples = model, rows, rows.batch_size, rows.n_rows
        if model._stopping().scoring is not None:
            raise MeshError("scoring requires samples in memory; set scoring=None to use the loss of the held-out rows")
        self.preprocessing = Preprocessing(rows.n_features)
        if rows.columns is not None:  # `predict` selects columns by name and fills missing values with means
            means = zip(rows.columns, rows.moments.mean.tolist(), strict=True)
            encoder = Encoder(tuple(Column(name, "numeric", fill=mean) for name, mean in means), True, {})
            self.preprocessing = replace(self.preprocessing, names=tuple(rows.columns), encoder=encoder)
        self._parts: tuple[Dataset, RowBlock | None] = (rows, None)  # training rows and hold-out set
        if model._loss.classifies:
            model._targets(np.array(rows.labels), None, True)  # sets `classes_` after a check
            self.n_outputs, self.target_shape = len(rows.labels), ()
            return
        least = 0.0 if rows.y_min is None else float(rows.y_min.min())
        if model._loss.logarithmic and least < 0:
            raise DataError(f"for {model._loss.name} y must not be negative, got {least:g}")
        model._flat, self.n_outputs, self.target_shape = not rows.matrix_targets, rows.n_targets, (rows.n_targets,)

    def identity(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the arrays and texts that identify the data."""
        return {}, {"data": self._rows.fingerprint, "labels": repr(self._rows.labels)}

    def hold_out(self, share: float, seed: int) -> None:
        """Hold out a fraction of the rows."""
        self._parts = self._rows.hold_out(share, seed)

    def learn(self, activation: str) -> Preprocessing:
        """Return the preprocessing with a fitted scaling: of features from all rows, of targets from a sample."""
        model, rows = self._model, self._rows
        X, y, weight = rows.few(2**15)
        wanted = switch("standardize", model.standardize)
        weight = weight if weight is None or weight.any() else None
        targets: Array = y
        if model._loss.classifies:
            self._class_index = np.searchsorted(model.classes_, np.array(rows.labels))
            targets = self._class_index[y[:, 0].astype(np.int64)]
            if model.class_weight is not None:
                sums = np.zeros(self.n_outputs)
                sums[self._class_index] = rows.label_sums
                self._class_weight = model._class_weights(np.arange(self.n_outputs), sums, model.classes_.tolist())
        scaling = Scaling.learn(X.astype(np.float64), targets, weight, wanted, model._loss, activation)
        if wanted:
            constant = is_constant(rows.moments.mean, rows.moments.spread)
            spread = np.where(constant, 1.0, rows.moments.spread)
            # Training subtracts a mean rounded to float32, so predictions must use the rounded mean.
            mean = rows.moments.mean.astype(X.dtype).astype(np.float64)
            scaling = replace(scaling, x_mean=mean, x_scale=spread, x_constant=constant)
        return replace(self.preprocessing, scaling=scaling)

    def scaled_rows(self, learned: Preprocessing) -> Array:
        """Raise an error: the rows are not in memory."""
        raise NotImplementedError

    def datasets(self, mesh: Mesh, preprocessing: Preprocessing) -> tuple[Samples, Samples | None]:
        """Return the training rows and the hold-out set."""
        s, loss, (training, validation) = preprocessing.scaling, self._model._loss, self._parts
        arrays = (s.x_mean, s.x_scale, s.y_mean, s.y_scale)
        transform = RowTransform(loss.name, str(mesh.dtype), *arrays, self._class_index, self._class_weight)
        if self.held_out is not None:
            return training.prepared(transform), preprocessing.dataset(mesh, self.held_out, loss)
        return training.prepared(transform), None if validation is None else transform.samples(validation)

    def ranges(self, mesh: Mesh, preprocessing: Preprocessing) -> Ranges | None:
        """Return None: another pass over all rows would take too long."""
        return None


@contextmanager
def open_data(model: Any, X: Any, y: Any, sample_weight: Any, warm: bool) -> Iterator[ArrayData | OutOfCoreData]:
    """Open the data passed to `fit` and close them at the end of the block; `warm` marks a warm start."""
    if callable(X):
        raise DataError(f"X is the function {getattr(X, '__name__', X)!s}; call it and pass the blocks that it yields")
    if not model._out_of_core or not is_out_of_core(X):
        yield ArrayData(model, X, y, sample_weight, model.preprocessing_ if warm else None)
        return
    if warm:
        raise MeshError("warm_start requires samples in memory; set warm_start=False, or fit with a Checkpoint")
    if isinstance(X, Dataset):
        yield OutOfCoreData(model, X)
        return
    rows: Dataset
    if is_dask(X):
        from meshnn.integrations.dask import open_collections

        rows = open_collections(X, y, sample_weight, model._loss.classifies, model._settings())
    else:
        from meshnn.training.out_of_core import RowStore

        source = sources.open_source(X, y, sample_weight)
        with progress("reading", source.n_rows, quiet=model._verbosity() == 0) as report:
            rows = RowStore(source, model._loss.classifies, report=report)
    try:
        yield OutOfCoreData(model, rows)
    finally:
        rows.release()

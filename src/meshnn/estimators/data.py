"""Where a fit takes its samples from: memory, or rows that do not fit in it."""

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
from meshnn.losses.moments import is_constant
from meshnn.mesh import Mesh
from meshnn.progress import progress
from meshnn.tables import sources
from meshnn.tables.encoder import Column, Encoder
from meshnn.tables.holdout import HoldoutSplit
from meshnn.tables.sources import RowBlock
from meshnn.training.dataset import Dataset
from meshnn.training.row_transform import RowTransform
from meshnn.training.samples import Samples


def is_out_of_core(X: Any) -> bool:
    """Return whether X is something else than samples in memory."""
    return sources.is_out_of_core(X) or isinstance(X, Dataset) or is_dask(X)


class ArrayData:
    """Samples in memory, as `fit` was given them; `known` is the preprocessing that a warm start continues with."""

    batch: int | None = None  # best batch size, if the data decide it
    held_out: RowBlock | None = None  # samples in memory to validate with

    def __init__(self, model: Any, X: Any, y: Any, sample_weight: Any, known: Preprocessing | None) -> None:
        self._model, self._given, self._new = model, X, known is None
        self.preprocessing, self.samples, self.n_outputs = model._checked(X, y, sample_weight, known, known is None)
        self.target_shape = self.samples.y.shape[1:]

    @property
    def longest(self) -> int:
        """Steps of the longest sequence; 0 of rows."""
        parts = [part.X for part in (self.samples, self.held_out) if part is not None]
        return max(int(max(getattr(X, "lengths", [0]))) for X in parts)

    @property
    def n_samples(self) -> int:
        """Samples to learn from that have a weight."""
        weight = self.samples.weight
        return int(self.samples.X.shape[0] if weight is None else np.count_nonzero(weight > 0))

    def described(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return arrays and texts that identify these data."""
        return {"X": self.samples.X, "y": self.samples.y, "sample_weight": self.samples.weight}, {}

    def hold_out(self, share: float, seed: int) -> None:
        """Hold out a share of the samples, at least one; one must be left."""
        targets, weight, n = self.samples.y, self.samples.weight, len(self.samples.y)
        if n < 2:
            raise DataError("early_stopping holds samples out, but there is only one; set early_stopping=False")
        labels = targets if isinstance(targets, np.ndarray) and targets.ndim == 1 else None
        split = HoldoutSplit.stratified(n, min(math.ceil(share * n), n - 1), seed, labels)
        parts = (split.kept, split.held)
        if len(split.held) == 0 or (weight is not None and not all(weight[part].any() for part in parts)):
            what = "early_stopping needs samples with a weight to learn from and to hold out"
            raise DataError(f"{what}, two of a class at least; set early_stopping=False")
        if self._new and self.preprocessing.encoder is not None:  # nothing is learned from what is held out
            most, name = self._model.max_categories, type(self._model).__name__
            self.preprocessing, X = self.preprocessing.learn(self._given, most, name, rows=split.kept)
            self.samples = self.samples._replace(X=X)
        self.samples, self.held_out = self.samples.take(split.kept), self.samples.take(split.held)

    def learn(self, activation: str) -> Preprocessing:
        """Return the preprocessing with the scaling learned.

        Where nothing depends on the net while it learns, it may learn from rotated inputs.
        """
        model = self._model
        watched = [model.mesh, model.structure, model._checkpoint(), model._stopping().scoring, *model._callbacks()]
        free = all(given is None for given in watched) and not hasattr(model, "_skl_callbacks")
        rotate = free and model.l1 == 0.0 and bool(model.standardize)
        return self.preprocessing.scaled(self.samples, model._loss, model.standardize, activation, rotate)

    def datasets(self, mesh: Mesh, preprocessing: Preprocessing) -> tuple[Samples, Samples | None]:
        """Return samples to train with and samples to validate with."""
        loss, held_out = self._model._loss, self.held_out
        validation = None if held_out is None else preprocessing.dataset(mesh, held_out, loss)
        return preprocessing.dataset(mesh, self.samples, loss), validation

    def ranges(self, mesh: Mesh, preprocessing: Preprocessing) -> Ranges | None:
        """Return the ranges of features and states of a trained net, which exports in integers need."""
        return Ranges.of(preprocessing.blueprint(mesh), Ranges.rows(self.samples.X))


class OutOfCoreData:
    """Rows that are not in memory: on disk, in blocks or on other machines."""

    longest = 0
    target_shape: tuple[int, ...]  # of one sample
    held_out: RowBlock | None = None  # given by the user, in memory
    _class_index: Array | None = None
    _class_weight: Array | None = None

    def __init__(self, model: Any, rows: Dataset) -> None:
        self._model, self._rows, self.batch, self.n_samples = model, rows, rows.batch_size, rows.n_rows
        if model._stopping().scoring is not None:
            raise MeshError("scoring is for samples in memory; leave it out: held-out rows are judged by the loss")
        self.preprocessing = Preprocessing(rows.n_features)
        if rows.columns is not None:  # columns of tables to predict are selected by name, gaps are filled with means
            means = zip(rows.columns, rows.moments.mean.tolist(), strict=True)
            encoder = Encoder(tuple(Column(name, "numeric", fill=mean) for name, mean in means), True, {})
            self.preprocessing = replace(self.preprocessing, names=tuple(rows.columns), encoder=encoder)
        self._parts: tuple[Dataset, Dataset | None] = (rows, None)  # to train and to validate with
        if model._loss.classifies:
            model._targets(np.array(rows.labels), None, True)  # sets the classes, or refuses them
            self.n_outputs, self.target_shape = len(rows.labels), ()
            return
        least = 0.0 if rows.y_min is None else float(rows.y_min.min())
        if model._loss.logarithmic and least < 0:
            raise DataError(f"for {model._loss.name} y must not be negative, got {least:g}")
        model._flat, self.n_outputs, self.target_shape = not rows.matrix_targets, rows.n_targets, (rows.n_targets,)

    def described(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return arrays and texts that identify these data."""
        return {}, {"data": self._rows.fingerprint, "labels": repr(self._rows.labels)}

    def hold_out(self, share: float, seed: int) -> None:
        """Hold out a share of the rows."""
        self._parts = self._rows.hold_out(share, seed)

    def learn(self, activation: str) -> Preprocessing:
        """Return the preprocessing with the scaling learned: features from all rows, targets from some of them."""
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
            # what is subtracted from float32 is rounded to it: predictions must subtract the same
            mean = rows.moments.mean.astype(X.dtype).astype(np.float64)
            scaling = replace(scaling, x_mean=mean, x_scale=spread, x_constant=constant)
        return replace(self.preprocessing, scaling=scaling)

    def datasets(self, mesh: Mesh, preprocessing: Preprocessing) -> tuple[Samples, Samples | None]:
        """Return rows to train with and rows to validate with."""
        s, loss, (training, validation) = preprocessing.scaling, self._model._loss, self._parts
        arrays = (s.x_mean, s.x_scale, s.y_mean, s.y_scale)
        transform = RowTransform(loss.name, str(mesh.dtype), *arrays, self._class_index, self._class_weight)
        if self.held_out is not None:
            return training.prepared(transform), preprocessing.dataset(mesh, self.held_out, loss)
        return training.prepared(transform), None if validation is None else validation.prepared(transform)

    def ranges(self, mesh: Mesh, preprocessing: Preprocessing) -> Ranges | None:
        """Return None: reading all rows once more takes too long."""
        return None


@contextmanager
def open_data(model: Any, X: Any, y: Any, sample_weight: Any, again: bool) -> Iterator[ArrayData | OutOfCoreData]:
    """Open what `fit` was given, as long as it is needed; `again` if a warm start continues an earlier fit."""
    if callable(X):
        raise DataError(f"X is the function {getattr(X, '__name__', X)!s}; pass the blocks that it gives")
    if not model._out_of_core or not is_out_of_core(X):
        yield ArrayData(model, X, y, sample_weight, model.preprocessing_ if again else None)
        return
    if again:
        raise MeshError("warm_start is for samples in memory; set warm_start=False, or fit with a checkpoint")
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
        with progress("reading", source.n_rows, quiet=model._verbosity() == 0) as told:
            rows = RowStore(source, model._loss.classifies, report=told)
    try:
        yield OutOfCoreData(model, rows)
    finally:
        rows.release()

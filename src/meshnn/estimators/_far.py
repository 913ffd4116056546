"""Samples that are not in memory: on a disk, in blocks, on other machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.arguments import real_number, switch
from meshnn.arrays import Array
from meshnn.data.large import is_large, open_source
from meshnn.errors import DataError, MeshError
from meshnn.estimators._building import seed_of
from meshnn.estimators._fitted import is_dask
from meshnn.estimators._resuming import Resumes
from meshnn.estimators._scaling import Scaling, check_activation
from meshnn.estimators._watching import as_callbacks, verbosity
from meshnn.losses.moments import is_constant
from meshnn.progress import reading
from meshnn.training import Trainer
from meshnn.training.checkpoint import Checkpoint, fingerprint
from meshnn.training.far import Look, OutOfCoreDataset
from meshnn.training.samples import Dataset

__all__ = ["LearnsFromAfar", "is_far"]

#: Rows that tell how targets are to be scaled.
FEW = 2**15


def is_far(X: Any) -> bool:
    """Whether X is something else than samples in memory."""
    return is_large(X) or isinstance(X, OutOfCoreDataset) or is_dask(X)


class LearnsFromAfar(Resumes):
    """A fit on rows that are not in memory, up to its trainer."""

    _far = True  # whether there is one

    @contextmanager
    def _far_rows(self, X: Any, y: Any, sample_weight: Any) -> Iterator[OutOfCoreDataset]:
        """The rows, as long as they are needed."""
        if not self._far:
            name = type(self).__name__
            raise DataError(
                f"X must be a list of arrays: {name} learns from sequences in memory; pass arrays, or a list of them"
            )
        if isinstance(X, OutOfCoreDataset):
            yield X
            return
        if is_dask(X):
            from meshnn.integrations.dask import open_rows

            rows: OutOfCoreDataset = open_rows(X, y, sample_weight, self._loss.classifies, self._settings())
        else:
            from meshnn.training.stored import StoredRows

            source = open_source(X, y, sample_weight)
            with reading(verbosity(self.verbose), source.expected) as told:
                rows = StoredRows(source, self._loss.classifies, told=told)
        try:
            yield rows
        finally:
            rows.release()

    def _prepared_far(self, rows: OutOfCoreDataset, X_val: Any, y_val: Any, checkpoint: Checkpoint | None) -> Trainer:
        """All that comes before the first epoch."""
        settings = self._settings()
        if rows.batch is not None:
            settings = replace(settings, batch_size=rows.batch)
        as_callbacks(self.callbacks), verbosity(self.verbose)
        if switch("warm_start", self.warm_start) and hasattr(self, "mesh_"):
            raise MeshError("warm_start is for samples in memory; set warm_start=False, or fit with a checkpoint")
        if self.scoring is not None:
            raise MeshError("scoring is for samples in memory; leave it out: held-out rows are judged by the loss")
        for name in ("encoder_", "target_", "feature_names_in_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self.n_features_in_ = rows.width
        if rows.names is not None:
            self.feature_names_in_ = np.array(rows.names, object)
        n_outputs = self._far_targets(rows)
        held_out = self._held_in_memory(X_val, y_val)
        run, resumed, seed = None, None, seed_of(self.random_state)
        if checkpoint is not None:
            data = {} if held_out is None else {"X_val": held_out[0], "y_val": held_out[1]}
            run = fingerprint(self._run_parameters(), data) | {"data": rows.stamp, "labels": repr(rows.labels)}
            resumed, seed = self._resumed(checkpoint, run, seed)
        seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
        if switch("early_stopping", self.early_stopping) and held_out is None:
            share = real_number(
                "validation_fraction", self.validation_fraction, "a number between 0 and 1", lambda v: 0 < v < 1
            )
            rows.hold_out(share, seeds[0])
        check_activation(self.output_activation, self._loss, n_outputs)
        look = self._look(rows, n_outputs)
        self.loss_, self._built, self._rotation = self._loss.name, self._net(), None
        choice = self._build_net(
            rows.count, rows.width, n_outputs, settings, seeds[1], dtype=None if resumed is None else resumed.dtype
        )
        look = replace(look, dtype_name=str(self.mesh_.dtype))
        validation: Dataset | None = None
        if held_out is not None:
            validation = self._samples(*held_out)
        elif self.early_stopping:
            validation = rows.held_out(look)
        trainer = Trainer(
            self.mesh_, rows.samples(look), settings, validation, seeds[2], self.structure, choice, None, ("", None),
            self._drawn,
        )  # fmt: skip
        self._stream_seed, self._solver_state = seeds[2], None
        self._seen = 0.0
        self.__dict__.pop("_structure", None)
        if checkpoint is not None and run is not None:
            self._go_on(trainer, checkpoint, run, resumed, seed)
        return trainer

    def _held_in_memory(self, X_val: Any, y_val: Any) -> Any:
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            raise DataError("X_val and y_val go together; pass both, or neither")
        if is_far(X_val):
            raise DataError(f"X_val is {type(X_val).__name__}, expected rows in memory; read those to be held out")
        found, targets, weight, _ = self._checked(X_val, y_val, None, reset=False, first=False)
        return found, targets, weight

    def _far_targets(self, rows: OutOfCoreDataset) -> int:
        """What y says about the net: the number of outputs."""
        if not self._loss.classifies:
            if self._loss.logarithmic and rows.y_least is not None and rows.y_least.min() < 0:
                raise DataError(f"for {self._loss.name} y must not be negative, got {rows.y_least.min():g}")
            self._flat = not rows.several
            return int(rows.few(1)[1].shape[1])
        labels = np.array(rows.labels)
        self._targets(labels, None, first=True)  # sets the classes, or refuses them
        return len(labels)

    def _look(self, rows: OutOfCoreDataset, n_outputs: int) -> Look:
        """How the net sees the rows; sets the scaling."""
        X, y, weight = rows.few(FEW)
        wanted = switch("standardize", self.standardize)
        weight = weight if weight is None or weight.any() else None
        places, class_weight = None, None
        targets: Array = y
        if self._loss.classifies:
            classifier: Any = self
            places = np.searchsorted(classifier.classes_, np.array(rows.labels))
            targets = places[y[:, 0].astype(np.int64)]
            if getattr(self, "class_weight", None) is not None:
                sums = np.zeros(n_outputs)
                sums[places] = rows.label_sums
                class_weight = classifier._class_weights(np.arange(n_outputs), sums, classifier.classes_.tolist())
        scaling = Scaling.learn(X.astype(np.float64), targets, weight, wanted, self._loss, self.output_activation)
        if wanted:
            constant = is_constant(rows.x_mean, rows.x_spread)
            spread = np.where(constant, 1.0, rows.x_spread)
            # what is subtracted from float32 is rounded to it: predictions must subtract the same
            mean = rows.x_mean.astype(X.dtype).astype(np.float64)
            scaling = replace(scaling, x_mean=mean, x_scale=spread, x_constant=constant)
        self._scaling = scaling
        arrays = (scaling.x_mean, scaling.x_scale, scaling.y_mean, scaling.y_scale)
        return Look(self._loss.name, "float32", *arrays, places, class_weight)

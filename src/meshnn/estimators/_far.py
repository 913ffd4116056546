"""Samples that are not in memory: on a disk, in blocks, on other machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.arguments import real_number, switch
from meshnn.arrays import Array
from meshnn.data.sources import is_out_of_core, open_source
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
from meshnn.training.dataset import Dataset
from meshnn.training.preprocessing import Preprocessing
from meshnn.training.samples import Samples

__all__ = ["LearnsFromAfar", "is_far"]

#: Rows that tell how targets are to be scaled.
FEW = 2**15


def is_far(X: Any) -> bool:
    """Whether X is something else than samples in memory."""
    return is_out_of_core(X) or isinstance(X, Dataset) or is_dask(X)


class LearnsFromAfar(Resumes):
    """A fit on rows that are not in memory, up to its trainer."""

    _far = True  # whether there is one

    @contextmanager
    def _far_rows(self, X: Any, y: Any, sample_weight: Any) -> Iterator[Dataset]:
        """The rows, as long as they are needed."""
        if not self._far:
            name = type(self).__name__
            raise DataError(
                f"X must be a list of arrays: {name} learns from sequences in memory; pass arrays, or a list of them"
            )
        if isinstance(X, Dataset):
            yield X
            return
        if is_dask(X):
            from meshnn.integrations.dask import open_collections

            rows: Dataset = open_collections(X, y, sample_weight, self._loss.classifies, self._settings())
        else:
            from meshnn.training.out_of_core import RowStore

            source = open_source(X, y, sample_weight)
            with reading(verbosity(self.verbose), source.n_rows) as told:
                rows = RowStore(source, self._loss.classifies, report=told)
        try:
            yield rows
        finally:
            rows.release()

    def _prepared_far(self, rows: Dataset, X_val: Any, y_val: Any, checkpoint: Checkpoint | None) -> Trainer:
        """All that comes before the first epoch."""
        settings = self._settings()
        if rows.batch_size is not None:
            settings = replace(settings, batch_size=rows.batch_size)
        as_callbacks(self.callbacks), verbosity(self.verbose)
        if switch("warm_start", self.warm_start) and hasattr(self, "mesh_"):
            raise MeshError("warm_start is for samples in memory; set warm_start=False, or fit with a checkpoint")
        if self.scoring is not None:
            raise MeshError("scoring is for samples in memory; leave it out: held-out rows are judged by the loss")
        for name in ("encoder_", "target_", "feature_names_in_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self.n_features_in_ = rows.n_features
        if rows.columns is not None:
            self.feature_names_in_ = np.array(rows.columns, object)
        n_outputs = self._far_targets(rows)
        held_out = self._held_in_memory(X_val, y_val)
        run, resumed, seed = None, None, seed_of(self.random_state)
        if checkpoint is not None:
            data = {} if held_out is None else {"X_val": held_out[0], "y_val": held_out[1]}
            run = fingerprint(self._run_parameters(), data) | {"data": rows.fingerprint, "labels": repr(rows.labels)}
            resumed, seed = self._resumed(checkpoint, run, seed)
        seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
        training, validated = rows, None
        if switch("early_stopping", self.early_stopping) and held_out is None:
            share = real_number(
                "validation_fraction", self.validation_fraction, "a number between 0 and 1", lambda v: 0 < v < 1
            )
            training, validated = rows.hold_out(share, seeds[0])
        check_activation(self.output_activation, self._loss, n_outputs)
        preprocessing = self._preprocessing(rows, n_outputs)
        self.loss_, self._built, self._rotation = self._loss.name, self._net(), None
        choice = self._build_net(
            rows.n_rows,
            rows.n_features,
            n_outputs,
            settings,
            seeds[1],
            dtype=None if resumed is None else resumed.dtype,
        )
        preprocessing = replace(preprocessing, dtype_name=str(self.mesh_.dtype))
        validation: Samples | None = None
        if held_out is not None:
            validation = self._samples(*held_out)
        elif validated is not None:
            validation = validated.prepared(preprocessing)
        trainer = Trainer(
            self.mesh_, training.prepared(preprocessing), settings, validation, seeds[2], self.structure, choice, None,
            ("", None), self._drawn,
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

    def _far_targets(self, rows: Dataset) -> int:
        """What y says about the net: the number of outputs."""
        if not self._loss.classifies:
            if self._loss.logarithmic and rows.y_min is not None and rows.y_min.min() < 0:
                raise DataError(f"for {self._loss.name} y must not be negative, got {rows.y_min.min():g}")
            self._flat = not rows.matrix_targets
            return rows.n_targets
        labels = np.array(rows.labels)
        self._targets(labels, None, first=True)  # sets the classes, or refuses them
        return len(labels)

    def _preprocessing(self, rows: Dataset, n_outputs: int) -> Preprocessing:
        """Learn the scaling of features and targets."""
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
            constant = is_constant(rows.moments.mean, rows.moments.spread)
            spread = np.where(constant, 1.0, rows.moments.spread)
            # what is subtracted from float32 is rounded to it: predictions must subtract the same
            mean = rows.moments.mean.astype(X.dtype).astype(np.float64)
            scaling = replace(scaling, x_mean=mean, x_scale=spread, x_constant=constant)
        self._scaling = scaling
        arrays = (scaling.x_mean, scaling.x_scale, scaling.y_mean, scaling.y_scale)
        return Preprocessing(self._loss.name, "float32", *arrays, places, class_weight)

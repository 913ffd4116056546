"""What the classifier and the regressor share: a fit from its beginning to its end, predicting, saving."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from meshnn import storage
from meshnn.arguments import switch
from meshnn.arrays import Array, FloatArray
from meshnn.checks import all_finite
from meshnn.errors import DataError, MeshError, TrainingInterrupted
from meshnn.estimators._building import seed_of
from meshnn.estimators._far import LearnsFromAfar, is_far
from meshnn.estimators._samples import Part
from meshnn.estimators._scaling import is_sparse, row_blocks
from meshnn.estimators._watching import as_callbacks, verbosity
from meshnn.export.ranges import Ranges
from meshnn.storage import Tree
from meshnn.training import HistoryRow, Settings, Trainer
from meshnn.training.checkpoint import Checkpoint, fingerprint
from meshnn.training.laplace import Laplace, affordable
from meshnn.training.reporting import reporter
from meshnn.training.sensitivity import importances
from meshnn.training.signals import heard_interrupts, sigterm_interrupts
from meshnn.training.solvers import Choice, solver_named

__all__ = ["BaseMesh"]

#: What becomes float64 without loss; whatever is scaled does.
FLOATS = (np.float64, np.float32)


class BaseMesh(LearnsFromAfar):
    """Everything but what the outputs mean."""

    _kind: str
    _under_way: str  # the weights that a run with a checkpoint began from, until it has come to its end
    feature_importances_: FloatArray

    # -- fitting -------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Learn from samples.

        Parameters
        ----------
        X : array_like, DataFrame or scipy.sparse matrix (n_samples, n_features)
            What does not fit in memory: the path of a Parquet file, of a folder of them or of a `.npy` file, a large
            memory map, an iterator of blocks `(X, y)`, a DataFrame or an array of Dask; see docs/large.md.
        y : array_like (n_samples,), or (n_samples, n_outputs) for regression and for several labels a sample
            Of Parquet files and of tables the name of a column, or several.
        sample_weight : array_like (n_samples,), optional
            Of Parquet files and of tables the name of a column.
        X_val, y_val : array_like, optional
            Samples to hold out: the weights that do best on them are kept, and training stops when they do no better.

        Returns
        -------
        self

        Raises
        ------
        TrainingInterrupted
            By Ctrl-C: a KeyboardInterrupt that says after which epoch. The estimator is fitted then, with the best
            weights so far, and its checkpoint is up to date. SIGTERM saves the checkpoint, if there is one, and ends
            the process.
        """
        checkpoint = Checkpoint.of(self.checkpoint)
        terminated: list[int] = []
        try:
            with ExitStack() as held, self._as_it_was_if_refused():
                if callable(X):
                    raise DataError(f"X is the function {getattr(X, '__name__', X)!s}; pass the blocks that it gives")
                if is_far(X) and (self._far or not isinstance(X, np.ndarray)):
                    rows = held.enter_context(self._far_rows(X, y, sample_weight))
                    trainer = self._prepared_far(rows, X_val, y_val, checkpoint)
                else:
                    trainer = self._prepared(X, y, sample_weight, X_val, y_val, checkpoint)
                held = held.pop_all()
            with held, sigterm_interrupts(terminated, wanted=checkpoint is not None):
                self._run(trainer, checkpoint)
            self._keep_ranges()
        finally:
            if checkpoint is not None:
                checkpoint.end()
            if terminated:  # all is saved: now the process ends as it was told to
                signal.raise_signal(signal.SIGTERM)
        return self

    def _prepared(
        self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, checkpoint: Checkpoint | None
    ) -> Trainer:
        """All that comes before the first epoch."""
        settings = self._settings()
        as_callbacks(self.callbacks), verbosity(self.verbose)
        again = switch("warm_start", self.warm_start) and hasattr(self, "mesh_")
        given = X
        X, targets, weight, n_outputs = self._checked(X, y, sample_weight, reset=not again, first=not again)
        held_out: Part | None = None
        if X_val is not None or y_val is not None:
            if X_val is None or y_val is None:
                raise DataError("X_val and y_val go together; pass both, or neither")
            held_out = self._held_out(X_val, y_val, targets)
        seed = seed_of(self.random_state)
        run, resumed = None, None
        if checkpoint is not None:
            start = self.mesh_.weights if again else None
            data = {"X": X, "y": targets, "sample_weight": weight, "weights": start}
            if held_out is not None:
                data |= {"X_val": held_out[0], "y_val": held_out[1]}
            run = fingerprint(self._run_parameters(), data)
            if again and hasattr(self, "_under_way"):
                run["weights"] = self._under_way  # an interrupted run goes on, whatever weights it has got to
            self._under_way = run["weights"]
            resumed, seed = self._resumed(checkpoint, run, seed)
        seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
        kept: Part = (X, targets, weight)
        if switch("early_stopping", self.early_stopping) and held_out is None:
            parts = self._split(targets, seeds[0])
            if weight is not None and not all(weight[rows].any() for rows in parts):
                raise DataError("early_stopping needs samples with a weight on both sides; set early_stopping=False")
            if hasattr(self, "encoder_") and not again:
                X = self._learn_encoder(given, parts[0])  # of what is held out nothing is learned
            kept, held_out = ((X[rows], targets[rows], None if weight is None else weight[rows]) for rows in parts)
        self._range_rows = Ranges.rows(kept[0])
        memory: tuple[str, Tree | None] = ("", None)
        if again:
            choice, settings, memory = self._as_before(settings)
        else:
            dtype = None if resumed is None else resumed.dtype
            choice = self._build(*kept, n_outputs, settings, seeds[1], dtype=dtype)
        self._check_same_net(X.shape[1], n_outputs)
        validation = None if held_out is None else self._samples(*held_out)
        score = None
        if self.scoring is not None:
            if held_out is None:
                raise MeshError("scoring needs held-out samples; set early_stopping=True, or fit with X_val and y_val")
            score = self._scorer(*held_out[:2])
        trainer = Trainer(
            self.mesh_, self._samples(*kept), settings, validation, seeds[2], self.structure, choice, score, memory,
            self._drawn,
        )  # fmt: skip
        self._stream_seed, self._solver_state = seeds[2], None  # where partial_fit would go on
        self._seen = 0.0
        self.__dict__.pop("_structure", None)
        if checkpoint is not None and run is not None:
            self._go_on(trainer, checkpoint, run, resumed, seed)
        return trainer

    def _as_before(self, settings: Settings) -> tuple[Choice, Settings, tuple[str, Tree | None]]:
        """The solver, the penalty and the memory of the fit that a warm start goes on from, where they are not given.

        To try others on samples held out would tell little: the net has learned from all of them.
        """
        asked = settings.solver != "auto"
        kind = solver_named(settings.solver if asked else self.solver_)
        choice = Choice(kind, "as asked for" if asked else "that of the fit before")
        state = self._solver_state if kind.warms and kind.name == self.solver_ else None
        if isinstance(settings.l2, str) and not self._l2_found:  # it was given before, and is to be found now
            return choice, settings, ("", None)
        if settings.l2 == "auto" and (state is None or state["penalties"] is None):
            settings = replace(settings, l2=float(self.l2_))
        return choice, settings, (kind.name, state)

    @contextmanager
    def _as_it_was_if_refused(self) -> Iterator[None]:
        """Half of what a new fit would have set beside half of the old model would make wrong predictions."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _run(self, trainer: Trainer, checkpoint: Checkpoint | None) -> None:
        """Ask for all rows, and hand them to whoever wants to see them."""
        callbacks = as_callbacks(self.callbacks)
        report = reporter(verbosity(self.verbose), trainer)
        self._sync_fitted_attributes(trainer)
        self._forget_conclusions("the fit did not come to its end; fit again")
        try:
            with report as show, heard_interrupts() as check:
                trainer.on_pulse = self._on_pulse(show.pulse, checkpoint)
                for row in trainer.rows():
                    show(row)
                    answers = [callback(row, self.mesh_) for callback in callbacks]  # all of them see the row
                    if any(answers) and not trainer.finished:
                        trainer.stop("stopped by a callback")
                    if checkpoint is not None:
                        checkpoint.row()
                    check()
            self._finalize(trainer)
            if checkpoint is not None:
                checkpoint.save()
            self.__dict__.pop("_under_way", None)
            if fall := trainer.fall_at_end():
                what = f"training ended after {trainer.epochs} epochs, but the loss still fell by"
                warnings.warn(ConvergenceWarning(f"{what} {fall:.2g} an epoch; raise max_epochs"), stacklevel=3)
        except KeyboardInterrupt:
            trainer.stop("interrupted", to_go_on=True)
            resume, path = "", None
            if checkpoint is not None:
                checkpoint.save()
                if checkpoint.exists:
                    path = checkpoint.path
                    resume = f"; fit again with checkpoint={str(path)!r} to go on"
            epoch = trainer.history[-1].epoch if len(trainer.history) else 0
            kept = f"after epoch {epoch}: the best weights so far are kept" if epoch else "before its first epoch"
            message = f"training was interrupted {kept}{resume}"
            raise TrainingInterrupted(message, epoch, path) from None
        except BaseException:
            trainer.stop("stopped by an error", to_go_on=True)  # whoever catches it has the best weights so far
            raise
        finally:
            self._sync_fitted_attributes(trainer)
            if self._rotation is not None:
                self.mesh_, self._rotation = self._rotation.undone(self.mesh_), None

    def _on_pulse(self, show: Callable[[int], None], checkpoint: Checkpoint | None) -> Callable[[int], None]:
        """What happens in the middle of an epoch of samples that are not in memory."""

        def pulse(done: int) -> None:
            show(done)
            if checkpoint is not None:
                checkpoint.row()

        return pulse

    def _finalize(self, trainer: Trainer) -> None:
        """What only the samples tell about the net, as they are not kept."""
        mesh, samples = self.mesh_, trainer.samples
        try:
            found = importances(mesh, samples, None if self._rotation is None else self._rotation.axes)
            if found is not None:
                self.feature_importances_ = self._by_column(found)
            if not self._loss.classifies:
                refused = affordable(mesh, samples, trainer.choice.kind.wants_float64)
                if self._rotation is not None:
                    refused = "there are more columns than rows"
                if samples.near is None:  # refused, too
                    self._laplace = refused
                else:
                    self._laplace = refused or Laplace.of(mesh, samples.near, trainer.penalties)
        except MeshError as error:  # the net is fitted, whatever is not known about it
            self._laplace = str(error)

    def _keep_ranges(self) -> None:
        """Keep the ranges of features and states on the training rows, which exports in integers need."""
        rows = self.__dict__.pop("_range_rows", None)
        model: Any = self  # classifiers and regressors have a blueprint
        self._ranges = None if rows is None else Ranges.of(model.blueprint(), rows)

    # -- predicting ----------------------------------------------------------------------------------------------

    def _features(self, X: Any) -> Any:
        """Features as `fit` has seen them."""
        if self._needs_no_check(X):
            return X
        check_is_fitted(self, "mesh_")
        if isinstance(X, (str, PathLike)):
            raise DataError(f"{X} is a path, and predictions are of samples in memory; read it, or use meshnn predict")
        encoded = self._encoded(X)
        if encoded is not None:
            return encoded
        return validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")

    def _needs_no_check(self, X: Any) -> bool:
        """Whether scikit-learn would hand back these numbers: its checks take ten times as long as to predict a row.

        What is not told at a glance is left to it, and with it every warning and refusal.
        """
        if type(X) is not np.ndarray or X.dtype not in FLOATS or X.ndim != 2 or len(X) == 0:
            return False
        known = self.__dict__
        if "mesh_" not in known or "encoder_" in known or "feature_names_in_" in known:
            return False
        return X.shape[1] == known.get("n_features_in_") and all_finite(X)

    def _inputs(self, X: Any) -> Array:
        return self._scaling.inputs(self._features(X), self.mesh_.dtype)

    def _outputs(self, X: Any) -> Array:
        X = self._features(X)
        if not is_sparse(X):
            return self.mesh_.forward(self._scaling.inputs(X), n_threads=self.n_threads)
        parts = (self._scaling.inputs(X[rows], self.mesh_.dtype) for rows in row_blocks(*X.shape))  # one at a time
        return np.concatenate([self.mesh_.forward(part, n_threads=self.n_threads) for part in parts])

    @property
    def loss_curve_(self) -> list[float]:
        """The training loss of every row of the history; of several starts, those of the one that is kept."""
        return [row.loss for row in self._rows_kept()]

    @property
    def validation_scores_(self) -> list[float]:
        """The loss of held-out samples, or their score if there is `scoring`, row by row; there must be some."""
        scores = [row.validation for row in self._rows_kept()]
        if not any(score == score for score in scores):
            raise AttributeError("validation_scores_: no samples were held out; set early_stopping=True, or pass X_val")
        return scores

    def _rows_kept(self) -> list[HistoryRow]:
        check_is_fitted(self, "mesh_")
        return [row for row in self.history_ if row.restart == self.best_restart_]

    def explain(self, batch_size: int = 64) -> str:
        """What each gradient method costs on the fitted net, and why this solver was taken."""
        check_is_fitted(self, "mesh_")
        return f"{self.mesh_.explain(batch_size)}\nsolver {self.solver_}: {self.solver_reason_}."

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to a `.mesh` file; `meshnn.load` reads it."""
        from meshnn.estimators._storage import to_tree

        check_is_fitted(self, "mesh_")
        storage.write(path, to_tree(self))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mesh_")

"""`BaseMesh`: what all estimators share, except the meaning of their outputs: fit, save, and what a fit reports."""

from __future__ import annotations

import math
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from html import escape
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from meshnn import storage
from meshnn.arguments import real_number, switch
from meshnn.arrays import Array, FloatArray
from meshnn.errors import DataError, MeshError
from meshnn.estimators.builder import NetBuilder
from meshnn.estimators.continuing import as_before, describe_run, go_on, interrupted
from meshnn.estimators.data import ArrayData, OutOfCoreData, is_out_of_core, open_data
from meshnn.estimators.outputs import Outputs
from meshnn.estimators.params import Parameters, SklearnCallbacks, with_callbacks
from meshnn.estimators.preprocessing import Preprocessing
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.tables.sources import RowBlock
from meshnn.topology import Topology
from meshnn.training import History, HistoryRow, Settings, Trainer
from meshnn.training.callbacks import Callback, Checkpoint
from meshnn.training.laplace import Laplace, affordable
from meshnn.training.reporting import reporter
from meshnn.training.samples import InMemorySamples
from meshnn.training.sensitivity import importances
from meshnn.training.signals import heard_interrupts, sigterm_interrupts
from meshnn.training.solvers import Choice


class BaseMesh(Parameters, Outputs):
    """A `Preprocessing`, a net that a `NetBuilder` makes, and a `Trainer`; subclasses define the targets."""

    _preprocessing_type: type[Preprocessing] = Preprocessing
    _builder_type: type[NetBuilder] = NetBuilder
    _out_of_core = True  # whether it learns from rows that are not in memory

    solver_: str
    solver_reason_: str
    history_: History
    n_iter_: int
    best_restart_: int
    l2_: float
    feature_importances_: FloatArray
    target_: str  # the column that `meshnn fit` has learned to predict
    _built: dict[str, Any]  # the parameters that the net was built from
    _made: Mesh | Topology | None = None  # what the parameter `mesh` stood for when the net was built
    _laplace: Any  # of a regressor: the uncertainty of the weights, or why it is not known
    _l2_found: bool  # whether the penalty was found rather than given
    _solver_state: Tree | None  # what partial_fit or a warm start continues with
    _stream_seed: int
    _stream_weight = 0.0  # samples of a stream that the scaling was learned from; 0: it comes from `fit` and stays
    _under_way: str  # the weights that a run with a checkpoint began from, until it has ended

    # methods of subclasses:
    _checked_y: Callable[[Any, Any], Any]  # y as scikit-learn checks it
    _targets: Callable[[Any, Array | None, bool], tuple[Any, Array | None, int]]  # with weights and number of outputs
    _answers: Callable[[Any], Any]  # the inverse: y in the form of predictions

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, known: Preprocessing | None, first: bool
    ) -> tuple[Preprocessing, RowBlock, int]:
        """Return a preprocessing (a new one unless one is `known`), checked samples and the number of outputs."""
        name = type(self).__name__
        if y is None:
            raise DataError(f"{name} requires y to be passed, but the target y is None")
        if known is None:
            preprocessing, features = self._preprocessing_type.learn(X, self.max_categories, name, not first)
        else:
            preprocessing, features = known, known.features(X, name)
        if features.shape[0] == 0:
            raise DataError("X has no rows; pass at least one sample")
        y = self._checked_y(y, features)
        check_consistent_length(features, y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, features, dtype=np.float64)
        targets, weight, n_outputs = self._targets(y, weight, first)
        if weight is not None and not (weight.min() >= 0 and weight.any()):
            k = int(weight.argmin())
            raise DataError(f"the weight of sample {k} is {weight[k]:g}; pass weights of at least 0, not all of them 0")
        return preprocessing, RowBlock(features, targets, weight), n_outputs

    def _checked_apart(self, X: Any, y: Any, data: ArrayData | OutOfCoreData) -> RowBlock:
        """Return samples to hold out, checked like those to learn from."""
        if X is None or y is None:
            raise DataError("X_val and y_val go together; pass both, or neither")
        if is_out_of_core(X) and not isinstance(X, np.ndarray):
            raise DataError(f"X_val is {type(X).__name__}, expected rows in memory; read those to be held out")
        before = dict(self.__dict__)
        _, samples, _ = self._checked(X, y, None, data.preprocessing, False)
        self.__dict__.update(before)  # the form of y is decided by the samples to learn from
        if samples.y.shape[1:] != data.target_shape:
            raise DataError("y_val and y do not have the same columns; pass targets of the same kind")
        return samples

    def _scorer(self, held_out: RowBlock | None) -> Callable[[], float] | None:
        """Return a function that scores the current net on held-out samples."""
        scoring = self._stopping().scoring
        if scoring is None:
            return None
        if held_out is None:
            raise MeshError("scoring needs held-out samples; set validation_fraction, or fit with X_val and y_val")
        model, X, y = copy(self), held_out.X, self._answers(held_out.y)
        model.preprocessing_ = replace(self.preprocessing_, n_features=X.shape[1], names=None, encoder=None)
        scorer = check_scoring(model, scoring)
        return lambda: real_number("the result of scoring", scorer(model, X, y), "a finite number", math.isfinite)

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Learn from samples.

        Parameters
        ----------
        X : array_like, DataFrame or scipy.sparse matrix (n_samples, n_features)
            Columns of a DataFrame are selected by name in `predict`. For data that do not fit in memory: the path of a
            Parquet file, of a folder of them or of a `.npy` file, a large memory map, an iterator of blocks `(X, y)`,
            or a Dask DataFrame or array; see docs/large.md.
        y : array_like (n_samples,), or (n_samples, n_outputs) for regression and for several labels per sample
            For Parquet files and tables the name of a column, or several.
        sample_weight : array_like (n_samples,), optional
            For Parquet files and tables the name of a column.
        X_val, y_val : array_like, optional
            Samples to hold out: the weights that do best on them are kept, and training stops when they improve no
            more.

        Returns
        -------
        self

        Raises
        ------
        TrainingInterrupted
            By Ctrl-C: a KeyboardInterrupt that names the epoch. The estimator is then fitted with the best weights so
            far, and its checkpoint is up to date. SIGTERM saves the checkpoint, if there is one, and ends the process.
        """
        checkpoint = self._checkpoint()
        terminated: list[int] = []
        try:
            with ExitStack() as held, self._unchanged_if_refused():
                settings = self._settings()
                again = switch("warm_start", self.warm_start) and hasattr(self, "mesh_")
                data = held.enter_context(open_data(self, X, y, sample_weight, again))
                if X_val is not None or y_val is not None:
                    data.held_out = self._checked_apart(X_val, y_val, data)
                trainer = self._prepared(data, settings, checkpoint, again)
                callbacks = self._callbacks()
                if hasattr(self, "_skl_callbacks"):
                    callbacks.append(SklearnCallbacks(self, trainer.epochs * settings.n_restarts, X, y))
                if checkpoint is not None:
                    callbacks.append(checkpoint)
                held = held.pop_all()
            with held, sigterm_interrupts(terminated, wanted=checkpoint is not None):
                self._run(trainer, checkpoint, callbacks)
            self._ranges = data.ranges(self.mesh_, self.preprocessing_)
        finally:
            if checkpoint is not None:
                checkpoint.release()
            if terminated:  # everything is saved: now the process ends as the signal demands
                signal.raise_signal(signal.SIGTERM)
        return self

    @contextmanager
    def _unchanged_if_refused(self) -> Iterator[None]:
        """Restore all attributes after an error: a mixture of two fits would predict nonsense."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _prepared(
        self, data: ArrayData | OutOfCoreData, settings: Settings, checkpoint: Checkpoint | None, again: bool
    ) -> Trainer:
        """Return the trainer: everything before the first epoch."""
        if data.batch is not None:
            settings = replace(settings, batch_size=data.batch)
        seed, run, resumed = self._seed(), dict[str, str](), None
        if checkpoint is not None:
            run = describe_run(self, data, again)
            seeded = isinstance(self.random_state, (int, np.integer))  # a generator has moved on since
            resumed = checkpoint.begin(run, seed if seeded else None)
            seed = seed if resumed is None else resumed.seed
        seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
        fraction = self._stopping().validation_fraction
        if fraction is not None and data.held_out is None:
            data.hold_out(fraction, seeds[0])
        memory: tuple[str, Tree | None] = ("", None)
        builder = self._builder_type(self, self._loss, settings, data.longest)
        if again:
            self._continue(builder, data.preprocessing.width, data.n_outputs)
            choice, settings, memory = as_before(self, settings)
        else:
            builder.resolve(data.preprocessing.width, data.n_outputs)
            learned = data.learn(builder.output_activation)
            choice = self._build(builder, learned, data.n_samples, data.n_outputs, seeds[1])
            self.__dict__.pop("target_", None)
        training, validation = data.datasets(self.mesh_, self.preprocessing_)
        trainer = Trainer(
            self.mesh_, training, settings, validation, seeds[2], self.structure, choice, self._scorer(data.held_out),
            memory, builder.start,
        )  # fmt: skip
        self._stream_seed, self._solver_state, self._stream_weight = seeds[2], None, 0.0
        if checkpoint is not None:
            go_on(self, trainer, checkpoint, run, resumed, seed)
        return trainer

    def _build(
        self, builder: NetBuilder, preprocessing: Preprocessing, n_samples: int, n_outputs: int, seed: int,
        stream: bool = False,
    ) -> Choice:  # fmt: skip
        """Make a new net; return the solver for it."""
        n_inputs = preprocessing.width if preprocessing.rotation is None else preprocessing.rotation.rank
        self.loss_, self._built, self._made = self._loss.name, builder.identity(), builder.prototype
        self.mesh_, choice = builder.build(n_samples, n_inputs, n_outputs, seed, stream)
        self.preprocessing_ = replace(preprocessing, reading=builder.reading)
        return choice

    def _continue(self, builder: NetBuilder, n_inputs: int, n_outputs: int) -> None:
        """Prepare the net to continue learning."""
        builder.check_same(self.mesh_, self._built, (n_inputs, n_outputs))
        reading: Any = self.preprocessing_.reading
        if reading is not None:  # these sequences may be longer
            self.mesh_.ticks = reading.ticks(builder.longest)
        if not self.mesh_.values.flags.writeable:  # a memory-mapped model is copied before it is changed
            self.mesh_.weights = np.array(self.mesh_.weights)

    def _run(self, trainer: Trainer, checkpoint: Checkpoint | None, callbacks: list[Callback]) -> None:
        """Train to the end, reporting every row of the history."""
        self._sync_fitted_attributes(trainer)
        self._forget_conclusions("the fit was not completed; fit again")
        try:
            with reporter(self._verbosity(), trainer) as show, heard_interrupts() as check:

                def pulse(done: int) -> None:  # in the middle of an epoch of samples that are not in memory
                    show.pulse(done)
                    if checkpoint is not None:
                        checkpoint.on_epoch_end()

                trainer.on_pulse = pulse
                for callback in callbacks:
                    callback.on_fit_begin()
                for row in trainer.rows():
                    show(row)
                    stopping = [each for each in callbacks if each.on_epoch_end(row, self.mesh_)]  # all see the row
                    if stopping and not trainer.finished:
                        trainer.stop(stopping[0].reason, to_go_on=True)
                    check()
            self._finalize(trainer)
            for callback in callbacks:
                callback.on_fit_end()
            if not trainer.goes_on:
                self.__dict__.pop("_under_way", None)
            if fall := trainer.fall_at_end():
                what = f"training ended after {trainer.epochs} epochs, but the loss still fell by"
                message = f"{what} {fall:.2g} per epoch; raise max_epochs"
                wrapped = hasattr(self, "set_callbacks")  # `with_callbacks` adds a frame
                warnings.warn(ConvergenceWarning(message), stacklevel=3 + wrapped)
        except KeyboardInterrupt:
            raise interrupted(trainer, checkpoint) from None
        except BaseException:
            trainer.stop("stopped by an error", to_go_on=True)  # the best weights so far are kept
            raise
        finally:
            self._sync_fitted_attributes(trainer)
            rotation = self.preprocessing_.rotation
            if rotation is not None:
                self.mesh_ = rotation.undone(self.mesh_)
                self.preprocessing_ = replace(self.preprocessing_, rotation=None)

    def _sync_fitted_attributes(self, trainer: Trainer) -> None:
        """Set the fitted attributes to the current state of training."""
        best = trainer.best
        self._solver_state, self._l2_found = best.memory, isinstance(self.l2, str)
        self.solver_, self.solver_reason_ = trainer.choice.solver.name, trainer.choice.reason
        self.history_, self.l2_, self.best_restart_ = trainer.history, best.l2, best.restart
        self.n_iter_ = max((row.epoch for row in self._rows_kept()), default=0)

    def _forget_conclusions(self, reason: str) -> None:
        """Forget what was concluded about other weights."""
        self.__dict__.pop("feature_importances_", None)
        self._laplace, self._ranges = reason, None

    def _finalize(self, trainer: Trainer) -> None:
        """Compute what only the samples say about the net: importances and the uncertainty of the weights."""
        mesh, samples, rotation = self.mesh_, trainer.samples, self.preprocessing_.rotation
        if self.preprocessing_.reading is not None:
            self._laplace = "it is not known for sequences"
            return
        try:
            shares = importances(mesh, samples, None if rotation is None else rotation.axes)
            if shares is not None:
                self.feature_importances_ = self.preprocessing_.by_column(shares)
            if self._loss.classifies:
                return
            refused = affordable(mesh, samples) if rotation is None else "there are more columns than rows"
            if refused or not isinstance(samples, InMemorySamples):
                self._laplace = refused
                return
            self._laplace = Laplace.of(mesh, samples, trainer.best.penalties, trainer.choice.solver.wants_float64)
        except MeshError as error:  # the net is fitted all the same
            self._laplace = str(error)

    def _features(self, X: Any) -> Any:
        if "mesh_" not in self.__dict__:
            check_is_fitted(self, "mesh_")
        return self.preprocessing_.features(X, type(self).__name__)

    @property
    def loss_curve_(self) -> list[float]:
        """Training loss of every row of the history; of several restarts, of the one that is kept."""
        return [row.loss for row in self._rows_kept()]

    @property
    def validation_scores_(self) -> list[float]:
        """Loss of the held-out samples, or their score with `scoring`, of every row of the history."""
        scores = [row.validation for row in self._rows_kept()]
        if all(map(math.isnan, scores)):
            raise AttributeError("validation_scores_: no samples were held out; set early_stopping=True, or pass X_val")
        return scores

    def _rows_kept(self) -> list[HistoryRow]:
        check_is_fitted(self, "mesh_")
        return [row for row in self.history_ if row.restart == self.best_restart_]

    def explain(self, batch_size: int = 64) -> str:
        """Describe what each gradient method costs on the fitted net, and why this solver was chosen."""
        check_is_fitted(self, "mesh_")
        return f"{self.mesh_.explain(batch_size)}\nsolver {self.solver_}: {self.solver_reason_}."

    def _plot(self, name: str, *ax: Any) -> Any:
        check_is_fitted(self, "mesh_")
        from meshnn import plots

        return getattr(plots, name)(self, *ax)

    def plot_history(self, ax: Any = None) -> Any:
        """Draw loss and accuracy by epoch on Matplotlib axes (new ones by default), and return them."""
        return self._plot("plot_history", ax)

    def plot_graph(self, ax: Any = None) -> Any:
        """Draw the net on Matplotlib axes (new ones by default), and return them."""
        return self._plot("plot_graph", ax)

    def plot_importances(self, ax: Any = None) -> Any:
        """Draw `feature_importances_` as bars on Matplotlib axes (new ones by default), and return them."""
        return self._plot("plot_importances", ax)

    def _html_repr(self) -> str:
        """Return what notebooks show: scikit-learn's diagram, and the graph of a fitted net."""
        shown = str(super()._html_repr())
        if not hasattr(self, "mesh_"):
            return shown
        caption = escape(repr(self.mesh_))
        return f"{shown}<figure>{self._plot('graph_svg')}<figcaption>{caption}</figcaption></figure>"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to a `.mesh` file; `meshnn.load` reads it."""
        from meshnn.estimators.storing import to_tree

        check_is_fitted(self, "mesh_")
        storage.write(path, to_tree(self))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mesh_")

"""`BaseMesh`: the code that all estimators share: fitting, saving, fitted attributes and plots."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
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
from meshnn.errors import DataError, MeshError, warn
from meshnn.estimators.builder import NetBuilder
from meshnn.estimators.continuing import attach_checkpoint, describe_run, interrupted, warm_start_settings
from meshnn.estimators.data import ArrayData, OutOfCoreData, is_out_of_core, open_data
from meshnn.estimators.derived import set_derived_attributes
from meshnn.estimators.members import choose_members
from meshnn.estimators.merging import Transform, check_activations, merged
from meshnn.estimators.outputs import Outputs
from meshnn.estimators.params import Parameters, SklearnCallbacks, with_callbacks
from meshnn.estimators.preprocessing import Preprocessing
from meshnn.estimators.scaling import Rotation
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.tables.sources import RowBlock
from meshnn.topology import Topology
from meshnn.training import History, HistoryRow, Settings, Trainer
from meshnn.training.callbacks import Callback, Checkpoint
from meshnn.training.ensemble import Ensemble
from meshnn.training.reporting import reporter
from meshnn.training.signals import heard_interrupts, sigterm_interrupts
from meshnn.training.solvers import Choice


class BaseMesh(Parameters, Outputs):
    """Base class of the estimators. It combines a `Preprocessing`, a `NetBuilder` and a `Trainer`.

    Subclasses define how targets are checked and encoded.
    """

    _preprocessing_type: type[Preprocessing] = Preprocessing
    _builder_type: type[NetBuilder] = NetBuilder
    _out_of_core = True  # whether `fit` accepts rows that are not in memory

    solver_: str
    solver_reason_: str
    history_: History
    n_iter_: int
    best_restart_: int
    l2_: float
    feature_importances_: FloatArray
    target_: str  # the target column of `meshnn fit`
    _built: dict[str, Any]  # the parameters that the net was built from
    _prototype: Mesh | Topology | None = None  # the resolved value of the parameter `mesh`
    _laplace: Any  # of a regressor: the uncertainty of the weights, or the reason why it is not available
    _l2_searched: bool  # whether the penalty was found by a search instead of given
    _solver_state: Tree | None  # the state from which partial_fit or a warm start continues
    _transforms: list[Transform]  # during a fit: of each member of the ensemble
    _stream_seed: int
    _stream_weight = 0.0  # total sample weight behind the scaling of a stream; 0: `fit` set the scaling, which is fixed
    _start_fingerprint: str  # fingerprint of the initial weights of an unfinished run with a checkpoint

    # Methods of subclasses:
    _checked_y: Callable[[Any, Any], Any]  # y after the checks of scikit-learn
    _targets: Callable[[Any, Array | None, bool], tuple[Any, Array | None, int]]  # targets, weights, number of outputs
    _original_y: Callable[[Any], Any]  # the inverse of `_targets`

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, known: Preprocessing | None, first: bool
    ) -> tuple[Preprocessing, RowBlock, int]:
        """Return the preprocessing (`known` or a new one), the checked samples and the number of outputs."""
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

    def _checked_validation(self, X: Any, y: Any, data: ArrayData | OutOfCoreData) -> RowBlock:
        """Return the hold-out set, checked like the training samples."""
        if X is None or y is None:
            raise DataError("X_val and y_val go together; pass both, or neither")
        if is_out_of_core(X) and not isinstance(X, np.ndarray):
            raise DataError(f"X_val is {type(X).__name__}, expected samples in memory; load them first")
        before = dict(self.__dict__)
        _, samples, _ = self._checked(X, y, None, data.preprocessing, False)
        self.__dict__.update(before)  # the training samples alone decide the form of y
        if samples.y.shape[1:] != data.target_shape:
            raise DataError("y_val and y do not have the same columns; pass targets of the same kind")
        return samples

    def _scorer(self, held_out: RowBlock | None) -> Callable[[], float] | None:
        """Return a function that scores the current net on the hold-out set."""
        scoring = self._stopping().scoring
        if scoring is None:
            return None
        if held_out is None:
            raise MeshError("scoring needs held-out samples; set validation_fraction, or fit with X_val and y_val")
        model, X, y = copy(self), held_out.X, self._original_y(held_out.y)
        model.preprocessing_ = replace(self.preprocessing_, n_features=X.shape[1], names=None, encoder=None)
        scorer = check_scoring(model, scoring)
        return lambda: real_number("the result of scoring", scorer(model, X, y), "a finite number", math.isfinite)

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit the net to training samples.

        Parameters
        ----------
        X : array_like, DataFrame or scipy.sparse matrix (n_samples, n_features)
            Training samples. The columns of a DataFrame are selected by name in `predict`. For data that do not fit
            in memory, pass the path of a Parquet file, of a folder of Parquet files or of a `.npy` file, a large
            memory map, an iterator of blocks `(X, y)`, or a Dask DataFrame or array; see
            docs/how-to/train-larger-than-memory.md.
        y : array_like (n_samples,), or (n_samples, n_outputs) for regression and for several labels per sample
            Targets. For Parquet files and tables, the name of a column or a list of names.
        sample_weight : array_like (n_samples,), optional
            Weight of each sample in the loss, at least 0. By default all weights are 1. For Parquet files and tables,
            the name of a column.
        X_val, y_val : array_like, optional
            Hold-out set. The weights with the lowest loss on it are kept, and training stops when this loss no longer
            improves. By default `early_stopping` decides whether samples of X are held out.

        Returns
        -------
        self

        Raises
        ------
        TrainingInterrupted
            On Ctrl-C: a KeyboardInterrupt that names the epoch. The estimator is then fitted with the best weights so
            far, and its checkpoint is up to date. SIGTERM saves the checkpoint, if there is one, and ends the process.
        """
        checkpoint = self._checkpoint()
        terminated: list[int] = []
        try:
            with ExitStack() as resources, self._restored_on_error():
                settings = self._settings()
                warm = switch("warm_start", self.warm_start) and hasattr(self, "mesh_")
                data = resources.enter_context(open_data(self, X, y, sample_weight, warm))
                if X_val is not None or y_val is not None:
                    data.held_out = self._checked_validation(X_val, y_val, data)
                trainer = self._prepared(data, settings, checkpoint, warm)
                callbacks = self._callbacks()
                if hasattr(self, "_skl_callbacks"):
                    callbacks.append(SklearnCallbacks(self, trainer.epochs * trainer.n_starts, X, y))
                if checkpoint is not None:
                    callbacks.append(checkpoint)
                resources = resources.pop_all()
            with resources, sigterm_interrupts(terminated, wanted=checkpoint is not None):
                self._run(trainer, checkpoint, callbacks)
            self._ranges = data.ranges(self.mesh_, self.preprocessing_)
        finally:
            if checkpoint is not None:
                checkpoint.release()
            if terminated:  # the checkpoint is saved: end the process
                signal.raise_signal(signal.SIGTERM)
        return self

    @contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        """Restore all attributes after an error, so that the estimator never mixes two fits."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _prepared(
        self, data: ArrayData | OutOfCoreData, settings: Settings, checkpoint: Checkpoint | None, warm: bool
    ) -> Ensemble:
        """Return the trainer, ready for the first epoch."""
        if data.batch is not None:
            settings = replace(settings, batch_size=data.batch)
        seed, run, resumed = self._seed(), dict[str, str](), None
        if checkpoint is not None:
            run = describe_run(self, data, warm)
            seeded = isinstance(self.random_state, (int, np.integer))  # the state of a generator has changed
            resumed = checkpoint.begin(run, seed if seeded else None)
            seed = seed if resumed is None else resumed.seed
        seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
        fraction = self._stopping().validation_fraction
        if fraction is not None and data.held_out is None:
            data.hold_out(fraction, seeds[0])
        memory: tuple[str, Tree | None] = ("", None)
        builder = self._builder_type(self, self._loss, settings, data.longest)
        self._transforms, n_members, trainers = [None], 1, list[Trainer]()
        if warm:
            self._continue(builder, data.preprocessing.width, data.n_outputs)
            choice, settings, memory = warm_start_settings(self, settings, data.n_samples)
        else:
            builder.resolve(data.preprocessing.width, data.n_outputs)
            learned = data.learn(builder.output_activation)
            if checkpoint is not None and resumed is not None and isinstance(learned.transform, Rotation):
                read = partial(Rotation.from_tree, n_inputs=learned.width)
                learned = replace(learned, transform=checkpoint.restore(resumed, read))
            self._transforms, n_members = choose_members(self, data, learned)
            settings = settings.shared(len(self._transforms))
            self.__dict__.pop("target_", None)
        for k, transform in enumerate(self._transforms):
            if not warm:
                learned = replace(learned, transform=transform)
                choice = self._build(builder, learned, data.n_samples, data.n_outputs, seeds[1] + k)
            training, validation = data.datasets(self.mesh_, self.preprocessing_)
            trainers.append(Trainer(
                self.mesh_, training, settings, validation, seeds[2], self.structure, choice,
                self._scorer(data.held_out), memory, builder.start,
            ))  # fmt: skip  # the same seed: searches hold out the same samples

        check_activations([each.mesh for each in trainers], self._transforms)

        def on_member(k: int) -> None:
            self.mesh_ = trainers[k].mesh
            self.preprocessing_ = replace(self.preprocessing_, transform=self._transforms[k])

        trainer = Ensemble(trainers, n_members, on_member)
        on_member(0)
        self._stream_seed, self._solver_state, self._stream_weight = seeds[2], None, 0.0
        if checkpoint is not None:
            attach_checkpoint(self, trainer, checkpoint, run, resumed, seed)
        return trainer

    def _build(
        self, builder: NetBuilder, preprocessing: Preprocessing, n_samples: int, n_outputs: int, seed: int,
        stream: bool = False,
    ) -> Choice:  # fmt: skip
        """Build a new net and return the solver for it."""
        n_inputs = preprocessing.width if preprocessing.transform is None else preprocessing.transform.width
        self.loss_, self._built, self._prototype = self._loss.name, builder.identity(), builder.prototype
        self.mesh_, choice = builder.build(n_samples, n_inputs, n_outputs, seed, stream)
        self.preprocessing_ = replace(preprocessing, reading=builder.reading)
        return choice

    def _continue(self, builder: NetBuilder, n_inputs: int, n_outputs: int) -> None:
        """Prepare the fitted net for further training."""
        builder.check_same(self.mesh_, self._built, (n_inputs, n_outputs))
        reading: Any = self.preprocessing_.reading
        if reading is not None:  # the new sequences may be longer
            self.mesh_.ticks = reading.ticks(builder.longest)
        if not self.mesh_.values.flags.writeable:  # a memory-mapped model is read-only
            self.mesh_.weights = np.array(self.mesh_.weights)

    def _run(self, trainer: Ensemble, checkpoint: Checkpoint | None, callbacks: list[Callback]) -> None:
        """Train until the end and report every row of the history."""
        self._sync_fitted_attributes(trainer)
        self._reset_derived_attributes("the fit was not completed; fit again")
        try:
            with reporter(self._verbosity(), trainer) as show, heard_interrupts() as check:

                def pulse(done: int) -> None:  # called during out-of-core epochs
                    show.pulse(done)
                    if checkpoint is not None:
                        checkpoint.on_epoch_end()

                trainer.pulse_to(pulse)
                for callback in callbacks:
                    callback.on_fit_begin()
                for row in trainer.rows():
                    show(row)
                    mesh = self.preprocessing_.original(self.mesh_) if callbacks else self.mesh_
                    stopping = [each for each in callbacks if each.on_epoch_end(row, mesh)]  # calls all
                    if stopping and not trainer.finished:
                        trainer.stop(stopping[0].reason, to_go_on=True)
                    check()
            set_derived_attributes(self, trainer)
            for callback in callbacks:
                callback.on_fit_end()
            if not trainer.goes_on:
                self.__dict__.pop("_start_fingerprint", None)
            if fall := trainer.fall_at_end():
                what = f"training ended after {trainer.epochs} epochs, but the loss still fell by"
                message = f"{what} {fall:.2g} per epoch; raise max_epochs"
                warn(ConvergenceWarning(message))
        except KeyboardInterrupt:
            raise interrupted(trainer, checkpoint) from None
        except BaseException:
            trainer.stop("stopped by an error", to_go_on=True)  # keeps the best weights so far
            raise
        finally:
            self._sync_fitted_attributes(trainer)
            if self._transforms != [None]:
                self.mesh_ = self._merged(trainer)
                self.preprocessing_ = replace(self.preprocessing_, transform=None)
            self._transforms = [None]

    def _merged(self, trainer: Ensemble) -> Mesh:
        """Return one mesh on scaled features, equivalent to all members with their best weights so far."""
        return merged(trainer.nets(), [self._transforms[k] for k in trainer.used], trainer.shares())

    def _sync_fitted_attributes(self, trainer: Ensemble) -> None:
        """Set the fitted attributes to the current state of training."""
        best = trainer.best
        # the memory of a member does not fit the net that is kept
        self._solver_state = best.memory if self._transforms == [None] else None
        self._l2_searched = isinstance(self.l2, str)
        self.solver_, self.solver_reason_ = trainer.choice.solver.name, trainer.choice.reason
        self.history_, self.l2_, self.best_restart_ = trainer.history, best.l2, best.restart
        self.n_iter_ = max((row.epoch for row in self._rows_kept()), default=0)

    def _reset_derived_attributes(self, reason: str) -> None:
        """Remove the attributes that were derived from earlier weights."""
        self.__dict__.pop("feature_importances_", None)
        self._laplace, self._ranges = reason, None

    def _features(self, X: Any) -> Any:
        if "mesh_" not in self.__dict__:
            check_is_fitted(self, "mesh_")
        return self.preprocessing_.features(X, type(self).__name__)

    @property
    def loss_curve_(self) -> list[float]:
        """Training loss per row of the history, for the restart that was kept."""
        return [row.loss for row in self._rows_kept()]

    @property
    def validation_scores_(self) -> list[float]:
        """Loss (or score, with `scoring`) on the hold-out set per row of the history, for the restart that was kept."""
        scores = [row.validation for row in self._rows_kept()]
        if all(map(math.isnan, scores)):
            raise AttributeError("validation_scores_: no samples were held out; set early_stopping=True, or pass X_val")
        return scores

    def _rows_kept(self) -> list[HistoryRow]:
        check_is_fitted(self, "mesh_")
        return [row for row in self.history_ if row.restart == self.best_restart_]

    def explain(self, batch_size: int = 64) -> str:
        """Return a text with the cost of each gradient method on the fitted net and the reason for the solver.

        Parameters
        ----------
        batch_size : int, default=64
            Batch size for which the costs are computed.
        """
        check_is_fitted(self, "mesh_")
        return f"{self.mesh_.explain(batch_size)}\nsolver {self.solver_}: {self.solver_reason_}."

    def _plot(self, name: str, *ax: Any) -> Any:
        check_is_fitted(self, "mesh_")
        from meshnn import plots

        return getattr(plots, name)(self, *ax)

    def plot_history(self, ax: Any = None) -> Any:
        """Draw loss and accuracy per epoch on Matplotlib axes (by default new ones) and return the axes."""
        return self._plot("plot_history", ax)

    def plot_graph(self, ax: Any = None) -> Any:
        """Draw the net on Matplotlib axes (by default new ones) and return the axes."""
        return self._plot("plot_graph", ax)

    def plot_importances(self, ax: Any = None) -> Any:
        """Draw `feature_importances_` as bars on Matplotlib axes (by default new ones) and return the axes."""
        return self._plot("plot_importances", ax)

    def _html_repr(self) -> str:
        """Return the HTML for notebooks: the diagram of scikit-learn and the graph of a fitted net."""
        shown = str(super()._html_repr())
        if not hasattr(self, "mesh_"):
            return shown
        caption = escape(repr(self.mesh_))
        return f"{shown}<figure>{self._plot('graph_svg')}<figcaption>{caption}</figcaption></figure>"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to a `.mesh` file, which `meshnn.load` reads."""
        from meshnn.estimators.storing import to_tree

        check_is_fitted(self, "mesh_")
        storage.write(path, to_tree(self))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mesh_")

"""What the classifier and the regressor share: data in, topology, training, stopping, saving."""

from __future__ import annotations

import math
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from meshnn import storage
from meshnn.arguments import real_number, switch, whole_number
from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError, TrainingInterrupted
from meshnn.estimators._scaling import Scaling, check_activation
from meshnn.estimators._splitting import hold_out
from meshnn.losses import Loss
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.topology import Topology
from meshnn.training import History, HistoryRow, Settings, Trainer
from meshnn.training.api import as_samples
from meshnn.training.checkpoint import Checkpoint, fingerprint
from meshnn.training.reporting import reporter
from meshnn.training.settings import FULL_UP_TO
from meshnn.training.signals import sigterm_interrupts
from meshnn.training.solver import Samples
from meshnn.training.solvers import SOLVERS, Choice, choose_solver, streaming_solver
from meshnn.training.structure.runtime import as_policies, first_topology, with_penalties

__all__ = ["BaseMesh"]

#: Edges times samples up to which nobody would notice that float32 is faster.
SMALL = 100_000
#: What only a model that `meshnn fit` made of a table has.
_OF_A_TABLE = ("encoder_", "target_")


def _streams(estimator: Any) -> bool:
    for kind in SOLVERS:
        if kind.name == estimator.solver and not kind.streams:
            able = ", ".join(f'"{other.name}"' for other in SOLVERS if other.streams)
            raise AttributeError(f'partial_fit needs solver={able} or "auto": {kind.name} looks at all samples at once')
    return True


@dataclass(eq=False, repr=False)
class Parameters(BaseEstimator):  # type: ignore[misc]
    """What both kinds take; as fields, so that `__init__` only assigns. `MeshClassifier` says what they mean."""

    hidden: int = 16
    topology: Topology | Callable[[int, int], Topology] | None = None
    ticks: int | None = None
    activation: str = "tanh"
    output_activation: str = "identity"
    solver: str = "auto"
    learning_rate: float = 0.01
    schedule: str = "cosine"
    batch_size: int | str | None = "auto"
    max_epochs: int = 300
    l1: float = 0.0
    l2: float | str = "auto"
    gradient: str = "auto"
    early_stopping: bool = False
    validation_fraction: float = 0.1
    patience: int = 20
    tol: float = 1e-4
    n_restarts: int = 1
    warm_start: bool = False
    callbacks: Any = None
    checkpoint: Any = None
    n_threads: int | None = None
    verbose: int = 0
    random_state: Any = None
    momentum: float = 0.9
    nesterov: bool = True
    standardize: bool = True
    structure: Any = None
    loss: str | None = None
    parameter: Any = None
    weights: Any = None


class BaseMesh(Parameters):
    """Everything but what the outputs mean."""

    _loss: Loss
    _kind: str
    _solver_state: Tree | None  # what partial_fit or a warm start goes on with
    _stream_seed: int
    encoder_: Any  # of a model that `meshnn fit` made of a table
    _built: dict[str, Any]
    _under_way: str  # the weights that a run with a checkpoint began from, until it has come to its end
    mesh_: Mesh

    # -- what the two kinds fill in ------------------------------------------------------------------------------

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Array, Array]:
        """Samples as scikit-learn checks them."""
        raise NotImplementedError

    def _targets(self, y: Array, sample_weight: Array | None, first: bool) -> tuple[Array, Array | None, int]:
        """What the outputs should be, the weights of the samples, and the number of outputs."""
        raise NotImplementedError

    # -- fitting -------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Learn from samples.

        Parameters
        ----------
        X : array_like or DataFrame (n_samples, n_features)
        y : array_like (n_samples,) or, for regression, (n_samples, n_outputs)
        sample_weight : array_like (n_samples,), optional

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
            with self._as_it_was_if_refused():
                trainer = self._prepared(X, y, sample_weight, checkpoint)
            with sigterm_interrupts(terminated, wanted=checkpoint is not None):
                self._run(trainer, checkpoint)
        finally:
            if checkpoint is not None:
                checkpoint.end()
            if terminated:  # all is saved: now the process ends as it was told to
                signal.raise_signal(signal.SIGTERM)
        return self

    def _prepared(self, X: Any, y: Any, sample_weight: Any, checkpoint: Checkpoint | None) -> Trainer:
        """All that comes before the first epoch."""
        settings = self._settings()
        _as_callbacks(self.callbacks), whole_number("verbose", self.verbose, least=0)
        again = switch("warm_start", self.warm_start) and hasattr(self, "mesh_")
        X, targets, weight, n_outputs = self._checked(X, y, sample_weight, reset=not again, first=not again)
        seed = _seed(self.random_state)
        run, resumed = None, None
        if checkpoint is not None:
            start = self.mesh_.weights if again else None
            run = fingerprint(self._run_parameters(), {"X": X, "y": targets, "sample_weight": weight, "weights": start})
            if again and hasattr(self, "_under_way"):
                run["weights"] = self._under_way  # an interrupted run goes on, whatever weights it has got to
            self._under_way = run["weights"]
            seeded = isinstance(self.random_state, (int, np.integer))  # a generator has moved on since
            defaults = fingerprint(type(self)()._run_parameters(), {})
            resumed = checkpoint.begin(run, seed if seeded else None, defaults)
            seed = seed if resumed is None else resumed.seed
        seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
        parts: list[Any] = [slice(None)]  # samples to learn from, and those held out
        if switch("early_stopping", self.early_stopping):
            parts = list(self._split(targets, seeds[0]))
            if weight is not None and not all(weight[rows].any() for rows in parts):
                raise DataError("early_stopping needs samples with a weight on both sides; set early_stopping=False")
        data = [(X[rows], targets[rows], None if weight is None else weight[rows]) for rows in parts]
        # of a net there is already, the trainer decides
        choice = None if again else self._build(*data[0], n_outputs, settings, seeds[1])
        self._check_same_net(X.shape[1], n_outputs)
        samples, *held_out = (self._samples(*part) for part in data)
        validation = held_out[0] if held_out else None
        memory = (self.solver_, self._solver_state) if again else ("", None)
        trainer = Trainer(self.mesh_, samples, settings, validation, seeds[2], self.structure, choice, memory)
        self._stream_seed, self._solver_state = seeds[2], None  # where partial_fit would go on
        if checkpoint is not None and run is not None:
            if resumed is not None:
                checkpoint.restore(resumed, trainer.restore)
                if resumed.epochs < settings.max_epochs:
                    _say_it_is_longer(resumed.epochs, trainer)
            checkpoint.watch(lambda: self._tree(trainer, seed, run))
        return trainer

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

    def _settings(self) -> Settings:
        names = Settings.__dataclass_fields__.keys() & self.get_params(deep=False).keys()
        given = Settings(**{name: getattr(self, name) for name in names})
        return with_penalties(given, as_policies(self.structure))

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, reset: bool, first: bool
    ) -> tuple[Array, Array, Array | None, int]:
        """Features, targets, weights and the number of outputs."""
        if reset:  # how another table became features says nothing about these
            for name in _OF_A_TABLE:
                self.__dict__.pop(name, None)
        elif hasattr(self, "encoder_") and hasattr(X, "columns"):
            X = self._encoded(X)
        X, y = self._validated(X, y, reset)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        targets, weight, n_outputs = self._targets(y, weight, first)
        if weight is not None and (weight < 0).any():
            k = int(np.flatnonzero(weight < 0)[0])
            what = "weights of samples and classes are never negative"
            raise DataError(f"the weight of sample {k} is {weight[k]:g}; {what}")
        if weight is not None and not weight.any():
            raise DataError("all samples have the weight 0; give some of them a weight")
        return X, targets, weight, n_outputs

    def _split(self, targets: Array, seed: int) -> tuple[Array, Array]:
        """Samples to learn from and samples to hold out: a share, but at least one, and one must be left."""
        allowed = ("a number between 0 and 1", lambda v: 0 < v < 1)
        share, n = real_number("validation_fraction", self.validation_fraction, *allowed), len(targets)
        if n < 2:
            raise DataError("early_stopping holds samples out, but there is only one; set early_stopping=False")
        size = min(math.ceil(share * n), n - 1)
        kept, held_out = hold_out(n, size, seed, targets if self._loss.classifies else None)
        if len(held_out) == 0:
            raise DataError("early_stopping holds samples out, but each class has one only; set early_stopping=False")
        return kept, held_out

    def _build(
        self, X: Array, targets: Array, weight: Array | None, n_outputs: int, settings: Settings, seed: int,
        stream: bool = False,
    ) -> Choice:  # fmt: skip
        """A new net and the scaling for samples, or for a stream that begins with them; the solver for it."""
        check_activation(self.output_activation, self._loss, n_outputs)
        scaled = switch("standardize", self.standardize)
        self._scaling = Scaling.learn(X, targets, weight, scaled, self._loss, self.output_activation)
        self.loss_ = self._loss.name
        n_samples, n_inputs = X.shape
        if self.topology is None:
            topology = Topology.mesh(n_inputs, whole_number("hidden", self.hidden, least=0), n_outputs)
        elif isinstance(self.topology, Topology):
            topology = self.topology
        elif callable(self.topology):
            topology = self.topology(n_inputs, n_outputs)
            if not isinstance(topology, Topology):
                raise MeshError(f"topology(n_inputs, n_outputs) must return a Topology, got {type(topology).__name__}")
        else:
            raise MeshError(
                f"topology must be None, a Topology or a callable (n_inputs, n_outputs), "
                f"got {type(self.topology).__name__}"
            )
        if (topology.n_inputs, topology.n_outputs) != (n_inputs, n_outputs):
            raise MeshError(
                f"the topology has {topology.n_inputs} inputs and {topology.n_outputs} outputs, but the data have "
                f"{n_inputs} features and {self._needs(n_outputs)}"
            )
        self._built = self._net()
        given = {"parameter": self.parameter, "weights": self.weights}  # of the edges, or a callable that makes them
        given = {name: value(topology) if callable(value) else value for name, value in given.items()}
        dense = first_topology(as_policies(self.structure), topology)

        def build(dtype: str) -> Mesh:
            mesh = Mesh(
                topology, self.ticks, self.activation, self.output_activation, dtype=dtype, random_state=seed, **given
            )
            if dense != topology:
                mesh.rewire(dense)
                mesh.weights = mesh.draw_weights(seed)
            return mesh

        mesh = build("float32")
        # second-order steps need the accuracy of float64; the others are twice as fast without it, if that counts
        small = not stream and n_samples <= FULL_UP_TO and dense.n_edges * n_samples <= SMALL
        columns = self._loss.columns(n_outputs)
        choice = choose_solver(settings, len(mesh.live_parameters()), 0 if stream else n_samples, columns)
        self.mesh_ = build("float64") if small or choice.kind.wants_float64 else mesh
        return choice

    def _needs(self, n_outputs: int) -> str:
        return f"{n_outputs} {'classes (one output each)' if self._loss.classifies else 'outputs'}"

    def _check_same_net(self, n_inputs: int, n_outputs: int) -> None:
        """A warm start cannot build another net: better to refuse than to ignore what was changed."""
        t = self.mesh_.topology
        if (t.n_inputs, t.n_outputs) != (n_inputs, n_outputs):
            raise DataError(
                f"the net has {t.n_inputs} inputs and {t.n_outputs} outputs, but the data have {n_inputs} features "
                f"and {self._needs(n_outputs)}; set warm_start=False to start anew"
            )
        now = self._net()
        changed = [name for name in now if name not in self._built or now[name] != self._built[name]]
        if changed:
            raise MeshError(
                f"the net there is would be trained on, but {', '.join(changed)} changed since it was built; "
                "fit with warm_start=False to build another"
            )

    def _net(self) -> dict[str, Any]:
        """The parameters that the net was built from, as far as they are compared."""
        named = {name: getattr(self, name) for name in ("ticks", "activation", "output_activation", "loss")}
        return named | self._told_apart() | ({"hidden": self.hidden} if self.topology is None else {})

    def _told_apart(self) -> dict[str, str | None]:
        """What has no value to compare, as far as it is compared: what a callable returned is not."""
        graph = self.topology._digest.hex() if isinstance(self.topology, Topology) else self.topology
        edges = {name: getattr(self, name) for name in ("parameter", "weights")}
        found = {name: v if v is None or callable(v) else repr(np.asarray(v).tolist()) for name, v in edges.items()}
        return {name: "a callable" if callable(v) else v for name, v in ({"topology": graph} | found).items()}

    def _samples(self, X: Array, targets: Array, weight: Array | None) -> Samples:
        inputs, outputs = self._scaling.inputs(X), self._scaling.targets(targets)
        return as_samples(self.mesh_, inputs, outputs, self._loss.name, weight)

    def _run(self, trainer: Trainer, checkpoint: Checkpoint | None) -> None:
        """Ask for all rows, and hand them to whoever wants to see them."""
        callbacks = _as_callbacks(self.callbacks)
        report = reporter(self.verbose, trainer)
        self.solver_, self.solver_reason_ = trainer.choice.solver, trainer.choice.reason
        self._take_stock(trainer)
        try:
            with report as show:
                for row in trainer.rows():
                    show(row)
                    answers = [callback(row, self.mesh_) for callback in callbacks]  # all of them see the row
                    if any(answers) and not trainer.finished:
                        trainer.stop("stopped by a callback")
                    if checkpoint is not None:
                        checkpoint.row()
            if checkpoint is not None:
                checkpoint.save()
            self.__dict__.pop("_under_way", None)
        except KeyboardInterrupt:
            trainer.stop("interrupted", to_go_on=True)
            resume, path = "", None
            if checkpoint is not None:
                checkpoint.save()
                if checkpoint.exists:
                    path = checkpoint.path
                    resume = f"; fit again with checkpoint={str(path)!r} to go on"
            epoch = trainer.history[-1].epoch if len(trainer.history) else 0
            message = f"training was interrupted after epoch {epoch}: the best weights so far are kept{resume}"
            raise TrainingInterrupted(message, epoch, path) from None
        except BaseException:
            trainer.stop("stopped by an error", to_go_on=True)  # whoever catches it has the best weights so far
            raise
        finally:
            self._take_stock(trainer)

    def _take_stock(self, trainer: Trainer) -> None:
        """Where training stands."""
        self._solver_state = trainer.memory
        self.history_, self.l2_, self.best_restart_ = trainer.history, trainer.l2, trainer.best_restart
        epochs = [row.epoch for row in trainer.history if row.restart == trainer.best_restart]
        self.n_iter_ = epochs[-1] if epochs else 0

    def _run_parameters(self) -> dict[str, Any]:
        """What decides the course of training, besides data and seed."""
        unimportant = ("callbacks", "checkpoint", "n_threads", "verbose", "random_state")
        named = {k: v for k, v in self.get_params(deep=False).items() if k not in unimportant}
        return named | self._told_apart() | {"estimator": self._kind}

    def _tree(self, trainer: Trainer, seed: int, run: dict[str, str]) -> Tree:
        """A checkpoint: the model with the best weights so far, and all that is needed to go on."""
        from meshnn.estimators._storage import to_tree

        self._take_stock(trainer)
        return to_tree(self, trainer.best_parameters) | {
            "training": {"seed": seed, "run": run, "state": trainer.state()}
        }

    # -- streams -------------------------------------------------------------------------------------------------

    def _pass_over(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Once through some samples, with a constant rate; what the optimiser remembers is kept from call to call."""
        settings = self._settings()
        first = not hasattr(self, "mesh_")
        X, targets, weight, n_outputs = self._checked(X, y, sample_weight, reset=first, first=False)
        kind = streaming_solver(settings.solver)
        settings = replace(settings, solver=kind.name, schedule="constant", max_epochs=1)
        if first:
            seeds = np.random.SeedSequence(_seed(self.random_state)).generate_state(2)
            self._build(X, targets, weight, n_outputs, settings, int(seeds[0]), stream=True)
            self._stream_seed, self._solver_state = int(seeds[1]), None
            self.history_, self.n_iter_, self.best_restart_ = History(), 0, 0
        self._check_same_net(X.shape[1], n_outputs)
        rng = np.random.default_rng(self._stream_seed)
        samples = self._samples(X, targets, weight)
        stream = kind(self.mesh_, samples, settings, rng)
        if self._solver_state is not None and self.solver_ == kind.name:  # another one's memory means something else
            stream.restore(self._solver_state, stream=True)
        self.solver_, self.solver_reason_ = kind.name, "partial_fit takes first-order steps"
        began = time.perf_counter()
        before = self.history_[-1].seconds if len(self.history_) else 0.0
        progress = stream.advance(1)
        self._solver_state = stream.state(stream=True)
        self.l2_ = stream.l2
        self.n_iter_ += 1
        self.history_.append(
            HistoryRow(
                epoch=self.n_iter_,
                loss=progress.loss,
                validation=math.nan,
                accuracy=samples.accuracy(progress.hits) if self._loss.classifies else math.nan,
                gradient_norm=progress.gradient_norm,
                learning_rate=progress.rate,
                seconds=before + time.perf_counter() - began,
                edges=self.mesh_.topology.n_edges,
                restart=self.best_restart_,
                note=progress.note,
            )
        )

    # -- predicting ----------------------------------------------------------------------------------------------

    def _outputs(self, X: Any) -> Array:
        """Raw outputs (n_samples, n_outputs)."""
        check_is_fitted(self, "mesh_")
        if hasattr(self, "encoder_") and hasattr(X, "columns"):
            X = self._encoded(X)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.mesh_.forward(self._scaling.inputs(X), n_threads=self.n_threads)

    def _encoded(self, frame: Any) -> Array:
        """Features of a DataFrame, for a model that `meshnn fit` made of a table: its columns are found by name."""
        import pyarrow as pa

        try:
            table = pa.Table.from_pandas(frame, preserve_index=False) if hasattr(frame, "iloc") else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"cannot read the columns of the {type(frame).__name__}: {error}") from None
        encoded = self.encoder_.encode(table)
        for note in encoded.notes:
            warnings.warn(note, UserWarning, stacklevel=4)
        return encoded.X

    def explain(self, batch_size: int = 64) -> str:
        """What each gradient method costs on the fitted net, and why this solver was taken."""
        check_is_fitted(self, "mesh_")
        return f"{self.mesh_.explain(batch_size)}\nsolver {self.solver_}: {self.solver_reason_}."

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to a `.mesh` file; `meshnn.load` reads it."""
        from meshnn.estimators._storage import to_tree

        check_is_fitted(self, "mesh_")
        storage.write(path, to_tree(self))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mesh_")


def _say_it_is_longer(before: int, trainer: Trainer) -> None:
    """A run with more epochs than it was begun with is not always the run that it would have been."""
    settings = trainer.settings
    what = f"max_epochs was {before} when this run began and is {settings.max_epochs} now"
    if trainer.finished:
        why = trainer.history[-1].note if len(trainer.history) else ""
        advice = "delete the checkpoint to start anew"
        warnings.warn(f"{what}, but the run had come to its end ({why}): {advice}", UserWarning, stacklevel=5)
        return
    scheduled = trainer.choice.kind.streams and settings.schedule != "constant"
    moved = [f"the {settings.schedule} schedule of the rate"] * scheduled + ["policies"] * trainer.changes
    if moved:
        take = "take" if trainer.changes else "takes"
        message = f"{what}: {' and '.join(moved)} {take} the rest as that of a run of {settings.max_epochs} epochs"
        warnings.warn(message, UserWarning, stacklevel=5)


def _seed(random_state: Any) -> int:
    """A number that all randomness of a fit comes from."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise MeshError(f"random_state must not be negative, got {random_state}")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.RandomState) or random_state is np.random:
        return int(check_random_state(random_state).randint(2**31))
    raise MeshError(
        f"random_state must be a whole number, a RandomState, a Generator or None, got {random_state!r}; pass 0, say"
    )


def _as_callbacks(callbacks: Any) -> list[Callable[..., Any]]:
    if callbacks is None:
        return []
    found = list(callbacks) if isinstance(callbacks, Iterable) and not callable(callbacks) else [callbacks]
    for callback in found:
        if not callable(callback):
            raise MeshError(f"callbacks must be functions of (row, mesh), got {type(callback).__name__}")
    return found

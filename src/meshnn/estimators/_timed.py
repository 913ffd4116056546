"""What the estimators of sequences share: samples with time, a net that runs as long as they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_y, check_is_fitted

from meshnn.arguments import known
from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.estimators._base import BaseMesh
from meshnn.estimators._reading import Reading, ReadsSequences
from meshnn.estimators._recurrent import begin, delay, recurrent
from meshnn.estimators._samples import Part
from meshnn.estimators._scaling import Scaling, moments
from meshnn.estimators._sequences import READOUTS, Ragged, as_answers, as_sequences, padded
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training import Settings, Trainer
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples
from meshnn.training.solvers import Choice
from meshnn.training.structure.runtime import as_policies

__all__ = ["OnSequences"]


class OnSequences(ReadsSequences, BaseMesh):
    """In front of an estimator of rows, makes it one of sequences."""

    readout: str
    _far = False
    _longest: int  # steps of the longest sequence of a fit
    _file_kind: str

    @property
    def partial_fit(self) -> Any:
        """There is none: a net on an endless stream is another estimator."""
        raise AttributeError("sequences are learned whole, by fit; there is no partial_fit")

    # -- samples in ----------------------------------------------------------------------------------------------

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        reads = known("readout", self.readout, READOUTS)
        if y is None:
            raise DataError("fit needs y, an answer for each sequence")
        sequences = as_sequences(X, None if reset else self.n_features_in_)
        if reset:
            self.n_features_in_ = sequences.shape[1]
        if reads != "all":
            y = super()._validated(sequences, y, reset)[1]
            if len(y) != len(sequences):
                raise DataError(f"X has {len(sequences)} sequences, y {len(y)} answers; pass one a sequence")
            return sequences, y
        flat = as_answers(y, sequences)
        return sequences, Ragged(super()._validated(sequences, flat, reset)[1], sequences.offsets)

    def _validate(self, X: Any, y: Any, reset: bool, **options: Any) -> tuple[Any, Any]:
        """Of y, what scikit-learn says about it."""
        multi, numeric = options.get("multi_output", False), options.get("y_numeric", False)
        return X, _check_y(y, multi_output=multi, y_numeric=numeric, estimator=self)

    def _targets(self, y: Any, sample_weight: Array | None, first: bool) -> tuple[Any, Array | None, int]:
        if not isinstance(y, Ragged):
            return super()._targets(y, sample_weight, first)
        rows = y.per_row(sample_weight)
        targets, weight, n_outputs = super()._targets(y.data, rows, first)
        # weights of classes are weights of steps
        own = None if weight is None or weight is rows else _ratio(weight, rows)
        return Ragged(targets, y.offsets, own), sample_weight, n_outputs

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, reset: bool, first: bool
    ) -> tuple[Any, Any, Array | None, int]:
        found = super()._checked(X, y, sample_weight, reset, first)
        sequences: Any = found[0]
        self._longest = sequences.longest
        return found

    def _held_out(self, X: Any, y: Any, learned: Array) -> Part:
        part = super()._held_out(X, y, learned)
        self._longest = max(self._longest, part[0].longest)
        return part

    def _split(self, targets: Any, seed: int) -> tuple[Array, Array]:
        if not isinstance(targets, Ragged):
            return super()._split(targets, seed)
        return super()._split(np.zeros((len(targets), 1)), seed)  # no class is that of a whole sequence

    def _answers(self, targets: Any) -> Any:
        if isinstance(targets, Ragged):
            return list(targets.like(super()._answers(targets.data)))
        return super()._answers(targets)

    def _scorer(self, X: Any, targets: Any) -> Callable[[], float]:
        if isinstance(targets, Ragged) and isinstance(self.scoring, str):
            raise MeshError(
                'with readout="all" scoring must be a function of (estimator, X, y), as scorers of scikit-learn know '
                f"no sequences of answers, got {self.scoring!r}; scoring=lambda e, X, y: e.score(X, y), say"
            )
        return super()._scorer(X, targets)

    # -- the net -------------------------------------------------------------------------------------------------

    def _wide(self, X: Any, stream: bool) -> bool:
        return False

    def _learned_scaling(self, X: Any, targets: Any, weight: Array | None, wanted: bool) -> Scaling:
        """Features are scaled by all steps of all sequences."""
        flat = isinstance(targets, Ragged)
        said, counts = (targets.data, targets.per_row(weight)) if flat else (targets, weight)
        nothing = np.zeros((len(said), 1))
        found = Scaling.learn(nothing, said, counts, wanted, self._loss, self.output_activation)
        mean, spread = moments(X.data, X.per_row(weight)) if wanted else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
        return replace(found, x_mean=mean, x_scale=np.where(spread == 0, 1.0, spread), x_constant=None)

    def _sizes(self, n_samples: int, n_inputs: int, settings: Settings, stream: bool) -> list[Any]:
        return [self.hidden]

    @property
    def _named(self) -> bool:
        """Whether the graph is one of ours."""
        return self.topology is None or isinstance(self.topology, str)

    def _graph(self, hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
        if self._named:
            return recurrent(self.topology, hidden, n_inputs, n_outputs)
        return super()._graph(hidden, n_inputs, n_outputs)

    def _ticks_of(self, topology: Topology) -> int:
        causal = self.readout == "all"
        # a graph that changes may get an edge from an input to an output, and with it a sight of what is to come
        lag = 0 if causal and as_policies(self.structure) else delay(topology, causal)
        self.reading_ = Reading.of(self.readout, 1 if self.ticks is None else self.ticks, lag)
        return self.reading_.ticks(self._longest)

    def _activation_of(self, mesh: Mesh, choice: Choice, n_samples: int) -> Any:
        """By default tanh: what a neuron hands on to itself must not grow without bounds."""
        auto = isinstance(self.activation, str) and self.activation == "auto"
        return "tanh" if auto else self.activation

    def _drawn(self, mesh: Mesh, weights: Array) -> Array:
        given = self.weights is not None or self.parameter is not None or not self._named
        return weights if given else begin(mesh, weights)

    def _check_same_net(self, n_inputs: int, n_outputs: int) -> None:
        super()._check_same_net(n_inputs, n_outputs)
        self.mesh_.ticks = self.reading_.ticks(self._longest)  # other sequences may be longer

    def _net(self) -> dict[str, Any]:
        return super()._net() | {"readout": self.readout} | ({"hidden": self._hidden} if self._named else {})

    def _samples(self, X: Any, targets: Any, weight: Array | None) -> InMemorySamples:
        mesh, reads = self.mesh_, self.reading_.readout
        inputs = padded(X.like(self._scaling.inputs(X.data)), mesh.ticks, self.reading_.per_step, mesh.dtype)
        at, whose = self.reading_.looks(X)
        timing: dict[str, Any] = {}
        if reads == "all":
            rows = self._scaling.targets(targets.data)
            outputs = np.zeros((mesh.ticks, len(X), *rows.shape[1:]), rows.dtype)
            looks = np.zeros((mesh.ticks, len(X)), np.bool_)
            outputs[at, whose], looks[at, whose] = rows, True
            timing = {"loss_ticks": looks}
        else:
            outputs = self._scaling.targets(targets)
            if reads == "mean" or (at < mesh.ticks - 1).any():
                readout = np.zeros((mesh.ticks, len(X)))
                readout[at, whose] = 1.0 if reads == "last" else 1.0 / X.lengths[whose]
                timing = {"readout": readout}
        samples = as_samples(mesh, inputs, outputs, self._loss.name, weight, **timing)
        if isinstance(targets, Ragged) and targets.weight is not None:
            samples = _weighted(samples, targets, weight, at, whose)
        return samples

    def _finalize(self, trainer: Trainer) -> None:
        self._laplace = "of sequences the spread of predictions is not known"

    # -- predicting ----------------------------------------------------------------------------------------------

    def _features(self, X: Any) -> Ragged:
        check_is_fitted(self, "mesh_")
        return super()._features(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, R² of a regressor; with readout="all" over all steps of all sequences."""
        X = self._features(X)
        if self.reading_.readout != "all":
            return super().score(X, y, sample_weight)  # type: ignore[misc]  # of the estimator behind
        weight = None if sample_weight is None else np.repeat(np.asarray(sample_weight), X.lengths)
        estimator: Any = self
        return self._score_of(as_answers(y, X), np.concatenate(estimator.predict(X)), weight)

    def _score_of(self, y: Array, predicted: Array, weight: Array | None) -> float:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


def _ratio(weight: Array, rows: Array | None) -> Array:
    """What is left of weights once those of samples are taken out."""
    if rows is None:
        return weight
    return np.divide(weight, rows, out=np.zeros_like(weight), where=rows > 0)


def _weighted(
    samples: InMemorySamples, targets: Ragged, weight: Array | None, at: Array, whose: Array
) -> InMemorySamples:
    """Samples whose steps count by weights of their own."""
    found = samples.targets
    assert found.at is not None
    steps = np.zeros((len(found.at), len(targets)))
    steps[at, whose] = targets.per_row(weight)
    steps = steps if weight is None else steps[:, weight > 0]  # the others are not there
    if not steps.any():
        raise DataError("all steps have the weight 0; give some of the classes a weight")
    shares = (steps / steps.sum())[:, :, None]
    whole = shares.sum(axis=0).astype(found.share.dtype)
    return replace(samples, targets=found._replace(at=shares.astype(found.at.dtype), share=whole, even=False))

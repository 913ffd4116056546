"""`MeshSequenceClassifier` and `MeshSequenceRegressor`: estimators of sequences with recurrent graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from sklearn.metrics import accuracy_score, r2_score

from meshnn.arguments import known, whole_number
from meshnn.arrays import Array
from meshnn.errors import MeshError
from meshnn.estimators.base import BaseMesh
from meshnn.estimators.builder import NetBuilder
from meshnn.estimators.classifier import MeshClassifier
from meshnn.estimators.regressor import MeshRegressor
from meshnn.estimators.sequences import Ragged, Reading, SequencePreprocessing, as_step_targets
from meshnn.mesh import Mesh
from meshnn.tables.sources import RowBlock
from meshnn.topology import Topology
from meshnn.topology.reach import NEVER, birth_ticks
from meshnn.training.solvers import Choice
from meshnn.training.structure.runtime import as_policies


def recurrent(kind: Any, hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
    """Return a named graph; hidden="auto" is 20 neurons, fewer if these have more than 500 edges, but at least 4.

    In a "chain" every neuron reads the inputs, itself and the previous neuron: a trainable delay line. "columns" have
    no links to each other, and in a "mesh" every pair of neurons is connected.
    """
    kind = known("mesh", kind or "chain", SequenceBuilder.named_graphs)

    def make(n_hidden: int) -> Topology:
        if kind == "mesh":
            return Topology.mesh(n_inputs, n_hidden, n_outputs, self_loops=True)
        layers = Topology.layered([n_inputs, n_hidden, n_outputs])
        hidden = np.arange(layers.n_neurons)[layers.hidden]
        links = pairwise(hidden) if kind == "chain" else ()
        edges = [*zip(layers.src, layers.dst, strict=True), *zip(hidden, hidden, strict=True), *links]
        return Topology(n_inputs, n_hidden, n_outputs, edges)

    if isinstance(hidden, str) and hidden == "auto":
        hidden = next((h for h in range(20, 4, -1) if make(h).n_edges <= 500), 4)
    if isinstance(hidden, (str, list, tuple, np.ndarray)):
        raise MeshError(f'hidden must be "auto" or a whole number, got {hidden!r}; for another graph pass mesh=')
    return make(whole_number("hidden", hidden))


def delay(topology: Topology, causal: bool) -> int:
    """Return the number of ticks until a step influences the outputs through every hidden neuron (shortest paths).

    If `causal`, return the number of ticks until it influences an output at all, so that no later step has an effect.
    """
    t = topology
    kept = (t.src != t.n_inputs) | (not t.bias)  # without the bias, whose influence is not that of a step
    first_tick = birth_ticks(t.n_neurons, t.n_clamped, t.src[kept], t.dst[kept])
    paths = (first_tick + t._distance)[t.hidden]
    paths = paths[paths < NEVER]
    if causal or len(paths) == 0:
        reached = first_tick[t.outputs]
        return int(reached.min()) - 1 if (reached < NEVER).any() else 0
    return int(paths.max()) - 1


class SequenceBuilder(NetBuilder):
    """Builds recurrent nets: named graphs, ticks for the longest sequence, initial weights with memory."""

    named_graphs = ("chain", "columns", "mesh")
    decided_by_mesh = ("activation",)  # not `ticks`, which is the number per step

    def start(self, mesh: Mesh, weights: Array) -> Array:
        """Return the initial weights, with large weights of self-loops and links.

        With random weights, which are near 0 if a neuron has many inputs, states would decay within a few steps.
        Columns get different time constants. The values were chosen by cross-validation on training sets.
        """
        t, found = mesh.topology, weights.copy()
        loops = t.src == t.dst
        links = (t.dst == t.src + 1) & (t.src >= t.n_clamped) & (t.dst < t.n_clamped + t.n_hidden)
        found[loops] = 0.2 if links.any() else np.linspace(0.0, 0.95, int(loops.sum()))
        found[links] = 0.8
        return found

    def identity(self) -> dict[str, Any]:  # noqa: D102
        return super().identity() | {"readout": self.params.readout}

    def _sizes(self, n_samples: int, n_inputs: int, first_order: bool) -> list[Any]:
        return [self.params.hidden]

    def _activation(self, mesh: Mesh, choice: Choice, n_samples: int) -> Any:
        return "tanh"  # bounded, because a neuron with a self-loop could diverge

    def _graph(self, hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
        return recurrent(self.params.mesh, hidden, n_inputs, n_outputs)

    def _ticks(self, topology: Topology) -> int:
        p, causal = self.params, self.params.readout == "all"
        # policies may add an edge from an input to an output; with a delay, it would carry later steps into an output
        output_delay = 0 if causal and as_policies(p.structure) else delay(topology, causal)
        self.reading = Reading.of(1 if p.ticks is None else p.ticks, output_delay, p.readout)
        return int(self.reading.ticks(self.longest))


class SequenceMixin(BaseMesh):
    """Turns an estimator of rows into an estimator of sequences."""

    readout: str
    _preprocessing_type = SequencePreprocessing
    _builder_type = SequenceBuilder
    _out_of_core = False

    def _checked_y(self, y: Any, X: Ragged) -> Any:
        if known("readout", self.readout, ("last", "mean", "all")) == "all":
            return Ragged(super()._checked_y(as_step_targets(y, X), X), X.offsets)
        return super()._checked_y(y, X)

    def _targets(self, y: Any, sample_weight: Array | None, first: bool) -> tuple[Any, Array | None, int]:
        if not isinstance(y, Ragged):
            return super()._targets(y, sample_weight, first)
        targets, weight, n_outputs = super()._targets(y.data, y.per_row(sample_weight), first)
        return Ragged(targets, y.offsets, weight), sample_weight, n_outputs  # class weights apply to steps

    def _original_y(self, targets: Any) -> Any:
        stepwise = isinstance(targets, Ragged)
        return list(targets.like(super()._original_y(targets.data))) if stepwise else super()._original_y(targets)

    def _scorer(self, held_out: RowBlock | None) -> Callable[[], float] | None:
        scoring, targets = self._stopping().scoring, None if held_out is None else cast("Any", held_out.y)
        if isinstance(targets, Ragged) and isinstance(scoring, str):
            what = 'with readout="all" scoring must be a function of (estimator, X, y)'
            raise MeshError(f"{what}, got {scoring!r}; use for example lambda e, X, y: e.score(X, y)")
        return super()._scorer(held_out)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of a classifier, R² of a regressor; with readout="all" over all steps."""
        X = self._features(X)
        if self.reading_.readout != "all":
            return super().score(X, y, sample_weight)
        weight = None if sample_weight is None else np.repeat(np.asarray(sample_weight), X.lengths)
        metric, predicted = accuracy_score if self._loss.classifies else r2_score, np.concatenate(self.predict(X))
        return float(metric(as_step_targets(y, X), predicted, sample_weight=weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class MeshSequenceClassifier(SequenceMixin, MeshClassifier):
    """A classifier of sequences: a recurrent mesh that processes one step after the other.

    `X` is a list of arrays (length, features), of any lengths, or one array (samples, length, features); arrays without
    the last axis have one feature. Features are scaled by mean and spread of all steps of the training set.

    A step lasts for one tick of the net (`ticks`). The last input is repeated for more ticks, until it influences the
    outputs through every hidden neuron. `predict` accepts any length, also longer ones than in training.

    Parameters
    ----------
    hidden : "auto" or int
        Number of hidden neurons of a named graph. "auto" is 20, fewer if these have more than 500 edges.
    mesh : None, "chain", "columns", "mesh", Topology, Mesh or callable
        "chain", the default: every hidden neuron reads the inputs, itself and the previous neuron. "columns": the
        inputs and itself. "mesh": all neurons. Or any graph, or a callable of (n_inputs, n_outputs) that returns one.
        The ticks of a Mesh are ignored, because they depend on the length of the sequences.
    ticks : int, optional
        Number of ticks per step, 1 by default.
    activation : str, or list of str for the hidden neurons
        "auto" is tanh.
    readout : "last", "mean" or "all"
        When the outputs are read: after the last step, as the mean over all steps, or after every step. With "all",
        y and the predictions are lists of arrays (length,) or arrays (samples, length), and the prediction of a step
        does not depend on later steps.
    class_weight : None, "balanced" or dict
        With readout="all", the weights apply to steps.
    **others
        As for `MeshClassifier`: solver, batch_size, max_epochs, l1, l2, early_stopping, structure, callbacks,
        sample_weight in `fit`, ... There is no `partial_fit`.

    Attributes
    ----------
    mesh_ : Mesh
        Its `ticks` are those of the longest training sequence.
    history_, classes_, n_iter_, n_features_in_, solver_, solver_reason_, l2_, best_restart_

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import MeshSequenceClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = [np.sin(rng.uniform(0, 6) + (1 + k % 2) * np.arange(rng.integers(12, 20))) for k in range(60)]
    >>> y = np.array(["slow", "fast"] * 30)
    >>> clf = MeshSequenceClassifier(hidden=6, l2=1e-3, max_epochs=400, random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    """

    readout: str = "last"


@dataclass(eq=False, repr=False, kw_only=True)
class MeshSequenceRegressor(SequenceMixin, MeshRegressor):
    """A regressor of sequences: a recurrent mesh that processes one step after the other.

    Sequences, graphs, ticks and readouts are those of `MeshSequenceClassifier`, losses those of `MeshRegressor`. With
    readout="all" each step has one or several values: y and the predictions are lists of arrays (length,) or
    (length, n_outputs), or arrays (samples, length) or (samples, length, n_outputs).

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import MeshSequenceRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, rng.integers(5, 9)) for _ in range(80)]
    >>> y = np.array([x[-1] - x[-2] for x in X])  # the last step and the one before it
    >>> reg = MeshSequenceRegressor(hidden=4, random_state=0).fit(X, y)
    >>> reg.score(X, y) > 0.9
    True
    """

    readout: str = "last"

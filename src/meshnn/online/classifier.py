"""`MeshStreamClassifier`: online classification, where new classes may appear at any time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import FileError
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.online._base import StreamModel
from meshnn.online._model import as_label, frame_rows, from_plain, to_plain
from meshnn.storage import Tree

__all__ = ["MeshStreamClassifier"]


class MeshStreamClassifier(StreamModel):
    """A classifier that learns from one sample at a time in constant memory.

    Parameters
    ----------
    hidden : int, default=16
        Number of hidden neurons.
    topology : "auto", "layered", "mesh", "columns" or callable, default="auto"
        The graph. "auto" is one hidden layer for memory="none" and fully connected hidden neurons for memory="carry".
        A callable (n_inputs, n_outputs) -> Topology returns any other graph, of which all edges are trained. Graphs
        with fixed chains, `Topology.delay_line` and `Topology.recurrent`, are refused: use `meshnn.networks`.
    activation : str, default="tanh"
        Activation of the hidden neurons.
    memory : "none" or "carry", default="none"
        Whether the state of the network carries over from sample to sample. Use "carry" only if samples depend on
        earlier ones; otherwise it reduces the accuracy.
    ticks_per_sample : int, optional
        Number of ticks per sample. By default the number that the topology needs.
    learner : "ekf", "adam" or "sgd", default="ekf"
        Extended Kalman filter, or a first-order method. The filter usually learns from fewer samples; the first-order
        methods are cheaper per sample for networks with many parameters.
    settings : dict, optional
        Settings of the learner, see `Mesh.stream`.
    structure : policy, optional
        `meshnn.training.structure.Grow` or `Prune`, applied every `structure_every` samples.
    structure_every : int, default=1000
        Number of samples between two edits of the graph.
    structure_rounds : int, default=20
        Number of edits, over which schedules such as that of `Prune` are spread; after them the graph stays fixed.
    max_features : int, default=500
        Maximum number of features. New features beyond it are ignored, with one warning; the first sample may have any
        number. Every feature is an input of the network, so the time per row grows with their number.
    random_state : int, Generator or None, default=None
        Source of the initial weights.

    Attributes
    ----------
    classes_ : list
        The classes in the order of their first appearance.
    mesh_ : Mesh or None
        The network; None before the first sample.
    stream_ : Stream or None
        The stream that the network learns from; None before the first sample.

    Examples
    --------
    >>> from meshnn import MeshStreamClassifier
    >>> model = MeshStreamClassifier(random_state=0)
    >>> for k in range(400):
    ...     x = {"a": k % 3 - 1, "b": k % 5 - 2}
    ...     model.learn_one(x, "near" if abs(x["a"] + x["b"]) < 2 else "far")
    >>> model.predict_one({"a": 0, "b": 0}), model.predict_one({"a": 1, "b": 2})
    ('near', 'far')
    """

    kind = "stream classifier"

    @property
    def _loss(self) -> str:
        # two classes share one output, the logit of the first class; more classes have one output per class
        return "binary_cross_entropy" if len(self.classes_) <= 2 else "cross_entropy"

    @property
    def _outputs(self) -> int:
        return 1 if len(self.classes_) <= 2 else len(self.classes_)

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Learn from the sample x of class y, which may be a new class."""
        try:
            label = self._number.get(y)
        except TypeError:
            label = None
        if label is None:
            self._check(x)
            y = as_label(y)
            with self._all_or_nothing():
                label = self._new_class(y)
                self._row(x)
            if label == 2 and self._structure is not None:
                self._structure.relabel()
        # for two classes the target 1 is the first class
        self._learn_row(x, 1 - label if len(self.classes_) <= 2 else label)

    def _new_class(self, y: Any) -> int:
        label = len(self.classes_)
        self.classes_, self._number = [*self.classes_, y], {**self._number, y: label}
        if self.mesh_ is not None and self.stream_ is not None and label >= 2:
            # with the third class, the logit z becomes the softmax of (z, 0, 0), and the targets become labels
            self.mesh_.grow_stream(self.stream_, outputs=2 if label == 2 else 1, loss=self._loss)
            if label == 2:
                kept = self.stream_.room.replay_y
                kept[:] = kept < 0.5  # files may hold other values than 0 and 1
        return label

    def _loss_of(self, out: Array, target: float) -> float:
        if len(out) == 1:
            return float(np.logaddexp(0.0, out[0]) - target * out[0])
        if target >= len(out):
            return np.nan
        top = out.max()
        return float(np.log(np.exp(out - top).sum()) + top - out[int(target)])

    def blueprint(self) -> Blueprint:
        """Return the current computation as plain values and arrays, for exports."""
        if len(self.classes_) == 1:
            raise ExportError(
                f"the model has seen only one class, {self.classes_[0]!r}; export it after a second class has appeared"
            )
        link = "logit" if len(self.classes_) == 2 else "softmax"
        return replace(super().blueprint(), link=link, classes=tuple(self.classes_))

    def predict_proba_one(self, x: Mapping[Hashable, Any]) -> dict[Any, float]:
        """Return the probability of each class seen so far; the model does not change."""
        found = self._outputs_of(x)
        return {} if found is None else dict(zip(self.classes_, self._probabilities(found), strict=True))

    def predict_one(self, x: Mapping[Hashable, Any]) -> Any:
        """Return the most likely class; None before the first sample."""
        found = self._outputs_of(x)
        if found is None:
            return None
        if len(found) == 1:
            return self.classes_[1 if found[0] < 0 and len(self.classes_) > 1 else 0]
        return self.classes_[int(found.argmax())]

    def _probabilities(self, out: Array) -> list[float]:
        """Return the probabilities of the classes from the outputs for a sample."""
        if len(self.classes_) == 1:
            return [1.0]
        if len(out) == 1:
            p = 0.5 * (1.0 + math.tanh(0.5 * out[0]))
            return [p, 1.0 - p]
        powers = np.exp(out - out.max())
        return list((powers / powers.sum()).tolist())

    def predict_proba_many(self, X: Any) -> Any:
        """Return the probabilities of the rows of a DataFrame, one column per class."""
        import pandas as pd

        found = [list(self.predict_proba_one(x).values()) for x in frame_rows(X)]
        names = pd.Index(self.classes_, dtype=object, tupleize_cols=False)
        return pd.DataFrame(found, index=X.index, columns=names, dtype=float)

    def _check_target(self, y: Any) -> None:
        as_label(y)

    def to_tree(self) -> Tree:
        """Return the model as plain values and arrays."""
        return super().to_tree() | {"classes": to_plain(self.classes_, "label")}

    def _restore(self, tree: Tree) -> None:
        self.classes_ = [as_label(y) for y in from_plain(tree["classes"], "label")]
        self._number = {y: k for k, y in enumerate(self.classes_)}
        if bool(self.classes_) != ("mesh" in tree):
            network = "a" if "mesh" in tree else "no"
            raise FileError(f"the stored model has {len(self.classes_)} classes, but {network} network")
        super()._restore(tree)

"""`MeshStreamClassifier`: classes of a stream, whatever they are and whenever they turn up."""

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
    """A classifier that learns from one sample at a time, test then train, in constant memory.

    Parameters
    ----------
    hidden : int
        Hidden neurons.
    topology : "auto", "layered", "mesh", "columns", or callable (n_inputs, n_outputs) -> Topology
        By default a layer, or all hidden neurons connected if there is a memory.
    activation : str
    memory : "none" or "carry"
        Whether the state of the net goes on from sample to sample. On streams whose samples do not depend on each other
        it costs accuracy, so it is off.
    ticks_per_sample : int, optional
    learner : "ekf", "adam" or "sgd"
    settings : dict, optional
        Of the learner.
    structure : policy, optional
        `meshnn.training.structure.Grow` or `Prune`, applied every `structure_every` samples.
    structure_every : int
    structure_rounds : int
        Edits that a schedule such as that of `Prune` is spread over; after these the graph stays.
    max_features : int
        Features that may come up while it learns: new names beyond this number are ignored, with one warning. Each is
        an input of the net, so that the time per row grows with them. The first sample may have any number.
    random_state : int, Generator or None
        Source of the first weights.

    Attributes
    ----------
    classes_ : list
        In the order in which they turned up.
    mesh_, stream_
        The net, once a sample was learned.

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
        # two classes have one output, the logit of the first; more have one each
        return "binary_cross_entropy" if len(self.classes_) <= 2 else "cross_entropy"

    @property
    def _outputs(self) -> int:
        return 1 if len(self.classes_) <= 2 else len(self.classes_)

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Learn that the sample x is of class y, which may be new."""
        try:
            label = self._number.get(y)
        except TypeError:
            label = None
        if label is None:
            self._check(x)
            y = as_label(y)
            with self._whole():
                label = self._new_class(y)
                self._row(x)
            if label == 2 and self._structure is not None:
                self._structure.relabel()
        # of two classes the one output is the logit of the first
        self._learn_row(x, 1 - label if len(self.classes_) <= 2 else label)

    def _new_class(self, y: Any) -> int:
        label = len(self.classes_)
        self.classes_, self._number = [*self.classes_, y], {**self._number, y: label}
        if self.mesh_ is not None and self.stream_ is not None and label >= 2:
            # the third class: softmax of (z, 0, 0) instead of a logit z, and labels instead of 1 and 0
            self.mesh_.grow_stream(self.stream_, outputs=2 if label == 2 else 1, loss=self._loss)
            if label == 2:
                kept = self.stream_.room.replay_y
                kept[:] = kept < 0.5  # from a file they may be anything
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
            raise ExportError(f"it has seen one class only, {self.classes_[0]!r}; export it when there are two")
        link = "logit" if len(self.classes_) == 2 else "softmax"
        return replace(super().blueprint(), link=link, classes=tuple(self.classes_))

    def predict_proba_one(self, x: Mapping[Hashable, Any]) -> dict[Any, float]:
        """The probability of each class so far; nothing is learned or remembered."""
        found = self._outputs_of(x)
        return {} if found is None else dict(zip(self.classes_, self._probabilities(found), strict=True))

    def predict_one(self, x: Mapping[Hashable, Any]) -> Any:
        """The class that is most likely; None before any was learned."""
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
        """Return it as plain values and arrays."""
        return super().to_tree() | {"classes": to_plain(self.classes_, "label")}

    def _restore(self, tree: Tree) -> None:
        self.classes_ = [as_label(y) for y in from_plain(tree["classes"], "label")]
        self._number = {y: k for k, y in enumerate(self.classes_)}
        if bool(self.classes_) != ("mesh" in tree):
            raise FileError(f"it has {len(self.classes_)} classes, but {'a' if 'mesh' in tree else 'no'} net")
        super()._restore(tree)

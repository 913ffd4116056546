"""`MeshSequenceClassifier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sklearn.metrics import accuracy_score

from meshnn.arrays import Array
from meshnn.estimators._timed import OnSequences
from meshnn.estimators.classifier import MeshClassifier

__all__ = ["MeshSequenceClassifier"]


@dataclass(eq=False, repr=False)
class MeshSequenceClassifier(OnSequences, MeshClassifier):
    """A classifier of sequences: a recurrent mesh that reads one step after the other.

    `X` is a list of arrays (length, features), of any lengths, or one array (samples, length, features); arrays without
    the last axis have one feature. Features are scaled by mean and spread of all steps of the training set.

    A step lasts for one tick of the net (`ticks`); the last one is held for some more, until it has come to the outputs
    through every hidden neuron. Sequences of different lengths are learned side by side: what comes after the end of
    one is not looked at, and changes nothing. `predict` takes any length, longer ones than were learned, too.

    Parameters
    ----------
    hidden : "auto" or int
        Hidden neurons of a graph that is named. "auto" is 20, fewer if that would make more than 500 edges.
    topology : None, "chain", "columns", "mesh", Topology or callable
        "chain", the default: neurons in a row, each of which reads the inputs, itself and the one before it.
        "columns": the inputs and itself. "mesh": everything feeds everything. Or any graph, or a callable of
        (n_inputs, n_outputs) that gives one; it needs cycles or long ways to remember anything.
    ticks : int, optional
        Ticks that a step lasts for, 1 by default.
    activation : str, or list of str for the hidden neurons
        "auto" is tanh.
    readout : "last", "mean" or "all"
        When the outputs are read: after the last step; as the mean over all steps; or after every step, so that each
        has an answer of its own: then y is a list of arrays (length,), or an array (samples, length), and so are
        predictions. Such an answer depends on nothing that comes later.
    class_weight : None, "balanced" or dict
        With readout="all", of the steps of a class.
    **others
        As for `MeshClassifier`: solver, learning_rate, schedule, batch_size, max_epochs, l1, l2, early_stopping,
        structure, callbacks, checkpoint, sample_weight in `fit`, ... There is no `partial_fit` and no `encode`.

    Attributes
    ----------
    mesh_ : Mesh
        Its `ticks` are those of the longest sequence of the fit.
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
    encode: ClassVar[str | None] = None  # type: ignore[misc]  # a table is not one of sequences

    _file_kind = "sequence classifier"

    def predict(self, X: Any) -> Any:
        """The likeliest class of every sequence (n_samples,); with readout="all" of every step, by sequence."""
        found = self._features(X)
        return self._answered(super().predict(found), found, X)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n_samples, n_classes); with readout="all" (length, n_classes) of every sequence."""
        found = self._features(X)
        return self._answered(super().predict_proba(found), found, X)

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the probabilities, also of those that are too small for a float."""
        found = self._features(X)
        return self._answered(super().predict_log_proba(found), found, X)

    def decision_function(self, X: Any) -> Any:
        """Outputs (n_samples, n_classes); of two classes, how much the second outweighs the first (n_samples,)."""
        found = self._features(X)
        return self._answered(super().decision_function(found), found, X)

    def _score_of(self, y: Array, predicted: Array, weight: Array | None) -> float:
        return float(accuracy_score(y, predicted, sample_weight=weight))

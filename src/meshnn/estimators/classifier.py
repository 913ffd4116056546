"""`MeshClassifier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_y, column_or_1d

from meshnn.arguments import real_number
from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.estimators.base import BaseMesh
from meshnn.estimators.continuing import pass_over, streams
from meshnn.estimators.outputs import ClassOutputs
from meshnn.estimators.scaling import is_sparse


@dataclass(eq=False, repr=False, kw_only=True)
class MeshClassifier(ClassifierMixin, BaseMesh, ClassOutputs):
    """A classifier: a mesh with one output per class, trained with exact gradients computed forward.

    If y is an indicator matrix (n_samples, n_labels) of 0 and 1, a sample may have several labels: there is one output
    per label, each with a sigmoid of its own, and `predict` returns such a matrix.

    Size, activations, solver and penalty are chosen from the samples unless they are given: by default a fit first
    tries penalties, and where it is affordable both kinds of solvers, on held-out samples, then learns from all.

    Parameters
    ----------
    hidden : "auto", int or tuple of int
        Hidden neurons of `Topology.mesh`, in which everything feeds everything; several numbers are the sizes of layers
        (`Topology.layered`). "auto" is 16 to 64, more for more samples, fewer if there are many features; 16 where lm
        comes first.
    mesh : None, Mesh, Topology or callable
        A net of your own instead. Of a `Mesh` everything is taken: graph, ticks, activations, tied and fixed edges and
        initial weights; a `Topology` is the graph alone. A callable of (n_inputs, n_outputs) makes either. There is one
        input per feature and one output per class.
    ticks : int, optional
        By default as many as the graph needs.
    activation : str, or list of str
        Of the hidden neurons. "auto" alternates relu and elu from 8 hidden neurons and 100 samples on if lm is neither
        taken nor tried, else it is tanh.
    loss : str, optional
        "cross_entropy", for an indicator matrix "binary_cross_entropy"; of a regressor "squared_error" (the default),
        "huber", "poisson" or "quantile".
    solver : "auto", "lm", "adam", "sgd" or a solver object
        `Adam(learning_rate=..., schedule=...)`, `SGD(...)` and `LM()` of `meshnn.training` hold options; a grid search
        reaches them as `solver__learning_rate`. "auto" is adam for classes, and lm for values if edges² x samples
        fits a budget. With l2="auto" both are tried on held-out samples where lm fits its budget. `explain()` reports
        the choice.
    batch_size : "auto", int or None
        Of adam and sgd; None is all samples at once, "auto" is 32 up to 2,500 samples, 64 up to 50,000, else 256.
    max_epochs : "auto" or int
        Passes over the samples; iterations of lm. "auto" is as many passes as make 4,000 steps, at least 15; 300
        iterations.
    l1, l2 : float, float, "auto" or "evidence"
        Penalties: `l1 * sum |w| + l2 / 2 * sum w²` is added to the mean loss; bias edges are left out. With "auto",
        l2 is chosen by held-out samples (`X_val`, those of early_stopping, or folds), see `l2_`; with `structure`, in
        `partial_fit` and with fewer than 8 samples it is 1e-4. "evidence" is for solver="lm", which then finds
        penalties on the way without holding anything out.
    tol : float
        Stop when the loss has not fallen by `tol` in 20 epochs (or `EarlyStopping.patience`); tol=0 never stops. adam
        and sgd lower their rate first, unless it is constant.
    n_restarts : int
        Starts from other weights; the best is kept, by validation loss if there is one, else by training loss.
    early_stopping : bool or EarlyStopping
        Hold out a tenth of the samples (or `X_val, y_val` of `fit`) and keep the weights that do best on them.
        `meshnn.training.EarlyStopping` has options: the fraction, the patience and a score of scikit-learn.
    gradient : "auto", "forward", "factored", "influence" or "adjoint"
        The method, see `Mesh.gradient`; all of them are exact.
    structure : policy or list of policies, optional
        How the graph changes while it learns: `meshnn.training.structure.Prune`, `Regrow`, `Sparsify`, `Grow`.
    standardize : bool
        Scale features to mean 0 and variance 1 first.
    max_categories : int
        Text and category columns of a DataFrame are one-hot encoded; of those with more levels, the rarest share one.
    class_weight : None, "balanced" or dict
    warm_start : bool
        `fit` continues from the weights it has, with the solver and the penalties of before where they are not given.
    callbacks : callable, Callback, or list of them
        Functions are called with (row, mesh) after every row of the history; a true result stops. In
        `meshnn.training`: `Checkpoint(path)` saves the state now and then, and `fit` resumes from such a file;
        `TimeLimit(seconds)` stops in time with the best weights so far.
    n_jobs : int, optional
        Threads. By default as many as pay; -1 is all cores, -2 all but one.
    verbose : int or bool
        1 shows a progress bar (in a log, a line now and then), 2 prints every row.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    mesh_ : Mesh
    history_ : History
    encoder_ : meshnn.tables.encoder.Encoder
        How a DataFrame becomes features: columns are found by name, gaps are filled, texts are one-hot encoded.
    loss_curve_, validation_scores_ : list of float
        Columns of the history, of the start that is kept.
    feature_importances_ : array (n_features,)
        Mean absolute derivative of the outputs by each feature, times the feature's spread, as shares of 1; over up to
        1000 training samples. It tells what the fitted net follows, not what causes what, and two features that say the
        same share it. There is none after `partial_fit`.
    classes_, n_iter_, n_features_in_, feature_names_in_, solver_, solver_reason_, best_restart_

    Examples
    --------
    >>> from meshnn import MeshClassifier
    >>> from meshnn.tables.synthetic import spirals
    >>> X, y = spirals(1000, random_state=0)
    >>> clf = MeshClassifier(random_state=0).fit(X[:700], y[:700])
    >>> clf.score(X[700:], y[700:]) > 0.8
    True
    """

    class_weight: Any = None

    @property
    def _default_loss(self) -> str:  # type: ignore[override]
        return "binary_cross_entropy" if self._several else "cross_entropy"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _checked_y(self, y: Any, X: Any) -> Any:
        columns = _columns(y)
        if columns > 1:
            kind, found = type_of_target(y, input_name="y"), _check_y(y, multi_output=True, estimator=self)
            found = found.toarray() if is_sparse(found) else found
            if kind != "multilabel-indicator" or not ((found == 0) | (found == 1)).all():
                raise DataError(f"y has {columns} columns, but not only 0 and 1; pass one column of classes")
            return np.asarray(found, np.float64)
        found = _check_y(y, estimator=self)
        try:
            if found.dtype == object:
                np.unique(found)
        except TypeError:
            kinds = ", ".join(sorted({type(label).__name__ for label in found}))
            raise DataError(f"y mixes labels of types {kinds}; make them all strings or all numbers") from None
        check_classification_targets(found)
        return found

    def _targets(self, y: Array, sample_weight: Array | None, first: bool) -> tuple[Array, Array | None, int]:
        several = y.ndim == 2
        if not first and hasattr(self, "mesh_") and several != self._several:
            was = "a matrix of labels" if self._several else "one class per sample"
            raise DataError(f"y was {was} before, and now it is not; start a new estimator, or set warm_start=False")
        self._several, classes = several, np.arange(y.shape[1]) if several else np.unique(y)
        if first:
            self.classes_ = classes
        known = self.classes_.tolist()
        if several and self.class_weight is not None:
            raise MeshError("class_weight is for one class per sample, and y is a matrix of labels; use sample_weight")
        if several and len(classes) != len(known):
            raise DataError(f"y has {len(classes)} labels, but it had {len(known)} before")
        if several:
            return y, sample_weight, len(known)
        unknown = sorted(set(classes.tolist()) - set(known), key=str)
        if unknown:
            advice = "name all classes at the first partial_fit, or fit anew with warm_start=False"
            raise DataError(f"y holds the class {unknown[0]!r}, which is not among {known}; {advice}")
        if len(known) < 2:
            raise DataError(f"y holds one class only, {known[0]!r}; a classifier needs at least two classes")
        labels = np.searchsorted(self.classes_, y)
        if self.class_weight is not None:
            balance = self._class_weights(labels, sample_weight, known)
            sample_weight = balance[labels] * (1.0 if sample_weight is None else sample_weight)
        return labels, sample_weight, len(known)

    def _answers(self, targets: Array) -> Array:
        return targets.astype(np.int64) if self._several else np.asarray(self.classes_[targets])

    def _class_weights(self, labels: Array, sample_weight: Array | None, known: list[Any]) -> Array:
        """Return the weight of each class; with "balanced" the weights of all classes have the same sum."""
        if isinstance(self.class_weight, dict):
            strange = sorted(set(self.class_weight) - set(known), key=str)
            if strange and any(label not in self.class_weight for label in known):
                raise DataError(f"class_weight names the class {strange[0]!r}, which is not among {known}")
            given = {f"class_weight[{label!r}]": self.class_weight.get(label, 1.0) for label in known}
            return np.array([real_number(k, v, "a number of at least 0", lambda v: v >= 0) for k, v in given.items()])
        if not isinstance(self.class_weight, str) or self.class_weight != "balanced":
            raise MeshError(f'class_weight must be None, "balanced" or a dictionary, got {self.class_weight!r}')
        sums = np.bincount(labels, sample_weight, minlength=len(known))
        return np.divide(sums.sum() / np.count_nonzero(sums), sums, out=np.zeros(len(known)), where=sums > 0)

    @available_if(streams)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> MeshClassifier:
        """One pass over some samples, for streams; `classes` names all classes at the first call (not those of labels
        in columns, which are all there).

        The scaling of the features follows mean and spread of all samples so far; if `fit` came before, it stays that
        of `fit`. Callbacks see every call.
        """
        if isinstance(self.class_weight, str):
            what = f"class_weight is {self.class_weight!r}, but partial_fit has not seen all samples"
            raise MeshError(f"{what}; pass a dictionary of weights")
        named = None if classes is None else np.unique(column_or_1d(classes))
        if named is None and _columns(y) > 1:
            named = np.arange(_columns(y))  # all labels are there
        before = getattr(self, "classes_", named)
        if before is None:
            raise DataError("the first call of partial_fit needs all classes: pass classes=np.unique(y_all)")
        if named is not None and not np.array_equal(named, before):
            raise DataError(f"classes is {named.tolist()}, but it was {before.tolist()} before; leave it out")
        pass_over(self, X, y, sample_weight, classes_=before)
        return self


def _columns(y: Any) -> int:
    """Return the number of columns of y; several mark the labels of a sample."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:  # lists of different lengths; they are refused elsewhere
        return 1
    return int(shape[1]) if len(shape) == 2 else 1

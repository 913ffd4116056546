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
from meshnn.estimators.continuing import partial_fit_pass, supports_partial_fit
from meshnn.estimators.outputs import ClassOutputs
from meshnn.estimators.scaling import is_sparse


@dataclass(eq=False, repr=False, kw_only=True)
class MeshClassifier(ClassifierMixin, BaseMesh, ClassOutputs):
    """A classifier: a mesh with one output per class, trained with exact gradients computed forward.

    For multilabel targets, y is an indicator matrix (n_samples, n_labels) with entries 0 and 1. The net then has one
    sigmoid output per label, and `predict` returns such a matrix.

    Number of hidden neurons, activations, solver and penalty are chosen from the samples unless they are given. By
    default a fit trains two nets of which one has an embedding of the columns, and keeps one mesh with their mean. For
    each it compares penalties on held-out samples first, and also the solver "lm" where it is affordable. The nets are
    then trained on all samples.

    Parameters
    ----------
    hidden : "auto", int or tuple of int, default="auto"
        Number of hidden neurons of `Topology.mesh`, in which all neurons are connected with each other. A tuple gives
        the sizes of the layers of `Topology.layered`. "auto" chooses 4 to 128 neurons (more for more samples, fewer for
        many features), and 16 where lm is the given or default solver. Raise it if the training loss stays high.
    mesh : Mesh, Topology or callable, optional
        A graph or net to use instead of `hidden`. A `Topology` gives the graph only. A `Mesh` also gives ticks,
        activations, tied and fixed edges and initial weights. A callable of (n_inputs, n_outputs) returns either. The
        graph needs one input per feature (after encoding) and one output per class.
    ticks : int, optional
        Number of ticks that the net runs for. By default `Topology.default_ticks()`. More ticks let signals pass
        through longer paths and cycles, at a proportional cost.
    activation : "auto", str or list of str, default="auto"
        Activation of the hidden neurons, or a list with one activation per neuron. "auto" alternates relu and elu if
        there are at least 8 hidden neurons and more than 100 samples and the solver lm is neither used nor tried;
        otherwise it is tanh.
    loss : str, optional
        Loss function. The default, and only choice, is "cross_entropy" for one class per sample and
        "binary_cross_entropy" for an indicator matrix. `MeshRegressor` has several losses.
    solver : "auto", "lm", "adam", "sgd" or a solver object, default="auto"
        Training algorithm. The objects `Adam(learning_rate=..., schedule=...)`, `SGD(...)` and `LM()` of
        `meshnn.training` hold options, which a grid search sets as `solver__learning_rate`. "auto" uses adam for
        classification; for regression it uses lm (Levenberg-Marquardt) if edges² x samples is within a budget. With
        l2="auto" both are compared on held-out samples where lm is within its budget. `explain()` reports the choice.
    batch_size : "auto", int or None, default="auto"
        Samples per step of adam and sgd. None takes all samples at once. "auto" is 32 up to 2,500 samples, 64 up to
        50,000 and 256 beyond. Large batches are faster per epoch, small ones often find better weights.
    max_epochs : "auto" or int, default="auto"
        Maximum number of passes over the samples, or of iterations of lm. "auto" is 300 iterations of lm, and as many
        passes as make 4,000 steps, at least 15 (fewer if 15 would be more than 20,000 steps). Raise it if a
        `ConvergenceWarning` is shown.
    l1 : float, default=0.0
        Strength of the l1 regularisation: `l1 * sum |w|` is added to the mean loss, without the bias edges. It drives
        weights to zero. The solver lm does not support it.
    l2 : "auto", float or "evidence", default="auto"
        Strength of the l2 regularisation: `l2 / 2 * sum w²` is added to the mean loss, without the bias edges. "auto"
        chooses it on held-out samples (`X_val`, those of `early_stopping`, or cross-validation folds); it is 1e-4 with
        `structure`, in `partial_fit` and with fewer than 8 samples. A number saves the time of the search. "evidence"
        requires solver="lm", which then estimates penalties during training without a hold-out set. `l2_` holds the
        value that was used.
    tol : float, default=1e-4
        Training stops when the loss (on held-out samples, if there are any) has not fallen by `tol` within 20 epochs
        (or `EarlyStopping.patience`). With max_epochs="auto", adam and sgd wait at least a quarter of the epochs. They
        then first lower the learning rate, unless its schedule is constant. tol=0 always trains for `max_epochs`.
    n_restarts : int, default=1
        Number of training runs from different random weights. The run with the lowest validation loss is kept, or with
        the lowest training loss if there is no hold-out set. Raise it if the result depends on `random_state`.
    early_stopping : bool or EarlyStopping, default=False
        If True, hold out a tenth of the samples (or use `X_val, y_val` of `fit`), keep the weights with the lowest
        loss on them, and stop when this loss no longer improves. `meshnn.training.EarlyStopping` has options for the
        fraction, the patience and a scikit-learn score. Use it if the net overfits.
    gradient : "auto", "forward", "factored", "influence" or "adjoint", default="auto"
        Method that computes the gradient, see `Mesh.gradient`. All methods are exact and differ in time and memory
        only. "auto" takes a forward-only method that fits in memory unless backprop is clearly cheaper (`explain`).
    structure : policy or list of policies, optional
        Changes of the graph during training: `Prune`, `Regrow`, `Sparsify` or `Grow` of `meshnn.training.structure`.
        By default the graph is fixed.
    standardize : bool, default=True
        Scale each feature to mean 0 and variance 1. Set it to False if the features are already scaled.
    embedding : "auto", None or int, default="auto"
        Number of ramps per numeric column: further neurons that rise between two quantiles of the column and are
        constant elsewhere, so that the net fits steps and thresholds with few neurons. Every second one of several
        members has them. "auto" is 6 (more for over 5,000 samples) where `n_members="auto"` would be 2, else None. A
        single member has them if its held-out loss is then lower.
    n_members : "auto" or int, default="auto"
        Number of nets that are trained one after another from different random weights. They become one mesh, whose
        outputs are the mean of theirs (of logits for classes), weighted by the inverse of their held-out losses. "auto"
        is 2, or 1 if `hidden`, `mesh`, `ticks`, `activation`, `structure` or `l1` is given, with fewer than 100
        samples, more columns than samples, more than 166 numeric features, samples that are not in memory, and if no
        column has more than two values. Raise it for slightly lower losses at a proportional price.
    max_categories : int, default=100
        Maximum number of one-hot features per text or category column of a DataFrame. The rarest levels of a column
        with more levels share one feature.
    class_weight : None, "balanced" or dict, default=None
        Weight of each class in the loss. "balanced" gives all classes the same total weight, for classes of very
        different frequency. A dict maps classes to weights; classes that are not in it have weight 1. Not available
        for an indicator matrix.
    warm_start : bool, default=False
        If True, `fit` continues from the fitted weights. Solver and penalties stay as in the previous fit unless they
        are given.
    callbacks : callable, Callback, or list of them, optional
        A callable is called with (row, mesh) after each row of the history and stops the fit by returning a true
        value. `meshnn.training.Checkpoint(path)` saves the state every 10 seconds, and a later `fit` resumes from the
        file. `meshnn.training.TimeLimit(seconds)` stops after a given time with the best weights so far.
    n_jobs : int, optional
        Number of threads. By default as many as speed up the computation; -1 is all cores, -2 all but one.
    verbose : int or bool, default=0
        1 shows a progress bar (or a line at intervals if the output is not a terminal), 2 prints every row of the
        history.
    random_state : int, RandomState, Generator or None, default=None
        Seed of initial weights, batches and hold-out sets. Pass an int for reproducible results.

    Attributes
    ----------
    mesh_ : Mesh
        The trained net.
    classes_ : array (n_classes,)
        Classes in sorted order, one per output.
    history_ : History
        Rows with epoch, loss, accuracy, gradient norm and time. A row covers one epoch, or a block of epochs if there
        are 200 or more, so that a run has 100 to 200 rows. Large data sets always have one row per epoch.
    loss_curve_, validation_scores_ : list of float
        Columns of the history for the restart that was kept, of the first of several members. The same holds for
        `l2_`, `solver_`, `n_iter_` and `best_restart_`; `history_` has the rows of all.
    feature_importances_ : array (n_features,)
        Mean absolute derivative of the outputs with respect to each feature, times the standard deviation of the
        feature, over up to 1,000 training samples; the values sum to 1. They describe the fitted net, not causes, and
        two redundant features share their importance. Not available after `partial_fit`.
    encoder_ : meshnn.tables.encoder.Encoder
        Encoding of a DataFrame: columns are selected by name, missing values are filled, text is one-hot encoded.
    l2_ : float
        The l2 penalty that was used.
    solver_, solver_reason_ : str
        The solver that was used, and the reason for the choice.
    n_iter_ : int
        Number of epochs of the restart that was kept.
    best_restart_ : int
        Number of the restart that was kept.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array (n_features,)
        Names of the columns of X. Only defined if all columns have names.

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
            raise DataError(f"y was {was} before, and now it is not; use a new estimator, or set warm_start=False")
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
            advice = "name all classes at the first partial_fit, or set warm_start=False for a new fit"
            raise DataError(f"y holds the class {unknown[0]!r}, which is not among {known}; {advice}")
        if len(known) < 2:
            raise DataError(f"y has only one class, {known[0]!r}; a classifier needs at least two classes")
        labels = np.searchsorted(self.classes_, y)
        if self.class_weight is not None:
            balance = self._class_weights(labels, sample_weight, known)
            sample_weight = balance[labels] * (1.0 if sample_weight is None else sample_weight)
        return labels, sample_weight, len(known)

    def _original_y(self, targets: Array) -> Array:
        return targets.astype(np.int64) if self._several else np.asarray(self.classes_[targets])

    def _class_weights(self, labels: Array, sample_weight: Array | None, known: list[Any]) -> Array:
        """Return the weight of each class; "balanced" gives all classes the same total weight."""
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

    @available_if(supports_partial_fit)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> MeshClassifier:
        """Train for one pass over some samples, for streams.

        The scaling of the features is updated to mean and standard deviation of all samples so far; after `fit` it is
        fixed. Callbacks are called once per call.

        Parameters
        ----------
        X : array_like, DataFrame or scipy.sparse matrix (n_samples, n_features)
            Training samples.
        y : array_like (n_samples,) or (n_samples, n_labels)
            Targets.
        classes : array_like (n_classes,), optional
            All classes. Required in the first call, unless y is an indicator matrix.
        sample_weight : array_like (n_samples,), optional
            Weight of each sample in the loss. By default all weights are 1.

        Returns
        -------
        self
        """
        if isinstance(self.class_weight, str):
            what = f"class_weight is {self.class_weight!r}, but partial_fit has not seen all samples"
            raise MeshError(f"{what}; pass a dictionary of weights")
        named = None if classes is None else np.unique(column_or_1d(classes))
        if named is None and _columns(y) > 1:
            named = np.arange(_columns(y))  # an indicator matrix has all labels
        before = getattr(self, "classes_", named)
        if before is None:
            raise DataError("the first call of partial_fit needs all classes: pass classes=np.unique(y_all)")
        if named is not None and not np.array_equal(named, before):
            raise DataError(f"classes is {named.tolist()}, but it was {before.tolist()} before; leave it out")
        partial_fit_pass(self, X, y, sample_weight, classes_=before)
        return self


def _columns(y: Any) -> int:
    """Return the number of columns of y; more than one is an indicator matrix of labels."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:  # lists of different lengths, which later checks refuse
        return 1
    return int(shape[1]) if len(shape) == 2 else 1

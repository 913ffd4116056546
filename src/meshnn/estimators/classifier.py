"""`MeshClassifier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from meshnn.arguments import real_number
from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.estimators._base import BaseMesh, _streams
from meshnn.estimators._fitted import Classifies

__all__ = ["MeshClassifier"]


@dataclass(eq=False, repr=False)
class MeshClassifier(ClassifierMixin, BaseMesh, Classifies):  # type: ignore[misc]
    """A classifier: a mesh with one output per class, trained with exact gradients computed forward.

    Small nets on small tables are trained with Levenberg-Marquardt, large ones with Adam (`solver="auto"`).

    Parameters
    ----------
    hidden : int
        Hidden neurons of the default topology, `Topology.mesh`: everything feeds everything.
    topology : None, Topology or callable
        Any graph instead; a callable gets (n_inputs, n_outputs). One output per class.
    ticks : int, optional
        By default as many as the topology needs.
    activation, output_activation : str
        Of hidden neurons and of outputs. The outputs of a classifier go into a softmax: "identity", or one without an
        upper bound.
    solver : "auto", "lm", "adam" or "sgd"
        `auto` takes lm if edges² x samples fits a budget, else adam; `explain()` says which and why.
    learning_rate, schedule : float, "cosine" | "linear" | "constant"
        Of adam and sgd.
    batch_size : "auto", int or None
        Of adam and sgd; None is all samples at once, "auto" is all up to 256, else 64.
    max_epochs : int
        Passes over the samples; iterations of lm.
    l1, l2 : float, float or "auto"
        Penalties: `l1 * sum |w| + l2 / 2 * sum w²` is added to the mean loss; bias edges are left out. With "auto", lm
        finds l2 from the evidence of the samples (see `l2_`); adam and sgd take 1e-4.
    gradient : "auto", "forward", "factored", "blocks" or "adjoint"
    early_stopping, validation_fraction : bool, float
        Hold out samples and keep the weights that do best on them.
    patience, tol : int, float
        Stop when the loss has not fallen by `tol` in so many epochs; tol=0 never stops.
    class_weight : None, "balanced" or dict
    n_restarts : int
        Starts from other weights; the best is kept, by validation loss if there is one, else by training loss.
    warm_start : bool
        `fit` goes on from the weights it has.
    callbacks : callable or list of callables
        Called with (row, mesh) after every history row; a true result stops.
    checkpoint : path or Checkpoint, optional
        A file to write the state to now and then. If it is there, `fit` goes on from it.
    n_threads : int, optional
    verbose : int
        1 shows a progress bar, 2 prints every row.
    random_state : int, RandomState, Generator or None
    momentum, nesterov : float, bool
        Of sgd.
    standardize : bool
        Bring features to mean 0 and variance 1 first; the net sees them so.
    structure : policy or list of policies, optional
        How the graph changes while it learns: `meshnn.training.structure.Prune`, `Regrow`, `Sparsify`, `Grow`.
    loss : str, optional
        "cross_entropy"; of a regressor "squared_error" (the default), "huber" or "poisson".
    parameter : array_like of int (n_edges,) or callable, optional
        Which edges are tied (share a number) and which are fixed (-1), see `Mesh`; a callable gets the topology.
    weights : array_like (n_edges,) or callable, optional
        Weights to begin with, and those of fixed edges; a callable gets the topology. By default they are drawn.

    Attributes
    ----------
    mesh_ : Mesh
    history_ : History
    classes_, n_iter_, n_features_in_, feature_names_in_, solver_, solver_reason_, best_restart_

    Examples
    --------
    >>> from meshnn import MeshClassifier
    >>> from meshnn.data.synthetic import spirals
    >>> X, y = spirals(1000, random_state=0)
    >>> clf = MeshClassifier(hidden=10, random_state=0).fit(X[:700], y[:700])
    >>> clf.score(X[700:], y[700:]) > 0.8
    True
    """

    class_weight: Any = None

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        y = column_or_1d(y, warn=True)
        if y.dtype == object:
            _check_sortable(y)
        check_classification_targets(y)
        return X, y

    def _targets(self, y: Array, sample_weight: Array | None, first: bool) -> tuple[Array, Array | None, int]:
        classes = np.unique(y)
        if first:
            self.classes_ = classes
        known = self.classes_.tolist()
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

    def _class_weights(self, labels: Array, sample_weight: Array | None, known: list[Any]) -> Array:
        """What `class_weight` makes of a sample of each class; "balanced" lets classes have the same sum of weights."""
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

    @available_if(_streams)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> MeshClassifier:
        """One pass over some samples, for streams; `classes` names all classes at the first call.

        The scaling of the features is that of the first call, unless `fit` came before: make it a large one, or set
        standardize=False and scale beforehand.
        """
        if isinstance(self.class_weight, str):
            raise MeshError(
                f'partial_fit cannot balance samples that it has not seen, but class_weight is "{self.class_weight}"; '
                "pass a dictionary of weights"
            )
        with self._as_it_was_if_refused():
            named = None if classes is None else np.unique(column_or_1d(classes))
            if not hasattr(self, "classes_"):
                if named is None:
                    raise DataError("the first call of partial_fit needs all classes: pass classes=np.unique(y_all)")
                self.classes_ = named
            elif named is not None and not np.array_equal(named, self.classes_):
                raise DataError(
                    f"classes is {named.tolist()}, but it was {self.classes_.tolist()} before; leave it out, "
                    "or start a new estimator"
                )
            self._pass_over(X, y, sample_weight)
        return self


def _check_sortable(y: Array) -> None:
    try:
        np.unique(y)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in y})
        raise DataError(f"y mixes labels of types {', '.join(kinds)}; make them all strings or all numbers") from None

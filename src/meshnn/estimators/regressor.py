"""`MeshRegressor`."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.estimators._base import BaseMesh
from meshnn.estimators._fitted import Regresses
from meshnn.estimators._sklearn import RegressorMixin, available_if
from meshnn.estimators._streaming import streams

__all__ = ["MeshRegressor"]


class MeshRegressor(RegressorMixin, BaseMesh, Regresses):
    """A regressor: a mesh with one output per target, trained on the squared error or another loss of values.

    The parameters are those of `MeshClassifier` but for class_weight. `loss` is one of

    * "squared_error": with `standardize` the targets are brought to mean 0 and variance 1 too, and predictions are
      given in their own units;
    * "huber": errors beyond the targets' usual spread (found from their median, so that outliers do not count) are
      counted by their size, not their square;
    * "poisson": counts, or rates of them; predictions are rates and never negative.

    With an `output_activation` that has bounds, `standardize` brings targets to where it reaches: with "relu" and
    "softplus" they are divided only, so that predictions are never negative; between the bounds of "sigmoid", "tanh",
    "sin" and "gauss" they stay as they are if they fit, else they are brought into them.

    `predict(X, return_std=True)` also gives the standard deviation of a target around its prediction.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import MeshRegressor
    >>> x = np.linspace(-3, 3, 100)[:, None]
    >>> reg = MeshRegressor(hidden=6, random_state=0).fit(x, np.sin(2 * x[:, 0]))
    >>> reg.score(x, np.sin(2 * x[:, 0])) > 0.9
    True
    >>> value, std = reg.predict([[0.0], [30.0]], return_std=True)
    >>> bool(std[1] > std[0])  # no sample lies near the second one
    True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Array, Array]:
        if hasattr(y, "tocsr"):
            raise DataError("y is a scipy sparse matrix; pass a dense array, for example y.toarray()")
        X, y = self._validate(X, y, reset, multi_output=True, y_numeric=True)
        return X, np.asarray(y, np.float64)

    def _targets(self, y: Array, sample_weight: Array | None, first: bool) -> tuple[Array, Array | None, int]:
        self._flat = y.ndim == 1
        values = y[:, None] if self._flat else y
        return values, sample_weight, values.shape[1]

    def _answers(self, targets: Array) -> Array:
        return targets[:, 0] if self._flat else targets

    @available_if(streams)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> MeshRegressor:
        """One pass over some samples, for streams.

        The scaling of features and targets follows mean and spread of all samples so far (targets of "huber" keep the
        median and the spread of the first call); if `fit` came before, it stays that of `fit`. Callbacks see every
        call; `structure` takes a call for an epoch.
        """
        with self._as_it_was_if_refused():
            self._pass_over(X, y, sample_weight)
        self._tell()
        return self

"""`MeshRegressor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_y

from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.estimators.base import BaseMesh
from meshnn.estimators.continuing import pass_over, streams
from meshnn.estimators.outputs import ValueOutputs
from meshnn.losses import Loss, Quantile


@dataclass(eq=False, repr=False, kw_only=True)
class MeshRegressor(RegressorMixin, BaseMesh, ValueOutputs):
    """A regressor: a mesh with one output per target, trained on the squared error or another loss of values.

    The parameters are those of `MeshClassifier`, but `quantile` instead of class_weight. `loss` is one of

    * "squared_error": with `standardize` the targets are brought to mean 0 and variance 1 too, and predictions are
      given in their own units;
    * "huber": errors beyond the targets' usual spread (found from their median, so that outliers do not count) are
      counted by their size, not their square;
    * "poisson": counts, or rates of them; predictions are rates and never negative;
    * "quantile": predictions are the value that a share `quantile` of the targets lies below, 0.5 (the median) by
      default; from 0.001 to 0.999, rounded to thousandths. `loss_` is then for example "quantile:0.9".

    With a `mesh` whose output activation has bounds, `standardize` brings targets to where it reaches: with "relu" and
    "softplus" they are divided only, so that predictions are never negative; between the bounds of "sigmoid", "tanh",
    "sin" and "gauss" they stay as they are if they fit, else they are brought into them.

    `predict(X, return_std=True)` also gives the standard deviation of a target around its prediction
    (with "squared_error").

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

    quantile: float = 0.5

    _default_loss = "squared_error"

    @property
    def _loss(self) -> Loss:
        found, own = super()._loss, Quantile(self.quantile)
        if isinstance(found, Quantile):
            return own
        if own.level != 0.5:
            raise MeshError(f'quantile={self.quantile!r} is for loss="quantile", got loss={self.loss!r}')
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _checked_y(self, y: Any, X: Any) -> Any:
        if hasattr(y, "tocsr"):
            raise DataError("y is a scipy sparse matrix; pass a dense array, for example y.toarray()")
        return np.asarray(_check_y(y, multi_output=True, y_numeric=True, estimator=self), np.float64)

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
        call.
        """
        pass_over(self, X, y, sample_weight)
        return self

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
from meshnn.estimators.continuing import partial_fit_pass, supports_partial_fit
from meshnn.estimators.outputs import ValueOutputs
from meshnn.losses import Loss, Quantile


@dataclass(eq=False, repr=False, kw_only=True)
class MeshRegressor(RegressorMixin, BaseMesh, ValueOutputs):
    """A regressor: a mesh with one output per target, trained on the squared error or another loss.

    It has all parameters and attributes of `MeshClassifier` except `class_weight` and `classes_`. `loss` has more
    choices here, and `quantile` is new.

    With a `mesh` whose output activation is bounded, targets are scaled into its range if `standardize` is True. For
    "relu" and "softplus" they are only divided by a scale, so that predictions are never negative. For "sigmoid",
    "tanh", "hardtanh", "sin" and "gauss" they stay unscaled if they lie within the bounds and fill enough of the range;
    otherwise they are shifted and scaled into it.

    `predict(X, return_std=True)` also returns the standard deviation of a target around its prediction, for
    "squared_error".

    Parameters
    ----------
    loss : str, optional
        Loss function, "squared_error" by default.

        * "squared_error": predicts the mean. With `standardize`, targets are also scaled to mean 0 and variance 1;
          predictions are in the original units.
        * "huber": robust against outliers. Errors beyond the usual spread of the targets, estimated from their median,
          enter linearly instead of squared.
        * "poisson": for counts or rates. Predictions are rates and never negative.
        * "quantile": predicts the value below which a fraction `quantile` of the targets lies. `loss_` is then for
          example "quantile:0.9".
    quantile : float, default=0.5
        Level of loss="quantile", from 0.001 to 0.999 and rounded to thousandths; 0.5 is the median. It must stay 0.5
        for other losses.
    **others
        See `MeshClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import MeshRegressor
    >>> x = np.linspace(-3, 3, 100)[:, None]
    >>> reg = MeshRegressor(hidden=6, random_state=0).fit(x, np.sin(2 * x[:, 0]))
    >>> reg.score(x, np.sin(2 * x[:, 0])) > 0.9
    True
    >>> value, std = reg.predict([[0.0], [30.0]], return_std=True)
    >>> bool(std[1] > std[0])  # there are no samples near x = 30
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
            raise MeshError(f'quantile={self.quantile!r} requires loss="quantile", got loss={self.loss!r}')
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

    def _original_y(self, targets: Array) -> Array:
        return targets[:, 0] if self._flat else targets

    @available_if(supports_partial_fit)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> MeshRegressor:
        """Train for one pass over some samples, for streams.

        The scaling of features and targets is updated to mean and standard deviation of all samples so far; after `fit`
        it is fixed. With loss="huber" the targets keep the median and the spread of the first call. Callbacks are
        called once per call.

        Parameters
        ----------
        X : array_like, DataFrame or scipy.sparse matrix (n_samples, n_features)
            Training samples.
        y : array_like (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array_like (n_samples,), optional
            Weight of each sample in the loss. By default all weights are 1.

        Returns
        -------
        self
        """
        partial_fit_pass(self, X, y, sample_weight)
        return self

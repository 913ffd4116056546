"""`MeshTimeSeriesRegressor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray
from sktime.regression.base import BaseRegressor

from meshnn.estimators import MeshSequenceRegressor
from meshnn.integrations.sktime._panels import TAGS, OfPanels, as_arrays

__all__ = ["MeshTimeSeriesRegressor"]


@dataclass(eq=False, repr=False)
class MeshTimeSeriesRegressor(OfPanels, BaseRegressor):  # type: ignore[misc]
    """`meshnn.MeshSequenceRegressor` as a regressor of sktime.

    It takes every panel that sktime knows, of one or several variables, of equal or different lengths, without gaps.
    The parameters are those of `MeshSequenceRegressor`; the readout is "last" or "mean".

    Attributes
    ----------
    estimator_ : MeshSequenceRegressor

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn.integrations.sktime import MeshTimeSeriesRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (60, 1, 8))
    >>> y = X[:, 0, -1] - X[:, 0, -2]
    >>> reg = MeshTimeSeriesRegressor(hidden=4, random_state=0).fit(X, y)
    >>> bool(np.corrcoef(reg.predict(X), y)[0, 1] > 0.9)
    True
    """

    _tags: ClassVar[dict[str, Any]] = dict(TAGS)

    def __post_init__(self) -> None:
        """The constructor of sktime, once the parameters are assigned; it calls this in turn."""
        if "_is_vectorized" not in self.__dict__:
            BaseRegressor.__init__(self)

    def _fit(self, X: Any, y: NDArray[Any]) -> MeshTimeSeriesRegressor:
        self.estimator_ = self._fitted_on(MeshSequenceRegressor, X, y)
        return self

    def _predict(self, X: Any) -> NDArray[Any]:
        found: NDArray[Any] = self.estimator_.predict(as_arrays(X))
        return found

"""`MeshTimeSeriesClassifier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray
from sktime.classification.base import BaseClassifier

from meshnn.estimators import MeshSequenceClassifier
from meshnn.integrations.sktime._panels import TAGS, OfPanels, as_arrays

__all__ = ["MeshTimeSeriesClassifier"]


@dataclass(eq=False, repr=False)
class MeshTimeSeriesClassifier(OfPanels, BaseClassifier):  # type: ignore[misc]
    """`meshnn.MeshSequenceClassifier` as a classifier of sktime.

    It takes every panel that sktime knows, of one or several variables, of equal or different lengths, without gaps.
    The parameters are those of `MeshSequenceClassifier`; the readout is "last" or "mean".

    Attributes
    ----------
    estimator_ : MeshSequenceClassifier

    Examples
    --------
    >>> from meshnn.integrations.sktime import MeshTimeSeriesClassifier
    >>> from sktime.datasets import load_italy_power_demand
    >>> X, y = load_italy_power_demand(split="train", return_type="numpy3D")
    >>> clf = MeshTimeSeriesClassifier(hidden=6, l2=0.01, max_epochs=300, random_state=0).fit(X, y)
    >>> bool((clf.predict(X) == y).mean() > 0.9)
    True
    """

    class_weight: Any = None

    _tags: ClassVar[dict[str, Any]] = TAGS | {"capability:predict_proba": True, "capability:class_weight": True}

    def __post_init__(self) -> None:
        """The constructor of sktime, once the parameters are assigned; it calls this in turn."""
        if "_is_vectorized" not in self.__dict__:
            BaseClassifier.__init__(self)

    def _fit(self, X: Any, y: NDArray[Any]) -> MeshTimeSeriesClassifier:
        self.estimator_ = self._fitted_on(MeshSequenceClassifier, X, y)
        return self

    def _predict(self, X: Any) -> NDArray[Any]:
        found: NDArray[Any] = self.estimator_.predict(as_arrays(X))
        return found

    def _predict_proba(self, X: Any) -> NDArray[Any]:
        found: NDArray[Any] = self.estimator_.predict_proba(as_arrays(X))
        return found

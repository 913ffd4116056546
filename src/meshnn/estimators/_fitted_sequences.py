"""Fitted models of sequences without scikit-learn."""

from __future__ import annotations

from typing import Any

from meshnn.arrays import Array
from meshnn.estimators._fitted import FittedClassifier, FittedRegressor
from meshnn.estimators._reading import ReadsSequences

__all__ = ["FittedSequenceClassifier", "FittedSequenceRegressor"]


class FittedSequenceClassifier(ReadsSequences, FittedClassifier):
    """A classifier that only predicts."""

    def predict(self, X: Any) -> Any:
        """As `MeshSequenceClassifier` does."""
        found = self._features(X)
        return self._answered(super().predict(found), found, X)

    def predict_proba(self, X: Any) -> Any:
        """As `MeshSequenceClassifier` does."""
        found = self._features(X)
        return self._answered(super().predict_proba(found), found, X)


class FittedSequenceRegressor(ReadsSequences, FittedRegressor):
    """A regressor that only predicts."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """As `MeshSequenceRegressor` does."""
        found = self._features(X)
        values: Array = super().predict(found, return_std)
        return self._answered(values, found, X)

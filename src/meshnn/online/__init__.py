"""Models that learn from one sample at a time, from dictionaries, whatever features and classes turn up."""

from meshnn.online.classifier import MeshStreamClassifier
from meshnn.online.forecaster import MeshForecaster
from meshnn.online.regressor import MeshStreamRegressor

__all__ = ["MeshForecaster", "MeshStreamClassifier", "MeshStreamRegressor"]

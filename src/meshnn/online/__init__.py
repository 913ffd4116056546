"""Models that learn from one sample at a time; new features and classes may appear at any time."""

from meshnn.online.classifier import MeshStreamClassifier
from meshnn.online.forecaster import MeshForecaster
from meshnn.online.regressor import MeshStreamRegressor

__all__ = ["MeshForecaster", "MeshStreamClassifier", "MeshStreamRegressor"]

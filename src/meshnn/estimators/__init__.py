"""How people use it: scikit-learn estimators that check, delegate to the trainer and can be saved."""

from meshnn.estimators.classifier import MeshClassifier
from meshnn.estimators.regressor import MeshRegressor

__all__ = ["MeshClassifier", "MeshRegressor"]

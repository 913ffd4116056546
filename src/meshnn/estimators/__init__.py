"""How people use it: scikit-learn estimators that check, delegate to the trainer and can be saved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshnn.estimators.classifier import MeshClassifier
    from meshnn.estimators.regressor import MeshRegressor
    from meshnn.estimators.sequence_estimators import MeshSequenceClassifier, MeshSequenceRegressor

__all__ = ["MeshClassifier", "MeshRegressor", "MeshSequenceClassifier", "MeshSequenceRegressor"]
_HOMES = {
    "MeshClassifier": "classifier",
    "MeshRegressor": "regressor",
    "MeshSequenceClassifier": "sequence_estimators",
    "MeshSequenceRegressor": "sequence_estimators",
}


def __getattr__(name: str) -> Any:
    """On first use: what is saved of them can be read and run without scikit-learn."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

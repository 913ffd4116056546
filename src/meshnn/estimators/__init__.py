"""scikit-learn estimators: they validate and preprocess samples, delegate to the trainer, and can be saved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshnn.estimators.classifier import MeshClassifier
    from meshnn.estimators.regressor import MeshRegressor
    from meshnn.estimators.sequence_estimators import MeshSequenceClassifier, MeshSequenceRegressor

__all__ = ["MeshClassifier", "MeshRegressor", "MeshSequenceClassifier", "MeshSequenceRegressor"]


def __getattr__(name: str) -> Any:
    """Import an estimator on first use: saved models are read and run without scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "sequence_estimators" if "Sequence" in name else name.removeprefix("Mesh").lower()
    return getattr(import_module(f"{__name__}.{home}"), name)

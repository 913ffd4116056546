"""How people use it: scikit-learn estimators that check, delegate to the trainer and can be saved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshnn.estimators.classifier import MeshClassifier
    from meshnn.estimators.regressor import MeshRegressor

__all__ = ["MeshClassifier", "MeshRegressor"]


def __getattr__(name: str) -> Any:
    """On first use: what is saved of them can be read and run without scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{name.removeprefix('Mesh').lower()}"), name)

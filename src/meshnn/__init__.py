"""Neural networks of any directed topology, trained with exact gradients computed forward, never backward."""

from typing import TYPE_CHECKING, Any

from meshnn.errors import MeshError
from meshnn.loading import load
from meshnn.mesh import Mesh
from meshnn.topology import Topology

if TYPE_CHECKING:
    from meshnn.estimators import MeshClassifier, MeshRegressor

__all__ = ["Mesh", "MeshClassifier", "MeshError", "MeshRegressor", "Topology", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Estimators on first use: scikit-learn takes longer to import than all the rest."""
    if name in ("MeshClassifier", "MeshRegressor"):
        from meshnn import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'meshnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

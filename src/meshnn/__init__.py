"""Neural networks of any directed topology, trained with exact gradients computed forward, never backward."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshnn.errors import MeshError
    from meshnn.estimators import MeshClassifier, MeshRegressor, MeshSequenceClassifier, MeshSequenceRegressor
    from meshnn.loading import load
    from meshnn.mesh import Mesh
    from meshnn.online import MeshForecaster, MeshStreamClassifier, MeshStreamRegressor
    from meshnn.topology import Topology

__all__ = ["Mesh", "MeshClassifier", "MeshError", "MeshForecaster", "MeshRegressor", "MeshSequenceClassifier",
           "MeshSequenceRegressor", "MeshStreamClassifier", "MeshStreamRegressor", "Topology", "load"]  # fmt: skip
__version__ = "0.2.0.dev0"

_HOMES = {
    "Mesh": "mesh",
    "MeshClassifier": "estimators",
    "MeshError": "errors",
    "MeshForecaster": "online",
    "MeshRegressor": "estimators",
    "MeshSequenceClassifier": "estimators",
    "MeshSequenceRegressor": "estimators",
    "MeshStreamClassifier": "online",
    "MeshStreamRegressor": "online",
    "Topology": "topology",
    "load": "loading",
}


def __getattr__(name: str) -> Any:
    """Everything on first use: scikit-learn takes longer to import than all the rest, and few programs need all."""
    if name not in _HOMES:
        raise AttributeError(f"module 'meshnn' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"meshnn.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

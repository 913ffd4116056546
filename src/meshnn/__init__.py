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
__version__ = "0.3.0.dev0"

_NAMES = {
    "mesh": ["Mesh"], "topology": ["Topology"], "errors": ["MeshError"], "loading": ["load"],
    "estimators": ["MeshClassifier", "MeshRegressor", "MeshSequenceClassifier", "MeshSequenceRegressor"],
    "online": ["MeshForecaster", "MeshStreamClassifier", "MeshStreamRegressor"],
}  # fmt: skip
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Everything on first use: scikit-learn takes longer to import than all the rest, and few programs need all."""
    if name == "_core":
        return _imported_core()
    if name not in _HOMES:
        raise AttributeError(f"module 'meshnn' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"meshnn.{_HOMES[name]}"), name)
    return value


def _imported_core() -> Any:
    """Import the compiled core; refuse a file that was cut short, on which the loader of the system would crash."""
    import os

    folder = os.path.dirname(__file__)
    for name in os.listdir(folder):
        if name.startswith("_core.") and name.endswith(".so"):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                head = file.read(64)
            if head[:5] == b"\x7fELF\x02":  # the table of sections, whose place the head names, comes last
                number = int.from_bytes
                end = number(head[40:48], "little") + number(head[58:60], "little") * number(head[60:62], "little")
                if os.path.getsize(path) < end:
                    raise ImportError(f"{path} is damaged, {end} bytes are expected; install meshnn again")
    return import_module("meshnn._core")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

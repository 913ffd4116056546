"""`load`: whatever a `.mesh` file holds."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from meshnn import storage
from meshnn.mesh import Mesh
from meshnn.storage import FileError

__all__ = ["load", "thaw"]


def load(path: str | PathLike[str]) -> Any:
    """The `MeshClassifier`, `MeshRegressor` or `Mesh` that was saved; a checkpoint gives its best model so far.

    Nothing in a file is ever run, and a file that is damaged, altered or from a newer version is refused.

    Examples
    --------
    >>> import os, tempfile
    >>> import meshnn
    >>> mesh = meshnn.Mesh(meshnn.Topology.mesh(2, 3, 1), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mesh.save(os.path.join(folder, "net.mesh"))
    ...     print(meshnn.load(os.path.join(folder, "net.mesh")))
    Mesh(2-3-1 + bias, 21 edges, 3 ticks, float32)
    """
    return thaw(path, *storage.read(path))


def thaw(path: str | PathLike[str], header: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """The object of a file that has been read."""
    from meshnn.estimators import MeshClassifier, MeshRegressor
    from meshnn.estimators._storage import thaw as estimator

    kinds = {"classifier": MeshClassifier, "regressor": MeshRegressor}
    kind = header.get("kind")
    if isinstance(kind, str) and kind in kinds:
        return estimator(fspath(path), kinds, header, arrays)
    if kind == "mesh":
        try:
            return Mesh.from_parts(header, arrays)
        except FileError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise FileError(f"{fspath(path)} does not hold a mesh that makes sense ({error}); save it again") from None
    raise FileError(
        f"{fspath(path)} holds {str(kind)[:40]!r}, which this version of meshnn does not know; upgrade meshnn"
    )

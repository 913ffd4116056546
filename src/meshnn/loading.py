"""`load`: whatever a `.mesh` file holds."""

from __future__ import annotations

from os import PathLike, fsdecode
from textwrap import shorten
from typing import Any

from meshnn import storage
from meshnn.mesh import Mesh
from meshnn.storage import FileError

__all__ = ["from_tree", "load", "load_fitted"]


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
    Mesh(2-3-1 + bias, 24 edges, 3 ticks, float32)
    """
    return from_tree(path, storage.read(path))


def load_fitted(path: str | PathLike[str]) -> Any:
    """The same without scikit-learn: an estimator is no more than what is needed to look at it and to predict."""
    return from_tree(path, storage.read(path), fitted=True)


def from_tree(path: str | PathLike[str], tree: storage.Tree, fitted: bool = False) -> Any:
    """The object of a file that has been read; `fitted` as in `load_fitted`."""
    from meshnn.estimators._storage import from_tree as estimator

    kinds: dict[str, Any]
    if fitted:
        from meshnn.estimators._fitted import FittedClassifier, FittedRegressor

        kinds = {"classifier": FittedClassifier, "regressor": FittedRegressor}
    else:
        from meshnn.estimators import MeshClassifier, MeshRegressor

        kinds = {"classifier": MeshClassifier, "regressor": MeshRegressor}
    kind, name = tree.get("kind"), fsdecode(path)
    shown = name if name.isprintable() else repr(name)
    if not isinstance(kind, str) or kind not in ("mesh", *kinds):
        raise FileError(f"{shown} holds {str(kind)[:40]!r}, which this version of meshnn does not know; upgrade meshnn")
    try:
        return Mesh.from_tree(tree) if kind == "mesh" else estimator(kinds[kind](), tree)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
        what = shorten(what, 300, placeholder=" ...")
        raise FileError(f"{shown} does not hold a {kind} that makes sense ({what}); save it again") from None

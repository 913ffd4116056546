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
    """The estimator (`MeshClassifier`, `MeshSequenceRegressor`, ...) or `Mesh` that was saved.

    A checkpoint gives its best model so far.

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
    """The same without scikit-learn: an estimator is no more than what is needed to look at it and to predict.

    Forecasters are refused: they have many nets, and no rows to predict.
    """
    found = from_tree(path, storage.read(path), fitted=True)
    if hasattr(found, "forecast"):
        raise FileError(
            f"{fsdecode(path)} holds a forecaster, which goes on with a series; meshnn info shows it, "
            "meshnn.load(path).forecast(horizon) uses it in Python"
        )
    return found


def from_tree(path: str | PathLike[str], tree: storage.Tree, fitted: bool = False) -> Any:
    """The object of a file that has been read; `fitted` as in `load_fitted`."""
    from meshnn.estimators.storing import from_tree as estimator

    found: tuple[Any, ...]
    if fitted:
        from meshnn.estimators.outputs import FittedClassifier, FittedRegressor

        found = (FittedClassifier, FittedRegressor) * 2
    else:
        from meshnn.estimators import MeshClassifier, MeshRegressor, MeshSequenceClassifier, MeshSequenceRegressor

        found = (MeshClassifier, MeshRegressor, MeshSequenceClassifier, MeshSequenceRegressor)
    kinds = dict(zip(("classifier", "regressor", "sequence classifier", "sequence regressor"), found, strict=True))
    from meshnn.online import MeshForecaster, MeshStreamClassifier, MeshStreamRegressor

    streams: dict[str, Any] = {
        model.kind: model for model in (MeshForecaster, MeshStreamClassifier, MeshStreamRegressor)
    }
    kind, name = tree.get("kind"), fsdecode(path)
    shown = name if name.isprintable() else repr(name)
    if not isinstance(kind, str) or kind not in ("mesh", *kinds, *streams):
        raise FileError(f"{shown} holds {str(kind)[:40]!r}, which this version of meshnn does not know; upgrade meshnn")
    try:
        if kind in streams:
            return streams[kind].from_tree(tree)
        return Mesh.from_tree(tree) if kind == "mesh" else estimator(kinds[kind](), tree)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
        what = shorten(what, 300, placeholder=" ...")
        raise FileError(f"{shown} does not hold a {kind} that makes sense ({what}); save it again") from None

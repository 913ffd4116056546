"""`load`: read a model from a `.mesh` file."""

from __future__ import annotations

from os import PathLike
from textwrap import shorten
from typing import Any

from meshnn import storage
from meshnn.files import as_path
from meshnn.mesh import Mesh
from meshnn.storage import FileError

__all__ = ["from_tree", "load", "load_fitted"]


def load(path: str | PathLike[str]) -> Any:
    """Return the estimator (`MeshClassifier`, `MeshSequenceRegressor`, ...) or `Mesh` that was saved.

    From a checkpoint, return the best model so far. No code in a file is executed. A file that is damaged, altered or
    from a newer version is refused.

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
    """Load a model without scikit-learn: an estimator can predict and be inspected, but not fitted.

    Forecasters are refused, because they have several nets and predict no rows.
    """
    found = from_tree(path, storage.read(path), fitted=True)
    if hasattr(found, "forecast"):
        raise FileError(
            f"{as_path(path)[1]} holds a forecaster, which cannot predict rows; meshnn info shows it, "
            "meshnn.load(path).forecast(horizon) uses it in Python"
        )
    return found


def from_tree(path: str | PathLike[str], tree: storage.Tree, fitted: bool = False) -> Any:
    """Return the object of a file that has been read; `fitted` as in `load_fitted`."""
    from meshnn.estimators.storing import from_tree as estimator
    from meshnn.online import MeshForecaster, MeshStreamClassifier, MeshStreamRegressor

    models: tuple[Any, ...]
    if fitted:
        from meshnn.estimators.outputs import FittedClassifier, FittedRegressor

        models = (FittedClassifier, FittedRegressor) * 2
    else:
        from meshnn.estimators import MeshClassifier, MeshRegressor, MeshSequenceClassifier, MeshSequenceRegressor

        models = (MeshClassifier, MeshRegressor, MeshSequenceClassifier, MeshSequenceRegressor)
    names = ("classifier", "regressor", "sequence classifier", "sequence regressor")
    estimators = dict(zip(names, models, strict=True))
    others: dict[str, Any] = {"mesh": Mesh}
    others |= {model.kind: model for model in (MeshForecaster, MeshStreamClassifier, MeshStreamRegressor)}
    kind, shown = tree.get("kind"), as_path(path)[1]
    if not isinstance(kind, str) or kind not in {**estimators, **others}:
        raise FileError(f"{shown} holds {str(kind)[:40]!r}, which this version of meshnn cannot read; upgrade meshnn")
    try:
        return others[kind].from_tree(tree) if kind in others else estimator(estimators[kind](), tree)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        what = shorten(what, 300, placeholder=" ...")
        raise FileError(f"{shown} does not hold a valid {kind} ({what}); save it again") from None

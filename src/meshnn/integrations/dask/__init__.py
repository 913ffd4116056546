"""Training on a Dask cluster: workers keep their partitions, and the result does not depend on the cluster.

Rows become shards (`meshnn.training.cluster`). These are futures, which Dask recomputes on another worker if one is
lost. One task per worker performs the steps of about two seconds, in which the workers exchange sums. If a worker is
lost in this time, the others repeat these steps from the same weights.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.errors import DataError, MeshError
from meshnn.integrations.dask.shards import Shards, read_parquet
from meshnn.integrations.dask.tasks import as_rows
from meshnn.tables.sources import ParquetSource
from meshnn.training.settings import Settings

__all__ = ["Shards", "fit", "open_collections", "predict"]


def fit(client: Any, estimator: Any, X: Any, y: Any, sample_weight: Any = None, **options: Any) -> Any:
    """Fit an estimator on a cluster.

    Parameters
    ----------
    client : distributed.Client
    estimator : MeshClassifier or MeshRegressor
    X : dask DataFrame or Array, or a path
        The path of a Parquet file, or of a folder of them, that all workers can read.
    y : dask Series or Array, or str
        A str is the name of a column.
    sample_weight : dask Series or Array, or str, optional

    Returns
    -------
    estimator
    """
    settings, classes = estimator._settings(), estimator._loss.classifies
    if isinstance(X, (str, os.PathLike)):
        source = ParquetSource(Path(X).absolute(), y, sample_weight)
        shards, *_ = read_parquet(client, source, classes, settings)
    else:
        shards = open_collections(X, y, sample_weight, classes, settings, client)
    try:
        return estimator.fit(shards, **options)
    finally:
        shards.release()


def predict(estimator: Any, X: Any, method: str = "predict") -> Any:
    """Apply `estimator.predict` (or another method) to every partition of X; return a Dask collection."""
    if hasattr(X, "map_partitions"):
        example = X._meta_nonempty.iloc[:1].astype(np.float64) * 0.0
        meta = _predict_frame(example, estimator, method)[:0]
        return X.map_partitions(_predict_frame, estimator, method, meta=meta)
    X = X.rechunk({1: X.shape[1]})
    few = getattr(estimator, method)(np.zeros((1, X.shape[1])))
    more: dict[str, Any] = {"drop_axis": 1} if few.ndim == 1 else {"chunks": (X.chunks[0], (few.shape[1],))}
    return X.map_blocks(lambda block: getattr(estimator, method)(block), dtype=few.dtype, **more)


def _predict_frame(frame: Any, estimator: Any, method: str) -> Any:
    import pandas as pd

    rows = frame if len(frame) else np.zeros((1, frame.shape[1]))  # an empty partition
    found = getattr(estimator, method)(rows)[: len(frame)]
    if found.ndim == 1:
        return pd.Series(found, index=frame.index, name=method)
    return pd.DataFrame(found, index=frame.index, columns=getattr(estimator, "classes_", range(found.shape[1])))


def open_collections(
    X: Any, y: Any, sample_weight: Any, classes: bool, settings: Settings, client: Any = None
) -> Shards:
    """Return the rows of Dask collections with equal partitions."""
    from distributed import futures_of, get_client

    try:
        client = get_client() if client is None else client
    except ValueError:
        raise MeshError(
            "X is a Dask collection, but there is no client; first create client = distributed.Client()"
        ) from None
    if y is None:
        raise DataError("y is missing; pass a Dask Series or array, or the name of a column of X")
    names = None
    if hasattr(X, "columns"):
        X, y, sample_weight = _columns_of(X, y, sample_weight)
        names = [str(name) for name in X.columns]
    elif getattr(X, "ndim", 0) != 2:
        raise DataError(f"X is {type(X).__name__}, expected a Dask DataFrame or a Dask matrix")
    given = {"X": X, "y": y} | ({} if sample_weight is None else {"sample_weight": sample_weight})
    delayed = {name: _delayed(array) for name, array in given.items()}
    for name, parts in delayed.items():
        if len(parts) != len(delayed["X"]):
            count = f"{len(parts)} partitions, X has {len(delayed['X'])}"
            raise DataError(f"{name} has {count}; repartition one of them")
    futures = [list(futures_of(client.persist(parts))) for parts in delayed.values()]
    partitions = [
        client.submit(as_rows, k, names, *arrays, pure=False) for k, arrays in enumerate(zip(*futures, strict=True))
    ]
    return Shards(client, partitions, names, classes, settings)


def _columns_of(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return features, targets and weights of a DataFrame; the latter two may be names of its columns."""
    named = [given for given in (y, sample_weight) if isinstance(given, (str, list))]
    drop = [name for given in named for name in ([given] if isinstance(given, str) else given)]
    for name in drop:
        if name not in X.columns:
            raise DataError(f"the DataFrame has no column {name!r}; it has {', '.join(map(str, X.columns[:20]))}")
    y = X[y] if isinstance(y, (str, list)) else y
    weight = X[sample_weight] if isinstance(sample_weight, str) else sample_weight
    return X.drop(columns=drop) if drop else X, y, weight


def _delayed(array: Any) -> list[Any]:
    if not hasattr(array, "to_delayed"):
        raise DataError(f"{type(array).__name__} is not a Dask collection, but X is; convert it, or pass a column")
    if getattr(array, "ndim", 1) == 2 and hasattr(array, "rechunk"):
        array = array.rechunk({1: array.shape[1]})
    return list(np.ravel(array.to_delayed()))

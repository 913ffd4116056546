"""Rows of DataFrames as dictionaries. pandas is imported by whoever hands one in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshnn.errors import DataError
from meshnn.online._features import Features

__all__ = ["pairs", "predictions", "probabilities", "rows"]


def rows(X: Any) -> list[dict[Any, Any]]:
    """One dictionary a row, without what is missing; all of them are checked."""
    if not hasattr(X, "columns") or not hasattr(X, "itertuples"):
        raise DataError(f"X must be a DataFrame, got {type(X).__name__}; for single samples use the ..._one methods")
    names = list(X.columns)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"X has several columns {twice!r}; give them names of their own")
    if all(kind.kind in "biuf" for kind in X.dtypes):
        values = X.to_numpy(dtype=float, na_value=np.nan)
        if np.isinf(values).any():
            row, column = np.argwhere(np.isinf(values))[0].tolist()
            raise DataError(
                f"feature {names[column]!r} of row {row} is {values[row, column]}; give NaN where it is missing"
            )
        whole = not np.isnan(values).any()
        found = [dict(zip(names, row, strict=True)) for row in values.tolist()]
        return found if whole else [{n: v for n, v in row.items() if v == v} for row in found]
    missing = X.isna().to_numpy()
    found = [
        {n: v for n, v, gone in zip(names, row, none, strict=True) if not gone}
        for row, none in zip(X.itertuples(index=False, name=None), missing.tolist(), strict=True)
    ]
    anything = Features()
    for row in found:
        anything.check(row)
    return found


def pairs(X: Any, y: Any) -> list[tuple[dict[Any, Any], Any]]:
    """Rows with their targets."""
    samples, targets = rows(X), list(y)
    if len(targets) != len(samples):
        raise DataError(f"X has {len(samples)} rows and y {len(targets)} targets; there must be as many")
    empty = next((k for k, x in enumerate(samples) if not x), None)
    if empty is not None:
        raise DataError(f"row {empty} of X has no features: all are missing; leave such rows out")
    return list(zip(samples, targets, strict=True))


def predictions(X: Any, predict: Callable[[dict[Any, Any]], Any]) -> Any:
    """A Series with the index of the frame."""
    import pandas as pd

    return pd.Series([predict(x) for x in rows(X)], index=X.index, dtype=None if len(X) else object)


def probabilities(X: Any, predict: Callable[[dict[Any, Any]], dict[Any, float]], classes: list[Any]) -> Any:
    """A frame with the index of the frame, and a column for each class."""
    import pandas as pd

    found = [list(predict(x).values()) for x in rows(X)]
    return pd.DataFrame(found, index=X.index, columns=pd.Index(classes, dtype=object, tupleize_cols=False), dtype=float)

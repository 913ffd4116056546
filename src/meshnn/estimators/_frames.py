"""Tables in memory: a DataFrame of pandas or polars, or a table of pyarrow."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.errors import DataError

__all__ = ["as_table", "is_frame", "needs_encoding"]


def is_frame(X: Any) -> bool:
    """Whether it has named columns."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "__arrow_c_stream__"))


def needs_encoding(frame: Any) -> bool:
    """Whether columns hold anything but numbers and truth values, or values are missing."""
    if hasattr(frame, "iloc"):
        if any(getattr(dtype, "kind", "O") not in "biufc" for dtype in frame.dtypes):
            return True
        return bool(np.any(frame.isna().to_numpy()))
    from pyarrow import compute, types

    for column in as_table(frame).columns:
        held = column.type
        if not (types.is_integer(held) or types.is_floating(held) or types.is_boolean(held)) or column.null_count:
            return True
        if types.is_floating(held) and compute.any(compute.is_nan(column)).as_py():
            return True
    return False


def as_table(frame: Any) -> Any:
    """The same as a table of pyarrow."""
    import pyarrow as pa

    from meshnn.tables.cells import without_views

    try:
        table = pa.Table.from_pandas(frame, preserve_index=False) if hasattr(frame, "iloc") else pa.table(frame)
        return without_views(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"cannot read the columns of the {type(frame).__name__}: {error}") from None

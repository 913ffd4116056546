"""Labels and names of any type: what is refused, and how they are written to files."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from meshnn.errors import DataError, FileError

__all__ = ["as_label", "from_plain", "to_plain"]


def as_label(y: Any) -> Hashable:
    """The label as it is given back: numbers and texts of numpy become Python's, which are equal to them."""
    try:
        hash(y)
    except TypeError:
        raise DataError(
            f"the label {y!r} is of type {type(y).__name__}, which cannot be a key; a label is a text, a number, a "
            "truth value or a tuple of these"
        ) from None
    found: Hashable = y.item() if isinstance(y, (np.bool_, np.number, np.str_)) else y
    # NaN, NaT and pandas' NA are not equal to themselves, or cannot say so
    if found is None or (isinstance(found, float) and found != found) or _is_missing(found):
        raise DataError(f"the label is {y!r}: it is missing; leave samples without a label out")
    return found


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, np.datetime64) and np.isnat(value))


def to_plain(values: Iterable[Hashable], what: str) -> list[Any]:
    """For a tree, see `meshnn.storage`: tuples are told from lists, which labels cannot be."""
    return [_plain(value, what) for value in values]


def _plain(value: Any, what: str) -> Any:
    if isinstance(value, (np.bool_, np.number)):
        value = value.item()
    if isinstance(value, tuple):
        return [_plain(item, what) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise FileError(
        f"the {what} {value!r} is of type {type(value).__name__}, and files hold texts, numbers, truth values and "
        "tuples of these only; use such, or pickle the model"
    )


def from_plain(values: Any) -> list[Any]:
    """The inverse of `to_plain`."""
    return [tuple(from_plain(value)) if isinstance(value, list) else value for value in values]

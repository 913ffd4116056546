"""Dictionaries of features, turned into rows of numbers; features may come and go."""

from __future__ import annotations

import math
import numbers
import struct
from collections.abc import Hashable, Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError

__all__ = ["Features"]


class Features:
    """Which feature is which input.

    Features that are first met in the same sample are in the order of their names: that of a dictionary says nothing.
    """

    def __init__(self, names: tuple[Hashable, ...] = ()) -> None:
        self.names = names
        self._place = {name: i for i, name in enumerate(names)}
        self.row = np.full((1, 1, len(names)), np.nan)
        self._line = self.row[0, 0]
        # a sample that has all of them is packed by these two, which takes a third of the time of a loop
        self._values = itemgetter(*names) if len(names) > 1 else None
        self._pack = struct.Struct(f"{len(names)}d").pack_into

    def __len__(self) -> int:
        return len(self.names)

    def __reduce__(self) -> Any:
        return Features, (self.names,)

    def missing(self, x: Any) -> list[Hashable]:
        """Features of a sample that were not met before; all of the sample is checked first."""
        self.check(x)
        return _in_order(name for name in x if name not in self._place)

    def with_(self, names: Iterable[Hashable]) -> Features:
        """These and more, which have the next places."""
        return Features((*self.names, *names))

    def quick(self, x: Any) -> Array | None:
        """`fill` for a sample that has just the known features, as most have; None if this is no such sample."""
        if type(x) is dict and self._values is not None and len(x) == len(self.names):
            try:
                values = self._values(x)
                total = sum(values)
                if total - total == 0:  # all are finite
                    self._pack(self._line, 0, *values)
                    return self.row
            except (KeyError, TypeError, ValueError, OverflowError, struct.error):
                pass
        return None

    def fill(self, x: Mapping[Hashable, Any]) -> Array:
        """The row of a sample `(1, 1, features)`; NaN for features that it does not have. Unknown ones are left out.

        The row is used again for the next sample.
        """
        row = self.quick(x)
        if row is not None:
            return row
        self.check(x)
        self._line[:] = math.nan
        for name, value in x.items():
            at = self._place.get(name)
            if at is not None:
                self._line[at] = value
        return self.row

    def check(self, x: Any) -> None:
        """Refuse what is no dictionary of finite numbers."""
        if not isinstance(x, Mapping):
            raise DataError(
                f"a sample is a dictionary of features such as {{'width': 1.5}}, got {type(x).__name__}; "
                "for a DataFrame use learn_many and predict_many, for an array dict(enumerate(row))"
            )
        for name, value in x.items():
            _check_number(name, value)


def _in_order(names: Iterable[Hashable]) -> list[Hashable]:
    """Names of any types in an order that is always the same."""
    found = list(names)
    try:
        return sorted(found)  # type: ignore[type-var]
    except TypeError:
        return sorted(found, key=lambda name: (type(name).__qualname__, repr(name)))


def _check_number(name: Hashable, value: Any) -> None:
    if value is None:
        raise DataError(f"feature {name!r} is None; leave it out of the dictionary where it is missing")
    number = None
    if isinstance(value, (numbers.Real, np.bool_)) or (hasattr(value, "__float__") and np.ndim(value) == 0):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        except (TypeError, ValueError):
            pass
    if number is None:
        what = f"the text {value!r}" if isinstance(value, str) else f"of type {type(value).__name__}"
        raise DataError(
            f"feature {name!r} is {what}, not a number; encode it (river: preprocessing.OneHotEncoder() | model; "
            f"or the feature {f'{name}={value}'!r} with the value 1), or leave it out"
        )
    if not math.isfinite(number):
        shown = value if isinstance(value, float) else "too large for a number of 64 bits"
        raise DataError(
            f"feature {name!r} is {shown}; leave it out of the dictionary where it is missing (it then counts as its "
            "mean), or impute it"
        )

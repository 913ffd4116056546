"""Base class of all online models: parameters and files, labels, conversion of dictionaries to rows of numbers."""

from __future__ import annotations

import inspect
import math
import numbers
import struct
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from operator import itemgetter
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from meshnn import storage
from meshnn.arrays import Array
from meshnn.errors import DataError, FileError
from meshnn.topology.builders import Seed

__all__ = ["Features", "OnlineModel", "as_label", "as_number", "frame_rows", "from_plain", "to_plain"]


class OnlineModel:
    """An estimator whose parameters are the arguments of `__init__` and which can be saved at any time."""

    #: Name of the kind of model in files.
    kind: ClassVar[str]
    settings: Mapping[str, Any] | None
    random_state: Seed

    @classmethod
    def _signature(cls) -> Mapping[str, inspect.Parameter]:
        return {k: p for k, p in inspect.signature(cls.__init__).parameters.items() if k != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor parameters by name."""
        return {name: getattr(self, name) for name in self._signature()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a `.mesh` file. The loaded model continues with bitwise identical results."""
        storage.write(path, self.to_tree())

    def to_tree(self) -> storage.Tree:
        """Return the model as plain values and arrays."""
        params = {name: v.item() if isinstance(v, np.generic) else v for name, v in self._stored_params().items()}
        if params["settings"] is not None:
            params["settings"] = dict(params["settings"])
        if not isinstance(params["random_state"], int):
            params["random_state"] = None
        return {"kind": self.kind, "params": params}

    def _stored_params(self) -> dict[str, Any]:
        """Return the parameters by their names in files."""
        return self.get_params()

    @classmethod
    def _of_params(cls, params: Any) -> Any:
        if not isinstance(params, dict) or not isinstance(params.get("settings"), (dict, type(None))):
            raise FileError("the stored parameters must be a dictionary")
        return cls(**params)

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in self._signature().items()}
        shown = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not defaults[k] and v != defaults[k]]
        return f"{type(self).__name__}({', '.join(shown)})"


def as_label(y: Any) -> Hashable:
    """Return the label with NumPy scalars converted to Python values, as `predict_one` returns it."""
    try:
        hash(y)
    except TypeError:
        raise DataError(f"the label {y!r} is of type {type(y).__name__}; use a string, a number or a tuple") from None
    found: Hashable = y.item() if isinstance(y, (np.bool_, np.number, np.str_)) else y
    # NaN, NaT and pandas' NA are not equal to themselves, or cannot be compared
    missing = type(found).__name__ in ("NAType", "NaTType") or (isinstance(y, np.datetime64) and np.isnat(y))
    if found is None or missing or (isinstance(found, float) and found != found):
        raise DataError(f"the label is missing ({y!r}); leave out samples without a label")
    return found


def to_plain(values: Iterable[Hashable], what: str) -> list[Any]:
    """Return names or labels as plain values for `meshnn.storage`: tuples become lists, which cannot be labels."""
    return [_exchanged(value, what, tuple, list) for value in values]


def from_plain(values: Any, what: str) -> list[Any]:
    """Invert `to_plain`; raise a `FileError` for duplicates."""
    found = [_exchanged(value, what, list, tuple) for value in values] if isinstance(values, list) else None
    if found is None or len(set(found)) != len(found) or any(value != value for value in found):
        raise FileError(f"the stored {what}s must be a list without duplicates")
    return found


def _exchanged(value: Any, what: str, old: Any, new: Any) -> Any:
    value = value.item() if isinstance(value, (np.bool_, np.number)) else value
    if isinstance(value, old):
        return new(_exchanged(item, what, old, new) for item in value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    kinds = "strings, numbers, booleans and tuples of these"
    raise FileError(
        f"the {what} {value!r} is of type {type(value).__name__}, but files can only hold {kinds}; pickle the model"
    )


class Features:
    """The names of the features in the order of the inputs, and the conversion of samples to rows.

    Features that first appear in the same sample are sorted by name, because the order of a dictionary is arbitrary.
    """

    def __init__(self, names: tuple[Hashable, ...] = ()) -> None:
        self.names = names
        self._place = {name: i for i, name in enumerate(names)}
        self.row = np.full((1, 1, len(names)), np.nan)
        self._line = self.row[0, 0]
        # these two pack a sample with all features in a third of the time of a loop
        self._values = itemgetter(*names) if len(names) > 1 else None
        self._pack = struct.Struct(f"{len(names)}d").pack_into

    def __len__(self) -> int:
        return len(self.names)

    def __reduce__(self) -> Any:
        return Features, (self.names,)

    def new_names(self, x: Any) -> list[Hashable]:
        """Return the features of a sample that are not known yet, sorted."""
        new = [name for name in x if name not in self._place]
        try:
            return sorted(new)
        except TypeError:  # names of several types
            return sorted(new, key=lambda name: (type(name).__qualname__, repr(name)))

    def extended(self, names: Iterable[Hashable]) -> Features:
        """Return these features followed by others."""
        return Features((*self.names, *names))

    def fast_row(self, x: Any) -> Array | None:
        """Check and fill a sample that has exactly the known features, the usual case; None for other samples."""
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
        """Return the row `(1, 1, features)` of a checked sample; missing features are NaN, unknown ones are ignored.

        The array is reused for the next sample.
        """
        self._line[:] = math.nan
        for name, value in x.items():
            at = self._place.get(name)
            if at is not None:
                self._line[at] = value
        return self.row

    def check(self, x: Any) -> None:
        """Raise an error if a sample is not a dictionary of finite numbers."""
        if not isinstance(x, Mapping):
            raise DataError(
                f"a sample must be a dictionary of features such as {{'width': 1.5}}, got {type(x).__name__}; "
                "for a DataFrame use learn_many and predict_many, for an array dict(enumerate(row))"
            )
        for name, value in x.items():
            advice = "leave it out if it is missing; give text one feature of 0 or 1 per level"
            as_number(f"feature {name!r}", value, advice)


def as_number(what: str, value: Any, advice: str) -> float:
    """Return the value as a float if it is a finite number; otherwise raise an error that names it by `what`."""
    if type(value) is float and math.isfinite(value):
        return value
    number = math.nan
    if isinstance(value, (numbers.Real, np.bool_)) or (hasattr(value, "__float__") and np.ndim(value) == 0):
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number):
        shown = repr(value) if isinstance(value, (str, float)) or value is None else f"of type {type(value).__name__}"
        raise DataError(f"{what} is {shown[:80]}, expected a finite number; {advice}")
    return number


def frame_rows(X: Any) -> list[dict[Any, Any]]:
    """Return one checked dictionary per row of a DataFrame, without missing values."""
    if hasattr(X, "to_pandas"):  # polars or pyarrow
        X = X.to_pandas()
    if not hasattr(X, "columns") or not hasattr(X, "itertuples"):
        raise DataError(f"X must be a DataFrame, got {type(X).__name__}; for single samples use the ..._one methods")
    names = list(X.columns)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"X has several columns named {twice!r}; rename them so that the names are unique")
    of_numbers = all(kind.kind in "biuf" for kind in X.dtypes)
    values = X.to_numpy(dtype=float, na_value=np.nan) if of_numbers else X.to_numpy(dtype=object)
    found = [
        {name: value for name, value, missing in zip(names, row, gone, strict=True) if not missing}
        for row, gone in zip(values.tolist(), X.isna().to_numpy().tolist(), strict=True)
    ]
    if not of_numbers or np.isinf(values).any():
        for row in found:
            Features().check(row)
    return found

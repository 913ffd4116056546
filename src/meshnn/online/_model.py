"""What all online models share: parameters, files, names of features and labels in files."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Mapping
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from meshnn import storage
from meshnn.errors import DataError, FileError
from meshnn.topology.builders import Seed

__all__ = ["OnlineModel", "as_label", "from_plain", "to_plain"]


class OnlineModel:
    """An estimator whose parameters are the arguments of `__init__` and which can be saved at any time."""

    #: What files call it.
    kind: ClassVar[str]
    settings: Mapping[str, Any] | None
    random_state: Seed

    @classmethod
    def _signature(cls) -> Mapping[str, inspect.Parameter]:
        return {k: p for k, p in inspect.signature(cls.__init__).parameters.items() if k != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters that it was made with."""
        return {name: getattr(self, name) for name in self._signature()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a `.mesh` file at any time: the loaded model goes on bit by bit as this one would."""
        storage.write(path, self.to_tree())

    def to_tree(self) -> storage.Tree:
        """Return it as plain values and arrays."""
        params = {name: v.item() if isinstance(v, np.generic) else v for name, v in self._stored_params().items()}
        if params["settings"] is not None:
            params["settings"] = dict(params["settings"])
        if not isinstance(params["random_state"], int):
            params["random_state"] = None
        return {"kind": self.kind, "params": params}

    def _stored_params(self) -> dict[str, Any]:
        """The parameters by the names that files use."""
        return self.get_params()

    @classmethod
    def _of_params(cls, params: Any) -> Any:
        if not isinstance(params, dict) or not isinstance(params.get("settings"), (dict, type(None))):
            raise FileError("the stored parameters are not a dictionary")
        return cls(**params)

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in self._signature().items()}
        shown = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not defaults[k] and v != defaults[k]]
        return f"{type(self).__name__}({', '.join(shown)})"


def as_label(y: Any) -> Hashable:
    """Return the label as `predict_one` gives it back: numpy's numbers and texts become Python's."""
    try:
        hash(y)
    except TypeError:
        raise DataError(f"the label {y!r} is of type {type(y).__name__}; take a text, a number or a tuple") from None
    found: Hashable = y.item() if isinstance(y, (np.bool_, np.number, np.str_)) else y
    # NaN, NaT and pandas' NA are not equal to themselves, or cannot be compared
    missing = type(found).__name__ in ("NAType", "NaTType") or (isinstance(y, np.datetime64) and np.isnat(y))
    if found is None or missing or (isinstance(found, float) and found != found):
        raise DataError(f"the label is {y!r}: it is missing; leave samples without a label out")
    return found


def to_plain(values: Iterable[Hashable], what: str) -> list[Any]:
    """Return names or labels for a tree of `meshnn.storage`: tuples become lists, which no label can be."""
    return [_exchanged(value, what, tuple, list) for value in values]


def from_plain(values: Any, what: str) -> list[Any]:
    """Return what `to_plain` made plain; each is there once."""
    found = [_exchanged(value, what, list, tuple) for value in values] if isinstance(values, list) else None
    if found is None or len(set(found)) != len(found) or any(value != value for value in found):
        raise FileError(f"the stored {what}s are not a list of different ones")
    return found


def _exchanged(value: Any, what: str, old: Any, new: Any) -> Any:
    value = value.item() if isinstance(value, (np.bool_, np.number)) else value
    if isinstance(value, old):
        return new(_exchanged(item, what, old, new) for item in value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    kinds = "texts, numbers, truth values and tuples of these"
    raise FileError(f"the {what} {value!r} is of type {type(value).__name__}; files hold {kinds}, so pickle the model")

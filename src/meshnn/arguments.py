"""Checks of single arguments, shared by topologies, meshes, tables and training."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError

__all__ = ["BELOW_1", "FROM_0", "POSITIVE", "SHARE", "as_generator", "as_list", "known", "numbers",
           "real_number", "switch", "whole_number"]  # fmt: skip

#: A range of numbers for `real_number`: its description and a test.
Range = tuple[str, Callable[[Any], bool]]
POSITIVE: Range = ("a positive number", lambda v: 0 < v < math.inf)
FROM_0: Range = ("a number of at least 0", lambda v: 0 <= v < math.inf)
SHARE: Range = ("a number from 0 to 1", lambda v: 0 <= v <= 1)
BELOW_1: Range = ("a number from 0 to below 1", lambda v: 0 <= v < 1)


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return the value as an int if it is a whole number (not a bool) in range; else raise an error with the name."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise MeshError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if most is not None and value > most:
        raise MeshError(f"{name} must be at most {most:,}, got {value!r}")
    return int(value)


def real_number(name: str, value: Any, what: str, test: Any) -> float:
    """Return the value as a float if it is a number that passes the test; `what` describes these numbers."""
    if isinstance(value, bool) or not isinstance(value, Real) or not test(value):
        raise MeshError(f"{name} must be {what}, got {value!r}")
    return float(value)


def switch(name: str, value: Any) -> bool:
    """Return the value as a bool if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise MeshError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def as_list(name: str, value: Any) -> list[Any]:
    """Return the items of an ordered collection; strings, sets and dictionaries raise an error."""
    ordered = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if not ordered or isinstance(value, (str, bytes)):
        hint = "; convert it with list(...), in the intended order" if isinstance(value, Iterable) else ""
        raise MeshError(f"{name} must be a list, got {type(value).__name__}{hint}")
    return list(value)


def as_generator(random_state: Any) -> np.random.Generator:
    """Return a generator of random numbers from a seed, a generator or None."""
    if random_state is None or isinstance(random_state, (np.random.Generator, np.random.SeedSequence)):
        return np.random.default_rng(random_state)
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise MeshError(
        f"random_state must be None, a whole number of at least 0 or a numpy Generator, got {random_state!r}"
    )


def known(kind: str, name: Any, names: Iterable[str]) -> str:
    """Return the name if it is one of the names; the error otherwise suggests a similar one."""
    names = list(names)
    if isinstance(name, str) and name in names:
        return name
    close = difflib.get_close_matches(name.lower(), names, n=1) if isinstance(name, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise MeshError(f"unknown {kind} {name!r}{hint} Choose one of {', '.join(names)}")


def numbers(name: str, value: Any) -> Array:
    """Return an array of real numbers."""
    if type(value) is np.ndarray and value.dtype.kind in "fiub":
        return value
    if hasattr(value, "tocsr"):
        raise DataError(f"{name} is a scipy sparse matrix; pass a dense array, for example {name}.toarray()")
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"{name} is a masked array, whose mask would be lost; fill it first with {name}.filled(...)")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name} is not a rectangular array: {error}") from None
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            odd = (item for item in array.ravel() if not isinstance(item, (int, float, np.number)))
            raise DataError(f"{name} must hold numbers, got {next(odd, array.dtype)!r} among its values") from None
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array

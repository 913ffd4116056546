"""Validated dataclasses: the options of solvers and policies, and the states stored in a checkpoint.

Each field declares its valid values by its type and an `Annotated` rule:

    @dataclass
    class Moments:
        steps: Count
        first: Parameters                 # (n_parameters,) finite floats
        landing: tuple[Count, Count]
        inside: Epoch | None              # another such dataclass

`to_tree` converts a dataclass to plain values for a file, `from_tree` reads and validates an untrusted tree, and
`check_fields` validates options passed by a user. An invalid value raises a MeshError with the name of the field and
the value.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from reprlib import repr as shorten
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from meshnn.arguments import known
from meshnn.arrays import Array, FloatArray
from meshnn.errors import MeshError


@dataclass(frozen=True)
class Interval:
    """A rule: numbers from `low` to `high`. `ends` holds the brackets of the interval; `nan` allows NaN."""

    low: float = -math.inf
    high: float = math.inf
    ends: str = "[]"
    nan: bool = False

    def has(self, value: Any) -> bool:
        """Return whether a number is inside."""
        if value != value:
            return self.nan
        above = value >= self.low if self.ends[0] == "[" else value > self.low
        return bool(above and (value <= self.high if self.ends[1] == "]" else value < self.high))

    def __str__(self) -> str:
        return "" if self.nan else f" in {self.ends[0]}{self.low:g}, {self.high:g}{self.ends[1]}"


@dataclass(frozen=True)
class Vector:
    """A rule: a float vector; `from_tree` looks up its length as `sizes[size]` and its data type as `sizes[dtype]`."""

    size: str
    dtype: str = "dtype"
    within: Interval = Interval(-math.inf, math.inf, "()")


Real = Annotated[float, Interval(nan=True)]
FromZero = Annotated[float, Interval(0, math.inf, "[)")]
Positive = Annotated[float, Interval(0, math.inf, "()")]
Fraction = Annotated[float, Interval(0, 1)]
Count = Annotated[int, Interval(0, 2**53)]
PositiveInt = Annotated[int, Interval(1, math.inf, "[)")]
Parameters = Annotated[Array, Vector("parameters")]
Numbers = Annotated[FloatArray, Vector("live", "float64", Interval(0, math.inf, "[)"))]
RandomState = Annotated[Mapping[str, Any], "the state of a PCG64 generator"]

S = TypeVar("S")
_NUMBERS: dict[type, str] = {float: "a number", int: "a whole number"}


def _hints(kind: Any) -> dict[str, Any]:
    """Return the annotated type of each field."""
    return _resolved(kind)


@cache
def _resolved(kind: Any) -> dict[str, Any]:
    found = get_type_hints(kind, include_extras=True)
    return {field.name: found[field.name] for field in fields(kind)}


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """Return the field names of a dataclass, empty for other types."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def to_tree(state: Any) -> Any:
    """Return a dataclass as plain values and arrays; arrays are not copied."""
    kind: Any = type(state)
    if names := _field_names(kind):
        plain = (int, float, str, type(None), np.ndarray)  # not converted; this saves calls
        found = {name: getattr(state, name) for name in names}
        return {name: value if type(value) in plain else to_tree(value) for name, value in found.items()}
    if isinstance(state, (list, tuple)):
        return [to_tree(item) for item in state]
    return state.item() if isinstance(state, np.generic) else state


def from_tree(kind: type[S], tree: Any, sizes: Mapping[str, Any], name: str = "") -> S:
    """Return a dataclass from an untrusted tree; `sizes` holds the values to which rules refer by name."""
    if not isinstance(tree, dict):
        raise _refusal(name or kind.__name__, tree, "a dictionary")
    hints, inside = _hints(kind), f"{name}." if name else ""
    if hints.keys() != tree.keys():
        others = ", ".join(sorted(map(str, hints.keys() ^ tree.keys())))[:200]
        raise MeshError(
            f"{name or kind.__name__} must have the entries {', '.join(hints)}; missing or unknown: {others}"
        )
    return kind(**{key: _checked(f"{inside}{key}", tree[key], hint, sizes) for key, hint in hints.items()})


def check_fields(options: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as plain values after validating them."""
    return {name: _checked(name, getattr(options, name), hint, {}) for name, hint in _hints(type(options)).items()}


class Options:
    """Base class of option dataclasses: validated when created, with scikit-learn's `get_params` and `set_params`."""

    def __post_init__(self) -> None:
        check_fields(self)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options by name."""
        return {name: getattr(self, name) for name in _hints(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Change options by name, validate them and return self."""
        for name, value in params.items():
            setattr(self, known(f"option of {type(self).__name__}", name, self.get_params()), value)
        self.__post_init__()
        return self


def _refusal(name: str, value: Any, expected: str) -> MeshError:
    shown = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else shorten(value)
    return MeshError(f"{name} must be {expected}, got {shown}")


def _checked(name: str, value: Any, hint: Any, sizes: Mapping[str, Any]) -> Any:
    """Return the validated value: numbers as Python numbers, arrays as copies in the required precision."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or (value is None and NoneType in args):
        return value
    if origin in (Union, UnionType):
        return _one_of_several(name, value, [each for each in args if each is not NoneType], sizes)
    if origin is Literal:
        return known(name, value, args)
    if origin in (list, tuple):
        several = origin is list or args[1:] == (...,)
        if not isinstance(value, (list, tuple)) or not (several or len(value) == len(args)):
            raise _refusal(name, value, "a list" if several else f"a list of {len(args)}")
        hints = [args[0]] * len(value) if several else args
        return origin(_checked(f"{name}[{k}]", item, hints[k], sizes) for k, item in enumerate(value))
    if is_dataclass(hint) and isinstance(hint, type):
        return from_tree(hint, value, sizes, name)
    if hint == RandomState:
        return _random(name, value)
    base, rule = args if origin is Annotated else (hint, Interval(-math.inf, math.inf, "()"))
    if isinstance(rule, Vector):
        return _vector(name, value, rule, sizes)
    if base in _NUMBERS:
        return _number(name, value, base, rule)
    kinds = (bool, np.bool_) if base is bool else get_origin(base) or base
    if not isinstance(value, kinds):
        raise _refusal(name, value, {bool: "True or False", str: "a string"}.get(base, "a dictionary"))
    return bool(value) if base is bool else value


def _one_of_several(name: str, value: Any, hints: list[Any], sizes: Mapping[str, Any]) -> Any:
    if len(hints) == 1:
        return _checked(name, value, hints[0], sizes)
    for hint in hints:
        try:
            return _checked(name, value, hint, sizes)
        except MeshError:
            continue
    texts: list[str] = []
    for hint in hints:
        args = get_args(hint)
        texts += map(repr, args) if get_origin(hint) is Literal else [f"{_NUMBERS[args[0]]}{args[1]}"]
    raise _refusal(name, value, " or ".join(texts))


def _number(name: str, value: Any, base: type, rule: Interval) -> Any:
    kinds: Any = numbers.Real if base is float else (int, np.integer)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, kinds) or not rule.has(value):
        raise _refusal(name, value, f"{_NUMBERS[base]}{rule}")
    return base(value)


def _vector(name: str, value: Any, rule: Vector, sizes: Mapping[str, Any]) -> Array:
    size, within = sizes[rule.size], rule.within
    if not (isinstance(value, np.ndarray) and value.shape == (size,) and value.dtype.kind == "f"):
        raise _refusal(name, value, f"{size} floats{within}")
    wrong = np.isnan(value) | (value < within.low) | (value > within.high)
    if within.ends[1] == ")":
        wrong |= np.isinf(value)
    if wrong.any():
        raise _refusal(name, value[wrong][0], f"{size} floats{within}")
    return np.array(value, dtype=sizes.get(rule.dtype, rule.dtype))


def _random(name: str, value: Any) -> Any:
    try:
        np.random.PCG64(0).state = value
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise _refusal(name, value, "the state of a PCG64 generator") from None
    return value

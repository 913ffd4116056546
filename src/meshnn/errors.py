"""The errors of meshnn: every one is a `ValueError` that says what it got, what it expected and what to do."""

import numbers
from typing import Any

__all__ = ["DataError", "MemoryLimitError", "MeshError", "TopologyError", "whole_number"]


class MeshError(ValueError):
    """Base of all errors that meshnn raises on purpose."""


class TopologyError(MeshError):
    """The graph is not one that can be run."""


class DataError(MeshError):
    """The numbers handed in (samples, targets, weights) cannot be used."""


class MemoryLimitError(MeshError):
    """The computation would need more memory than the machine has."""


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """The value as an int, if it is a whole number (not a bool) of at least `least`; the argument is named."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise MeshError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)

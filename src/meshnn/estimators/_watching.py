"""Who is told how training goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from meshnn.arguments import whole_number
from meshnn.errors import MeshError

__all__ = ["as_callbacks", "verbosity"]


def verbosity(verbose: Any) -> int:
    """How much is shown; True is 1."""
    return whole_number("verbose", int(verbose) if isinstance(verbose, (bool, np.bool_)) else verbose, least=0)


def as_callbacks(callbacks: Any) -> list[Callable[..., Any]]:
    """What a user may pass, checked."""
    if callbacks is None:
        return []
    found = list(callbacks) if isinstance(callbacks, Iterable) and not callable(callbacks) else [callbacks]
    for callback in found:
        if not callable(callback):
            raise MeshError(f"callbacks must be functions of (row, mesh), got {type(callback).__name__}")
    return found

"""Who is told how training goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arguments import whole_number

__all__ = ["verbosity"]


def verbosity(verbose: Any) -> int:
    """How much is shown; True is 1."""
    return whole_number("verbose", int(verbose) if isinstance(verbose, (bool, np.bool_)) else verbose, least=0)

"""Array types used in signatures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "BoolArray", "EdgeArray", "FloatArray", "IntArray"]

Array = NDArray[Any]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
EdgeArray = NDArray[Any]  # ends of edges; int32, so products of them may overflow

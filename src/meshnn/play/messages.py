"""Messages to the page: JSON as text, or bytes with a JSON head and arrays of numbers."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.files import finite

__all__ = ["Message", "packed", "said"]

Message = str | bytes


def said(kind: str, **fields: Any) -> str:
    """Return a message as JSON, with null for NaN and infinity."""
    return json.dumps(finite({"kind": kind} | fields), allow_nan=False)


def packed(kind: str, arrays: dict[str, NDArray[Any]], **fields: Any) -> bytes:
    """Return a message with arrays: the length of the head in 4 bytes, the head, then the arrays, floats first."""
    kinds = {name: "u1" if array.dtype == np.uint8 else "f4" for name, array in arrays.items()}
    order = sorted(arrays, key=lambda name: kinds[name])  # f4 before u1, so that all are aligned
    fields["arrays"] = [[name, kinds[name], int(arrays[name].size)] for name in order]
    head = said(kind, **fields).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join(np.ascontiguousarray(arrays[name], f"<{kinds[name]}").tobytes() for name in order)
    return struct.pack("<I", len(head)) + head + body

"""Messages to the page: JSON as text, or bytes with a JSON head and arrays of numbers."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.files import finite

__all__ = ["Message", "packed", "said", "unpacked"]

Message = str | bytes
_DTYPES: dict[str, np.dtype[Any]] = {"f4": np.dtype("<f4"), "u1": np.dtype("u1")}


def said(kind: str, **fields: Any) -> str:
    """Return a message as JSON, with null for NaN and infinity."""
    return json.dumps(finite({"kind": kind} | fields), allow_nan=False)


def packed(kind: str, arrays: dict[str, NDArray[Any]], **fields: Any) -> bytes:
    """Return a message with arrays: the length of the head in 4 bytes, the head, then the arrays, floats first.

    >>> unpacked(packed("frame", {"w": np.array([1.0, 2.0])}, epoch=3))
    ({'kind': 'frame', 'epoch': 3}, {'w': array([1., 2.], dtype=float32)})
    """
    kinds = {name: "u1" if array.dtype == np.uint8 else "f4" for name, array in arrays.items()}
    order = sorted(arrays, key=lambda name: kinds[name])  # f4 before u1, so that all are aligned
    fields["arrays"] = [[name, kinds[name], int(arrays[name].size)] for name in order]
    head = said(kind, **fields).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join(np.ascontiguousarray(arrays[name], _DTYPES[kinds[name]]).tobytes() for name in order)
    return struct.pack("<I", len(head)) + head + body


def unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the head and the arrays of a message that `packed` made."""
    (length,) = struct.unpack_from("<I", message)
    head = json.loads(message[4 : 4 + length])
    at, arrays = 4 + length, {}
    for name, kind, count in head.pop("arrays"):
        arrays[name] = np.frombuffer(message, _DTYPES[kind], count, at)
        at += count * _DTYPES[kind].itemsize
    return head, arrays

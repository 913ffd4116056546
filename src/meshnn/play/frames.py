"""What goes over the wire: JSON as text, or numbers with a JSON head as bytes."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Message", "packed", "said", "unpacked"]

#: A text, or bytes for numbers.
Message = str | bytes
_KINDS: dict[str, np.dtype[Any]] = {"f4": np.dtype("<f4"), "u1": np.dtype("u1")}


def said(kind: str, **fields: Any) -> str:
    """A message without many numbers; NaN, which JSON does not know, is null."""
    return json.dumps({"kind": kind} | {name: _plain(value) for name, value in fields.items()}, allow_nan=False)


def packed(kind: str, arrays: dict[str, NDArray[Any]], **fields: Any) -> bytes:
    """Numbers behind a head: its length in 4 bytes, the head, then the arrays, those of 4 bytes first.

    >>> unpacked(packed("frame", {"w": np.array([1.0, 2.0])}, epoch=3))
    ({'kind': 'frame', 'epoch': 3}, {'w': array([1., 2.], dtype=float32)})
    """
    kinds = {name: "u1" if array.dtype == np.uint8 else "f4" for name, array in arrays.items()}
    order = sorted(arrays, key=lambda name: kinds[name])  # f4 before u1, so that all are aligned
    fields["arrays"] = [[name, kinds[name], int(arrays[name].size)] for name in order]
    head = said(kind, **fields).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join(np.ascontiguousarray(arrays[name], _KINDS[kinds[name]]).tobytes() for name in order)
    return struct.pack("<I", len(head)) + head + body


def unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The head and the arrays of `packed`."""
    (length,) = struct.unpack_from("<I", message)
    head = json.loads(message[4 : 4 + length])
    at, arrays = 4 + length, {}
    for name, kind, count in head.pop("arrays"):
        arrays[name] = np.frombuffer(message, _KINDS[kind], count, at)
        at += count * _KINDS[kind].itemsize
    return head, arrays


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value

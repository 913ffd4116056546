"""The container under a `.mesh` file: a header and named arrays in one safetensors file.

    8 bytes    n, little endian
    n bytes    JSON, padded with spaces: dtype, shape and data_offsets of every array, and `__metadata__`, which holds
                   format    "meshnn"
                   version   "1"
                   header    the header, itself JSON
                   sha256    over version, header, and every array's name, dtype, shape and bytes
    the rest   the bytes of the arrays, little endian, without gaps

Any safetensors tool opens it. The bytes are read and written here and not by that library, which holds every array
twice, forgets what the system said about a full disk, and keeps the metadata of bytes to itself.

Files are not trusted: sizes are checked before memory is taken, and nothing in a file is ever run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from io import BufferedReader
from reprlib import repr as shorten
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import FileError, MemoryLimitError
from meshnn.files import as_path, explained, write_whole
from meshnn.memory import check_fits

__all__ = ["FORMAT", "VERSION", "FileError", "read", "read_header", "write"]

FORMAT = "meshnn"
VERSION = 1

# safetensors' name of a dtype -> numpy's
_DTYPES = {
    "BOOL": "|b1",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "|u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "F32": "<f4",
    "F64": "<f8",
}
_CODES = {numpy: code for code, numpy in _DTYPES.items()}
_KNOWN = "bool, int8 to int64, uint8 to uint64, float32, float64"

_LONGEST = 100_000_000  # bytes of JSON that safetensors tools accept
_DEEPEST = 32  # levels of a header; Python's own limit depends on who calls
_GROWTH = 64  # bytes of Python objects that one byte of JSON can become; nested lists reach 44

_REPAIR = "restore it from a backup or save it again"
_FOREIGN = "is not a .mesh file, or a badly damaged one; name a file that meshnn saved"


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Save a header and arrays: all of it, or the old file stays as it was.

    Parameters
    ----------
    path : where to save; a link is followed, the permissions of an existing file are kept
    header : what JSON can hold exactly: str keys, finite numbers, no tuples; the order of keys is lost
    arrays : arrays of any shape, of bool, int8 to int64, uint8 to uint64, float32 or float64

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from meshnn.storage import read, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.mesh")
    ...     write(path, {"ticks": 3}, {"weights": np.ones(2)})
    ...     read(path)
    ({'ticks': 3}, {'weights': array([1., 1.])})
    """
    write_whole(path, _pack(as_path(path)[1], header, arrays))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Load what `write` saved, bit for bit; anything else is refused.

    Returns
    -------
    header : dict
    arrays : dict of writable arrays, sorted by name
    """
    text, shown = as_path(path)
    try:
        with explained("read", shown), open(text, "rb", opener=_open_without_waiting) as file:
            return _unpack(file, shown)
    except MemoryError:
        raise MemoryLimitError(f"reading {shown} took more memory than there is; free some") from None


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header alone. The arrays are read too: the checksum covers them."""
    return read(path)[0]


# Writing


def _pack(shown: str, header: Any, arrays: Any) -> list[Any]:
    """The file as buffers to be written one after the other."""
    if not isinstance(header, dict):
        raise FileError(f"cannot write {shown}: the header must be a dictionary, got {type(header).__name__}")
    if fault := _fault(header):
        raise FileError(f"cannot write {shown}: header{fault}")
    try:
        text = _dump(header)
    except ValueError as error:  # an integer of thousands of digits
        raise FileError(f"cannot write {shown}: the header cannot be written as JSON: {error}") from None

    plain = {name: _as_little_endian(shown, name, array) for name, array in arrays.items()}
    digest = _digest(str(VERSION), text, plain)
    entries: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "version": str(VERSION), "header": text, "sha256": digest}
    }
    order = sorted(plain, key=lambda name: (-plain[name].itemsize, name))  # wide ones first: all lie aligned
    end = 0
    for name in order:
        array = plain[name]
        begin, end = end, end + array.nbytes
        entries[name] = {
            "dtype": _CODES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    front = _dump(entries, sort_keys=False).encode()
    front += b" " * (-len(front) % 8)
    if len(front) > _LONGEST:
        raise FileError(
            f"cannot write {shown}: its header takes {len(front):,} bytes, at most {_LONGEST:,} can be read again; "
            "move numbers from the header into arrays"
        )
    return [len(front).to_bytes(8, "little"), front, *(_bytes(plain[name]) for name in order)]


def _as_little_endian(shown: str, name: Any, array: Any) -> NDArray[Any]:
    """The array as it will lie in the file."""
    if not isinstance(name, str) or name == "__metadata__" or _fault(name):
        raise FileError(f"cannot write {shown}: {name!r} cannot be the name of an array; choose a plain string")
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise FileError(f"cannot write {shown}: array {name!r} must be a plain numpy array, got {type(array).__name__}")
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in _CODES:
        raise FileError(f"cannot write {shown}: array {name!r} has dtype {array.dtype}, expected one of {_KNOWN}")
    plain: NDArray[Any] = np.asarray(array, dtype=dtype, order="C")
    if not _has_clean_bools(plain):
        raise FileError(f"cannot write {shown}: array {name!r} is bool but holds bytes other than 0 and 1")
    return plain


# Reading


def _open_without_waiting(path: str, flags: int) -> int:
    """A pipe would make us wait for its other end."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _unpack(file: BufferedReader, shown: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of an open file."""
    status = os.fstat(file.fileno())
    size = status.st_size
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"cannot read {shown}: it is a device or a pipe; name a file")
    if size == 0:
        raise FileError(f"{shown} is empty; {_REPAIR}")
    n = int.from_bytes(file.read(8), "little")
    if n > min(size - 8, _LONGEST):
        raise FileError(f"{shown} {_FOREIGN}")
    check_fits(size + _GROWTH * n, f"reading {shown}", "free some memory or read it on a larger machine")

    try:
        entries = _parse(file.read(n).decode())
    except (ValueError, RecursionError):
        raise FileError(f"{shown} {_FOREIGN}") from None
    if not isinstance(entries, dict):
        raise FileError(f"{shown} {_FOREIGN}")
    version, text, checksum = _metadata(shown, entries.pop("__metadata__", None))

    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype, shape in _layout(shown, entries, size - 8 - n):
        try:
            arrays[name] = np.empty(shape, dtype)
        except ValueError:  # no elements, yet too many of them for numpy
            raise FileError(f"{shown} is damaged: array {shorten(name)} has an impossible shape; {_REPAIR}") from None
        if file.readinto(_bytes(arrays[name])) != arrays[name].nbytes:
            raise FileError(f"{shown} is damaged: it became shorter while it was read; {_REPAIR}")
    if _digest(version, text, arrays) != checksum:
        raise FileError(f"{shown} is damaged: its checksum does not match; {_REPAIR}")
    for name, array in arrays.items():
        if not _has_clean_bools(array):
            raise FileError(f"{shown} is damaged: bool array {shorten(name)} holds more than 0 and 1; {_REPAIR}")

    header = _header(shown, text)
    return header, {
        name: arrays[name].astype(arrays[name].dtype.newbyteorder("="), copy=False) for name in sorted(arrays)
    }


def _metadata(shown: str, metadata: Any) -> tuple[str, str, str]:
    """Version, header and checksum, if the file is one of ours that we can read."""
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise FileError(f"{shown} is a safetensors file, but not a .mesh file; name a file that meshnn saved")
    version = metadata.get("version")
    if not isinstance(version, str) or not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise FileError(f"{shown} is damaged: its version is {shorten(version)}, not a number; {_REPAIR}")
    if int(version) > VERSION:
        raise FileError(
            f"{shown} was written by a newer meshnn (file format {version}, this one reads up to {VERSION}); "
            "upgrade meshnn"
        )
    text, checksum = metadata.get("header"), metadata.get("sha256")
    for key, value in (("header", text), ("checksum", checksum)):
        if not isinstance(value, str):
            raise FileError(f"{shown} is damaged: it has no {key}; {_REPAIR}")
    return version, str(text), str(checksum)


def _layout(shown: str, entries: dict[str, Any], room: int) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    """Name, dtype and shape of every array in the order of their bytes, which fill the room exactly."""
    found = []
    for name, entry in entries.items():
        match entry:
            case {"dtype": str(code), "shape": [*shape], "data_offsets": [begin, end]} if len(entry) == 3:
                if code not in _DTYPES:
                    raise FileError(
                        f"{shown}: array {shorten(name)} has dtype {shorten(code)}, expected one of {_KNOWN}"
                    )
                dtype = np.dtype(_DTYPES[code])
                sizes = [*shape, begin, end]
                # the bounds come first: a product of long integers could take hours
                if (
                    not _fault(name)
                    and len(shape) <= 64
                    and all(type(size) is int and 0 <= size < 2**63 for size in sizes)
                    and math.prod(shape) * dtype.itemsize == end - begin
                ):
                    found.append((begin, end, name, dtype, tuple(shape)))
                    continue
        raise FileError(f"{shown} is damaged: its entry for array {shorten(name)} makes no sense; {_REPAIR}")

    found.sort(key=lambda item: item[:3])
    at = 0
    for begin, end, name, _, _ in found:
        if begin != at:
            raise FileError(f"{shown} is damaged: array {shorten(name)} is not where it should be; {_REPAIR}")
        at = end
    if at != room:
        raise FileError(f"{shown} is damaged: it holds {room:,} bytes of arrays, expected {at:,}; {_REPAIR}")
    return [(name, dtype, shape) for _, _, name, dtype, shape in found]


def _header(shown: str, text: str) -> dict[str, Any]:
    """The header from its JSON."""
    try:
        header = _parse(text)
    except (ValueError, RecursionError):
        raise FileError(f"{shown} is damaged: its header is not valid JSON; {_REPAIR}") from None
    if not isinstance(header, dict):
        raise FileError(f"{shown} is damaged: its header is not a dictionary; {_REPAIR}")
    if fault := _fault(header):
        raise FileError(f"{shown} is damaged: header{fault}")
    return header


# Both


def _dump(value: Any, sort_keys: bool = True) -> str:
    """Compact JSON in ASCII; the same value gives the same text."""
    return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)


def _parse(text: str) -> Any:
    """The value of a JSON text; a key that comes twice is refused, as readers disagree on which one counts."""
    return json.loads(text, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _fault(value: Any, depth: int = 0) -> str:
    """What would not come back from JSON as it was, and where; empty if all does."""
    if isinstance(value, (dict, list)):
        if depth == _DEEPEST:
            return f" is nested more than {_DEEPEST} deep; flatten it"
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and (not isinstance(key, str) or _fault(key)):
                return f" has the key {shorten(key)}; use plain strings as keys"
            if fault := _fault(item, depth + 1):
                return f"[{shorten(key)}]{fault}"
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f" is {shorten(value)}, which is not valid Unicode; replace the lone surrogates"
    elif isinstance(value, float):
        if not math.isfinite(value):
            return f" is {float(value)!r}, which JSON cannot hold; write it as a string or into an array"
    elif value is not None and not isinstance(value, int):
        return f" is of type {type(value).__name__}; use dict, list, str, int, float, bool or None"
    return ""


def _digest(version: str, header: str, arrays: dict[str, NDArray[Any]]) -> str:
    """The checksum: a JSON list of all but the numbers, then the numbers, arrays sorted by name."""
    names = sorted(arrays)
    front = [version, header, [[name, arrays[name].dtype.str, list(arrays[name].shape)] for name in names]]
    digest = hashlib.sha256(_dump(front).encode())
    for name in names:
        digest.update(_bytes(arrays[name]))
    return digest.hexdigest()


def _bytes(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _has_clean_bools(array: NDArray[Any]) -> bool:
    """Whether every bool is 0 or 1: compiled code is free to do anything with another byte."""
    return array.dtype.kind != "b" or bool(array.view(np.uint8).max(initial=0) < 2)

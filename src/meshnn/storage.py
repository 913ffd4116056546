"""The `.mesh` file: one tree of plain values and arrays in one safetensors file.

    8 bytes    n, little endian
    n bytes    JSON, padded with spaces: dtype, shape and data_offsets of every array, and `__metadata__`, which holds
                   format    "meshnn"
                   version   "2"
                   tree      the tree as JSON: {"$array": name} stands for an array, {"$float": "nan"} (inf, -inf) for
                             a number that JSON cannot hold; a key that begins with $ is stored with a second $
                   sha256    of version, tree, and every array's name, dtype, shape and bytes
    the rest   the bytes of the arrays, little endian, without gaps

Any safetensors tool opens these files, and the safetensors library, which validates offsets, shapes and lengths, parses
them here. The header is written here: the library orders metadata randomly, but equal trees must give equal files.

Files are not trusted: sizes are checked before memory is allocated, and no code from a file is executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from io import BufferedReader
from reprlib import repr as shorten
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import FileError, MemoryLimitError
from meshnn.files import as_path, explained, write_whole
from meshnn.memory import check_fits

__all__ = ["FileError", "Tree", "read", "write"]

#: Nested dictionaries and lists of str, int, float, bool, None and arrays.
Tree = dict[str, Any]

# safetensors' name of a dtype -> numpy's name
_DTYPES = {"BOOL": "|b1", "I8": "|i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "|u1", "U16": "<u2",
           "U32": "<u4", "U64": "<u8", "F32": "<f4", "F64": "<f8"}  # fmt: skip


class _Format:
    version = 2
    longest = 100_000_000  # maximum number of bytes of JSON in safetensors tools
    deepest = 32  # maximum nesting; Python's recursion limit depends on the depth of the caller
    growth = 64  # maximum bytes of Python objects per byte of JSON; nested lists reach 44


def write(path: str | os.PathLike[str], tree: Tree) -> None:
    """Save a tree; if writing fails, the old file is unchanged.

    Parameters
    ----------
    path : path-like
        File to write. Links are followed, and the permissions of an existing file are kept.
    tree : dict
        Nested dictionaries with str keys and lists of str, int, float, bool, None and arrays. Arrays have a dtype from
        bool, int8 to int64, uint8 to uint64, float32 and float64. The order of keys is not stored.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from meshnn.storage import read, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.mesh")
    ...     write(path, {"ticks": 3, "net": {"weights": np.ones(2)}})
    ...     read(path)
    {'net': {'weights': array([1., 1.])}, 'ticks': 3}
    """
    shown = as_path(path)[1]
    try:
        chunks = _pack(tree)
    except _FaultError as fault:
        raise FileError(f"cannot write {shown}: {fault}") from None
    write_whole(path, chunks)


def read(path: str | os.PathLike[str]) -> Tree:
    """Return the tree that `write` saved, bit for bit, with writable arrays; raise a `FileError` for any other file."""
    text, shown = as_path(path)
    try:
        with explained("read", shown), open(text, "rb", opener=_open_without_waiting) as file:
            return _unpack(_content(file, shown), shown)
    except _FaultError as fault:
        raise FileError(f"{shown} is damaged: {fault}; restore it from a backup or save it again") from None
    except MemoryError:
        raise MemoryLimitError(f"reading {shown} needs more memory than is available; free some memory") from None


class _FaultError(ValueError):
    """A fault in a file. Its message follows the name of the file."""


# Writing


def _pack(tree: Tree) -> list[Any]:
    """Return the file as a list of buffers, in order."""
    if not isinstance(tree, dict):
        raise _FaultError(f"the tree must be a dictionary, got {type(tree).__name__}")
    arrays: dict[str, Array] = {}
    flat = _flatten(tree, (), arrays)
    try:
        text = _dump(flat)
    except ValueError as error:  # an integer of thousands of digits
        raise _FaultError(f"the tree cannot be written as JSON: {error}") from None
    version = str(_Format.version)
    digest, codes = _digest(version, text, arrays), {numpy: code for code, numpy in _DTYPES.items()}
    entries: Tree = {"__metadata__": {"format": "meshnn", "version": version, "tree": text, "sha256": digest}}
    order = sorted(
        arrays, key=lambda name: (-arrays[name].itemsize, name)
    )  # wide dtypes first, so that all arrays are aligned
    end = 0
    for name in order:
        a = arrays[name]
        begin, end = end, end + a.nbytes
        entries[name] = {"dtype": codes[a.dtype.str], "shape": list(a.shape), "data_offsets": [begin, end]}
    front = _dump(entries, sort_keys=False).encode()
    front += b" " * (-len(front) % 8)
    if len(front) > _Format.longest:
        raise _FaultError(
            f"its values outside of arrays take {len(front):,} bytes, more than {_Format.longest:,}; use arrays"
        )
    return [len(front).to_bytes(8, "little"), front, *(_bytes(arrays[name]) for name in order)]


def _flatten(value: Any, place: tuple[Any, ...], arrays: dict[str, Array]) -> Any:
    """Return JSON values with a placeholder per array; arrays are added to `arrays`, named by their path."""
    if len(place) >= _Format.deepest and isinstance(value, (dict, list)):
        raise _FaultError(f"{_named(place[:3])}... is nested more than {_Format.deepest} deep; flatten it")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or not _is_unicode(key):
                raise _FaultError(f"{_named(place)} has the key {shorten(key)}; use plain strings as keys")
        return {
            f"${key}" if key.startswith("$") else key: _flatten(item, (*place, key), arrays)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_flatten(item, (*place, k), arrays) for k, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        name = ".".join(map(str, place))
        while name in arrays or name == "__metadata__":  # two paths with the same name, because a key contains a dot
            name += "'"
        arrays[name] = _as_little_endian(value, place)
        return {"$array": name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, str) and not _is_unicode(value):
        raise _FaultError(f"{_named(place)} is {shorten(value)}, which is not valid Unicode")
    if value is not None and not isinstance(value, (str, int, float)):
        kinds = "dict, list, str, int, float, bool, None or an array"
        raise _FaultError(f"{_named(place)} is of type {type(value).__name__}; use {kinds}")
    return value


def _as_little_endian(array: Array, place: tuple[Any, ...]) -> Array:
    """Return the array in the byte order and layout of the file."""
    if isinstance(array, np.ma.MaskedArray):
        raise _FaultError(f"{_named(place)} must be a plain numpy array, got {type(array).__name__}")
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in _DTYPES.values():
        raise _FaultError(f"{_named(place)} has dtype {array.dtype}, expected one of {', '.join(_DTYPES)}")
    plain: Array = np.asarray(array, dtype=dtype, order="C")
    if not _has_clean_bools(plain):
        raise _FaultError(f"{_named(place)} has dtype bool, but contains bytes other than 0 and 1")
    return plain


def _named(place: tuple[Any, ...]) -> str:
    return "tree" + "".join(f"[{shorten(key)}]" for key in place)


# Reading


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking on a named pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _content(file: BufferedReader, shown: str) -> bytes:
    """Return all bytes of a regular file, after a check that they fit into memory."""
    status = os.fstat(file.fileno())
    size = status.st_size
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"cannot read {shown}: it is a device or a pipe; pass the path of a file")
    if size == 0:
        raise _FaultError("it is empty")
    first = file.read(8)
    n = int.from_bytes(first, "little")
    if n > min(size - 8, _Format.longest):
        raise _foreign(shown)
    # the bytes, the arrays made of them, and the Python objects made of the JSON
    check_fits(2 * size + _Format.growth * n, f"reading {shown}", "free some memory or use a machine with more memory")
    return first + file.read(size - 8)


def _foreign(shown: str) -> FileError:
    return FileError(f"{shown} is not a .mesh file or is severely damaged; pass a file that meshnn saved")


def _unpack(content: bytes, shown: str) -> Tree:
    """Return the tree in the bytes of a file."""
    n = int.from_bytes(content[:8], "little")
    try:
        front = _parse(content[8 : 8 + n])
    except _FaultError:
        raise _foreign(shown) from None
    version, text, checksum = _metadata(shown, front.get("__metadata__"))
    arrays = _arrays(content)
    if _digest(version, text, arrays) != checksum:
        raise _FaultError("its checksum does not match")
    native = {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}
    tree: Tree = _unflatten(_parse(text), (), native)
    if native:
        raise _FaultError(f"array {shorten(min(native))} is not part of the tree")
    return tree


def _metadata(shown: str, metadata: Any) -> tuple[str, str, str]:
    """Return version, tree and checksum of a .mesh file of the current version."""
    match metadata:
        case {"format": "meshnn", "version": str(version), "tree": str(text), "sha256": str(checksum)}:
            if version == str(_Format.version):
                return version, text, checksum
            what = (
                f"{shown} has file format {shorten(version)}, but this version of meshnn reads format {_Format.version}"
            )
            raise FileError(f"{what}; load it with the version of meshnn that wrote it")
        case {"format": "meshnn"}:
            raise _FaultError("its metadata is incomplete")
    raise _foreign(shown)


def _arrays(content: bytes) -> dict[str, Array]:
    from safetensors import SafetensorError, deserialize

    found: dict[str, Array] = {}
    try:
        for name, entry in deserialize(content):
            if entry["dtype"] not in _DTYPES:
                kinds = ", ".join(_DTYPES)
                raise _FaultError(f"array {shorten(name)} has dtype {entry['dtype']}, expected one of {kinds}")
            found[name] = np.ndarray(entry["shape"], _DTYPES[entry["dtype"]], buffer=entry["data"])
            if not _has_clean_bools(found[name]):
                raise _FaultError(f"bool array {shorten(name)} contains bytes other than 0 and 1")
    except (
        SafetensorError,
        ValueError,
        OverflowError,
    ) as error:  # ValueError: an empty array with a shape too large for numpy
        raise _FaultError(" ".join(str(error).split())[:200]) from None
    return found


def _unflatten(value: Any, place: tuple[Any, ...], arrays: dict[str, Array]) -> Any:
    """Return the inverse of `_flatten`; the arrays used are removed from `arrays`."""
    if len(place) >= _Format.deepest and isinstance(value, (dict, list)):
        raise _FaultError(f"it is nested more than {_Format.deepest} deep")
    if isinstance(value, list):
        return [_unflatten(item, (*place, k), arrays) for k, item in enumerate(value)]
    if not isinstance(value, dict):
        if isinstance(value, str) and not _is_unicode(value):
            raise _FaultError(f"{_named(place)} is not valid Unicode")
        return value
    match value:
        case {"$array": str(name)} if len(value) == 1 and name in arrays:
            return arrays.pop(name)
        case {"$float": "nan" | "inf" | "-inf" as number} if len(value) == 1:
            return float(number)
    found = {}
    for key, item in value.items():
        if not _is_unicode(key) or (key.startswith("$") and not key.startswith("$$")):
            raise _FaultError(f"{_named(place)} has the invalid key {shorten(key)}")
        found[key[1:] if key.startswith("$") else key] = _unflatten(item, (*place, key), arrays)
    return found


# Both


def _dump(value: Any, sort_keys: bool = True) -> str:
    """Return compact, deterministic JSON in ASCII."""
    return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)


def _parse(text: str | bytes) -> Tree:
    """Return the dictionary in a JSON text; duplicate keys are refused, because parsers treat them differently."""

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("duplicate key")
        return dict(pairs)

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not valid JSON")

    try:
        found = json.loads(text, object_pairs_hook=without_duplicates, parse_constant=refuse)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _FaultError("its tree is not a JSON dictionary")
    return found


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _digest(version: str, tree: str, arrays: dict[str, Array]) -> str:
    """Return the SHA-256 of a JSON list of everything but the array contents, then the contents, sorted by name."""
    names = sorted(arrays)
    front = [version, tree, [[name, arrays[name].dtype.str, list(arrays[name].shape)] for name in names]]
    digest = hashlib.sha256(_dump(front).encode())
    for name in names:
        digest.update(_bytes(arrays[name]))
    return digest.hexdigest()


def _bytes(array: Array) -> memoryview:
    """Return the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _has_clean_bools(array: Array) -> bool:
    """Return whether every bool is 0 or 1; other bytes are undefined behaviour in compiled code."""
    return array.dtype.kind != "b" or bool(array.view(np.uint8).max(initial=0) < 2)

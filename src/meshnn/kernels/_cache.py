"""Compiled kernels on disk: Numba's cache, but one that never stands in the way.

* It belongs to *all* kernel sources: Numba alone would miss a change in a kernel that another file calls, and in the
  fields of a named tuple that a kernel takes.
* Every file ends with a checksum, so that a power cut or a full disk is noticed; then the kernel is compiled again.
* What cannot be saved is compiled again next time; no computation fails for it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path

from numba.core import caching, config
from numba.core.runtime import rtsys

from meshnn.kernels._compiler import KIND, Loading
from meshnn.schedule.lists import ROW_BYTES

__all__ = ["KernelCache", "cached_files", "clear_cache", "folder_in_use", "sources"]

#: All our files begin so.
PREFIX = "meshnn-"
_KERNELS = Path(__file__).parent
_PACKAGE = _KERNELS.parent
#: Parsing all files would take longer than loading the kernels.
_IMPORT = re.compile(rf"^\s*(?:from|import)\s+({_PACKAGE.name}[.\w]*)(?:\s+import\s+\(?([\w,\s]*))?", re.MULTILINE)


def sources(kernel=None, kernels=_KERNELS, package=_PACKAGE):
    """All files a kernel is made of: those of this folder, its own, and what they import of the package."""
    todo, found = [*kernels.rglob("*.py"), *([kernel] if kernel else [])], set()
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _imported(path, package)
    return sorted(found)


def _imported(path, package):
    """The files of the package that a file imports, wherever in it."""
    for module, names in _IMPORT.findall(path.read_text()):
        for name in (module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))):
            place = package.parent.joinpath(*name.split("."))
            if place != package:  # which only gathers names
                yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


@lru_cache
def fingerprint(kernel=None, kernels=_KERNELS, package=_PACKAGE):
    """A stamp of all files that a kernel is compiled from."""
    stamp = hashlib.sha256(str(ROW_BYTES).encode())
    for path in sources(kernel, kernels, package):
        stamp.update(os.path.relpath(path, package).encode() + b"\0" + path.read_bytes())
    return stamp.hexdigest()


class DamagedCacheError(Exception):
    """A file whose checksum does not match."""


class _Impl(caching.CompileResultCacheImpl):
    def get_filename_base(self, fullname, abiflags):
        return PREFIX + super().get_filename_base(fullname, abiflags)

    def rebuild(self, target_context, payload):
        kind = payload[0][1]
        found = super().rebuild(Loading(target_context) if kind == KIND else target_context, payload)
        return found._replace(target_context=target_context)


class _Files(caching.IndexDataCacheFile):
    """An index and its data files, with a checksum at the end of each."""

    def _write(self, path, value):
        data = self._dump(value)
        with self._open_for_write(path) as file:
            file.write(data + hashlib.sha256(data).digest())

    def _read(self, path):
        data = Path(path).read_bytes()
        if hashlib.sha256(data[:-32]).digest() != data[-32:]:
            raise DamagedCacheError("a file was cut short or altered")
        return pickle.loads(data)

    def _load_index(self):
        try:
            version, stamp, index = self._read(self._index_path)
        except FileNotFoundError:
            return {}
        fresh = (version, stamp) == (self._version, self._source_stamp)
        return pickle.loads(index) if fresh else {}  # an old one may name classes that are gone

    def _save_index(self, overloads):
        self._write(self._index_path, (self._version, self._source_stamp, self._dump(overloads)))

    def _load_data(self, name):
        return self._read(self._data_path(name))

    def _save_data(self, name, data):
        self._write(self._data_path(name), data)

    def load(self, key):
        """What was saved for the key, or None."""
        found = super().load(key)
        return found[2] if found is not None and found[:2] == (self._source_stamp, key) else None

    def save(self, key, data):
        """Data first: were the index first, it could name a file of older sources, or of another process."""
        index = self._load_index()
        taken = {name for known, name in index.items() if known != key}
        name = index.get(key) or next(name for name in map(self._data_name, count(1)) if name not in taken)
        self._save_data(name, (self._source_stamp, key, data))
        self._save_index(index | {key: name})

    def forget(self):
        """Drop the index, and with it all that it names."""
        with suppress(OSError):
            os.unlink(self._index_path)


class KernelCache(caching.FunctionCache):
    """The compiled code of one kernel."""

    _impl_class = _Impl

    def __init__(self, py_func):
        super().__init__(py_func)
        file = Path(py_func.__code__.co_filename)
        stamp = fingerprint(None if _KERNELS in file.parents else file)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig, codegen):
        return *super()._index_key(sig, codegen), _fields(sig)

    def load_overload(self, sig, target_context):
        """The kernel for these types; None, and it is compiled, if it is not there or cannot be used."""
        try:
            # Numba would first import all it takes to compile anything: longer than to load and run a kernel
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)
        except MemoryError:
            raise
        except Exception as error:  # whatever bytes that are not ours may lead to
            self._cache_file.forget()
            _say(f"compiled kernels in {self._cache_path} cannot be used ({_short(error)}): compiling them again")
            return None

    def save_overload(self, sig, data):
        """Keep a kernel, if there is room for it."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _say(f"cannot save compiled kernels in {self._cache_path} ({_short(error)}): later runs compile them again")


def _fields(kind):
    """The names within named tuples, however deep: Numba compares only their classes and types."""
    within = kind if isinstance(kind, tuple) else getattr(kind, "types", ())
    return tuple(getattr(kind, "fields", ())), tuple(found for part in within if (found := _fields(part)) != ((), ()))


def _short(error):
    return getattr(error, "strerror", None) or " ".join(str(error).split())[:100] or type(error).__name__


_said = set()


def _say(text):
    """Once each kind, however many kernels it concerns."""
    kind = text.split(" in ")[0]
    if kind not in _said and not os.environ.get("MESHNN_QUIET"):
        print(f"meshnn: {text}", file=sys.stderr, flush=True)
    _said.add(kind)


# -- where it is ---------------------------------------------------------------------------------------------------


def _place():
    """Stands for any kernel: Numba looks for a place by function."""


def folder_in_use():
    """Where new code is saved; None if nothing can be written."""
    try:
        return Path(_Impl(_place).locator.get_cache_path())
    except RuntimeError:
        return None


def cached_files():
    """All files of ours, also in places that are no longer in use."""
    kinds = [caching.InTreeCacheLocator, caching.UserWideCacheLocator]
    if config.CACHE_DIR:
        kinds.insert(0, caching.UserProvidedCacheLocator)
    folders = {path.parent for path in _PACKAGE.rglob("*.py")}
    places = {kind(_place, str(folder / "x.py")).get_cache_path() for kind in kinds for folder in folders}
    return sorted(path for place in places for path in Path(place).glob(f"{PREFIX}*.nb[ci]*") if path.is_file())


def clear_cache():
    """Delete all files of ours."""
    for path in cached_files():
        path.unlink(missing_ok=True)

"""Tables that need not fit in memory: Parquet files and folders, `.npy` files, blocks of any kind, block by block.

A source is read from its beginning to its end once; what it holds goes into a `Spool`. What is wrong is told with file
and row.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array
from meshnn.data.parquet_files import ENDINGS, ROWS, ParquetFiles
from meshnn.data.tables import shown
from meshnn.errors import DataError
from meshnn.files import as_path, explained

__all__ = ["BlockSource", "NpySource", "ParquetSource", "Rows", "Source", "is_large", "open_source"]

#: A memory map of more bytes than so many is not read as a whole.
LARGE_MAP = 2**29


class Rows(NamedTuple):
    """A block: features, targets and weights, as they are in the source."""

    X: Array  # (rows, width)
    y: Array  # (rows,) or (rows, n_targets): numbers or labels
    weight: Array | None


class Source(ABC):
    """Where rows come from."""

    name: str
    names: list[str] | None = None  # of the features, if they have names
    expected: int | None = None  # rows, if that is known
    weighted: bool = False

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The smallest that holds all features as they are."""

    @abstractmethod
    def blocks(self) -> Iterator[Rows]:
        """All rows, from the first to the last."""


def is_large(X: Any) -> bool:
    """Whether X is something to be read block by block: a path, a large memory map, or an iterator."""
    if isinstance(X, (str, os.PathLike, Source)):
        return True
    if isinstance(X, np.memmap):
        return X.ndim == 2 and X.filename is not None and X.nbytes > LARGE_MAP
    return isinstance(X, Iterator)


def open_source(X: Any, y: Any, sample_weight: Any = None, drop: Sequence[str] = ()) -> Source:
    """A source from what is handed to `fit`.

    Parameters
    ----------
    X : path, memory map or iterable of blocks
        A Parquet file, a folder of Parquet files, a `.npy` file; or blocks `(X, y)`, `(X, y, weight)`, tables.
    y : str, list of str, path, array or None
        Columns of the table, or as many numbers or labels as there are rows; None if blocks have their own.
    sample_weight : str or array, optional
        A column of the table, or as many numbers as there are rows.
    drop : list of str
        Columns that are no features.
    """
    if isinstance(X, Source):
        return X
    if isinstance(X, (str, os.PathLike)):
        file, name = Path(X), as_path(X)[1]
        with explained("read", name):
            if file.is_dir():
                return ParquetSource(file, y, sample_weight, drop)
            file.stat()
        if file.suffix.lower() in ENDINGS:
            return ParquetSource(file, y, sample_weight, drop)
        if file.suffix.lower() == ".npy":
            return NpySource(file, y, sample_weight)
        raise DataError(
            f"{name} is no table that can be read block by block; pass a .parquet or .npy file, or a folder of "
            ".parquet files"
        )
    if isinstance(X, np.memmap):
        return NpySource(X, y, sample_weight)
    return BlockSource(X, y, sample_weight)


def _column_names(y: Any, what: str) -> list[str]:
    names = [y] if isinstance(y, str) else y
    if isinstance(names, Sequence) and names and all(isinstance(name, str) for name in names):
        return list(names)
    raise DataError(f"{what} must be the name of a column of the table, got {type(y).__name__}")


def _check_finite(X: Array, names: Sequence[str] | None, where: str, first: int) -> None:
    """Refuse what is missing or not finite, with its row, counted from 1."""
    if np.isfinite(X).all():
        return
    row, column = np.argwhere(~np.isfinite(X))[0].tolist()
    what = f"column {shown(names[column])}" if names is not None else f"feature {column}"
    value = X[row, column]
    raise DataError(
        f"{where}: row {first + row + 1:,}: {what} is {'missing' if np.isnan(value) else value}; "
        "fill it or leave the row out"
    )


class ParquetSource(Source):
    """A Parquet file, or all of a folder in the order of their names; row groups are read one after the other."""

    def __init__(self, path: Path, y: Any, sample_weight: Any = None, drop: Sequence[str] = ()) -> None:
        self.table = ParquetFiles(path)
        self.path, self.name, self.schema = path, self.table.name, self.table.schema
        self.expected = self.table.rows
        self.targets = _column_names(y, "y")
        self.weight = None if sample_weight is None else _column_names(sample_weight, "sample_weight")[0]
        self.weighted = self.weight is not None
        wanted = [*self.targets, *([self.weight] if self.weight else []), *drop]
        for column in wanted:
            if column not in self.schema.names:
                raise DataError(f"{self.name} has no column {shown(column)}; it has {_few(self.schema.names)}")
        out = {*wanted, *(name for name in self.schema.names if name.startswith("__index_level_"))}
        self.names: list[str] = [name for name in self.schema.names if name not in out]
        if not self.names:
            raise DataError(f"{self.name} has no column to learn from; drop fewer")
        self._check_types(self.schema)
        self._columns = [*self.names, *self.targets] + ([self.weight] if self.weight is not None else [])
        for k in range(len(self.table.files)):  # not after hours
            self.table.check_alike(k, self._columns)

    @property
    def files(self) -> list[Path]:
        """All of them, in order."""
        return list(self.table.files)

    def _check_types(self, schema: Any) -> None:
        from pyarrow import types

        for name in self.names:
            kind = schema.field(name).type
            if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
                raise DataError(
                    f"{self.name}: column {shown(name)} is {kind}, expected numbers; drop it, encode it before it is "
                    "written, or read the table into memory, where text is encoded"
                )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest that holds all features as they are."""
        small = ("float", "halffloat", "int8", "int16", "uint8", "uint16", "bool")
        kinds = {str(self.schema.field(name).type) for name in self.names}
        return np.dtype(np.float32 if kinds <= set(small) else np.float64)

    def blocks(self) -> Iterator[Rows]:
        """All rows; a folder that changes meanwhile is refused."""
        for k in range(len(self.table.files)):
            yield from self.blocks_of(k)
        self.table.check_unchanged()

    def blocks_of(self, k: int) -> Iterator[Rows]:
        """The rows of file number k."""
        for batch, first in self.table.batches(k, self._columns):
            yield self._rows(batch, os.fspath(self.table.files[k]), first)

    def _rows(self, batch: Any, file: str, first: int) -> Rows:
        X = np.empty((batch.num_rows, len(self.names)), self.dtype)
        for k, name in enumerate(self.names):
            X[:, k] = _numbers(batch.column(batch.schema.get_field_index(name)))
        _check_finite(X, self.names, file, first)
        targets = [self._target(batch, name, file, first) for name in self.targets]
        weight = None
        if self.weight is not None:
            weight = _numbers(batch.column(batch.schema.get_field_index(self.weight))).astype(np.float64)
            _check_weights(weight, file, first)
        return Rows(X, targets[0] if len(targets) == 1 else np.stack(targets, axis=1), weight)

    def _target(self, batch: Any, name: str, file: str, first: int) -> Array:
        column = batch.column(batch.schema.get_field_index(name))
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(
                f"{file}: row {first + row + 1:,}: column {shown(name)} is missing; fill it or leave the row out"
            )
        values: Array = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f":
            _check_finite(values[:, None], [name], file, first)
        return values.astype(str) if values.dtype == object else values


def _numbers(column: Any) -> Array:
    """Numbers of a column; nan where there is none."""
    found: Array = column.to_numpy(zero_copy_only=False)
    return found.astype(np.float64) if found.dtype == object else found


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:20])) + (", ..." if len(names) > 20 else "")


def _check_weights(weight: Array, where: str, first: int) -> None:
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(f"{where}: row {first + row + 1:,} has the weight {weight[row]:g}, which must be 0 or more")


class NpySource(Source):
    """A matrix in a `.npy` file or a memory map, and an array, or another file, of what belongs to its rows.

    It is read, not mapped: what is mapped counts as memory that is used.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        self._X, self.name = _mapped(X, "X")
        if self._X.ndim != 2 or self._X.dtype.kind not in "fiub":
            raise DataError(f"{self.name} holds {self._X.dtype} {self._X.shape}, expected a matrix of numbers")
        if y is None:
            raise DataError(f"{self.name} has features only; pass y, an array or a .npy file of as many rows")
        self._y, label = _mapped(y, "y")
        self._weight = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        self.weighted, self.expected = self._weight is not None, len(self._X)
        for what, array in ((label, self._y), ("sample_weight", self._weight)):
            if array is not None and len(array) != len(self._X):
                raise DataError(f"{what} has {len(array):,} rows, but {self.name} has {len(self._X):,}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest that holds all features as they are."""
        exact = self._X.dtype in (np.float32, np.float16) or self._X.dtype.itemsize < 3
        return np.dtype(np.float32 if exact else np.float64)

    @property
    def width(self) -> int:
        """Numbers in a row of the matrix."""
        return int(self._X.shape[1])

    def few_targets(self, count: int) -> Array:
        """Those of about so many rows, in runs that are evenly spaced."""
        runs = 1 if len(self._y) <= count else 64
        starts = np.arange(runs) * len(self._y) // runs
        y = np.concatenate([_read(self._y, slice(begin, begin + count // runs)) for begin in starts.tolist()])
        return y[:, 0] if y.ndim == 2 else y

    def blocks(self) -> Iterator[Rows]:
        """All rows."""
        for begin in range(0, len(self._X), ROWS):
            part = slice(begin, begin + ROWS)
            X, y = _read(self._X, part).astype(self.dtype, copy=False), _read(self._y, part)
            _check_finite(X, None, self.name, begin)
            if y.dtype.kind == "f":
                _check_finite(y.reshape(len(y), -1), None, f"y of {self.name}", begin)
            weight = None if self._weight is None else self._weight[part]
            if weight is not None:
                _check_weights(weight, "sample_weight", begin)
            yield Rows(X, y, weight)


def _mapped(given: Any, what: str) -> tuple[Any, str]:
    if isinstance(given, (str, os.PathLike)):
        name = as_path(given)[1]
        with explained("read", name):
            try:
                return np.load(given, mmap_mode="r", allow_pickle=False), name
            except ValueError as error:
                raise DataError(f"{name} is no .npy file of numbers ({error}); write it with numpy.save") from None
    if isinstance(given, np.memmap) and given.filename is not None:
        return given, os.fspath(given.filename)
    return np.asarray(given), what


def _read(array: Any, part: slice) -> Array:
    """Some rows; of a file by reading them, since pages that are mapped stay."""
    if not (isinstance(array, np.memmap) and array.filename is not None and array.flags.c_contiguous):
        return np.asarray(array[part])
    base = np.lib.array_utils.byte_bounds(array)[0] - np.lib.array_utils.byte_bounds(_base(array))[0]
    first, last, _ = part.indices(len(array))
    each = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    found = np.fromfile(array.filename, array.dtype, (last - first) * each // array.dtype.itemsize,
                        offset=_base(array).offset + base + first * each)  # fmt: skip
    return found.reshape(last - first, *array.shape[1:])


def _base(array: Any) -> Any:
    """The map that a view is of."""
    while isinstance(array.base, np.memmap):
        array = array.base
    return array


class BlockSource(Source):
    """Blocks from anywhere: `(X, y)`, `(X, y, weight)`, DataFrames or pyarrow tables with a column for y."""

    def __init__(self, blocks: Any, y: Any = None, sample_weight: Any = None) -> None:
        if not isinstance(blocks, Iterable):
            raise DataError(f"X is {type(blocks).__name__}; pass blocks (X, y), a path or an array")
        self._blocks, self.name = blocks, "the blocks"
        self.targets = None if y is None else _column_names(y, "y")
        self.weight = None if sample_weight is None else _column_names(sample_weight, "sample_weight")[0]
        self.weighted = self.weight is not None
        self._dtype: np.dtype[Any] = np.dtype(np.float64)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the first block, if it is small."""
        return self._dtype

    def blocks(self) -> Iterator[Rows]:
        """All rows; the first block says what the others must look like."""
        width, before = None, 0
        for k, block in enumerate(self._blocks):
            rows = self._rows(block, f"block {k + 1}")
            if k == 0:
                width, self.weighted = rows.X.shape[1], rows.weight is not None
                self._dtype = np.dtype(np.float32 if rows.X.dtype in (np.float32, np.float16) else np.float64)
            if rows.X.shape[1] != width or (rows.weight is not None) != self.weighted:
                raise DataError(f"block {k + 1} has {rows.X.shape[1]} features"
                                f"{'' if rows.weight is None else ' and weights'}, but the first had {width}"
                                f"{' and weights' if self.weighted else ''}; make all blocks alike")  # fmt: skip
            _check_finite(rows.X, self.names, f"block {k + 1}, from row {before + 1:,} on", 0)
            if rows.y.dtype.kind == "f":
                _check_finite(rows.y.reshape(len(rows.y), -1), None, f"y of block {k + 1}", 0)
            if len(rows.X):
                before += len(rows.X)
                yield rows
        if before == 0:
            raise DataError("there is no block with a row in it; an iterator can be read once only")

    def _rows(self, block: Any, where: str) -> Rows:
        if hasattr(block, "column_names") or hasattr(block, "columns"):
            return self._of_table(block, where)
        if not (isinstance(block, (tuple, list)) and len(block) in (2, 3)):
            raise DataError(f"{where} is {type(block).__name__}, expected (X, y), (X, y, weight) or a table")
        try:
            X = np.asarray(block[0])
            X = X if X.dtype.kind == "f" else X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: X is no matrix of numbers ({error})") from None
        y, weight = np.asarray(block[1]), None if len(block) == 2 else np.asarray(block[2], np.float64)
        if X.ndim != 2 or len(y) != len(X) or (weight is not None and weight.shape != (len(X),)):
            shapes = ", ".join(str(np.shape(part)) for part in block)
            raise DataError(f"{where} has the shapes {shapes}; expected (rows, features), (rows,) and weights (rows,)")
        if weight is not None:
            _check_weights(weight, where, 0)
        return Rows(X, y, weight)

    def _of_table(self, block: Any, where: str) -> Rows:
        names = [str(name) for name in (block.column_names if hasattr(block, "column_names") else block.columns)]
        if self.targets is None:
            raise DataError(f"{where} is a table; pass y, the name of the column to learn")
        wanted = [*self.targets, *([self.weight] if self.weight else [])]
        if missing := [name for name in wanted if name not in names]:
            raise DataError(f"{where} has no column {shown(missing[0])}; it has {_few(names)}")
        features = [name for name in names if name not in wanted]
        if self.names is None:
            self.names = features
        elif features != self.names:
            raise DataError(f"{where} has the columns {_few(features)}, but the first had {_few(self.names)}")
        columns = {name: np.asarray(block[name]) for name in names}
        try:
            X = np.stack([columns[name].astype(np.float64) for name in features], axis=1)
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: a column is not of numbers ({error}); encode it before") from None
        y = [columns[name] for name in self.targets]
        y = [column.astype(str) if column.dtype == object else column for column in y]
        weight = None if self.weight is None else columns[self.weight].astype(np.float64)
        return Rows(X, y[0] if len(y) == 1 else np.stack(y, axis=1), weight)

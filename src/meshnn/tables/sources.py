"""Sources of blocks of rows: Parquet files, `.npy` files, memory maps, iterables of arrays or tables.

A source is read once, from beginning to end. Errors contain the file or block, and the row.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.arguments import numbers
from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.files import as_path, explained
from meshnn.tables.names import listed, shown, with_origin

__all__ = ["BlockSource", "NpySource", "ParquetSource", "RowBlock", "Source", "is_out_of_core", "open_source"]

#: Rows per block.
ROWS = 2**16


class RowBlock(NamedTuple):
    """Features, targets and weights of some rows."""

    X: Array  # (rows, n_features)
    y: Array  # (rows,) or (rows, n_targets): numbers or labels
    weight: Array | None = None  # (rows,)

    def take(self, which: Any) -> RowBlock:
        """Select rows by a mask, a slice or indices."""
        return RowBlock(self.X[which], self.y[which], None if self.weight is None else self.weight[which])

    @staticmethod
    def join(blocks: Sequence[RowBlock]) -> RowBlock:
        """Concatenate blocks."""
        columns = zip(*blocks, strict=True)
        return RowBlock(*(None if parts[0] is None else np.concatenate(parts) for parts in columns))  # type: ignore[arg-type]


def is_out_of_core(X: Any) -> bool:
    """Return whether X is read block by block: a path, a source, an iterator or a memory map over 512 MiB."""
    if isinstance(X, np.memmap):
        return X.ndim == 2 and X.filename is not None and X.nbytes > 2**29
    return isinstance(X, (str, os.PathLike, Source, Iterator))


def open_source(X: Any, y: Any, sample_weight: Any = None) -> Source:
    """Open the data that was passed to `fit`: a path, a memory map, or an iterable of blocks.

    Blocks are `(X, y)`, `(X, y, weight)` or tables. y and the weights are columns of the table, arrays, or None if the
    blocks contain them.
    """
    if isinstance(X, Source):
        return X
    if not isinstance(X, (str, os.PathLike)):
        return NpySource(X, y, sample_weight) if isinstance(X, np.memmap) else BlockSource(X, y, sample_weight)
    from meshnn.tables.files import ENDINGS

    file, name = Path(X), as_path(X)[1]
    with explained("read", name):
        file.stat()
    if file.is_dir() or file.suffix.lower() in ENDINGS:
        return ParquetSource(file, y, sample_weight)
    if file.suffix.lower() == ".npy":
        return NpySource(file, y, sample_weight)
    raise DataError(
        f"{name} cannot be read block by block; pass a .parquet or .npy file, or a folder of .parquet files"
    )


class Source(ABC):
    """Blocks of rows for out-of-core training."""

    name: str
    columns: list[str] | None = None  # names of the features
    n_rows: int | None = None  # None if unknown before reading
    targets: list[str] | None = None  # names of the target columns of a table
    weight: str | None = None

    @abstractmethod
    def _read(self) -> Iterator[tuple[Any, str, int]]:
        """Yield the blocks in order, each with the name of its origin and the number of rows before it there."""

    def blocks(self) -> Iterator[RowBlock]:
        """Yield all rows after checks; all blocks must have the format of the first non-empty one."""
        first: RowBlock | None = None
        for block, where, before in self._read():
            rows = self._checked(block, where, before)
            if len(rows.X) == 0:
                continue
            first = rows.take(slice(1)) if first is None else first
            if rows.X.shape[1] != first.X.shape[1] or (rows.weight is None) != (first.weight is None):
                forms = [f"{r.X.shape[1]} features{' and weights' * (r.weight is not None)}" for r in (rows, first)]
                raise DataError(f"{where} has {forms[0]}, but the first had {forms[1]}; make all blocks alike")
            with np.errstate(over="ignore"):
                if first.X.dtype == np.float32 and (rows.X.astype(np.float32) != rows.X).any():
                    raise DataError(f"{where} holds {rows.X.dtype} that does not fit into float32, the type of the "
                                    "first block; give all blocks the same dtype")  # fmt: skip
            yield rows

    def _checked(self, block: Any, where: str, before: int) -> RowBlock:
        if hasattr(block, "column_names") or hasattr(block, "columns"):
            rows = self._from_table(block, where, before)
        elif isinstance(block, (tuple, list)) and len(block) in (2, 3):
            X, y, weight = (*block, None)[:3]
            weight = None if weight is None else numbers(f"{where}: weight", weight).astype(np.float64)
            rows = RowBlock(as_features(X, f"{where}: X"), as_target_values(np.asarray(y), where, before), weight)
        else:
            raise DataError(f"{where} is {type(block).__name__}, expected (X, y), (X, y, weight) or a table")
        alike = rows.X.ndim == 2 and rows.y.ndim in (1, 2) and len(rows.y) == len(rows.X)
        if not alike or (rows.weight is not None and rows.weight.shape != (len(rows.X),)):
            shapes = ", ".join(str(array.shape) for array in rows if array is not None)
            raise DataError(f"{where} has the shapes {shapes}; expected (rows, features), (rows,) and weights (rows,)")
        check_rows(rows, self.columns, where, before)
        return rows

    def _from_table(self, block: Any, where: str, before: int) -> RowBlock:
        from meshnn.tables.cells import cells_of
        from meshnn.tables.dates import as_numpy
        from meshnn.tables.encoder import as_table

        if self.targets is None:
            raise DataError(f"{where} is a table; pass y, the name of the column to learn")
        table = with_origin(as_table(block, f"{where}: "), where, before)
        features = feature_names(table.column_names, self.targets, self.weight, where)
        if self.columns is None:
            self.columns = features
        elif features != self.columns:
            raise DataError(f"{where} has the columns {listed(features)}, but the first had {listed(self.columns)}")
        cells = [cells_of(table, name) for name in features]
        dtypes = [np.float32 if np.can_cast(column.values.type.to_pandas_dtype(), np.float32) else np.float64
                  for column in cells]  # fmt: skip
        X = np.empty((table.num_rows, len(cells)), np.result_type(*dtypes))
        for k, column in enumerate(cells):
            column.check_numbers()
            X[:, k] = as_numpy(column.values.cast(str(X.dtype), safe=False), np.nan)
        y = [as_target_values(np.asarray(table[name]), where, before, name) for name in self.targets]
        weight = None if self.weight is None else cells_of(table, self.weight).as_numbers()
        return RowBlock(X, y[0] if len(y) == 1 else np.stack(y, axis=1), weight)


def feature_names(
    names: Sequence[str], targets: list[str], weight: str | None, where: str, drop: Any = (), index: Sequence[str] = ()
) -> list[str]:
    """Return the columns of a table that are features."""
    wanted = [*targets, *([weight] if weight else []), *drop]
    if missing := [name for name in wanted if name not in names]:
        raise DataError(f"{where} has no column {shown(missing[0])}; it has {listed(names)}")
    found = [name for name in names if name not in wanted and name not in index]
    if not found:
        raise DataError(f"{where} has no column to learn from besides {listed(wanted)}")
    return found


def as_features(given: Any, where: str) -> Array:
    """Convert to float32 if it is exact, else to float64; raise DataError for text."""
    values = numbers(where, given)
    return values.astype(np.float32 if np.can_cast(values.dtype, np.float32) else np.float64)


def check_rows(rows: RowBlock, columns: Sequence[str] | None, where: str, before: int) -> None:
    """Raise DataError for features that are not finite and weights that are negative or not finite."""
    _check_finite(rows.X, columns, where, before)
    if rows.weight is not None and (wrong := ~(np.isfinite(rows.weight) & (rows.weight >= 0))).any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(f"{where}: row {before + row + 1:,} has the weight {rows.weight[row]:g}, expected 0 or more")


def _check_finite(X: Array, names: Sequence[str] | None, where: str, before: int, kind: str = "feature") -> None:
    if np.isfinite(X).all():
        return
    row, column = np.argwhere(~np.isfinite(X))[0].tolist()
    what, value = f"column {shown(names[column])}" if names is not None else f"{kind} {column}", X[row, column]
    raise DataError(f"{where}: row {before + row + 1:,}: {what} is {'missing' if np.isnan(value) else value}; "
                    "fill it or leave the row out")  # fmt: skip


def as_target_values(values: Array, where: str, before: int, name: str | None = None) -> Array:
    """Return targets as numbers or text; raise DataError for missing ones."""
    what = "y" if name is None else f"column {shown(name)}"
    if values.dtype == object:
        import pyarrow as pa

        try:
            cells = pa.array(values.ravel(), from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError):
            raise DataError(f"{where}: {what} holds values of several types, such as text and numbers") from None
        if cells.null_count:
            row = before + cells.is_null().to_pylist().index(True) // max(1, values.size // len(values)) + 1
            raise DataError(f"{where}: row {row:,}: {what} is missing; fill it or leave the row out")
        cells = cells.cast("float64") if pa.types.is_decimal(cells.type) else cells
        values = np.array(cells.to_pylist()).reshape(values.shape)
    if values.dtype.kind not in "fiubUS":
        raise DataError(f"{where}: {what} holds {values.dtype}, expected numbers or text; convert it first")
    if values.dtype.kind == "f" and len(values):
        _check_finite(values.reshape(len(values), -1), None if name is None else [name], where, before, "target")
    return values


def _column_names(given: Any, what: str) -> list[str]:
    names = [given] if isinstance(given, str) else given
    if not (isinstance(names, Sequence) and names and all(isinstance(name, str) for name in names)):
        raise DataError(f"{what} must be the name of a column of the table, got {type(given).__name__}")
    return list(names)


def _weight_name(given: Any) -> str | None:
    if given is None or isinstance(given, str):
        return given
    raise DataError(f"sample_weight must be the name of one column of the table, got {given!r}")


class ParquetSource(Source):
    """A Parquet file, or all files of a folder sorted by name."""

    def __init__(self, path: Path, y: Any, sample_weight: Any = None, drop: Sequence[str] = ()) -> None:
        from meshnn.tables.files import ArrowReader

        self.table = ArrowReader(path)
        self.path, self.name, self.n_rows = path, self.table.name, self.table.total
        self.targets, self.weight = _column_names(y, "y"), _weight_name(sample_weight)
        self.columns: list[str] = feature_names(
            self.table.names, self.targets, self.weight, self.name, drop, self.table.index
        )
        self._wanted = [*self.columns, *self.targets] + ([self.weight] if self.weight is not None else [])
        self._check_types()
        for k in range(len(self.table.files)):  # report errors before hours of reading
            self.table.check_alike(k, self._wanted)

    def _check_types(self) -> None:
        from meshnn.tables.cells import family_of

        for name in self._wanted:
            kind, target = self.table.types[name], name in (self.targets or ())
            if family_of(kind) != "numeric" and not (target and family_of(kind) == "categorical"):
                advice = "drop it, encode it before it is written, or read the table into memory, where text is encoded"
                expected = "numbers or text" if target else f"numbers; {advice}"
                raise DataError(f"{self.name}: column {shown(name)} is {kind}, expected {expected}")

    def _read(self) -> Iterator[tuple[Any, str, int]]:
        for k in range(len(self.table.files)):
            yield from self._read_file(k)
        self.table.check_unchanged()

    def _read_file(self, k: int) -> Iterator[tuple[Any, str, int]]:
        for batch, before in self.table.batches(k, self._wanted):
            yield batch, os.fspath(self.table.files[k]), before

    def blocks_of(self, k: int) -> Iterator[RowBlock]:
        """Yield the rows of file number k."""
        return (self._checked(*found) for found in self._read_file(k))


class NpySource(Source):
    """A matrix in a `.npy` file or a memory map; targets and weights are arrays or other files."""

    def __init__(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        self._X, self.name = matrix_file(X)
        if y is None:
            raise DataError(f"{self.name} has features only; pass y, an array or a .npy file of as many rows")
        self.n_rows, self.n_features = self._X.shape
        self._y = self._beside(y, "y", (1, 2))
        self._weight = None if sample_weight is None else self._beside(sample_weight, "sample_weight", (1,))

    def _beside(self, given: Any, what: str, dimensions: tuple[int, ...]) -> Any:
        """Return an array with one entry per row."""
        array, what = _mapped(given, what)
        if array.ndim not in dimensions:
            expected = "(rows,)" + " or (rows, targets)" * (2 in dimensions)
            raise DataError(f"{what} has the shape {array.shape}, expected {expected}")
        if len(array) != self.n_rows:
            raise DataError(f"{what} has {len(array):,} rows, but {self.name} has {self.n_rows:,}")
        return array

    def few_targets(self, count: int) -> Array:
        """Return about `count` targets from evenly spaced blocks."""
        runs = 1 if len(self._y) <= count else 64
        starts = np.arange(runs) * len(self._y) // runs
        y = np.concatenate([np.array(self._y[begin : begin + count // runs]) for begin in starts.tolist()])
        return y[:, 0] if y.ndim == 2 else y

    def _read(self) -> Iterator[tuple[Any, str, int]]:
        for begin in range(0, len(self._X), ROWS):
            arrays = [None if array is None else _copied(array, begin) for array in (self._X, self._y, self._weight)]
            yield arrays, self.name, begin


def matrix_file(given: Any) -> tuple[Any, str]:
    """Return a matrix of numbers and its name; a `.npy` file is memory-mapped."""
    X, name = _mapped(given, "X")
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise DataError(f"{name} holds {X.dtype} {X.shape}, expected a matrix of numbers", code="type")
    return X, name


def npy_blocks(path: str | os.PathLike[str]) -> Iterator[Array]:
    """Yield the rows of a matrix in a `.npy` file."""
    X, name = matrix_file(path)
    if len(X) == 0:
        raise DataError(f"{name} has no rows", code="empty")
    for begin in range(0, len(X), ROWS):
        yield _copied(X, begin)


def _mapped(given: Any, what: str) -> tuple[Any, str]:
    if isinstance(given, (str, os.PathLike)):
        name = as_path(given)[1]
        with explained("read", name):
            try:
                return np.load(given, mmap_mode="r", allow_pickle=False), name
            except (ValueError, EOFError) as error:
                raise DataError(f"{name} is not a .npy file of numbers ({error}); write it with numpy.save") from None
    if isinstance(given, np.memmap) and given.filename is not None:
        return given, os.fspath(given.filename)
    return np.asarray(given), what


def _copied(array: Any, begin: int) -> Array:
    """Copy a block of rows through a new memory map, because pages stay in memory as long as their map."""
    file = isinstance(array, np.memmap) and array.filename is not None and not isinstance(array.base, np.memmap)
    if file and array.mode != "c":  # changes in a copy-on-write map are not in its file
        order: Any = "C" if array.flags.c_contiguous else "F"
        with explained("read", os.fspath(array.filename)):
            try:
                array = np.memmap(array.filename, array.dtype, "r", array.offset, array.shape, order)
            except ValueError:
                raise DataError(f"{array.filename} was cut short while it was read; fit again") from None
    return np.array(array[begin : begin + ROWS])


class BlockSource(Source):
    """Blocks from an iterable: `(X, y)`, `(X, y, weight)`, DataFrames or pyarrow tables with a column for y."""

    def __init__(self, blocks: Any, y: Any = None, sample_weight: Any = None) -> None:
        if not isinstance(blocks, Iterable):
            raise DataError(f"X is {type(blocks).__name__}; pass blocks (X, y), a path or an array")
        self._blocks, self.name = blocks, "the blocks"
        self.targets = None if y is None else _column_names(y, "y")
        self.weight = _weight_name(sample_weight)

    def _read(self) -> Iterator[tuple[Any, str, int]]:
        return ((block, f"block {k + 1}", 0) for k, block in enumerate(self._blocks))

"""Tables that need not fit in memory: Parquet files and folders, `.npy` files, blocks of any kind, block by block.

A source is read from its beginning to its end once; what it holds goes into a `Spool`. What is wrong is told with file
and row.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.files import as_path, explained
from meshnn.tables.files import ENDINGS, ROWS, ArrowFiles, is_numeric
from meshnn.tables.names import shown

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


def _check_finite(X: Array, names: Sequence[str] | None, where: str, first: int, kind: str = "feature") -> None:
    """Refuse what is missing or not finite, with its row, counted from 1."""
    if np.isfinite(X).all():
        return
    row, column = np.argwhere(~np.isfinite(X))[0].tolist()
    what = f"column {shown(names[column])}" if names is not None else f"{kind} {column}"
    value = X[row, column]
    raise DataError(
        f"{where}: row {first + row + 1:,}: {what} is {'missing' if np.isnan(value) else value}; "
        "fill it or leave the row out"
    )


def _weight_name(sample_weight: Any) -> str | None:
    if sample_weight is None:
        return None
    names = _column_names(sample_weight, "sample_weight")
    if len(names) > 1:
        raise DataError(f"sample_weight must be the name of one column of the table, got {len(names)} names")
    return names[0]


def _targets(values: Array, where: str, first: int, name: str | None = None) -> Array:
    """What is to be learned: numbers or text, none of it missing."""
    what = "y" if name is None else f"column {shown(name)}"
    if values.dtype == object:
        given = values.ravel().tolist()
        gone = next((k for k, value in enumerate(given) if _is_missing(value)), None)
        if gone is not None:
            row = first + gone // max(1, values.size // max(len(values), 1)) + 1
            raise DataError(f"{where}: row {row:,}: {what} is missing; fill it or leave the row out")
        text = [isinstance(value, str) for value in given]
        if any(text) != all(text):
            other = type(given[text.index(False)]).__name__
            raise DataError(f"{where}: {what} holds text and {other}; make them alike")
        values = np.array([str(value) for value in given] if any(text) else given).reshape(values.shape)
        if values.dtype == object and all(isinstance(value, Number) for value in given):  # Decimal
            values = values.astype(np.float64)
    if values.dtype.kind not in "fiubUS":
        raise DataError(f"{where}: {what} holds {values.dtype}, expected numbers or text; convert it before")
    if values.dtype.kind == "f" and len(values):
        _check_finite(values.reshape(len(values), -1), None if name is None else [name], where, first, "target")
    return values


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # those of pandas, which is not asked
        return True
    return isinstance(value, float) and value != value


class ParquetSource(Source):
    """A Parquet file, or all of a folder in the order of their names; row groups are read one after the other."""

    def __init__(self, path: Path, y: Any, sample_weight: Any = None, drop: Sequence[str] = ()) -> None:
        self.table = ArrowFiles(path)
        self.path, self.name, self.schema = path, self.table.name, self.table.schema
        self.expected = self.table.rows
        self.targets = _column_names(y, "y")
        self.weight = _weight_name(sample_weight)
        self.weighted = self.weight is not None
        wanted = [*self.targets, *([self.weight] if self.weight else []), *drop]
        for column in wanted:
            if column not in self.schema.names:
                raise DataError(f"{self.name} has no column {shown(column)}; it has {_few(self.schema.names)}")
        out = {*wanted, *self.table.index}
        self.names: list[str] = [name for name in self.schema.names if name not in out]
        if not self.names:
            raise DataError(f"{self.name} has no column to learn from besides {_few(wanted)}")
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

        for name in self.targets:
            kind = schema.field(name).type
            if types.is_temporal(kind) or types.is_nested(kind):
                raise DataError(f"{self.name}: column {shown(name)} is {kind}, expected numbers or text")
        if self.weight is not None and not is_numeric(kind := schema.field(self.weight).type):
            raise DataError(f"{self.name}: column {shown(self.weight)} is {kind}, expected weights, which are numbers")
        for name in self.names:
            kind = schema.field(name).type
            if not is_numeric(kind):
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
        return _targets(column.to_numpy(zero_copy_only=False), file, first, name)


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
        weights = ""
        self._weight: Any = None
        if sample_weight is not None:
            self._weight, weights = _mapped(sample_weight, "sample_weight")
        if self._weight is not None and (self._weight.ndim != 1 or self._weight.dtype.kind not in "fiub"):
            held = f"{self._weight.dtype} {self._weight.shape}"
            raise DataError(f"{weights} holds {held}, expected a number for each row")
        self.weighted, self.expected = self._weight is not None, len(self._X)
        for what, array in ((label, self._y), (weights, self._weight)):
            if array is None:
                continue
            if array.ndim not in (1, 2):
                raise DataError(f"{what} has the shape {array.shape}, expected (rows,) or (rows, targets)")
            if len(array) != len(self._X):
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
            X = _read(self._X, part).astype(self.dtype, copy=False)
            _check_finite(X, None, self.name, begin)
            y = _targets(_read(self._y, part), f"y of {self.name}", begin)
            weight = None if self._weight is None else _read(self._weight, part).astype(np.float64)
            if weight is not None:
                _check_weights(weight, "sample_weight", begin)
            yield Rows(X, y, weight)


def _mapped(given: Any, what: str) -> tuple[Any, str]:
    if isinstance(given, (str, os.PathLike)):
        name = as_path(given)[1]
        with explained("read", name):
            try:
                return np.load(given, mmap_mode="r", allow_pickle=False), name
            except (ValueError, EOFError) as error:
                raise DataError(f"{name} is no .npy file of numbers ({error}); write it with numpy.save") from None
    if isinstance(given, np.memmap) and given.filename is not None:
        return given, os.fspath(given.filename)
    return np.asarray(given), what


def _read(array: Any, part: slice) -> Array:
    """Some rows; of a file by reading them, since pages that are mapped stay."""
    mapped = isinstance(array, np.memmap) and array.filename is not None and array.flags.c_contiguous
    if not mapped or array.mode == "c":  # what was written to such a map is not in its file
        return np.asarray(array[part])
    base = np.lib.array_utils.byte_bounds(array)[0] - np.lib.array_utils.byte_bounds(_base(array))[0]
    first, last, _ = part.indices(len(array))
    each = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    count = (last - first) * each // array.dtype.itemsize
    with explained("read", os.fspath(array.filename)):
        found = np.fromfile(array.filename, array.dtype, count, offset=_base(array).offset + base + first * each)
    if len(found) != count:
        raise DataError(f"{array.filename} was cut short while it was read; fit again when nobody writes there")
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
        self.weight = _weight_name(sample_weight)
        self.weighted = self.weight is not None
        self._dtype: np.dtype[Any] = np.dtype(np.float64)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the first block, if it is small."""
        return self._dtype

    def blocks(self) -> Iterator[Rows]:
        """All rows; the first block with any says what the others must look like."""
        width, before = None, 0
        for k, block in enumerate(self._blocks):
            where = f"block {k + 1}"
            rows = self._rows(block, where)
            if not len(rows.X):
                continue
            if width is None:
                width, self.weighted = rows.X.shape[1], rows.weight is not None
                self._dtype = np.dtype(np.float32 if rows.X.dtype == np.float32 else np.float64)
            if rows.X.shape[1] != width or (rows.weight is not None) != self.weighted:
                raise DataError(f"{where} has {rows.X.shape[1]} features"
                                f"{'' if rows.weight is None else ' and weights'}, but the first had {width}"
                                f"{' and weights' if self.weighted else ''}; make all blocks alike")  # fmt: skip
            _check_finite(rows.X, self.names, f"{where}, from row {before + 1:,} on", 0)
            with np.errstate(over="ignore"):
                if rows.X.dtype != self._dtype and (rows.X.astype(self._dtype) != rows.X).any():
                    kinds = f"{rows.X.dtype} that {self._dtype}, as in the first block,"
                    raise DataError(f"{where} holds {kinds} cannot hold; make all blocks alike")
            before += len(rows.X)
            yield rows
        if before == 0:
            raise DataError("there is no block with a row in it; an iterator can be read once only")

    def _rows(self, block: Any, where: str) -> Rows:
        if hasattr(block, "column_names") or hasattr(block, "columns"):
            return self._of_table(block, where)
        if not (isinstance(block, (tuple, list)) and len(block) in (2, 3)):
            raise DataError(f"{where} is {type(block).__name__}, expected (X, y), (X, y, weight) or a table")
        X = _features(np.asarray(block[0]), f"{where}: X")
        y, weight = np.asarray(block[1]), block[2] if len(block) == 3 else None
        weight = None if weight is None else _features(np.asarray(weight), f"{where}: weight").astype(np.float64)
        fits = X.ndim == 2 and y.ndim in (1, 2) and len(y) == len(X) and (weight is None or weight.shape == (len(X),))
        if not fits:
            shapes = ", ".join(str(np.shape(part)) for part in block if part is not None)
            raise DataError(f"{where} has the shapes {shapes}; expected (rows, features), (rows,) and weights (rows,)")
        if weight is not None:
            _check_weights(weight, where, 0)
        return Rows(X, _targets(y, where, 0), weight)

    def _of_table(self, block: Any, where: str) -> Rows:
        keys = list(block.column_names if hasattr(block, "column_names") else block.columns)
        names = [str(key) for key in keys]
        if self.targets is None:
            raise DataError(f"{where} is a table; pass y, the name of the column to learn")
        wanted = [*self.targets, *([self.weight] if self.weight else [])]
        if missing := [name for name in wanted if name not in names]:
            raise DataError(f"{where} has no column {shown(missing[0])}; it has {_few(names)}")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{where} has several columns {shown(twice)}; give each a name of its own")
        features = [name for name in names if name not in wanted]
        if not features:
            raise DataError(f"{where} has no column to learn from besides {_few(wanted)}")
        if self.names is None:
            self.names = features
        elif features != self.names:
            raise DataError(f"{where} has the columns {_few(features)}, but the first had {_few(self.names)}")
        columns = {name: np.asarray(block[key]) for name, key in zip(names, keys, strict=True)}
        found = [_features(columns[name], f"{where}: column {shown(name)}") for name in features]
        X = np.empty((len(found[0]), len(found)), np.result_type(*found))
        for k, column in enumerate(found):
            X[:, k] = column
        y = [_targets(columns[name], where, 0, name) for name in self.targets]
        weight = None
        if self.weight is not None:
            weight = _features(columns[self.weight], f"{where}: column {shown(self.weight)}").astype(np.float64)
            _check_weights(weight, where, 0)
        return Rows(X, y[0] if len(y) == 1 else np.stack(y, axis=1), weight)


def _features(values: Array, where: str) -> Array:
    """Numbers in a type that holds all of them; nan where there is none. Text is refused, even that of a number."""
    if values.dtype.kind == "f":
        return values.astype(np.float32) if values.dtype == np.float16 else values
    if values.dtype.kind in "iub":
        return values.astype(np.float32 if values.dtype.itemsize < 3 else np.float64)
    try:
        if values.dtype != object:
            raise TypeError(f"it holds {values.dtype}")
        given = [np.nan if _is_missing(value) else value for value in values.ravel().tolist()]
        if text := next((value for value in given if isinstance(value, str)), None):
            raise TypeError(f"it holds {shown(text)}")
        return np.array(given, np.float64).reshape(values.shape)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} is not of numbers ({error}); encode it before, or leave it out") from None

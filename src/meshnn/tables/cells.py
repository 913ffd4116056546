"""The cells of a column: their kind, their numbers, texts and dates, and where they are missing.

Imported only where there is a table: it needs pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from meshnn.errors import DataError
from meshnn.tables.names import plain, row_number, shown, source
from meshnn.tables.times import DAY_FORMS, as_numpy, parse_texts, timestamps

__all__ = [
    "Cells",
    "cells_of",
    "class_numbers",
    "first",
    "floats",
    "in_groups",
    "kind_of",
    "looks_numeric",
    "matrix_of",
    "typed_columns",
    "unpacked",
    "without_views",
]

Floats = NDArray[np.float64]
NUMBER = r"^ *[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)? *$"
PADDED = r"^ *[+-]?0\d"
#: Spellings of true and false.
WORDS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))
TRUTH = {pair[k]: k == 0 for pair in WORDS for k in (0, 1)}
KINDS = {
    "missing": (types.is_null,),
    "boolean": (types.is_boolean,),
    "numeric": (types.is_integer, types.is_floating, types.is_decimal),
    "categorical": (types.is_string, types.is_large_string),
    "date": (types.is_date, types.is_timestamp),
}


@dataclass(frozen=True)
class Cells:
    """The cells of one column, from the first row to the last.

    Attributes
    ----------
    table : pyarrow.Table
    name : str
    values : pyarrow.ChunkedArray
        Never a dictionary.
    kind : "missing", "boolean", "numeric", "categorical" (text) or "date"
    packed : bool
        Whether they were a dictionary, which makes any value a category.
    """

    table: Any
    name: str
    values: Any
    kind: str
    packed: bool

    @property
    def called(self) -> str:
        """The column, as the beginning of a message."""
        return f"{source(self.table)}column {shown(self.name)}"

    @cached_property
    def gaps(self) -> NDArray[np.bool_]:
        """Where values are missing."""
        if types.is_floating(self.values.type):
            return np.isnan(floats(self.values))
        if self.values.null_count == 0:
            return np.zeros(len(self.values), np.bool_)
        return np.array(np.from_dlpack(compute.is_null(self.values).combine_chunks().cast("uint8")), np.bool_)

    @property
    def missing(self) -> int:
        """Number of missing values."""
        return int(self.gaps.sum())

    @cached_property
    def numbers(self) -> Floats:
        """Floats, NaN where missing; DataError if one is infinite."""
        numbers = floats(self.values)
        if (at := first(np.isinf(numbers))) >= 0:
            self.refuse(at, str(numbers[at]), "finite numbers")
        return numbers

    @cached_property
    def dates(self) -> NDArray[Any] | None:
        """Times as datetime64[us], NaT where missing; None if some cell is not a date."""
        if self.kind == "date":
            return timestamps(self.values)
        if self.kind != "categorical" or self.packed or self.gaps.all():
            return None
        head = self.values.drop_null()[:20]  # most texts are no dates: quickly passed
        if (parse_texts(head)[1] < 0).all():
            return None
        stamps, forms = parse_texts(self.values)
        return stamps if ((forms[~self.gaps] >= 0) & (forms[~self.gaps] < DAY_FORMS)).all() else None

    def texts(self, spellings: Collection[str] = ()) -> Any:
        """Text. Numbers and booleans are spelled as in `spellings` if they can be, otherwise as 12, 1.5, true."""
        values = self.values
        if self.kind == "boolean":
            values = compute.if_else(values, *next((pair for pair in WORDS if {*pair} & {*spellings}), WORDS[0]))
        elif self.kind == "numeric" and not types.is_integer(values.type):
            known, numbers = {*spellings}, values.cast("float64", safe=False).to_pylist()
            spelled = [None if x is None or x != x else repr(x) if repr(x) in known else plain(x) for x in numbers]
            values = pa.chunked_array([pa.array(spelled, "large_string")])
        return values.cast("large_string")

    def refuse(self, at: int, value: str, expected: str, code: str = "cell") -> NoReturn:
        """Raise DataError about a cell."""
        row = row_number(self.table, at)
        message = f"{self.called} holds {value} in row {row:,}, expected {expected}"
        raise DataError(message, code=code, field=self.name, value=value, row=row, expected=expected)


@lru_cache(maxsize=1000)
def kind_of(held: Any) -> str | None:
    """Return the kind of a type of pyarrow; None for dictionaries, views and others."""
    return next((kind for kind, tests in KINDS.items() if any(test(held) for test in tests)), None)


def cells_of(table: Any, name: str) -> Cells:
    """Return a column of a table; DataError if it holds neither numbers, text, booleans nor dates."""
    values, packed = unpacked(table.column(name))
    if (kind := kind_of(values.type)) is not None:
        return Cells(table, name, values, kind, packed)
    what = f"times of day or durations ({values.type})" if types.is_temporal(values.type) else shown(str(values.type))
    expected = "numbers, text, dates or booleans"
    message = f"{source(table)}column {shown(name)} holds {what}, expected {expected}"
    raise DataError(message, code="type", field=name, value=str(values.type), expected=expected)


def without_views(table: Any) -> Any:
    """Return a table without views of strings, alone or in dictionaries: pyarrow can do little with them."""
    for k, held in enumerate(table.schema.types):
        if types.is_string_view(held.value_type if types.is_dictionary(held) else held):
            values = unpacked(table.column(k))[0]
            values = values.dictionary_encode() if types.is_dictionary(held) else values
            table = table.set_column(k, table.schema.names[k], values)
    return table


def unpacked(values: Any) -> tuple[Any, bool]:
    """Return the values of a column without dictionary and views, and whether there was a dictionary."""
    packed = types.is_dictionary(values.type)
    held = values.type.value_type if packed else values.type
    if packed:  # a cast does not know all types of dictionaries, such as those of polars
        parts = [_values_of(chunk.dictionary).take(chunk.indices.cast("int64")) for chunk in values.chunks]
        values = pa.chunked_array(parts, pa.large_string() if types.is_string_view(held) else held)
    elif types.is_string_view(held):
        values = values.cast("large_string")
    return values, packed


def _values_of(dictionary: Any) -> Any:
    return dictionary.cast("large_string") if types.is_string_view(dictionary.type) else dictionary


def floats(values: Any) -> Floats:
    """Return floats, NaN where missing; to_numpy() would import pandas, which takes long."""
    whole = values.cast("float64", safe=False).combine_chunks()
    return np.array(np.from_dlpack(whole.fill_null(np.nan) if whole.null_count else whole), np.float64)


def first(mask: NDArray[np.bool_]) -> int:
    """Return the place of the first True, -1 if there is none."""
    return int(mask.argmax()) if mask.any() else -1


# -- text to types ---------------------------------------------------------------------------------------------------


def typed_columns(columns: Sequence[Any]) -> list[tuple[Any, bool]]:
    """Convert columns of text to integers, floats or booleans, if every cell is one.

    Many columns are converted at once, since every call of pyarrow takes some 20 microseconds.

    Returns
    -------
    list of (pyarrow.ChunkedArray, bool)
        Each column, and whether it is text because numbers in it have leading zeros.
    """
    found: list[Any] = [None] * len(columns)
    given = [k for k, column in enumerate(columns) if column.null_count < len(column)]
    for group in in_groups(given, len(columns[0]) if len(columns) else 1):
        for k, result in zip(group, _typed([columns[k] for k in group]), strict=True):
            found[k] = result
    return [(pa.chunked_array([pa.nulls(len(columns[0]))]), False) if one is None else one for one in found]


def in_groups(columns: Sequence[Any], rows: int, most: int = 2**22) -> Iterator[Sequence[Any]]:
    """Yield groups of columns that have a bounded number of cells together."""
    size = max(1, most // max(rows, 1))
    for begin in range(0, len(columns), size):
        yield columns[begin : begin + size]


def _typed(columns: list[Any]) -> list[tuple[Any, bool]]:
    rows, half = len(columns[0]), len(columns) // 2
    cells = compute.utf8_trim(pa.concat_arrays([chunk for column in columns for chunk in column.chunks]), " ")

    def any_matches(pattern: str) -> NDArray[np.bool_]:
        found = as_numpy(compute.match_substring_regex(cells, pattern), False)
        return np.asarray(found.reshape(-1, rows).any(axis=1))

    try:
        numbers = cells.cast("float64")
        padded, fractions = any_matches(PADDED), any_matches(r"[^\d+-]")
        if not fractions.any():
            numbers = cells.cast("int64")
    except pa.ArrowInvalid:  # text, or integers that are too large
        if half:
            return _typed(columns[:half]) + _typed(columns[half:])
        try:
            return [(pa.chunked_array([cells.cast("float64")]), False)]
        except pa.ArrowInvalid:
            return [(_truth(columns[0], cells), False)]
    found = [(pa.chunked_array([numbers.slice(k * rows, rows)]), False) for k in range(len(columns))]
    whole = np.flatnonzero(fractions.any() & ~fractions & ~padded).tolist()
    for k, result in zip(whole, _typed([columns[k] for k in whole]) if whole else [], strict=True):
        found[k] = result
    return [(columns[k], True) if padded[k] else one for k, one in enumerate(found)]


def _truth(values: Any, cells: Any) -> Any:
    """Return booleans, if every cell is a spelling of one, otherwise the values."""
    given = cells.drop_null()
    if given[0].as_py() not in TRUTH or not compute.all(compute.is_in(given, pa.array(list(TRUTH)))).as_py():
        return values
    true = compute.is_in(cells, pa.array([word for word, value in TRUTH.items() if value]))
    return pa.chunked_array([compute.if_else(compute.is_valid(cells), true, None)])


def matrix_of(table: Any, names: Sequence[str]) -> Floats:
    """Return columns of numbers or booleans as floats (n_rows, n_columns), NaN where missing."""
    found = np.empty((len(names), table.num_rows))
    groups: dict[Any, list[int]] = {}
    columns = [table.column(name) for name in names]
    for k, column in enumerate(columns):
        groups.setdefault(column.type, []).append(k)
    for places in groups.values():
        flat = pa.chunked_array([chunk for k in places for chunk in columns[k].chunks], columns[places[0]].type)
        found[places] = floats(flat).reshape(len(places), -1)
    return found.T


def looks_numeric(values: Any) -> tuple[int, str] | None:
    """Return the first cell (its row and text) that is a number in another notation, if all cells are numbers so."""
    if not types.is_string(values.type):
        return None
    pattern = r"^ *[+-]?\d[\d.,]*([eE][+-]?\d+)? *%? *$"
    for part in (values[:100], values):  # most texts are quickly passed
        if compute.all(compute.match_substring_regex(part, pattern)).as_py() is not True:
            return None
    at = compute.index(compute.match_substring_regex(values, NUMBER), False).as_py()
    return None if at < 0 else (at + 1, values[at].as_py().strip())


# -- classes ---------------------------------------------------------------------------------------------------------


def class_numbers(cells: Cells, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return which of the classes (sorted) each cell is, by value: 0.0 is 0, however it is written; -1 for none."""
    if classes.dtype.kind in "biuf":
        if cells.kind == "categorical":
            return _found({_number(text): k for k, text in enumerate(classes.tolist())}, cells, _number)
        if types.is_integer(cells.values.type) and classes.dtype.kind in "iu":  # beyond 2**53 floats merge them
            return _found({label: k for k, label in enumerate(classes.tolist())}, cells, int)
        numbers, values = cells.numbers, classes.astype(np.float64)
        at = np.minimum(np.searchsorted(values, numbers), len(values) - 1)
        return np.where(values[at] == numbers, at, -1)
    names = [str(label) for label in classes.tolist()]
    known = {name: k for k, name in enumerate(names)}
    return np.array([known.get(text, -1) for text in cells.texts(names).to_pylist()], np.int64)


def _found(known: dict[Any, int], cells: Cells, convert: Any) -> NDArray[np.int64]:
    values = cells.values.to_pylist()
    return np.array([-1 if value is None else known.get(convert(value), -1) for value in values], np.int64)


def _number(value: Any) -> float | None:
    """Return a number or boolean, which may be text; None if it is neither."""
    word = str(value).strip().lower()
    if word in ("true", "false"):
        return float(word == "true")
    return float(value) if re.match(NUMBER, word) else None

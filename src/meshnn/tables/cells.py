"""The cells of a column: their kind, their values as numbers, text and dates, and the missing ones.

This module needs pyarrow, so it is imported only when there is a table.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from meshnn.errors import DataError
from meshnn.tables.dates import as_numpy, distinct, parse_days, timestamps
from meshnn.tables.names import plain, quoted, row_number, shown, source

__all__ = ["Cells", "cells_of", "class_numbers", "family_of", "first", "floats", "kind_of",
           "looks_numeric", "typed_column", "unpacked", "without_views"]  # fmt: skip

Floats = NDArray[np.float64]
#: Patterns of text that is a number, and of a number with leading zeros, which is a code.
NUMBER, PADDED = r"^ *[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)? *$", r"^ *[+-]?0\d"
#: Spellings of booleans.
TRUTH = {"true": True, "false": False, "True": True, "False": False, "TRUE": True, "FALSE": False}


@dataclass(frozen=True)
class Cells:
    """The cells of one column, from the first row to the last."""

    table: Any
    name: str
    values: Any  # pyarrow.ChunkedArray, never a dictionary
    kind: str  # never a DictionaryArray
    packed: bool  # whether the column was a dictionary, which makes its values categories

    @property
    def called(self) -> str:
        """The name of the column for the beginning of a message."""
        return f"{source(self.table)}column {shown(self.name)}"

    @property
    def is_numeric(self) -> bool:
        """Whether the cells are numbers or booleans and not categories."""
        return self.kind in ("numeric", "boolean") and not self.packed

    @cached_property
    def gaps(self) -> NDArray[np.bool_]:
        """The mask of missing values."""
        if self.kind in ("numeric", "boolean"):
            return np.isnan(self._floats)
        found: NDArray[np.bool_] = as_numpy(compute.is_null(self.values), False)
        return found

    @cached_property
    def missing(self) -> int:
        """Number of missing values."""
        return int(np.count_nonzero(self.gaps))

    @cached_property
    def _floats(self) -> Floats:
        return floats(self.values)

    @property
    def numbers(self) -> Floats:
        """The cells as floats, NaN where missing. Raises DataError if one is infinite."""
        if (at := first(np.isinf(self._floats))) >= 0:
            self.refuse(at, str(self._floats[at]), "finite numbers")
        return self._floats

    def as_numbers(self, expected: str = "numbers", code: str = "cell") -> Floats:
        """Return the cells as floats; raise DataError about the first text or date."""
        self.check_numbers(expected, code)
        return self.numbers

    def check_numbers(self, expected: str = "numbers", code: str = "cell") -> None:
        """Raise DataError about the first text or date, if there is one."""
        if self.kind in ("categorical", "date"):
            at = first(~self.gaps)
            self.refuse(at, f"the text {quoted(self.values[at])}", expected, code)

    @cached_property
    def days(self) -> tuple[NDArray[Any], int]:
        """Return times as datetime64[us], NaT where missing, and the index of the first other cell, else -1."""
        if self.kind == "date":
            return timestamps(self.values), -1
        stamps = np.full(len(self.gaps), np.datetime64("NaT", "us"))
        if self.kind == "categorical":
            head = self.values.drop_null()[:20]  # a fast test of the first cells, because most text is not dates
            if not len(head) or not np.isnat(parse_days(head)).all():
                stamps = parse_days(self.values)
        return stamps, first(np.isnat(stamps) & ~self.gaps)

    def texts(self, spellings: Collection[str] = ()) -> Any:
        """Return the cells as text. Numbers and booleans use `spellings` if possible, otherwise 12, 1.5, true."""
        values, known = self.values, {*spellings}
        if self.kind == "boolean":
            pairs = [("true", "false"), ("True", "False"), ("TRUE", "FALSE")]
            values = compute.if_else(values, *next((pair for pair in pairs if {*pair} & known), pairs[0]))
        elif self.kind == "numeric" and not types.is_integer(values.type):
            numbers = values.cast("float64", safe=False).to_pylist()
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
    """Return the kind of a pyarrow type; None for dictionaries, views and others."""
    kinds = {
        "missing": (types.is_null,),
        "boolean": (types.is_boolean,),
        "numeric": (types.is_integer, types.is_floating, types.is_decimal),
        "categorical": (types.is_string, types.is_large_string),
        "date": (types.is_date, types.is_timestamp),
    }
    return next((kind for kind, tests in kinds.items() if any(test(held) for test in tests)), None)


def family_of(held: Any) -> str | None:
    """Return the kind of a pyarrow type; booleans are numbers, dictionaries and views are text."""
    if types.is_dictionary(held) or types.is_string_view(held):
        return "categorical"
    return "numeric" if kind_of(held) == "boolean" else kind_of(held)


def cells_of(table: Any, name: str) -> Cells:
    """Return a column of a table; raise DataError if it holds neither numbers, text, booleans nor dates."""
    values, packed = unpacked(table.column(name))
    if (kind := kind_of(values.type)) is not None:
        return Cells(table, name, values, kind, packed)
    what = f"times of day or durations ({values.type})" if types.is_temporal(values.type) else shown(str(values.type))
    expected = "numbers, text, dates or booleans"
    message = f"{source(table)}column {shown(name)} holds {what}, expected {expected}"
    raise DataError(message, code="type", field=name, value=str(values.type), expected=expected)


def without_views(table: Any) -> Any:
    """Return a table without string views, which few functions of pyarrow support."""
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
    held = pa.large_string() if types.is_string_view(held) else held
    if packed:  # not every type of dictionary can be cast, such as those of polars
        parts = [chunk.dictionary.cast(held).take(chunk.indices.cast("int64")) for chunk in values.chunks]
        return pa.chunked_array(parts, held), packed
    return values.cast(held) if types.is_string_view(values.type) else values, packed


def floats(values: Any) -> Floats:
    """Return floats, NaN where missing."""
    return np.array(as_numpy(values.cast("float64", safe=False), np.nan), np.float64)


def first(mask: NDArray[np.bool_]) -> int:
    """Return the index of the first True, -1 if there is none."""
    return int(mask.argmax()) if mask.any() else -1


def class_numbers(cells: Cells, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of each cell in the sorted classes, compared by value (0.0 equals 0); -1 if it is absent."""
    labels, numeric = classes.tolist(), classes.dtype.kind in "biuf"
    known = {label if numeric else str(label): k for k, label in enumerate(labels)}
    values, codes = distinct(cells.values if numeric else cells.texts(list(known)))
    if numeric and cells.kind == "categorical":
        words = [value.strip().lower() for value in values]
        values = [TRUTH.get(word, float(word) if re.match(NUMBER, word) else None) for word in words]
    return np.array([*(known.get(value, -1) for value in values), -1], np.int64)[codes]


def typed_column(values: Any) -> tuple[Any, bool]:
    """Convert a column of text to integers, floats or booleans if all cells allow it.

    Also return whether the column remains text because of leading zeros.
    """
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values))]), False
    cells = compute.utf8_trim(values, " ")
    with suppress(pa.ArrowInvalid):  # fractions, text, or too large
        whole = cells.cast("int64")
        if compute.all(compute.equal(whole.cast("string"), cells)).as_py():  # without leading zeros
            return whole, False
    try:
        numbers = cells.cast("float64")
    except pa.ArrowInvalid:
        given = cells.drop_null()
        if given[0].as_py() in TRUTH and compute.all(compute.is_in(given, pa.array(list(TRUTH)))).as_py():
            return compute.equal(compute.utf8_lower(cells), "true"), False
        return values, False
    padded = compute.any(compute.match_substring_regex(cells, PADDED)).as_py()
    return (values, True) if padded else (numbers, False)


def looks_numeric(values: Any) -> tuple[int, str] | None:
    """Return the first cell (row and text) in another number notation, if all cells are numbers in some notation."""
    if not types.is_string(values.type):
        return None
    pattern = r"^ *[+-]?\d[\d.,]*([eE][+-]?\d+)? *%? *$"
    for part in (values[:100], values):  # a fast test of the first cells, because most text is not numbers
        if compute.all(compute.match_substring_regex(part, pattern)).as_py() is not True:
            return None
    at = compute.index(compute.match_substring_regex(values, NUMBER), False).as_py()
    return None if at < 0 else (at + 1, values[at].as_py().strip())

"""One column of a table: of which kind it is, what is learned from it, and the features it becomes.

The only module of the encoder that needs pyarrow; loaded when there is a table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from meshnn.data.encoding import Column, plain
from meshnn.data.tables import NUMBER, rows_before, shown, source
from meshnn.errors import DataError

__all__ = ["Cells", "cells_of", "class_numbers", "fill_in", "first", "learned", "quoted"]

Floats = NDArray[np.float64]
WANTED = {"numeric": "a number", "boolean": "true or false", "categorical": "text"}
WORDS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))
TRUTH = f"^({'|'.join(word for pair in WORDS for word in pair)}|0|1)$"
KINDS = {
    "missing": (types.is_null,),
    "boolean": (types.is_boolean,),
    "numeric": (types.is_integer, types.is_floating, types.is_decimal),
    "categorical": (types.is_string, types.is_large_string, types.is_string_view),
}


@dataclass(frozen=True)
class Cells:
    """The cells of one column, from the first row to the last."""

    where: str  # the file, as messages begin
    name: str
    values: Any  # pyarrow.ChunkedArray, never a dictionary
    kind: str  # as of a `Column`, or missing: there are none
    packed: bool  # whether they were a dictionary, which makes anything categorical
    before: int = 0  # rows of the file before them

    @property
    def called(self) -> str:
        """How messages name the column."""
        return f"{self.where}column {shown(self.name)}"

    @cached_property
    def gaps(self) -> NDArray[np.bool_]:
        """Where values are missing."""
        if self.values.null_count == 0:
            numeric = types.is_floating(self.values.type)
            return np.isnan(_floats(self.values)) if numeric else np.zeros(len(self.values), np.bool_)
        mask: NDArray[np.bool_] = compute.is_null(self.values, nan_is_null=True).to_numpy()
        return mask

    @property
    def missing(self) -> int:
        """How many values are missing."""
        return int(self.gaps.sum())

    @cached_property
    def numbers(self) -> Floats:
        """As floats, NaN where missing; infinite ones are refused."""
        numbers = _floats(self.values)
        if (at := first(np.isinf(numbers))) >= 0:
            self.refuse(at, str(numbers[at]), "finite numbers")
        return numbers

    def texts(self, spellings: Collection[str] = ()) -> Any:
        """As text. Numbers and truth values are spelled as in `spellings` if they can be, else as 12, 1.5, true."""
        values = self.values
        if self.kind == "boolean":
            values = compute.if_else(values, *next((pair for pair in WORDS if {*pair} & {*spellings}), WORDS[0]))
        elif self.kind == "numeric" and not types.is_integer(values.type):
            known, numbers = {*spellings}, values.cast("float64", safe=False).to_numpy().tolist()
            spelled = (repr(x) if repr(x) in known else plain(x) for x in numbers)
            values = pa.chunked_array([pa.array(spelled, "string", mask=self.gaps)])
        return values.cast("large_string")

    def refuse(self, at: int, value: str, expected: str) -> NoReturn:
        """Refuse what a cell holds."""
        row = self.before + at + 1
        raise DataError(f"{self.called} holds {value} in row {row:,}, expected {expected}; mend the cell")


def _floats(values: Any) -> Floats:
    """As floats, NaN where missing."""
    whole = values.cast("float64", safe=False).combine_chunks()
    # to_numpy() imports pandas, if it is installed, which takes longer than to predict a small table
    return np.array(whole.to_numpy(zero_copy_only=False) if whole.null_count else np.from_dlpack(whole), np.float64)


def cells_of(table: Any, name: str, advice: str) -> Cells:
    """A column of the table, if it is of a kind that can be used; else the advice is part of the refusal."""
    values = table.column(name)
    packed = types.is_dictionary(values.type)
    if packed:
        values = values.cast(values.type.value_type)
    held = values.type
    for kind, tests in KINDS.items():
        if any(test(held) for test in tests):
            return Cells(source(table), name, values, kind, packed, rows_before(table))
    what = f"dates or times ({held})" if types.is_temporal(held) else shown(str(held))
    what += ", expected numbers, text or truth values; turn it into numbers"
    raise DataError(f"{source(table)}column {shown(name)} holds {what}, {advice}")


def learned(cells: Cells, most: int, notes: dict[str, str], advice: str) -> Column | str:
    """The column as an encoder needs it, with what fills its gaps; or why it is of no use. Advice is for free text."""
    if cells.gaps.all():
        return "has no values"
    if cells.packed or cells.kind == "categorical":
        return _learned_texts(cells, most, notes, advice)
    ordered = np.sort(cells.numbers[~cells.gaps])
    # halved first: the sum of two large numbers may be infinite
    median = float(ordered[(len(ordered) - 1) // 2] / 2 + ordered[len(ordered) // 2] / 2)
    fill = median > 0.5 if cells.kind == "boolean" else median
    if ordered[0] == ordered[-1]:
        return f"is constant ({plain(fill)})"
    return Column(cells.name, cells.kind, fill=fill)


def _learned_texts(cells: Cells, most: int, notes: dict[str, str], advice: str) -> Column | str:
    texts = cells.texts()
    values, counts = texts.drop_null().value_counts().flatten()
    if len(values) == 1:
        return f"is constant ({shown(values[0].as_py())})"
    numbers = compute.sum(compute.match_substring_regex(values, NUMBER)).as_py()
    hint = ""
    if len(values) / 2 <= numbers < len(values):  # a column of numbers with a slip in it
        at = compute.index(compute.match_substring_regex(texts, NUMBER), False).as_py()
        hint = f"{numbers:,} of its {len(values):,} values are numbers, but row {at + 1:,} holds {quoted(texts[at])}"
        notes[cells.name] = f"{cells.called} is taken as text: {hint}; mend or empty that cell for numbers"
    if len(values) > most:
        why = (
            f"has {len(values):,} different texts, expected at most {most:,}: it looks like an identifier or free text;"
        )
        why = f"is text: {hint}; mend or empty that cell, or" if hint else why
        raise DataError(f"{cells.called} {why} {advice}")
    frequency = dict(zip(values.to_pylist(), counts.to_pylist(), strict=True))
    categories = sorted(frequency)
    fill = max(categories, key=frequency.__getitem__)  # of several, the first in order
    return Column(cells.name, "categorical", tuple(categories), fill)


def fill_in(part: Floats, column: Column, table: Any, notes: list[str]) -> int:
    """Write the features of a column into their part of X; return how many values are missing."""
    cells = cells_of(table, column.name, f"since the model was trained with {WANTED[column.kind]}")
    if column.kind == "categorical":
        _fill_in_texts(part, column, cells, notes)
    else:
        _fill_in_numbers(part, column, cells)
    return cells.missing


def _fill_in_numbers(part: Floats, column: Column, cells: Cells) -> None:
    gaps, expected = cells.gaps, f"{WANTED[column.kind]} as in training"
    if cells.kind == "categorical" and not gaps.all():  # the first cell that is to blame, else the first of all
        fits = compute.match_substring_regex(cells.texts(), NUMBER if column.kind == "numeric" else TRUTH)
        at = compute.index(fits, False).as_py()
        at = first(~gaps) if at < 0 else at
        cells.refuse(at, f"the text {quoted(cells.values[at])}", expected)
    numbers = cells.numbers
    if column.kind == "boolean" and (at := first(~gaps & (numbers != 0) & (numbers != 1))) >= 0:
        cells.refuse(at, plain(float(numbers[at])), expected)
    part[:, 0] = numbers if column.fill is None else np.where(gaps, float(column.fill), numbers)


def _fill_in_texts(part: Floats, column: Column, cells: Cells, notes: list[str]) -> None:
    texts = cells.texts(column.categories)
    at = compute.index_in(texts, pa.array(column.categories, "large_string")).fill_null(-1).to_numpy().copy()
    new = (at < 0) & ~cells.gaps
    if count := int(new.sum()):
        what = f"{count:,} {'row has a value' if count == 1 else 'rows have values'} of {shown(column.name)} never seen"
        example = quoted(texts[first(new)])
        notes.append(f"{cells.where}{what} in training, e.g. {example}: all its features are 0 there")
    if column.fill is not None:
        at[cells.gaps] = column.categories.index(str(column.fill))
    rows = np.flatnonzero(at >= 0)
    part[rows, at[rows]] = 1.0


def class_numbers(cells: Cells, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Which of the classes (sorted) each cell is, by value: 0.0 is 0, whatever it looks like; -1 for none of them."""
    if classes.dtype.kind in "biuf":
        if cells.kind == "categorical":
            return _found({_number(text): k for k, text in enumerate(classes.tolist())}, cells, _number)
        if types.is_integer(cells.values.type) and classes.dtype.kind in "iu":  # beyond 2**53 floats merge them
            return _found({label: k for k, label in enumerate(classes.tolist())}, cells, int)
        numbers, values = cells.numbers, classes.astype(np.float64)
        at = np.minimum(np.searchsorted(values, numbers), len(values) - 1)
        return np.where(values[at] == numbers, at, -1)
    names = [str(label) for label in classes.tolist()]
    known = {name: k for k, name in enumerate(names)}  # pa.array() and to_numpy() import pandas, which takes long
    return np.array([known.get(text, -1) for text in cells.texts(names).to_pylist()], np.int64)


def _found(known: dict[Any, int], cells: Cells, convert: Any) -> NDArray[np.int64]:
    values = cells.values.to_pylist()
    return np.array([-1 if value is None else known.get(convert(value), -1) for value in values], np.int64)


def _number(value: Any) -> float | None:
    """A number or a truth value that may be text; None if it is neither."""
    words = {"true": 1.0, "false": 0.0}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    try:
        return float(value)
    except ValueError:
        return None


def quoted(cell: Any) -> str:
    """A cell of text as it goes into a message."""
    text = cell.as_py()
    return repr(text if len(text) <= 60 else text[:57] + "...")


def first(mask: NDArray[np.bool_]) -> int:
    """Where the first True is, -1 if nowhere."""
    return int(mask.argmax()) if mask.any() else -1

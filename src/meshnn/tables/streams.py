"""Columns of a table on a stream: each cell is a number, text or missing, independently of earlier cells.

Text is a level of its column ("colour=red"). Numbers with leading zeros are codes and therefore text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from meshnn.errors import DataError
from meshnn.tables.cells import NUMBER, PADDED, TRUTH, cells_of, first, floats, kind_of, typed_column, unpacked
from meshnn.tables.dates import as_numpy, distinct, parse_texts, timestamps
from meshnn.tables.names import shown
from meshnn.tables.target import choose_task

__all__ = ["Labels", "Parsed", "StreamSchema", "check_decimal_points", "check_no_dates", "decided", "decimal_comma",
           "parse_column", "parse_labels", "parse_times"]  # fmt: skip

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class StreamSchema:
    """The roles and kinds of the columns of a table; stored with the model."""

    target: str  # the column to predict
    by: str | None = None  # the column that orders the rows
    drop: list[str] = field(default_factory=list)  # columns that are left out
    text: list[str] = field(default_factory=list)  # columns that are always text
    task: str = "classify"  # or "regress"
    labels: str = "text"  # type of the classes: "whole", "truth" or "text"
    levels: dict[str, list[str]] = field(default_factory=dict)  # levels per column, in the order of first appearance
    most: int = 50  # maximum number of levels of a column
    columns: list[str] = field(default_factory=list)  # all columns of the table

    @property
    def features(self) -> list[str]:
        """Columns that the model is trained on."""
        others = {self.target, self.by, *self.drop}
        return [name for name in self.columns if name not in others]

    def feature(self, column: str, text: str) -> str:
        """Return the feature name of a level."""
        name = f"{column}={text}"
        return f"{name} (2)" if name in self.columns else name

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Any) -> StreamSchema:
        """Return the schema that `to_dict` stored; raise ValueError or TypeError if it is damaged."""
        schema = cls(**stored)
        lists = [schema.drop, schema.text, schema.columns, *schema.levels.values()]
        texts = [schema.target, *(name for names in lists for name in names)]
        sound = all(isinstance(names, list) for names in lists) and all(isinstance(text, str) for text in texts)
        sound = sound and schema.task in ("classify", "regress") and schema.labels in ("whole", "truth", "text")
        if not sound or not isinstance(schema.most, int) or not isinstance(schema.by, (str, type(None))):
            raise ValueError("the schema of the stream is damaged; save the model again")
        return schema


class Parsed(NamedTuple):
    """The parsed cells of a column."""

    numbers: Floats  # NaN if the cell is not a number
    codes: Integers  # index in the texts; -1 if the cell is not text
    texts: list[str]
    infinite: int  # first row with an infinite number, which counts as missing; -1 if there is none

    @property
    def given(self) -> NDArray[np.bool_]:
        """The mask of cells that are not missing."""
        found: NDArray[np.bool_] = (self.codes >= 0) | (self.numbers == self.numbers)
        return found


def parse_column(values: Any, text: bool = False) -> Parsed:
    """Parse the cells of a column, either text from a file or typed values.

    >>> import pyarrow as pa
    >>> found = parse_column(pa.chunked_array([["1.5", "red", None, "007", "5%"]]))
    >>> found.numbers.tolist(), found.codes.tolist(), found.texts
    ([1.5, nan, nan, nan, nan], [-1, 0, -1, 1, 2], ['red', '007', '5%'])
    """
    values, packed = unpacked(values)
    text |= packed
    if text and kind_of(values.type) not in ("missing", "categorical"):
        values = values.cast("string")
    elif not text and kind_of(values.type) == "categorical":
        values, _ = typed_column(values)
    codes, texts = np.full(len(values), -1, np.int64), dict[str, int]()
    if kind_of(values.type) == "missing":
        numbers = np.full(len(values), np.nan)
    elif kind_of(values.type) != "categorical":
        numbers = floats(values)
    else:  # parse each distinct text once
        different, places = distinct(values)
        parsed = [None if text else _number(cell) for cell in different]
        levels = [
            texts.setdefault(cell.strip(), len(texts)) if number is None else -1
            for cell, number in zip(different, parsed, strict=True)
        ]
        numbers, codes = np.array([*parsed, None], np.float64)[places], np.array([*levels, -1], np.int64)[places]
    infinite = np.isinf(numbers)
    numbers[infinite] = np.nan
    return Parsed(numbers, codes, list(texts), first(infinite))


def _number(cell: str) -> float | None:
    """Return the number or boolean in a text; None if it is neither, or has leading zeros."""
    if cell in TRUTH:
        return float(TRUTH[cell])
    if re.match(NUMBER, cell):
        return None if re.match(PADDED, cell) else float(cell)
    return float(cell) if re.fullmatch(r" *[+-]?(inf|infinity|nan) *", cell, re.IGNORECASE) else None


def check_no_dates(file: str, column: str, values: Any, row: int) -> None:
    """Raise DataError if a column begins with a date or time, which would be a new level in every row."""
    cell: Any = str(values.type)
    if not types.is_temporal(values.type):
        at = next((k for k, value in enumerate(values[:100]) if value.is_valid), 0)
        if kind_of(values.type) != "categorical" or not set(parse_texts(values[at : at + 1])[1]) & {0, 1}:
            return
        cell, row = values[at].as_py(), row + at
    message = f"{file}: column {shown(column)} holds dates or times ({cell} in row {row:,})"
    raise DataError(message, code="stream date", field=column, value=cell, row=row)


def check_decimal_points(file: str, column: str, values: Any, row: int) -> None:
    """Raise DataError if a column has decimal commas; `row` is the row number of its first cell."""
    at = decimal_comma(parse_column(values))
    if at >= 0:
        cell = values[at].as_py()
        message = f"{file}: column {shown(column)} has decimal commas ({cell!r} in row {row + at:,})"
        expected = "decimal points"
        raise DataError(f"{message}, expected {expected}", code="decimal", field=column, value=cell, expected=expected)


def decimal_comma(parsed: Parsed) -> int:
    """Return the first row with a decimal comma, which would become a useless level; -1 if there is none."""
    pattern = re.compile(r" *[+-]?\d[\d.]*(,\d+)? *$")
    commas = [k for k, text in enumerate(parsed.texts) if "," in text and pattern.match(text)]
    return first(np.isin(parsed.codes, commas))


class Labels(NamedTuple):
    """The classes of some rows."""

    values: list[Any]  # the distinct labels
    codes: Integers  # index in the labels; -1 if missing


def parse_labels(values: Any, kind: str) -> Labels:
    """Parse the classes of a column.

    >>> import pyarrow as pa
    >>> parse_labels(pa.chunked_array([["1", None, "x", "1.0"]]), "whole")
    Labels(values=[1, 'x'], codes=array([ 0, -1,  1,  0]))
    """
    different, places = distinct(unpacked(values)[0])
    found: dict[Any, int] = {}
    numbers = []
    for cell in different:
        label = _label(cell, kind)
        # 1 and True are equal as keys, so the key includes the type
        numbers.append(-1 if label is None else found.setdefault((type(label), label), len(found)))
    return Labels([label for _, label in found], np.array([*numbers, -1], np.int64)[places])


def _label(cell: Any, kind: str) -> Any:
    if isinstance(cell, float):
        return None if cell != cell else int(cell) if cell.is_integer() and abs(cell) < 2**63 else str(cell)
    if not isinstance(cell, str):
        return cell if isinstance(cell, (bool, int)) else str(cell)
    text, is_word = cell.strip(), cell.strip().isalpha()
    number = None if is_word != (kind == "truth") else _number(text)
    if kind == "truth" and number in (0.0, 1.0):
        return bool(number)
    if kind == "whole" and number is not None and number.is_integer() and abs(number) < 2**63:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else int(number)
    return text


def decided(columns: Sequence[Any], task: str, last: bool) -> tuple[str, str, str] | None:
    """Return the task, the type of the labels and the reason, from the first targets; None to wait for more rows.

    The rule is that of `target_column`.
    """
    values = pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type).drop_null()
    if len(values) == 0 and not last:
        return None
    if len(values) and kind_of(values.type) == "categorical":
        values, _ = typed_column(values)
    cells = cells_of(pa.table({"y": values}), "y")
    found, why = choose_task(cells)
    whole = cells.kind == "numeric" and not cells.packed and not (cells.numbers % 1).any()
    # later rows may contain more classes
    if task == "auto" and whole and not last and len(np.unique(cells.numbers)) <= 20:
        return None
    labels = "whole" if whole else "truth" if cells.kind == "boolean" and not cells.packed else "text"
    return (found, labels, why) if task == "auto" else (task, labels, "")


def parse_times(values: Any, kind: str | None = None) -> tuple[str, Floats | Integers, int]:
    """Parse the column that orders the rows.

    Return whether the first cell is a "number" or a "time" (or `kind`); the numbers, or microseconds with the smallest
    integer where missing; and the number of rows before the first cell of another kind.

    >>> import pyarrow as pa
    >>> kind, times, good = parse_times(pa.chunked_array([["2024-03", "2024/3", "2024-03-01", "2024-13"]]))
    >>> kind, times.astype("datetime64[us]").astype("datetime64[D]").astype(str).tolist(), good
    ('time', ['2024-03-01', '2024-03-01', '2024-03-01'], 3)
    """
    held, missing = kind_of(values.type), np.iinfo(np.int64).min
    if held == "date":
        return "time", timestamps(values, local=False).view(np.int64), len(values)
    if types.is_temporal(values.type):
        return "time", as_numpy(values.cast("int64"), missing).astype(np.int64), len(values)
    parsed = parse_column(values)
    wrong = parsed.codes >= 0
    if kind is None:
        given = np.flatnonzero(parsed.given)
        kind = "time" if len(given) and wrong[given[0]] else "number"
    found: Any = parsed.numbers
    if kind == "time":
        if held != "categorical":
            return kind, np.full(len(values), missing), len(values)
        found = parse_texts(values)[0].view(np.int64)
        wrong = parsed.given & (found == missing)
    good = int(wrong.argmax()) if wrong.any() else len(values)
    return kind, found[:good], good

"""Learn the encoding of single columns of the training table, and compute the features of columns of any table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from meshnn.errors import DataError
from meshnn.tables.cells import NUMBER, TRUTH, Cells, cells_of, first
from meshnn.tables.dates import as_numpy
from meshnn.tables.encoder import Column, date_parts
from meshnn.tables.names import plain, quoted, row_number, short_date, shown, source

__all__ = ["fill_features", "learn_columns"]

Floats = NDArray[np.float64]
Learned = tuple[Column | str, int, str]


def learn_columns(table: Any, names: list[str], max_categories: int, keep_constant: bool = False) -> dict[str, Learned]:
    """Return, per column, the encoding or the reason to omit it, the number of missing values, and a note or "".

    The encodings include the values that replace missing ones.
    """
    learned: dict[str, Learned] = {}
    for name in names:
        cells = cells_of(table, name)
        found: Column | str = "has no values"
        note, missing = "", cells.missing
        if missing < table.num_rows:
            if cells.is_numeric:
                found = _learn_numbers(cells, keep_constant)
            elif not cells.packed and cells.days[1] < 0:
                found, note = _learn_dates(cells)
            else:
                found, note = _learn_texts(cells, max_categories)
        if isinstance(found, str):
            note, missing = f"{cells.called} {found}: left out", 0
        learned[name] = found, missing, note
    return learned


def _learn_numbers(cells: Cells, keep_constant: bool) -> Column | str:
    ordered = np.sort(cells.numbers)[: len(cells.gaps) - cells.missing]  # NaN is last
    # halve first, because the sum of two large numbers may overflow
    median = float(ordered[(len(ordered) - 1) // 2] / 2 + ordered[len(ordered) // 2] / 2)
    fill = median > 0.5 if cells.kind == "boolean" else median
    constant = ordered[0] == ordered[-1] and not keep_constant
    return f"is constant ({plain(fill)})" if constant else Column(cells.name, cells.kind, fill=fill)


def _learn_dates(cells: Cells) -> tuple[Column | str, str]:
    ordered = np.sort(cells.days[0][~cells.gaps])
    fill, origin = str(ordered[(len(ordered) - 1) // 2]), str(ordered[0].astype("datetime64[D]"))
    if ordered[0] == ordered[-1]:
        return f"is constant ({short_date(fill)})", ""
    varying = tuple(name for name, part in date_parts(ordered, origin).items() if np.ptp(part))
    column = Column(cells.name, "date", varying, fill, origin=origin)
    expected = cells.kind == "date"  # the type of the column states it; text that is taken as dates is reported
    return column, "" if expected else f"{cells.called} holds dates, used as {column.parts}"


def _learn_texts(cells: Cells, most: int) -> tuple[Column | str, str]:
    """Return the categories of a column; if there are too many, the most frequent ones and one for all others."""
    texts = cells.texts()
    values, counts = texts.drop_null().value_counts().flatten()
    if len(values) == 1:
        return f"is constant ({shown(values[0].as_py())})", ""
    numbers = compute.sum(compute.match_substring_regex(values, NUMBER)).as_py()
    hint = note = ""
    if len(values) / 2 <= numbers < len(values):  # probably a column of numbers with a typing error
        at = compute.index(compute.match_substring_regex(texts, NUMBER), False).as_py()
        row, cell = row_number(cells.table, at), quoted(texts[at])
        hint = f"{numbers:,} of its {len(values):,} values are numbers, but row {row:,} holds {cell}"
        note = f"{cells.called} is treated as text: {hint}; fix or empty that cell for numbers"
    count = len(values)
    if count > most and 2 * count > len(texts):
        what = f"has {count:,} different texts in {len(texts):,} rows: it looks like an identifier or free text"
        what = f"is text: {hint}; fix or empty that cell, or drop the column" if hint else f"{what}; drop the column"
        raise DataError(f"{cells.called} {what}", code="identifier", field=cells.name, value=str(count))
    frequency = dict(zip(values.to_pylist(), counts.to_pylist(), strict=True))
    categories = sorted(frequency)
    fill = max(categories, key=frequency.__getitem__)  # of equally frequent ones, the first in order
    if count > most:
        categories = sorted(sorted(categories, key=frequency.__getitem__, reverse=True)[: most - 1])
        rare = f"has {count:,} different texts: the {count - most + 1:,} rarest share one feature"
        note = note or f"{cells.called} {rare}"
    return Column(cells.name, "categorical", tuple(categories), fill, count > most), note


def fill_features(part: Floats, column: Column, table: Any, notes: list[str]) -> int:
    """Write the features of a column into their part of X; return the number of missing values."""
    cells = cells_of(table, column.name)
    if column.kind == "categorical":
        _fill_levels(part, column, cells, notes)
    elif column.kind == "date":
        _fill_dates(part, column, cells)
    else:
        _fill_numbers(part, column, cells)
    return cells.missing


def _fill_numbers(part: Floats, column: Column, cells: Cells) -> None:
    expected = "a number as in training" if column.kind == "numeric" else "true or false as in training"
    if not cells.is_numeric and not cells.gaps.all():
        pattern = NUMBER if column.kind == "numeric" else f"^({'|'.join(TRUTH)}|0|1)$"
        at = compute.index(compute.match_substring_regex(cells.texts(), pattern), False).as_py()
        at = first(~cells.gaps) if at < 0 else at  # a dictionary column, or numbers as text: report the first cell
        cells.refuse(at, f"the text {quoted(cells.values[at])}", expected)
    numbers = np.full(len(part), np.nan) if cells.gaps.all() else cells.numbers
    if column.kind == "boolean" and (at := first((numbers != 0) & (numbers != 1) & ~cells.gaps)) >= 0:
        cells.refuse(at, plain(float(numbers[at])), expected)
    part[:, 0] = numbers
    if column.fill is not None and cells.missing:
        part[cells.gaps, 0] = float(column.fill)


def _fill_dates(part: Floats, column: Column, cells: Cells) -> None:
    dates, wrong = cells.days
    if wrong >= 0:
        cells.refuse(wrong, quoted(cells.values[wrong]), "a date as in training")
    fill = np.datetime64(column.origin if column.fill is None else str(column.fill), "us")
    parts = date_parts(np.where(cells.gaps, fill, dates), column.origin)
    for k, name in enumerate(column.categories):
        part[:, k] = parts[name]


def _fill_levels(part: Floats, column: Column, cells: Cells, notes: list[str]) -> None:
    texts = cells.texts(column.categories)
    at = as_numpy(compute.index_in(texts, pa.array(column.categories, "large_string")), -1).astype(np.int64)
    new = (at < 0) & ~cells.gaps
    if column.other:
        at[new] = len(column.categories)
    elif count := int(new.sum()):
        what = f"{count:,} {'row has a value' if count == 1 else 'rows have values'} of {shown(column.name)} never seen"
        example = quoted(texts[first(new)])
        notes.append(f"{source(cells.table)}{what} in training, e.g. {example}: all its features are 0 there")
    if column.fill is not None:
        at[cells.gaps] = column.categories.index(str(column.fill))
    rows = np.flatnonzero(at >= 0)
    part[rows, at[rows]] = 1.0

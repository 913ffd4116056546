"""What an `Encoder` learns from one column of the training table, and the features it makes of another one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from meshnn.errors import DataError
from meshnn.tables.cells import NUMBER, TRUTH, Cells, cells_of, first
from meshnn.tables.encoder import DATE_PARTS, Column
from meshnn.tables.names import plain, quoted, row_number, shown, source

__all__ = ["fill_features", "learn_column"]

Floats = NDArray[np.float64]
WANTED = {"numeric": "a number", "boolean": "true or false", "categorical": "text", "date": "a date"}


def learn_column(table: Any, name: str, max_categories: int) -> tuple[Column | str, int, str]:
    """Return the column as an encoder needs it, or why it is left out; its missing values; and a remark or "".

    The column has a value that fills gaps.
    """
    cells = cells_of(table, name)
    note = ""
    if cells.gaps.all():
        found: Column | str = "has no values"
    elif (dates := cells.dates) is not None:
        found = _learn_dates(cells, dates[~cells.gaps])
        if isinstance(found, Column):
            parts = ", ".join(found.categories).replace("days", f"days since {found.origin[:10]}")
            note = f"{cells.called} holds dates, used as {parts}"
    elif cells.packed or cells.kind == "categorical":
        found, note = _learn_texts(cells, max_categories)
    else:
        found = _learn_numbers(cells)
    if isinstance(found, str):
        note = f"{cells.called} {found}: left out"
    return found, cells.missing, note


def _learn_numbers(cells: Cells) -> Column | str:
    ordered = np.sort(cells.numbers[~cells.gaps])
    # halved first: the sum of two large numbers may be infinite
    median = float(ordered[(len(ordered) - 1) // 2] / 2 + ordered[len(ordered) // 2] / 2)
    fill = median > 0.5 if cells.kind == "boolean" else median
    if ordered[0] == ordered[-1]:
        return f"is constant ({plain(fill)})"
    return Column(cells.name, cells.kind, fill=fill)


def _learn_dates(cells: Cells, dates: NDArray[Any]) -> Column | str:
    ordered = np.sort(dates)
    fill, origin = str(ordered[(len(ordered) - 1) // 2]), str(ordered[0].astype("datetime64[D]"))
    if ordered[0] == ordered[-1]:
        return f"is constant ({fill})"
    parts = _date_parts(dates, origin)
    return Column(cells.name, "date", tuple(part for part in DATE_PARTS if np.ptp(parts[part])), fill, origin=origin)


def _date_parts(dates: NDArray[Any], origin: str) -> dict[str, Floats]:
    """Return the features of dates by name: weekday 0 is Monday, hours and days have fractions."""
    days, months = dates.astype("datetime64[D]"), dates.astype("datetime64[M]").astype(np.int64)
    parts = {
        "year": 1970 + months // 12,
        "month": 1 + months % 12,
        "weekday": (days.astype(np.int64) + 3) % 7,
        "hour": (dates - days) / np.timedelta64(1, "h"),
        "days": (dates - np.datetime64(origin)) / np.timedelta64(1, "D"),
    }
    return {name: np.asarray(part, np.float64) for name, part in parts.items()}


def _learn_texts(cells: Cells, most: int) -> tuple[Column | str, str]:
    """Return the levels of a column; if there are too many, the most frequent ones, and one for all others."""
    texts = cells.texts()
    values, counts = texts.drop_null().value_counts().flatten()
    if len(values) == 1:
        return f"is constant ({shown(values[0].as_py())})", ""
    numbers = compute.sum(compute.match_substring_regex(values, NUMBER)).as_py()
    hint = note = ""
    if len(values) / 2 <= numbers < len(values):  # a column of numbers with a typing error
        at = compute.index(compute.match_substring_regex(texts, NUMBER), False).as_py()
        row, cell = row_number(cells.table, at), quoted(texts[at])
        hint = f"{numbers:,} of its {len(values):,} values are numbers, but row {row:,} holds {cell}"
        note = f"{cells.called} is taken as text: {hint}; fix or empty that cell for numbers"
    count = len(values)
    if count > most and 2 * count > len(texts):
        what = f"has {count:,} different texts in {len(texts):,} rows: it looks like an identifier or free text"
        what = f"is text: {hint}; fix or empty that cell, or drop the column" if hint else f"{what}; drop the column"
        raise DataError(f"{cells.called} {what}", code="identifier", field=cells.name, value=str(count))
    frequency = dict(zip(values.to_pylist(), counts.to_pylist(), strict=True))
    categories = sorted(frequency)
    fill = max(categories, key=frequency.__getitem__)  # of several, the first in order
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
    gaps, expected = cells.gaps, f"{WANTED[column.kind]} as in training"
    if cells.kind == "date":
        cells.refuse(0, f"dates ({cells.values.type})", expected, "type")
    if cells.kind == "categorical" and not gaps.all():  # the first wrong cell, else the first of all
        pattern = NUMBER if column.kind == "numeric" else f"^({'|'.join(TRUTH)}|0|1)$"
        at = compute.index(compute.match_substring_regex(cells.texts(), pattern), False).as_py()
        at = first(~gaps) if at < 0 else at
        cells.refuse(at, f"the text {quoted(cells.values[at])}", expected)
    numbers = cells.numbers
    if column.kind == "boolean" and (at := first(~gaps & (numbers != 0) & (numbers != 1))) >= 0:
        cells.refuse(at, plain(float(numbers[at])), expected)
    part[:, 0] = numbers if column.fill is None else np.where(gaps, float(column.fill), numbers)


def _fill_dates(part: Floats, column: Column, cells: Cells) -> None:
    from meshnn.tables.times import DAY_FORMS, parse_texts

    dates = cells.dates
    if dates is None and not cells.gaps.all():
        wrong = ~cells.gaps
        if cells.kind == "categorical":
            forms = parse_texts(cells.values)[1]
            wrong &= (forms < 0) | (forms >= DAY_FORMS)
        cells.refuse(first(wrong), quoted(cells.values[first(wrong)]), f"{WANTED['date']} as in training")
    fill = np.datetime64(column.origin if column.fill is None else str(column.fill), "us")
    filled = np.full(len(part), fill) if dates is None else np.where(cells.gaps, fill, dates)
    parts = _date_parts(filled, column.origin)
    for k, name in enumerate(column.categories):
        part[:, k] = parts[name]


def _fill_levels(part: Floats, column: Column, cells: Cells, notes: list[str]) -> None:
    texts = cells.texts(column.categories)
    at = compute.index_in(texts, pa.array(column.categories, "large_string")).fill_null(-1).combine_chunks()
    at = np.array(np.from_dlpack(at), np.int64)
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

"""What an `Encoder` learns from one column of the training table, and the features it makes of another one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from meshnn.errors import DataError
from meshnn.tables.cells import NUMBER, TRUTH, Cells, cells_of, first, in_groups, kind_of, matrix_of
from meshnn.tables.dates import as_numpy
from meshnn.tables.encoder import Column, date_parts
from meshnn.tables.names import plain, quoted, row_number, shown, source

__all__ = ["fill_features", "fill_numbers", "learn_columns"]

Floats = NDArray[np.float64]
Learned = tuple[Column | str, int, str]


def learn_columns(table: Any, names: list[str], max_categories: int) -> dict[str, Learned]:
    """Return for each column what an encoder needs, or why it is left out; its missing values; and a remark or "".

    The columns have values that fill gaps.
    """
    found: dict[str, Learned] = {}
    numeric = [name for name in names if _is_number(table, name)]
    for group in in_groups(numeric, table.num_rows):
        found |= _learn_numbers(table, list(group))
    return {name: found[name] if name in found else _learn_others(table, name, max_categories) for name in names}


def _is_number(table: Any, name: str) -> bool:
    return kind_of(table.field(name).type) in ("numeric", "boolean")


def _learn_numbers(table: Any, names: list[str]) -> dict[str, Learned]:
    X = _finite_matrix(table, names)
    ordered, counts, every = np.sort(X, axis=0), (X == X).sum(axis=0), np.arange(len(names))  # NaN is last
    last = np.maximum(counts - 1, 0)
    # halved first: the sum of two large numbers may be infinite
    middle = ordered[last // 2, every] / 2 + ordered[np.minimum(counts // 2, last), every] / 2
    constant = ordered[0] == ordered[last, every]
    found: dict[str, Learned] = {}
    for k, (name, median) in enumerate(zip(names, middle.tolist(), strict=True)):
        kind = str(kind_of(table.field(name).type))
        fill = median > 0.5 if kind == "boolean" else median
        if counts[k] and not constant[k]:
            found[name] = Column(name, kind, fill=fill), len(X) - int(counts[k]), ""
        else:
            found[name] = _left_out(table, name, f"is constant ({plain(fill)})" if counts[k] else "has no values")
    return found


def _finite_matrix(table: Any, names: list[str]) -> Floats:
    X = matrix_of(table, names)
    if np.isinf(X).any():
        _ = cells_of(table, names[int(np.isinf(X).any(axis=0).argmax())]).numbers  # which raises the error
    return X


def _left_out(table: Any, name: str, why: str) -> Learned:
    return why, 0, f"{source(table)}column {shown(name)} {why}: left out"


def _learn_others(table: Any, name: str, max_categories: int) -> Learned:
    cells = cells_of(table, name)
    if cells.gaps.all():
        return _left_out(table, name, "has no values")
    dates, wrong = cells.days
    found, note = _learn_texts(cells, max_categories) if wrong >= 0 else _learn_dates(cells, dates[~cells.gaps])
    return _left_out(table, name, found) if isinstance(found, str) else (found, cells.missing, note)


def _learn_dates(cells: Cells, dates: NDArray[Any]) -> tuple[Column | str, str]:
    ordered = np.sort(dates)
    fill, origin = str(ordered[(len(ordered) - 1) // 2]), str(ordered[0].astype("datetime64[D]"))
    if ordered[0] == ordered[-1]:
        return f"is constant ({fill})", ""
    varying = tuple(name for name, part in date_parts(dates, origin).items() if np.ptp(part))
    column = Column(cells.name, "date", varying, fill, origin=origin)
    return column, f"{cells.called} holds dates, used as {column.parts}"


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


def fill_numbers(
    X: Floats, columns: tuple[Column, ...], begins: list[int], table: Any, missing: dict[str, int]
) -> None:
    """Write all features of columns of numbers that still are numbers; count their missing values."""
    kinds = ("numeric", "boolean")
    numeric = [k for k, column in enumerate(columns) if column.kind in kinds and _is_number(table, column.name)]
    for group in in_groups(numeric, table.num_rows):
        names = [columns[k].name for k in group]
        values = _finite_matrix(table, names)
        gaps = values != values
        for place, k in enumerate(group):
            if columns[k].kind == "boolean":
                wrong = ~gaps[:, place] & (values[:, place] != 0) & (values[:, place] != 1)
                if (at := first(wrong)) >= 0:
                    cells_of(table, names[place]).refuse(at, plain(float(values[at, place])), _expected(columns[k]))
        fills = [np.nan if columns[k].fill is None else float(columns[k].fill or 0) for k in group]
        X[:, [begins[k] for k in group]] = np.where(gaps, fills, values)
        missing.update(zip(names, gaps.sum(axis=0).tolist(), strict=True))


def _expected(column: Column) -> str:
    wanted = {"numeric": "a number", "boolean": "true or false", "date": "a date"}
    return f"{wanted[column.kind]} as in training"


def fill_features(part: Floats, column: Column, table: Any, notes: list[str]) -> int:
    """Write the features of a column into their part of X; return the number of missing values."""
    cells = cells_of(table, column.name)
    if column.kind == "categorical":
        _fill_levels(part, column, cells, notes)
    elif column.kind == "date":
        _fill_dates(part, column, cells)
    elif cells.gaps.all():
        part[:, 0] = np.nan if column.fill is None else float(column.fill)
    elif cells.kind == "date":
        cells.refuse(first(~cells.gaps), f"dates ({cells.values.type})", _expected(column), "type")
    else:  # text, or a dictionary: the first wrong cell, else the first of all
        pattern = NUMBER if column.kind == "numeric" else f"^({'|'.join(TRUTH)}|0|1)$"
        at = compute.index(compute.match_substring_regex(cells.texts(), pattern), False).as_py()
        at = first(~cells.gaps) if at < 0 else at
        cells.refuse(at, f"the text {quoted(cells.values[at])}", _expected(column))
    return cells.missing


def _fill_dates(part: Floats, column: Column, cells: Cells) -> None:
    dates, wrong = cells.days
    if wrong >= 0:
        cells.refuse(wrong, quoted(cells.values[wrong]), _expected(column))
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

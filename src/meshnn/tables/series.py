"""A series in a column of a table: its times, its sorted values, and the features of past and future steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow import types

from meshnn.errors import DataError
from meshnn.tables.cells import cells_of, kind_of, unpacked
from meshnn.tables.dates import FORMS, parse_texts, timestamps
from meshnn.tables.names import check_names, listed, quoted, shown, source

__all__ = ["Series", "Times", "read_series", "read_times"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Times:
    """The times of a series."""

    name: str  # the name of the column
    order: Integers  # (n,) the rows sorted by time
    places: Integers  # (n,) the step of each sorted row; steps without a row are missing values
    stamps: NDArray[Any]  # (steps,) the time of each step, datetime64 or float
    unit: str  # unit of a step: "months", "weekdays", "time" (microseconds) or "number"
    step: float  # units per step
    form: str  # format of the times
    notes: tuple[str, ...]  # notes for the user

    def after(self, count: int) -> NDArray[Any]:
        """Return the next times."""
        return _moved(self.stamps[-1:], self.unit, self.step, np.arange(1, count + 1))

    def texts(self, stamps: NDArray[Any]) -> list[Any]:
        """Return times in the format of the column; numbers are not converted."""
        if self.unit == "number":
            return [round(v) if self.form == "int" else float(f"{v:.12g}") for v in stamps.tolist()]
        found = []
        for moment in stamps.astype("datetime64[us]").tolist():
            form = self.form.replace("%S", "%S.%f") if moment.microsecond else self.form
            found.append(moment.strftime(form.replace("%q", str((moment.month + 2) // 3))))
        return found


def looks_like_times(table: Any, name: str) -> bool:
    """Return whether a column holds dates or times, by its type or by most of its first text values."""
    values, _ = unpacked(table[name])
    kind = kind_of(values.type)
    if kind != "categorical":
        return kind == "date"
    first = values[:20].drop_null()
    return 2 * int((parse_texts(first)[1] >= 0).sum()) > len(first)  # a cell with a typing error is reported later


def read_times(table: Any, name: str) -> Times:
    """Return the times in a column; raise DataError if they cannot be read or are not unique.

    >>> import pyarrow as pa
    >>> times = read_times(pa.table({"month": ["2024-11", "2024-12", "2025-02"]}), "month")
    >>> times.unit, times.places.tolist(), times.texts(times.after(2))
    ('months', [0, 1, 3], ['2025-03', '2025-04'])
    """
    stamps, form = _stamps(table, name)
    order = np.argsort(stamps, kind="stable").astype(np.int64)
    notes = [] if (np.diff(order) > 0).all() else [f"rows are sorted by {shown(name)}"]
    stamps = stamps[order]
    same = np.flatnonzero(stamps[1:] == stamps[:-1])
    if same.size:
        when, row = str(table[name][int(order[same[0]])].as_py())[:40], int(order[same[0]]) + 1
        message = f"{source(table)}column {shown(name)} has the time {when} more than once; sum or average the values"
        raise DataError(message, code="time", field=name, value=when, row=row)
    unit, step, places = _step(stamps)
    if places is None or places[-1] >= 4 * len(places):  # too sparse for a regular step
        notes.append(f"times in {shown(name)} are not regular: rows are taken as steps of the same length")
        return Times(name, order, np.arange(len(order)), stamps, unit, step, form, tuple(notes))
    if gaps := int(places[-1]) + 1 - len(places):
        notes.append(f"{gaps:,} time{'s' * (gaps > 1)} between the rows not there: taken as missing")
    grid = _moved(stamps[:1], unit, step, np.arange(places[-1] + 1))
    grid[places] = stamps
    return Times(name, order, places, grid, unit, step, form, tuple(notes))


def _stamps(table: Any, name: str) -> tuple[NDArray[Any], str]:
    """Return the times as datetime64[us] or floats, and their format."""
    cells, values = cells_of(table, name), table[name]
    known = "dates are written 2024-03-31, 2024-03, 2024Q1, 31.3.2024 or Mar 2024, times 2024-03-31 12:00:00"
    if cells.missing:
        row = int(cells.gaps.argmax()) + 1
        message = f"{cells.called} has no time in row {row:,}; fill it in, or leave the row out"
        raise DataError(message, code="time", row=row)
    if cells.kind == "numeric":
        return cells.numbers, "int" if types.is_integer(values.type) else "float"
    if cells.kind == "date":
        form = "%Y-%m-%d" if types.is_date(values.type) else "%Y-%m-%d %H:%M:%S"
        return timestamps(values, local=False), form + "Z" * bool(getattr(values.type, "tz", None))
    if cells.kind != "categorical":
        raise DataError(f"{cells.called} holds {values.type}, expected times; {known}", code="time", field=name)
    stamps, forms = parse_texts(cells.values)
    # all cells of a column have one format
    usual = int(np.bincount(forms + 1)[1:].argmax()) if forms.max() >= 0 else -2
    if (bad := forms != usual).any():
        at, other = int(bad.argmax()), int((~bad).argmax())
        like = "" if bad.all() else f" like {quoted(values[other].as_py().strip())} in row {other + 1:,}"
        cell = values[at].as_py().strip()
        message = f"{cells.called} holds {quoted(cell)} in row {at + 1:,}, which is not read as a time{like}; {known}"
        raise DataError(message, code="time", field=name, value=cell, row=at + 1, expected=known)
    form = list(FORMS)[usual]
    if form == "quarter":
        form = f"%Y{values[0].as_py().strip()[4:-2]}Q%q"
    elif form in ("iso", "zone"):
        days = all(len(text.strip()) == len("2024-03-31") for text in values.to_pylist())
        form = "%Y-%m-%d" if days else "%Y-%m-%d %H:%M:%S" + "Z" * (form == "zone")
    return stamps, form


def _step(stamps: NDArray[Any]) -> tuple[str, float, Integers | None]:
    """Return the unit, the step in this unit, and the step of each time; None if the times are irregular."""
    if stamps.dtype.kind == "f":
        usual = _usual(np.diff(stamps), 1.0)
        return "number", usual, _multiples(stamps, usual)
    days, months = stamps.astype("datetime64[D]"), stamps.astype("datetime64[M]")
    within, clock = stamps - months, stamps - days
    at_end = bool(((days + 1).astype("datetime64[M]") > months).all())  # whether all days are the last of their month
    one_time = bool((clock == clock[0]).all())
    if len(stamps) > 1 and ((within == within[0]).all() or (one_time and at_end)):
        passed = (months - months[0]).astype(np.int64)
        step = int(np.gcd.reduce(np.diff(passed)))
        return "months", float(step), passed // step
    ticks = stamps.astype(np.int64).astype(float)
    usual = _usual(np.diff(ticks), 86_400e6)
    if usual == 86_400e6 and one_time and len(stamps) > 5 and bool(np.is_busday(days).all()):
        return "weekdays", 1.0, np.asarray(np.busday_count(days[0], days), dtype=np.int64)
    return "time", usual, _multiples(ticks, usual)


def _usual(steps: NDArray[Any], default: float) -> float:
    """Return the most frequent step, or the median if all differ."""
    if len(steps) == 0:
        return default
    values, counts = np.unique(steps, return_counts=True)
    return float(values[counts.argmax()] if counts.max() > 1 or len(values) == 1 else np.median(steps))


def _multiples(ticks: NDArray[Any], step: float) -> Integers | None:
    """Return the step of each time; None if the times are not multiples of it."""
    ratio = (ticks - ticks[0]) / step
    places = np.round(ratio)
    regular = (np.abs(ratio - places) < 0.01).all() and (np.diff(places) > 0).all()
    return places.astype(np.int64) if regular and ratio[-1] < 2**53 else None


def _moved(start: NDArray[Any], unit: str, step: float, counts: Integers) -> NDArray[Any]:
    """Return the start plus the given numbers of steps."""
    if unit == "number":
        return np.asarray(start + step * counts)
    if unit == "time":
        return np.asarray(start + np.round(step * counts).astype("timedelta64[us]"))
    day, month = start.astype("datetime64[D]"), start.astype("datetime64[M]")
    if unit == "weekdays":
        moved = np.busday_offset(day, counts, roll="forward")
    else:  # the last day of a month is followed by the last day of the next
        months = month + (counts * int(step)).astype("timedelta64[M]")
        last = (months + 1).astype("datetime64[D]") - 1
        at_end = (day + 1).astype("datetime64[M]") > month
        moved = np.where(at_end, last, np.minimum(months.astype("datetime64[D]") + (day - month), last))
    return np.asarray(moved + (start - day))


@dataclass(frozen=True)
class Series:
    """A column of a table, sorted by time."""

    name: str
    by: str | None  # the column of the times
    values: Any  # (n,) from the first value to the last; NaN where one is missing
    features: list[dict[Any, float]] | None  # other columns, for these rows and those after the last value
    times: Times | None  # None: steps are counted from 0
    offset: int  # rows before the first value
    notes: list[str]  # notes for the user

    @property
    def stamps(self) -> Any:
        """Times of the values."""
        if self.times is None:
            return np.arange(1.0, len(self.values) + 1) + self.offset
        return self.times.stamps[self.offset : self.offset + len(self.values)]

    def ahead(self, count: int) -> Any:
        """Return the times of the next steps."""
        end = self.offset + len(self.values)
        if self.times is None:
            return np.arange(1.0, count + 1) + end
        return np.concatenate([self.times.stamps[end:], self.times.after(count)])[:count]

    def texts(self, count: int) -> list[Any]:
        """Return the times of the next steps in the format of the column."""
        stamps = self.ahead(count)
        return [int(stamp) for stamp in stamps] if self.times is None else self.times.texts(stamps)

    def features_ahead(self, count: int) -> list[dict[Any, float]] | None:
        """Return the features of the next steps, which the rows after the last value must contain."""
        if self.features is None:
            return None
        found = self.features[len(self.values) :][:count]
        if len(found) < count:
            message = (
                f"a forecast of {count:,} steps needs the features of as many rows after the last value of "
                f"{shown(self.name)}, and the table has {len(found):,} such rows"
            )
            raise DataError(message, code="future", field=self.name)
        return found


def read_series(table: Any, name: str | None = None, by: str | None = None, features: Sequence[str] = ()) -> Series:
    """Return the series of a column.

    By default, `name` is the only column of numbers and `by` the only column of dates.
    """
    names = table.column_names
    check_names(names, [column for column in (name, by, *features) if column is not None])
    if by is None:
        dates = [column for column in names if column not in {name, *features} and looks_like_times(table, column)]
        by = dates[0] if len(dates) == 1 else None
    if name is None:
        found = [n for n in names if n not in {by, *features} and kind_of(table[n].type) == "numeric"]
        if len(found) != 1:
            none = f"no column holds numbers; the table has {listed(names)}"
            message = f"several columns hold numbers: {listed(found)}" if found else none
            raise DataError(message, code="series")
        name = str(found[0])
    columns = np.stack([cells_of(table, column).as_numbers() for column in (name, *features)], axis=1)
    times = None if by is None else read_times(table, by)
    notes: list[str] = []
    added = 0
    if times is not None:
        ordered, columns = columns[times.order], np.full((len(times.stamps), columns.shape[1]), np.nan)
        columns[times.places] = ordered
        notes, added = list(times.notes), len(times.stamps) - len(times.order)
    there = np.flatnonzero(np.isfinite(columns[:, 0]))
    if len(there) < 4:
        count = f"{len(there)} value{'s' * (len(there) != 1)}"
        raise DataError(f"column {shown(name)} has {count}, expected at least 4; add rows", field=name)
    start, end = int(there[0]), int(there[-1]) + 1
    gaps, left = end - start - len(there) - added, len(columns) - end
    if gaps > 0:
        what = f"{gaps:,} value{'s' * (gaps > 1)} of {shown(name)} missing"
        notes.append(f"{what}: replaced by forecasts, which are not learned")
    if left:
        notes.append(f"the last {left:,} row{'s' * (left > 1)} have no value of {shown(name)}: forecast first")
    rows: list[dict[Any, float]] | None = None
    if features:
        rows = [dict(zip(features, row, strict=True)) for row in columns[start:, 1:].tolist()]
    return Series(name, by, columns[start:end, 0], rows, times, start, notes)

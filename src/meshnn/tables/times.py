"""Dates and times: parsed from text, and the regular steps of a series, which a forecast continues."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from meshnn.errors import DataError
from meshnn.tables.names import quoted, shown, source

__all__ = ["Times", "as_numpy", "distinct", "looks_like_times", "parse_days", "parse_texts", "read_times", "timestamps"]

Integers = NDArray[np.int64]
#: Forms of dates, in the notation of `strftime`. The first four are of days; the others name months or quarters.
FORMS = {
    "iso": r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)(?P<clock>([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?)",
    "zone": r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)(?P<clock>[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d))",
    "%d.%m.%Y": r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})(?P<clock>([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?)",
    "%Y/%m/%d": r"(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})",
    "%Y-%m": r"(?P<y>\d{4})-(?P<m>\d{1,2})",
    "%Y/%m": r"(?P<y>\d{4})/(?P<m>\d{1,2})",
    "quarter": r"(?P<y>\d{4})[ -]?[Qq](?P<quarter>[1-4])",
    "%b %Y": r"(?P<name>[A-Za-z]{3}) (?P<y>\d{4})",
    "%b-%Y": r"(?P<name>[A-Za-z]{3})-(?P<y>\d{4})",
    "%B %Y": r"(?P<name>[A-Za-z]{3})[A-Za-z]{1,6} (?P<y>\d{4})",
}


def parse_days(values: Any) -> NDArray[Any]:
    """Parse texts that are dates, with a time or without, as datetime64[us]; NaT for all others."""
    stamps, forms = parse_texts(values)
    return np.where((forms >= 0) & (forms < 4), stamps, np.datetime64("NaT", "us"))


def parse_texts(values: Any) -> tuple[NDArray[Any], Integers]:
    """Parse dates and times that are text, as datetime64[us], and return which of `FORMS` each one has.

    It is NaT and -1 for other text. Times with a zone are those of UTC, a month is its first day.

    >>> import pyarrow as pa
    >>> stamps, forms = parse_texts(pa.array(["31.12.2024", "2024Q2", "2024-02-30"]))
    >>> stamps.astype("datetime64[D]").astype(str).tolist(), forms.tolist()
    (['2024-12-31', '2024-04-01', 'NaT'], [2, 6, -1])
    """
    missing = int(np.iinfo(np.int64).min)
    try:  # ISO notation without zones, by far the most frequent
        ticks = as_numpy(compute.utf8_trim(values, " ").cast(pa.timestamp("us")).cast("int64"), missing)
        if ticks[ticks != missing].min(initial=0) > -62_135_596_800_000_000:  # the year 1, the first of datetime
            return ticks.view("datetime64[us]"), np.where(ticks == missing, -1, 0)
    except pa.ArrowException:
        pass
    texts, codes = distinct(values)
    patterns = [re.compile(pattern, re.ASCII) for pattern in FORMS.values()]
    parsed = [_parse(text.strip(" "), patterns) or (missing, -1) for text in texts]
    found = np.array([*parsed, (missing, -1)], np.int64)[codes]
    return found[:, 0].copy().view("datetime64[us]"), found[:, 1]


def _parse(text: str, patterns: list[re.Pattern[str]]) -> tuple[int, int] | None:
    """Return microseconds since 1970 and the number of the form; None if it is no date."""
    for form, pattern in enumerate(patterns):
        if (found := pattern.fullmatch(text)) is not None:
            parts: dict[str, Any] = {"d": 1, "clock": ""} | found.groupdict()
            if "name" in parts:
                parts["m"] = "jan feb mar apr may jun jul aug sep oct nov dec".find(parts["name"].lower()) // 4 + 1
            elif "quarter" in parts:
                parts["m"] = 3 * int(parts["quarter"]) - 2
            day = f"{parts['y']}-{int(parts['m']):02}-{int(parts['d']):02}"
            try:
                moment = datetime.fromisoformat(day + parts["clock"])
                moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
                return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), form
            except (ValueError, OverflowError):
                return None  # there is no such day
    return None


def distinct(values: Any) -> tuple[list[Any], Integers]:
    """Return the distinct values, and which of them each one is; -1 if it is missing."""
    if types.is_null(values.type) or len(values) == 0:
        return [], np.full(len(values), -1, np.int64)
    packed = values.combine_chunks() if hasattr(values, "chunks") else values
    packed = packed.dictionary_encode()
    packed = packed.combine_chunks() if hasattr(packed, "chunks") else packed
    return packed.dictionary.to_pylist(), as_numpy(packed.indices, -1).astype(np.int64)


def as_numpy(values: Any, missing: Any) -> NDArray[Any]:
    """Return an array with a value where one is missing; to_numpy() would import pandas, which takes long."""
    filled = values.fill_null(missing) if values.null_count else values
    filled = filled.combine_chunks() if isinstance(filled, pa.ChunkedArray) else filled
    if pa.types.is_boolean(filled.type):
        filled = filled.cast("uint8")
        return np.from_dlpack(filled).astype(np.bool_)
    return np.asarray(np.from_dlpack(filled))


def timestamps(values: Any, local: bool = True) -> NDArray[Any]:
    """Return dates or timestamps of pyarrow as datetime64[us], NaT where missing; in local time or in UTC."""
    if types.is_timestamp(values.type) and values.type.tz is not None and local:
        values = compute.local_timestamp(values)
    zone = getattr(values.type, "tz", None)
    ticks = values.cast(pa.timestamp("us", tz=zone), safe=False).cast("int64")
    return as_numpy(ticks, np.iinfo(np.int64).min).view("datetime64[us]")


@dataclass(frozen=True)
class Times:
    """The times of a series."""

    name: str  # of the column
    order: Integers  # (n,) the rows in the order of time
    places: Integers  # (n,) the step of each of these; steps without a row are missing values
    stamps: NDArray[Any]  # (steps,) the time of each step, datetime64 or float
    unit: str  # what a step is counted in: "months", "weekdays", "time" (microseconds) or "number"
    step: float  # units per step
    form: str  # how the times are written
    notes: tuple[str, ...]  # remarks for the user

    def after(self, count: int) -> NDArray[Any]:
        """Return the next times."""
        return _moved(self.stamps[-1:], self.unit, self.step, np.arange(1, count + 1))

    def texts(self, stamps: NDArray[Any]) -> list[Any]:
        """Return times as the column is written; numbers stay numbers."""
        if self.unit == "number":
            whole = self.form == "int"
            return [round(v) if whole else float(f"{v:.12g}") for v in stamps.tolist()]
        return [_written(moment, self.form) for moment in stamps.astype("datetime64[us]").tolist()]


def looks_like_times(table: Any, name: str) -> bool:
    """Return whether a column holds dates or times, by its type or by most of its first texts."""
    values = table[name]
    if types.is_date(values.type) or types.is_timestamp(values.type):
        return True
    if not (types.is_string(values.type) or types.is_large_string(values.type)):
        return False
    first = values[:20].drop_null()
    return 2 * int((parse_texts(first)[1] >= 0).sum()) > len(first)  # one with a typing error is named later


def read_times(table: Any, name: str) -> Times:
    """Return the times in a column of a table; DataError if they cannot be read or two are the same.

    >>> import pyarrow as pa
    >>> times = read_times(pa.table({"month": ["2024-11", "2024-12", "2025-02"]}), "month")
    >>> times.unit, times.places.tolist(), times.texts(times.after(2))
    ('months', [0, 1, 3], ['2025-03', '2025-04'])
    """
    stamps, form = _stamps(table, name)
    order = np.argsort(stamps, kind="stable").astype(np.int64)
    notes = [] if (np.diff(order) > 0).all() else [f"rows are put in the order of {shown(name)}"]
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
    """Return the times as datetime64[us] or floats, and how they are written."""
    values, kind = table[name], table[name].type
    where = f"{source(table)}column {shown(name)}"
    known = "dates are written 2024-03-31, 2024-03, 2024Q1, 31.3.2024 or Mar 2024, times 2024-03-31 12:00:00"
    if values.null_count:
        row = values.is_null().to_pylist().index(True) + 1
        raise DataError(f"{where} has no time in row {row:,}; fill it in, or leave the row out", code="time", row=row)
    if types.is_integer(kind) or types.is_floating(kind):
        numbers = as_numpy(values.cast("float64", safe=False), np.nan)
        if not np.isfinite(numbers).all():
            raise DataError(f"{where} has times that are not finite", code="time", field=name)
        return numbers, "int" if types.is_integer(kind) else "float"
    if types.is_date(kind) or types.is_timestamp(kind):
        zone = getattr(kind, "tz", None)
        form = "%Y-%m-%d" if types.is_date(kind) else "%Y-%m-%d %H:%M:%S" + "Z" * bool(zone)
        return timestamps(values, local=False), form
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise DataError(f"{where} holds {shown(str(kind))}, expected times; {known}", code="time", field=name)
    stamps, forms = parse_texts(values)
    usual = int(np.bincount(forms + 1)[1:].argmax()) if forms.max() >= 0 else -2  # one column, one form
    if (bad := forms != usual).any():
        at, other = int(bad.argmax()), int((~bad).argmax())
        like = "" if bad.all() else f" like {quoted(values[other].as_py().strip())} in row {other + 1:,}"
        cell = values[at].as_py().strip()
        message = f"{where} holds {quoted(cell)} in row {at + 1:,}, which is not read as a time{like}; {known}"
        raise DataError(message, code="time", field=name, value=cell, row=at + 1, expected=known)
    return stamps, _form(values, list(FORMS)[usual])


def _form(values: Any, form: str) -> str:
    """Return how times that follow are written."""
    if form == "quarter":
        return f"%Y{values[0].as_py().strip()[4:-2]}Q"
    if form in ("iso", "zone"):
        days = all(len(text.strip()) == len("2024-03-31") for text in values.to_pylist())
        return "%Y-%m-%d" if days else "%Y-%m-%d %H:%M:%S" + "Z" * (form == "zone")
    return form


def _step(stamps: NDArray[Any]) -> tuple[str, float, Integers | None]:
    """Return the unit, how many of it a step has, and the step of each time; None if they are not regular."""
    if stamps.dtype.kind == "f":
        usual = _usual(np.diff(stamps)) if len(stamps) > 1 else 1.0
        return "number", usual, _multiples(stamps, usual)
    days = stamps.astype("datetime64[D]")
    months = stamps.astype("datetime64[M]").astype(np.int64)
    within = stamps - stamps.astype("datetime64[M]").astype("datetime64[us]")
    last = (days + 1).astype("datetime64[M]").astype(np.int64) > months  # days at the end of their month
    clock = stamps - days.astype("datetime64[us]")
    one_time = bool((clock == clock[0]).all())
    if len(stamps) > 1 and (bool((within == within[0]).all()) or (one_time and bool(last.all()))):
        step = int(np.gcd.reduce(np.diff(months)))
        return "months", float(step), np.asarray((months - months[0]) // step, dtype=np.int64)
    ticks = stamps.astype(np.int64).astype(float)
    usual = _usual(np.diff(ticks)) if len(ticks) > 1 else 86_400e6
    if usual == 86_400e6 and one_time and len(stamps) > 5 and bool(np.is_busday(days).all()):
        return "weekdays", 1.0, np.asarray(np.busday_count(days[0], days), dtype=np.int64)
    return "time", usual, _multiples(ticks, usual)


def _usual(steps: NDArray[Any]) -> float:
    """Return the most frequent step; the median if all differ."""
    values, counts = np.unique(steps, return_counts=True)
    return float(values[counts.argmax()] if counts.max() > 1 or len(values) == 1 else np.median(steps))


def _multiples(ticks: NDArray[Any], step: float) -> Integers | None:
    ratio = (ticks - ticks[0]) / step
    places = np.round(ratio)
    regular = (np.abs(ratio - places) < 0.01).all() and (np.diff(places) > 0).all()
    return places.astype(np.int64) if regular and ratio[-1] < 2**53 else None


def _moved(start: NDArray[Any], unit: str, step: float, counts: NDArray[Any]) -> NDArray[Any]:
    """Return the start plus some numbers of steps."""
    if unit == "number":
        return np.asarray(start + step * counts)
    if unit == "months":
        month = start.astype("datetime64[M]")
        wanted = month + (counts * int(step)).astype("timedelta64[M]")
        within = start - month.astype("datetime64[us]")
        day = np.timedelta64(86_400_000_000, "us")
        is_last = (start + day).astype("datetime64[M]") > month
        # at the time of day, on the last day of the month
        late = (wanted + np.timedelta64(1, "M")).astype("datetime64[us]") - day + within % day
        same = np.minimum(wanted.astype("datetime64[us]") + within, late)
        return np.asarray(np.where(is_last & (within >= 27 * day), late, same))
    if unit == "weekdays":
        date = start.astype("datetime64[D]")
        moved = np.busday_offset(date, counts.astype(np.int64), roll="forward")
        return np.asarray(moved.astype("datetime64[us]") + (start - date.astype("datetime64[us]")))
    return np.asarray(start + np.round(step * counts).astype("timedelta64[us]"))


def _written(moment: datetime, form: str) -> str:
    if form.endswith("Q"):
        return moment.strftime(form[:-1]) + f"Q{(moment.month + 2) // 3}"
    if "%H" in form and moment.microsecond:
        form = form.replace("%S", "%S.%f")
    return moment.strftime(form)

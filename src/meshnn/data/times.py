"""The times of a series: read from a column, put in order, gaps found, and continued by the step between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.data.tables import shown, source
from meshnn.errors import DataError

__all__ = ["Times", "looks_like_times", "read_times"]

I64 = NDArray[np.int64]
QUARTER = r"(\d{4})([ -]?)[Qq]([1-4])"
DAY = r"\d{4}-\d\d-\d\d"
CLOCK = r"[T ]\d\d:\d\d(:\d\d(\.\d+)?)?"
#: How texts may be written: pattern, and format of `strptime`, or one of those that `_moment` knows. The two of ISO are
#: read by pyarrow already, unless a cell of the column is something else or the table has them as texts.
FORMATS = (
    (QUARTER, "quarter"),
    (f"{DAY}({CLOCK})?", "iso"),
    (rf"{DAY}{CLOCK}(Z|[+-]\d\d:?\d\d)", "iso with zone"),
    (r"\d{4}-\d{1,2}", "%Y-%m"),
    (r"\d{4}/\d{1,2}", "%Y/%m"),
    (r"\d{4}/\d{1,2}/\d{1,2}", "%Y/%m/%d"),
    (r"\d{1,2}\.\d{1,2}\.\d{4}", "%d.%m.%Y"),
    (r"[A-Za-z]{3} \d{4}", "%b %Y"),
    (r"[A-Za-z]{3}-\d{4}", "%b-%Y"),
    (r"[A-Za-z]{4,9} \d{4}", "%B %Y"),
)
KNOWN = "dates are written 2024-03-31, 2024-03, 2024Q1, 31.3.2024 or Mar 2024, times 2024-03-31 12:00:00"
#: A series with more steps than this many times its rows has no step worth the name.
SPARSE = 4


@dataclass(frozen=True)
class Times:
    """When the values of a series are.

    Attributes
    ----------
    name : of the column
    order : (n,) the rows in the order of time
    places : (n,) of each of these, its step; steps that are left out are missing values
    stamps : (steps,) the time of each step, datetime64 or float
    unit : how they go on: "months", "weekdays", "time" or "number"
    step : how many of these a step has; microseconds if it is time
    form : how they are written
    notes : what the user should know
    """

    name: str
    order: I64
    places: I64
    stamps: NDArray[Any]
    unit: str
    step: float
    form: str
    notes: tuple[str, ...]

    def after(self, count: int) -> NDArray[Any]:
        """The next times."""
        return _moved(self.stamps[-1:], self.unit, self.step, np.arange(1, count + 1))

    def texts(self, stamps: NDArray[Any]) -> list[Any]:
        """As the column is written; numbers stay numbers."""
        if self.unit == "number":
            whole = self.form == "int"
            return [round(v) if whole else float(f"{v:.12g}") for v in stamps.tolist()]
        return [_written(moment, self.form) for moment in stamps.astype("datetime64[us]").tolist()]


def looks_like_times(table: Any, name: str) -> bool:
    """Whether a column holds dates or times, as its type or its first texts tell."""
    from pyarrow import types

    values = table[name]
    if types.is_date(values.type) or types.is_timestamp(values.type):
        return True
    if not types.is_string(values.type):
        return False
    first = [text.strip() for text in values[:20].to_pylist() if text and text.strip()]
    dated = sum(any(re.fullmatch(pattern, text) for pattern, _ in FORMATS) for text in first)
    return 2 * dated > len(first)  # a slip among them is to be named, not to make the dates disappear


def read_times(table: Any, name: str) -> Times:
    """The times in a column of a table; refused if they cannot be read or two are the same.

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
        when = table[name][int(order[same[0]])].as_py()
        raise DataError(
            f"{source(table)}column {shown(name)} has the time {str(when)[:40]} more than once; a series has one value "
            "at a time: sum or average them first"
        )
    unit, step, places = _step(stamps)
    if places is None or places[-1] >= SPARSE * len(places):
        notes.append(f"times in {shown(name)} are not regular: rows are taken as steps of the same length")
        return Times(name, order, np.arange(len(order)), stamps, unit, step, form, tuple(notes))
    if gaps := int(places[-1]) + 1 - len(places):
        notes.append(f"{gaps:,} time{'s' * (gaps > 1)} between the rows not there: taken as missing")
    grid = _moved(stamps[:1], unit, step, np.arange(places[-1] + 1))
    grid[places] = stamps
    return Times(name, order, places, grid, unit, step, form, tuple(notes))


def _stamps(table: Any, name: str) -> tuple[NDArray[Any], str]:
    """As datetime64[us] or floats, and how they are written."""
    import pyarrow as pa
    from pyarrow import types

    values, kind = table[name], table[name].type
    where = f"{source(table)}column {shown(name)}"
    if values.null_count:
        at = int(np.flatnonzero(np.array(values.is_null().to_pylist()))[0])
        raise DataError(f"{where} has no time in row {at + 1:,}; fill it in, or leave the row out")
    if types.is_integer(kind) or types.is_floating(kind):
        numbers = np.array(values.to_pylist(), dtype=float)
        if not np.isfinite(numbers).all():
            raise DataError(f"{where} has times that are not finite; mend them")
        return numbers, "int" if types.is_integer(kind) else "float"
    if types.is_date(kind) or types.is_timestamp(kind):
        zone = getattr(kind, "tz", None)
        ticks = values.cast(pa.timestamp("us", tz=zone), safe=False).cast("int64").to_pylist()  # those of UTC
        form = "%Y-%m-%d" if types.is_date(kind) else "%Y-%m-%d %H:%M:%S" + "Z" * bool(zone)
        return np.array(ticks, dtype=np.int64).astype("datetime64[us]"), form
    if types.is_string(kind) or types.is_large_string(kind):
        return _parsed([text.strip() for text in values.to_pylist()], where)
    raise DataError(f"{where} holds {shown(str(kind))}, expected times; {KNOWN}")


def _parsed(texts: list[str], where: str) -> tuple[NDArray[Any], str]:
    for pattern, form in FORMATS:
        moments: list[datetime] = []
        for text in texts:
            if (moment := _moment(text, pattern, form)) is None:
                break
            moments.append(moment)
        else:
            return np.array(moments, dtype="datetime64[us]"), _form(texts, form)
    # whoever writes a column means one way, so the cell that is wrong is the one that differs from most
    read = max(([_moment(text, *one) is not None for text in texts] for one in FORMATS), key=sum)
    at = read.index(False)
    others = f" like {texts[read.index(True)][:40]!r} in row {read.index(True) + 1:,}" if any(read) else ""
    raise DataError(f"{where} holds {texts[at][:40]!r} in row {at + 1:,}, which is not read as a time{others}; {KNOWN}")


def _moment(text: str, pattern: str, form: str) -> datetime | None:
    """The time that a text is, without a zone; None if it is none that is written in this way."""
    if (match := re.fullmatch(pattern, text)) is None:
        return None
    try:
        if form == "quarter":
            return datetime(int(match[1]), 3 * int(match[3]) - 2, 1)
        if form.startswith("iso"):
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
        return datetime.strptime(text, form)
    except (ValueError, OverflowError):
        return None


def _form(texts: list[str], form: str) -> str:
    """How times that go on are written."""
    if form == "quarter":
        return f"%Y{texts[0][4:-2]}Q"
    if form.startswith("iso"):
        days = all(len(text) == len("2024-03-31") for text in texts)
        return "%Y-%m-%d" if days else "%Y-%m-%d %H:%M:%S" + "Z" * form.endswith("zone")
    return form


def _step(stamps: NDArray[Any]) -> tuple[str, float, I64 | None]:
    """The unit, how many of it a step has, and the step of each time; None if they are not regular."""
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
    """The most frequent one; the median if all differ."""
    values, counts = np.unique(steps, return_counts=True)
    return float(values[counts.argmax()] if counts.max() > 1 or len(values) == 1 else np.median(steps))


def _multiples(ticks: NDArray[Any], step: float) -> I64 | None:
    ratio = (ticks - ticks[0]) / step
    places = np.round(ratio)
    regular = (np.abs(ratio - places) < 0.01).all() and (np.diff(places) > 0).all()
    return places.astype(np.int64) if regular and ratio[-1] < 2**53 else None


def _moved(start: NDArray[Any], unit: str, step: float, counts: NDArray[Any]) -> NDArray[Any]:
    """The start and so many steps."""
    if unit == "number":
        return np.asarray(start + step * counts)
    if unit == "months":
        month = start.astype("datetime64[M]")
        wanted = month + (counts * int(step)).astype("timedelta64[M]")
        first = wanted.astype("datetime64[us]")
        within = start - month.astype("datetime64[us]")
        ends = (wanted + np.timedelta64(1, "M")).astype("datetime64[us]")
        day = np.timedelta64(86_400_000_000, "us")
        is_last = (start + day).astype("datetime64[M]") > month
        late = (ends - day) + within % day  # at the time of day, on the last day
        return np.asarray(np.where(is_last & (within >= 27 * day), late, np.minimum(first + within, late)))
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

"""Dates and times in columns: parsed from text, or converted from pyarrow types."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

__all__ = ["FORMS", "as_numpy", "distinct", "parse_days", "parse_texts", "timestamps"]

Integers = NDArray[np.int64]
#: Date formats in the notation of `strftime`. The first four are days; the others are months or quarters.
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
    """Parse text with dates, with or without a time, as datetime64[us]; NaT for all other text."""
    stamps, forms = parse_texts(values)
    return np.where((forms >= 0) & (forms < 4), stamps, np.datetime64("NaT", "us"))


def parse_texts(values: Any) -> tuple[NDArray[Any], Integers]:
    """Parse dates and times in text as datetime64[us]; also return the index in `FORMS` of each.

    Other text is NaT and -1. Times with a zone are converted to UTC; a month is its first day.

    >>> import pyarrow as pa
    >>> stamps, forms = parse_texts(pa.array(["31.12.2024", "2024Q2", "2024-02-30"]))
    >>> stamps.astype("datetime64[D]").astype(str).tolist(), forms.tolist()
    (['2024-12-31', '2024-04-01', 'NaT'], [2, 6, -1])
    """
    missing = int(np.iinfo(np.int64).min)
    try:  # fast path: ISO notation without zones, the most frequent form
        ticks = as_numpy(compute.utf8_trim(values, " ").cast(pa.timestamp("us")).cast("int64"), missing)
        if ticks[ticks != missing].min(initial=0) > -62_135_596_800_000_000:  # the year 1, the first year of datetime
            return ticks.view("datetime64[us]"), np.where(ticks == missing, -1, 0)
    except pa.ArrowException:
        pass
    texts, codes = distinct(values)
    patterns = [re.compile(pattern, re.ASCII) for pattern in FORMS.values()]
    parsed = [_parse(text.strip(" "), patterns) or (missing, -1) for text in texts]
    found = np.array([*parsed, (missing, -1)], np.int64)[codes]
    return found[:, 0].copy().view("datetime64[us]"), found[:, 1]


def _parse(text: str, patterns: list[re.Pattern[str]]) -> tuple[int, int] | None:
    """Return microseconds since 1970 and the index of the format; None if the text is not a date."""
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
                return None  # the day does not exist
    return None


def distinct(values: Any) -> tuple[list[Any], Integers]:
    """Return the distinct values and the index of each cell in them; -1 if it is missing."""
    if types.is_null(values.type) or len(values) == 0:
        return [], np.full(len(values), -1, np.int64)
    packed = values.combine_chunks() if hasattr(values, "chunks") else values
    packed = packed.dictionary_encode()
    packed = packed.combine_chunks() if hasattr(packed, "chunks") else packed
    return packed.dictionary.to_pylist(), as_numpy(packed.indices, -1).astype(np.int64)


def as_numpy(values: Any, missing: Any) -> NDArray[Any]:
    """Return an array with `missing` for missing values; to_numpy() would import pandas, which is slow."""
    filled = values.fill_null(missing) if values.null_count else values
    filled = filled.combine_chunks() if isinstance(filled, pa.ChunkedArray) else filled
    if pa.types.is_boolean(filled.type):
        filled = filled.cast("uint8")
        return np.from_dlpack(filled).astype(np.bool_)
    return np.asarray(np.from_dlpack(filled))


def timestamps(values: Any, local: bool = True) -> NDArray[Any]:
    """Return dates or timestamps of pyarrow as datetime64[us], NaT where missing, in local time or in UTC."""
    if types.is_timestamp(values.type) and values.type.tz is not None and local:
        values = compute.local_timestamp(values)
    zone = getattr(values.type, "tz", None)
    ticks = values.cast(pa.timestamp("us", tz=zone), safe=False).cast("int64")
    return as_numpy(ticks, np.iinfo(np.int64).min).view("datetime64[us]")

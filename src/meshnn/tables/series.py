"""A series in a column of a table: its values in the order of time, and the features of past and future steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.errors import DataError
from meshnn.tables.cells import cells_of, kind_of
from meshnn.tables.names import check_names, listed, shown
from meshnn.tables.times import Times, looks_like_times, read_times

__all__ = ["Series", "read_series"]


@dataclass(frozen=True)
class Series:
    """A column of a table in the order of time."""

    name: str
    by: str | None  # the column of the times
    values: Any  # (n,) from the first value to the last; NaN where one is missing
    features: list[dict[Any, float]] | None  # other columns of the same rows, and of those after the last value
    times: Times | None  # None: the steps are counted
    offset: int  # rows before the first value
    notes: list[str]  # remarks for the user

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
        """Return the same as they are written."""
        stamps = self.ahead(count)
        return [int(stamp) for stamp in stamps] if self.times is None else self.times.texts(stamps)

    def features_ahead(self, count: int) -> list[dict[Any, float]] | None:
        """Return the features of the next steps, which must be in the rows after the last value."""
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
    """Return the series of a column, by default the only one of numbers; `by` is by default the only one of dates."""
    others = {name, *features}
    check_names(table.column_names, [column for column in (name, by, *features) if column is not None])
    if by is None:
        dates = [column for column in table.column_names if column not in others and looks_like_times(table, column)]
        by = dates[0] if len(dates) == 1 else None
    if name is None:
        name = _only_numbers(table, {by, *features})
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
        notes.append(f"{what}: filled in by forecasts, not learned")
    if left:
        notes.append(f"the last {left:,} row{'s' * (left > 1)} have no value of {shown(name)}: forecast first")
    rows: list[dict[Any, float]] | None = None
    if features:
        rows = [dict(zip(features, row, strict=True)) for row in columns[start:, 1:].tolist()]
    return Series(name, by, columns[start:end, 0], rows, times, start, notes)


def _only_numbers(table: Any, others: set[str | None]) -> str:
    names = [name for name in table.column_names if name not in others]
    fit = [name for name in names if kind_of(table[name].type) == "numeric"]
    if len(fit) != 1:
        what = f"several columns hold numbers: {listed(fit)}" if fit else "no column holds numbers"
        raise DataError(what if fit else f"{what}; the table has {listed(table.column_names)}", code="series")
    return str(fit[0])

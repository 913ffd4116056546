"""Means with their intervals, and tables as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from meshnn.paper.experiment import PaperTable, Record

__all__ = ["Mean", "accuracy", "grouped", "markdown"]


class Mean(NamedTuple):
    """A mean, half the width of its interval, the standard deviation of the values and their number."""

    value: float
    half_width: float
    deviation: float
    trials: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        """Return the mean of values with the 95% confidence interval of Student's t.

        >>> Mean.of([1.0, 2.0, 3.0]).value
        2.0
        """
        from scipy.stats import t

        found = np.array([float(value) for value in values])
        if len(found) < 2:
            return cls(float(found.mean()), math.nan, math.nan, len(found))
        deviation = float(found.std(ddof=1))
        half = float(t.ppf(0.975, len(found) - 1)) * deviation / math.sqrt(len(found))
        return cls(float(found.mean()), half, deviation, len(found))

    def __str__(self) -> str:
        return f"{self.value:.4f}" if math.isnan(self.half_width) else f"{self.value:.4f} ± {self.half_width:.4f}"


def grouped(records: Iterable[Record], *names: str) -> dict[Any, list[Record]]:
    """Group records by a parameter, or by tuples of several, in the order of their first values."""
    found: dict[Any, list[Record]] = {}
    for record in records:
        values = tuple(record["parameters"][name] for name in names)
        found.setdefault(values if len(names) > 1 else values[0], []).append(record)
    return found


def accuracy(records: Iterable[Record]) -> Mean:
    """Return the mean accuracy over trials."""
    return Mean.of(record["numbers"]["accuracy"] for record in records)


def markdown(tables: Iterable[PaperTable]) -> str:
    """Return tables as Markdown.

    >>> print(markdown([PaperTable("Title", ("a", "b"), [("1", "2")], ("A note.",))]), end="")
    **Title**
    <BLANKLINE>
    | a | b |
    |---|---|
    | 1 | 2 |
    <BLANKLINE>
    A note.
    """
    texts = []
    for table in tables:
        lines = [f"**{table.title}**", "", _line(table.headings), "|" + "---|" * len(table.headings)]
        lines += [_line(row) for row in table.rows]
        for note in table.notes:
            lines += ["", note]
        texts.append("\n".join(lines) + "\n")
    return "\n".join(texts)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

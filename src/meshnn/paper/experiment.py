"""`Experiment`: its trials, how one runs, and the tables and figures of the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: The parameters of a trial, its results, or a saved trial with both, its key and its seconds.
Json = dict[str, Any]


@dataclass(frozen=True)
class TrialOptions:
    """Options of a run. Only `trials` may increase in a later run; other changes start a new experiment."""

    trials: int = 0  # 0: the default of the experiment
    seed: int = 0
    protocol: str = "ours"
    quick: bool = False
    data: Path | None = None  # a folder with image files
    cache: Path | None = None  # a folder for expensive results


class PaperTable(NamedTuple):
    """A table: a title, headings, rows of text, and lines below it."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()


class Figure(NamedTuple):
    """The file of a figure and its caption."""

    path: Path
    caption: str


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    `plan` returns the parameters of the trials in order; `TrialOptions.trials` is set. `run` returns the results of one
    trial, possibly in another process or on another machine. `tables` and `draw` use only saved records. `prepare`
    computes and caches data that all trials share, and reports its progress as lines of text.
    """

    name: str
    title: str
    plan: Callable[[TrialOptions], list[Json]]
    run: Callable[[Json, TrialOptions], Json]
    tables: Callable[[list[Json]], list[PaperTable]]
    draw: Callable[[list[Json], Path], list[Figure]]
    version: int = 1  # increase it when the same options give different results
    trials: int = 10
    quick_trials: int = 2
    prepare: Callable[[TrialOptions, Callable[[str], None]], None] | None = None
    needs: tuple[str, ...] = ()  # optional packages besides matplotlib
    remarks: tuple[str, ...] = ()  # the method, and the differences from the paper with reasons
    quick_note: str = ""  # what a quick run omits besides trials


def grid(**axes: Iterable[Any]) -> list[Json]:
    """Return the parameters of a trial for every combination of values.

    >>> [key_of(parameters) for parameters in grid(set=["moons", "blobs"], trial=range(2))]
    ['moons/0', 'moons/1', 'blobs/0', 'blobs/1']
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def key_of(parameters: Json) -> str:
    """Return the name of a trial: the values of its parameters."""
    return "/".join(map(str, parameters.values()))


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

        given = np.array([float(value) for value in values])
        if len(given) < 2:
            return cls(float(given.mean()), math.nan, math.nan, len(given))
        deviation = float(given.std(ddof=1))
        half = float(t.ppf(0.975, len(given) - 1)) * deviation / math.sqrt(len(given))
        return cls(float(given.mean()), half, deviation, len(given))

    def __str__(self) -> str:
        return f"{self.value:.4f}" if math.isnan(self.half_width) else f"{self.value:.4f} ± {self.half_width:.4f}"


def grouped(records: Iterable[Json], *names: str) -> dict[Any, list[Json]]:
    """Group records by a parameter, or by tuples of several, in the order of their first values."""
    groups: dict[Any, list[Json]] = {}
    for record in records:
        values = tuple(record["parameters"][name] for name in names)
        groups.setdefault(values if len(names) > 1 else values[0], []).append(record)
    return groups


def accuracy(records: Iterable[Json]) -> Mean:
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
        head, *rows = (
            "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
            for cells in (table.headings, *table.rows)
        )
        lines = [f"**{table.title}**", "", head, "|" + "---|" * len(table.headings), *rows]
        texts.append("\n".join([*lines, *(f"\n{note}" for note in table.notes)]) + "\n")
    return "\n".join(texts)

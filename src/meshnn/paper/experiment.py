"""`Experiment`: its trials, how one runs, and the tables and figures of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Experiment", "Figure", "PaperTable", "TrialOptions", "grid", "key_of"]

#: Parameters of one trial.
Parameters = dict[str, Any]
#: Numbers of one trial: anything that JSON can hold.
Numbers = dict[str, Any]
#: A trial as it is kept: "key", "parameters", "numbers", "seconds".
Record = dict[str, Any]


@dataclass(frozen=True)
class TrialOptions:
    """TrialOptions of a run. `trials` may grow from run to run; other options make another experiment."""

    trials: int = 0  # 0: the default of the experiment
    seed: int = 0
    protocol: str = "ours"
    quick: bool = False
    data: Path | None = None  # a folder with image files
    cache: Path | None = None  # a folder for expensive results


def grid(**axes: Iterable[Any]) -> list[Parameters]:
    """Return the parameters of a trial for every combination of values.

    >>> [key_of(parameters) for parameters in grid(set=["moons", "blobs"], trial=range(2))]
    ['moons/0', 'moons/1', 'blobs/0', 'blobs/1']
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def key_of(parameters: Parameters) -> str:
    """Return the name of a trial: the values of its parameters."""
    return "/".join(map(str, parameters.values()))


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

    Parameters
    ----------
    name, title : str
    plan : function of TrialOptions
        The parameters of the trials, in order. `TrialOptions.trials` is set by then.
    run : function of (parameters, TrialOptions)
        The numbers of one trial. It may run in another process or on another machine.
    tables, draw : functions of the records (and a folder to draw into)
        They get saved records only.
    version : int
        Increased when the same options give other numbers.
    trials, quick_trials : int
        Default numbers of trials.
    prepare : function of (TrialOptions, tell), optional
        Computes and caches what all trials share; `tell` gets lines of text about its progress.
    needs : names of packages
        Required optional packages, besides matplotlib.
    remarks : sentences
        For the report: the method, what differs from the paper and why.
    quick_note : str
        What a quick run omits besides trials.
    """

    name: str
    title: str
    plan: Callable[[TrialOptions], list[Parameters]]
    run: Callable[[Parameters, TrialOptions], Numbers]
    tables: Callable[[list[Record]], list[PaperTable]]
    draw: Callable[[list[Record], Path], list[Figure]]
    version: int = 1
    trials: int = 10
    quick_trials: int = 2
    prepare: Callable[[TrialOptions, Callable[[str], None]], None] | None = None
    needs: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    quick_note: str = ""

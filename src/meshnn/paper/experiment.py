"""`Experiment`: what is tried, how a trial runs, and what is drawn from the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Experiment", "Figure", "Options", "Rows", "grid", "key_of"]

#: What one trial is.
Parameters = dict[str, Any]
#: Numbers of one trial: anything that JSON can hold.
Numbers = dict[str, Any]
#: A trial as it is kept: "key", "parameters", "numbers", "seconds".
Record = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What the user chose. `trials` may grow from run to run; the others make another experiment."""

    trials: int = 0  # as many as the experiment has by default
    seed: int = 0
    protocol: str = "ours"
    quick: bool = False
    data: Path | None = None  # a folder with image files
    cache: Path | None = None  # a folder for what is dear to compute


def grid(**axes: Iterable[Any]) -> list[Parameters]:
    """The parameters of a trial for every combination of values.

    >>> [key_of(parameters) for parameters in grid(set=["moons", "blobs"], trial=range(2))]
    ['moons/0', 'moons/1', 'blobs/0', 'blobs/1']
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def key_of(parameters: Parameters) -> str:
    """The name of a trial: the values of its parameters."""
    return "/".join(map(str, parameters.values()))


class Rows(NamedTuple):
    """A table: a title, headings, rows of text, and lines below it."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()


class Figure(NamedTuple):
    """A picture that was drawn: its file and what is to be seen."""

    path: Path
    caption: str


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    Parameters
    ----------
    name, title : str
    plan : function of Options
        The parameters of the trials, in order. `Options.trials` is set by then.
    run : function of (parameters, Options)
        The numbers of one trial. It may run in another process or on another machine.
    tables, draw : functions of the records (and a folder to draw into)
        They see nothing but what was saved.
    version : int
        Grows when the same options no longer give the same numbers.
    trials, quick_trials : int
        How many, by default.
    prepare : function of (Options, tell), optional
        What all trials share and is cached, before any of them; `tell` is given a line of text now and then.
    needs : names of packages
        Optional ones that it cannot do without, besides matplotlib.
    remarks : sentences
        How it is done in full, what differs from the paper and why, for the report.
    quick_note : str
        What a quick run leaves out besides trials.
    """

    name: str
    title: str
    plan: Callable[[Options], list[Parameters]]
    run: Callable[[Parameters, Options], Numbers]
    tables: Callable[[list[Record]], list[Rows]]
    draw: Callable[[list[Record], Path], list[Figure]]
    version: int = 1
    trials: int = 10
    quick_trials: int = 2
    prepare: Callable[[Options, Callable[[str], None]], None] | None = None
    needs: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    quick_note: str = ""

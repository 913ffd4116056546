"""What a person sees while it trains: a progress bar, or lines where there is no terminal to draw one on."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from meshnn.training.history import HistoryRow
from meshnn.training.trainer import Trainer

__all__ = ["print_row", "reporter"]

#: In a log: a line after so many seconds at the latest; if a tenth more is done, after so many.
LATEST, SOONEST, TENTH = 5.0, 1.0, 0.1

Show = Callable[[HistoryRow], None]


@contextmanager
def reporter(verbose: int, trainer: Trainer) -> Iterator[Show]:
    """What shows a row on stderr: with 0 nothing, with 1 a progress bar, or lines now and then, with 2 all rows."""
    if verbose != 1:
        yield print_row if verbose else lambda row: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(console, trainer) if _draws(console) else _lines(trainer) as show:
        yield show


def _draws(console: Any) -> bool:
    """Whether what is drawn can be drawn over: on a terminal, or in a notebook that has what rich needs for it."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return bool(console.is_terminal and not console.is_dumb_terminal)


@contextmanager
def _bar(console: Any, trainer: Trainer) -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    epochs = trainer.epochs
    now = TextColumn("epoch {task.completed:.0f} of {task.total:.0f}  {task.fields[now]}")
    columns = (TextColumn("training"), BarColumn(), now, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("train", total=epochs * trainer.settings.n_restarts, now="")
        yield lambda row: progress.update(task, completed=row.restart * epochs + row.epoch, now=_describe(row))


@contextmanager
def _lines(trainer: Trainer) -> Iterator[Show]:
    """A line now and then, and one for the last row."""
    epochs, total = trainer.epochs, trainer.epochs * trainer.settings.n_restarts
    said_at, said_done, unsaid = time.monotonic(), 0, False

    def show(row: HistoryRow) -> None:
        nonlocal said_at, said_done, unsaid
        passed, done = time.monotonic() - said_at, row.restart * epochs + row.epoch
        unsaid = not (passed >= LATEST or (passed >= SOONEST and done - said_done >= TENTH * total))
        if not unsaid:
            said_at, said_done = time.monotonic(), done
            print_row(row, epochs)

    try:
        yield show
    finally:
        if unsaid:
            print_row(trainer.history[-1], epochs)


def print_row(row: HistoryRow, epochs: int | None = None) -> None:
    """One line on stderr."""
    epoch = f"{row.epoch:5d}" if epochs is None else f"{row.epoch} of {epochs}"
    start = f"start {row.restart + 1}, " if row.restart else ""
    print(f"{start}epoch {epoch}  {_describe(row)}  {row.seconds:.2f} s  {row.note}".rstrip(), file=sys.stderr)


def _describe(row: HistoryRow) -> str:
    """Loss, validation and accuracy in a few words."""
    text = f"loss {row.loss:.4g}"
    if not math.isnan(row.validation):
        text += f"  validation {row.validation:.4g}"
    return text if math.isnan(row.accuracy) else f"{text}  accuracy {row.accuracy:.3f}"

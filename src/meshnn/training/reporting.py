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


class Show:
    """Shows a row; and, of samples that are not in memory, how far an epoch has got."""

    def __init__(self, row: Callable[[HistoryRow], None], pulse: Callable[[float, float], None] | None = None) -> None:
        self._row, self._pulse = row, pulse
        self._begun, self._first = time.monotonic(), 0.0
        self.total = 0  # samples of an epoch

    def __call__(self, row: HistoryRow) -> None:
        self._row(row)
        self._begun, self._first = time.monotonic(), 0.0

    def pulse(self, done: int) -> None:
        """After so many samples of an epoch."""
        if self._pulse is None:
            return
        passed = time.monotonic() - self._begun
        self._first = self._first or done  # the first piece has waited for what is compiled
        rate = (done - self._first) / passed if done > self._first else 0.0
        if done == self._first:
            self._begun = time.monotonic()
        self._pulse(done / max(self.total, 1), rate)


@contextmanager
def reporter(verbose: int, trainer: Trainer) -> Iterator[Show]:
    """What shows a row on stderr: with 0 nothing, with 1 a progress bar, or lines now and then, with 2 all rows."""
    if verbose != 1:
        yield Show(print_row if verbose else lambda row: None)
        return
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(console, trainer) if _draws(console) else _lines(trainer) as show:
        show.total = trainer.samples.count
        yield show


def _draws(console: Any) -> bool:
    """Whether what is drawn can be drawn over: on a terminal, or in a notebook that has what rich needs for it."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return bool(console.is_terminal and not console.is_dumb_terminal)


@contextmanager
def _bar(console: Any, trainer: Trainer) -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    now = TextColumn("epoch {task.fields[at]} of {task.total:.0f}  {task.fields[now]}")
    columns = (TextColumn("training"), BarColumn(), now, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("train", total=_total(trainer), at="0", now="")
        done, speed = 0, ""

        def show(row: HistoryRow) -> None:
            nonlocal done
            done = row.restart * trainer.epochs + row.epoch
            progress.update(task, completed=done, total=_total(trainer), at=str(done), now=f"{_describe(row)}{speed}")

        def pulse(share: float, rate: float) -> None:
            nonlocal speed
            speed = f"  {rate:,.0f} rows/s" if rate else speed
            progress.update(task, completed=done + share, at=f"{done + share:.2f}", now=f"{_last(trainer)}{speed}")

        yield Show(show, pulse)


@contextmanager
def _lines(trainer: Trainer) -> Iterator[Show]:
    """A line now and then, and one for the last row."""
    said_at, said_done, unsaid = time.monotonic(), 0, False

    def show(row: HistoryRow) -> None:
        nonlocal said_at, said_done, unsaid
        passed, done = time.monotonic() - said_at, row.restart * trainer.epochs + row.epoch
        unsaid = not (passed >= LATEST or (passed >= SOONEST and done - said_done >= TENTH * _total(trainer)))
        if not unsaid:
            said_at, said_done = time.monotonic(), done
            print_row(row, trainer.epochs)

    def pulse(share: float, rate: float) -> None:
        nonlocal said_at
        if rate and time.monotonic() - said_at >= LATEST:
            said_at = time.monotonic()
            at = trainer.history[-1].epoch if len(trainer.history) else 0
            left = ((1 - share) + trainer.epochs - at - 1) * trainer.samples.count / rate
            print(f"epoch {at + 1} of {trainer.epochs}: {100 * share:.0f}%, {rate:,.0f} rows/s, {left:,.0f} s left",
                  file=sys.stderr)  # fmt: skip

    try:
        yield Show(show, pulse)
    finally:
        if unsaid:
            print_row(trainer.history[-1], trainer.epochs)


def _total(trainer: Trainer) -> int:
    """Epochs of all starts; a search may have changed the solver and with it the epochs."""
    return trainer.epochs * trainer.settings.n_restarts


def _last(trainer: Trainer) -> str:
    return _describe(trainer.history[-1]) if len(trainer.history) else ""


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

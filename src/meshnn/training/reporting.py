"""What a person sees while it trains: a progress bar, or lines where there is no terminal to draw one on."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from meshnn.training.history import HistoryRow
from meshnn.training.trainer import Trainer


class _Report:
    """Shows rows; and, of samples that are not in memory, how far an epoch has got. This one shows all rows or none."""

    def __init__(self, trainer: Trainer, all_rows: bool = False) -> None:
        self.trainer, self.all_rows = trainer, all_rows
        self._begun, self._first, self._speed = time.monotonic(), 0, 0.0

    @property
    def total(self) -> int:
        """Epochs of all starts; a search may have changed the solver and with it the epochs."""
        return self.trainer.epochs * self.trainer.settings.n_restarts

    def __call__(self, row: HistoryRow) -> None:
        self.show(row, row.restart * self.trainer.epochs + row.epoch)
        self._begun, self._first = time.monotonic(), 0

    def pulse(self, done: int) -> None:
        """Report that so many samples of an epoch are done."""
        if self._first == 0:  # the first piece has waited for what is compiled
            self._begun, self._first = time.monotonic(), done
        elif done > self._first:
            self._speed = (done - self._first) / (time.monotonic() - self._begun)
        self.show_part(done / max(self.trainer.samples.count, 1))

    def show(self, row: HistoryRow, done: int) -> None:
        """Show a row, after so many epochs of all starts."""
        if self.all_rows:
            print_row(row)

    def show_part(self, share: float) -> None:
        """Show that this share of an epoch is done."""


class _BarReport(_Report):
    def __init__(self, trainer: Trainer, progress: Any) -> None:
        super().__init__(trainer)
        self.progress, self.task = progress, progress.add_task("train", total=self.total, at="0", now="")
        self._done, self._last = 0, ""

    def show(self, row: HistoryRow, done: int) -> None:
        self._done, self._last = done, _describe(row)
        self._update(done, str(done))

    def show_part(self, share: float) -> None:
        self._update(self._done + share, f"{self._done + share:.2f}")

    def _update(self, done: float, at: str) -> None:
        speed = f"  {self._speed:,.0f} rows/s" if self._speed else ""
        self.progress.update(self.task, completed=done, total=self.total, at=at, now=f"{self._last}{speed}")


class _LineReport(_Report):
    """A line every five seconds, every second if a tenth more is done, and for the last row."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._shown_at, self._shown, self.pending = time.monotonic(), 0, False

    def show(self, row: HistoryRow, done: int) -> None:
        passed = time.monotonic() - self._shown_at
        self.pending = not (passed >= 5.0 or (passed >= 1.0 and done - self._shown >= 0.1 * self.total))
        if not self.pending:
            self._shown_at, self._shown = time.monotonic(), done
            print_row(row, self.trainer.epochs)

    def show_part(self, share: float) -> None:
        if not self._speed or time.monotonic() - self._shown_at < 5.0:
            return
        self._shown_at = time.monotonic()
        at, epochs = len(self.trainer.history) and self.trainer.history[-1].epoch, self.trainer.epochs
        left = (epochs - at - share) * self.trainer.samples.count / self._speed
        text = f"epoch {at + 1} of {epochs}: {100 * share:.0f}%, {self._speed:,.0f} rows/s, {left:,.0f} s left"
        print(text, file=sys.stderr)


@contextmanager
def reporter(verbose: int, trainer: Trainer) -> Iterator[_Report]:
    """Return what shows a row on stderr: with 0 nothing, with 1 a progress bar or lines now and then, with 2 all."""
    if verbose != 1:
        yield _Report(trainer, all_rows=verbose > 1)
        return
    from rich.console import Console

    console = Console(stderr=True)
    # on a terminal, or in a notebook that has what rich needs for it
    drawable = find_spec("ipywidgets") if console.is_jupyter else console.is_terminal and not console.is_dumb_terminal
    if not drawable:
        lines = _LineReport(trainer)
        try:
            yield lines
        finally:
            if lines.pending:
                print_row(trainer.history[-1], trainer.epochs)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    now = TextColumn("epoch {task.fields[at]} of {task.total:.0f}  {task.fields[now]}")
    columns = (TextColumn("training"), BarColumn(), now, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _BarReport(trainer, progress)


def print_row(row: HistoryRow, epochs: int | None = None) -> None:
    """Print one line on stderr."""
    epoch = f"{row.epoch:5d}" if epochs is None else f"{row.epoch} of {epochs}"
    start = f"start {row.restart + 1}, " if row.restart else ""
    print(f"{start}epoch {epoch}  {_describe(row)}  {row.seconds:.2f} s  {row.note}".rstrip(), file=sys.stderr)


def _describe(row: HistoryRow) -> str:
    text = f"loss {row.loss:.4g}"
    if not math.isnan(row.validation):
        text += f"  validation {row.validation:.4g}"
    return text if math.isnan(row.accuracy) else f"{text}  accuracy {row.accuracy:.3f}"

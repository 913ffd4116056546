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


class TrainingReport:
    """Shows rows on stderr: none with `verbose` 0, with 1 on a bar or as lines now and then, with 2 all of them.

    Of samples that are not in memory it also shows the progress within an epoch.
    """

    def __init__(self, trainer: Trainer, verbose: int, bar: Any = None) -> None:
        self.trainer, self.verbose, self.bar, self.pending = trainer, verbose, bar, False
        self._begun = self._shown_at = time.monotonic()
        self._first, self._speed, self._done, self._shown, self._last = 0, 0.0, 0, 0, ""
        if bar is not None:
            self._task = bar.add_task("train", total=self.total, at="0", now="")

    @property
    def total(self) -> int:
        """Epochs of all starts; a search may have changed the solver and with it the epochs."""
        return self.trainer.epochs * self.trainer.settings.n_restarts

    def __call__(self, row: HistoryRow) -> None:
        """Show a row."""
        self._done, self._last = row.restart * self.trainer.epochs + row.epoch, _describe(row)
        self._begun, self._first = time.monotonic(), 0
        if self.bar is not None:
            self._draw(self._done, str(self._done))
        elif self.verbose == 1:  # every five seconds, every second if a tenth more is done, and at the end
            passed = self._begun - self._shown_at
            self.pending = passed < 5.0 and (passed < 1.0 or self._done - self._shown < 0.1 * self.total)
            if not self.pending:
                self._shown_at, self._shown = self._begun, self._done
                print_row(row, self.trainer.epochs)
        elif self.verbose:
            print_row(row)

    def pulse(self, done: int) -> None:
        """Show that this number of samples of an epoch are done."""
        if self.verbose != 1:
            return
        now, share = time.monotonic(), done / max(self.trainer.samples.count, 1)
        if self._first == 0:  # the first piece has waited for what is compiled
            self._begun, self._first = now, done
        elif done > self._first:
            self._speed = (done - self._first) / (now - self._begun)
        if self.bar is not None:
            self._draw(self._done + share, f"{self._done + share:.2f}")
        elif self._speed and now - self._shown_at >= 5.0:
            self._shown_at, epochs = now, self.trainer.epochs
            at = len(self.trainer.history) and self.trainer.history[-1].epoch
            left = (epochs - at - share) * self.trainer.samples.count / self._speed
            text = f"epoch {at + 1} of {epochs}: {100 * share:.0f}%, {self._speed:,.0f} rows/s, {left:,.0f} s left"
            print(text, file=sys.stderr)

    def _draw(self, done: float, at: str) -> None:
        speed = f"  {self._speed:,.0f} rows/s" if self._speed else ""
        self.bar.update(self._task, completed=done, total=self.total, at=at, now=f"{self._last}{speed}")


@contextmanager
def reporter(verbose: int, trainer: Trainer) -> Iterator[TrainingReport]:
    """Return a report for as long as a training runs."""
    if verbose != 1:
        yield TrainingReport(trainer, verbose)
        return
    from rich.console import Console

    console = Console(stderr=True)
    # on a terminal, or in a notebook that has what rich needs for it
    if find_spec("ipywidgets") if console.is_jupyter else console.is_terminal and not console.is_dumb_terminal:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        now = TextColumn("epoch {task.fields[at]} of {task.total:.0f}  {task.fields[now]}")
        columns = (TextColumn("training"), BarColumn(), now, TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            yield TrainingReport(trainer, verbose, bar)
        return
    lines = TrainingReport(trainer, verbose)
    try:
        yield lines
    finally:
        if lines.pending:
            print_row(trainer.history[-1], trainer.epochs)


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

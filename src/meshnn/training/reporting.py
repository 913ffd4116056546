"""What a person sees while it trains: a progress bar, or a line a row."""

from __future__ import annotations

import math
import sys
from types import TracebackType
from typing import Any

from meshnn.training.history import HistoryRow
from meshnn.training.trainer import Trainer

__all__ = ["Bar", "Lines", "Silence", "reporter"]


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def show(self, row: HistoryRow) -> None:
        """Show a row."""


class Lines(Silence):
    """A line a row, on stderr."""

    def show(self, row: HistoryRow) -> None:
        """Print the row."""
        print(f"epoch {row.epoch:5d}  {describe(row)}  {row.seconds:.2f} s  {row.note}".rstrip(), file=sys.stderr)


class Bar(Silence):
    """A progress bar with the loss and the time left, on stderr; nothing where no terminal is."""

    def __init__(self, trainer: Trainer, console: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("training"),
            BarColumn(),
            TextColumn("epoch {task.completed:.0f} of {task.total:.0f}  {task.fields[now]}"),
            TimeRemainingColumn(),
        )
        self._epochs = trainer.settings.max_epochs
        console = console or Console(stderr=True)
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        total = self._epochs * trainer.settings.n_restarts
        self._task = self._progress.add_task("train", total=total, now="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def show(self, row: HistoryRow) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=row.restart * self._epochs + row.epoch, now=describe(row))


def describe(row: HistoryRow) -> str:
    """Loss, validation and accuracy in a few words."""
    text = f"loss {row.loss:.4g}"
    if not math.isnan(row.validation):
        text += f"  validation {row.validation:.4g}"
    return text if math.isnan(row.accuracy) else f"{text}  accuracy {row.accuracy:.3f}"


def reporter(verbose: int, trainer: Trainer) -> Silence:
    """What `verbose` asks for: 0 nothing, 1 a progress bar, 2 or more a line a row."""
    return Silence() if verbose == 0 else Bar(trainer) if verbose == 1 else Lines()

"""What a person sees while it trains: a progress bar, or a line a row."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from meshnn.training.history import HistoryRow
from meshnn.training.trainer import Trainer

__all__ = ["reporter"]


@contextmanager
def reporter(verbose: int, trainer: Trainer) -> Iterator[Callable[[HistoryRow], None]]:
    """What shows a row on stderr: with 0 nothing, with 1 a progress bar, with 2 or more a line."""
    if verbose != 1:
        yield _print if verbose else lambda row: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console, epochs = Console(stderr=True), trainer.epochs
    now = TextColumn("epoch {task.completed:.0f} of {task.total:.0f}  {task.fields[now]}")
    columns = (TextColumn("training"), BarColumn(), now, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("train", total=epochs * trainer.settings.n_restarts, now="")
        yield lambda row: progress.update(task, completed=row.restart * epochs + row.epoch, now=_describe(row))


def _print(row: HistoryRow) -> None:
    print(f"epoch {row.epoch:5d}  {_describe(row)}  {row.seconds:.2f} s  {row.note}".rstrip(), file=sys.stderr)


def _describe(row: HistoryRow) -> str:
    """Loss, validation and accuracy in a few words."""
    text = f"loss {row.loss:.4g}"
    if not math.isnan(row.validation):
        text += f"  validation {row.validation:.4g}"
    return text if math.isnan(row.accuracy) else f"{text}  accuracy {row.accuracy:.3f}"

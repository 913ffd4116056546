"""Output during training: the progress or every row of the history."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from meshnn.progress import ProgressDisplay, progress
from meshnn.training.ensemble import Ensemble
from meshnn.training.history import HistoryRow


class TrainingReport:
    """Prints to stderr: nothing with `verbose=0`, progress and the last row with 1, all rows with 2."""

    def __init__(self, trainer: Ensemble, verbose: int, show: ProgressDisplay) -> None:
        self.trainer, self.verbose, self.show = trainer, verbose, show
        self._done, self._last = 0, ""

    def __call__(self, row: HistoryRow) -> None:
        """Print or display a row."""
        self._done, self._last = row.restart * self.trainer.epochs + row.epoch, _describe(row)
        if self.verbose > 1:
            print_row(row)
        self._show(self._done)

    def pulse(self, done: int) -> None:
        """Display progress within an epoch of samples that are not in memory."""
        self._show(self._done + done / max(self.trainer.samples.count, 1))

    def _show(self, done: float) -> None:
        total = self.trainer.epochs * self.trainer.n_starts  # a search may have changed the epochs
        self.show(done, total, f"epoch {done:.4g} of {total}  {self._last}".rstrip())


@contextmanager
def reporter(verbose: int, trainer: Ensemble) -> Iterator[TrainingReport]:
    """Provide a report for the duration of a training run."""
    try:
        with progress("training", unit="epochs", quiet=verbose != 1) as show:
            yield TrainingReport(trainer, verbose, show)
    finally:
        if verbose == 1 and len(trainer.history):
            print_row(trainer.history[-1], trainer.epochs)


def print_row(row: HistoryRow, epochs: int | None = None) -> None:
    """Print a row as one line to stderr."""
    epoch = f"{row.epoch:5d}" if epochs is None else f"{row.epoch} of {epochs}"
    start = f"start {row.restart + 1}, " if row.restart else ""
    print(f"{start}epoch {epoch}  {_describe(row)}  {row.seconds:.2f} s  {row.note}".rstrip(), file=sys.stderr)


def _describe(row: HistoryRow) -> str:
    text = f"loss {row.loss:.4g}"
    if not math.isnan(row.validation):
        text += f"  validation {row.validation:.4g}"
    return text if math.isnan(row.accuracy) else f"{text}  accuracy {row.accuracy:.3f}"

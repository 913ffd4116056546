"""Progress of long computations on stderr: a bar on a terminal, otherwise lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ProgressDisplay", "progress", "watched"]


def watched(things: Iterable[int], count: int, what: str) -> Iterator[int]:
    """Yield the items one by one; after two seconds, show the number of finished ones.

    The caller may be interrupted between any two of them.
    """
    with progress(f"meshnn: {what}; Ctrl-C ends it", count, unit="steps", silence=2.0) as report:
        for done, thing in enumerate(things):
            if done % 64 == 0:
                report(done)
            yield thing


@contextmanager
def progress(
    title: str, total: float | None = None, unit: str = "rows", quiet: bool = False, silence: float = 0.1
) -> Iterator[ProgressDisplay]:
    """Yield a function that shows the progress; with `quiet` it shows nothing."""
    shown = ProgressDisplay(title, total, unit, quiet, silence)
    try:
        yield shown
    finally:
        shown.close()


class ProgressDisplay:
    """The function that shows progress: (amount done, total if known, note, by default the amount and the rate).

    Nothing is shown in the first `silence` seconds.
    """

    def __init__(self, title: str, total: float | None, unit: str, quiet: bool, silence: float) -> None:
        self._title, self._total, self._unit, self._quiet, self._wait = title, total, unit, quiet, silence
        self._begun = self._reported = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: float, total: float | None = None, remark: str = "") -> None:
        """Show the progress, unless it was shown a moment ago."""
        now = time.monotonic()
        if self._quiet or now - self._reported < self._wait:
            return
        if self._bar is None and self._wait < 5.0:
            self._start()
            if self._bar is None:
                return
        self._reported, total, rate = now, total or self._total, done / max(now - self._begun, 1e-9)
        remark = remark or f"{done:,} {self._unit}, {rate:,.0f} {self._unit}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, remark=remark)
            return
        left = f", {max(total - done, 0) / rate:,.0f} s left" if total and rate else ""
        share = f" {done / total:.0%}" if total else ""
        print(f"{self._title}{share}: {remark}{left}", file=sys.stderr, flush=True)

    def _start(self) -> None:
        """Start a bar on a terminal; otherwise show a line every five seconds."""
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal or console.is_dumb_terminal:
            self._wait = 5.0
            return
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._wait = 0.1
        texts = TextColumn(self._title, markup=False), TextColumn("{task.fields[remark]}", markup=False)
        columns = texts[0], BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), texts[1]
        self._bar = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        self._bar.start()
        self._task = self._bar.add_task(self._title, total=self._total, remark="")

    def close(self) -> None:
        """End the display; may be called again."""
        bar, self._bar, self._quiet = self._bar, None, True
        if bar is not None:
            bar.stop()

"""Progress on stderr of work that takes long: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ReadProgress", "reading", "watched"]


def watched(things: Iterable[int], count: int, what: str) -> Iterator[int]:
    """Yield the things one by one; after two seconds, show how many of them are done.

    The caller may be interrupted between any two of them.
    """
    with reading(1, count, f"meshnn: {what}; Ctrl-C ends it", unit="steps", silence=2.0) as shown:
        for done, thing in enumerate(things):
            if done % 64 == 0:
                shown(done)
            yield thing


@contextmanager
def reading(
    verbose: int, expected: int | None, what: str = "reading", unit: str = "rows", silence: float = 0.1
) -> Iterator[ReadProgress]:
    """Show how many rows have been read, the rate and the time left; nothing if `verbose` is 0."""
    shown = ReadProgress(what, expected, unit, silence if verbose else float("inf"))
    try:
        yield shown
    finally:
        shown.close()


class ReadProgress:
    """Call it with the number of rows read so far; the first output comes after some seconds of `silence`."""

    def __init__(self, what: str, expected: int | None, unit: str, silence: float) -> None:
        self._what, self._expected, self._unit, self._wait = what, expected, unit, silence
        self._begun = self._said = time.monotonic()
        self._progress: Any = None
        self._task: Any = None
        self._started = False

    def __call__(self, count: int) -> None:
        """Show the number of rows, unless something was shown a moment ago."""
        now = time.monotonic()
        if now - self._said < self._wait:
            return
        if not self._started:
            self._start()
            if self._progress is None:
                return
        self._said, rate = now, count / max(now - self._begun, 1e-9)
        speed = f"{rate:,.0f} {self._unit}/s"
        if self._progress is not None:
            self._progress.update(self._task, completed=count, speed=f"{count:,} {self._unit}  {speed}")
            return
        of = f" of {self._expected:,}" if self._expected else ""
        left = f", {max(self._expected - count, 0) / rate:,.0f} s left" if self._expected and rate else ""
        print(f"{self._what}: {count:,}{of} {self._unit}, {speed}{left}", file=sys.stderr, flush=True)

    def _start(self) -> None:
        """Begin a bar on a terminal; elsewhere there is a line every five seconds."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console, self._started, self._wait = Console(stderr=True), True, 0.1
        if not console.is_terminal or console.is_dumb_terminal:
            self._wait = 5.0
            return
        columns = (TextColumn(self._what), BarColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task(self._what, total=self._expected, speed="")

    def close(self) -> None:
        """End the display; may be called again."""
        progress, self._progress, self._wait = self._progress, None, float("inf")
        if progress is not None:
            progress.stop()

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
    shown = ReadProgress(f"meshnn: {what}; Ctrl-C ends it", count, unit="steps", silence=2.0)
    try:
        for done, thing in enumerate(things):
            if done % 64 == 0:
                shown(done)
            yield thing
    finally:
        shown.close()


@contextmanager
def reading(verbose: int, expected: int | None, what: str = "reading") -> Iterator[ReadProgress]:
    """Show how many rows have been read, the rate and the time left; nothing if `verbose` is 0."""
    shown = ReadProgress(what, expected, quiet=verbose == 0)
    try:
        yield shown
    finally:
        shown.close()


class ReadProgress:
    """Call it with the number of rows read so far; what is shown first comes after some seconds of `silence`."""

    def __init__(
        self, what: str, expected: int | None, quiet: bool = False, unit: str = "rows", silence: float = 0.1
    ) -> None:
        self._what, self._expected, self._quiet, self._unit, self._wait = what, expected, quiet, unit, silence
        self._begun = self._said = time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def __call__(self, count: int) -> None:
        """Show the number of rows, unless something was shown a moment ago."""
        now = time.monotonic()
        if self._quiet or now - self._said < self._wait:
            return
        if self._progress is None and self._wait < 5.0:
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
        """Begin a bar on a terminal; elsewhere a line every five seconds will do."""
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal or console.is_dumb_terminal:
            self._wait = 5.0
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._wait = 0.1
        columns = (TextColumn(self._what), BarColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task(self._what, total=self._expected, speed="")

    def close(self) -> None:
        """End the display; may be called again."""
        progress, self._progress, self._quiet = self._progress, None, True
        if progress is not None:
            progress.stop()

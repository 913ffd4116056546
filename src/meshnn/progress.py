"""What is shown on stderr of work that takes long: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ReadProgress", "reading", "watched"]

#: Seconds of silence, and between two looks at the clock at most so many things.
SILENCE, STRIDE = 2.0, 64
#: Seconds between two lines about rows, and between two looks at a bar.
LINES, DRAWN = 5.0, 0.1


def watched(things: Iterable[int], count: int, what: str) -> Iterator[int]:
    """The things one by one; from the second second on, how many of them are done is shown.

    A bar on a terminal, one line elsewhere. The caller may be interrupted between any two of them.
    """
    begun, bar = time.monotonic(), None
    try:
        for done, thing in enumerate(things):
            if done % STRIDE == 0 and time.monotonic() - begun > SILENCE:
                bar = _Bar(count, what) if bar is None else bar
                bar.show(done)
            yield thing
    finally:
        if bar is not None:
            bar.close()


class _Bar:
    def __init__(self, count: int, what: str) -> None:
        from rich.console import Console

        console = Console(stderr=True)
        self._progress = None
        if console.is_terminal and not console.is_dumb_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:.0f}%"), TimeRemainingColumn())
            self._progress = Progress(*columns, console=console, transient=True)
            self._progress.start()
            self._task = self._progress.add_task(what, total=count)
        else:
            print(f"meshnn: {what}; Ctrl-C ends it", file=sys.stderr, flush=True)

    def show(self, done: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()


@contextmanager
def reading(verbose: int, expected: int | None, what: str = "reading") -> Iterator[ReadProgress]:
    """What tells how many rows have been read, how many a second, and how long it will take.

    Nothing with 0.
    """
    shown = ReadProgress(what, expected, quiet=verbose == 0)
    try:
        yield shown
    finally:
        shown.close()


class ReadProgress:
    """Is called with the number of rows read so far."""

    def __init__(self, what: str, expected: int | None, quiet: bool = False) -> None:
        self._what, self._expected, self._quiet = what, expected, quiet
        self._begun = self._said = time.monotonic()
        self._progress: Any = None
        self._task: Any = None
        self._drawn: bool | None = None

    def __call__(self, count: int) -> None:
        """After so many rows."""
        now = time.monotonic()
        if self._quiet or now - self._said < (LINES if self._drawn is False else DRAWN):
            return
        if self._drawn is None:
            self._start()
            if not self._drawn:
                return
        self._said, rate = now, count / max(now - self._begun, 1e-9)
        if self._progress is not None:
            self._progress.update(self._task, completed=count, speed=f"{count:,} rows  {rate:,.0f} rows/s")
            return
        of = f" of {self._expected:,}" if self._expected else ""
        left = f", {max(self._expected - count, 0) / rate:,.0f} s left" if self._expected and rate else ""
        print(f"{self._what}: {count:,}{of} rows, {rate:,.0f} rows/s{left}", file=sys.stderr, flush=True)

    def _start(self) -> None:
        from rich.console import Console

        console = Console(stderr=True)
        self._drawn = bool(console.is_terminal and not console.is_dumb_terminal)
        if self._drawn:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn(self._what), BarColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
            self._progress = Progress(*columns, console=console, transient=True)
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=self._expected, speed="")

    def close(self) -> None:
        """No more rows; may be called again."""
        progress, self._progress, self._quiet = self._progress, None, True
        if progress is not None:
            progress.stop()

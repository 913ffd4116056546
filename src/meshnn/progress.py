"""A bar on stderr for what takes long and cannot be told beforehand: planning a large graph."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator

__all__ = ["watched"]

#: Seconds of silence, and between two looks at the clock at most so many things.
SILENCE, STRIDE = 2.0, 64


def watched(things: Iterable[int], count: int, what: str) -> Iterator[int]:
    """The things one by one; from the second second on, how many of them are done is shown.

    A bar on a terminal, one line elsewhere, nothing with `MESHNN_QUIET=1`. Whoever takes the things may be interrupted
    between any two of them.
    """
    if os.environ.get("MESHNN_QUIET"):
        yield from things
        return
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

"""What `meshnn stream` shows while it runs: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from typing import Any

__all__ = ["Live", "headline_of", "span"]

#: Seconds between two lines where there is no terminal, between two looks, and over which the rate is taken.
PLAIN, LOOK, RECENT = 5.0, 0.1, 5.0


def span(seconds: float) -> str:
    """A time for people.

    >>> span(5), span(75), span(7300)
    ('0:05', '1:15', '2:01:40')
    """
    whole = int(seconds)
    minutes = f"{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes}" if whole >= 3600 else minutes.removeprefix("0")


def headline_of(scores: Any) -> str:
    """The score that counts, in the window and so far, beside the better of the predictions without a model."""
    if scores is None or scores.rows == 0:
        return "nothing scored yet"
    recent, whole = scores.summary(recent=True), scores.summary()
    if scores.kind == "classify":
        name, others = "accuracy", ("no change", "majority")
        best = max(others, key=lambda other: whole[other])
        form, called = "{:.3f}", best
    else:
        name, others = "MAE", ("MAE of the mean", "MAE of the last")
        best = min(others, key=lambda other: whole[other])
        form, called = "{:.4g}", {"MAE of the mean": "running mean", "MAE of the last": "last value"}[best]
    window = min(scores.window, scores.rows)
    now, ever, other = (form.format(value) for value in (recent[name], whole[name], whole[best]))
    return f"{name} {now} (last {window:,}), {ever} so far; {called} {other}"


class Live:
    """The line; nothing at all if `quiet`."""

    def __init__(self, name: str, quiet: bool) -> None:
        self._name, self._quiet = name, quiet
        self._began = self._looked = self._said = time.monotonic()
        self._times: deque[tuple[float, int]] = deque()
        self._first: float | None = None
        self._live: Any = None
        if not quiet:
            from rich.console import Console
            from rich.live import Live as RichLive

            console = Console(stderr=True)
            if console.is_terminal and not console.is_dumb_terminal:
                self._live = RichLive(console=console, transient=True, auto_refresh=False, redirect_stdout=False)
                self._live.start()

    def update(self, rows: int, scores: Any, share: float | None) -> None:
        """Show how far it is, if it is time to; rows are those of this run."""
        now = time.monotonic()
        if self._quiet or now - self._looked < LOOK:
            return
        self._looked = now
        self._times.append((now, rows))
        while len(self._times) > 2 and now - self._times[0][0] > RECENT:
            self._times.popleft()
        if self._first is None and share is not None:
            self._first = share
        if self._live is not None:
            self._draw(self._line(rows, scores, share, now))
        elif now - self._said >= PLAIN:
            self._said = now
            print(self._line(rows, scores, share, now), file=sys.stderr, flush=True)

    def _line(self, rows: int, scores: Any, share: float | None, now: float) -> str:
        (then, before), (_, last) = self._times[0], self._times[-1]
        rate = (last - before) / (now - then) if now > then else 0.0
        parts = [self._name]
        if share is not None:
            parts.append(f"{100 * share:.0f}%")
        parts += [f"{rows:,} rows", f"{rate:,.0f}/s" if rows else "waiting for rows", headline_of(scores)]
        left = self._left(share, now)
        if math.isfinite(left):
            parts.append(f"{span(left)} left")
        return "  ".join(parts)

    def _left(self, share: float | None, now: float) -> float:
        if share is None or self._first is None or share <= self._first:
            return math.inf
        return (1.0 - share) / (share - self._first) * (now - self._began)

    def _draw(self, line: str) -> None:
        from rich.text import Text

        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

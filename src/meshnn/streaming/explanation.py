"""`StreamExplanation`: what a sample of a stream costs, before it is paid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnn.errors import MemoryLimitError
from meshnn.memory import format_bytes

if TYPE_CHECKING:
    from meshnn.streaming.stream import Stream

__all__ = ["StreamExplanation"]


@dataclass(frozen=True)
class CostRow:
    """One way to carry influences."""

    method: str
    exact: bool
    multiply_adds: float
    microseconds: float
    bytes: float
    chosen: bool

    @classmethod
    def of(cls, stream: Stream, method: str) -> CostRow:
        """Return the price of a method; infinite if it would not fit in memory."""
        chosen, size = method == stream.method, stream.dtype.itemsize
        try:
            plan = stream.plan if chosen else stream.planned(method)
        except MemoryLimitError:
            return cls(method, method == "exact", math.inf, math.inf, math.inf, chosen)
        more, held = stream.learner.price(stream.ties.n_parameters, stream.at_once, size)
        # nanoseconds as fitted on one core: of a multiply-add in whole rows, in runs and of the learner, where float64
        # takes twice as long; of an edge; of a sample
        slow = size / 4 * (0.03 * plan.tiled + 0.25 * plan.spread + 0.1 * more)
        held += 2.0 * plan.columns * size * stream.n_streams
        time = (500.0 + slow + 1.2 * plan.entries) / 1e3
        return cls(method, plan.exact, float(plan.multiply_adds + more), time, held, chosen)

    def cells(self) -> tuple[str, ...]:
        """Return what a table shows."""
        held = format_bytes(self.bytes) if self.bytes < math.inf else "too many"
        return (self.method, "yes" if self.exact else "no", f"{self.multiply_adds:,.0f}", f"{self.microseconds:.3g}",
                held, "<- this" if self.chosen else "")  # fmt: skip


@dataclass(frozen=True)
class StreamExplanation:
    """The price of a sample with every method: `print` it, or read `rows`."""

    title: str
    rows: tuple[CostRow, ...]

    @classmethod
    def of(cls, stream: Stream) -> StreamExplanation:
        """Of a stream that need not have run."""
        t = stream.topology
        memory = "state carried on" if stream.memory == "carry" else "state forgotten between samples"
        title = (
            f"{stream.n_streams} stream{'s' * (stream.n_streams > 1)} of a net "
            f"{t.n_inputs}-{t.n_hidden}-{t.n_outputs}, {t.n_edges} edges, {stream.ticks_per_sample} ticks per sample, "
            f"{memory}, learned by {stream.learner.described}"
        )
        if stream.at_once < t.n_outputs:
            title += f", each sample with its class and the {stream.at_once - 1} likeliest of the others"
        names = dict.fromkeys(["exact", "snap-1", "snap-2", stream.method])
        return cls(title, tuple(CostRow.of(stream, name) for name in names))

    def __str__(self) -> str:
        head = ("method", "exact", "multiply-adds", "microseconds", "bytes", "")
        table = [head, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(f"{cell:{'>' if 2 <= c <= 4 else '<'}{widths[c]}}" for c, cell in enumerate(row)).rstrip()
            for row in table
        ]
        note = "A sample of one stream, without what a call costs; microseconds are those of one core of a Xeon."
        return "\n".join([self.title, *lines, note])

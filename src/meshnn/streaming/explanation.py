"""`StreamExplanation`: what a sample of a stream costs, before it is paid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnn.errors import MemoryLimitError
from meshnn.memory import format_bytes

if TYPE_CHECKING:
    from meshnn.streaming.stream import Stream

__all__ = ["StreamExplanation"]

#: Nanoseconds of a multiply-add in whole rows, in runs, and of an edge, in float32, and of a sample, as fitted on one
#: core; float64 takes twice as long in rows.
TILED, SPREAD, ENTRY, SAMPLE = 0.03, 0.25, 1.2, 500.0


@dataclass(frozen=True)
class CostRow:
    """One way to carry influences."""

    method: str
    exact: bool
    multiply_adds: float
    microseconds: float
    bytes: float
    chosen: bool


@dataclass(frozen=True)
class StreamExplanation:
    """The price of a sample with every method: `print` it, or read `rows`."""

    title: str
    rows: tuple[CostRow, ...]

    @classmethod
    def of(cls, stream: Stream) -> StreamExplanation:
        """Of a stream that need not have run."""
        names = dict.fromkeys(["exact", "snap-1", "snap-2", stream.method])
        rows = []
        for name in names:
            try:
                rows.append(_priced(stream, name))
            except MemoryLimitError:
                rows.append(
                    CostRow(name, name == "exact", float("inf"), float("inf"), float("inf"), name == stream.method)
                )
        t = stream.topology
        memory = "state carried on" if stream.memory == "carry" else "state forgotten between samples"
        title = (
            f"{stream.n_streams} stream{'s' * (stream.n_streams > 1)} of a net "
            f"{t.n_inputs}-{t.n_hidden}-{t.n_outputs}, "
            f"{t.n_edges} edges, {stream.ticks_per_sample} ticks a sample, {memory}, "
            f"learned by {stream.learner.described}"
        )
        if stream.at_once < t.n_outputs:
            title += f", each sample with its class and the {stream.at_once - 1} likeliest of the others"
        return cls(title, tuple(rows))

    def __str__(self) -> str:
        table = [("method", "exact", "multiply-adds", "microseconds", "bytes", "")] + [
            (r.method, "yes" if r.exact else "no", f"{r.multiply_adds:,.0f}", f"{r.microseconds:.3g}",
             format_bytes(r.bytes) if r.bytes < float("inf") else "too many", "<- this" if r.chosen else "")
            for r in self.rows
        ]  # fmt: skip
        widths = [max(len(row[c]) for row in table) for c in range(6)]
        lines = ["  ".join(cell.rjust(w) if 2 <= c <= 4 else cell.ljust(w)
                           for c, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip()
                 for row in table]  # fmt: skip
        note = "A sample of one stream, without what a call costs; microseconds are those of one core of a Xeon."
        return "\n".join([self.title, *lines, note])


def _priced(stream: Stream, method: str) -> CostRow:
    from meshnn.streaming.stream import _hops

    plan = stream.plan if method == stream.method else stream._planned(_hops(method))
    size = stream.dtype.itemsize
    N, C = stream.ties.n_parameters, stream.at_once
    more, held = stream.learner.price(N, C, size)
    work = plan.multiply_adds + more
    slow = size / 4
    time = SAMPLE + slow * (TILED * plan.tiled + SPREAD * plan.spread) + ENTRY * plan.entries + 0.1 * more * slow
    return CostRow(method, plan.exact, float(work), time / 1e3,
               2.0 * plan.columns * size * stream.n_streams + held, method == stream.method)  # fmt: skip

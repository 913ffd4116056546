"""`StreamExplanation`: the cost of a sample, counted without running the stream."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshnn.errors import MemoryLimitError
from meshnn.memory import format_bytes
from meshnn.streaming.kalman import KalmanLearner

if TYPE_CHECKING:
    from meshnn.streaming.stream import Stream

__all__ = ["StreamExplanation", "explained"]


class CostRow(NamedTuple):
    """The cost of one method; its numbers are infinite if it would not fit in memory."""

    method: str
    exact: bool
    multiply_adds: float
    microseconds: float
    bytes: float
    chosen: bool


class StreamExplanation(NamedTuple):
    """The cost of a sample with every method: `print` it, or read `rows`."""

    title: str
    rows: tuple[CostRow, ...]

    def __str__(self) -> str:
        lines = [f"{'method':<8}  {'exact':<5}  {'multiply-adds':>13}  {'microseconds':>12}  {'bytes':>8}"]
        for row in self.rows:
            exact, held = "yes" if row.exact else "no", format_bytes(row.bytes) if row.bytes < math.inf else "too many"
            numbers = f"{row.multiply_adds:>13,.0f}  {row.microseconds:>12.3g}  {held:>8}"
            lines.append(f"{row.method:<8}  {exact:<5}  {numbers}{'  <- this' if row.chosen else ''}")
        note = "Per sample of one stream, without the cost of the call; microseconds on one core of a Xeon."
        return "\n".join([self.title, *lines, note])


def explained(stream: Stream) -> StreamExplanation:
    """Return the costs of a stream, without running it."""
    t, learner = stream.topology, stream.learner
    memory = "state carried on" if stream.memory == "carry" else "state forgotten between samples"
    title = (
        f"{stream.n_streams} stream{'s' * (stream.n_streams > 1)} of a net "
        f"{t.n_inputs}-{t.n_hidden}-{t.n_outputs}, {t.n_edges} edges, {stream.ticks_per_sample} ticks per sample, "
        f"{memory}, learned by {learner.name}"
    )
    if isinstance(learner, KalmanLearner):
        kind = "one covariance of" if learner.kind == "full" else "decoupled by neuron,"
        title += f" ({kind} {stream.ties.n_parameters} parameters)"
    if stream.at_once < t.n_outputs:
        title += f", each sample updates its class and the {stream.at_once - 1} most probable others"
    names = dict.fromkeys(["exact", "snap-1", "snap-2", stream.method])
    return StreamExplanation(title, tuple(_cost(stream, name) for name in names))


def _cost(stream: Stream, method: str) -> CostRow:
    chosen, size, n = method == stream.method, stream.dtype.itemsize, stream.ties.n_parameters
    try:
        plan = stream.plan if chosen else stream.planned(method)
    except MemoryLimitError:
        return CostRow(method, method == "exact", math.inf, math.inf, math.inf, chosen)
    more, held = 4.0 * n, 3.0 * n * size  # an optimiser stores its moments and the parameters
    if isinstance(stream.learner, KalmanLearner):  # half of each block is read twice per output
        known = stream.learner.filter
        more = 2.0 * stream.at_once * float(np.square(np.diff(known.first).astype(float)).sum())
        held = float(known.P.nbytes)
    held += 2.0 * plan.columns * size * stream.n_streams
    # Nanoseconds as fitted on one core: per multiply-add in whole rows, in runs and of the learner (twice as much in
    # float64), per edge, and per sample.
    slow = size / 4 * (0.03 * plan.tiled + 0.25 * plan.spread + 0.1 * more)
    time = (500.0 + slow + 1.2 * plan.entries) / 1e3
    return CostRow(method, plan.exact, float(plan.multiply_adds + more), time, held, chosen)

"""Cost of each gradient method, the choice of `auto`, and the table that `Mesh.explain` returns.

Costs are counted, not timed, so that a graph gets the same method on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshnn.memory import format_bytes
from meshnn.plan.limits import LIMITS


@dataclass(frozen=True)
class Cost:
    """The counted cost of one method."""

    method: str
    forward_only: bool
    multiply_adds: float  # per sample
    tiled: float  # fraction of the multiply-adds that run in tiles
    activations: float  # activation functions evaluated per sample, without identity and relu
    states: float  # states computed and inputs read, per sample
    slowdown: float  # time of a multiply-add relative to float32 in full rows of samples
    bytes: float  # working memory: index arrays and the buffers of all workers, without data and results
    estimated: bool  # scaled up from a sample of the graph
    sets: float = 0.0  # number of sets of neurons that planning has to follow

    @property
    def operations(self) -> float:
        """The work per sample that differs between methods, in float32 multiply-adds."""
        # one activation takes as long as 80 multiply-adds
        return self.slowdown * (self.multiply_adds + 80.0 * self.activations)

    @property
    def work(self) -> float:
        """All work per sample, in float32 multiply-adds."""
        # the fixed work per state or input takes as long as 38 multiply-adds
        return self.operations + 38.0 * self.states


@dataclass(frozen=True)
class Decision:
    """The cost of every method, the chosen one and the reason."""

    costs: tuple[Cost, ...]
    chosen: str
    reason: str

    def cost(self, method: str) -> Cost:
        """Return the cost of one method."""
        return next(cost for cost in self.costs if cost.method == method)


def decide(costs: Sequence[Cost], among: Sequence[str], memory: int, backprop: bool = True) -> Decision:
    """Choose the cheapest of the named methods that fits in memory.

    A forward-only method is preferred unless it costs more than `LIMITS.slower` times as much as backprop. Without
    `backprop`, only forward-only methods are considered.
    """
    return Decision(tuple(costs), *_choose([c for c in costs if c.method in among], memory, backprop))


def _choose(costs: list[Cost], memory: int, backprop: bool) -> tuple[str, str]:
    ordered = sorted(costs, key=lambda cost: cost.operations)
    forward_only = [c for c in ordered if c.forward_only]
    others = [c for c in ordered if not c.forward_only]
    allowed = others if backprop else []
    quick = [c for c in forward_only if c.sets <= LIMITS.sets]
    fitting = [c for c in quick if c.bytes <= memory]
    if not quick:
        least = min(forward_only, key=lambda c: c.sets)
        return (allowed or [least])[0].method, f"forward-only planning needs about {least.sets:,.0f} sets of neurons"
    if not fitting:
        least = min(forward_only, key=lambda c: c.bytes)
        needs = f"forward-only would need {format_bytes(least.bytes)} ({least.method})"
        return (allowed or [least])[0].method, f"{needs}, the machine has {format_bytes(memory)}"
    best = fitting[0]
    ratio = best.operations / others[0].operations if others else 0.0
    if ratio > LIMITS.slower and allowed and allowed[0].bytes <= memory:
        return allowed[
            0
        ].method, f"forward-only ({best.method}) costs {ratio:.2g} times as much, more than {LIMITS.slower:g}"
    versus = "as cheap as backprop" if ratio < 1.05 else f"{ratio:.2g} times the cost of backprop"
    return best.method, f"the cheapest exact forward-only method, {versus}"


@dataclass(frozen=True)
class Explanation:
    """The cost of every method on one mesh. `print` it, or read `rows`, `chosen` and `reason`.

    `auto` compares costs: the multiply-adds, plus 80 per activation function except identity and relu, times 10 for
    influence, which processes samples one by one, and times 2 in float64. Numbers of operations are per batch.
    """

    mesh: str
    batch_size: int
    decision: Decision
    n_edges: int
    n_dead: int
    seconds: float | None = None  # measured time of one gradient of the batch by the chosen method

    @property
    def chosen(self) -> str:
        """The method that `auto` chooses."""
        return self.decision.chosen

    @property
    def reason(self) -> str:
        """The reason for the choice of `auto`."""
        return self.decision.reason

    @property
    def rate(self) -> float | None:
        """Multiply-adds per second of the chosen method, if it was measured."""
        done = self.decision.cost(self.chosen).multiply_adds * self.batch_size
        return None if self.seconds is None else done / self.seconds

    @property
    def columns(self) -> tuple[str, ...]:
        """The headings of `rows`."""
        return ("method", "exact", "forward-only", "multiply-adds", "cost", "bytes", "")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """One row per method, as text. A number with a leading ~ is an estimate from a sample of the graph."""
        return [
            (
                cost.method,
                "yes",
                "yes" if cost.forward_only else "no (backprop)",
                ("~" if cost.estimated else "") + _count(cost.multiply_adds * self.batch_size),
                ("~" if cost.estimated else "") + _count(cost.operations * self.batch_size),
                ("~" if cost.estimated else "") + format_bytes(cost.bytes),
                "<- auto" if cost.method == self.chosen else "",
            )
            for cost in self.decision.costs
        ]

    @property
    def summary(self) -> str:
        """The choice and its reason, the number of dead edges, and the measured time if there is one."""
        found = [f"auto takes {self.chosen}: {self.reason}."]
        if self.n_dead:
            found.append(f"{self.n_dead} of {self.n_edges} edges are dead: no gradient, no cost.")
        if self.seconds is not None and self.rate is not None:
            took = f"{self.seconds * 1e3:.2g} ms" if self.seconds < 0.01 else f"{self.seconds * 1e3:.0f} ms"
            found.append(f"Measured on one thread: {took} per batch, {_count(self.rate)} multiply-adds per second.")
        return " ".join(found)

    def __str__(self) -> str:
        table = [self.columns, *self.rows]
        widths = [max(len(row[c]) for row in table) for c in range(len(self.columns))]
        numeric = (3, 4, 5)
        lines = [
            "  ".join(
                cell.rjust(width) if c in numeric else cell.ljust(width)
                for c, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        rule = "-" * max(map(len, lines))
        return "\n".join(
            [f"{self.mesh}, batch of {self.batch_size}", rule, lines[0], rule, *lines[1:], rule, self.summary]
        )


def _count(value: float) -> str:
    """Format a number of operations with a unit prefix.

    >>> _count(950), _count(12_300_000)
    ('950', '12.3 M')
    """
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000:
            return f"{value:.0f}" if unit == "" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} P"

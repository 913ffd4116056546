"""`Explanation`: the cost of each gradient method on one mesh, as a table that prints."""

from __future__ import annotations

from dataclasses import dataclass

from meshnn.memory import format_bytes
from meshnn.plan.cost import Decision

__all__ = ["Explanation"]


@dataclass(frozen=True)
class Explanation:
    """The cost of every method on one mesh. `print` it, or read `rows`, `chosen` and `reason`."""

    mesh: str
    batch_size: int
    decision: Decision
    n_edges: int
    n_dead: int
    seconds: float | None = None  # measured on this machine: one gradient of the batch by the chosen method

    @property
    def chosen(self) -> str:
        """The method that `auto` takes."""
        return self.decision.chosen

    @property
    def reason(self) -> str:
        """Why `auto` takes it."""
        return self.decision.reason

    @property
    def rate(self) -> float | None:
        """Multiply-adds per second of the chosen method, if it was measured."""
        done = self.decision.cost(self.chosen).multiply_adds * self.batch_size
        return None if self.seconds is None else done / self.seconds

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of `rows`."""
        return ("method", "exact", "forward-only", "multiply-adds", "bytes", "")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """One row per method, as text. A figure that starts with ~ is an estimate from a sample of the graph."""
        return [
            (
                cost.method,
                "yes",
                "yes" if cost.forward_only else "no (backprop)",
                ("~" if cost.estimated else "") + _count(cost.multiply_adds * self.batch_size),
                ("~" if cost.estimated else "") + format_bytes(cost.bytes),
                "<- auto" if cost.method == self.chosen else "",
            )
            for cost in self.decision.costs
        ]

    @property
    def summary(self) -> str:
        """The choice and its reason, the number of dead edges, and the measured time, if there is one."""
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
        numeric = (3, 4)
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
    """Format a number of operations for people.

    >>> _count(950), _count(12_300_000)
    ('950', '12.3 M')
    """
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000:
            return f"{value:.0f}" if unit == "" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} P"

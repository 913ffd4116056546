"""`Explanation`: what each method would cost, as a table that prints."""

from __future__ import annotations

from dataclasses import dataclass

from meshnn.memory import format_bytes
from meshnn.plan.choice import Decision
from meshnn.plan.prices import DEFAULT, Prices

__all__ = ["Explanation"]


@dataclass(frozen=True)
class Explanation:
    """The cost of every method on one mesh. `print` it, or read `rows`, `chosen` and `reason`."""

    mesh: str
    batch_size: int
    decision: Decision
    n_edges: int
    n_dead: int
    prices: Prices = DEFAULT
    measured: bool = False  # whether the prices are of this machine

    def milliseconds(self, method: str) -> float:
        """Predicted time of a gradient of the batch on one thread."""
        return self.decision.cost(method).seconds(self.batch_size, self.prices) * 1e3

    @property
    def chosen(self) -> str:
        """The method that `auto` takes."""
        return self.decision.chosen

    @property
    def reason(self) -> str:
        """Why."""
        return self.decision.reason

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of `rows`."""
        return ("method", "exact", "forward-only", "multiply-adds", "milliseconds", "bytes", "")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """One row a method, as text. A figure that starts with ~ is an estimate from a sample of the graph."""
        return [
            (
                cost.method,
                "yes",
                "yes" if cost.forward_only else "no (backprop)",
                ("~" if cost.estimated else "") + _count(cost.multiply_adds * self.batch_size),
                ("~" if cost.estimated else "") + _time(self.milliseconds(cost.method)),
                ("~" if cost.estimated else "") + format_bytes(cost.bytes),
                "<- auto" if cost.method == self.chosen else "",
            )
            for cost in self.decision.costs
        ]

    @property
    def summary(self) -> str:
        """The choice and its reason in a sentence, the edges that are dead, and whose milliseconds these are."""
        whose = "this machine's" if self.measured else "those of a Xeon with AVX-512, not measured here"
        dead = f"{self.n_dead} of {self.n_edges} edges are dead: no gradient, no cost." if self.n_dead else ""
        return " ".join(filter(None, [
            f"auto takes {self.chosen}: {self.reason}.", dead, f"Milliseconds a batch on one thread are {whose}.",
        ]))  # fmt: skip

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


def _time(milliseconds: float) -> str:
    """Two digits at least.

    >>> _time(0.01234), _time(12.34), _time(1234.5)
    ('0.012', '12', '1234')
    """
    return f"{milliseconds:.0f}" if milliseconds >= 10 else f"{milliseconds:.2g}"


def _count(value: float) -> str:
    """A number of operations for people.

    >>> _count(950), _count(12_300_000)
    ('950', '12.3 M')
    """
    for unit in ("", "k", "M", "G", "T", "P"):
        if value < 1000 or unit == "P":
            return f"{value:.0f}" if unit == "" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")

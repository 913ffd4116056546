"""Which method `auto` takes, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshnn.memory import format_bytes
from meshnn.plan.method import Cost
from meshnn.plan.prices import DEFAULT

__all__ = ["DEARER", "Decision", "decide"]

#: `auto` leaves forward-only when it is predicted to take this many times as long as backprop.
DEARER = 1.3
#: Sets of neurons that are followed while a method is planned: more would take longer than anybody waits.
MOST_SETS = 150_000
#: What a call costs is the same for all, and not paid in compiled epochs.
_KERNELS = replace(DEFAULT, call=0.0)


@dataclass(frozen=True)
class Decision:
    """The cost of every method, what was chosen and why."""

    costs: tuple[Cost, ...]
    chosen: str
    reason: str

    def cost(self, method: str) -> Cost:
        """The row of one method."""
        return next(cost for cost in self.costs if cost.method == method)


def decide(costs: Sequence[Cost], among: Sequence[str], memory: int, batch: int = 64, way_out: bool = True) -> Decision:
    """The choice among the named methods for batches of so many samples.

    The cheapest that fits in memory by predicted time; forward-only, if that takes no more than `DEARER` times as long,
    or if there is no `way_out`. Times are by fixed prices, not by those of this machine: the same graph gets the same
    method everywhere.
    """
    return Decision(tuple(costs), *_choose([c for c in costs if c.method in among], memory, batch, way_out))


def _choose(costs: list[Cost], memory: int, batch: int, way_out: bool) -> tuple[str, str]:
    def by_time(cost: Cost) -> float:
        return cost.seconds(batch, _KERNELS)

    forward_only = sorted((c for c in costs if c.forward_only), key=by_time)
    others = sorted((c for c in costs if not c.forward_only), key=by_time) if way_out else []
    quick = [c for c in forward_only if c.sets <= MOST_SETS]
    fitting = [c for c in quick if c.bytes <= memory]
    if not quick:
        least = min(forward_only, key=lambda c: c.sets)
        follows = f"forward-only would follow some {least.sets:,.0f} sets of neurons while it is planned"
        return (others[0] if others else least).method, follows
    if not fitting:
        least = min(forward_only, key=lambda c: c.bytes)
        needs = f"forward-only would need {format_bytes(least.bytes)} ({least.method})"
        return (others[0] if others else least).method, f"{needs}, the machine has {format_bytes(memory)}"
    best = fitting[0]
    backprop = min((by_time(c) for c in costs if not c.forward_only), default=float("inf"))
    ratio = by_time(best) / backprop
    if ratio > DEARER and others and others[0].bytes <= memory:
        why = f"forward-only ({best.method}) is predicted to take {ratio:.2g} times as long, more than {DEARER:g}"
        return others[0].method, why
    versus = "predicted as fast as backprop" if ratio < 1.05 else f"predicted {ratio:.2g} times as long as backprop"
    return best.method, f"the cheapest exact forward-only method, {versus}"

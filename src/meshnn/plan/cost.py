"""The cost of a gradient method, and which method `auto` takes.

Costs are counted, not timed, so that the same graph gets the same method on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshnn.memory import format_bytes

__all__ = ["MAX_SETS", "SLOWER", "Cost", "Decision", "decide"]

#: `auto` takes backprop where the cheapest forward-only method costs more than this factor.
SLOWER = 1.3
#: Largest number of sets of neurons that a walk may follow: planning more would take minutes.
MAX_SETS = 150_000
#: Multiply-adds that take as long as one activation function other than identity and relu.
ACTIVATION = 80.0
#: Multiply-adds that take as long as everything else that is done once per state or input.
STATE = 38.0


@dataclass(frozen=True)
class Cost:
    """The counted cost of one method."""

    method: str
    forward_only: bool
    multiply_adds: float  # per sample
    tiled: float  # share of the multiply-adds that tiles do
    activations: float  # per sample, without identity and relu
    states: float  # and inputs, per sample
    slowdown: float  # time of a multiply-add relative to float32 in full rows of samples
    bytes: float  # working memory: index arrays and the buffers of all workers, without data and results
    estimated: bool  # scaled up from a sample of the graph
    sets: float = 0.0  # of neurons that planning makes lists of, one by one

    @property
    def operations(self) -> float:
        """The part of the work per sample that methods differ in, in multiply-adds of float32."""
        return self.slowdown * (self.multiply_adds + ACTIVATION * self.activations)

    @property
    def work(self) -> float:
        """All work per sample, in multiply-adds of float32."""
        return self.operations + STATE * self.states


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
    """Choose among the named methods: the cheapest that fits in memory.

    Forward-only methods win unless they cost more than `SLOWER` times as much; always, if `backprop` is not allowed.
    """
    return Decision(tuple(costs), *_choose([c for c in costs if c.method in among], memory, backprop))


def _choose(costs: list[Cost], memory: int, backprop: bool) -> tuple[str, str]:
    ordered = sorted(costs, key=lambda cost: cost.operations)
    forward_only = [c for c in ordered if c.forward_only]
    others = [c for c in ordered if not c.forward_only]
    allowed = others if backprop else []
    quick = [c for c in forward_only if c.sets <= MAX_SETS]
    fitting = [c for c in quick if c.bytes <= memory]
    if not quick:
        least = min(forward_only, key=lambda c: c.sets)
        return (allowed or [least])[0].method, f"planning forward-only would follow about {least.sets:,.0f} sets"
    if not fitting:
        least = min(forward_only, key=lambda c: c.bytes)
        needs = f"forward-only would need {format_bytes(least.bytes)} ({least.method})"
        return (allowed or [least])[0].method, f"{needs}, the machine has {format_bytes(memory)}"
    best = fitting[0]
    ratio = best.operations / others[0].operations if others else 0.0
    if ratio > SLOWER and allowed and allowed[0].bytes <= memory:
        return allowed[0].method, f"forward-only ({best.method}) costs {ratio:.2g} times as much, more than {SLOWER:g}"
    versus = "as cheap as backprop" if ratio < 1.05 else f"{ratio:.2g} times the cost of backprop"
    return best.method, f"the cheapest exact forward-only method, {versus}"

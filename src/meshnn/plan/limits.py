"""`PlanningLimits`: the constants of planning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlanningLimits:
    """Constants that bound the effort of planning and decide the choice of `auto`."""

    slower: float = 1.3  # `auto` chooses backprop if the cheapest forward-only method costs more than this factor
    sets: int = 150_000  # maximum number of sets of neurons that a walk follows; more would take minutes of planning
    # number of tangents up to which a count follows all of them; of more, it follows a random sample
    sample: int = 1000
    walk: int = 3_000_000  # edges after which a count ends the random sample
    most: int = 8_000_000  # edges after which a count stops in the middle of a tangent


LIMITS = PlanningLimits()

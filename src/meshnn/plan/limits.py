"""`PlanningLimits`: the numbers of planning, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlanningLimits:
    """Numbers that decide how far planning goes and what `auto` takes."""

    slower: float = 1.3  # `auto` takes backprop where the cheapest forward-only method costs more than this factor
    sets: int = 150_000  # sets of neurons that a walk may follow: planning more would take minutes
    sample: int = 1000  # tangents up to which a count follows all of them; of more, it follows a random sample ...
    walk: int = 3_000_000  # ... or fewer, once it has walked over so many edges
    most: int = 8_000_000  # edges at which a count stops in the middle of a tangent


LIMITS = PlanningLimits()

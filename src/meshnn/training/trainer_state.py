"""Where a training stands between two rows: what a `Trainer` keeps of its starts, and what a checkpoint holds of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from meshnn.arrays import Array
from meshnn.training.state import Count, Numbers, Parameters, RandomState, Real, Vector

__all__ = ["Found", "Kept", "Start", "TrainerState"]

Values = Annotated[Array, Vector("values")]


@dataclass
class Start:
    """The best weights of one start, and its plateau."""

    best: Parameters
    value: Real = math.inf  # loss, or negative score, of the best weights
    epoch: Count = 0  # in which the plateau was last left
    plateau: Real = math.inf
    fallen: Real = 0.0  # sum of what was gained under each penalty there was


@dataclass
class Kept:
    """The best start that has ended."""

    parameters: Parameters
    value: Real
    restart: Count
    l2: Real
    memory: dict[str, Any] | None
    penalties: Numbers


@dataclass
class Found:
    """The solver and the penalty that the search has chosen."""

    solver: str
    l2: Any
    reason: str


@dataclass
class TrainerState:
    """Where training stands between two rows."""

    graph: str
    solver: dict[str, Any]
    restart: Count
    finished: bool
    ended: bool  # whether the next row belongs to the next start
    ran_out: bool  # whether only the number of epochs has ended it
    epochs: Count
    seconds: Real
    random: RandomState
    weights: Values
    last: Values | None  # of a finished run; `weights` are the best ones then
    start: Start
    kept: Kept | None
    structure: dict[str, Any] | None
    message: str  # of the search, until there is a row to note it in
    found: Found | None  # None as long as the search has not run

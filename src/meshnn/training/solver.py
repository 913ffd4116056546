"""What every solver is: something that advances the weights of a mesh and can be stopped and taken up again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import real_number
from meshnn.losses import Targets

__all__ = ["Progress", "Samples", "Solver", "State", "decode", "encode"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Samples:
    """Inputs `(1 or ticks, n, n_inputs)` and what the outputs should be."""

    X: Array
    targets: Targets
    mass: float  # sum of the sample weights; the number of samples if there are none

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.X.shape[1])


class State(NamedTuple):
    """Everything needed to go on: JSON-able values, and arrays."""

    values: dict[str, Any]
    arrays: dict[str, Array]


class Progress(NamedTuple):
    """What one call of `advance` did."""

    loss: float
    hits: float
    gradient_norm: float
    rate: float
    fell: float | None = None  # how much what is minimised fell, if the penalty was moved meanwhile
    finished: str = ""  # why there is no point in going on, if there is none
    note: str = ""


class Change(NamedTuple):
    """What has become of the graph of a net."""

    edges: NDArray[np.int64]  # (n_edges,) of each edge, its number before; -1 if it is new
    hidden: NDArray[np.int64]  # (n_hidden,) of each hidden neuron, its number among those before; -1 if it is new

    def after(self, earlier: Change) -> Change:
        """Both changes as one."""
        found = []
        for mine, before in zip(self, earlier, strict=True):
            known = before[np.maximum(mine, 0)] if len(before) else mine
            found.append(np.where(mine >= 0, known, -1))
        return Change(*found)


class Solver(Protocol):
    """Advances the weights of a mesh."""

    epoch: int

    @property
    def l2(self) -> float:
        """The penalty; the mean, if there are several."""
        ...

    def advance(self, most: int) -> Progress:
        """Run some epochs, at most so many, in place."""
        ...

    def rewire(self, change: Change) -> None:
        """Go on after the graph of the mesh has changed."""
        ...

    def state(self) -> State:
        """What `restore` needs to go on, bit by bit."""
        ...

    def restore(self, state: State) -> None:
        """Go on from a state."""
        ...


def encode(value: float) -> float | str:
    """A number as JSON can hold it, which knows no infinity.

    >>> encode(0.5), encode(float("inf"))
    (0.5, 'inf')
    """
    return value if math.isfinite(value) else repr(float(value))


def decode(name: str, value: Any, least: float = -math.inf) -> float:
    """The inverse of `encode`, for values that may come from anywhere.

    >>> decode("loss", "-inf")
    -inf
    """
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    return real_number(name, value, "a number", lambda v: least <= v < math.inf)

"""`SGD`: gradient descent with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from meshnn.codes import MOMENTUM, NESTEROV
from meshnn.training.solvers.first_order import FirstOrder
from meshnn.training.state import Interval

__all__ = ["SGD"]


@dataclass
class SGD(FirstOrder):
    """`solver="sgd"`.

    Parameters
    ----------
    learning_rate, schedule
        As of `Adam`.
    momentum : float
    nesterov : bool
        Whether the momentum is Nesterov's.

    Examples
    --------
    >>> from meshnn.training import SGD
    >>> SGD(learning_rate=0.1).set_params(momentum=0.5)
    SGD(learning_rate=0.1, schedule='cosine', momentum=0.5, nesterov=True)
    """

    momentum: Annotated[float, Interval(0, 1, "[)")] = 0.9
    nesterov: bool = True
    name = "sgd"

    def rule(self) -> tuple[int, tuple[float, float], float]:
        """Code, betas and epsilon of a step."""
        return NESTEROV if self.nesterov else MOMENTUM, (float(self.momentum), 0.0), 1e-8

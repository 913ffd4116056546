"""`Adam` (Kingma and Ba, 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from meshnn.codes import ADAM
from meshnn.training.solvers.first_order import FirstOrder
from meshnn.training.state import FromZero, Interval

__all__ = ["Adam"]

Beta = Annotated[float, Interval(0, 1, "[)")]


@dataclass
class Adam(FirstOrder):
    """`solver="adam"`.

    Parameters
    ----------
    learning_rate : float
        At the start.
    schedule : "cosine", "linear" or "constant"
        How the rate falls to 0 over the epochs, or does not.
    betas : (float, float)
        Decay of the means of gradients and of their squares.
    epsilon : float

    Examples
    --------
    >>> from meshnn.training import Adam
    >>> Adam(learning_rate=0.01).get_params()["schedule"]
    'cosine'
    """

    betas: tuple[Beta, Beta] = (0.9, 0.999)
    epsilon: FromZero = 1e-8
    name = "adam"

    def rule(self) -> tuple[int, tuple[float, float], float]:
        """Code, betas and epsilon of a step."""
        return ADAM, (float(self.betas[0]), float(self.betas[1])), float(self.epsilon)

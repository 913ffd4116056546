"""`MeshStreamRegressor`: online regression."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.arguments import known
from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.export.blueprint import Blueprint
from meshnn.online._base import StreamModel
from meshnn.online._model import as_number
from meshnn.topology import Topology
from meshnn.topology.builders import Seed

__all__ = ["MeshStreamRegressor"]


class MeshStreamRegressor(StreamModel):
    """A regressor that learns from one sample at a time in constant memory.

    All parameters of `MeshStreamClassifier` are available, and in addition:

    Parameters
    ----------
    loss : "squared_error", "huber" or "poisson", default="squared_error"
        The loss. Use "huber" for targets with outliers and "poisson" for counts.

    Examples
    --------
    >>> from meshnn import MeshStreamRegressor
    >>> model = MeshStreamRegressor(random_state=0)
    >>> for k in range(600):
    ...     x = {"a": k % 7 / 7, "b": k % 5 / 5}
    ...     model.learn_one(x, 3 * x["a"] - x["b"])
    >>> abs(model.predict_one({"a": 3 / 7, "b": 1 / 5}) - (9 / 7 - 1 / 5)) < 0.2
    True
    """

    kind = "stream regressor"

    def __init__(
        self, hidden: int = 16, topology: str | Callable[[int, int], Topology] = "auto", activation: str = "tanh",
        memory: str = "none", ticks_per_sample: int | None = None, learner: str = "ekf",
        settings: Mapping[str, Any] | None = None, loss: str = "squared_error", structure: Any = None,
        structure_every: int = 1000, structure_rounds: int = 20, max_features: int = 500, random_state: Seed = None,
    ) -> None:  # fmt: skip
        super().__init__(
            hidden, topology, activation, memory, ticks_per_sample, learner, settings, structure, structure_every,
            structure_rounds, max_features, random_state,
        )  # fmt: skip
        self.loss = loss

    @property
    def _loss(self) -> str:
        return known("loss", self.loss, ("squared_error", "huber", "poisson"))

    def learn_one(self, x: Mapping[Hashable, Any], y: float) -> None:
        """Learn from the sample x with the target y."""
        self._check_target(y)
        self._learn_row(x, float(y))

    def _loss_of(self, out: Array, target: float) -> float:
        return float(np.square(out[0] - target))

    def _check_target(self, y: Any) -> None:
        as_number("the target", y, "leave out such samples, and use MeshStreamClassifier for classes")
        if self.loss == "poisson" and y < 0:
            raise DataError(f'the target is {y!r}, but loss="poisson" requires counts of at least 0; use another loss')

    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return the predicted value; 0 before the first sample."""
        found = self._outputs_of(x)
        if found is None:
            return 0.0
        return math.exp(min(found[0], 700.0)) if self.loss == "poisson" else float(found[0])

    def blueprint(self) -> Blueprint:
        """Return the current computation as plain values and arrays, for exports."""
        return replace(super().blueprint(), link="exp" if self.loss == "poisson" else "identity", values=True)

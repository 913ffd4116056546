"""First-order learners of a stream: Adam and SGD. `kalman.py` has the filter."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from meshnn import _core
from meshnn.arguments import BELOW_1, FROM_0, POSITIVE, real_number
from meshnn.arrays import Array, IntArray
from meshnn.codes import StepRule
from meshnn.streaming.state import LIMITS, Workspace

__all__ = ["AdamLearner", "FirstOrderLearner", "SgdLearner"]


class FirstOrderLearner:
    """A step along the gradient of the last sample, whose norm is clipped to `clip`.

    `moments` is the state; `_core/core.hpp` describes its fields.
    """

    name: ClassVar[str]
    #: Whether the learner is a filter, which estimates variances.
    filters: ClassVar[bool] = False
    #: Number of samples stored for replay.
    places = 0
    code: ClassVar[int]

    def __init__(
        self, groups: IntArray, n_outputs: int, dtype: np.dtype[Any], rate: float = 0.01, clip: float = 10.0,
        l2: float = 0.0, momentum: float = 0.9,
    ) -> None:  # fmt: skip
        self.pace = (real_number("rate", rate, *POSITIVE), real_number("clip", clip, *POSITIVE))
        n = len(groups)
        self.moments = Workspace(
            solver=self.code, first=np.zeros(n, dtype), second=np.zeros(n, dtype), penalised=np.ones(n, dtype),
            beta1=real_number("momentum", momentum, *BELOW_1), beta2=0.999, epsilon=1e-8, l1=0.0,
            l2=real_number("l2", l2, *FROM_0),
        )  # fmt: skip

    def structs(self) -> tuple[Any, Any]:
        """Return the structs of the core: no filter, and the optimiser."""
        return None, _core.Struct("OptimizerState", vars(self.moments), self.moments.first.dtype.char)

    def moved(self, parameters: IntArray, groups: IntArray, outputs: IntArray) -> Self:
        """Return the learner for changed parameters; `parameters` are their old indices, -1 if new."""
        m, kept = self.moments, parameters >= 0
        settings = {"clip": self.pace[1], "l2": m.l2, "momentum": m.beta1}
        found = type(self)(parameters, len(outputs), m.first.dtype, self.pace[0], **settings)
        for name, array in found.state().items():
            array[kept] = getattr(m, name)[parameters[kept]]
        return found

    def state(self) -> dict[str, Array]:
        """Return the arrays of the state by name; they are writable."""
        return {"first": self.moments.first, "second": self.moments.second}

    def limits(self, dtype: np.dtype[Any]) -> dict[str, tuple[Any, Any]]:
        """Return the bounds of stored arrays; squares of larger numbers could overflow."""
        most = LIMITS.stored if dtype.itemsize == 8 else float(np.sqrt(LIMITS.stored))
        return {"first": (-most, most), "second": (0.0, most), "values": (-most, most)}


class AdamLearner(FirstOrderLearner):
    """Adam."""

    name = "adam"
    code = StepRule.ADAM


class SgdLearner(FirstOrderLearner):
    """Gradient descent with momentum."""

    name = "sgd"
    code = StepRule.MOMENTUM

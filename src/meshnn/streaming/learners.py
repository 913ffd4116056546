"""How a stream learns from the derivatives of its outputs: Adam and sgd. `kalman.py` has the filter."""

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
    """A step along the gradient of the last sample, which is shortened to `clip` if it is longer.

    `moments` are what it remembers; `_core/core.hpp` describes the fields.
    """

    name: ClassVar[str]
    #: Whether it is a filter, which knows how sure it is.
    filters: ClassVar[bool] = False
    #: Samples that are kept to be learned from again.
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
        """Return the filter and the optimiser as the core takes them: there is no filter."""
        return None, _core.Struct("OptimizerState", vars(self.moments), self.moments.first.dtype.char)

    def moved(self, parameters: IntArray, groups: IntArray, outputs: IntArray) -> Self:
        """Return the same for other parameters, of which each was one of these, or is new (-1)."""
        m, kept = self.moments, parameters >= 0
        settings = {"clip": self.pace[1], "l2": m.l2, "momentum": m.beta1}
        found = type(self)(parameters, len(outputs), m.first.dtype, self.pace[0], **settings)
        for name, array in found.state().items():
            array[kept] = getattr(m, name)[parameters[kept]]
        return found

    def state(self) -> dict[str, Array]:
        """Return all that it remembers, by name; arrays that may be written to."""
        return {"first": self.moments.first, "second": self.moments.second}

    def limits(self, dtype: np.dtype[Any]) -> dict[str, tuple[Any, Any]]:
        """Return the smallest and largest numbers of stored arrays: squares of others could be infinite."""
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

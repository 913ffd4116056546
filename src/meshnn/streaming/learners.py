"""How a stream learns from the derivatives of its outputs: Adam, sgd, the extended Kalman filter."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshnn import _core
from meshnn.arguments import BELOW_1, FROM_0, POSITIVE, real_number, whole_number
from meshnn.codes import Memo, StepRule
from meshnn.errors import MeshError
from meshnn.streaming.kalman import KalmanSettings, KalmanState
from meshnn.streaming.state import Workspace

__all__ = ["LEARNERS", "AdamLearner", "KalmanLearner", "Learner", "SgdLearner"]

Array = NDArray[Any]
I64 = NDArray[np.int64]
#: Parameters and moments of a stored learner are not larger, in float64.
LARGEST = 1e50


class Learner:
    """The settings of a learner, and what it remembers from step to step."""

    name: ClassVar[str]
    #: The settings it takes.
    takes: ClassVar[str] = "rate, clip, l2, momentum"
    #: Whether it is a filter, which knows how sure it is.
    filters: ClassVar[bool] = False
    #: Of first-order learners; `_core/core.hpp` describes the fields.
    moments: Workspace
    #: Of the Kalman filter.
    filter: Workspace
    #: Learning rate and longest gradient of first-order learners.
    pace: tuple[float, float] = (0.0, 1.0)
    #: Samples that are kept to be learned from again.
    places: int = 0

    @property
    def described(self) -> str:
        """What it is, in words."""
        return self.name

    @staticmethod
    def dtype(given: np.dtype[Any]) -> np.dtype[Any]:
        """The precision it works in."""
        return given

    def moved(self, parameters: I64, groups: I64, outputs: I64) -> Learner:
        """The same for other parameters, of which each was one of these, or is new (-1); and so the outputs."""
        raise NotImplementedError

    def structs(self) -> tuple[Any, Any]:
        """Return the filter and the optimiser as the core takes them; None for the one that it is not."""
        raise NotImplementedError

    def price(self, n_parameters: int, n_outputs: int, itemsize: int) -> tuple[float, float]:
        """Multiply-adds of an update, and the bytes it holds."""
        return 4.0 * n_parameters, 3.0 * n_parameters * itemsize

    def state(self) -> dict[str, Array]:
        """All that it remembers, by name; arrays that may be written to."""
        raise NotImplementedError

    def limits(self) -> dict[str, tuple[Any, Any]]:
        """Return the smallest and largest numbers of stored arrays: others would make parameters infinite."""
        most = LARGEST if self.moments.first.dtype.itemsize == 8 else float(np.sqrt(LARGEST))
        return {"first": (-most, most), "second": (0.0, most), "values": (-most, most)}

    @property
    def noise(self) -> Array:
        """Variance of the targets around the outputs, as the net sees them."""
        raise NotImplementedError


class FirstOrderLearner(Learner):
    """A step along the gradient of the last sample.

    Parameters
    ----------
    rate : float
    clip : float
        Gradients longer than this are shortened to it.
    l2 : float
    momentum : float
    """

    code: ClassVar[int]
    rate: ClassVar[float]

    def __init__(
        self, groups: I64, n_outputs: int, dtype: np.dtype[Any], rate: float | None = None, clip: float = 10.0,
        l2: float = 0.0, momentum: float = 0.9,
    ) -> None:  # fmt: skip
        rate = real_number("rate", type(self).rate if rate is None else rate, *POSITIVE)
        self.pace = (rate, real_number("clip", clip, *POSITIVE))
        l2, momentum = real_number("l2", l2, *FROM_0), real_number("momentum", momentum, *BELOW_1)
        n = len(groups)
        self.moments = Workspace(
            solver=self.code, first=np.zeros(n, dtype), second=np.zeros(n, dtype), penalised=np.ones(n, dtype),
            beta1=momentum, beta2=0.999, epsilon=1e-8, l1=0.0, l2=l2,
        )  # fmt: skip

    def structs(self) -> tuple[Any, Any]:
        """Return the optimiser."""
        return None, _core.Struct("OptimizerState", vars(self.moments), self.moments.first.dtype.char)

    def moved(self, parameters: I64, groups: I64, outputs: I64) -> FirstOrderLearner:
        """With the moments that were there."""
        m, kept = self.moments, parameters >= 0
        found = type(self).__new__(type(self))
        found.pace = self.pace
        found.moments = Workspace(**vars(m) | {"penalised": np.ones(len(parameters), m.first.dtype)})
        for name in ("first", "second"):
            new = np.zeros(len(parameters), m.first.dtype)
            new[kept] = getattr(m, name)[parameters[kept]]
            setattr(found.moments, name, new)
        return found

    def state(self) -> dict[str, Array]:
        """The moments."""
        return {"first": self.moments.first, "second": self.moments.second}


class AdamLearner(FirstOrderLearner):
    """Adam."""

    name = "adam"
    code = StepRule.ADAM
    rate = 0.01


class SgdLearner(FirstOrderLearner):
    """Gradient descent with momentum."""

    name = "sgd"
    code = StepRule.MOMENTUM
    rate = 0.01


class KalmanLearner(Learner):
    """The extended Kalman filter: its settings are those of `KalmanSettings`, and

    Parameters
    ----------
    replays : int
        Samples that are kept, of which one is learned from again with each new one, while the stream stands still. For
        nets that forget their state only.
    """

    name = "ekf"
    filters = True

    def __init__(self, groups: I64, n_outputs: int, dtype: np.dtype[Any], replays: int = 500, **settings: Any) -> None:
        try:
            chosen = KalmanSettings(**settings)
        except TypeError:
            known = ", ".join(KalmanSettings.__dataclass_fields__)
            wrong = next(name for name in settings if name not in KalmanSettings.__dataclass_fields__)
            raise MeshError(f"ekf has no setting {wrong!r}; it has replays, {known}") from None
        self.places = whole_number("replays", replays, least=0)
        self._hold(KalmanState(groups, n_outputs, chosen))

    def _hold(self, known: KalmanState) -> None:
        self.known, self.filter = known, known.filter

    def structs(self) -> tuple[Any, Any]:
        """Return the filter."""
        return self.known.struct, None

    def __getstate__(self) -> dict[str, Any]:
        return {"places": self.places, "known": self.known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.places = state["places"]
        self._hold(state["known"])

    @staticmethod
    def dtype(given: np.dtype[Any]) -> np.dtype[Any]:
        """Always float64: a covariance is made of small differences."""
        return np.dtype(np.float64)

    def moved(self, parameters: I64, groups: I64, outputs: I64) -> KalmanLearner:
        """With the covariance of what was there."""
        found = KalmanLearner.__new__(KalmanLearner)
        found.places = self.places
        found._hold(self.known.changed(groups, parameters, outputs))
        return found

    @property
    def described(self) -> str:
        """With the kind of its covariance, which the number of parameters decides."""
        kind = "one covariance of" if self.known.kind == "full" else "decoupled by neuron,"
        return f"ekf ({kind} {len(self.known.group)} parameters)"

    def price(self, n_parameters: int, n_outputs: int, itemsize: int) -> tuple[float, float]:
        """Half of each block, read twice for every output."""
        widths = np.diff(self.filter.first).astype(float)
        return float(2 * n_outputs * np.square(widths).sum()), float(self.filter.P.nbytes)

    def state(self) -> dict[str, Array]:
        """Covariance and the rest."""
        return {"P": self.filter.P, "memo": self.filter.memo}

    def limits(self) -> dict[str, tuple[Any, Any]]:
        """Variances do not exceed their ceiling; the rest is as `_core/kalman.hpp` keeps it."""
        settings, ceiling = self.known.settings, 2.0 * self.filter.ceiling
        low, high = np.full(len(self.filter.memo), -LARGEST), np.full(len(self.filter.memo), LARGEST)
        low[[Memo.SAMPLES, Memo.LOG_Q, Memo.MEAN_SQUARE]] = 0.0, -np.inf, 0.0
        high[Memo.LOG_Q] = np.log(max(settings.q, settings.most)) + 1e-6
        low[Memo.NOISE : Memo.NOISE + self.known.n_outputs] = 0.0
        return {"P": (-ceiling, ceiling), "memo": (low, high), "values": (-LARGEST, LARGEST), "noise": (0.0, LARGEST)}

    @property
    def noise(self) -> Array:
        """As found in the errors."""
        return self.known.noise


LEARNERS: dict[str, type[Any]] = {learner.name: learner for learner in (AdamLearner, SgdLearner, KalmanLearner)}

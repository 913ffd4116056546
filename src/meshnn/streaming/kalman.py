"""The extended Kalman filter of a stream: its settings and its state, which changes size with the net.

The compiled core does the arithmetic; this module makes the arrays. Up to a few hundred parameters there is one
block, the full covariance. With more parameters there is one block per neuron, for the parameters of its in-edges
(decoupled filter): parameters of different neurons are assumed independent, but the innovation matrix includes all
outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from meshnn import _core
from meshnn.arguments import FROM_0, POSITIVE, SHARE, known, real_number, whole_number
from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.codes import Memo, StreamNumbers
from meshnn.errors import MeshError
from meshnn.streaming.learners import FirstOrderLearner
from meshnn.streaming.state import LIMITS, Workspace, aligned

__all__ = ["KalmanLearner", "KalmanSettings", "Learner"]


@dataclass(frozen=True)
class KalmanSettings:
    """Settings of the filter. The defaults are for streams with standardised features and targets.

    Parameters
    ----------
    covariance : "auto", "full" or "decoupled"
        "auto" is full up to 316 parameters with one output, and up to fewer with more outputs.
    p0 : float
        Initial variance of every parameter, that is, how far it may move from its initial value. Variances are limited
        to ten times this value.
    forgetting : "auto" or float
        Increase of every variance per sample, which allows parameters to drift by its root. "auto" adapts it to the
        stream, between `least` and `most`; 0 never forgets: all samples count equally.
    least, most, start : float
        Lower bound, upper bound and initial value for forgetting="auto".
    rate : float
        Speed of the adaptation: its logarithm changes per sample by at most three times this value.
    steady : float
        Forgetting below which the stream counts as stationary, so that earlier samples may be replayed.
    replay : float
        Weight of a replayed sample; a new one has weight 1.
    noise : "auto" or float
        Variance of standardised targets around their mean, for squared errors. "auto" estimates it from the errors.
    tails : float
        Degrees of freedom of Student's t distribution, by which errors far beyond the expected size are
        down-weighted; 0 turns this off.
    bound : float
        Limit of the absolute value of every parameter.

    Examples
    --------
    >>> from meshnn.streaming.kalman import KalmanSettings
    >>> KalmanSettings(forgetting=0.0).q
    0.0
    """

    covariance: str = "auto"
    p0: float = 1.0
    forgetting: float | str = "auto"
    least: float = 3e-5
    most: float = 3e-3
    start: float = 1e-4
    rate: float = 0.03
    steady: float = 3e-4
    replay: float = 0.4
    noise: float | str = "auto"
    tails: float = 5.0
    bound: float = 1e3

    def __post_init__(self) -> None:
        known("covariance", self.covariance, ("auto", "full", "decoupled"))
        for name in ("p0", "least", "most", "start", "steady", "bound"):
            real_number(name, getattr(self, name), *POSITIVE)
        for name in ("rate", "tails"):
            real_number(name, getattr(self, name), *FROM_0)
        real_number("replay", self.replay, *SHARE)
        if not self.least <= self.start <= self.most:
            bounds = f"{self.least:g}, {self.start:g} and {self.most:g}"
            raise MeshError(f"least <= start <= most is required, got {bounds}")
        if self.forgetting != "auto":
            real_number('forgetting, if not "auto",', self.forgetting, *FROM_0)
        if self.noise != "auto":
            real_number('noise, if not "auto",', self.noise, *POSITIVE)

    @property
    def q(self) -> float:
        """The initial increase of variances per sample."""
        return self.start if self.forgetting == "auto" else float(self.forgetting)

    @property
    def ceiling(self) -> float:
        """The upper limit of variances."""
        return 10.0 * self.p0

    def rule(self) -> dict[str, float]:
        """Return the settings that the core takes, by the fields of its struct."""
        found = self.forgetting == "auto"  # otherwise the adaptation rate is 0
        return {
            "tails": self.tails,
            "noise_rate": 0.02 if self.noise == "auto" else 0.0,
            "noise_floor": 1e-3,
            "q_rate": self.rate if found else 0.0,
            "log_q_min": math.log(self.least),
            "log_q_max": math.log(self.most),
            "log_q_steady": math.log(self.steady),
            "replay_weight": self.replay,
            "bound": self.bound,
            "ceiling": self.ceiling,
        }


def _packed_size(width: int) -> int:
    strips = width // StreamNumbers.STRIP
    return StreamNumbers.STRIP * StreamNumbers.STRIP * strips * (strips + 1) // 2


class _Block(NamedTuple):
    """Parameters that share a covariance block, and its position: the lower strips of STRIP rows, concatenated.
    Parameters that share a covariance block, and its position: the lower strips of STRIP rows, concatenated.
    """

    members: IntArray
    width: int  # a multiple of StreamNumbers.STRIP
    packed: FloatArray

    def _strips(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the rows of each strip and its numbers (STRIP, columns)."""
        at, size = 0, int(StreamNumbers.STRIP)
        for i in range(0, self.width, size):
            strip = self.packed[at : at + size * (i + size)].reshape(size, -1)
            yield slice(i, i + size), strip
            at += strip.size

    def read(self) -> FloatArray:
        dense, n = np.zeros((self.width, self.width)), len(self.members)
        for rows, strip in self._strips():
            dense[rows, : strip.shape[1]] = strip
        lower = np.tril(dense)[:n, :n]
        return np.asarray(lower + np.tril(lower, -1).T)

    def write(self, P: FloatArray) -> None:
        dense = np.zeros((self.width, self.width))
        dense[: len(P), : len(P)] = P
        for rows, strip in self._strips():
            strip[:] = dense[rows, : strip.shape[1]]


class KalmanLearner:
    """The extended Kalman filter, and what it knows about the parameters of a net. Settings: `KalmanSettings`, and

    Parameters
    ----------
    group : (n_parameters,) int
        Destination neuron of each parameter; in a decoupled filter, the parameters of a neuron share a block.
    n_outputs : int
    dtype
        Ignored: the covariance is always float64, because it results from small differences.
    replays : int
        Number of samples that are stored for replay. While the stream is stationary, one of them is replayed with each
        new sample. Only for nets without memory.

    Attributes
    ----------
    kind : "full" or "decoupled"
    filter : Workspace
        Arrays and settings, changed in place by the core; see `_core/stream_structs.hpp`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn.streaming.kalman import KalmanLearner
    >>> learner = KalmanLearner(np.array([3, 3, 4]), 1)
    >>> learner.kind, learner.covariance().diagonal().tolist()
    ('full', [1.0, 1.0, 1.0])
    """

    name = "ekf"
    filters = True
    pace = (0.0, 1.0)  # settings of first-order learners

    def __init__(self, group: IntArray, n_outputs: int, dtype: Any = None, replays: int = 500, **settings: Any) -> None:
        if wrong := [name for name in settings if name not in KalmanSettings.__dataclass_fields__]:
            names = ", ".join(KalmanSettings.__dataclass_fields__)
            raise MeshError(f"ekf has no setting {wrong[0]!r}; it has replays, {names}")
        self.settings = KalmanSettings(**settings)
        self.places = whole_number("replays", replays, least=0)
        self.group, self.n_outputs = np.asarray(group, dtype=np.int64), n_outputs
        self.kind = self.settings.covariance
        if self.kind == "auto":
            full = len(self.group) ** 2 * n_outputs <= LIMITS.full_covariance
            self.kind = "full" if full else "decoupled"
        self.filter = self._new_filter()
        for block in self.blocks():
            block.write(self.settings.p0 * np.eye(len(block.members)))
        self.struct = _core.Struct("Filter", vars(self.filter), "d")

    def __getstate__(self) -> dict[str, Any]:
        # copies and pickles allocate their own aligned arrays
        settings = {"replays": self.places, **asdict(self.settings)}
        return {"of": (self.group, self.n_outputs), "settings": settings} | self.state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["of"], **state["settings"])  # type: ignore[misc]
        self.filter.P[:], self.filter.memo[:] = state["P"], state["memo"]

    def structs(self) -> tuple[Any, Any]:
        """Return the structs of the core: the filter, and no optimiser."""
        return self.struct, None

    def state(self) -> dict[str, Array]:
        """Return the covariance and the other arrays of the state."""
        return {"P": self.filter.P, "memo": self.filter.memo}

    def limits(self, dtype: np.dtype[Any]) -> dict[str, tuple[Any, Any]]:
        """Return the bounds of stored arrays that `_core/kalman.hpp` guarantees."""
        settings, ceiling, most = self.settings, 2.0 * self.filter.ceiling, LIMITS.stored
        low, high = np.full(len(self.filter.memo), -most), np.full(len(self.filter.memo), most)
        low[[Memo.SAMPLES, Memo.LOG_Q, Memo.MEAN_SQUARE]] = 0.0, -np.inf, 0.0
        high[Memo.LOG_Q] = np.log(max(settings.q, settings.most)) + 1e-6
        low[Memo.NOISE : Memo.NOISE + self.n_outputs] = 0.0
        return {"P": (-ceiling, ceiling), "memo": (low, high), "values": (-most, most), "noise": (0.0, most)}

    def update(
        self, theta: FloatArray, H: FloatArray, y: FloatArray, target: FloatArray, loss: int, fresh: bool = True,
        rest: float = -math.inf,
    ) -> float:  # fmt: skip
        """Learn from one sample; return the loss before the update, NaN if nothing was learned.

        `theta` (n_parameters,) is changed in place. `H` (n_outputs, n_parameters) are the derivatives of the outputs
        `y`, `target` is a class, or a value per output, NaN where missing, `loss` a code of `meshnn.codes`. A sample
        that is not `fresh` is a replay: it has a smaller weight and does not change the covariance. `rest` is the
        log-sum-exp of the outputs of classes that are not in `y`.
        """
        return float(_core.kalman(self.struct, theta, H, y, target, loss, fresh, rest))

    def _new_filter(self) -> Workspace:
        """Make the arrays of a filter with P = 0."""
        count, C, settings = len(self.group), self.n_outputs, self.settings
        blocks = [np.arange(count, dtype=np.int64)]
        if self.kind == "decoupled":
            by_neuron = np.argsort(self.group, kind="stable").astype(np.int64)
            blocks = np.split(by_neuron, np.flatnonzero(np.diff(self.group[by_neuron])) + 1)
        taken = np.array([len(block) for block in blocks], dtype=np.int64)
        widths = -(-taken // StreamNumbers.STRIP) * StreamNumbers.STRIP
        first = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        offset = np.concatenate([[0], np.cumsum([_packed_size(width) for width in widths])]).astype(np.int64)
        order = np.full(first[-1], -1, dtype=np.int64)
        for begin, block in zip(first, blocks, strict=False):
            order[begin : begin + len(block)] = block
        memo = np.zeros(Memo.NOISE + C + count)
        memo[Memo.LOG_Q] = math.log(settings.q) if settings.q > 0 else -math.inf
        memo[Memo.NOISE : Memo.NOISE + C] = 1.0 if settings.noise == "auto" else settings.noise
        return Workspace(
            P=aligned((int(offset[-1]),), np.float64),  # so that rows of strips are whole cache lines
            order=order, first=first, offset=offset[:-1].copy(), taken=taken, memo=memo,
            H=aligned((C, int(first[-1])), np.float64), U=aligned((C, int(first[-1])), np.float64),
            **{name: np.zeros((C, C)) for name in ("S", "L", "T", "M")},
            v=np.zeros((8, C)), chosen=np.zeros(C, np.int64), few=np.zeros(C), **settings.rule(),
        )  # fmt: skip

    def blocks(self) -> list[_Block]:
        """The blocks of the covariance: one, or one per neuron."""
        f, found = self.filter, []
        for g, (first, last) in enumerate(pairwise(f.first.tolist())):
            at = int(f.offset[g])
            strips = f.P[at : at + _packed_size(last - first)]
            found.append(_Block(f.order[first : first + f.taken[g]], last - first, strips))
        return found

    def covariance(self) -> FloatArray:
        """Return P as a matrix (n_parameters, n_parameters), with zeros between blocks."""
        P = np.zeros((len(self.group), len(self.group)))
        for block in self.blocks():
            P[np.ix_(block.members, block.members)] = block.read()
        return P

    def set_covariance(self, P: FloatArray) -> None:
        """Set P from a matrix (n_parameters, n_parameters); entries between the blocks are ignored."""
        for block in self.blocks():
            block.write(P[np.ix_(block.members, block.members)])

    @property
    def q(self) -> float:
        """The current increase of variances per sample."""
        return math.exp(self.filter.memo[Memo.LOG_Q])

    @property
    def noise(self) -> FloatArray:
        """The current estimate of the variance of standardised targets around the outputs, (n_outputs,)."""
        return np.asarray(self.filter.memo[Memo.NOISE : Memo.NOISE + self.n_outputs].copy())

    def moved(self, parameters: IntArray, groups: IntArray, outputs: IntArray) -> KalmanLearner:
        """Return the filter for changed parameters; the values of those that remain are copied exactly."""
        origin, settings = parameters, {"replays": self.places, **asdict(self.settings)}
        new = KalmanLearner(groups, len(outputs), **settings)
        before = self.blocks()
        home, place = np.full(len(self.group), -1), np.zeros(len(self.group), np.int64)
        for b, block in enumerate(before):
            home[block.members], place[block.members] = b, np.arange(len(block.members))
        read = cache(lambda b: before[b].read())  # one block may be split into many
        for block in new.blocks():
            old = origin[block.members]
            b = int(home[old[0]])
            if old[0] >= 0 and np.array_equal(old, before[b].members):
                block.packed[:] = before[b].packed  # most blocks are unchanged
                continue
            P = block.read()
            for b in np.unique(home[old[old >= 0]]).tolist():
                here = np.flatnonzero((old >= 0) & (home[old] == b))
                there = place[old[here]]
                P[np.ix_(here, here)] = read(b)[np.ix_(there, there)]
            block.write(P)
        memo, known = new.filter.memo, self.filter.memo
        memo[: Memo.NOISE] = known[: Memo.NOISE]
        kept = np.flatnonzero(outputs >= 0)
        memo[Memo.NOISE + kept] = known[Memo.NOISE + outputs[kept]]
        kept = np.flatnonzero(origin >= 0)
        memo[Memo.NOISE + new.n_outputs + kept] = known[Memo.NOISE + self.n_outputs + origin[kept]]
        return new


#: The settings and the state of a learner.
Learner = FirstOrderLearner | KalmanLearner

"""`Stream`: a net that lives on a stream of samples and learns from it while it runs."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meshnn import _core
from meshnn import codes as code
from meshnn.arguments import known, switch, whole_number
from meshnn.arrays import Array, IntArray
from meshnn.errors import MeshError
from meshnn.losses import loss_named
from meshnn.parameters import Ties
from meshnn.plan.influence import InfluencePlan, plan_influence
from meshnn.storage import Tree
from meshnn.streaming.base import BaseStream
from meshnn.streaming.explanation import StreamExplanation, explained
from meshnn.streaming.growth import Growth, moved_influences, row_slices
from meshnn.streaming.kalman import KalmanLearner, Learner
from meshnn.streaming.learners import AdamLearner, SgdLearner
from meshnn.streaming.state import Workspace, mean_and_scale, new_state, standardised
from meshnn.topology import Topology

if TYPE_CHECKING:
    from meshnn.streaming.portable import PortableStream

__all__ = ["Stream", "new_learner"]


class Stream(BaseStream):
    """One net on one stream, or on several beside each other: made by `Mesh.stream`, which has the parameters.

    Attributes
    ----------
    samples : int
        Samples seen so far.
    learned : int
        Updates made.
    """

    kept: ClassVar = ("s", "J", "side", "past_derivatives", "past_outputs", "x_moments", "y_moments", "last_x",
                      "replay_x", "replay_y", "clock")  # fmt: skip

    def __init__(
        self, topology: Topology, codes: IntArray, ties: Ties, values: Array, *, loss: str, learner: Learner,
        ticks_per_sample: int, memory: str, scale: bool, method: str, n_streams: int, delay: int,
    ) -> None:  # fmt: skip
        self.topology, self.codes, self.ties = topology, codes, ties
        self.loss, self.learner = loss_named(loss), learner
        if not self.loss.streams:
            raise MeshError(f"streams do not know the loss {self.loss.name!r}; take another one, or MeshRegressor")
        self.ticks_per_sample = whole_number("ticks_per_sample", ticks_per_sample, most=10_000)
        self.memory = known("memory", memory, ("carry", "none"))
        self.scale = switch("scale", scale)
        topology.check_reachable(self.ticks_per_sample if memory == "none" else topology.n_neurons)
        _hops(method)  # refuses others
        self.method = method
        self.n_streams, self.delay = whole_number("n_streams", n_streams), whole_number("delay", delay, least=0)
        self.dtype = np.dtype(np.float64) if learner.filters else values.dtype
        self._given = values  # of the mesh, which are kept up to date
        self.values = values if values.dtype == self.dtype else values.astype(self.dtype)

    # -- what it costs -------------------------------------------------------------------------------------------

    @cached_property
    def plan(self) -> InfluencePlan:
        """The plan of its method."""
        return self.planned(self.method)

    def planned(self, method: str) -> InfluencePlan:
        """Return the plan of a method."""
        awake = np.isin(self.codes, list(code.NONZERO_AT_ZERO))
        awake[: self.topology.n_clamped] = False
        return plan_influence(
            self.topology, self.ties.number, self.ties.n_parameters, self.codes, awake, self.ticks_per_sample,
            self.memory == "carry", _hops(method), self.dtype.itemsize,
        )  # fmt: skip

    @property
    def at_once(self) -> int:
        """Outputs that a sample is learned with: all, but of hundreds of classes a filter takes the likeliest."""
        few = self.learner.filters and self.loss.code == code.LossCode.CROSS_ENTROPY
        return min(self.topology.n_outputs, code.StreamNumbers.AT_ONCE) if few else self.topology.n_outputs

    def explain(self) -> StreamExplanation:
        """Return the cost of a sample with exact and with truncated influence, to be printed. Nothing is run."""
        return explained(self)

    def jacobian(self) -> Array:
        """Derivative of every output of the last sample by every parameter `(n_streams, n_outputs, n_parameters)`."""
        plan, room = self.plan, self.room
        found = np.zeros((self.n_streams, self.topology.n_outputs, self.ties.n_parameters), self.dtype)
        for b in range(self.n_streams):
            for o, (first, last, at) in enumerate(plan.course.outputs.tolist()):
                J = room.J[b, room.side[b], at : at + last - first]
                np.add.at(found[b, o], plan.course.out_parameter[first:last], J)
        return found

    # -- what it remembers ---------------------------------------------------------------------------------------

    @property
    def state(self) -> Array:
        """States of all neurons `(n_streams, n_neurons)`; may be set."""
        return np.asarray(self.room.s)

    def influences(self) -> Array:
        """Derivative of every neuron by every edge `(n_edges, n_neurons)`, of the first stream."""
        t, J = self.topology, self.room.J[0, self.room.side[0]]
        found = np.zeros((t.n_edges, t.n_neurons), self.dtype)
        for o, edges, place in row_slices(self.plan, t):
            found[edges, o] = J[place]
        return found

    def set_influences(self, whole: Array) -> None:
        """Take derivatives `(n_edges, n_neurons)` for the first stream."""
        self.room.J[0] = 0
        J = self.room.J[0, self.room.side[0]]
        for o, edges, place in row_slices(self.plan, self.topology):
            J[place] = whole[edges, o]

    def variance(self) -> Array:
        """Of the outputs of the last sample `(n_streams, n_outputs)`: what is to be expected of the errors of targets.

        It has two parts: what the filter does not know, and the noise it has found in the targets.
        """
        if not isinstance(self.learner, KalmanLearner):
            raise MeshError(f'the variance of predictions is known to learner="ekf" only, not to {self.learner.name!r}')
        found, moments = np.zeros((self.n_streams, self.topology.n_outputs)), self.room.y_moments
        _core.variance(*self._structs[:3], found)
        if not self.loss.likelihood:
            found += self.learner.noise
        return np.asarray(found * moments[code.MomentRow.VARIANCE] if moments.shape[1] else found)

    def scaled(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Samples (T, n_inputs) and targets (T, m) as the net sees them by the moments of now."""
        cuts = code.StreamNumbers
        moments = (self.room.x_moments, cuts.INPUT_CUT), (self.room.y_moments, cuts.TARGET_CUT)
        X, Y = (
            standardised(v, *mean_and_scale(m), cut) if m.shape[1] else v
            for v, (m, cut) in zip((X, Y), moments, strict=True)
        )
        return X, Y

    @cached_property
    def room(self) -> Workspace:  # type: ignore[override]
        """Buffers, made when they are first used."""
        if self.values is not self._given:
            self.values[:] = self._given
        return new_state(self)

    def grow(
        self, growth: Growth, values: Array, codes: IntArray, ties: Ties, parameters: IntArray, loss: str | None = None
    ) -> None:
        """Go on with a graph that came from this one: states, influences and what the learner knows move along.

        `parameters` has, of each parameter, the one it was, or -1. `Mesh.grow_stream` does all of this.
        """
        before, t = self.topology, growth.topology
        outputs = np.maximum(growth.neurons[t.n_neurons - t.n_outputs :] - (before.n_neurons - before.n_outputs), -1)
        other = Stream(
            t, codes, ties, values, loss=self.loss.name if loss is None else loss, memory=self.memory,
            learner=self.learner.moved(parameters, groups_of(t, ties), outputs), method=self.method, scale=self.scale,
            ticks_per_sample=self.ticks_per_sample, n_streams=self.n_streams, delay=self.delay,
        )  # fmt: skip
        if "room" in self.__dict__:
            self._move_into(other, growth, outputs)
        self.__dict__ = other.__dict__

    def _move_into(self, other: Stream, growth: Growth, outputs: IntArray) -> None:
        """Copy all that it remembers into a stream of the grown graph."""
        other.room = new_state(other)
        room, new, t = self.room, other.room, growth.topology
        kept, inputs = growth.neurons >= 0, growth.neurons[: t.n_inputs]
        new.s[:, kept] = room.s[:, growth.neurons[kept]]
        new.s[:, t.n_inputs : t.n_clamped] = 1
        for b in range(self.n_streams):
            moved_influences(self.plan, self.topology, room.J[b, room.side[b]], other.plan, growth, new.J[b, 0])
        _move(room.x_moments, new.x_moments, inputs)
        _move(room.y_moments, new.y_moments, outputs)
        _move(room.last_x[None], new.last_x[None], inputs, np.nan)
        new.clock[:] = room.clock
        if new.replay_y.shape == room.replay_y.shape:
            _move(room.replay_x, new.replay_x, inputs, np.nan)
            new.replay_y[:] = room.replay_y
        else:
            new.clock[code.ClockPlace.STORED] = 0  # their targets are of another kind
        if self.delay:
            new.clock[code.ClockPlace.SEEN] = 0  # derivatives of before are of another net

    def portable(self) -> PortableStream:
        """A stream in float32 that goes on from here with the same bits on every machine, also in C: `to_c`."""
        from meshnn.streaming.portable import PortableStream

        return PortableStream(self)

    def _arrays(self) -> dict[str, Array]:
        return super()._arrays() | self.learner.state() | {"values": self.values}

    def _limits(self) -> dict[str, tuple[Any, Any]]:
        limits = self.learner.limits(self.dtype) | {"side": (0, 1)}
        if self.loss.by_label:  # labels are used as indices
            limits["replay_y"] = (0, self.topology.n_outputs - 1)
        return limits

    def _restored(self) -> None:
        if self.values is not self._given:
            self._given[:] = self.values
        self.room.weights[:] = self.values[self.plan.course.weight_index]

    def __getstate__(self) -> Tree:
        # addresses of buffers, and what can be computed again, are left out: copies and pickles make their own
        state = {name: value for name, value in self.__dict__.items() if name not in ("plan", "_structs", "_buffers")}
        return state | {"room": super()._arrays()} if "room" in state else state

    def __setstate__(self, state: Tree) -> None:
        arrays = state.pop("room", None)
        self.__dict__.update(state)
        if arrays is not None:
            self.room = new_state(self)
            for name, array in arrays.items():
                getattr(self.room, name)[:] = array

    def attach(self, values: Array) -> None:
        """Learn the parameters of a mesh: not every pickler knows that its array and the stream's are one."""
        values[:] = self.values
        self._given = values
        if values.dtype == self.values.dtype:
            self.values = values
            self.__dict__.pop("_structs", None)

    @cached_property
    def _structs(self) -> tuple[Any, Any, Any, Any]:
        """The arrays as the core takes them; it keeps their addresses."""
        (rate, clip), filters, kind = self.learner.pace, self.learner.filters, self.dtype.char
        given = vars(self.room) | {"values": self.values, "loss": self.loss.code, "rate": rate, "clip": clip,
                                   "carry": self.memory == "carry", "use_filter": filters}  # fmt: skip
        return (
            _core.Struct("StreamPlan", vars(self.plan.course), kind),
            _core.Struct("StreamState", given, kind),
            *self.learner.structs(),
        )

    @cached_property
    def _buffers(self) -> tuple[Array, Array, Array]:
        """No target, one target, and the outputs of one sample: for single rows, which are to be fast."""
        return self._nothing(0), self._nothing(1), self._nothing(1, self.topology.n_outputs)

    def refresh(self) -> None:
        """Look at the parameters of the mesh again, after somebody else has changed them."""
        if self.values is not self._given:
            self.values[:] = self._given
        self.room.weights[:] = self.values[self.plan.course.weight_index]

    # -- how it runs ---------------------------------------------------------------------------------------------

    def _call(self, mode: int, X: Array, Y: Array, delay: int, out: Array) -> None:
        _core.stream(*self._structs, mode, X, Y, delay, out)
        if self.values is not self._given and mode & code.Mode.LEARN:
            self._given[:] = self.values

    def peek_rows(self, rows: Array) -> Array:
        """`peek` for rows `(T, 1, n_inputs)` of the right dtype that were checked: the outputs `(T, n_outputs)`."""
        out: Array = np.empty((len(rows), 1, self.topology.n_outputs), self.dtype)
        self._call(code.Mode.PEEK, rows, self._buffers[0], 0, out)
        found: Array = out[:, 0]
        return found

    def learn_row(self, row: Array, target: float) -> Array:
        """`step` and `learn` for such a row and a target of one number; return the outputs `(1, 1, n_outputs)` before.

        They are valid until the next row.
        """
        _, targets, out = self._buffers
        targets[0, 0, 0] = target
        self._call(code.Mode.ADVANCE | code.Mode.LEARN, row, targets, 0, out)
        return out


def _hops(method: str) -> int | None:
    """Where to cut influences: none if exact."""
    if method == "exact":
        return None
    match = re.fullmatch(r"snap-([1-9]\d*)", method) if isinstance(method, str) else None
    if match is None:
        raise MeshError(f'method must be "exact" or "snap-1", "snap-2", ..., got {method!r}')
    return int(match[1]) - 1


def _move(old: Array, new: Array, origin: IntArray, nothing: float = 0.0) -> None:
    """Columns of before to where they are now."""
    if old.shape[1] and new.shape[1]:
        new[:] = nothing
        new[:, origin >= 0] = old[:, origin[origin >= 0]]


def groups_of(topology: Topology, ties: Ties) -> IntArray:
    """The neuron that each parameter leads to; of a tied one, the first."""
    return topology.dst[ties.first[: ties.n_parameters]].astype(np.int64)


def new_learner(learner: str, topology: Topology, ties: Ties, dtype: np.dtype[Any], settings: Any) -> Learner:
    """By its name."""
    kinds: dict[str, Any] = {kind.name: kind for kind in (AdamLearner, SgdLearner, KalmanLearner)}
    kind = kinds[known("learner", learner, kinds)]
    try:
        found: Learner = kind(groups_of(topology, ties), topology.n_outputs, dtype, **settings)
    except TypeError:
        takes = "rate, clip, l2, momentum"
        raise MeshError(f"{learner} does not take all of {', '.join(settings)}; it takes {takes}") from None
    return found

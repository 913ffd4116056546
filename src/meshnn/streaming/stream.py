"""`Stream`: a net on a stream of samples that learns while it runs."""

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
    """A net on one or several parallel streams, made by `Mesh.stream`. The mesh has the parameters.

    Attributes
    ----------
    samples : int
        Number of samples processed so far.
    learned : int
        Number of updates so far.
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
            raise MeshError(f"streams do not support the loss {self.loss.name!r}; use another loss, or MeshRegressor")
        self.ticks_per_sample = whole_number("ticks_per_sample", ticks_per_sample, most=10_000)
        self.memory = known("memory", memory, ("carry", "none"))
        self.scale = switch("scale", scale)
        topology.check_reachable(self.ticks_per_sample if memory == "none" else topology.n_neurons)
        _hops(method)  # raises an error for an unknown method
        self.method = method
        self.n_streams, self.delay = whole_number("n_streams", n_streams), whole_number("delay", delay, least=0)
        self.dtype = np.dtype(np.float64) if learner.filters else values.dtype
        self._given = values  # parameters of the mesh, which are updated in place
        self.values = values if values.dtype == self.dtype else values.astype(self.dtype)

    # -- costs ---------------------------------------------------------------------------------------------------

    @cached_property
    def plan(self) -> InfluencePlan:
        """The plan of the chosen method."""
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
        """Number of outputs in an update: all, but a filter with hundreds of classes uses only the most probable."""
        few = self.learner.filters and self.loss.code == code.LossCode.CROSS_ENTROPY
        return min(self.topology.n_outputs, code.StreamNumbers.AT_ONCE) if few else self.topology.n_outputs

    def explain(self) -> StreamExplanation:
        """Return the cost of a sample with exact and with truncated influences, without running anything."""
        return explained(self)

    def jacobian(self) -> Array:
        """Return the derivatives of the outputs of the last sample by all parameters, one array per stream.

        The shape is `(n_streams, n_outputs, n_parameters)`.
        """
        plan, room = self.plan, self.room
        found = np.zeros((self.n_streams, self.topology.n_outputs, self.ties.n_parameters), self.dtype)
        for b in range(self.n_streams):
            for o, (first, last, at) in enumerate(plan.course.outputs.tolist()):
                J = room.J[b, room.side[b], at : at + last - first]
                np.add.at(found[b, o], plan.course.out_parameter[first:last], J)
        return found

    # -- state ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Array:
        """The states of all neurons `(n_streams, n_neurons)`; can be set."""
        return np.asarray(self.room.s)

    def influences(self) -> Array:
        """Return the derivatives of all neurons by all edges `(n_edges, n_neurons)` of the first stream."""
        t, J = self.topology, self.room.J[0, self.room.side[0]]
        found = np.zeros((t.n_edges, t.n_neurons), self.dtype)
        for o, edges, place in row_slices(self.plan, t):
            found[edges, o] = J[place]
        return found

    def set_influences(self, whole: Array) -> None:
        """Set the derivatives `(n_edges, n_neurons)` of the first stream."""
        self.room.J[0] = 0
        J = self.room.J[0, self.room.side[0]]
        for o, edges, place in row_slices(self.plan, self.topology):
            J[place] = whole[edges, o]

    def variance(self) -> Array:
        """Return the predictive variance of the targets of the last sample `(n_streams, n_outputs)`.

        It is the sum of the variance due to uncertain parameters and the estimated noise of the targets.
        """
        if not isinstance(self.learner, KalmanLearner):
            raise MeshError(f'only learner="ekf" has a predictive variance, got {self.learner.name!r}')
        found, moments = np.zeros((self.n_streams, self.topology.n_outputs)), self.room.y_moments
        _core.variance(*self._structs[:3], found)
        if not self.loss.likelihood:
            found += self.learner.noise
        return np.asarray(found * moments[code.MomentRow.VARIANCE] if moments.shape[1] else found)

    def scaled(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Return samples (T, n_inputs) and targets (T, m), standardised with the current moments."""
        cuts = code.StreamNumbers
        moments = (self.room.x_moments, cuts.INPUT_CUT), (self.room.y_moments, cuts.TARGET_CUT)
        X, Y = (
            standardised(v, *mean_and_scale(m), cut) if m.shape[1] else v
            for v, (m, cut) in zip((X, Y), moments, strict=True)
        )
        return X, Y

    @cached_property
    def room(self) -> Workspace:  # type: ignore[override]
        """The arrays and buffers, made at the first use."""
        if self.values is not self._given:
            self.values[:] = self._given
        return new_state(self)

    def grow(
        self, growth: Growth, values: Array, codes: IntArray, ties: Ties, parameters: IntArray, loss: str | None = None
    ) -> None:
        """Continue with a grown graph: states, influences and the learner's state move to their new positions.

        `parameters` has the old index of each parameter, or -1. `Mesh.grow_stream` does all of this.
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
        """Copy the whole state into a stream of the grown graph."""
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
            new.clock[code.ClockPlace.STORED] = 0  # stored targets have another format
        if self.delay:
            new.clock[code.ClockPlace.SEEN] = 0  # stored derivatives are of another net

    def portable(self) -> PortableStream:
        """Return a stream in float32 that continues from this state with the same bits on every machine, also in C."""
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
        # pickles omit addresses of buffers and cached results
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
        """Use the parameter array of a mesh, because some picklers copy shared arrays."""
        values[:] = self.values
        self._given = values
        if values.dtype == self.values.dtype:
            self.values = values
            self.__dict__.pop("_structs", None)

    @cached_property
    def _structs(self) -> tuple[Any, Any, Any, Any]:
        """The structs of the core, which contain addresses of the arrays."""
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
        """Preallocated arrays for single rows: no target, one target, and the outputs of one sample."""
        return self._nothing(0), self._nothing(1), self._nothing(1, self.topology.n_outputs)

    def refresh(self) -> None:
        """Copy the parameters of the mesh again, after another program part changed them."""
        if self.values is not self._given:
            self.values[:] = self._given
        self.room.weights[:] = self.values[self.plan.course.weight_index]

    # -- execution -----------------------------------------------------------------------------------------------

    def _call(self, mode: int, X: Array, Y: Array, delay: int, out: Array) -> None:
        _core.stream(*self._structs, mode, X, Y, delay, out)
        if self.values is not self._given and mode & code.Mode.LEARN:
            self._given[:] = self.values

    def peek_rows(self, rows: Array) -> Array:
        """Return the outputs `(T, n_outputs)` of `peek` for checked rows `(T, 1, n_inputs)` in the right dtype."""
        out: Array = np.empty((len(rows), 1, self.topology.n_outputs), self.dtype)
        self._call(code.Mode.PEEK, rows, self._buffers[0], 0, out)
        found: Array = out[:, 0]
        return found

    def learn_row(self, row: Array, target: float) -> Array:
        """Apply `step` and `learn` to such a row and a target with one number; return the outputs before the update.

        The outputs `(1, 1, n_outputs)` are valid until the next row.
        """
        _, targets, out = self._buffers
        targets[0, 0, 0] = target
        self._call(code.Mode.ADVANCE | code.Mode.LEARN, row, targets, 0, out)
        return out


def _hops(method: str) -> int | None:
    """Return the number of hops after which influences are cut; None for the exact method."""
    if method == "exact":
        return None
    match = re.fullmatch(r"snap-([1-9]\d*)", method) if isinstance(method, str) else None
    if match is None:
        raise MeshError(f'method must be "exact" or "snap-1", "snap-2", ..., got {method!r}')
    return int(match[1]) - 1


def _move(old: Array, new: Array, origin: IntArray, nothing: float = 0.0) -> None:
    """Copy columns to their new positions."""
    if old.shape[1] and new.shape[1]:
        new[:] = nothing
        new[:, origin >= 0] = old[:, origin[origin >= 0]]


def groups_of(topology: Topology, ties: Ties) -> IntArray:
    """Return the destination neuron of each parameter; of a tied one, that of its first edge."""
    return topology.dst[ties.first[: ties.n_parameters]].astype(np.int64)


def new_learner(learner: str, topology: Topology, ties: Ties, dtype: np.dtype[Any], settings: Any) -> Learner:
    """Return a new learner by its name."""
    kinds: dict[str, Any] = {kind.name: kind for kind in (AdamLearner, SgdLearner, KalmanLearner)}
    kind = kinds[known("learner", learner, kinds)]
    try:
        found: Learner = kind(groups_of(topology, ties), topology.n_outputs, dtype, **settings)
    except TypeError:
        takes = "rate, clip, l2, momentum"
        raise MeshError(f"{learner} does not take all of {', '.join(settings)}; it takes {takes}") from None
    return found

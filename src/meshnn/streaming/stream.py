"""`Stream`: a net that lives on a stream of samples and learns from it while it runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn import _core, checks
from meshnn.arguments import known, switch, whole_number
from meshnn.codes import (
    ADVANCE,
    AT_ONCE,
    CROSS_ENTROPY,
    DERIVE,
    INPUT_CUT,
    LEARN,
    LEARNED,
    MEAN,
    NONZERO_AT_ZERO,
    PEEK,
    SEEN,
    STORED,
    TARGET_CUT,
    VARIANCE,
)
from meshnn.errors import FileError, MeshError
from meshnn.losses import loss_named
from meshnn.parameters import Ties
from meshnn.plan.influence import InfluencePlan, plan_influence
from meshnn.streaming.explanation import StreamExplanation
from meshnn.streaming.given import as_inputs, as_targets
from meshnn.streaming.growth import Growth, moved_influences
from meshnn.streaming.learners import LEARNERS, Learner
from meshnn.streaming.state import StreamState, fill_arrays, new_state
from meshnn.topology import Topology

if TYPE_CHECKING:
    from meshnn.streaming.portable import PortableStream

__all__ = ["Stream"]

Array = NDArray[Any]
I64 = NDArray[np.int64]
Tree = dict[str, Any]
#: Buffers that hold what a stream remembers; the others are room to compute in.
KEPT = ("s", "J", "side", "past_derivatives", "past_outputs", "x_moments", "y_moments", "last_x", "replay_x",
        "replay_y", "clock")  # fmt: skip
#: Attributes that hold addresses of buffers or can be computed again: copies and pickles make their own.
BOUND = ("_plan", "_structs", "_no_target", "_target", "_out")


class Stream:
    """One net on one stream, or on several beside each other: made by `Mesh.stream`, which has the parameters.

    Attributes
    ----------
    samples : int
        Seen so far.
    learned : int
        Updates made.
    """

    def __init__(
        self,
        topology: Topology,
        codes: I64,
        ties: Ties,
        values: Array,
        *,
        loss: str,
        learner: Learner,
        ticks_per_sample: int,
        memory: str,
        method: str,
        n_streams: int,
        late: int,
        scale: bool = False,
    ) -> None:
        self.topology, self.codes, self.ties = topology, codes, ties
        self.loss, self.learner = loss_named(loss), learner
        self.ticks_per_sample = whole_number("ticks_per_sample", ticks_per_sample, most=10_000)
        self.memory = known("memory", memory, ("carry", "none"))
        self.method, self.hops = method, _hops(method)
        self.n_streams = whole_number("n_streams", n_streams)
        self.late, self.scale = whole_number("late", late, least=0), switch("scale", scale)
        topology.check_reachable(self.ticks_per_sample if memory == "none" else topology.n_neurons)
        self._given = values  # of the mesh, which are kept up to date
        self.values = values if values.dtype == learner.dtype(values.dtype) else values.astype(np.float64)
        self._plan: InfluencePlan | None = None
        self._room: StreamState | None = None

    # -- what it costs -------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of states, influences and parameters."""
        return self.values.dtype

    @property
    def plan(self) -> InfluencePlan:
        """Made when it is first asked for."""
        if self._plan is None:
            self._plan = self._planned(self.hops)
        return self._plan

    def _planned(self, hops: int | None) -> InfluencePlan:
        awake = np.isin(self.codes, list(NONZERO_AT_ZERO))
        awake[: self.topology.n_clamped] = False
        return plan_influence(
            self.topology, self.ties.number, self.ties.n_parameters, self.codes, awake, self.ticks_per_sample,
            self.memory == "carry", hops, self.dtype.itemsize,
        )  # fmt: skip

    @property
    def at_once(self) -> int:
        """Outputs that a sample is learned with: all, but of hundreds of classes a filter takes the likeliest."""
        few = self.learner.filters and self.loss.code == CROSS_ENTROPY
        return min(self.topology.n_outputs, AT_ONCE) if few else self.topology.n_outputs

    def explain(self) -> StreamExplanation:
        """What a sample costs with the exact influence and with cut ones: print it. Nothing is run."""
        return StreamExplanation.of(self)

    # -- what it does --------------------------------------------------------------------------------------------

    def step(self, x: ArrayLike) -> Array:
        """Take in one sample `(n_inputs,)`, or `(n_streams, n_inputs)`; the outputs, in the same shape."""
        return self._given_back(self._advance(self._inputs(x), ADVANCE), x)

    def peek(self, x: ArrayLike) -> Array:
        """What `step` would give; nothing is remembered."""
        return self._given_back(self._advance(self._inputs(x), PEEK), x)

    def learn(self, target: ArrayLike, lag: int = 0) -> None:
        """Learn the target of the last sample, or of the one `lag` samples before it. NaN is a target that is missing.

        Of several outputs some targets may be NaN; of several streams, too. Labels are whole numbers from 0.
        """
        self._learn(target, lag, LEARN)

    def gradient(self, target: ArrayLike, lag: int = 0) -> Array:
        """The gradient `(n_parameters,)` of the loss of the last sample by the parameters, through all of the past."""
        self._learn(target, lag, DERIVE)
        return self.room.grad[: self.ties.n_parameters].copy()

    def run(self, X: ArrayLike, Y: ArrayLike | None = None, delay: int = 0) -> Array:
        """Test, then train, over whole arrays in compiled code.

        Parameters
        ----------
        X : array_like (T, n_inputs), or (T, n_streams, n_inputs)
        Y : array_like, optional
            Targets: labels (T,), values (T,) or (T, n_outputs); with several streams (T, n_streams, ...). NaN is
            missing. Without Y nothing is learned.
        delay : int
            The target of a sample comes that many samples after it.

        Returns
        -------
        array (T, n_outputs), or (T, n_streams, n_outputs)
            The outputs before each target was seen.
        """
        found = checks.numbers("X", X)
        single = found.ndim == 2
        samples = as_inputs(self, found[:, None] if single else found, np.shape(X))
        delay = self._lag(delay, "delay")
        T, B = samples.shape[:2]
        out: Array = np.empty((T, B, self.topology.n_outputs), self.dtype)
        if Y is None:
            self._call(ADVANCE, samples, self._nothing(T), 0, out)
        else:
            targets = as_targets(self, Y, T)
            if delay:
                missing = np.full((min(delay, T), *targets.shape[1:]), np.nan, self.dtype)
                targets = np.concatenate([missing, targets[: T - delay]]) if delay < T else missing
            self._call(ADVANCE | LEARN, samples, targets, delay, out)
        return out[:, 0] if single else out

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
    def samples(self) -> int:
        """Seen so far."""
        return 0 if self._room is None else int(self._room.clock[SEEN])

    @property
    def learned(self) -> int:
        """Updates made so far."""
        return 0 if self._room is None else int(self._room.clock[LEARNED])

    @property
    def state(self) -> Array:
        """States of all neurons `(n_streams, n_neurons)`; may be set."""
        return self.room.s

    def variance(self) -> Array:
        """Of the outputs of the last sample `(n_streams, n_outputs)`: what is to be expected of the errors of targets.

        It has two parts: what the filter does not know, and the noise it has found in the targets.
        """
        if not self.learner.filters:
            raise MeshError(f'the variance of predictions is known to learner="ekf" only, not to {self.learner.name!r}')
        found = np.zeros((self.n_streams, self.topology.n_outputs))
        self.room  # noqa: B018  made and bound
        _core.variance(*self._structs[:3], found)
        if not self.loss.likelihood:
            found += self.learner.noise
        room = self.room
        variance: Array = found * room.y_moments[VARIANCE] if room.y_moments.shape[1] else found
        return variance

    def scaled(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Samples (T, n_inputs) and targets (T, m) as the net sees them by the moments of now."""
        if not self.scale:
            return X, Y

        def one(values: Array, moments: Array, cut: float) -> Array:
            if not moments.shape[1]:
                return values
            deviation = np.sqrt(moments[VARIANCE])
            with np.errstate(divide="ignore", invalid="ignore"):
                found = np.where(deviation > 0, (values - moments[MEAN]) / deviation, 0.0)
            clipped: Array = np.clip(np.nan_to_num(found, posinf=0.0, neginf=0.0), -cut, cut)
            return clipped

        return one(X, self.room.x_moments, INPUT_CUT), one(Y, self.room.y_moments, TARGET_CUT)

    def reset(self) -> None:
        """Forget the states and their influences; what was learned stays."""
        room = self.room
        room.s[:, self.topology.n_clamped :] = 0
        room.J[:] = 0

    @property
    def room(self) -> StreamState:
        """Buffers, made when they are first used."""
        if self._room is None:
            self._room = new_state(self)
            self._bind()
            self.refresh()
        return self._room

    def grow(
        self, growth: Growth, values: Array, codes: I64, ties: Ties, parameters: I64, loss: str | None = None
    ) -> None:
        """Go on with a graph that came from this one: states, influences and what the learner knows move along.

        `parameters` has, of each parameter, the one it was, or -1. `Mesh.grow_stream` does all of this.
        """
        old, before, room = self.plan, self.topology, self._room
        t = growth.topology
        outputs = growth.neurons[t.n_neurons - t.n_outputs :] - (before.n_neurons - before.n_outputs)
        learner = self.learner.moved(parameters, groups_of(t, ties), np.maximum(outputs, -1))
        other = Stream(
            t, codes, ties, values, loss=self.loss.name if loss is None else loss, learner=learner, memory=self.memory,
            ticks_per_sample=self.ticks_per_sample, method=self.method, n_streams=self.n_streams, late=self.late,
            scale=self.scale,
        )  # fmt: skip
        if room is not None:
            new = new_state(other)
            kept = growth.neurons >= 0
            new.s[:, kept] = room.s[:, growth.neurons[kept]]
            new.s[:, t.n_inputs : t.n_clamped] = 1
            for b in range(self.n_streams):
                moved_influences(old, before, room.J[b, room.side[b]], other.plan, growth, new.J[b, 0])
            inputs = growth.neurons[: t.n_inputs]
            _move(room.x_moments, new.x_moments, inputs)
            _move(room.replay_x, new.replay_x, inputs, np.nan)
            _move(room.last_x[None], new.last_x[None], inputs, np.nan)
            if new.replay_y.shape == room.replay_y.shape:
                new.replay_y[:] = room.replay_y
            else:
                new.replay_x[:] = 0  # their targets are of another kind
            if new.y_moments.shape[1]:
                _move(room.y_moments, new.y_moments, np.maximum(outputs, -1))
            new.clock[:] = room.clock
            if new.replay_y.shape != room.replay_y.shape:
                new.clock[STORED] = 0
            new.clock[SEEN] = 0 if self.late else room.clock[SEEN]  # derivatives of before are of another net
            other._room = new
        self.__dict__.update(other.__dict__)
        if self._room is not None:
            self._bind()

    def portable(self) -> PortableStream:
        """A stream in float32 that goes on from here with the same bits on every machine, also in C: `to_c`."""
        from meshnn.streaming.portable import PortableStream

        return PortableStream.from_stream(self)

    def to_tree(self) -> Tree:
        """All that it remembers, as plain values and arrays; the parameters are the mesh's."""
        room = self.room
        kept = {name: getattr(room, name).copy() for name in KEPT}
        return {
            "ticks_per_sample": self.ticks_per_sample,
            "values": self.values.copy(),
            "room": kept,
            "learner": {name: array.copy() for name, array in self.learner.state().items()},
        }

    def restore(self, tree: Tree) -> None:
        """Go on, bit by bit, where a stream of the same net was when `to_tree` was called."""
        room = self.room
        stored, learned = tree.get("room"), tree.get("learner")
        if not isinstance(stored, dict) or not isinstance(learned, dict):
            raise FileError("the stored stream has no arrays")
        arrays = {name: getattr(room, name) for name in KEPT} | self.learner.state() | {"values": self.values}
        limits = self.learner.limits() | {"side": (0, 1)}
        fill_arrays(arrays, {**stored, **learned, "values": tree.get("values")}, limits)
        if self.values is not self._given:
            self._given[:] = self.values
        room.weights[:] = self.values[self.plan.course.weight_index]

    def __getstate__(self) -> Tree:
        state = {name: value for name, value in self.__dict__.items() if name not in BOUND}
        room = self._room
        return state | {"_room": None if room is None else {name: getattr(room, name) for name in KEPT}}

    def attach(self, values: Array) -> None:
        """Learn the parameters of a mesh: not every pickler knows that its array and the stream's are one."""
        values[:] = self.values
        self._given = values
        if values.dtype == self.values.dtype:
            self.values = values
            if self._room is not None:
                self._bind()

    def __setstate__(self, state: Tree) -> None:
        self.__dict__.update(state, _plan=None, _room=None)
        if state["_room"] is not None:
            self._room = new_state(self)
            for name, array in state["_room"].items():
                getattr(self._room, name)[:] = array
            self._bind()

    def _bind(self) -> None:
        """Hand the arrays to the core, which keeps their addresses."""
        learner, kind = self.learner, self.dtype.char
        given = self.room._asdict() | {
            "values": self.values,
            "loss": self.loss.code,
            "rate": learner.pace[0],
            "clip": learner.pace[1],
            "carry": self.memory == "carry",
            "use_filter": learner.filters,
        }
        self._structs = (
            _core.Struct("StreamPlan", self.plan.course._asdict(), kind),
            _core.Struct("StreamState", given, kind),
            *learner.structs(),
        )
        self._no_target, self._target = self._nothing(0), self._nothing(1)
        self._out = np.empty((1, self.n_streams, self.topology.n_outputs), self.dtype)

    def refresh(self) -> None:
        """Look at the parameters of the mesh again, after somebody else has changed them."""
        if self.values is not self._given:
            self.values[:] = self._given
        if self._room is not None:
            self._room.weights[:] = self.values[self.plan.course.weight_index]

    # -- how it runs ---------------------------------------------------------------------------------------------

    def _call(self, mode: int, X: Array, Y: Array, lag: int, out: Array) -> None:
        if self._room is None:
            self.room  # noqa: B018  made and bound
        _core.stream(*self._structs, mode, X, Y, lag, out)
        if self.values is not self._given and mode & LEARN:
            self._given[:] = self.values

    def peek_row(self, row: Array) -> Array:
        """`peek` for a row `(1, 1, n_inputs)` of the right dtype that was checked: the outputs `(n_outputs,)`."""
        if self._room is None:
            self.room  # noqa: B018  made and bound
        out = np.empty((1, 1, self.topology.n_outputs), self.dtype)
        self._call(PEEK, row, self._no_target, 0, out)
        found: Array = out[0, 0]
        return found

    def learn_row(self, row: Array, target: float) -> None:
        """`step` and `learn` for such a row and a target of one number."""
        if self._room is None:
            self.room  # noqa: B018  made and bound
        self._target[0, 0, 0] = target
        self._call(ADVANCE | LEARN, row, self._target, 0, self._out)

    def _advance(self, x: Array, mode: int) -> Array:
        out = np.empty((1, self.n_streams, self.topology.n_outputs), self.dtype)
        self._call(mode, x[None], self._nothing(0), 0, out)
        found: Array = out[0]
        return found

    def _learn(self, target: ArrayLike, lag: int, mode: int) -> None:
        lag = self._lag(lag, "lag")
        if self.samples <= lag:
            raise MeshError(
                f"there is no sample {lag} before the last one: {self.samples} were seen; call step(x) first"
            )
        given = np.asarray(target)
        targets = as_targets(self, given[None] if self.n_streams == 1 or given.ndim else given, 1)
        nothing = np.empty((1, self.n_streams, self.topology.n_outputs), self.dtype)
        self._call(mode, np.empty((0, self.n_streams, self.topology.n_inputs), self.dtype), targets, lag, nothing)

    def _nothing(self, T: int) -> Array:
        return np.full((T, self.n_streams, self.width), np.nan, self.dtype)

    @property
    def width(self) -> int:
        """Numbers in a target: a label, or a value for each output."""
        return 1 if self.loss.classifies and not self.loss.several else self.topology.n_outputs

    def _lag(self, lag: int, name: str) -> int:
        lag = whole_number(name, lag, least=0)
        if lag > self.late:
            raise MeshError(
                f"{name} is {lag}, but the derivatives of only {self.late} samples before the last one are kept; "
                f"make the stream with late={lag}"
            )
        return lag

    def _inputs(self, x: ArrayLike) -> Array:
        found = checks.numbers("x", x)
        row: Array = as_inputs(self, found.reshape(1, 1, -1) if found.ndim == 1 else found[None], np.shape(x))[0]
        return row

    def _given_back(self, out: Array, x: ArrayLike) -> Array:
        return out[0] if np.ndim(x) == 1 else out


def _hops(method: str) -> int | None:
    """Where to cut influences: none if exact."""
    if method == "exact":
        return None
    match = re.fullmatch(r"snap-([1-9]\d*)", method) if isinstance(method, str) else None
    if match is None:
        raise MeshError(f'method must be "exact" or "snap-1", "snap-2", ..., got {method!r}')
    return int(match[1]) - 1


def _move(old: Array, new: Array, origin: I64, nothing: float = 0.0) -> None:
    """Columns of before to where they are now."""
    if old.shape[1] and new.shape[1]:
        new[:] = nothing
        new[:, origin >= 0] = old[:, origin[origin >= 0]]


def groups_of(topology: Topology, ties: Ties) -> I64:
    """The neuron that each parameter leads to; of a tied one, the first."""
    return topology.dst[ties.first[: ties.n_parameters]].astype(np.int64)


def new_learner(learner: str, topology: Topology, ties: Ties, dtype: np.dtype[Any], settings: Any) -> Learner:
    """By its name."""
    kind = LEARNERS[known("learner", learner, LEARNERS)]
    try:
        found: Learner = kind(groups_of(topology, ties), topology.n_outputs, dtype, **settings)
    except TypeError:
        raise MeshError(f"{learner} does not take all of {', '.join(settings)}; it takes {kind.takes}") from None
    return found

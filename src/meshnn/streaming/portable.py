"""`PortableStream`: a stream in float32 whose bits are the same on every machine, also in C on one without a library.

The mathematics is in `kernels/portable.py`; here its lists and arrays are made. `export/c_learner.py` writes them as C.
"""

from __future__ import annotations

import math
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn import checks
from meshnn.arguments import known, switch, whole_number
from meshnn.codes import ADAM, BINARY_CROSS_ENTROPY, CROSS_ENTROPY, LEARNED, LEFT_OUT, MOMENTUM, SEEN, SQUARED_ERROR
from meshnn.errors import DataError, MeshError
from meshnn.export.c_learner import write_learner
from meshnn.kernels.tuples import (
    ADVANCE,
    DERIVE,
    LEARN,
    LOG_Q,
    LOOK,
    MEAN_SQUARE,
    MOMENT_ROWS,
    NOISE,
    SAMPLES,
    PortableNet,
    PortableRoom,
)
from meshnn.losses import loss_named
from meshnn.memory import check_fits
from meshnn.parameters import Ties
from meshnn.streaming.given import as_inputs, as_targets
from meshnn.streaming.growth import row_edges
from meshnn.streaming.kalman import CEILING, KalmanSettings
from meshnn.streaming.learners import AdamLearner, KalmanLearner, Learner, SgdLearner
from meshnn.streaming.stream import Stream, new_learner
from meshnn.topology import Topology
from meshnn.topology.reach import NEVER, output_distance

__all__ = ["KEPT", "PortableStream"]

Array = NDArray[Any]
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Tree = dict[str, Any]
#: Buffers that hold what it remembers; the others are room to compute in.
KEPT = ("theta", "s", "J", "first", "second", "P", "last", "noise", "memo", "x_moments", "y_moments", "clock")
LOSSES = (SQUARED_ERROR, BINARY_CROSS_ENTROPY, CROSS_ENTROPY)
#: Rows of the moments of a number as `standardise.py` has them are those here.
_F4 = np.dtype(np.float32)


class PortableStream:
    """One net on one stream, in float32, strictly: made by `Mesh.stream(portable=True)`.

    It has what `Stream` has for one stream with the exact influence and targets that come in time. The filter has one
    covariance, never learns from a sample twice, and takes classes by how far the right one exceeds the others.

    Attributes
    ----------
    samples : int
        Seen so far.
    learned : int
        Updates made.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import Mesh, Topology
    >>> x = np.sin(0.3 * np.arange(1001))[:, None]
    >>> mesh = Mesh(Topology.mesh(1, 4, 1), activation="tanh", random_state=0)
    >>> stream = mesh.stream(learner="ekf", portable=True)
    >>> out = stream.run(x[:-1], x[1:])
    >>> bool(np.square(out - x[1:])[-100:].mean() < 0.01)
    True
    """

    n_streams = 1
    dtype = _F4

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
        scale: bool = False,
    ) -> None:
        self.topology, self.codes, self.ties = topology, codes, ties
        self.loss, self.learner = loss_named(loss), learner
        if self.loss.code not in LOSSES:
            raise MeshError(
                "a portable stream knows the losses squared_error, binary_cross_entropy and cross_entropy, "
                f"not {loss!r}"
            )
        self.ticks_per_sample = whole_number("ticks_per_sample", ticks_per_sample, most=10_000)
        self.memory = known("memory", memory, ("carry", "none"))
        self.scale = switch("scale", scale)
        topology.check_reachable(self.ticks_per_sample if memory == "none" else topology.n_neurons)
        self._given = values  # of the mesh, which are kept up to date
        self.net = plan_portable(self)
        self.rule = rule_of(learner)
        self.room = _new_room(self)
        self._bind()

    # -- what it does --------------------------------------------------------------------------------------------

    def step(self, x: ArrayLike) -> F32:
        """Take in one sample `(n_inputs,)`; the outputs `(n_outputs,)`."""
        return self._advance(x, ADVANCE)

    def peek(self, x: ArrayLike) -> F32:
        """What `step` would give; nothing is remembered."""
        return self._advance(x, LOOK)

    def learn(self, target: ArrayLike) -> None:
        """Learn the target of the last sample. NaN is a target that is missing; labels are whole numbers from 0."""
        self._learn(target, LEARN)

    def gradient(self, target: ArrayLike) -> F32:
        """The gradient `(n_parameters,)` of the loss of the last sample by the parameters, through all of the past."""
        self._learn(target, DERIVE)
        return self.room.u.copy()

    def run(self, X: ArrayLike, Y: ArrayLike | None = None) -> F32:
        """Test, then train, over whole arrays in compiled code: `Stream.run` without a delay.

        Parameters
        ----------
        X : array_like (T, n_inputs)
        Y : array_like, optional
            Targets: labels (T,), values (T,) or (T, n_outputs). NaN is missing. Without Y nothing is learned.

        Returns
        -------
        array (T, n_outputs)
            The outputs before each target was seen.
        """
        found = checks.numbers("X", X)
        samples = as_inputs(self, found[:, None] if found.ndim == 2 else found, np.shape(X))[:, 0]
        T = len(samples)
        out = np.empty((T, self.topology.n_outputs), _F4)
        if Y is None:
            self._call(ADVANCE, samples, self._nothing(T), out)
        else:
            self._call(ADVANCE | LEARN, samples, as_targets(self, Y, T)[:, 0], out)
        return out

    def jacobian(self) -> F32:
        """Derivative of every output of the last sample by every parameter `(1, n_outputs, n_parameters)`."""
        net, J = self.net, self.room.J
        found = np.zeros((1, self.topology.n_outputs, self.ties.n_parameters), _F4)
        at = 0
        for g, size in enumerate(np.diff(net.row_ptr).tolist()):
            members = net.par[net.par_ptr[g] : net.par_ptr[g + 1]]
            block = J[at : at + size * len(members)].reshape(len(members), size)
            for o in range(self.topology.n_outputs):
                place = int(net.out_row[g * self.topology.n_outputs + o])
                if place < size:
                    found[0, o, members] = block[:, place]
            at += block.size
        return found

    # -- what it remembers ---------------------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Seen so far."""
        return int(self.room.clock[SEEN])

    @property
    def learned(self) -> int:
        """Updates made so far."""
        return int(self.room.clock[LEARNED])

    @property
    def left_out(self) -> int:
        """Updates that were not made, because they were not finite."""
        return int(self.room.clock[LEFT_OUT])

    @property
    def state(self) -> F32:
        """States of all neurons `(n_neurons,)`; may be set."""
        return self.room.s

    @property
    def parameters(self) -> F32:
        """`(n_parameters,)` as learned so far; a copy."""
        return self.room.theta[: self.ties.n_parameters].copy()

    def covariance(self) -> F32:
        """All of P `(n_parameters, n_parameters)`, of a filter."""
        if not self.learner.filters:
            raise MeshError(f'a covariance is known to learner="ekf" only, not to {self.learner.name!r}')
        n = self.ties.n_parameters
        upper = np.zeros((n, n), _F4)
        upper[np.triu_indices(n)] = self.room.P
        return upper + np.triu(upper, 1).T

    def reset(self) -> None:
        """Forget the states and their influences; what was learned stays."""
        self.room.s[self.topology.n_clamped :] = 0
        self.room.J[:] = 0

    def to_tree(self) -> Tree:
        """All that it remembers, as plain arrays."""
        return {name: getattr(self.room, name).copy() for name in KEPT}

    def restore(self, tree: Tree) -> None:
        """Go on, bit by bit, where a stream of the same net was when `to_tree` was called."""
        pairs = [(getattr(self.room, name), np.asarray(tree[name]), name) for name in KEPT]
        for array, given, name in pairs:
            if given.shape != array.shape or given.dtype != array.dtype:
                raise DataError(f"{name} of the stored stream has shape {given.shape}, this one {array.shape}")
        for array, given, _ in pairs:
            array[:] = given
        self._given[:] = self.room.theta

    @classmethod
    def from_stream(cls, stream: Stream) -> PortableStream:
        """Where a stream is, in float32: parameters, states, influences, moments or covariance, scaling.

        A filter goes on with the settings it has; samples that it kept to learn from again stay behind.

        Parameters
        ----------
        stream : Stream
            Of one net, exact, without late targets; `model.stream_` of a `MeshStreamClassifier` or `Regressor`.

        Examples
        --------
        >>> from meshnn import Mesh, Topology
        >>> from meshnn.streaming.portable import PortableStream
        >>> mesh = Mesh(Topology.mesh(1, 3, 1), activation="tanh", random_state=0)
        >>> stream = mesh.stream(learner="ekf")
        >>> y = stream.step([1.0])
        >>> stream.learn([0.5])
        >>> PortableStream.from_stream(stream).samples
        1
        """
        if stream.n_streams != 1 or stream.hops is not None or stream.late:
            raise MeshError(
                'a portable stream is one (n_streams=1), exact (method="exact") and learns in time (late=0); '
                f"this one has n_streams={stream.n_streams}, method={stream.method!r}, late={stream.late}"
            )
        found = cls(
            stream.topology, stream.codes, stream.ties, stream.values.astype(_F4), loss=stream.loss.name,
            learner=stream.learner, ticks_per_sample=stream.ticks_per_sample, memory=stream.memory, scale=stream.scale,
        )  # fmt: skip
        room, old, learner = found.room, stream.room, stream.learner
        room.s[:] = old.s[0]
        _move_influences(stream, found)
        room.x_moments[:] = old.x_moments.ravel()
        room.y_moments[:] = old.y_moments.ravel()
        room.clock[:] = old.clock[: len(room.clock)]
        if isinstance(learner, KalmanLearner):
            memo, C = learner.filter.memo, stream.topology.n_outputs
            room.P[:] = learner.known.covariance()[np.triu_indices(stream.ties.n_parameters)]
            room.memo[:] = memo[SAMPLES], math.exp(memo[LOG_Q]), memo[MEAN_SQUARE]
            room.noise[:] = memo[NOISE : NOISE + C]
            room.last[:] = memo[NOISE + C :]
        else:
            m = learner.moments
            room.first[:] = m.first
            if learner.name == "adam":
                room.second[:] = m.second
                room.memo[:2] = m.beta1**stream.learned, m.beta2**stream.learned
        return found

    def to_c(self, path: str | PathLike[str], name: str = "net") -> None:
        """Write a C header with a learner that goes on from here, bit by bit; see `meshnn.export.c_learner`.

        Parameters
        ----------
        path : path-like
            Of the header; it is written whole or not at all.
        name : str
            Begins the names of its functions: `net_init`, `net_step`, `net_learn` ...
        """
        write_learner(self, path, name)

    # -- how it runs ---------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        from meshnn.kernels._kept import Kept

        self._kept = (Kept(self.net), Kept(self.room), self.rule)
        self._entry: Any = None

    def __getstate__(self) -> Tree:
        return {name: value for name, value in self.__dict__.items() if name not in ("_kept", "_entry")}

    def __setstate__(self, state: Tree) -> None:
        self.__dict__.update(state)
        self._bind()

    def refresh(self) -> None:
        """Look at the parameters of the mesh again, after somebody else has changed them."""
        self.room.theta[:] = self._given

    def _call(self, mode: int, X: F32, Y: F32, out: F32) -> None:
        arguments = (*self._kept, mode, X, Y, out)
        if self._entry is None:
            from meshnn.kernels._jit import announce, entry_point
            from meshnn.kernels.portable import portable_part

            with announce(portable_part, self.dtype):
                portable_part(*arguments)
            self._entry = entry_point(portable_part, arguments)
        else:
            self._entry(*arguments)
        if mode & LEARN:
            self._given[:] = self.room.theta

    def _advance(self, x: ArrayLike, mode: int) -> F32:
        found = checks.numbers("x", x)
        row = as_inputs(self, found.reshape(1, 1, -1), np.shape(x))[:, 0]
        out = np.empty((1, self.topology.n_outputs), _F4)
        self._call(mode, row, self._nothing(0), out)
        found_row: F32 = out[0]
        return found_row

    def _learn(self, target: ArrayLike, mode: int) -> None:
        if not self.samples:
            raise MeshError("there is no sample to learn from; call step(x) first")
        targets = as_targets(self, np.asarray(target)[None], 1)[:, 0]
        self._call(mode, np.empty((0, self.topology.n_inputs), _F4), targets, self._nothing(0))

    def _nothing(self, T: int) -> F32:
        return np.full((T, self.width), np.nan, _F4)

    @property
    def width(self) -> int:
        """Numbers in a target: a label, or a value for each output."""
        return 1 if self.loss.classifies and not self.loss.several else self.topology.n_outputs


def portable_learner(
    learner: str, topology: Topology, ties: Ties, settings: dict[str, Any], given: dict[str, Any]
) -> Learner:
    """By its name, or a sentence about what a portable stream has not; `given` are the choices of `Mesh.stream`."""
    for name, value in (("n_streams", 1), ("late", 0), ("method", "exact")):
        if given[name] != value:
            raise MeshError(f"a portable stream has {name}={value!r} only, got {given[name]!r}")
    if learner == "ekf":
        if settings.get("covariance") == "decoupled":
            raise MeshError('a portable filter has one covariance; leave covariance at "auto" or take fewer parameters')
        if settings.get("replays"):
            raise MeshError("a portable filter keeps no samples to learn from again; leave replays out")
        settings = {"covariance": "full", **settings, "replays": 0}
        if settings["covariance"] == "auto":
            settings["covariance"] = "full"
    return new_learner(learner, topology, ties, _F4, settings)


def rule_of(learner: Learner) -> F32:
    """The settings in the order that `kernels/portable.py` reads them in."""
    found = np.zeros(14, _F4)
    if isinstance(learner, KalmanLearner):
        s: KalmanSettings = learner.known.settings
        auto = s.forgetting == "auto"
        found[6:] = (
            s.tails, 0.02 if s.noise == "auto" else 0.0, 1e-3, s.rate if auto else 0.0, s.least, s.most, s.bound,
            CEILING * s.p0,
        )  # fmt: skip
    else:
        m = learner.moments
        found[:6] = *learner.pace, m.l2, m.beta1, m.beta2, m.epsilon
    return found


class _Group(NamedTuple):
    rows: list[int]  # neurons that its parameters reach
    members: list[int]  # parameters


def _groups(t: Topology, ties: Ties) -> list[_Group]:
    """Parameters by the neurons they reach, of those that reach an output."""
    n, first = t.n_neurons, t.n_clamped
    useful = output_distance(n, first, t.n_outputs, t.src, t.dst) < NEVER
    useful[:first] = False
    after: list[list[int]] = [[] for _ in range(n)]
    for a, b in zip(t.src.tolist(), t.dst.tolist(), strict=True):
        if useful[a] and useful[b]:
            after[a].append(b)
    reached: dict[int, frozenset[int]] = {}
    for j in np.unique(t.dst).tolist():
        if useful[j]:
            seen, todo = {j}, [j]
            while todo:
                fresh = [b for b in after[todo.pop()] if b not in seen]
                seen.update(fresh)
                todo += fresh
            reached[j] = frozenset(seen)
    sets: dict[int, frozenset[int]] = {}
    for number, j in zip(ties.number.tolist(), t.dst.tolist(), strict=True):
        if number < ties.n_parameters and j in reached:
            sets[number] = sets.get(number, frozenset()) | reached[j]
    found: dict[frozenset[int], list[int]] = {}
    for number in sorted(sets):
        found.setdefault(sets[number], []).append(number)
    return [_Group(sorted(rows), members) for rows, members in found.items()]


def plan_portable(stream: PortableStream) -> PortableNet:
    """The lists that the kernel, here or in C, runs on."""
    t, ties, n_clamped, C = stream.topology, stream.ties, stream.topology.n_clamped, stream.topology.n_outputs
    number = ties.number
    into: list[list[int]] = [[] for _ in range(t.n_neurons)]
    edges_of: dict[int, list[int]] = {}
    for e, j in enumerate(t.dst.tolist()):
        into[j].append(e)
        if j >= n_clamped:
            edges_of.setdefault(int(number[e]), []).append(e)
    lists: dict[str, list[int]] = {name: [] for name in PortableNet._fields[:15]}
    for name in ("ptr", "row_ptr", "sub_ptr", "par_ptr", "edge_ptr"):
        lists[name].append(0)
    for j in range(n_clamped, t.n_neurons):
        lists["col"] += t.src[into[j]].tolist()
        lists["num"] += number[into[j]].tolist()
        lists["ptr"].append(len(lists["col"]))
        lists["code"].append(int(stream.codes[j]))
    for rows, members in _groups(t, ties):
        place = {j: k for k, j in enumerate(rows)}
        for j in rows:
            for e in into[j]:
                if int(t.src[e]) in place:
                    lists["sub_src"].append(place[int(t.src[e])])
                    lists["sub_num"].append(int(number[e]))
            lists["sub_ptr"].append(len(lists["sub_src"]))
        lists["rows"] += [j - n_clamped for j in rows]
        lists["row_ptr"].append(len(lists["rows"]))
        for k in members:
            for e in edges_of[k]:
                if int(t.dst[e]) in place:
                    lists["edge_row"].append(place[int(t.dst[e])])
                    lists["edge_src"].append(int(t.src[e]))
            lists["edge_ptr"].append(len(lists["edge_row"]))
        lists["par"] += members
        lists["par_ptr"].append(len(lists["par"]))
        lists["out_row"] += [place.get(j, len(rows)) for j in range(t.n_neurons - C, t.n_neurons)]
    return PortableNet(
        **{name: np.array(found, np.int64) for name, found in lists.items()},
        n_inputs=t.n_inputs,
        n_clamped=n_clamped,
        n_outputs=C,
        ticks=stream.ticks_per_sample,
        carries=int(stream.memory == "carry"),
        loss=stream.loss.code,
        learner=MOMENTUM if isinstance(stream.learner, SgdLearner) else ADAM,
        filters=int(stream.learner.filters),
    )


def influences_of(net: PortableNet) -> int:
    """Numbers in J."""
    return int((np.diff(net.row_ptr) * np.diff(net.par_ptr)).sum())


def _new_room(stream: PortableStream) -> PortableRoom:
    t, net, N = stream.topology, stream.net, stream.ties.n_parameters
    filters, adam = stream.learner.filters, isinstance(stream.learner, AdamLearner)
    half = N * (N + 1) // 2 if filters else 0
    check_fits(4.0 * (influences_of(net) + half), "a portable stream", "take a net with fewer parameters")
    span = np.diff(net.sub_ptr[net.row_ptr])

    def zeros(count: int) -> F32:
        return np.zeros(count, _F4)

    room = PortableRoom(
        theta=stream._given.astype(_F4),
        s=zeros(t.n_neurons),
        J=zeros(influences_of(net)),
        first=zeros(0 if filters else N),
        second=zeros(N if adam else 0),
        P=zeros(half),
        last=zeros(N if filters else 0),
        noise=zeros(t.n_outputs if filters else 0),
        memo=zeros(3),
        x_moments=zeros(MOMENT_ROWS * t.n_inputs if stream.scale else 0),
        y_moments=zeros(MOMENT_ROWS * t.n_outputs if stream.scale and not stream.loss.likelihood else 0),
        clock=np.zeros(4, np.int64),
        t=zeros(len(net.code)),
        d=zeros(len(net.code)),
        w=zeros(int(span.max(initial=1))),
        column=zeros(int(np.diff(net.row_ptr).max(initial=1))),
        h=zeros(N),
        u=zeros(N),
        moved=zeros(N if filters else 0),
        g=zeros(t.n_outputs),
        target=zeros(stream.width),
        other=zeros(t.n_neurons),
    )
    room.s[t.n_inputs : t.n_clamped] = 1  # the bias
    room.memo[:2] = 1
    if isinstance(stream.learner, KalmanLearner):
        settings = stream.learner.known.settings
        diagonal = np.concatenate([[0], np.cumsum(np.arange(N, 1, -1))]) if N else np.empty(0, np.int64)
        room.P[diagonal.astype(np.int64)] = settings.p0
        room.memo[:] = 0, settings.q, 0
        room.noise[:] = 1.0 if settings.noise == "auto" else settings.noise
    return room


def _move_influences(old: Stream, new: PortableStream) -> None:
    """The influences of a stream, edge by edge, into those of parameters."""
    t, net, number = old.topology, new.net, old.ties.number
    J = old.room.J[0, old.room.side[0]]
    whole = np.zeros((old.ties.n_numbers, t.n_neurons))
    for o in range(t.n_clamped, t.n_neurons):
        edges = row_edges(old.plan, t, o)
        at = int(old.plan.course.offset[o])
        np.add.at(whole[:, o], number[edges], J[at : at + len(edges)])
    at = 0
    for g in range(len(net.row_ptr) - 1):
        rows = net.rows[net.row_ptr[g] : net.row_ptr[g + 1]] + t.n_clamped
        block = whole[np.ix_(net.par[net.par_ptr[g] : net.par_ptr[g + 1]], rows)]
        new.room.J[at : at + block.size] = block.ravel()
        at += block.size

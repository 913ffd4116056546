"""`PortableStream`: a stream in float32 whose bits are the same on every machine, also in C on one without a library.

The mathematics is in `_core/portable.h`, which the core runs and `export/c/learner.py` writes into headers.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn import _core, checks
from meshnn.arguments import known, switch, whole_number
from meshnn.codes import (
    ADVANCE,
    BINARY_CROSS_ENTROPY,
    CROSS_ENTROPY,
    DERIVE,
    LEARN,
    LEARNED,
    LEFT_OUT,
    PEEK,
    SEEN,
    SQUARED_ERROR,
)
from meshnn.errors import DataError, MeshError
from meshnn.export.c.learner import write_learner
from meshnn.export.snapshot import write_snapshot
from meshnn.losses import loss_named
from meshnn.parameters import Ties
from meshnn.streaming.given import as_inputs, as_targets
from meshnn.streaming.learners import Learner
from meshnn.streaming.portable_convert import into_stream, portable_from
from meshnn.streaming.portable_plan import new_portable_state, plan_portable, rule_of
from meshnn.streaming.stream import Stream
from meshnn.topology import Topology

__all__ = ["KEPT", "PortableStream"]

Array = NDArray[Any]
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Tree = dict[str, Any]
#: The arrays of `PortableState` that it remembers; the others are buffers.
KEPT = ("theta", "s", "J", "first", "second", "P", "last", "noise", "memo", "x_moments", "y_moments", "clock")
LOSSES = (SQUARED_ERROR, BINARY_CROSS_ENTROPY, CROSS_ENTROPY)
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
        self.room = new_portable_state(self)
        self._bind()

    # -- what it does --------------------------------------------------------------------------------------------

    def step(self, x: ArrayLike) -> F32:
        """Take in one sample `(n_inputs,)`; the outputs `(n_outputs,)`."""
        return self._advance(x, ADVANCE)

    def peek(self, x: ArrayLike) -> F32:
        """What `step` would give; nothing is remembered."""
        return self._advance(x, PEEK)

    def learn(self, target: ArrayLike) -> None:
        """Learn the target of the last sample. NaN is a target that is missing; labels are whole numbers from 0."""
        self._learn(target, LEARN)

    def gradient(self, target: ArrayLike) -> F32:
        """The gradient `(n_parameters,)` of the loss of the last sample by the parameters, through all of the past."""
        self._learn(target, DERIVE)
        return self.room.grad.copy()

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
            self._call(ADVANCE, samples, None, out)
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
        return portable_from(stream)

    def into_stream(self, stream: Stream) -> None:
        """The inverse of `from_stream`: let a stream of the same net go on where this one is."""
        into_stream(self, stream)

    def to_bytes(self, everything: bool = False) -> bytes:
        """Return what its C learner would save here, for `net_restore` and `meshnn.export.snapshot.import_snapshot`.

        Parameters
        ----------
        everything : bool
            Also states, influences and what the learner remembers, not only parameters and scaling.
        """
        return write_snapshot(self, everything)

    def to_c(self, path: str | PathLike[str], name: str = "net") -> None:
        """Write a C header with a learner that goes on from here, bit by bit; see `meshnn.export.c.learner`.

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
        parts = (("PortableNet", self.net), ("PortableState", self.room))
        self._structs = tuple(_core.Struct(name, part._asdict(), "f") for name, part in parts)

    def __getstate__(self) -> Tree:
        return {name: value for name, value in self.__dict__.items() if name != "_structs"}

    def __setstate__(self, state: Tree) -> None:
        self.__dict__.update(state)
        self._bind()

    def refresh(self) -> None:
        """Read the parameters of the mesh again, after they were changed elsewhere."""
        self.room.theta[:] = self._given

    def _call(self, mode: int, X: F32 | None, Y: F32 | None, out: F32 | None) -> None:
        try:
            net, state = self._structs
            _core.portable(net, state, self.rule, mode, X, Y, out)
        finally:
            if mode & LEARN:
                self._given[:] = self.room.theta

    def _advance(self, x: ArrayLike, mode: int) -> F32:
        found = checks.numbers("x", x)
        row = as_inputs(self, found.reshape(1, 1, -1), np.shape(x))[:, 0]
        out = np.empty((1, self.topology.n_outputs), _F4)
        self._call(mode, row, None, out)
        found_row: F32 = out[0]
        return found_row

    def _learn(self, target: ArrayLike, mode: int) -> None:
        if not self.samples:
            raise MeshError("there is no sample to learn from; call step(x) first")
        targets = as_targets(self, np.asarray(target)[None], 1)[:, 0]
        self._call(mode, None, targets, None)

    @property
    def width(self) -> int:
        """Numbers in a target: a label, or a value for each output."""
        return 1 if self.loss.classifies and not self.loss.several else self.topology.n_outputs

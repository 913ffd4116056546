"""`PortableStream`: a stream in float32 whose bits are the same on every machine, also in C on one without a library.

The mathematics is in `_core/portable.h`, which the core runs and `export/c/learner.py` writes into headers.
"""

from __future__ import annotations

import math
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from meshnn import _core
from meshnn import codes as code
from meshnn.arrays import Array, IntArray
from meshnn.errors import MeshError
from meshnn.export.c.learner import learner_header
from meshnn.export.snapshot import write_snapshot
from meshnn.files import write_whole
from meshnn.storage import Tree
from meshnn.streaming.base import BaseStream
from meshnn.streaming.kalman import KalmanLearner
from meshnn.streaming.portable_plan import blocks_of, new_portable_state, plan_portable, rule_of
from meshnn.streaming.state import LIMITS
from meshnn.streaming.stream import Stream

__all__ = ["PortableStream", "portable_of"]


class PortableStream(BaseStream):
    """One net on one stream, in float32, strictly: made by `Mesh.stream(portable=True)` and `Stream.portable`.

    It has what `Stream` has for one stream with the exact influence and targets that come in time. The filter has one
    covariance, never learns from a sample twice, and takes classes by how far the right one exceeds the others.

    It goes on where a stream is: with its parameters, states, influences, moments or covariance, and scaling. Samples
    that a filter kept to learn from again stay behind.

    Parameters
    ----------
    stream : Stream
        Of one net, exact, without late targets; `model.stream_` of a `MeshStreamClassifier` or `Regressor`.
    values : (n_parameters,), optional
        The parameters of a mesh, which are kept up to date. By default the stream has its own.

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

    kept: ClassVar = ("theta", "s", "J", "first", "second", "P", "last", "noise", "memo", "x_moments", "y_moments",
                      "clock")  # fmt: skip
    dtype = np.dtype(np.float32)

    def __init__(self, stream: Stream, values: Array | None = None) -> None:
        if (stream.n_streams, stream.method, stream.delay) != (1, "exact", 0):
            raise MeshError(
                'a portable stream is one (n_streams=1), exact (method="exact") and learns in time (delay=0); '
                f"this one has n_streams={stream.n_streams}, method={stream.method!r}, delay={stream.delay}"
            )
        losses = code.LossCode
        if stream.loss.code not in (losses.SQUARED_ERROR, losses.BINARY_CROSS_ENTROPY, losses.CROSS_ENTROPY):
            names = "squared_error, binary_cross_entropy and cross_entropy"
            raise MeshError(f"a portable stream knows the losses {names}, not {stream.loss.name!r}")
        self.topology, self.codes, self.ties = stream.topology, stream.codes, stream.ties
        self.loss, self.learner, self.scale = stream.loss, stream.learner, stream.scale
        self.ticks_per_sample, self.memory = stream.ticks_per_sample, stream.memory
        self.net = plan_portable(self)
        self.rule = rule_of(self.learner)
        self.room = new_portable_state(self, stream)
        self._given = self.room.theta.copy() if values is None else values
        if stream.room.J.any():
            whole = np.zeros((self.ties.n_numbers, self.topology.n_neurons))
            np.add.at(whole, self.ties.number, stream.influences())
            self.set_influences(whole)
        for name in self.kept:
            if not np.isfinite(getattr(self.room, name)).all():
                raise MeshError(f"{name} of the stream has numbers that float32 does not hold; scale the data before")

    def jacobian(self) -> Array:
        """Derivative of every output of the last sample by every parameter `(1, n_outputs, n_parameters)`."""
        return self.influences()[: self.ties.n_parameters, -self.topology.n_outputs :].T[None].copy()

    def influences(self) -> Array:
        """Derivative of every neuron by every weight `(n_weights, n_neurons)`; 0 for fixed ones."""
        found = np.zeros((self.ties.n_numbers, self.topology.n_neurons), np.float32)
        for members, rows, place in blocks_of(self.net):
            block = self.room.J[place].reshape(len(members), len(rows))
            found[np.ix_(members, rows + self.topology.n_clamped)] = block
        return found

    def set_influences(self, whole: Array) -> None:
        """Take derivatives `(n_weights, n_neurons)`."""
        for members, rows, place in blocks_of(self.net):
            self.room.J[place] = whole[np.ix_(members, rows + self.topology.n_clamped)].ravel()

    # -- what it remembers ---------------------------------------------------------------------------------------

    @property
    def left_out(self) -> int:
        """Updates that were not made, because they were not finite."""
        return int(self.room.clock[code.ClockPlace.LEFT_OUT])

    @property
    def state(self) -> Array:
        """States of all neurons `(n_neurons,)`; may be set."""
        return np.asarray(self.room.s)

    @property
    def parameters(self) -> Array:
        """`(n_parameters,)` as learned so far; a copy."""
        return np.array(self.room.theta[: self.ties.n_parameters])

    def covariance(self) -> Array:
        """All of P `(n_parameters, n_parameters)`, of a filter."""
        if not self.learner.filters:
            raise MeshError(f'a covariance is known to learner="ekf" only, not to {self.learner.name!r}')
        n = self.ties.n_parameters
        upper = np.zeros((n, n), np.float32)
        upper[np.triu_indices(n)] = self.room.P
        return upper + np.triu(upper, 1).T

    def _limits(self) -> dict[str, tuple[Any, Any]]:
        limits = self.learner.limits(self.dtype)
        limits["theta"] = limits.pop("values")
        # the samples, q and a mean square of a filter; or powers of Adam's betas
        most = max(self.room.memo[1], self.rule[11]) * 1.001
        limits["memo"] = (0.0, np.array([2.0**53, most, 1e38]) if self.learner.filters else 1.0)
        return limits

    def _restored(self) -> None:
        self._given[:] = self.room.theta

    def into_stream(self, stream: Stream) -> None:
        """Let a stream of the same net go on from here; of tied parameters influences begin anew."""
        room, old, learner, N = self.room, stream.room, stream.learner, stream.ties.n_parameters
        if self.learner.name != learner.name or self.scale != stream.scale:
            raise MeshError(f"the stream learns by {learner.name!r}, what is to go on in it by {self.learner.name!r}")
        stream.values[:N] = stream._given[:N] = room.theta[:N]
        stream.refresh()
        nothing = np.zeros((stream.topology.n_edges, stream.topology.n_neurons))
        stream.set_influences(self.influences() if stream.ties.plain else nothing)
        old.s[0], old.clock[: len(room.clock)] = room.s, room.clock
        old.x_moments[:] = room.x_moments.reshape(old.x_moments.shape)
        old.y_moments[:] = room.y_moments.reshape(old.y_moments.shape)
        if isinstance(learner, KalmanLearner):
            memo, C, (samples, q, square) = learner.filter.memo, stream.topology.n_outputs, room.memo
            learner.set_covariance(self.covariance().astype(np.float64))
            memo[code.Memo.SAMPLES], memo[code.Memo.MEAN_SQUARE] = samples, square
            memo[code.Memo.LOG_Q] = math.log(q) if q > 0 else -math.inf
            memo[code.Memo.NOISE : code.Memo.NOISE + C], memo[code.Memo.NOISE + C :] = room.noise, room.last
        else:
            learner.moments.first[:] = room.first
            if room.second.size:
                learner.moments.second[:] = room.second

    def to_bytes(self, everything: bool = False) -> bytes:
        """Return what its C learner would save here, for `net_restore` and `meshnn.export.snapshot.import_snapshot`.

        `everything` also has states, influences and what the learner remembers, not only parameters and scaling.
        """
        return write_snapshot(self, everything)

    def to_c(self, path: str | PathLike[str], name: str = "net") -> None:
        """Write a C header with a learner that goes on from here, bit by bit; see `meshnn.export.c.learner`.

        `name` begins the names of its functions: `net_init`, `net_step`, `net_learn` ...
        """
        write_whole(path, [learner_header(self, name).encode()])

    # -- how it runs ---------------------------------------------------------------------------------------------

    @cached_property
    def _structs(self) -> tuple[Any, Any]:
        return _core.Struct("PortableNet", vars(self.net), "f"), _core.Struct("PortableState", vars(self.room), "f")

    def __getstate__(self) -> Tree:
        return {name: value for name, value in self.__dict__.items() if name != "_structs"}

    def refresh(self) -> None:
        """Read the parameters of the mesh again, after they were changed elsewhere."""
        self.room.theta[:] = self._given

    def _call(self, mode: int, X: Array, Y: Array, delay: int, out: Array) -> None:
        runs, learns = mode & (code.Mode.ADVANCE | code.Mode.PEEK), mode & (code.Mode.LEARN | code.Mode.DERIVE)
        net, state = self._structs
        X, Y, out = (part[:, 0] for part in (X, Y, out))
        try:
            _core.portable(
                net, state, self.rule, mode, X if runs else None, Y if learns else None, out if runs else None
            )
        finally:
            if mode & code.Mode.LEARN:
                self._given[:] = self.room.theta


def portable_of(model: Any, learner: str | None = None, **settings: Any) -> PortableStream:
    """A trained model as a stream that goes on learning, and can be written as C; the model stays as it is.

    Parameters
    ----------
    model : Mesh, MeshStreamClassifier, MeshStreamRegressor, MeshClassifier, MeshRegressor, or one of sequences
        A stream goes on as it is, if no other learner is named. Of trained models features and targets are scaled as
        they were in training, and from there on by what comes. Those of sequences must be read at every step.
    learner : "adam", "sgd" or "ekf", optional
        By default that of the model; else "ekf" up to 316 parameters, beyond which its covariance takes more than
        200 kB, then "adam".
    **settings
        Of the learner, as in `Mesh.stream`. A filter goes on from what training says about the parameters, as
        `predict(X, return_std=True)` does; where that is not known, it is as sure as if each had a variance of 0.01.
    """
    known, chosen, moments = getattr(model, "stream_", None), dict[str, Any](), None
    if isinstance(known, Stream):
        if not settings and learner in (None, known.learner.name):
            return PortableStream(known)
        mesh, loss, moments = model.mesh_, known.loss.name, (known.room.x_moments, known.room.y_moments)
        chosen = {"memory": known.memory, "ticks_per_sample": known.ticks_per_sample, "scale": known.scale}
    elif hasattr(model, "preprocessing_") and hasattr(model, "mesh_"):
        mesh, loss, scaling = model.mesh_, model.loss_, model.preprocessing_.scaling
        moments = (_as_moments(scaling.x_mean, scaling.x_scale), _as_moments(scaling.y_mean, scaling.y_scale))
        chosen = {"scale": True} | _in_time(model)
    elif hasattr(model, "stream") and hasattr(model, "values"):
        mesh, loss = model, "squared_error"
    else:
        raise MeshError(
            f"{type(model).__name__} is no model that goes on learning from single rows; "
            "make a stream of its net yourself: model.mesh_.stream(portable=True)"
        )
    if learner is None:
        learner = "ekf" if mesh.n_parameters**2 <= LIMITS.full_covariance else "adam"
    if learner == "ekf":
        settings = {"covariance": "full"} | settings
    stream = mesh.stream(loss, learner, **chosen, **settings)
    if moments is not None:
        if isinstance(stream.learner, KalmanLearner):
            _trust(stream.learner, getattr(model, "_laplace", None), mesh.live_parameters())
        stream.room.x_moments[:] = moments[0]
        if stream.room.y_moments.size:
            stream.room.y_moments[:] = moments[1]
    return PortableStream(stream)


def _in_time(model: Any) -> dict[str, Any]:
    """Whether a trained model remembers, and for how many ticks it looks at a sample."""
    reading = getattr(model.preprocessing_, "reading", None)
    if reading is None:
        return {"memory": "none"}
    if reading.readout != "all" or reading.delay:
        raise MeshError(
            f'it reads sequences (readout="{reading.readout}", delay={reading.delay}); a stream learns at every step, '
            'so only readout="all" without a delay can go on learning'
        )
    return {"memory": "carry", "ticks_per_sample": reading.per_step}


def _trust(learner: KalmanLearner, known: Any, live: IntArray) -> None:
    """Let a filter know what training has found: the covariance of the parameters and the noise, if there is one."""
    P = np.eye(len(learner.group)) * LIMITS.trained * learner.settings.p0
    if known is not None and not isinstance(known, str) and not known.last_layer:
        (root,) = known.roots
        P[np.ix_(live, live)] = known.noise.mean() * (root.T @ root)
        memo, C = learner.filter.memo, learner.n_outputs
        memo[code.Memo.NOISE : code.Memo.NOISE + C] = np.maximum(known.noise, learner.filter.noise_floor)
        memo[code.Memo.SAMPLES] = LIMITS.noise_samples  # the noise is known that well
    learner.set_covariance(P)


def _as_moments(mean: Any, scale: Any) -> Array:
    """Of numbers of which as many were seen as count in the long run."""
    found = np.zeros((code.MomentRow.ALL, len(mean)))
    found[code.MomentRow.COUNT] = LIMITS.trained_samples
    found[code.MomentRow.MEAN], found[code.MomentRow.VARIANCE] = mean, np.square(scale)
    return found

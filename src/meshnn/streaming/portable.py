"""`PortableStream`: a stream in float32 that computes the same bits on every machine, also in C without a library.

One C source has the mathematics. The compiled core runs it, and `to_c(learn=True)` writes it into headers.
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
    """A net on one stream in strict float32, made by `Mesh.stream(portable=True)` or `Stream.portable`.

    It has the interface of a `Stream` with one stream, the exact influence and no delayed targets. The filter has one
    covariance and no replay. For classes, it learns the margin of the right class over the others.

    It continues from the current state of a stream: parameters, states, influences, moments or covariance, and scaling.
    Samples that a filter stores for replay are not copied.

    Parameters
    ----------
    stream : Stream
        One exact stream without delay, such as `model.stream_` of a `MeshStreamClassifier` or `Regressor`.
    values : (n_parameters,), optional
        The parameters of a mesh, which are updated in place. By default the stream has its own copy.

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
                'a portable stream needs n_streams=1, method="exact" and delay=0; '
                f"got n_streams={stream.n_streams}, method={stream.method!r}, delay={stream.delay}"
            )
        losses = code.LossCode
        if stream.loss.code not in (losses.SQUARED_ERROR, losses.BINARY_CROSS_ENTROPY, losses.CROSS_ENTROPY):
            names = "squared_error, binary_cross_entropy and cross_entropy"
            raise MeshError(f"a portable stream supports the losses {names}, got {stream.loss.name!r}")
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
                raise MeshError(f"{name} of the stream has numbers outside of the range of float32; scale the data")

    def jacobian(self) -> Array:
        """Return the derivatives of the outputs of the last sample by all parameters `(1, n_outputs, n_parameters)`."""
        return self.influences()[: self.ties.n_parameters, -self.topology.n_outputs :].T[None].copy()

    def influences(self) -> Array:
        """Return the derivatives of all neurons by all weights `(n_weights, n_neurons)`; 0 for fixed weights."""
        found = np.zeros((self.ties.n_numbers, self.topology.n_neurons), np.float32)
        for members, rows, place in blocks_of(self.net):
            block = self.room.J[place].reshape(len(members), len(rows))
            found[np.ix_(members, rows + self.topology.n_clamped)] = block
        return found

    def set_influences(self, whole: Array) -> None:
        """Set the derivatives `(n_weights, n_neurons)`."""
        for members, rows, place in blocks_of(self.net):
            self.room.J[place] = whole[np.ix_(members, rows + self.topology.n_clamped)].ravel()

    # -- state ---------------------------------------------------------------------------------------------------

    @property
    def left_out(self) -> int:
        """The number of updates that were skipped because they were not finite."""
        return int(self.room.clock[code.ClockPlace.LEFT_OUT])

    @property
    def state(self) -> Array:
        """The states of all neurons `(n_neurons,)`; can be set."""
        return np.asarray(self.room.s)

    @property
    def parameters(self) -> Array:
        """A copy of the current parameters `(n_parameters,)`."""
        return np.array(self.room.theta[: self.ties.n_parameters])

    def covariance(self) -> Array:
        """Return P of a filter `(n_parameters, n_parameters)`."""
        if not self.learner.filters:
            raise MeshError(f'only learner="ekf" has a covariance, got {self.learner.name!r}')
        n = self.ties.n_parameters
        upper = np.zeros((n, n), np.float32)
        upper[np.triu_indices(n)] = self.room.P
        return upper + np.triu(upper, 1).T

    def _limits(self) -> dict[str, tuple[Any, Any]]:
        limits = self.learner.limits(self.dtype)
        limits["theta"] = limits.pop("values")
        # number of samples, q and a mean square of a filter, or powers of Adam's betas
        most = max(self.room.memo[1], self.rule[11]) * 1.001
        limits["memo"] = (0.0, np.array([2.0**53, most, 1e38]) if self.learner.filters else 1.0)
        return limits

    def _restored(self) -> None:
        self._given[:] = self.room.theta

    def into_stream(self, stream: Stream) -> None:
        """Copy the state into a stream of the same net; influences of tied parameters are reset."""
        room, old, learner, N = self.room, stream.room, stream.learner, stream.ties.n_parameters
        if self.learner.name != learner.name or self.scale != stream.scale:
            raise MeshError(f"the learner is {learner.name!r}, that of the portable stream {self.learner.name!r}")
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
        """Return the snapshot that a C learner in this state saves, for `net_restore` and `import_snapshot`.

        With `everything`, it includes states, influences and the learner's state besides parameters and scaling.
        """
        return write_snapshot(self, everything)

    def to_c(self, path: str | PathLike[str], name: str = "net") -> None:
        """Write a C header with a learner that continues exactly from this state; see `meshnn.export.c.learner`.

        `name` is the prefix of its functions: `net_init`, `net_step`, `net_learn` ...
        """
        write_whole(path, [learner_header(self, name).encode()])

    # -- execution -----------------------------------------------------------------------------------------------

    @cached_property
    def _structs(self) -> tuple[Any, Any]:
        return _core.Struct("PortableNet", vars(self.net), "f"), _core.Struct("PortableState", vars(self.room), "f")

    def __getstate__(self) -> Tree:
        return {name: value for name, value in self.__dict__.items() if name != "_structs"}

    def refresh(self) -> None:
        """Copy the parameters of the mesh again, after another program part changed them."""
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
    """Return a portable stream that continues to train a model and can be exported to C.

    Parameters
    ----------
    model : Mesh, MeshStreamClassifier, MeshStreamRegressor, MeshClassifier, MeshRegressor, or one of sequences
        A copy is trained; the model is not changed. A stream continues in its state unless another learner is named.
        For trained models, features and targets are scaled as in training at first, then by the samples of the stream.
        Sequence models must be read at every step (readout="all").
    learner : "adam", "sgd" or "ekf", optional
        By default that of the model, or "ekf" up to 316 parameters, beyond which its covariance takes over 200 kB, then
        "adam".
    **settings
        Settings of the learner, as in `Mesh.stream`. A filter starts from the posterior of the parameters that
        `predict(X, return_std=True)` uses; if there is none, every parameter has the variance 0.01.
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
            f"{type(model).__name__} cannot continue to learn from single rows; "
            "make a stream of its net: model.mesh_.stream(portable=True)"
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
    """Return the memory and the ticks per sample of a trained model."""
    reading = getattr(model.preprocessing_, "reading", None)
    if reading is None:
        return {"memory": "none"}
    if reading.readout != "all" or reading.delay:
        raise MeshError(
            f'the model has readout="{reading.readout}" and delay={reading.delay}; a stream learns at every step, '
            'so that it needs readout="all" and delay=0'
        )
    return {"memory": "carry", "ticks_per_sample": reading.per_step}


def _trust(learner: KalmanLearner, known: Any, live: IntArray) -> None:
    """Set the covariance and the noise of a filter from the results of training, if there are any."""
    P = np.eye(len(learner.group)) * LIMITS.trained * learner.settings.p0
    if known is not None and not isinstance(known, str) and not known.last_layer:
        (root,) = known.roots
        P[np.ix_(live, live)] = known.noise.mean() * (root.T @ root)
        memo, C = learner.filter.memo, learner.n_outputs
        memo[code.Memo.NOISE : code.Memo.NOISE + C] = np.maximum(known.noise, learner.filter.noise_floor)
        memo[code.Memo.SAMPLES] = LIMITS.noise_samples  # weight of the noise estimate
    learner.set_covariance(P)


def _as_moments(mean: Any, scale: Any) -> Array:
    """Return moments as if the maximum effective number of samples had been seen."""
    found = np.zeros((code.MomentRow.ALL, len(mean)))
    found[code.MomentRow.COUNT] = LIMITS.trained_samples
    found[code.MomentRow.MEAN], found[code.MomentRow.VARIANCE] = mean, np.square(scale)
    return found

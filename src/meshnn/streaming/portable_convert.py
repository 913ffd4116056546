"""A stream in float32 from one in float64, and back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshnn.codes import Memo, MomentRow, PortableMemo
from meshnn.errors import MeshError
from meshnn.streaming.kalman import FULL_COST
from meshnn.streaming.learners import KalmanLearner
from meshnn.streaming.stream import Stream

if TYPE_CHECKING:
    from meshnn.streaming.portable import PortableStream

__all__ = ["into_stream", "portable_from", "portable_of"]

#: Share of the first variance that trained parameters have, if nothing else is known of them.
TRAINED = 0.01


def portable_from(stream: Stream) -> PortableStream:
    """Where a stream is, in float32."""
    from meshnn.streaming.portable import PortableStream

    if stream.n_streams != 1 or stream.hops is not None or stream.delay:
        raise MeshError(
            'a portable stream is one (n_streams=1), exact (method="exact") and learns in time (delay=0); '
            f"this one has n_streams={stream.n_streams}, method={stream.method!r}, delay={stream.delay}"
        )
    found = PortableStream(
        stream.topology, stream.codes, stream.ties, stream.values.astype(np.float32), loss=stream.loss.name,
        learner=stream.learner, ticks_per_sample=stream.ticks_per_sample, memory=stream.memory, scale=stream.scale,
    )  # fmt: skip
    room, old, learner = found.room, stream.room, stream.learner
    room.s[:] = old.s[0]
    whole = np.zeros((stream.ties.n_numbers, stream.topology.n_neurons))
    np.add.at(whole, stream.ties.number, stream.influences())
    found.set_influences(whole)
    room.x_moments[:] = old.x_moments.ravel()
    room.y_moments[:] = old.y_moments.ravel()
    room.clock[:] = old.clock[: len(room.clock)]
    if isinstance(learner, KalmanLearner):
        memo, C = learner.filter.memo, stream.topology.n_outputs
        room.P[:] = learner.known.covariance()[np.triu_indices(stream.ties.n_parameters)]
        room.memo[:] = memo[Memo.SAMPLES], math.exp(memo[Memo.LOG_Q]), memo[Memo.MEAN_SQUARE]
        room.noise[:] = memo[Memo.NOISE : Memo.NOISE + C]
        room.last[:] = memo[Memo.NOISE + C :]
    else:
        m = learner.moments
        room.first[:] = m.first
        if learner.name == "adam":
            room.second[:] = m.second
            room.memo[:2] = m.beta1**stream.learned, m.beta2**stream.learned
    for name in ("theta", "s", "J", "first", "second", "P", "last", "noise", "memo", "x_moments", "y_moments"):
        if not np.isfinite(getattr(room, name)).all():
            raise MeshError(f"{name} of the stream has numbers that float32 does not hold; scale the data before")
    return found


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
    stream = getattr(model, "stream_", None)
    if isinstance(stream, Stream):
        if not settings and learner in (None, stream.learner.name):
            return portable_from(stream)
        mesh, moments = model.mesh_, (stream.room.x_moments, stream.room.y_moments)
        chosen = {"memory": stream.memory, "ticks_per_sample": stream.ticks_per_sample, "scale": stream.scale}
        loss = stream.loss.name
    elif hasattr(model, "preprocessing_") and hasattr(model, "mesh_"):
        mesh, loss, scaling = model.mesh_, model.loss_, model.preprocessing_.scaling
        moments = (_as_moments(scaling.x_mean, scaling.x_scale), _as_moments(scaling.y_mean, scaling.y_scale))
        chosen = {"scale": True} | _in_time(model)
    elif hasattr(model, "stream") and hasattr(model, "values"):
        return _detached(model.stream(learner=learner or _suiting(model), portable=True, **settings))
    else:
        raise MeshError(
            f"{type(model).__name__} is no model that goes on learning from single rows; "
            "make a stream of its net yourself: model.mesh_.stream(portable=True)"
        )
    found = _detached(mesh.stream(loss, learner or _suiting(mesh), portable=True, **chosen, **settings))
    if found.learner.filters:
        _trust(found, getattr(model, "_laplace", None))
    found.room.x_moments[:] = moments[0].ravel()
    if found.room.y_moments.size:
        found.room.y_moments[:] = moments[1].ravel()
    return found


def _suiting(mesh: Any) -> str:
    """The learner of a net that has none yet."""
    return "ekf" if mesh.n_parameters**2 <= FULL_COST else "adam"


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


def _detached(stream: PortableStream) -> PortableStream:
    """With parameters of its own."""
    stream._given = stream._given.copy()
    return stream


def _trust(found: PortableStream, known: Any) -> None:
    """A filter that knows what training has found: the covariance of the parameters and the noise, if there is one."""
    n = found.ties.n_parameters
    P = np.eye(n) * TRAINED * np.float64(found.room.P[0])
    if hasattr(known, "root"):
        P[np.ix_(known.live, known.live)] = known.noise.mean() * (known.root.T @ known.root)
        found.room.noise[:] = np.maximum(known.noise, found.rule[8])
        found.room.memo[PortableMemo.SAMPLES] = 100  # the noise is known that well
    found.room.P[:] = P[np.triu_indices(n)]


def _as_moments(mean: Any, scale: Any) -> NDArray[np.float64]:
    """Of numbers of which as many were seen as count in the long run."""
    found = np.zeros((MomentRow.ALL, len(mean)))
    found[0] = 2000.0
    found[MomentRow.MEAN], found[MomentRow.VARIANCE] = mean, np.square(scale)
    return found


def into_stream(found: PortableStream, stream: Stream) -> None:
    """Let a stream of the same net go on where the portable one is; of tied parameters influences begin anew."""
    room, old, learner, N = found.room, stream.room, stream.learner, stream.ties.n_parameters
    if found.learner.name != learner.name or found.scale != stream.scale:
        raise MeshError(f"the stream learns by {learner.name!r}, what is to go on in it by {found.learner.name!r}")
    stream.values[:N] = room.theta[:N]
    stream._given[:N] = stream.values[:N]
    stream.refresh()
    old.s[0] = room.s
    nothing = np.zeros((stream.topology.n_edges, stream.topology.n_neurons))
    stream.set_influences(found.influences() if stream.ties.plain else nothing)
    old.x_moments[:] = room.x_moments.reshape(old.x_moments.shape)
    old.y_moments[:] = room.y_moments.reshape(old.y_moments.shape)
    old.clock[: len(room.clock)] = room.clock
    if isinstance(learner, KalmanLearner):
        memo, C = learner.filter.memo, stream.topology.n_outputs
        learner.known.set_covariance(found.covariance().astype(np.float64))
        memo[Memo.SAMPLES], memo[Memo.MEAN_SQUARE] = room.memo[PortableMemo.SAMPLES], room.memo[PortableMemo.SQUARE]
        memo[Memo.LOG_Q] = math.log(room.memo[PortableMemo.Q]) if room.memo[PortableMemo.Q] > 0 else -math.inf
        memo[Memo.NOISE : Memo.NOISE + C] = room.noise
        memo[Memo.NOISE + C :] = room.last
    else:
        learner.moments.first[:] = room.first
        if room.second.size:
            learner.moments.second[:] = room.second

"""A trained model as a portable stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.codes import MEAN, MEMO_SAMPLES, MOMENT_COUNT, MOMENT_ROWS, VARIANCE
from meshnn.errors import MeshError
from meshnn.streaming.portable import PortableStream
from meshnn.streaming.state import LIMITS
from meshnn.streaming.stream import Stream

__all__ = ["portable_of"]


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
            return PortableStream.from_stream(stream)
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
    return "ekf" if mesh.n_parameters**2 <= LIMITS.full_covariance else "adam"


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
    P = np.eye(n) * LIMITS.trained * np.float64(found.room.P[0])
    if hasattr(known, "root"):
        P[np.ix_(known.live, known.live)] = known.noise.mean() * (known.root.T @ known.root)
        found.room.noise[:] = np.maximum(known.noise, found.rule[8])
        found.room.memo[MEMO_SAMPLES] = LIMITS.noise_samples  # the noise is known that well
    found.room.P[:] = P[np.triu_indices(n)]


def _as_moments(mean: Any, scale: Any) -> Array:
    """Of numbers of which as many were seen as count in the long run."""
    found = np.zeros((MOMENT_ROWS, len(mean)))
    found[MOMENT_COUNT] = LIMITS.trained_samples
    found[MEAN], found[VARIANCE] = mean, np.square(scale)
    return found

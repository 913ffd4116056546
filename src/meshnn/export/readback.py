"""What a learner in C has learned, back in the model that it came from."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from meshnn.errors import DataError
from meshnn.export.blob import EVERYTHING, SECTIONS, Blob, graph_checksum, read_blob

__all__ = ["read_back"]


def read_back(content: bytes, model: Any, shown: str = "what was saved") -> Blob:
    """Take the bytes that `net_save` wrote into a model of the same net.

    Parameters
    ----------
    content : bytes
    model : PortableStream, Mesh, or a model that holds one
        It gets the parameters, and the scaling of features and targets if both have one. A portable stream, and a model
        of streams with the same learner, get all that was saved.
    shown : str
        What errors call the bytes.

    Returns
    -------
    Blob
        What was in them. Nothing has changed if there is an error.
    """
    blob = read_blob(content, shown)
    if hasattr(model, "net") and hasattr(model, "room"):
        _check(blob, model.topology, model.codes, model.ties, shown)
        _into_portable(blob, model, shown, not blob.everything)
        return blob
    stream, mesh = getattr(model, "stream_", None), getattr(model, "mesh_", model)
    if mesh is None or not hasattr(mesh, "topology"):
        raise DataError(
            f"a {type(model).__name__} has no net that {shown} could belong to; name the model that the header was "
            "written from"
        )
    _check(blob, mesh.topology, mesh._codes, mesh._ties, shown)
    if stream is not None:
        portable = stream.portable()
        before = portable.samples
        same = blob.learner == portable.learner.name
        _into_portable(blob if same else blob._replace(everything=False), portable, shown, not blob.everything)
        portable.into_stream(stream)
        model.n_samples_ = max(0, model.n_samples_ + blob.samples - before)
        return blob
    preprocessing = getattr(model, "preprocessing_", None)
    if preprocessing is not None:
        outputs = mesh.topology.n_outputs if model.loss_ == "squared_error" else 0
        scaling = _rescaled(preprocessing.scaling, blob, mesh.topology.n_inputs, outputs, shown)
        model.preprocessing_ = dataclasses.replace(preprocessing, scaling=scaling)
    mesh.values[: blob.n_parameters] = blob.numbers[: blob.n_parameters]
    return blob


def _check(blob: Blob, topology: Any, codes: Any, ties: Any, shown: str) -> None:
    if blob.n_parameters != ties.n_parameters:
        raise DataError(
            f"{shown} has {blob.n_parameters} parameters, this net {ties.n_parameters}; name the model it was made from"
        )
    if blob.graph != graph_checksum(topology, codes, ties.number, ties.n_parameters):
        raise DataError(f"{shown} is of a net with other edges or activations; name the model it was made from")


def _into_portable(blob: Blob, stream: Any, shown: str, short: bool) -> None:
    """All sections, if their lengths are those of the stream; `short` if there is nothing behind the scaling."""
    arrays = {name: getattr(stream.room, name) for name in EVERYTHING}
    arrays["theta"] = arrays["theta"][: blob.n_parameters]
    names = EVERYTHING if blob.everything else SECTIONS
    wanted = sum(arrays[name].size for name in names)
    if blob.everything and (blob.learner != stream.learner.name or wanted != blob.numbers.size):
        raise DataError(
            f"{shown} was saved by another learner ({blob.learner}) than {stream.learner.name}, or with another scaling"
        )
    if wanted > blob.numbers.size or (short and wanted != blob.numbers.size):
        raise DataError(
            f"{shown} has {blob.numbers.size} parameters and numbers for scaling, this net {wanted}: it is of a model "
            "with another scaling of features or targets; name the model it was made from"
        )
    at = 0
    for name in names:
        size = arrays[name].size
        arrays[name][:] = blob.numbers[at : at + size]
        at += size
    stream.room.clock[:2] = blob.samples, blob.learned
    stream._given[:] = stream.room.theta


def _rescaled(scaling: Any, blob: Blob, n_inputs: int, outputs: int, shown: str) -> Any:
    """Means and deviations of now; of what never varied those of before."""
    x, y = np.split(blob.numbers[blob.n_parameters :], [7 * n_inputs])
    y = y[: 7 * outputs]
    if len(x) != 7 * n_inputs or len(y) != 7 * outputs:
        raise DataError(f"{shown} has no scaling, which this model has; name the model it was made from")
    found = {}
    for name, part in (("x", x), ("y", y)):
        if part.size:
            mean, variance = part.reshape(7, -1)[1:3].astype(np.float64)
            varied = variance > 0
            found[f"{name}_mean"] = np.where(varied, mean, getattr(scaling, f"{name}_mean"))
            found[f"{name}_scale"] = np.where(varied, np.sqrt(variance), getattr(scaling, f"{name}_scale"))
    return dataclasses.replace(scaling, **found)

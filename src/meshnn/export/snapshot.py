"""Snapshots: the bytes that a learner in C saves, and their import into the model from which its header was written.

    0   4 bytes  "MNNL"                            16  checksum of the graph, see `graph_checksum`
    4   version                                    20  number of parameters
    8   1 if everything was saved, else 0          24  samples seen
    12  learner: 0 adam, 1 sgd, 2 ekf              28  updates made
    32  float32 numbers: parameters, then moments of inputs and targets if they are scaled; if everything was saved,
        also states, influences and the memory of the learner
    then CRC-32 of all bytes before

All numbers have four bytes, little-endian.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError

#: The first bytes and the version of the format.
MAGIC, VERSION = b"MNNL", 1
#: Arrays in the order of the file, without those that the learner does not have; the first three are always saved.
SECTIONS = ("theta", "x_moments", "y_moments", "s", "J", "first", "second", "P", "last", "noise", "memo")
LEARNERS = ("adam", "sgd", "ekf")


class Snapshot(NamedTuple):
    """The content of a snapshot."""

    everything: bool
    learner: str
    graph: int
    n_parameters: int
    samples: int
    learned: int
    numbers: NDArray[np.float32]  # all sections


def graph_checksum(topology: Any, codes: Any, ties: Any) -> int:
    """Return a checksum of the neurons, activations, edges and ties, which define the meaning of each parameter."""
    sizes = [topology.n_inputs, topology.n_clamped, topology.n_outputs, topology.n_neurons, ties.n_parameters]
    parts = [np.asarray(part, "<i4") for part in (sizes, codes, topology.src, topology.dst, ties.number)]
    return zlib.crc32(b"".join(part.tobytes() for part in parts))


def write_snapshot(stream: Any, everything: bool) -> bytes:
    """Return the bytes that the C learner of a portable stream would save at this point of the stream."""
    clock, graph = stream.room.clock, graph_checksum(stream.topology, stream.codes, stream.ties)
    kind, n = LEARNERS.index(stream.learner.name), stream.ties.n_parameters
    head = np.array([VERSION, everything, kind, graph, n, clock[0], clock[1]], "<u4")
    numbers = np.concatenate(list(section_arrays(stream, everything).values()))
    content = MAGIC + head.tobytes() + numbers.astype("<f4").tobytes()
    return content + zlib.crc32(content).to_bytes(4, "little")


def section_arrays(stream: Any, everything: bool) -> dict[str, NDArray[np.float32]]:
    """Return the arrays of a portable stream that a snapshot contains, by name."""
    found = {name: getattr(stream.room, name) for name in (SECTIONS if everything else SECTIONS[:3])}
    found["theta"] = found["theta"][: stream.ties.n_parameters]
    return found


def read_snapshot(content: bytes, shown: str = "the snapshot") -> Snapshot:
    """Return the content of a snapshot, checked for version and integrity; `shown` is its name in errors."""
    words = np.frombuffer(content[: len(content) // 4 * 4], "<u4")
    if content[:4] != MAGIC:
        raise DataError(f"{shown} is not a snapshot of a learner in C; pass the bytes that net_save wrote")
    if len(content) < 40 or len(content) % 4 or words[5] > len(words) - 9:
        raise DataError(
            f"{shown} has {len(content)} bytes, which is not a length that net_save returns; copy exactly the bytes "
            "that it wrote"
        )
    version, everything, kind, graph, n_parameters, samples, learned = words[1:8].tolist()
    if version != VERSION or everything > 1 or kind >= len(LEARNERS):
        raise DataError(
            f"{shown} has format version {version}, but this meshnn reads version {VERSION}; export the header again"
        )
    if zlib.crc32(content[:-4]) != int(words[-1]):
        raise DataError(f"{shown} is truncated or damaged: its checksum does not match; save it again")
    numbers = np.frombuffer(content[32:-4], "<f4").astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        raise DataError(f"number {wrong[0]} of {shown} is {numbers[wrong[0]]}, expected a finite number; save it again")
    return Snapshot(bool(everything), LEARNERS[kind], graph, n_parameters, samples, learned, numbers)


def import_snapshot(content: bytes, model: Any, shown: str = "the snapshot") -> Snapshot:
    """Load the bytes that `net_save` wrote into a model of the same net; return their content.

    The model (a PortableStream, a Mesh, or a model that has one of these) receives the parameters, and the scaling of
    features and targets if both have one. A PortableStream and a stream model with the same learner receive everything
    that was saved. After an error the model is unchanged. `shown` is the name of the bytes in errors.
    """
    snapshot = read_snapshot(content, shown)
    stream, mesh = getattr(model, "stream_", None), getattr(model, "mesh_", model)
    portable = model if hasattr(model, "net") and hasattr(model, "room") else stream and stream.portable()
    net = portable or (mesh if hasattr(mesh, "topology") else None)
    if net is None:
        raise DataError(
            f"{type(model).__name__} has no net to load {shown} into; pass the model from which the header was written"
        )
    if snapshot.n_parameters != net.ties.n_parameters:
        raise DataError(
            f"{shown} has {snapshot.n_parameters} parameters, but the net has {net.ties.n_parameters}; pass the model "
            "from which the header was written"
        )
    codes = mesh._codes if portable is None else portable.codes
    if snapshot.graph != graph_checksum(net.topology, codes, net.ties):
        raise DataError(
            f"{shown} is from a net with other edges or activations; pass the model from which the header was written"
        )
    if portable is not None:
        before = portable.samples
        _into_portable(snapshot, portable, shown, other_learner=portable is not model)
        if stream is not None:
            portable.into_stream(stream)
            model.n_samples_ = max(0, model.n_samples_ + snapshot.samples - before)
        return snapshot
    preprocessing = getattr(model, "preprocessing_", None)
    if preprocessing is not None:
        outputs = mesh.topology.n_outputs if model.loss_ == "squared_error" else 0
        scaling = _rescaled(preprocessing.scaling, snapshot, mesh.topology.n_inputs, outputs, shown)
        model.preprocessing_ = dataclasses.replace(preprocessing, scaling=scaling)
    mesh.values[: snapshot.n_parameters] = snapshot.numbers[: snapshot.n_parameters]
    return snapshot


def _into_portable(snapshot: Snapshot, stream: Any, shown: str, other_learner: bool) -> None:
    """Copy all sections if their lengths match; from another learner, copy only the parameters and the scaling."""
    same = snapshot.learner == stream.learner.name
    everything = snapshot.everything and (same or not other_learner)
    arrays = section_arrays(stream, everything).values()
    ends = np.cumsum([array.size for array in arrays])
    wanted, found = int(ends[-1]), snapshot.numbers.size
    if everything and (not same or wanted != found):
        raise DataError(
            f"{shown} was saved by the learner {snapshot.learner}, not {stream.learner.name}, or with another scaling; "
            "pass the model from which the header was written"
        )
    if wanted > found or (not snapshot.everything and wanted != found):
        raise DataError(
            f"{shown} has {found} numbers, but this net needs {wanted}: the scaling of features or targets differs; "
            "pass the model from which the header was written"
        )
    for array, end in zip(arrays, ends.tolist(), strict=True):
        array[:] = snapshot.numbers[end - array.size : end]
    stream.room.clock[:2] = snapshot.samples, snapshot.learned
    stream._given[:] = stream.room.theta


def _rescaled(scaling: Any, snapshot: Snapshot, n_inputs: int, outputs: int, shown: str) -> Any:
    """Return the scaling with the means and deviations of the snapshot; columns that never varied keep their own."""
    x, y = np.split(snapshot.numbers[snapshot.n_parameters :], [7 * n_inputs])
    y = y[: 7 * outputs]
    if len(x) != 7 * n_inputs or len(y) != 7 * outputs:
        raise DataError(
            f"{shown} has no scaling, but this model has one; pass the model from which the header was written"
        )
    found = {}
    for name, part in (("x", x), ("y", y)):
        if part.size:
            mean, variance = part.reshape(7, -1)[1:3].astype(np.float64)
            varied = variance > 0
            found[f"{name}_mean"] = np.where(varied, mean, getattr(scaling, f"{name}_mean"))
            found[f"{name}_scale"] = np.where(varied, np.sqrt(variance), getattr(scaling, f"{name}_scale"))
    return dataclasses.replace(scaling, **found)

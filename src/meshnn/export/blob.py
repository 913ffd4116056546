"""The bytes that a learner in C saves, and which net they belong to.

    0   4 bytes  "MNNL"                            16  checksum of the graph, see `graph_checksum`
    4   version                                    20  number of parameters
    8   1 if everything was saved, else 0          24  samples seen
    12  learner: 0 adam, 1 sgd, 2 ekf              28  updates made
    32  float32 numbers: parameters, moments of inputs and targets if they are scaled; and if it is everything states,
        influences, and what the learner remembers
    then CRC-32 of all bytes before

All numbers have four bytes, the lowest first.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError

__all__ = ["EVERYTHING", "MAGIC", "SECTIONS", "VERSION", "Blob", "graph_checksum", "kind_of", "read_blob", "write_blob"]

MAGIC = b"MNNL"
VERSION = 1
#: What is saved in any case, and all that is, in this order; what a learner does not have is left out.
SECTIONS = ("theta", "x_moments", "y_moments")
EVERYTHING = (*SECTIONS, "s", "J", "first", "second", "P", "last", "noise", "memo")
_KINDS = ("adam", "sgd", "ekf")
_HEAD = 32


class Blob(NamedTuple):
    """What was saved."""

    everything: bool
    learner: str
    graph: int
    n_parameters: int
    samples: int
    learned: int
    numbers: NDArray[np.float32]  # all sections


def kind_of(learner: str) -> int:
    """The number of a learner."""
    return _KINDS.index(learner)


def graph_checksum(topology: Any, codes: Any, number: Any, n_parameters: int) -> int:
    """Of neurons, activations, edges and ties: what decides where a parameter belongs."""
    sizes = [topology.n_inputs, topology.n_clamped, topology.n_outputs, topology.n_neurons, n_parameters]
    parts = [np.asarray(part, "<i4") for part in (sizes, codes, topology.src, topology.dst, number)]
    return zlib.crc32(b"".join(part.tobytes() for part in parts))


def write_blob(stream: Any, everything: bool) -> bytes:
    """What the C learner of a portable stream would save where the stream is, so that it can be restored there."""
    room, n = stream.room, stream.ties.n_parameters
    head = [VERSION, int(everything), kind_of(stream.learner.name)]
    head += [graph_checksum(stream.topology, stream.codes, stream.ties.number, n), n, *map(int, room.clock[:2])]
    parts = [MAGIC, np.array(head, "<u4").tobytes(), room.theta[:n].astype("<f4").tobytes()]
    parts += [getattr(room, name).astype("<f4").tobytes() for name in (EVERYTHING if everything else SECTIONS)[1:]]
    content = b"".join(parts)
    return content + zlib.crc32(content).to_bytes(4, "little")


def read_blob(content: bytes, shown: str = "what was saved") -> Blob:
    """The bytes, if they are whole and of a version that is known; `shown` stands for them in errors."""
    if len(content) < 4 or content[:4] != MAGIC:
        raise DataError(f"{shown} does not begin as what a learner in C saves; name the bytes that its save() wrote")
    if len(content) < 8 or int.from_bytes(content[4:8], "little") != VERSION:
        version = int.from_bytes(content[4:8], "little") if len(content) >= 8 else "none"
        raise DataError(f"{shown} is of version {version}, this meshnn reads version {VERSION}; write the header again")
    if len(content) < _HEAD + 8 or len(content) % 4:
        raise DataError(
            f"{shown} is cut, or has bytes behind its end: it has {len(content)}; save as many as net_save returns"
        )
    words = np.frombuffer(content, "<u4")
    if words[5] > len(words) - 9:
        raise DataError(
            f"{shown} is cut: it has {len(content)} bytes, {words[5]} parameters take {40 + 4 * int(words[5])} and more"
        )
    if zlib.crc32(content[:-4]) != int(words[-1]):
        raise DataError(f"{shown} is cut or altered: its checksum does not match; save it again")
    if words[2] > 1 or words[3] >= len(_KINDS):
        raise DataError(f"{shown} was saved by a learner that this meshnn does not know; upgrade meshnn")
    numbers = np.frombuffer(content[_HEAD:-4], "<f4").astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        raise DataError(f"number {wrong[0]} of {shown} is {numbers[wrong[0]]}: the learner has not saved this itself")
    return Blob(bool(words[2]), _KINDS[words[3]], int(words[4]), int(words[5]), int(words[6]), int(words[7]), numbers)

"""What a net says of sequences: run in time, read where the estimator reads, grouped as they came."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from meshnn.arguments import known, whole_number
from meshnn.arrays import Array, IntArray
from meshnn.estimators._scaling import Scaling
from meshnn.estimators._sequences import READOUTS, Ragged, as_sequences, grouped, padded, steps_read
from meshnn.export.blueprint import Blueprint, Timing
from meshnn.mesh import Mesh
from meshnn.net import MOST_TICKS

__all__ = ["Reading", "ReadsSequences"]

#: Numbers of inputs and outputs that are run at a time: bounds the memory that predicting takes.
BLOCK = 2**22
#: Ticks are rounded up to a multiple: an engine is made for each number of them, and held steps change nothing.
ROUND = 8


class Reading(NamedTuple):
    """How a net is read in time: fixed when it is built, whatever becomes of its graph and of parameters since."""

    readout: str
    per_step: int  # ticks that a step lasts for
    delay: int  # ticks from the last one of a step to the one after which it is read

    @classmethod
    def of(cls, readout: Any, per_step: Any, delay: Any) -> Reading:
        """From anywhere, checked."""
        ticks = whole_number("ticks", per_step, most=MOST_TICKS)
        return cls(known("readout", readout, READOUTS), ticks, whole_number("delay", delay, least=0, most=MOST_TICKS))

    def ticks(self, steps: int) -> int:
        """Of a sequence of so many steps."""
        return self.per_step * steps + self.delay

    def looks(self, X: Ragged) -> tuple[IntArray, IntArray]:
        """When outputs are read, and whose, see `steps_read`."""
        return steps_read(X.lengths, self.readout, self.per_step, self.delay)


class ReadsSequences:
    """Predicts from sequences; in front of a class that says what outputs mean."""

    mesh_: Mesh
    _scaling: Scaling
    n_features_in_: int
    n_threads: int | None
    reading_: Reading

    def blueprint(self) -> Blueprint:
        """What it computes, as plain values and arrays: what exports are written from."""
        timing = Timing(self.reading_.per_step, self.reading_.delay, self.reading_.readout)
        return replace(super().blueprint(), timing=timing)  # type: ignore[misc]  # of what it stands before

    # -- outputs -------------------------------------------------------------------------------------------------

    def _features(self, X: Any) -> Ragged:
        """Sequences as `fit` has seen them."""
        return as_sequences(X, self.n_features_in_)

    def _outputs(self, X: Any) -> Array:
        """What is read, `(n_samples, n_outputs)`; with readout="all" of all steps, `(n_rows, n_outputs)`."""
        X = self._features(X)
        inputs = X.like(self._scaling.inputs(X.data))
        order = np.argsort(X.lengths, kind="stable")  # those of about one length together
        topology = self.mesh_.topology
        found: dict[int, Array] = {}
        width, begin = topology.n_inputs + topology.n_outputs, 0
        while begin < len(order):
            end = begin + 1
            # more, as long as they fit: the longest comes last
            while end < len(order):
                ticks = self.reading_.ticks(int(X.lengths[order[end]]))
                if ticks * width * (end + 1 - begin) > BLOCK:
                    break
                end += 1
            part = order[begin:end]
            found.update(zip(part.tolist(), self._read(inputs[part]), strict=True))
            begin = end
        parts = [found[k] for k in range(len(order))]
        return np.concatenate(parts) if self.reading_.readout == "all" else np.stack(parts)

    def _read(self, X: Ragged) -> list[Array]:
        """Of each sequence, scaled, what is read of it."""
        reads, per_step = self.reading_.readout, self.reading_.per_step
        inputs = padded(X, -(-self.reading_.ticks(X.longest) // ROUND) * ROUND, per_step, self.mesh_.dtype)
        read = self.mesh_.forward(inputs, every_tick=True, n_threads=self.n_threads)[self.reading_.looks(X)]
        if reads == "last":
            return list(read)
        steps = [read[a:b] for a, b in zip(X.offsets[:-1], X.offsets[1:], strict=True)]
        if reads == "all":
            return steps
        return [step.mean(axis=0, dtype=np.float64).astype(read.dtype) for step in steps]

    def _answered(self, answers: Any, X: Ragged, given: Any) -> Any:
        """Answers to whole sequences as they are, those to all steps by sequence."""
        return grouped(answers, X, given) if self.reading_.readout == "all" else answers

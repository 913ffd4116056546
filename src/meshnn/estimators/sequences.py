"""Sequences: how their steps become ticks of a net, where outputs are read, and the graphs that suit them.

A step lasts for some ticks of the net, usually one. The last step is held for some more ticks (the delay), until it has
reached the outputs. Sequences of different lengths run side by side; outputs are read where each one ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from meshnn.arguments import known, switch, whole_number
from meshnn.arrays import Array, IntArray
from meshnn.errors import DataError, MeshError
from meshnn.estimators.builder import NetBuilder
from meshnn.estimators.preprocessing import CheckedSamples, Preprocessing
from meshnn.estimators.ragged import Ragged, as_sequences
from meshnn.estimators.scaling import Scaling, moments
from meshnn.export.blueprint import SequenceTiming
from meshnn.losses import Loss
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.net import MOST_TICKS
from meshnn.topology import Topology
from meshnn.topology.reach import NEVER, birth_ticks
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples
from meshnn.training.solvers import Choice
from meshnn.training.structure.runtime import as_policies

__all__ = ["READOUTS", "Reading", "SequenceBuilder", "SequencePreprocessing", "delay", "padded", "recurrent"]

#: Where the outputs are read: after the last step, as the mean over all steps, or after each step.
READOUTS = ("last", "mean", "all")
#: Numbers of inputs and outputs that are run at a time: bounds the memory of predictions.
BLOCK = 2**22


class Reading(NamedTuple):
    """How a net is read in time; fixed when it is built."""

    readout: str
    per_step: int  # ticks per step
    delay: int  # ticks from the last one of a step to the one after which it is read

    @classmethod
    def of(cls, readout: Any, per_step: Any, delay: Any) -> Reading:
        """Check values that may come from anywhere."""
        ticks = whole_number("ticks", per_step, most=MOST_TICKS)
        return cls(known("readout", readout, READOUTS), ticks, whole_number("delay", delay, least=0, most=MOST_TICKS))

    def ticks(self, steps: Any) -> Any:
        """Return the ticks of a sequence of so many steps, or of several."""
        return self.per_step * steps + self.delay

    def read_at(self, lengths: IntArray) -> tuple[IntArray, IntArray]:
        """Return the ticks (from 0) after which outputs are read, and the sequence that each belongs to."""
        if self.readout == "last":
            return self.ticks(lengths) - 1, np.arange(len(lengths))
        whose = np.repeat(np.arange(len(lengths)), lengths)
        step = np.arange(len(whose)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self.ticks(step + 1) - 1, whose


ONCE = Reading("last", 1, 0)


def padded(X: Ragged, ticks: int, per_step: int, dtype: Any = np.float64) -> Array:
    """Return inputs (ticks, n_samples, n_features); the last step of each sequence is held until the end."""
    n, features = X.shape
    needed = float(np.dtype(dtype).itemsize) * ticks * n * features
    check_fits(needed, f"{n:,} sequences, padded to {ticks:,} ticks,", "cut the longest sequences, or pass fewer")
    at = np.minimum(np.arange(ticks)[:, None] // per_step, X.lengths - 1) + X.offsets[:-1]
    with np.errstate(over="ignore"):  # infinite inputs are refused later, by name
        return X.data.astype(dtype, copy=False)[at]


@dataclass(frozen=True)
class SequencePreprocessing(Preprocessing):
    """How sequences become inputs per tick. Features are scaled by mean and spread of all steps."""

    reading: Reading = ONCE

    kind: ClassVar[str] = "sequence "

    @property
    def timing(self) -> SequenceTiming:
        """The reading as exports take it."""
        return SequenceTiming(self.reading.per_step, self.reading.delay, self.reading.readout)

    @classmethod
    def learn(cls, X: Any, max_categories: int, model: str, stream: bool = False) -> tuple[Self, Any]:
        """Return the preprocessing, which does not scale yet, and the checked sequences."""
        found = as_sequences(X)
        return cls(found.shape[1]), found

    def features(self, X: Any, model: str) -> Ragged:
        """Return checked sequences."""
        return as_sequences(X, self.n_features)

    def unchecked(self, X: Any) -> Ragged:
        """Return the sequences in one array."""
        return as_sequences(X, self.n_features)

    def accepts(self, X: Any) -> bool:
        """Return whether X can be used as it is."""
        return False

    def scaled(self, samples: CheckedSamples, loss: Loss, standardize: bool, activation: str) -> Self:
        """Return the preprocessing with a scaling learned from all steps of the training sequences."""
        wanted, (X, targets, weight) = switch("standardize", standardize), samples
        steps = isinstance(targets, Ragged)
        values, counts = (targets.data, targets.per_row(weight)) if steps else (targets, weight)
        found = Scaling.learn(np.zeros((len(values), 1)), values, counts, wanted, loss, activation)
        mean, spread = moments(X.data, X.per_row(weight)) if wanted else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
        x_scale = np.where(spread == 0, 1.0, spread)
        return replace(self, scaling=replace(found, x_mean=mean, x_scale=x_scale, x_constant=None))

    def rotated(self, samples: CheckedSamples) -> Self:
        """Return the same: steps are never more columns than rows."""
        return self

    def dataset(self, mesh: Mesh, samples: CheckedSamples, loss: Loss) -> InMemorySamples:
        """Return the sequences as the trainer takes them, padded to the ticks of the mesh."""
        X, targets, weight = samples
        inputs = padded(X.like(self.scaling.inputs(X.data)), mesh.ticks, self.reading.per_step, mesh.dtype)
        at, whose = self.reading.read_at(X.lengths)
        timing: dict[str, Any] = {}
        if isinstance(targets, Ragged):
            rows = self.scaling.targets(targets.data)
            outputs = np.zeros((mesh.ticks, len(X), *rows.shape[1:]), rows.dtype)
            mask = np.zeros((mesh.ticks, len(X)), np.bool_)
            outputs[at, whose], mask[at, whose] = rows, True
            timing = {"loss_ticks": mask}
        else:
            outputs = self.scaling.targets(targets)
            if self.reading.readout == "mean" or (at < mesh.ticks - 1).any():
                readout = np.zeros((mesh.ticks, len(X)))
                readout[at, whose] = 1.0 if self.reading.readout == "last" else 1.0 / X.lengths[whose]
                timing = {"readout": readout}
        found = as_samples(mesh, inputs, outputs, loss.name, weight, **timing)
        if isinstance(targets, Ragged) and targets.weight is not None:
            return _weighted(found, targets, weight, at, whose)
        return found

    def outputs(self, mesh: Mesh, features: Ragged, n_jobs: int | None) -> Array:
        """Return what is read: (n_samples, n_outputs), or with readout="all" (n_rows, n_outputs)."""
        inputs = features.like(self.scaling.inputs(features.data))
        order = np.argsort(features.lengths, kind="stable")  # sequences of about the same length run together
        width = mesh.topology.n_inputs + mesh.topology.n_outputs
        found: dict[int, Array] = {}
        begin = 0
        while begin < len(order):
            end = begin + 1
            while end < len(order):
                ticks = self.reading.ticks(int(features.lengths[order[end]]))
                if ticks * width * (end + 1 - begin) > BLOCK:
                    break
                end += 1
            part = order[begin:end]
            found.update(zip(part.tolist(), self._read(mesh, inputs[part], n_jobs), strict=True))
            begin = end
        parts = [found[k] for k in range(len(order))]
        return np.concatenate(parts) if self.reading.readout == "all" else np.stack(parts)

    def _read(self, mesh: Mesh, X: Ragged, n_jobs: int | None) -> list[Array]:
        """Return what is read of each of some scaled sequences."""
        ticks = -(-self.reading.ticks(X.longest) // 8) * 8  # rounded up, as an engine is made for each number of ticks
        inputs = padded(X, ticks, self.reading.per_step, mesh.dtype)
        read = mesh.forward(inputs, every_tick=True, n_jobs=n_jobs)[self.reading.read_at(X.lengths)]
        if self.reading.readout == "last":
            return list(read)
        steps = list(Ragged(read, X.offsets))
        if self.reading.readout == "all":
            return steps
        return [step.mean(axis=0, dtype=np.float64).astype(read.dtype) for step in steps]

    def grouped(self, values: Any, features: Ragged, given: Any) -> Any:
        """Return predictions of all steps by sequence: a list, or an array if the sequences came as one."""
        if self.reading.readout != "all":
            return values
        if isinstance(given, np.ndarray) and given.dtype != object:
            return values.reshape(len(features), -1, *values.shape[1:])
        return list(Ragged(values, features.offsets))

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        return super().to_tree() | {"reading": list(self.reading)}


def _weighted(
    samples: InMemorySamples, targets: Ragged, weight: Array | None, at: Array, whose: Array
) -> InMemorySamples:
    """Return samples whose steps have weights of their own."""
    found = samples.targets
    assert found.at is not None
    steps = np.zeros((len(found.at), len(targets)))
    steps[at, whose] = targets.per_row(weight)
    steps = steps if weight is None else steps[:, weight > 0]  # the others were left out
    if not steps.any():
        raise DataError("all steps have the weight 0; give some of the classes a weight")
    shares = (steps / steps.sum())[:, :, None]
    whole = shares.sum(axis=0).astype(found.share.dtype)
    return replace(samples, targets=found._replace(at=shares.astype(found.at.dtype), share=whole, even=False))


# -- graphs --------------------------------------------------------------------------------------------------------


def _rows(n_inputs: int, n_hidden: int, n_outputs: int, linked: bool) -> Topology:
    """Return a graph whose hidden neurons read the inputs, themselves and, if linked, the one before."""
    first = n_inputs + 1
    hidden, outputs = first + np.arange(n_hidden), first + n_hidden + np.arange(n_outputs)
    links = [np.stack([hidden[:-1], hidden[1:]], axis=1)] if linked else []
    loops = np.stack([hidden, hidden], axis=1)
    others = [_pairs(np.arange(first), hidden), _pairs(hidden, outputs), _pairs(np.array([n_inputs]), outputs)]
    return Topology(n_inputs, n_hidden, n_outputs, np.concatenate([*others, loops, *links]))


def _pairs(sources: IntArray, ends: IntArray) -> IntArray:
    return np.stack(np.meshgrid(sources, ends, indexing="ij"), axis=-1).reshape(-1, 2)


#: Graphs by name. A chain is a delay line that learns: self-loops forget slowly, links hand on; two recurrent edges per
#: neuron, where a mesh has one for each pair.
GRAPHS: dict[str, Callable[[int, int, int], Topology]] = {
    "chain": lambda i, h, o: _rows(i, h, o, linked=True),
    "columns": lambda i, h, o: _rows(i, h, o, linked=False),
    "mesh": lambda i, h, o: Topology.mesh(i, h, o, self_loops=True),
}


def recurrent(kind: Any, hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
    """Return a graph by name; hidden="auto" is at most 20 neurons, fewer beyond 500 edges, but at least 4."""
    make = GRAPHS[known("mesh", "chain" if kind is None else kind, GRAPHS)]
    if isinstance(hidden, str) and hidden == "auto":
        hidden = next((h for h in range(20, 4, -1) if make(n_inputs, h, n_outputs).n_edges <= 500), 4)
    if isinstance(hidden, (str, list, tuple, np.ndarray)):
        raise MeshError(
            f'hidden of a net for sequences must be "auto" or a whole number, got {hidden!r}; '
            "for another graph pass mesh=, a Topology or a callable (n_inputs, n_outputs)"
        )
    return make(n_inputs, whole_number("hidden", hidden), n_outputs)


def delay(topology: Topology, causal: bool) -> int:
    """Return the ticks after which a step has reached the outputs through every hidden neuron, by its shortest path.

    If `causal`, by the shortest path of all: then no later step is seen.
    """
    t = topology
    wired = (t.src != t.n_inputs) | (not t.bias)  # the bias is there from the first tick on
    there = birth_ticks(t.n_neurons, t.n_clamped, t.src[wired], t.dst[wired])
    paths = (there + t._distance)[t.hidden]
    paths = paths[paths < NEVER]
    if causal or len(paths) == 0:
        reached = there[t.outputs]
        return int(reached[reached < NEVER].min(initial=NEVER)) - 1 if (reached < NEVER).any() else 0
    return int(paths.max()) - 1


class SequenceBuilder(NetBuilder):
    """Makes recurrent nets: graphs by name, ticks for the longest sequence, weights that remember."""

    named_graphs = tuple(GRAPHS)
    decided_by_mesh = ("activation",)  # `ticks` are those of a step

    def start(self, mesh: Mesh, weights: Array) -> Array:
        """Return the weights to begin with: self-loops and links that remember.

        Drawn like the others they would be near 0 where a neuron has many inputs, and nothing seen some steps ago
        would be left to learn from. Columns forget at different rates. Found by cross-validation on training sets.
        """
        t, found = mesh.topology, weights.copy()
        loops = t.src == t.dst
        links = (t.dst == t.src + 1) & (t.src >= t.n_clamped) & (t.dst < t.n_clamped + t.n_hidden)
        found[loops] = 0.2 if links.any() else np.linspace(0.0, 0.95, int(loops.sum()))
        found[links] = 0.8
        return found

    def identity(self) -> dict[str, Any]:
        """Return the parameters that decide the net, in a form that can be compared."""
        params: Any = self.params
        return super().identity() | {"readout": params.readout}

    def _sizes(self, n_samples: int, n_inputs: int, first_order: bool) -> list[Any]:
        return [self.params.hidden]

    def _activation(self, mesh: Mesh, choice: Choice, n_samples: int) -> Any:
        return "tanh"  # a neuron that feeds itself must not grow without bounds

    def _graph(self, hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
        return recurrent(self.params.mesh, hidden, n_inputs, n_outputs)

    def _ticks(self, topology: Topology) -> int:
        params: Any = self.params
        causal = params.readout == "all"
        # a graph that changes may get an edge from an input to an output, which would see the future
        late = 0 if causal and as_policies(params.structure) else delay(topology, causal)
        self.reading = Reading.of(params.readout, 1 if params.ticks is None else params.ticks, late)
        return self.reading.ticks(self.longest)

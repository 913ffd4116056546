"""Policies of `meshnn.training.structure` on a stream: the graph changes at stated intervals, learning goes on."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arguments import as_generator, whole_number
from meshnn.arrays import Array
from meshnn.errors import FileError, MeshError
from meshnn.losses import Targets, loss_named
from meshnn.online._tuning import TUNING
from meshnn.storage import Tree
from meshnn.streaming.growth import Growth
from meshnn.topology import Topology
from meshnn.training.samples import InMemorySamples
from meshnn.training.solvers import Change
from meshnn.training.structure import runtime

if TYPE_CHECKING:
    from meshnn.online._base import StreamModel

__all__ = ["StreamStructure"]


class StreamStructure:
    """Edits the net of a model after every so many samples.

    Gradients that policies ask for are those of the last samples, each from a state of 0. Learning counts as slow, for
    `Grow`, when the mean loss of an interval hardly falls; `Prune` has done its work after so many `rounds`.
    """

    def __init__(self, policies: Any, every: int, rounds: int) -> None:
        self.policies = runtime.as_policies(policies)
        self.every, self.rounds = whole_number("structure_every", every), whole_number("structure_rounds", rounds)
        self.memories = [policy.new_memory() for policy in self.policies]
        self.log: list[str] = []
        self._rows: deque[tuple[Array, Array]] = deque(maxlen=TUNING.recent)
        self._loss, self._count = 0.0, 0

    def first(self, topology: Topology) -> Topology:
        """The graph to begin with; refused if a policy can do nothing with it, before an interval is learned."""
        found = runtime.first_topology(self.policies, topology)
        if refusal := next(filter(None, (policy.refusal_of(found.n_edges) for policy in self.policies)), ""):
            advice = "take fewer, or a share such as to=0.5, which is taken of the edges after the first interval"
            raise MeshError(f"{refusal}, of the features of the first sample; {advice}")
        return found

    def saw(self, model: StreamModel, row: Array, target: float, out: Array) -> None:
        """Take note of a sample that was just learned, with the outputs before; edit the net when it is time."""
        self._rows.append((row[0, 0].copy(), np.array([float(target)])))
        loss = float(model._loss_of(out, target))
        if math.isfinite(loss):
            self._loss, self._count = self._loss + loss, self._count + 1
        if model.n_samples_ % self.every == 0 and model.n_samples_ // self.every <= self.rounds:
            self._edit(model)

    def relabel(self) -> None:
        """The targets 1 and 0 of two classes become the labels 0 and 1."""
        for _, target in self._rows:
            target[:] = target < 0.5

    def _edit(self, model: StreamModel) -> None:
        mesh, stream = model.mesh_, model.stream_
        assert mesh is not None
        assert stream is not None
        before, known = mesh.topology, self._runtime(model)
        epoch = model.n_samples_ // self.every
        change, words = known.edit(epoch, self._loss / self._count if self._count else math.nan)
        self._loss, self._count = 0.0, 0
        if change is not None:
            self.log += [f"sample {model.n_samples_}: {word}" for word in words]
            growth = Growth(mesh.topology, neurons_of(before, mesh.topology, change), change.edges)
            stream.grow(growth, mesh.values, mesh.codes, mesh.ties, change.parameters)

    def _runtime(self, model: StreamModel) -> runtime.Structure:
        """Make the policies' view of the net: anew every time, as features and classes may have come."""
        assert model.mesh_ is not None
        seed = as_generator(model.n_samples_)
        known = runtime.Structure(self.policies, model.mesh_, self._samples(model), self.rounds, seed)
        known.memories = self.memories
        return known

    def to_tree(self) -> Tree:
        """As plain values and arrays."""
        rows, targets = self._arrays(max((len(x) for x, _ in self._rows), default=0))
        policies, memories = runtime.structure_to_tree(list(self.policies)), runtime.memories_to_tree(self.memories)
        return {"policies": policies, "memories": memories, "loss": self._loss, "count": self._count,
                "log": list(self.log), "rows": rows, "targets": targets[:, 0]}  # fmt: skip

    def _arrays(self, width: int) -> tuple[Array, Array]:
        """Return the last samples `(n, width)`, NaN for features that came later, and their targets `(n, 1)`."""
        rows = [np.pad(x, (0, width - len(x)), constant_values=np.nan) for x, _ in self._rows]
        return np.array(rows).reshape(len(rows), width), np.array([t for _, t in self._rows]).reshape(len(rows), 1)

    @classmethod
    def from_tree(cls, tree: Tree, model: StreamModel) -> StreamStructure:
        """Return the policies of a model with its net, from a tree that may come from anywhere."""
        assert model.stream_ is not None
        found = cls(runtime.structure_from_tree(tree["policies"]), model.structure_every, model.structure_rounds)
        found.memories = runtime.memories_from_tree(found.policies, tree["memories"])
        found._loss, found._count = float(tree["loss"]), whole_number("count", tree["count"], least=0, most=2**53)
        found.log = [str(word) for word in tree["log"]]
        rows, targets = tree["rows"], tree["targets"]
        right = rows.ndim == 2 and rows.dtype == targets.dtype == np.float64 and targets.shape == rows.shape[:1]
        if not right or not len(rows) or rows.shape[1] > len(model.features_) or not np.isfinite(targets).all():
            raise FileError(f"its last rows are {rows.shape} with targets {targets.shape}")
        model.stream_.as_targets(targets[:, None], len(targets))
        found._rows.extend((x.copy(), np.array([t])) for x, t in zip(rows, targets, strict=True))
        found._runtime(model)  # refuses policies for another graph
        assert model.mesh_ is not None
        for policy, memory in zip(found.policies, found.memories, strict=True):
            if refusal := policy.refusal_of(getattr(memory, "first", None) or model.mesh_.topology.n_edges):
                raise FileError(refusal)
        return found

    def _samples(self, model: StreamModel) -> InMemorySamples:
        """The last ones, as the net sees them."""
        stream, mesh = model.stream_, model.mesh_
        assert stream is not None
        assert mesh is not None
        X, y = stream.scaled(*self._arrays(mesh.topology.n_inputs))
        loss = loss_named(model._loss)
        values = y[:, 0].astype(np.int64) if loss.classifies and not loss.several else y
        targets = Targets.make(loss, values, None, len(X), mesh.topology.n_outputs, mesh.dtype)
        return InMemorySamples(np.ascontiguousarray(X[None], mesh.dtype), targets, float(len(X)))


def neurons_of(before: Topology, after: Topology, change: Change) -> Array:
    """Of each neuron the one it was, -1 if it is new."""
    hidden = np.where(change.hidden >= 0, before.n_clamped + change.hidden, -1)
    outputs = np.arange(before.n_neurons - before.n_outputs, before.n_neurons)
    return np.concatenate([np.arange(before.n_clamped), hidden, outputs]).astype(np.int64)

"""Structure policies of `meshnn.training.structure` on a stream: the graph is edited at intervals during learning."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arguments import as_generator, whole_number
from meshnn.arrays import Array
from meshnn.errors import FileError, MeshError
from meshnn.losses import Targets, loss_named
from meshnn.online._experts import Tail
from meshnn.online._tuning import TUNING
from meshnn.storage import Tree
from meshnn.streaming.growth import Growth
from meshnn.streaming.state import fill_arrays
from meshnn.topology import Topology
from meshnn.training.samples import InMemorySamples
from meshnn.training.structure import runtime

if TYPE_CHECKING:
    from meshnn.online._base import StreamModel

__all__ = ["StreamStructure"]


class StreamStructure:
    """Structure policies that edit the network of a model after every `every` samples, at most `rounds` times.

    Policies get the gradients of the most recent samples, each from a zero state, and the mean loss of the interval:
    `Grow` adds edges when it hardly falls any more. Schedules such as that of `Prune` end after `rounds` edits.
    """

    def __init__(self, policies: Any, every: int, rounds: int) -> None:
        self.policies = runtime.as_policies(policies)
        self.every, self.rounds = whole_number("structure_every", every), whole_number("structure_rounds", rounds)
        self.memories = [policy.new_memory() for policy in self.policies]
        self.log: list[str] = []
        self._rows, self._targets = Tail(TUNING.recent, 1), Tail(TUNING.recent)
        self._loss, self._count = 0.0, 0

    def first(self, topology: Topology) -> Topology:
        """Return the initial graph; raise an error if a policy cannot be applied to it."""
        found = runtime.first_topology(self.policies, topology)
        if refusal := next(filter(None, (policy.refusal_of(found.n_edges) for policy in self.policies)), ""):
            advice = "use a smaller number, or a share such as to=0.5 of the edges after the first interval"
            raise MeshError(f"{refusal}, given the features of the first sample; {advice}")
        return found

    def update(self, model: StreamModel, row: Array, target: float, out: Array) -> None:
        """Record a learned sample and the outputs before learning it; edit the network at the end of an interval."""
        self._rows.widen(row.shape[2])
        self._rows.append(row[0, 0])
        self._targets.append(target)
        loss = float(model._loss_of(out, target))
        if math.isfinite(loss):
            self._loss, self._count = self._loss + loss, self._count + 1
        if model.n_samples_ % self.every == 0 and model.n_samples_ // self.every <= self.rounds:
            self._edit(model)

    def relabel(self) -> None:
        """Replace the targets 1 and 0 of two classes by the labels 0 and 1."""
        kept = self._targets.kept
        kept[:] = np.where(np.isnan(kept), np.nan, kept < 0.5)

    def _edit(self, model: StreamModel) -> None:
        mesh, stream = model._net
        before, known = mesh.topology, self._runtime(model)
        epoch = model.n_samples_ // self.every
        change, messages = known.edit(epoch, self._loss / self._count if self._count else math.nan)
        self._loss, self._count = 0.0, 0
        if change is not None:
            self.log += [f"sample {model.n_samples_}: {message}" for message in messages]
            # previous index of each neuron, -1 if it is new; inputs and outputs stay
            hidden = np.where(change.hidden >= 0, before.n_clamped + change.hidden, -1)
            outputs = np.arange(before.n_neurons - before.n_outputs, before.n_neurons)
            neurons = np.concatenate([np.arange(before.n_clamped), hidden, outputs])
            growth = Growth(mesh.topology, neurons, change.edges)
            stream.grow(growth, mesh.values, mesh.codes, mesh.ties, change.parameters)

    def _runtime(self, model: StreamModel) -> runtime.Structure:
        """Return the network as policies use it; built for every edit, because features and classes may be new."""
        seed = as_generator(model.n_samples_)
        known = runtime.Structure(self.policies, model._net[0], self._samples(model), self.rounds, seed)
        known.memories = self.memories
        return known

    def to_tree(self) -> Tree:
        """Return the state as plain values and arrays."""
        rows, targets = self._last()
        policies, memories = runtime.structure_to_tree(list(self.policies)), runtime.memories_to_tree(self.memories)
        return {"policies": policies, "memories": memories, "loss": self._loss, "count": self._count,
                "log": list(self.log), "rows": rows, "targets": targets}  # fmt: skip

    def _last(self) -> tuple[Array, Array]:
        """Return the last samples `(n, n_inputs)` and their targets `(n,)`."""
        there = ~np.isnan(self._targets.kept)
        return self._rows.kept[there], self._targets.kept[there]

    @classmethod
    def from_tree(cls, tree: Tree, model: StreamModel) -> StreamStructure:
        """Return the policies of a model stored in a tree, which is not trusted."""
        mesh, stream = model._net
        found = cls(runtime.structure_from_tree(tree["policies"]), model.structure_every, model.structure_rounds)
        found.memories = runtime.memories_from_tree(found.policies, tree["memories"])
        found._loss, found._count = float(tree["loss"]), whole_number("count", tree["count"], least=0, most=2**53)
        found.log = [str(message) for message in tree["log"]]
        rows, targets = tree["rows"], tree["targets"]
        if not 0 < len(targets) <= TUNING.recent or rows.shape[1] > len(model.features_):
            raise FileError(f"the stored recent rows have shape {rows.shape}, their targets {targets.shape}")
        found._rows.widen(rows.shape[1])
        last = {"rows": found._rows.last(len(targets)), "targets": found._targets.last(len(targets))}
        fill_arrays(last, {name: tree[name] for name in last}, gaps=True)
        stream.as_targets(targets[:, None], len(targets))
        found._runtime(model)  # raises an error for policies of another graph
        for policy, memory in zip(found.policies, found.memories, strict=True):
            if refusal := policy.refusal_of(getattr(memory, "first", None) or mesh.topology.n_edges):
                raise FileError(refusal)
        return found

    def _samples(self, model: StreamModel) -> InMemorySamples:
        """Return the most recent samples, standardised."""
        mesh, stream = model._net
        self._rows.widen(mesh.topology.n_inputs)
        rows, targets = self._last()
        X, y = stream.scaled(rows, targets[:, None])
        loss = loss_named(model._loss)
        values = y[:, 0].astype(np.int64) if loss.classifies and not loss.several else y
        goals = Targets.make(loss, values, None, len(X), mesh.topology.n_outputs, mesh.dtype)
        return InMemorySamples(np.ascontiguousarray(X[None], mesh.dtype), goals, float(len(X)))

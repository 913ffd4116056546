"""Edits of a net on the page, by the names of its neurons.

Neurons have permanent names (`i0`, `b`, `h3`, `o1`), because their numbers change when a hidden neuron is added or
removed. A `Sketch` is a graph in these names; an edit, or undo, makes a new sketch. `become` then changes the mesh.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

import numpy as np

from meshnn.arrays import IntArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.play.limits import LIMITS
from meshnn.streaming.growth import Growth
from meshnn.topology import Topology
from meshnn.training.solvers import Change

__all__ = ["Sketch", "become", "names_of"]

Pair = tuple[str, str]


def names_of(n_inputs: int, bias: bool, hidden: list[str], n_outputs: int) -> list[str]:
    """Return the names of all neurons in the order of a topology."""
    return [*(f"i{k}" for k in range(n_inputs)), *["b"] * bias, *hidden, *(f"o{k}" for k in range(n_outputs))]


@dataclass(frozen=True)
class Sketch:
    """A graph with weights, by the names of its neurons."""

    inputs: int
    outputs: int
    bias: bool
    hidden: dict[str, str]  # the activation per hidden neuron
    edges: dict[Pair, float]

    @classmethod
    def of(cls, mesh: Mesh, names: list[str]) -> Sketch:
        """Return the sketch of a mesh whose neurons have these names."""
        t = mesh.topology
        hidden = dict(zip(names[t.n_clamped : t.n_neurons - t.n_outputs], mesh.activations, strict=False))
        ends = zip(t.src.tolist(), t.dst.tolist(), mesh.weights.tolist(), strict=True)
        edges = {(names[src], names[dst]): weight for src, dst, weight in ends}
        return cls(t.n_inputs, t.n_outputs, t.bias, hidden, edges)

    @property
    def names(self) -> list[str]:
        """The names of all neurons in the order of a topology."""
        return names_of(self.inputs, self.bias, list(self.hidden), self.outputs)

    def mesh(self, ticks: int) -> Mesh:
        """Return the net; raise an error if it exceeds the limits of the page or an output is unreachable."""
        if len(self.hidden) > LIMITS.hidden or len(self.edges) > LIMITS.edges:
            raise MeshError(f"{len(self.hidden)} hidden neurons and {len(self.edges):,} edges, expected at most "
                            f"{LIMITS.hidden} and {LIMITS.edges:,}; remove some")  # fmt: skip
        number = {name: k for k, name in enumerate(self.names)}
        pairs = np.array([(number[src], number[dst]) for src, dst in self.edges], np.int64).reshape(-1, 2)
        weights = np.array(list(self.edges.values()))[np.lexsort((pairs[:, 0], pairs[:, 1]))]
        topology = Topology(self.inputs, len(self.hidden), self.outputs, pairs, bias=self.bias)
        return Mesh(topology, ticks, list(self.hidden.values()) or "tanh", weights=weights, dtype="float64")

    def with_edges(self, edges: dict[Pair, float]) -> Sketch:
        """Return the sketch with additional edges."""
        return replace(self, edges=self.edges | edges)

    def with_edge(self, src: str, dst: str, rng: np.random.Generator) -> Sketch:
        """Return the sketch with an edge from one neuron to another.

        Its weight is 0, so that the outputs do not change. Into a neuron without outgoing weights it is random, because
        otherwise all gradients would remain 0.
        """
        if missing := [name for name in (src, dst) if name not in self.names]:
            raise MeshError(f"there is no neuron {missing[0][:20]!r}; it may have been removed")
        if dst == "b" or dst.startswith("i"):
            raise MeshError(f"an edge into {dst} would be dead: inputs and bias are clamped at every tick")
        if (src, dst) in self.edges:
            raise MeshError(f"the edge from {src} to {dst} exists already")
        used = dst.startswith("o") or any(w != 0 for (a, b), w in self.edges.items() if a == dst and b != dst)
        weight = 0.0 if used else float(rng.standard_normal() / np.sqrt(1 + sum(b == dst for _, b in self.edges)))
        return self.with_edges({(src, dst): weight})

    def without_edges(self, pairs: Set[Pair]) -> Sketch:
        """Return the sketch without these edges."""
        for src, dst in pairs - self.edges.keys():
            raise MeshError(f"there is no edge from {src} to {dst}")
        return replace(self, edges={pair: w for pair, w in self.edges.items() if pair not in pairs})

    def with_neuron(self, bare: bool, activation: str, rng: np.random.Generator) -> tuple[Sketch, str]:
        """Return the sketch with one more hidden neuron, and its name.

        Unless it is bare, it has edges from all inputs and to all outputs with weight 0, which do not change outputs.
        """
        name = f"h{max((int(other[1:]) for other in self.hidden), default=-1) + 1}"
        edges: dict[Pair, float] = {}
        if not bare:
            scale = 1 / np.sqrt(self.inputs)
            edges |= {(f"i{k}", name): float(scale * rng.standard_normal()) for k in range(self.inputs)}
            edges |= {("b", name): 0.0} if self.bias else {}
            edges |= {(name, f"o{k}"): 0.0 for k in range(self.outputs)}
        return replace(self.with_edges(edges), hidden=self.hidden | {name: activation}), name

    def without_neuron(self, name: str) -> Sketch:
        """Return the sketch without a hidden neuron and its edges."""
        if name not in self.hidden:
            what = {"i": "an input", "o": "an output", "b": "the bias"}.get(name[:1], "no neuron")
            raise MeshError(f"{name} is {what}; only hidden neurons can be removed")
        hidden = {other: kind for other, kind in self.hidden.items() if other != name}
        return replace(self, hidden=hidden, edges={pair: w for pair, w in self.edges.items() if name not in pair})

    def with_activation(self, name: str, activation: str) -> Sketch:
        """Return the sketch with another activation of one hidden neuron, or of all (`*`)."""
        if name != "*" and name not in self.hidden:
            raise MeshError(f"{name} is not a hidden neuron; only their activations can be changed")
        hidden = {other: activation if name in ("*", other) else kind for other, kind in self.hidden.items()}
        return replace(self, hidden=hidden)


def become(mesh: Mesh, names: list[str], wanted: Mesh, after: list[str], whole: bool) -> tuple[Growth, Change]:
    """Change a mesh in place. Remaining edges keep their weights, unless `whole` copies all weights.

    `names` are the current names of its neurons, `after` those in the wanted graph. Return the data with which streams
    and solvers continue.
    """
    t, topology, ticks = mesh.topology, wanted.topology, mesh.ticks
    index = {(names[src], names[dst]): k for k, (src, dst) in enumerate(zip(t.src, t.dst, strict=True))}
    ends = zip(topology.src, topology.dst, strict=True)
    origin: IntArray = np.array([index.get((after[src], after[dst]), -1) for src, dst in ends], np.int64)
    weights = wanted.weights if whole else np.where(origin >= 0, mesh.weights[origin], wanted.weights)
    mesh.ticks = max(ticks, wanted.ticks)  # the number with which both graphs reach their outputs
    mesh.replace(topology, weights, wanted.codes)
    mesh.ticks = wanted.ticks
    before = {name: k for k, name in enumerate(names)}
    neurons = np.array([before.get(name, -1) for name in after], np.int64)
    old = neurons[topology.hidden]
    return Growth(topology, neurons, origin), Change(origin, np.where(old >= 0, old - t.n_clamped, -1), origin)

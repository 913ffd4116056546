"""Edits of a net by hand: what it was and is to be, by the names of its neurons, and what stays of what was learned.

Neurons have names that never change (`i0`, `b`, `h3`, `o1`), since their numbers do when a hidden one comes or goes.
A `Drawing` is a graph in these names; an edit makes another one of it, and so does undo. `become` then brings a mesh
there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meshnn.arrays import IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.streaming.growth import Growth
from meshnn.topology import Topology
from meshnn.training.solvers import Change

__all__ = [
    "MOST_EDGES",
    "MOST_HIDDEN",
    "Drawing",
    "become",
    "drawing_of",
    "names_of",
    "with_activation",
    "with_edge",
    "with_neuron",
    "without_edge",
    "without_neuron",
]

Pair = tuple[str, str]
#: More than this can neither be drawn nor learned in front of somebody's eyes.
MOST_HIDDEN, MOST_EDGES, MOST_TICKS = 300, 20_000, 50


@dataclass(frozen=True)
class Drawing:
    """A graph by the names of its neurons, with weights."""

    inputs: int
    outputs: int
    bias: bool
    hidden: dict[str, str]  # the activation of each
    edges: dict[Pair, float]

    @property
    def names(self) -> list[str]:
        """In the order of a topology."""
        first = [f"i{k}" for k in range(self.inputs)] + ["b"] * self.bias
        return first + list(self.hidden) + [f"o{k}" for k in range(self.outputs)]

    def fresh(self) -> str:
        """A name for a hidden neuron that no other has."""
        return f"h{max((int(name[1:]) for name in self.hidden), default=-1) + 1}"


def names_of(topology: Topology, hidden: list[str] | None = None) -> list[str]:
    """The names of all neurons; those of hidden ones are counted, unless given."""
    counted = [f"h{k}" for k in range(topology.n_hidden)] if hidden is None else hidden
    first = [f"i{k}" for k in range(topology.n_inputs)] + ["b"] * topology.bias
    return first + counted + [f"o{k}" for k in range(topology.n_outputs)]


def drawing_of(mesh: Mesh, names: list[str]) -> Drawing:
    """What a mesh is now."""
    t = mesh.topology
    hidden = dict(zip(names[t.n_clamped : t.n_neurons - t.n_outputs], mesh.activations, strict=False))
    ends = zip(t.src.tolist(), t.dst.tolist(), mesh.weights.tolist(), strict=True)
    edges = {(names[src], names[dst]): weight for src, dst, weight in ends}
    return Drawing(t.n_inputs, t.n_outputs, t.bias, hidden, edges)


def become(mesh: Mesh, names: list[str], wanted: Drawing, whole: bool = False) -> tuple[list[str], Growth, Change]:
    """Change the mesh in place: edges that stay keep what they have learned, unless `whole` takes all weights.

    The names after that, and what solvers and streams need to go on. A graph that is refused changes nothing.
    """
    if len(wanted.hidden) > MOST_HIDDEN or len(wanted.edges) > MOST_EDGES:
        raise MeshError(
            f"{len(wanted.hidden)} hidden neurons and {len(wanted.edges):,} edges, expected at most {MOST_HIDDEN} and "
            f"{MOST_EDGES:,} in a net that is drawn; take some out"
        )
    t, after = mesh.topology, wanted.names
    number, before = {name: k for k, name in enumerate(after)}, {name: k for k, name in enumerate(names)}
    ends = zip(t.src.tolist(), t.dst.tolist(), strict=True)
    edge = {(names[src], names[dst]): k for k, (src, dst) in enumerate(ends)}
    pairs = list(wanted.edges)
    numbered = np.array([(number[src], number[dst]) for src, dst in pairs], np.int64).reshape(-1, 2)
    topology = Topology(wanted.inputs, len(wanted.hidden), wanted.outputs, numbered, bias=wanted.bias)
    order = np.lexsort((numbered[:, 0], numbered[:, 1]))
    origin: IntArray = np.array([edge.get(pair, -1) for pair in pairs], np.int64)[order]
    given = np.array([wanted.edges[pair] for pair in pairs])[order]
    weights = given if whole else np.where(origin >= 0, mesh.weights[origin], given)
    codes = np.zeros(len(after), np.int64)
    codes[topology.hidden] = [ACTIVATIONS[name] for name in wanted.hidden.values()]
    codes[topology.outputs] = mesh.codes[t.outputs]
    mesh.replace(topology, weights, codes)
    neurons = np.array([before.get(name, -1) for name in after], np.int64)
    old = neurons[topology.hidden]
    hidden = np.where(old >= 0, old - t.n_clamped, -1)
    return after, Growth(topology, neurons, origin), Change(origin, hidden, origin)


def with_edge(drawing: Drawing, src: str, dst: str, rng: np.random.Generator) -> Drawing:
    """With an edge from one neuron to another.

    It begins with 0, so that nothing changes but what may be learned; into a neuron that nobody listens to, at random:
    where all is 0 no gradient would ever move it.
    """
    _check(drawing, src, dst)
    if (src, dst) in drawing.edges:
        raise MeshError(f"there is an edge from {src} to {dst} already")
    heard = dst.startswith("o") or any(w != 0 for (a, b), w in drawing.edges.items() if a == dst and b != dst)
    weight = 0.0 if heard else float(rng.standard_normal() / np.sqrt(1 + sum(b == dst for _, b in drawing.edges)))
    return replace(drawing, edges=drawing.edges | {(src, dst): weight})


def without_edge(drawing: Drawing, src: str, dst: str) -> Drawing:
    """Without an edge."""
    if (src, dst) not in drawing.edges:
        raise MeshError(f"there is no edge from {src} to {dst}")
    return replace(drawing, edges={pair: w for pair, w in drawing.edges.items() if pair != (src, dst)})


def with_neuron(drawing: Drawing, bare: bool, activation: str, rng: np.random.Generator) -> tuple[Drawing, str]:
    """With a hidden neuron more, and its name; unless it is to be bare, it reads all inputs and feeds all outputs.

    What it feeds has weights of 0 at first: the net computes what it did before.
    """
    name = drawing.fresh()
    edges = dict(drawing.edges)
    if not bare:
        inputs, scale = [f"i{k}" for k in range(drawing.inputs)], 1 / np.sqrt(drawing.inputs)
        edges |= {(src, name): float(scale * rng.standard_normal()) for src in inputs}
        edges |= {("b", name): 0.0} if drawing.bias else {}
        edges |= {(name, f"o{k}"): 0.0 for k in range(drawing.outputs)}
    return replace(drawing, hidden=drawing.hidden | {name: activation}, edges=edges), name


def without_neuron(drawing: Drawing, name: str) -> Drawing:
    """Without a hidden neuron and its edges."""
    if name not in drawing.hidden:
        what = {"i": "an input", "o": "an output", "b": "the bias"}.get(name[:1], "no neuron")
        raise MeshError(f"{name} is {what}; only hidden neurons can be taken out")
    hidden = {other: kind for other, kind in drawing.hidden.items() if other != name}
    return replace(drawing, hidden=hidden, edges={pair: w for pair, w in drawing.edges.items() if name not in pair})


def with_activation(drawing: Drawing, name: str, activation: str) -> Drawing:
    """With another activation of one hidden neuron, or of all of them (`*`)."""
    if name != "*" and name not in drawing.hidden:
        raise MeshError(f"{name} is not a hidden neuron; inputs are given, and outputs are read as they are")
    hidden = {other: activation if name in ("*", other) else kind for other, kind in drawing.hidden.items()}
    return replace(drawing, hidden=hidden)


def _check(drawing: Drawing, src: str, dst: str) -> None:
    names = set(drawing.names)
    for name in (src, dst):
        if name not in names:
            raise MeshError(f"there is no neuron {name[:20]!r}; perhaps it has been taken out")
    if dst == "b" or dst.startswith("i"):
        raise MeshError(f"an edge into {dst} would be dead: inputs and bias are held where they are at every tick")

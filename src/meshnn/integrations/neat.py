"""Genomes of neat-python to and from plain arrays. They are known by what they hold, so nothing of neat is imported.

A node of neat computes phi(bias + response * aggregation(weight * value, ...)). A neuron computes phi'(sum of weight *
value), with a bias neuron among its sources. So the weight of an edge is that of its gene times a factor: response,
what the aggregation does to a sum, the inner slope of the node's activation (tanh of neat is tanh(2.5 z)) and the outer
factor of the source's (softplus of neat is 0.2 log(1 + exp(5 z))). All of it is exact but for rounding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.integrations._neat_forms import FORMS, Form, Judge, stages

__all__ = ["FORMS", "KINDS", "Drawing", "draw", "gene_values", "write"]

KINDS = ("feed_forward", "recurrent")
Link = tuple[int, int]


class Gene(NamedTuple):
    """Where the weight of an edge comes from: a connection, or the bias of a node."""

    kind: str
    key: Any


@dataclass(frozen=True)
class Drawing:
    """A genome as a net: neurons are the inputs, the bias, hidden ones, the outputs."""

    n_inputs: int
    n_hidden: int
    n_outputs: int
    keys: list[int | None]  # of each neuron the node whose value it has; of the bias and of helpers None
    activations: list[str]  # of each neuron that is not clamped
    edges: NDArray[np.int64]  # (n_edges, 2), sorted by (destination, source)
    weights: NDArray[np.float64]
    genes: list[Gene | None]  # of each edge; None is a fixed one
    factors: NDArray[np.float64]  # weight = factor * gene
    ticks: int

    @property
    def parameter(self) -> NDArray[np.int64]:
        """Of each edge the number of its parameter, -1 if it is fixed."""
        learned = np.array([gene is not None for gene in self.genes], dtype=np.bool_)
        return np.where(learned, np.cumsum(learned) - 1, -1).astype(np.int64)


class _Node(NamedTuple):
    """A node that is evaluated: its form, its gene, and what the aggregation does to the sum of its inputs."""

    gene: Any
    form: Form
    gain: float


def draw(genome: Any, config: Any, kind: str | None = None) -> Drawing:
    """The net of a genome: what `FeedForwardNetwork.create` or `RecurrentNetwork.create` of neat makes of it."""
    settings = _settings(config)
    recurrent = known("kind", _kind(settings, kind), KINDS) == "recurrent"
    inputs, outputs = list(settings.input_keys), list(settings.output_keys)
    links = _links(genome, inputs, outputs)
    sources: dict[int, list[int]] = defaultdict(list)
    for source, node in links:
        sources[node].append(source)
    order = _needed(outputs, sources, inputs) if recurrent else _ordered(outputs, sources, inputs)
    # a recurrent network of neat evaluates only what has a connection: everything else stays at 0, whatever its bias
    awake = dict.fromkeys(key for key in order if sources[key] or not recurrent)
    # with a response of 0 nothing of a sum is left: such connections count for nothing, now and later
    counting = {
        link: weight
        for link, weight in links.items()
        if link[1] in awake and (link[0] in awake or link[0] in inputs) and genome.nodes[link[1]].response
    }
    read: dict[int, list[int]] = defaultdict(list)
    for source, node in counting:
        read[node].append(source)
    used = set(_needed(outputs, read, inputs))
    if not any(source in inputs for node in used for source in read[node]):
        raise MeshError(
            "no enabled path leads from an input to an output of this genome, so its outputs are constant and there is "
            "nothing to learn; take another genome, or add a connection"
        )
    judge, nodes = Judge(settings), {}
    for key in awake:
        if key in used:
            gene = genome.nodes[key]
            form = judge.form(key, gene.activation, key in outputs, recurrent)
            gain = judge.gain(key, gene.aggregation, len(sources[key])) if gene.response else 0.0
            nodes[key] = _Node(gene, form, gain)
    pen = _Pen(inputs, outputs, nodes)
    for (source, node), weight in counting.items():
        if node in nodes:
            pen.connect(source, node, weight)
    return pen.drawing(1 if recurrent else _depth(nodes, read, outputs))


def write(drawing: Drawing, weights: Mapping[Link, float], genome: Any) -> Any:
    """A copy of the genome with the weights of edges (source, destination) in it, and without a fitness.

    An edge that is not there any more has weight 0. Genes whose edge is as it was keep all their bits.
    """
    copy = deepcopy(genome)
    copy.fitness = None
    rest = dict(weights)
    entries = zip(drawing.edges.tolist(), drawing.weights.tolist(), drawing.genes, drawing.factors, strict=True)
    for (source, dest), before, gene, factor in entries:
        now = float(rest.pop((source, dest), 0.0))
        if now == before:
            continue
        if gene is None:
            raise MeshError(
                f"edge ({source}, {dest}) is a fixed one of weight {before}, part of an activation of neat, but here "
                f"it is {now}, and a genome has no gene for it; learn from the mesh of from_neat, with its fixed edges"
            )
        if gene.kind == "bias":
            copy.nodes[gene.key].bias = now / float(factor)
        else:
            copy.connections[gene.key].weight = now / float(factor)
    if rest:
        source, dest = next(iter(rest))
        raise MeshError(
            f"the mesh has {len(rest)} edges that the genome has not, ({source}, {dest}) the first; pass the genome "
            "it was made of, and let it have no new edges"
        )
    return copy


def gene_values(drawing: Drawing, gradient: Any) -> tuple[dict[Any, float], dict[Any, float]]:
    """Derivatives by parameters as derivatives by genes: of connections, and of the biases of nodes."""
    given = np.asarray(gradient, dtype=np.float64)
    learned = [(gene, factor) for gene, factor in zip(drawing.genes, drawing.factors, strict=True) if gene is not None]
    if given.shape != (len(learned),):
        raise MeshError(
            f"the gradient must have shape ({len(learned)},), one number per parameter of the mesh of this genome; "
            f"got {given.shape}"
        )
    found: dict[str, dict[Any, float]] = {"connection": {}, "bias": {}}
    for (gene, factor), value in zip(learned, given.tolist(), strict=True):
        found[gene.kind][gene.key] = value * float(factor)
    return found["connection"], found["bias"]


# -- what is handed in ---------------------------------------------------------------------------------------------


def _settings(config: Any) -> Any:
    settings = getattr(config, "genome_config", None)
    wanted = ("input_keys", "output_keys", "feed_forward", "activation_defs", "aggregation_function_defs")
    if settings is None or not all(hasattr(settings, name) for name in wanted):
        hint = "; pass config, not config.genome_config" if all(hasattr(config, name) for name in wanted) else ""
        raise MeshError(f"config must be the neat.Config of the genome, got {type(config).__name__}{hint}")
    return settings


def _kind(settings: Any, kind: str | None) -> str:
    return kind if kind is not None else "feed_forward" if settings.feed_forward else "recurrent"


def _links(genome: Any, inputs: list[int], outputs: list[int]) -> dict[Link, float]:
    """The weights of enabled connections."""
    if not hasattr(genome, "nodes") or not hasattr(genome, "connections"):
        raise MeshError(f"genome must be a genome of neat, with nodes and connections; got {type(genome).__name__}")
    for key, gene in genome.nodes.items():
        lacks = [name for name in ("bias", "response", "activation", "aggregation") if not hasattr(gene, name)]
        if lacks:
            raise MeshError(f"node {key} of the genome has no {lacks[0]}: it is not one of neat.DefaultGenome (those "
                            "of spiking neurons, iznn, have no gradient)")  # fmt: skip
    missing = [key for key in outputs if key not in genome.nodes]
    if missing:
        raise MeshError(f"the genome has no node {missing[0]}, which the config names as an output; is it another's?")
    found = {}
    for gene in genome.connections.values():
        if not gene.enabled:
            continue
        source, node = gene.key
        if node not in genome.nodes or (source not in genome.nodes and source not in inputs):
            raise MeshError(
                f"connection {gene.key} of the genome must lead from a node or an input of the config (it has "
                f"{len(inputs)}) to a node; is this the config of another genome?"
            )
        found[source, node] = float(gene.weight)
    return found


# -- graphs --------------------------------------------------------------------------------------------------------


def _needed(outputs: list[int], sources: Mapping[int, list[int]], inputs: Iterable[int]) -> list[int]:
    """The nodes from which an output can be reached, outputs among them."""
    clamped, found, pending = set(inputs), set(outputs), list(outputs)
    while pending:
        for source in sources.get(pending.pop(), ()):
            if source not in found and source not in clamped:
                found.add(source)
                pending.append(source)
    return sorted(found)


def _ordered(outputs: list[int], sources: Mapping[int, list[int]], inputs: list[int]) -> list[int]:
    """Those nodes, each behind its sources; a cycle among them is refused."""
    needed = _needed(outputs, sources, inputs)
    waiting = {key: {source for source in sources.get(key, ()) if source not in inputs} for key in needed}
    readers: dict[int, list[int]] = defaultdict(list)
    for key, froms in waiting.items():
        for source in froms:
            readers[source].append(key)
    ready, order = [key for key in needed if not waiting[key]], []
    while ready:
        order.append(ready.pop())
        for key in readers[order[-1]]:
            waiting[key].discard(order[-1])
            if not waiting[key]:
                ready.append(key)
    if len(order) < len(needed):
        path = [next(key for key in needed if waiting[key])]
        while path[-1] not in path[:-1]:
            path.append(min(waiting[path[-1]]))
        cycle = " -> ".join(str(key) for key in reversed(path[path.index(path[-1]) :]))
        raise MeshError(
            f"the genome has the cycle {cycle}, which a feed-forward network never evaluates; pass kind='recurrent'"
        )
    return order


def _depth(nodes: Mapping[int, _Node], read: Mapping[int, list[int]], outputs: list[int]) -> int:
    """Ticks until all outputs have settled; the nodes are in order, each behind its sources."""
    depth: dict[int, int] = {}
    for key, node in nodes.items():
        depth[key] = stages(node.form, key in outputs) + max((depth.get(source, 0) for source in read[key]), default=0)
    return max(depth.values())


# -- neurons -------------------------------------------------------------------------------------------------------


class _Pen:
    """Gives nodes their neurons, and draws edges between them."""

    def __init__(self, inputs: list[int], outputs: list[int], nodes: Mapping[int, _Node]) -> None:
        self._inputs, self._outputs, self._nodes = inputs, outputs, nodes
        self._bias = len(inputs)
        self._exits = {key: k for k, key in enumerate(inputs)}  # the neuron that has a node's value
        self._entries: dict[int, int] = {}  # the one that its connections lead to
        self._slopes: dict[int, float] = {}
        self._outers = dict.fromkeys(inputs, 1.0)
        self._names: dict[int, str] = {}
        self._edges: list[tuple[int, int, float, Gene | None, float]] = []
        hidden = sorted(key for key in nodes if key not in outputs)
        helpers = {key: self._helpers(key) for key in [*hidden, *outputs]}
        place = self._bias + 1
        begin: dict[int, int] = {}
        for key in [*hidden, *outputs]:
            begin[key] = place
            place += helpers[key]
            if key not in outputs:
                self._exits[key], place = place, place + 1
        self._n_hidden = place - self._bias - 1
        for k, key in enumerate(outputs):
            self._exits[key] = place + k
        for key in [*hidden, *outputs]:
            self._place(key, begin[key])

    def connect(self, source: int, node: int, weight: float) -> None:
        """The edge of a connection."""
        told = self._nodes[node]
        factor = float(told.gene.response) * told.gain * self._slopes[node] * self._outers[source]
        gene = Gene("connection", (source, node))
        self._edges.append((self._exits[source], self._entries[node], factor * weight, gene, factor))

    def drawing(self, ticks: int) -> Drawing:
        """What was drawn."""
        n = self._bias + 1 + self._n_hidden + len(self._outputs)
        keys: list[int | None] = [None] * n
        for key, neuron in self._exits.items():
            keys[neuron] = key
        rows = sorted(self._edges, key=lambda edge: (edge[1], edge[0]))
        return Drawing(
            len(self._inputs), self._n_hidden, len(self._outputs), keys,
            [self._names[k] for k in range(self._bias + 1, n)],
            np.array([row[:2] for row in rows], dtype=np.int64), np.array([row[2] for row in rows], dtype=np.float64),
            [row[3] for row in rows], np.array([row[4] for row in rows], dtype=np.float64), ticks,
        )  # fmt: skip

    def _helpers(self, key: int) -> int:
        """Neurons that a node takes besides the one with its value."""
        if key not in self._nodes:
            return 0
        form = self._nodes[key].form
        return {1: 0, 2: 1, 3: 1 + len(form.terms)}[stages(form, key in self._outputs)]

    def _place(self, key: int, first: int) -> None:
        last, self._outers[key] = self._exits[key], 1.0
        if key not in self._nodes:  # an output that neat never evaluates
            self._names[last] = "identity"
            self._wire(self._bias, last, 0.0)
            return
        form, output = self._nodes[key].form, key in self._outputs
        term, n_stages = form.terms[0], stages(form, output)
        entry, self._slopes[key] = (last if n_stages == 1 else first), term.slope
        self._names[last] = "identity"
        if n_stages == 1:
            self._names[last], self._outers[key] = term.name, term.outer
        elif n_stages == 2:
            self._names[first] = term.name
            self._wire(first, last, term.outer)
        else:
            self._names[first], self._slopes[key] = "identity", 1.0
            for neuron, part in enumerate(form.terms, first + 1):
                self._names[neuron] = part.name
                self._wire(first, neuron, part.slope)
                self._wire(neuron, last, part.outer)
                if part.shift:
                    self._wire(self._bias, neuron, part.shift)
            if form.constant:
                self._wire(self._bias, last, form.constant)
        self._entries[key], slope = entry, self._slopes[key]
        bias = float(self._nodes[key].gene.bias)
        self._edges.append((self._bias, entry, slope * bias, Gene("bias", key), slope))

    def _wire(self, source: int, dest: int, weight: float) -> None:
        self._edges.append((source, dest, weight, None, 1.0))

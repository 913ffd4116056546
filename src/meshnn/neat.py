"""Genomes of neat-python as meshes, and back: evolve a graph, train its weights, continue the evolution with them.

`FeedForwardNetwork` and `RecurrentNetwork` of neat and the mesh of a genome have the same outputs up to rounding.
The how-to guide "Evolve with NEAT" lists the activations that are exact and has an example. Genomes are recognised by
their attributes; neat is not imported.

A node of neat computes phi(bias + response * aggregation(weight * value, ...)). A neuron computes phi'(sum of weight *
value), with the bias neuron among its sources. So the weight of an edge is that of its gene times a factor: response,
the factor of the aggregation (1, or 1/n for a mean), the inner slope of the node's activation (tanh of neat is tanh(2.5
z)) and the outer factor of the source's (softplus of neat is 0.2 log(1 + exp(5 z))).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["from_neat", "gradient_by_gene", "nodes", "to_neat"]


def from_neat(genome: Any, config: Any, kind: str | None = None) -> Mesh:
    """Return the mesh of a genome with its weights in float64.

    The outputs are those of neat. Inputs and outputs are in the order of the config. Biases become edges of the bias
    neuron; responses and slopes of activations become factors of the weights. Disabled connections and nodes that no
    output depends on are left out.

    Parameters
    ----------
    genome : neat.DefaultGenome
        Or another genome with the same genes. Aggregations must be `sum` or `mean`, or have one input.
    config : neat.Config
    kind : "feed_forward" or "recurrent", optional
        The type of neat network; by default `feed_forward` of the config decides. A feed-forward mesh has as
        many ticks as its longest path, and `forward(X)` is `activate` of each row. A recurrent one has one tick per
        step: `forward(X, every_tick=True)` of a sequence (steps, batch, n_inputs) is `activate` step by step after
        `reset`, `state=` and `return_state=` continue it, and `stream(ticks_per_sample=1)` learns online.

    Returns
    -------
    Mesh

    Examples
    --------
    >>> from types import SimpleNamespace as Made  # stands for the genes of neat
    >>> from meshnn.neat import from_neat
    >>> node = Made(bias=0.5, response=2.0, activation="relu", aggregation="sum")
    >>> genome = Made(nodes={0: node}, connections={(-1, 0): Made(key=(-1, 0), weight=3.0, enabled=True)})
    >>> settings = Made(input_keys=[-1], output_keys=[0], feed_forward=True,
    ...     activation_defs={"relu": lambda z: max(z, 0.0)}, aggregation_function_defs={"sum": sum})
    >>> from_neat(genome, Made(genome_config=settings)).forward([[1.0]]).tolist()  # 0.5 + 2 * 3
    [[6.5]]
    """
    net = _GenomeNet.of(genome, config, kind)
    learned = np.array([edge.gene is not None for edge in net.edges])
    tied = np.where(learned, np.cumsum(learned) - 1, -1)
    topology = Topology(*net.sizes, [edge[:2] for edge in net.edges])
    mesh = Mesh(topology, net.ticks, weights=[edge.weight for edge in net.edges], dtype="float64", tied=tied)
    mesh.activations = net.activations  # the activations of outputs may differ
    return mesh


def to_neat(mesh: Mesh, genome: Any, config: Any, kind: str | None = None) -> Any:
    """Return a copy of the genome with the trained weights and biases of its mesh, to continue the evolution.

    An edge that was pruned becomes a connection of weight 0. Responses, activations, and connections without an edge
    are not changed, and genes whose edge is unchanged keep their exact values. The copy has no fitness. Genes may
    exceed `weight_max_value` of the config: neat clips those that it mutates.

    Parameters
    ----------
    mesh : Mesh
        Of `from_neat(genome, config, kind)`.
    genome, config, kind
        As for `from_neat`; the genome is not changed.
    """
    if not isinstance(mesh, Mesh):
        raise MeshError(f"the first argument of to_neat must be a Mesh, got {type(mesh).__name__}")
    net, t = _GenomeNet.of(genome, config, kind), mesh.topology
    if (t.n_inputs, t.n_hidden, t.n_outputs) != net.sizes or not t.bias or mesh.activations != net.activations:
        raise MeshError(f"this is not the mesh of the genome: it is {t!r}, not {net.sizes} neurons with the "
                        f"activations {', '.join(net.activations)}; pass what from_neat was given")  # fmt: skip
    wrong = np.flatnonzero(~np.isfinite(mesh.weights))
    if wrong.size:
        raise MeshError(f"weight {wrong[0]} of the mesh is {mesh.weights[wrong[0]]}; a genome takes finite weights")
    copy = deepcopy(genome)
    copy.fitness = None
    rest = dict(zip(zip(t.src.tolist(), t.dst.tolist(), strict=True), mesh.weights.tolist(), strict=True))
    for edge in net.edges:
        now = rest.pop(edge[:2], 0.0)
        if now == edge.weight:
            continue
        if edge.gene is None:
            raise MeshError(f"edge {edge[:2]} is part of an activation and has the fixed weight {edge.weight}, but "
                            f"here it is {now}, for which a genome has no gene")  # fmt: skip
        if isinstance(edge.gene, tuple):
            copy.connections[edge.gene].weight = now / edge.factor
        else:
            copy.nodes[edge.gene].bias = now / edge.factor
    if rest:
        raise MeshError(f"the mesh has {len(rest)} edges without a gene in the genome; the first is {next(iter(rest))}")
    return copy


def nodes(genome: Any, config: Any, kind: str | None = None) -> list[int | None]:
    """Return the node of each neuron of the genome's mesh: inputs, None for the bias, hidden nodes, outputs.

    Helper neurons of an activation also have None. The state of a hidden softplus node is 5 times that in neat.
    """
    return _GenomeNet.of(genome, config, kind).keys


def gradient_by_gene(
    gradient: ArrayLike, genome: Any, config: Any, kind: str | None = None
) -> tuple[dict[tuple[int, int], float], dict[int, float]]:
    """Return a gradient by parameters of the mesh as two dictionaries: by connection key and by node (biases).

    Parameters
    ----------
    gradient : array_like (n_parameters,)
        Of `Mesh.gradient`, or a row of `Mesh.jacobian`, for `from_neat(genome, config, kind)`.
    """
    given = np.asarray(gradient, dtype=np.float64)
    learned = [(edge.gene, edge.factor) for edge in _GenomeNet.of(genome, config, kind).edges if edge.gene is not None]
    if given.shape != (len(learned),):
        raise MeshError(f"the gradient must have shape ({len(learned)},), one number per parameter; got {given.shape}")
    found = [(gene, value * factor) for (gene, factor), value in zip(learned, given.tolist(), strict=True)]
    connections = {gene: value for gene, value in found if isinstance(gene, tuple)}
    return connections, {gene: value for gene, value in found if not isinstance(gene, tuple)}


# -- the net of a genome -------------------------------------------------------------------------------------------

Link = tuple[int, int]


class _Term(NamedTuple):
    """`outer * name(slope * z + shift)`, with an activation of meshnn."""

    name: str
    slope: float = 1.0
    outer: float = 1.0
    shift: float = 0.0


class _Form(NamedTuple):
    """An activation of neat as a sum of terms."""

    terms: tuple[_Term, ...]

    def helpers(self, output: bool) -> int:
        """Return the number of helper neurons of a node; the edges out of a hidden node apply its outer factor."""
        if len(self.terms) > 1:
            return 1 + len(self.terms)
        return int(output and self.terms[0].outer != 1.0)

    def stages(self, output: bool) -> int:
        """Return the number of ticks from the sum to the value."""
        return 1 + min(self.helpers(output), 2)

    def value(self, z: float) -> float:
        """Return the activation at z."""
        return sum(t.outer * _activated(t.name, t.slope * z + t.shift) for t in self.terms)


@cache
def _activated(name: str, z: float) -> float:
    """Return an activation of meshnn at z."""
    one = Mesh(Topology.layered([1, 1], bias=False), 1, output_activation=name, weights=[1.0], dtype="float64")
    return float(one.forward([[z]])[0, 0])


#: Activations of neat that are exact here. Those with several terms take several neurons with fixed edges.
FORMS: dict[str, _Form] = {
    "identity": _Form((_Term("identity"),)),
    "relu": _Form((_Term("relu"),)),
    "elu": _Form((_Term("elu"),)),
    "sigmoid": _Form((_Term("sigmoid", 5.0),)),
    "tanh": _Form((_Term("tanh", 2.5),)),
    "sin": _Form((_Term("sin", 5.0),)),
    "gauss": _Form((_Term("gauss", math.sqrt(5.0)),)),
    "clamped": _Form((_Term("hardtanh"),)),
    "softplus": _Form((_Term("softplus", 5.0, 0.2),)),
    "abs": _Form((_Term("relu"), _Term("relu", -1.0))),
    "lelu": _Form((_Term("relu"), _Term("relu", -1.0, -0.005))),
    "selu": _Form((_Term("elu", 1.0, 1.7580993408473766), _Term("relu", 1.0, -0.7073983534918963))),
    "hat": _Form((_Term("relu", 1.0, 1.0, 1.0), _Term("relu", 1.0, -2.0), _Term("relu", 1.0, 1.0, -1.0))),
}


class _Edge(NamedTuple):
    source: Any  # source neuron: its name at first, its number later
    dest: Any
    weight: float
    gene: int | Link | None = None  # the node of a bias, the connection, or None for a fixed edge
    factor: float = 1.0  # weight = factor * value of the gene


class _Node(NamedTuple):
    gene: Any
    form: _Form
    gain: float  # aggregation of the inputs divided by their sum


def _check(genome: Any, config: Any) -> Any:
    """Return the genome settings of a config; raise an error for a genome of another config."""
    settings: Any = getattr(config, "genome_config", None)
    wanted = ("input_keys", "output_keys", "feed_forward", "activation_defs", "aggregation_function_defs")
    if not all(hasattr(settings, name) for name in wanted):
        raise MeshError(f"config must be the neat.Config, not its genome_config, got {type(config).__name__}")
    if not hasattr(genome, "nodes") or not hasattr(genome, "connections"):
        raise MeshError(f"genome must be a genome of neat, with nodes and connections; got {type(genome).__name__}")
    for key, gene in genome.nodes.items():
        for name in ("bias", "response", "activation", "aggregation"):
            if not hasattr(gene, name):  # for example, genomes of spiking neurons (iznn) have no gradient
                raise MeshError(f"node {key} of the genome has no {name}: it is not one of neat.DefaultGenome")
    links = [gene.key for gene in genome.connections.values() if gene.enabled]
    ends = {*settings.output_keys, *(end for link in links for end in link)} - {*settings.input_keys}
    missing = (ends | {link[1] for link in links}) - genome.nodes.keys()
    if missing:
        raise MeshError(
            f"the genome has no node {min(missing)}, which is an output or the end of a connection; pass its own config"
        )
    return settings


def _sources(links: Iterable[Link]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for source, node in links:
        found[node].append(source)
    return found


def _needed(outputs: list[int], sources: Mapping[int, list[int]], inputs: list[int]) -> set[int]:
    """Return the nodes that an output depends on, including the outputs."""
    found, pending = set(outputs), list(outputs)
    while pending:
        fresh = set(sources.get(pending.pop(), ())) - found - set(inputs)
        found |= fresh
        pending += fresh
    return found


def _ordered(needed: set[int], sources: Mapping[int, list[int]]) -> list[int]:
    """Return the nodes in topological order."""
    try:
        return list(TopologicalSorter({key: needed & {*sources[key]} for key in needed}).static_order())
    except CycleError as error:
        cycle = " -> ".join(map(str, error.args[1]))
        raise MeshError(f"the genome has the cycle {cycle}, but feed-forward networks have no cycles; pass "
                        "kind='recurrent'") from None  # fmt: skip


def _form(settings: Any, key: int, name: str, output: bool, recurrent: bool) -> _Form:
    """Return the form of a node's activation; raise an error for other activations."""
    if name not in FORMS:
        raise MeshError(f"node {key} of the genome has the activation {name!r}, but meshnn has {', '.join(FORMS)}")
    form, function = FORMS[name], settings.activation_defs.get(name)
    probes = (-3.1, -1.4, -0.6, -0.05, 0.0, 0.3, 0.8, 2.3)  # a config may define another function by the same name
    if not all(math.isclose(form.value(z), function(z), rel_tol=1e-9, abs_tol=1e-12) for z in probes):
        raise MeshError(f"node {key} has the activation {name!r}, which is another function in this config")
    if recurrent and form.stages(output) > 1:
        raise MeshError(f"node {key} has the activation {name!r}, which takes {form.stages(output)} neurons, but "
                        "a recurrent network has one tick for it; use another activation, such as tanh")  # fmt: skip
    return form


def _gain(settings: Any, key: int, name: str, n: int) -> float:
    """Return the aggregation of `n` inputs of a node divided by their sum; raise an error for others."""
    probe = [float(k * k % 7) - 2.5 for k in range(1, n + 1)]
    gain = 1.0 / n if name == "mean" and n else 1.0
    if n <= 1 or name in ("sum", "mean"):  # almost all aggregations of one input are the identity
        try:
            function = settings.aggregation_function_defs.get(name)
            found = [(float(function([s * t for t in probe])), s * gain * sum(probe)) for s in (1.0, -1.0, 0.5)]
            if all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in found):
                return gain
        except (ArithmeticError, IndexError, TypeError, ValueError):
            pass  # unknown, or not defined for this number of inputs
    raise MeshError(f"node {key} of the genome has the aggregation {name!r} of {n} inputs, but a neuron computes sums "
                    "(and means); set aggregation_options = sum mean")  # fmt: skip


@dataclass
class _GenomeNet:
    """The net of a genome. The order of the neurons is inputs, bias, hidden neurons, outputs."""

    sizes: tuple[int, int, int]  # inputs, hidden neurons, outputs
    keys: list[int | None]  # the node of each neuron; None for the bias and helper neurons
    activations: list[str]  # one per neuron that is not clamped
    edges: list[_Edge]  # sorted by (destination, source)
    ticks: int

    @classmethod
    def of(cls, genome: Any, config: Any, kind: str | None) -> _GenomeNet:
        """Return the net that `FeedForwardNetwork.create` or `RecurrentNetwork.create` of neat makes of a genome."""
        settings = _check(genome, config)
        default = "feed_forward" if settings.feed_forward else "recurrent"
        recurrent = known("kind", kind or default, ("feed_forward", "recurrent")) == "recurrent"
        inputs, outputs = list(settings.input_keys), list(settings.output_keys)
        links = {gene.key: float(gene.weight) for gene in genome.connections.values() if gene.enabled}
        sources = _sources(links)
        needed = _needed(outputs, sources, inputs)
        order = sorted(needed) if recurrent else _ordered(needed, sources)
        # recurrent networks of neat evaluate only nodes with a connection; the others remain 0 regardless of their bias
        evaluated = [key for key in order if sources[key] or not recurrent]
        # connections of a node with response 0 have no effect
        ends = {*evaluated, *inputs}
        links = {link: w for link, w in links.items() if ends >= {*link} and genome.nodes[link[1]].response}
        read = _sources(links)
        used = _needed(outputs, read, inputs)
        if not any(source in inputs for node in used for source in read[node]):
            raise MeshError("no enabled path leads from an input to an output of this genome, so there is nothing to "
                            "learn; take another genome, or add a connection")  # fmt: skip
        found = {}
        for key in (key for key in evaluated if key in used):
            gene = genome.nodes[key]
            form = _form(settings, key, gene.activation, key in outputs, recurrent)
            gain = _gain(settings, key, gene.aggregation, len(sources[key])) if gene.response else 0.0
            found[key] = _Node(gene, form, gain)
        depth: dict[int, int] = {}
        for key, node in found.items():
            before = max((depth.get(source, 0) for source in read[key]), default=0)
            depth[key] = before + node.form.stages(key in outputs)
        links = {link: weight for link, weight in links.items() if link[1] in found}
        return _built(inputs, outputs, found, links, 1 if recurrent else max(depth.values()))


def _built(
    inputs: list[int], outputs: list[int], found: Mapping[int, _Node], links: Mapping[Link, float], ticks: int
) -> _GenomeNet:
    """Make the neurons of nodes, named by node key, (key, 0), (key, 1), ... for helpers, and None for the bias."""
    activations: dict[Any, str] = {}
    entry: dict[int, tuple[Any, float]] = {}  # per node, the neuron at which its connections end, and its slope
    outer = dict.fromkeys(inputs, 1.0)  # per node, the factor that the edges out of it apply
    edges: list[_Edge] = []
    for key in [*sorted(found.keys() - {*outputs}), *outputs]:
        outer[key] = 1.0
        if key not in found:  # an output that neat does not evaluate
            activations[key] = "identity"
            edges.append(_Edge(None, key, 0.0))
            continue
        form, helpers = found[key].form, found[key].form.helpers(key in outputs)
        first, slope = (key, 0) if helpers else key, 1.0 if helpers > 1 else form.terms[0].slope
        activations[first] = "identity" if helpers > 1 else form.terms[0].name
        if helpers > 1:
            for k, term in enumerate(form.terms, 1):
                activations[key, k] = term.name
                edges += [_Edge(first, (key, k), term.slope), _Edge((key, k), key, term.outer)]
                edges += [_Edge(None, (key, k), term.shift)] if term.shift else []
        elif helpers:
            edges.append(_Edge(first, key, form.terms[0].outer))
        else:
            outer[key] = form.terms[0].outer
        activations.setdefault(key, "identity")
        entry[key] = first, slope
        edges.append(_Edge(None, first, slope * float(found[key].gene.bias), key, slope))
    for (source, key), weight in links.items():
        first, slope = entry[key]
        factor = float(found[key].gene.response) * found[key].gain * slope * outer[source]
        edges.append(_Edge(source, first, factor * weight, (source, key), factor))
    hidden = [name for name in activations if name not in outputs]
    number = {name: k for k, name in enumerate([*inputs, None, *hidden, *outputs])}
    edges = [edge._replace(source=number[edge.source], dest=number[edge.dest]) for edge in edges]
    return _GenomeNet(
        (len(inputs), len(hidden), len(outputs)), [name if isinstance(name, int) else None for name in number],
        [activations[name] for name in (*hidden, *outputs)], sorted(edges, key=lambda e: (e.dest, e.source)), ticks,
    )  # fmt: skip

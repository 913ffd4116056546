"""Genomes of neat-python as meshes, and back: evolve a graph, learn its weights, continue evolution with them.

`FeedForwardNetwork` and `RecurrentNetwork` of neat and the mesh of a genome have the same outputs, but for rounding.
docs/neat.md lists the activations that are exact, and has an example.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshnn.errors import MeshError
from meshnn.integrations.neat import GenomeNet
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["from_neat", "gradient_by_gene", "nodes", "to_neat"]


def from_neat(genome: Any, config: Any, kind: str | None = None) -> Mesh:
    """Return the mesh of a genome, with its weights, in float64: the same outputs, and gradients.

    Inputs and outputs are in the order of the config. Biases are the edges of the bias neuron; responses and slopes of
    activations are factors of the weights. Disabled connections and nodes that no output needs are left out.

    Parameters
    ----------
    genome : neat.DefaultGenome
        Or any other with the same genes. Aggregations are `sum` and `mean`, or anything of one input.
    config : neat.Config
    kind : "feed_forward" or "recurrent", optional
        Which network of neat the mesh is; by default as `feed_forward` of the config says. A feed-forward one has as
        many ticks as its longest path, and `forward(X)` is `activate` of each row. A recurrent one has one tick per
        step: `forward(X, every_tick=True)` of a sequence (steps, batch, n_inputs) is `activate` step by step after
        `reset`, `state=` and `return_state=` continue it, and `stream(ticks_per_sample=1)` learns online.

    Returns
    -------
    Mesh

    Examples
    --------
    >>> from types import SimpleNamespace as Made  # genes by hand; those of neat are the same
    >>> from meshnn.neat import from_neat
    >>> node = Made(bias=0.5, response=2.0, activation="relu", aggregation="sum")
    >>> genome = Made(nodes={0: node}, connections={(-1, 0): Made(key=(-1, 0), weight=3.0, enabled=True)})
    >>> settings = Made(input_keys=[-1], output_keys=[0], feed_forward=True,
    ...     activation_defs={"relu": lambda z: max(z, 0.0)}, aggregation_function_defs={"sum": sum})
    >>> from_neat(genome, Made(genome_config=settings)).forward([[1.0]]).tolist()  # 0.5 + 2 * 3
    [[6.5]]
    """
    net = GenomeNet.of(genome, config, kind)
    learned = np.array([edge.gene is not None for edge in net.edges])
    tied = np.where(learned, np.cumsum(learned) - 1, -1)
    topology = Topology(*net.sizes, [edge[:2] for edge in net.edges])
    mesh = Mesh(topology, net.ticks, weights=[edge.weight for edge in net.edges], dtype="float64", tied=tied)
    mesh.activations = net.activations  # outputs may differ among themselves
    return mesh


def to_neat(mesh: Mesh, genome: Any, config: Any, kind: str | None = None) -> Any:
    """Return a copy of the genome with the weights and biases that its mesh has learned, to continue evolution with.

    An edge that was pruned meanwhile is a connection of weight 0. Responses, activations and connections that the mesh
    has not stay as they are, and genes whose edge is as it was keep all their bits. The copy has no fitness yet. Genes
    may lie beyond `weight_max_value` of the config: neat clips those it mutates.

    Parameters
    ----------
    mesh : Mesh
        Of `from_neat(genome, config, kind)`.
    genome, config, kind
        As for `from_neat`; the genome is not changed.
    """
    if not isinstance(mesh, Mesh):
        raise MeshError(f"to_neat takes the mesh first, then genome and config; got {type(mesh).__name__}")
    net, t = GenomeNet.of(genome, config, kind), mesh.topology
    if (t.n_inputs, t.n_hidden, t.n_outputs) != net.sizes or not t.bias or mesh.activations != net.activations:
        raise MeshError(
            f"this is not the mesh of the genome: it is {t!r}, the genome's has {net.sizes} inputs, hidden neurons and "
            f"outputs, with the activations {', '.join(net.activations)}; pass what from_neat was given"
        )
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
            raise MeshError(
                f"edge {edge[:2]} has the fixed weight {edge.weight}, part of an activation of neat, but here it is "
                f"{now}, and a genome has no gene for it; learn from the mesh of from_neat, with its fixed edges"
            )
        if edge.gene.kind == "bias":
            copy.nodes[edge.gene.key].bias = now / edge.factor
        else:
            copy.connections[edge.gene.key].weight = now / edge.factor
    if rest:
        raise MeshError(
            f"the mesh has {len(rest)} edges that the genome has not, {next(iter(rest))} the first; pass the genome it "
            "was made of, and do not add edges"
        )
    return copy


def nodes(genome: Any, config: Any, kind: str | None = None) -> list[int | None]:
    """Return the node of each neuron of the genome's mesh: inputs, None for the bias, hidden nodes, outputs.

    Neurons that are part of an activation have None, too. A hidden node with softplus has 5 times neat's value.
    """
    return GenomeNet.of(genome, config, kind).keys


def gradient_by_gene(
    gradient: ArrayLike, genome: Any, config: Any, kind: str | None = None
) -> tuple[dict[tuple[int, int], float], dict[int, float]]:
    """Return a gradient by the parameters of the mesh as one by genes: of connections by key, of biases by node.

    Parameters
    ----------
    gradient : array_like (n_parameters,)
        Of `Mesh.gradient`, or a row of `Mesh.jacobian`, for `from_neat(genome, config, kind)`.
    """
    given = np.asarray(gradient, dtype=np.float64)
    learned = [(edge.gene, edge.factor) for edge in GenomeNet.of(genome, config, kind).edges if edge.gene is not None]
    if given.shape != (len(learned),):
        raise MeshError(f"the gradient must have shape ({len(learned)},), one number per parameter; got {given.shape}")
    found: dict[str, dict[Any, float]] = {"connection": {}, "bias": {}}
    for (gene, factor), value in zip(learned, given.tolist(), strict=True):
        found[gene.kind][gene.key] = value * factor
    return found["connection"], found["bias"]

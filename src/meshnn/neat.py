"""Genomes of neat-python as meshes, and back: evolve a graph, learn its weights, let evolution go on with them.

`FeedForwardNetwork` and `RecurrentNetwork` of neat and the mesh of a genome have the same outputs, but for rounding.
docs/neat.md has the activations that are exact, and an example.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshnn.errors import MeshError
from meshnn.integrations.neat import Drawing, draw, gene_values, write
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["from_neat", "gradient_by_gene", "nodes", "to_neat"]


def from_neat(genome: Any, config: Any, kind: str | None = None) -> Mesh:
    """The mesh of a genome, with its weights, in float64: the same outputs, and gradients.

    Inputs and outputs are in the order of the config. Biases are the edges of the bias neuron; responses and slopes of
    activations are factors of the weights. Connections that are disabled and nodes that no output needs are left out.

    Parameters
    ----------
    genome : neat.DefaultGenome
        Or any other with the same genes. Aggregations are `sum` and `mean`, or anything of one input.
    config : neat.Config
    kind : "feed_forward" or "recurrent", optional
        Which network of neat the mesh is; by default as `feed_forward` of the config says. A feed-forward one has as
        many ticks as its longest path, and `forward(X)` is `activate` of each row. A recurrent one has one tick a step:
        `forward(X, every_tick=True)` of a sequence (steps, batch, n_inputs) is `activate` step by step after `reset`,
        `state=` and `return_state=` carry on, and `stream(ticks_per_sample=1)` learns on the way.

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
    drawing = draw(genome, config, kind)
    topology = Topology(drawing.n_inputs, drawing.n_hidden, drawing.n_outputs, drawing.edges)
    mesh = Mesh(topology, drawing.ticks, weights=drawing.weights, dtype="float64", parameter=drawing.parameter)
    mesh.activations = drawing.activations  # outputs may differ among themselves
    return mesh


def to_neat(mesh: Mesh, genome: Any, config: Any, kind: str | None = None) -> Any:
    """A copy of the genome with the weights and biases that its mesh has learned: evolution can go on with it.

    An edge that was pruned meanwhile is a connection of weight 0. Responses, activations and connections that the mesh
    has not stay as they are. The copy has no fitness yet. Genes may lie beyond `weight_max_value` of the config: neat
    cuts those it mutates.

    Parameters
    ----------
    mesh : Mesh
        Of `from_neat(genome, config, kind)`.
    genome, config, kind
        As for `from_neat`; the genome is not changed.
    """
    if not isinstance(mesh, Mesh):
        raise MeshError(f"to_neat takes the mesh first, then genome and config; got {type(mesh).__name__}")
    drawing = draw(genome, config, kind)
    _check_same_neurons(mesh, drawing)
    wrong = np.flatnonzero(~np.isfinite(mesh.weights))
    if wrong.size:
        raise MeshError(
            f"weight {wrong[0]} of the mesh is {mesh.weights[wrong[0]]}, which neat would mutate and hand on; keep the "
            "genome as it was"
        )
    t = mesh.topology
    ends = zip(t.src.tolist(), t.dst.tolist(), strict=True)
    return write(drawing, dict(zip(ends, mesh.weights.tolist(), strict=True)), genome)


def nodes(genome: Any, config: Any, kind: str | None = None) -> list[int | None]:
    """Of each neuron of the genome's mesh the key of its node: inputs, None for the bias, hidden nodes, outputs.

    It is None, too, for neurons that are a part of an activation. A hidden node with softplus has 5 times neat's value.
    """
    return draw(genome, config, kind).keys


def gradient_by_gene(
    gradient: ArrayLike, genome: Any, config: Any, kind: str | None = None
) -> tuple[dict[tuple[int, int], float], dict[int, float]]:
    """A gradient by the parameters of the mesh as one by genes: of connections, by their keys, and of biases, by nodes.

    Parameters
    ----------
    gradient : array_like (n_parameters,)
        Of `Mesh.gradient`, or a row of `Mesh.jacobian`, for `from_neat(genome, config, kind)`.
    """
    return gene_values(draw(genome, config, kind), np.asarray(gradient))


def _check_same_neurons(mesh: Mesh, drawing: Drawing) -> None:
    t = mesh.topology
    got, wanted = (t.n_inputs, t.n_hidden, t.n_outputs), (drawing.n_inputs, drawing.n_hidden, drawing.n_outputs)
    if got != wanted or not t.bias or mesh.activations != drawing.activations:
        raise MeshError(
            f"this is not the mesh of the genome: it has {_words(got)}, the genome's has {_words(wanted)}, with these "
            f"activations: {', '.join(drawing.activations)}. Pass the genome, config and kind that from_neat was given"
        )


def _words(sizes: tuple[int, int, int]) -> str:
    return "{} inputs, {} hidden neurons and {} outputs".format(*sizes)

"""Graphs for sequences: what `topology` and `hidden` mean there, and how such nets begin."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arguments import known, whole_number
from meshnn.arrays import Array, IntArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.topology.reach import NEVER, birth_ticks

__all__ = ["GRAPHS", "begin", "delay", "hidden_of", "recurrent"]

#: Hidden neurons of a net for sequences, at most and at least, and edges that it may have; see benchmarks/sequences.py.
MOST, LEAST, EDGES = 20, 4, 500
#: What a neuron keeps of its own state, and takes of the one before it, as long as it has not learned; and the most
#: that one keeps where there is no other. By cross-validation on training sets.
KEPT, HANDED_ON, ALONE = 0.2, 0.8, 0.95


def chain(n_inputs: int, n_hidden: int, n_outputs: int) -> Topology:
    """Neurons in a row: each reads the inputs, itself and the one before it; outputs read all of them.

    Self-loops forget slowly, the row hands on: together they are a delay line that is soft and learns. It has two
    recurrent edges a neuron, where a mesh has one for each pair.
    """
    return _of_rows(n_inputs, n_hidden, n_outputs, linked=True)


def columns(n_inputs: int, n_hidden: int, n_outputs: int) -> Topology:
    """Neurons that read the inputs and themselves."""
    return _of_rows(n_inputs, n_hidden, n_outputs, linked=False)


def mesh(n_inputs: int, n_hidden: int, n_outputs: int) -> Topology:
    """Everything feeds everything, self-loops among it."""
    return Topology.mesh(n_inputs, n_hidden, n_outputs, self_loops=True)


GRAPHS = {"chain": chain, "columns": columns, "mesh": mesh}


def _of_rows(n_inputs: int, n_hidden: int, n_outputs: int, linked: bool) -> Topology:
    first = n_inputs + 1
    hidden, outputs = first + np.arange(n_hidden), first + n_hidden + np.arange(n_outputs)
    return Topology(
        n_inputs,
        n_hidden,
        n_outputs,
        np.concatenate(
            [
                _pairs(np.arange(first), hidden),
                np.stack([hidden, hidden], axis=1),
                *([np.stack([hidden[:-1], hidden[1:]], axis=1)] if linked else []),
                _pairs(hidden, outputs),
                _pairs(np.array([n_inputs]), outputs),
            ]
        ),
    )


def _pairs(sources: IntArray, ends: IntArray) -> IntArray:
    return np.stack(np.meshgrid(sources, ends, indexing="ij"), axis=-1).reshape(-1, 2)


def recurrent(kind: Any, hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
    """The graph of a name, with so many hidden neurons."""
    make = GRAPHS[known("topology", "chain" if kind is None else kind, GRAPHS)]
    if isinstance(hidden, str) and hidden == "auto":
        hidden = hidden_of(make, n_inputs, n_outputs)
    if isinstance(hidden, (str, list, tuple, np.ndarray)):
        raise MeshError(
            f'hidden of a net for sequences must be "auto" or a whole number, got {hidden!r}; '
            "for another graph pass topology=, a Topology or a callable (n_inputs, n_outputs)"
        )
    return make(n_inputs, whole_number("hidden", hidden), n_outputs)


def hidden_of(make: Any, n_inputs: int, n_outputs: int) -> int:
    """As many as EDGES allow, within bounds."""
    fitting = (h for h in range(MOST, LEAST, -1) if make(n_inputs, h, n_outputs).n_edges <= EDGES)
    return next(fitting, LEAST)


def begin(mesh: Mesh, weights: Array) -> Array:
    """Weights as drawn for a mesh, but with self-loops and links that remember.

    Drawn like the others they would be near 0 where a neuron has many inputs, and nothing that was seen some steps ago
    would be there to learn from. Columns forget at different rates.
    """
    t, found = mesh.topology, weights.copy()
    loops = t.src == t.dst
    links = (t.dst == t.src + 1) & (t.src >= t.n_clamped) & (t.dst < t.n_clamped + t.n_hidden)
    found[loops] = KEPT if links.any() else np.linspace(0.0, ALONE, int(loops.sum()))
    found[links] = HANDED_ON
    return found


def delay(topology: Topology, causal: bool) -> int:
    """Ticks after which a step has come to the outputs through every hidden neuron, by its shortest way.

    If `causal`, by the shortest way of all: then nothing that comes later is seen.
    """
    t = topology
    wired = (t.src != t.n_inputs) | (not t.bias)  # the bias is there from the first tick on, whatever the step
    there = birth_ticks(t.n_neurons, t.n_clamped, t.src[wired], t.dst[wired])
    ways = (there + t._distance)[t.hidden]
    ways = ways[ways < NEVER]
    if causal or len(ways) == 0:
        reached = there[t.outputs]
        return int(reached[reached < NEVER].min(initial=NEVER)) - 1 if (reached < NEVER).any() else 0
    return int(ways.max()) - 1

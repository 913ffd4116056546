"""Nets that grow on a stream: inputs and outputs are added, and influences move to their new positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.plan.influence import InfluencePlan
from meshnn.topology import Topology

__all__ = ["Growth", "grown", "moved_influences", "row_slices"]


class Growth(NamedTuple):
    """A graph that extends another one."""

    topology: Topology
    neurons: IntArray  # (n_neurons,) index of each neuron in the old graph; -1 if it is new
    edges: IntArray  # (n_edges,) index of each edge in the old graph; -1 if it is new


def grown(topology: Topology, inputs: int = 0, outputs: int = 0) -> Growth:
    """Return a graph with more inputs and outputs.

    A new input has edges to all neurons that read other inputs; a new output reads all neurons that other outputs read.
    Without such neurons, hidden neurons or the bias are used. Existing inputs and outputs keep their numbers.

    Examples
    --------
    >>> from meshnn import Topology
    >>> from meshnn.streaming.growth import grown
    >>> grown(Topology.layered([2, 3, 1]), inputs=1, outputs=1).topology
    Topology(3 inputs + bias, 3 hidden, 2 outputs, 20 edges)
    """
    t, n = topology, topology.n_neurons
    shift = np.arange(n)
    shift[t.n_inputs :] += inputs
    hidden, outs = np.arange(t.n_clamped, n - t.n_outputs), np.arange(n - t.n_outputs, n)
    fed = np.unique(t.dst[(t.src < t.n_inputs) & (t.dst >= t.n_clamped)])
    fed = fed if fed.size else (hidden if hidden.size else outs)
    read = np.unique(t.src[t.dst >= n - t.n_outputs])
    read = read[read < n - t.n_outputs]
    read = read if read.size else np.concatenate([hidden, np.arange(t.n_inputs, t.n_clamped)])
    new_in = np.arange(t.n_inputs, t.n_inputs + inputs)
    new_out = np.arange(n + inputs, n + inputs + outputs)
    old = np.stack([shift[t.src], shift[t.dst]], axis=1)
    # a new output reads inputs, old and new, only if the other outputs do
    sources = np.concatenate([shift[read], new_in if (read < t.n_inputs).any() else new_in[:0]])
    new = [
        np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
        for a, b in ((new_in, shift[fed]), (sources, new_out))
    ]
    pairs = np.unique(np.concatenate(new), axis=0)
    every = np.concatenate([old, pairs]).astype(np.int64)
    found = Topology(t.n_inputs + inputs, t.n_hidden, t.n_outputs + outputs, every, bias=t.bias)
    order = np.lexsort((every[:, 0], every[:, 1]))
    edges = np.concatenate([np.arange(len(old)), np.full(len(pairs), -1)])[order]
    neurons = np.full(found.n_neurons, -1)
    neurons[shift] = np.arange(n)
    return Growth(found, neurons, edges)


def row_slices(plan: InfluencePlan, topology: Topology) -> Iterator[tuple[int, IntArray, slice]]:
    """Yield each neuron with the edges that influence it and their columns in J."""
    for o in range(topology.n_clamped, topology.n_neurons):
        kind, begin = int(plan.reach.number[o]), int(plan.course.offset[o])
        if kind >= 0:
            mask = np.zeros(topology.n_neurons, np.bool_)
            mask[plan.reach.sets[kind]] = True
            edges: IntArray = np.flatnonzero(plan.learned & mask[topology.dst])
            yield o, edges, slice(begin, begin + len(edges))


def moved_influences(
    old: InfluencePlan, before: Topology, J: Array, new: InfluencePlan, growth: Growth, into: Array
) -> None:
    """Copy influences (columns,) into the rows of a grown net; those of new edges and neurons are 0."""
    line = np.zeros(before.n_edges + 1, J.dtype)  # the last element is for new edges
    rows = {o: (edges, place) for o, edges, place in row_slices(old, before)}
    for o, edges, place in row_slices(new, growth.topology):
        was = int(growth.neurons[o])
        if was in rows:
            line[:] = 0
            line[rows[was][0]] = J[rows[was][1]]
            into[place] = line[growth.edges[edges]]

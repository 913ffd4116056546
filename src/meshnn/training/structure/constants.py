"""Hidden neurons that nothing but the bias feeds: what they give is a constant, and a bias gives one for fewer edges.

Such a neuron is 0 before the first tick and phi(b) after it. What it feeds takes w phi(b) into its own bias instead.
The net computes the same unless the state of what it feeds matters after the very first tick, to which the neuron had
not spoken yet: then that one state is another, and training goes on from there.
"""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array, BoolArray, FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["folded", "spent"]


def _constant(t: Topology, removed: BoolArray) -> BoolArray:
    """Hidden neurons that only the bias feeds, if anything does, once those edges are gone."""
    fed = ~removed & (t.src != t.n_inputs) if t.bias else ~removed
    found: BoolArray = np.bincount(t.dst[fed], minlength=t.n_neurons) == 0
    found[: t.n_clamped] = found[t.n_neurons - t.n_outputs :] = False
    return found


def _bias_edges(t: Topology) -> IntArray:
    """Of each neuron the edge from the bias to it, or -1."""
    found = np.full(t.n_neurons, -1)
    if t.bias:
        edges = np.flatnonzero(t.src == t.n_inputs)
        found[t.dst[edges]] = edges
    return found


def spent(t: Topology, removed: BoolArray) -> BoolArray:
    """Mask of the edges, not among those removed, whose part the bias of what they feed can take."""
    into = _bias_edges(t)
    able = (into >= 0) & ~removed[into]
    found = np.zeros(t.n_edges, np.bool_)
    while True:  # what they feed may be constant then
        more = _constant(t, removed | found)[t.src] & able[t.dst] & ~removed & ~found
        if not more.any():
            return found
        found |= more


def folded(mesh: Mesh, removed: BoolArray) -> Array | None:
    """What the weights of bias edges grow by as edges of constant neurons go; None if nothing does."""
    t = mesh.topology
    into, before = _bias_edges(t), mesh.weights.astype(np.float64)
    left = _constant(t, removed)
    edges = np.flatnonzero(removed & left[t.src])
    edges = edges[into[t.dst[edges]] >= 0]
    weights = before.copy()
    while edges.size:
        waits = np.zeros(t.n_neurons, np.bool_)
        waits[t.dst[edges]] = True
        now = edges[~waits[t.src[edges]]]  # nothing is added to the bias of these any more
        if not now.size:
            break  # they feed each other
        neurons = np.unique(t.src[now])
        own = into[neurons]
        values = np.zeros(t.n_neurons)
        values[neurons] = _activated(mesh.codes[neurons], np.where(own >= 0, weights[own], 0.0))
        np.add.at(weights, into[t.dst[now]], weights[now] * values[t.src[now]])
        edges = np.setdiff1d(edges, now)
    shift = np.where(removed, 0.0, weights - before)
    return shift if shift.any() else None


def _activated(codes: IntArray, sums: FloatArray) -> FloatArray:
    """phi of some neurons, by the engine: outputs that the bias feeds."""
    n = len(sums)
    t = Topology(1, 0, n, np.stack([np.ones(n, np.int64), np.arange(2, n + 2)], axis=1), bias=True)
    mesh = Mesh(t, 1, weights=sums, dtype="float64")
    mesh.replace(t, sums, np.concatenate([mesh.codes[:2], codes]))
    found: FloatArray = mesh.forward(np.zeros((1, 1)))[0]
    return found

"""`View`: what a policy sees of a training; and what becomes of hidden neurons that only the bias feeds.

The output of such a neuron is a constant, which a bias gives with fewer edges: it is 0 before the first tick and phi(b)
after it, and what it feeds takes w phi(b) into its own bias instead. The net computes the same unless the state of what
it feeds matters after the very first tick, which the neuron had not reached yet: then that one state is another, and
training goes on from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array, BoolArray, FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.topology import Topology, reach
from meshnn.topology.lineage import Lineage
from meshnn.training.samples import Samples
from meshnn.training.structure.graph import Allowed, Edit, apply_edit

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """A net between two rows of its history."""

    mesh: Mesh
    samples: Samples
    rng: np.random.Generator
    allowed: Allowed
    lineage: Lineage
    growing: bool  # whether some policy adds edges or neurons
    epoch: int
    max_epochs: int
    loss: float = math.nan

    @property
    def progress(self) -> float:
        """The share of the training that is done."""
        return self.epoch / self.max_epochs

    @property
    def from_bias(self) -> BoolArray:
        """Edges of the bias."""
        t = self.mesh.topology
        return t.src == t.n_inputs if t.bias else np.zeros(t.n_edges, np.bool_)

    def absent(self) -> IntArray:
        """Allowed edges that are not there."""
        return self.allowed.absent(self.mesh.topology, self.lineage.hidden)

    def dead_without(self, removed: BoolArray) -> BoolArray:
        """Edges that cannot influence an output once those are gone, and those."""
        t = self.mesh.topology
        rest = ~removed
        dead = np.ones(t.n_edges, np.bool_)
        sizes = (t.n_neurons, t.n_clamped, t.n_outputs)
        dead[rest] = reach.dead_within(*sizes, t.src[rest], t.dst[rest], self.mesh.ticks, self.mesh.awake)
        return dead

    def idle_without(self, removed: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Edges that are dead or do no more than a bias could once those are gone, and those; and the second kind.

        As long as edges may come, or where some are tied, a neuron keeps what it gives.
        """
        constant = np.zeros_like(removed)
        if not self.growing and self.mesh.ties.plain:
            constant = _spent(self.mesh.topology, removed)
        return self.dead_without(removed | constant), constant

    def folded(self, removed: BoolArray) -> Array | None:
        """What bias edges take over from constant neurons as those edges go."""
        return _folded(self.mesh, removed) if not self.growing and self.mesh.ties.plain else None

    def protected(self, scores: FloatArray) -> BoolArray:
        """For every output the edges of a way from an input within the ticks, that with the best weakest edge."""
        t, ticks = self.mesh.topology, self.mesh.ticks
        safe = np.zeros(t.n_edges, np.bool_)
        to_outputs = self.from_bias & (t.dst >= t.n_neurons - t.n_outputs)
        if int(to_outputs.sum()) == t.n_outputs:  # the bias reaches them all
            return to_outputs
        best = np.full(t.n_neurons, -np.inf)
        best[: t.n_clamped] = np.inf
        came: list[IntArray] = []
        usable = t.dst >= t.n_clamped
        src, dst, at = t.src[usable], t.dst[usable], np.flatnonzero(usable)
        for _ in range(min(ticks, t.n_neurons)):  # after k rounds, ways of at most k edges
            value = np.minimum(best[src], scores[at])
            order = np.lexsort((value, dst))
            last = np.flatnonzero(np.append(np.diff(dst[order]) != 0, True))
            step = np.full(t.n_neurons, -1)
            ends, edges = dst[order][last], order[last]
            better = value[edges] > best[ends]
            step[ends[better]] = at[edges[better]]
            best[ends[better]] = value[edges[better]]
            came.append(step)
        for output in t.outputs.tolist():
            node = output
            for step in reversed(came):
                if step[node] >= 0:
                    safe[step[node]] = True
                    node = int(t.src[step[node]])
        return safe

    def score_of(self, edit: Edit, sample: tuple[Any, Any, Tree]) -> float:
        """How large the gradient of the new edges of weight 0 would be."""
        t = self.mesh.topology
        trial = Mesh(t, self.mesh.ticks, weights=self.mesh.weights, dtype=self.mesh.dtype)
        trial.replace(t, self.mesh.weights, self.mesh.codes)
        apply_edit(trial, edit)
        X, y, options = sample
        _, grad = trial.gradient(X, y, self.samples.loss.name, **options)
        new = trial.topology.src == t.n_clamped + t.n_hidden  # what leaves the new neuron
        return float(np.linalg.norm(grad[new].astype(np.float64)))


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


def _spent(t: Topology, removed: BoolArray) -> BoolArray:
    """Mask of the edges, not among those removed, whose part the bias of what they feed can take."""
    into = _bias_edges(t)
    able = (into >= 0) & ~removed[into]
    found = np.zeros(t.n_edges, np.bool_)
    while True:  # what they feed may be constant then
        more = _constant(t, removed | found)[t.src] & able[t.dst] & ~removed & ~found
        if not more.any():
            return found
        found |= more


def _folded(mesh: Mesh, removed: BoolArray) -> Array | None:
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

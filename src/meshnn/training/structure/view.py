"""`View`: what a policy sees of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array, BoolArray, FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.topology import reach
from meshnn.topology.lineage import Lineage
from meshnn.training.samples import Samples
from meshnn.training.structure.allowed import Allowed
from meshnn.training.structure.constants import folded, spent
from meshnn.training.structure.edit import Edit, apply_edit

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
            constant = spent(self.mesh.topology, removed)
        return self.dead_without(removed | constant), constant

    def folded(self, removed: BoolArray) -> Array | None:
        """What bias edges take over from constant neurons as those edges go, see `constants`."""
        return folded(self.mesh, removed) if not self.growing and self.mesh.ties.plain else None

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

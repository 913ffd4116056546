"""The graph of a net that changes: which edges it may have, edits, and what a policy sees of a training (`View`).

A hidden neuron that only the bias feeds is a constant, which a bias gives with fewer edges: it is 0 before the first
tick and phi(b) after it, and what it feeds takes w phi(b) into its own bias instead. The net computes the same unless
the state of what it feeds matters after the very first tick: then that one state is another, and training goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, BoolArray, FloatArray, IntArray
from meshnn.codes import ACTIVATIONS, FORMULAS
from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.topology import Topology, reach
from meshnn.topology.lineage import Lineage
from meshnn.training.samples import InMemorySamples, Samples
from meshnn.training.solvers import Change


class Allowed:
    """Edges into hidden neurons and outputs that a net may have; edges of the bias are allowed and never counted here.

    Parameters
    ----------
    topology : Topology
        Without a mask, what is allowed follows from it: everything from inputs and hidden neurons; from outputs,
        between them, and from a neuron to itself only if it has such edges.
    mask : array_like of bool (n_neurons, n_neurons) or Topology, optional
        `mask[i, j]`: the edge from i to j may be there. New hidden neurons may have any edge.
    """

    def __init__(self, topology: Topology, mask: Any = None) -> None:
        t = topology
        first = t.n_neurons - t.n_outputs
        self.from_outputs = bool((t.src >= first).any())
        self.between_outputs = bool(((t.src >= first) & (t.dst >= first)).any())
        self.self_loops = bool((t.src == t.dst).any())
        self.mask: BoolArray | None = None
        self.n_hidden = t.n_hidden  # those that the mask knows
        if mask is None:
            return
        if isinstance(mask, Topology):
            if mask._shape != t._shape:
                raise MeshError(f"allowed must have the neurons of the net ({t!r}), got {mask!r}")
            found = np.zeros((t.n_neurons, t.n_neurons), np.bool_)
            found[mask.src, mask.dst] = True
        else:
            found = np.asarray(mask)
            if found.shape != (t.n_neurons, t.n_neurons) or found.dtype != np.bool_:
                raise MeshError(
                    f"allowed must be a mask of shape ({t.n_neurons}, {t.n_neurons}) or a Topology, "
                    f"got shape {found.shape} of dtype {found.dtype}"
                )
        self.mask = found
        if not found[t.src, t.dst].all():
            k = int(np.flatnonzero(~found[t.src, t.dst])[0])
            raise MeshError(f"the net has the edge ({t.src[k]}, {t.dst[k]}), which `allowed` leaves out")

    def _matrix(self, topology: Topology, hidden: IntArray) -> BoolArray:
        """[to, from]: whether the edge may be there, but for those of the bias.

        `hidden` says which of the first hidden neurons each one is; numbers beyond are new neurons.
        """
        t, n = topology, topology.n_neurons
        check_fits(17.0 * n * n, "the list of allowed edges", "take fewer neurons")
        found = np.zeros((n, n), np.bool_)
        found[t.n_clamped :, : t.n_inputs] = True
        found[t.n_clamped :, t.n_clamped :] = True
        first_output = n - t.n_outputs
        if self.mask is not None:  # it has the numbers of the first graph, and none for new neurons
            old = hidden < self.n_hidden
            now = np.concatenate([np.arange(t.n_clamped), t.hidden[old], t.outputs])
            first = np.concatenate([now[: t.n_clamped], t.n_clamped + hidden[old], t.outputs - n + len(self.mask)])
            found[np.ix_(now, now)] &= self.mask.T[np.ix_(first, first)]
            return found
        if not self.from_outputs:
            found[:, first_output:] = False
        if not self.between_outputs:
            found[first_output:, first_output:] = False
        if not self.self_loops:
            np.fill_diagonal(found, False)
        return found

    def absent(self, topology: Topology, hidden: IntArray) -> IntArray:
        """Allowed edges that are not there, sorted by (destination, source); `hidden` as a lineage has it."""
        found = self._matrix(topology, hidden)
        found[topology.dst, topology.src] = False
        return np.argwhere(found)[:, ::-1]

    def dense(self, topology: Topology) -> Topology:
        """The graph with all allowed edges, and the edges of its bias to all of them."""
        t = topology
        found = self._matrix(t, np.arange(t.n_hidden))
        found[t.dst, t.src] = True
        if t.bias:
            found[t.n_clamped :, t.n_inputs] = True
        return Topology(t.n_inputs, t.n_hidden, t.n_outputs, np.argwhere(found)[:, ::-1], bias=t.bias)


class Edit(NamedTuple):
    """A change of the graph."""

    remove: BoolArray  # (n_edges,) edges that go
    add: IntArray  # (m, 2) edges that come; new hidden neurons are numbered behind the hidden ones there are
    weights: Array  # (m,) theirs
    reason: str
    neurons: int = 0  # hidden neurons that come
    drop: bool = False  # whether hidden neurons that are left without an edge go
    shift: Array | None = None  # (n_edges,) what the weights there are grow by

    @classmethod
    def removal(cls, view: View, remove: BoolArray, reason: str) -> Edit:
        """Edges that go, and with them, unless the graph grows, neurons that they leave without any."""
        none, drop = np.empty((0, 2), np.int64), not view.growing
        return cls(remove, none, np.empty(0), reason, drop=drop, shift=view.folded(remove))


def apply_edit(mesh: Mesh, edit: Edit) -> Change:
    """Change the mesh in place."""
    t = mesh.topology
    shift = np.arange(t.n_neurons)
    shift[t.outputs] += edit.neurons  # outputs stay the last ones
    kept = np.flatnonzero(~edit.remove)
    pairs = np.concatenate([np.stack([shift[t.src[kept]], shift[t.dst[kept]]], axis=1), edit.add])
    origin = np.concatenate([kept, np.full(len(edit.add), -1)])
    before = mesh.weights if edit.shift is None else (mesh.weights + edit.shift).astype(mesh.dtype)
    weights = np.concatenate([before[kept], np.asarray(edit.weights, mesh.dtype)])
    hidden = np.concatenate([np.arange(t.n_hidden), np.full(edit.neurons, -1)])
    if edit.drop:
        pairs, hidden = _without_lone_neurons(pairs, hidden, t.n_clamped, t.n_outputs)
    # as a topology sorts them; what was kept is sorted already
    order = np.argsort(pairs[:, 1] * np.int64(t.n_clamped + len(hidden) + t.n_outputs) + pairs[:, 0], kind="stable")
    topology = Topology(t.n_inputs, len(hidden), t.n_outputs, pairs[order], bias=t.bias)
    ties, parameters = mesh.ties.edited(origin[order])
    mesh.replace(topology, weights[order], _codes(mesh, hidden), ties)
    return Change(origin[order], hidden, parameters)


def _codes(mesh: Mesh, hidden: IntArray) -> IntArray:
    """Activations of neurons of which `hidden` stayed; new ones take that of the first there was, or else relu."""
    t, codes = mesh.topology, mesh.codes
    before = codes[t.hidden] if t.n_hidden else np.array([ACTIVATIONS["relu"]])
    return np.concatenate([codes[: t.n_clamped], before[np.maximum(hidden, 0)], codes[t.outputs]])


def _without_lone_neurons(
    pairs: IntArray, hidden: IntArray, n_clamped: int, n_outputs: int
) -> tuple[IntArray, IntArray]:
    n = n_clamped + len(hidden) + n_outputs
    used = np.zeros(n, np.bool_)
    used[pairs] = True
    used[:n_clamped] = used[n - n_outputs :] = True
    number = np.cumsum(used) - 1
    return number[pairs], hidden[used[n_clamped : n - n_outputs]]


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

    def idle_without(self, removed: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Edges that are dead or do no more than a bias could once those are gone, and those; and the second kind.

        As long as edges may come, or where some are tied, a neuron keeps what it gives.
        """
        t, constant = self.mesh.topology, np.zeros_like(removed)
        if not self.growing and self.mesh.ties.plain:
            constant = _spent(t, removed)
        rest, idle = ~(removed | constant), np.ones(t.n_edges, np.bool_)
        src, dst = t.src[rest], t.dst[rest]
        birth = reach.birth_ticks(t.n_neurons, t.n_clamped, src, dst, self.mesh.awake)
        distance = reach.output_distance(t.n_neurons, t.n_clamped, t.n_outputs, src, dst)
        idle[rest] = birth[src] + 1 + distance[dst] > self.mesh.ticks
        return idle, constant

    def folded(self, removed: BoolArray) -> Array | None:
        """Return the amounts that bias edges take over from constant neurons when those edges are removed."""
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

    def score_of(self, edit: Edit, sample: InMemorySamples) -> float:
        """How large the gradient of the new edges of weight 0 would be."""
        t = self.mesh.topology
        trial = Mesh(t, self.mesh.ticks, weights=self.mesh.weights, dtype=self.mesh.dtype)
        trial.replace(t, self.mesh.weights, self.mesh.codes)
        apply_edit(trial, edit)
        _, grad = trial.gradient(sample.inputs, sample.targets)
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
    """Return the changes of the weights of bias edges when edges of constant neurons are removed; None without any."""
    t = mesh.topology
    into, before = _bias_edges(t), mesh.weights.astype(np.float64)
    left = _constant(t, removed)
    edges = np.flatnonzero(removed & left[t.src])
    edges = edges[into[t.dst[edges]] >= 0]
    weights, formulas = before.copy(), list(FORMULAS.values())
    while edges.size:
        waits = np.zeros(t.n_neurons, np.bool_)
        waits[t.dst[edges]] = True
        now = edges[~waits[t.src[edges]]]  # nothing is added to the bias of these any more
        if not now.size:
            break  # they feed each other
        neurons = np.unique(t.src[now])
        own = into[neurons]
        sums = np.where(own >= 0, weights[own], 0.0)
        values = np.zeros(t.n_neurons)
        values[neurons] = [formulas[code](np, s) for code, s in zip(mesh.codes[neurons], sums, strict=True)]
        np.add.at(weights, into[t.dst[now]], weights[now] * values[t.src[now]])
        edges = np.setdiff1d(edges, now)
    shift = np.where(removed, 0.0, weights - before)
    return shift if shift.any() else None

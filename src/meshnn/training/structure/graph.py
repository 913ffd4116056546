"""A graph that changes: the allowed edges, edits, and the information that a policy gets about the training (`View`).

A hidden neuron whose only input is the bias is constant: its state is 0 before the first tick and phi(b) after it. Its
edges can be replaced by adding w phi(b) to the bias of each target. The outputs stay the same, except if the state of a
target after the very first tick matters: that state changes, and training continues from it.
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
    """The edges that a net may have, except those of the bias, which are always allowed.

    Parameters
    ----------
    topology : Topology
        The initial graph. Without a mask, all edges from inputs and hidden neurons are allowed; edges from outputs,
        edges between outputs and self-loops are allowed only if the graph has such edges.
    mask : array_like of bool (n_neurons, n_neurons) or Topology, optional
        `mask[i, j]` states whether the edge from i to j is allowed. New hidden neurons may have any edge.
    """

    def __init__(self, topology: Topology, mask: Any = None) -> None:
        t = topology
        first = t.n_neurons - t.n_outputs
        self.from_outputs = bool((t.src >= first).any())
        self.between_outputs = bool(((t.src >= first) & (t.dst >= first)).any())
        self.self_loops = bool((t.src == t.dst).any())
        self.mask: BoolArray | None = None
        self.n_hidden = t.n_hidden  # hidden neurons of the mask
        if mask is None:
            return
        if isinstance(mask, Topology):
            if mask._shape != t._shape:
                raise MeshError(f"allowed must have the same neurons as the net ({t!r}), got {mask!r}")
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
            raise MeshError(f"the net has the edge ({t.src[k]}, {t.dst[k]}), which `allowed` does not contain")

    def _matrix(self, topology: Topology, hidden: IntArray) -> BoolArray:
        """Return the matrix [to, from] of the allowed edges, without those of the bias.

        `hidden` contains the original index of every hidden neuron; higher numbers are new neurons.
        """
        t, n = topology, topology.n_neurons
        check_fits(17.0 * n * n, "the list of allowed edges", "use fewer neurons")
        found = np.zeros((n, n), np.bool_)
        found[t.n_clamped :, : t.n_inputs] = True
        found[t.n_clamped :, t.n_clamped :] = True
        first_output = n - t.n_outputs
        if self.mask is not None:  # it has the neuron numbers of the initial graph
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
        """Return the allowed edges that the graph lacks, sorted by (destination, source); `hidden` as in `Lineage`."""
        found = self._matrix(topology, hidden)
        found[topology.dst, topology.src] = False
        return np.argwhere(found)[:, ::-1]

    def dense(self, topology: Topology) -> Topology:
        """Return the graph with all allowed edges, and with all bias edges if it has a bias."""
        t = topology
        found = self._matrix(t, np.arange(t.n_hidden))
        found[t.dst, t.src] = True
        if t.bias:
            found[t.n_clamped :, t.n_inputs] = True
        return Topology(t.n_inputs, t.n_hidden, t.n_outputs, np.argwhere(found)[:, ::-1], bias=t.bias)


class Edit(NamedTuple):
    """A change of the graph."""

    remove: BoolArray  # (n_edges,) mask of the edges to remove
    add: IntArray  # (m, 2) edges to add; new hidden neurons have the numbers after the present hidden neurons
    weights: Array  # (m,) weights of the added edges
    reason: str
    neurons: int = 0  # number of hidden neurons to add
    drop: bool = False  # whether to remove hidden neurons without edges
    shift: Array | None = None  # (n_edges,) amounts added to the present weights

    @classmethod
    def removal(cls, view: View, remove: BoolArray, reason: str) -> Edit:
        """Return an edit that removes edges and, unless the graph grows, the neurons without edges."""
        none, drop = np.empty((0, 2), np.int64), not view.growing
        return cls(remove, none, np.empty(0), reason, drop=drop, shift=view.folded(remove))


def apply_edit(mesh: Mesh, edit: Edit) -> Change:
    """Apply an edit to the mesh in place."""
    t = mesh.topology
    shift = np.arange(t.n_neurons)
    shift[t.outputs] += edit.neurons  # outputs have the last numbers
    kept = np.flatnonzero(~edit.remove)
    pairs = np.concatenate([np.stack([shift[t.src[kept]], shift[t.dst[kept]]], axis=1), edit.add])
    origin = np.concatenate([kept, np.full(len(edit.add), -1)])
    before = mesh.weights if edit.shift is None else (mesh.weights + edit.shift).astype(mesh.dtype)
    weights = np.concatenate([before[kept], np.asarray(edit.weights, mesh.dtype)])
    hidden = np.concatenate([np.arange(t.n_hidden), np.full(edit.neurons, -1)])
    if edit.drop:
        pairs, hidden = _without_lone_neurons(pairs, hidden, t.n_clamped, t.n_outputs)
    # the order of edges in a `Topology`
    order = np.argsort(pairs[:, 1] * np.int64(t.n_clamped + len(hidden) + t.n_outputs) + pairs[:, 0], kind="stable")
    topology = Topology(t.n_inputs, len(hidden), t.n_outputs, pairs[order], bias=t.bias)
    ties, parameters = mesh.ties.edited(origin[order])
    mesh.replace(topology, weights[order], _codes(mesh, hidden), ties)
    return Change(origin[order], hidden, parameters)


def _codes(mesh: Mesh, hidden: IntArray) -> IntArray:
    """Return the activation codes after an edit; new neurons get that of the first hidden neuron, by default relu."""
    t, codes = mesh.topology, mesh.codes
    before = codes[t.hidden] if t.n_hidden else np.array([ACTIVATIONS["relu"]])
    return np.concatenate([codes[: t.n_clamped], before[np.maximum(hidden, 0)], codes[t.outputs]])


def _without_lone_neurons(
    pairs: IntArray, hidden: IntArray, n_clamped: int, n_outputs: int
) -> tuple[IntArray, IntArray]:
    """Return the edges, renumbered, and the hidden neurons without those that have no edge."""
    n = n_clamped + len(hidden) + n_outputs
    used = np.zeros(n, np.bool_)
    used[pairs] = True
    used[:n_clamped] = used[n - n_outputs :] = True
    number = np.cumsum(used) - 1
    return number[pairs], hidden[used[n_clamped : n - n_outputs]]


@dataclass(frozen=True)
class View:
    """The net and its training, as a policy sees them between two rows of the history."""

    mesh: Mesh
    samples: Samples
    rng: np.random.Generator
    allowed: Allowed
    lineage: Lineage
    growing: bool  # whether any policy adds edges or neurons
    epoch: int
    max_epochs: int
    loss: float = math.nan

    @property
    def progress(self) -> float:
        """The fraction of the training that is done."""
        return self.epoch / self.max_epochs

    @property
    def from_bias(self) -> BoolArray:
        """Mask of the edges of the bias."""
        t = self.mesh.topology
        return t.src == t.n_inputs if t.bias else np.zeros(t.n_edges, np.bool_)

    def absent(self) -> IntArray:
        """Return the allowed edges that the graph lacks."""
        return self.allowed.absent(self.mesh.topology, self.lineage.hidden)

    def idle_without(self, removed: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Return the masks of the edges that are idle once `removed` are gone, and of the constant ones among them.

        Idle edges are the removed ones, dead ones, and edges of constant neurons, which a bias can replace. The latter
        are kept if any policy adds edges or if edges are tied.
        """
        t, constant = self.mesh.topology, np.zeros_like(removed)
        if not self.growing and self.mesh.ties.plain:
            constant = _replaceable(t, removed)
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
        """Return the mask of one path from an input to every output: the one whose smallest score is largest."""
        t, ticks = self.mesh.topology, self.mesh.ticks
        safe = np.zeros(t.n_edges, np.bool_)
        to_outputs = self.from_bias & (t.dst >= t.n_neurons - t.n_outputs)
        if int(to_outputs.sum()) == t.n_outputs:  # the bias reaches all outputs
            return to_outputs
        best = np.full(t.n_neurons, -np.inf)
        best[: t.n_clamped] = np.inf
        steps: list[IntArray] = []
        usable = t.dst >= t.n_clamped
        src, dst, at = t.src[usable], t.dst[usable], np.flatnonzero(usable)
        for _ in range(min(ticks, t.n_neurons)):  # after k rounds: paths of at most k edges
            value = np.minimum(best[src], scores[at])
            order = np.lexsort((value, dst))
            last = np.flatnonzero(np.append(np.diff(dst[order]) != 0, True))
            step = np.full(t.n_neurons, -1)
            ends, edges = dst[order][last], order[last]
            better = value[edges] > best[ends]
            step[ends[better]] = at[edges[better]]
            best[ends[better]] = value[edges[better]]
            steps.append(step)
        for output in t.outputs.tolist():
            node = output
            for step in reversed(steps):
                if step[node] >= 0:
                    safe[step[node]] = True
                    node = int(t.src[step[node]])
        return safe

    def score_of(self, edit: Edit, sample: InMemorySamples) -> float:
        """Return the norm of the gradient of the outgoing edges of a new neuron, whose weights are 0."""
        t = self.mesh.topology
        trial = Mesh(t, self.mesh.ticks, weights=self.mesh.weights, dtype=self.mesh.dtype)
        trial.replace(t, self.mesh.weights, self.mesh.codes)
        apply_edit(trial, edit)
        _, grad = trial.gradient(sample.inputs, sample.targets)
        new = trial.topology.src == t.n_clamped + t.n_hidden
        return float(np.linalg.norm(grad[new].astype(np.float64)))


def _constant(t: Topology, removed: BoolArray) -> BoolArray:
    """Return the mask of hidden neurons without any input except the bias once `removed` are gone."""
    fed = ~removed & (t.src != t.n_inputs) if t.bias else ~removed
    found: BoolArray = np.bincount(t.dst[fed], minlength=t.n_neurons) == 0
    found[: t.n_clamped] = found[t.n_neurons - t.n_outputs :] = False
    return found


def _bias_edges(t: Topology) -> IntArray:
    """Return the index of the bias edge of every neuron, or -1."""
    found = np.full(t.n_neurons, -1)
    if t.bias:
        edges = np.flatnonzero(t.src == t.n_inputs)
        found[t.dst[edges]] = edges
    return found


def _replaceable(t: Topology, removed: BoolArray) -> BoolArray:
    """Return the mask of further edges that leave constant neurons and that the bias of their target can replace."""
    into = _bias_edges(t)
    able = (into >= 0) & ~removed[into]
    found = np.zeros(t.n_edges, np.bool_)
    while True:  # their targets may become constant as well
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
        now = edges[~waits[t.src[edges]]]  # the bias of their sources is final
        if not now.size:
            break  # a cycle
        neurons = np.unique(t.src[now])
        own = into[neurons]
        sums = np.where(own >= 0, weights[own], 0.0)
        values = np.zeros(t.n_neurons)
        values[neurons] = [formulas[code](np, s) for code, s in zip(mesh.codes[neurons], sums, strict=True)]
        np.add.at(weights, into[t.dst[now]], weights[now] * values[t.src[now]])
        edges = np.setdiff1d(edges, now)
    shift = np.where(removed, 0.0, weights - before)
    return shift if shift.any() else None

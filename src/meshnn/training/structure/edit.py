"""An edit of a net's graph, and what it does to the net: edges really come and go, nothing is masked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training.solvers import Change

__all__ = ["Edit", "apply_edit"]


class Edit(NamedTuple):
    """What to change."""

    remove: BoolArray  # (n_edges,) edges that go
    add: IntArray  # (m, 2) edges that come; new hidden neurons are numbered behind the hidden ones there are
    weights: Array  # (m,) theirs
    reason: str
    neurons: int = 0  # hidden neurons that come
    drop: bool = False  # whether hidden neurons that are left without an edge go
    shift: Array | None = None  # (n_edges,) what the weights there are grow by


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

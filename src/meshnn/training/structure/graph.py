"""The graph of a net that changes: which edges it may have, and edits by which edges really come and go."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training.solvers import Change

__all__ = ["Allowed", "Edit", "apply_edit"]


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

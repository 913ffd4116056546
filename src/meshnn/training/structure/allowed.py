"""Which edges a net may have."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import BoolArray, IntArray
from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.topology import Topology

__all__ = ["Allowed"]


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

"""Which edges a net may have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.topology import Topology

__all__ = ["Allowed"]

#: Cells of a matrix that may be filled to find absent edges.
SQUARE = 50_000_000

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


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
            if (mask.n_inputs, mask.n_hidden, mask.n_outputs, mask.bias) != (
                t.n_inputs,
                t.n_hidden,
                t.n_outputs,
                t.bias,
            ):
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

    def pairs(self, topology: Topology, hidden: IntArray) -> IntArray:
        """All allowed edges of a graph but those of its bias, sorted by (destination, source).

        `hidden` says which of the first hidden neurons each one is; numbers beyond are new neurons.
        """
        t = topology
        check_fits(24.0 * t.n_neurons * (t.n_hidden + t.n_outputs), "the list of allowed edges", "take fewer neurons")
        sources = np.concatenate(
            [t.inputs, t.hidden, *([t.outputs] if self.from_outputs or self.mask is not None else [])]
        )
        targets = np.concatenate([t.hidden, t.outputs])
        dst, src = np.repeat(targets, len(sources)), np.tile(sources, len(targets))
        if self.mask is None:
            good = np.ones(len(src), np.bool_) if self.self_loops else src != dst
            if not self.between_outputs:
                good &= (src < t.outputs[0]) | (dst < t.outputs[0])
            return np.asarray(np.stack([src, dst], axis=1)[good])
        # numbers of the first graph; new neurons have none
        first = np.full(t.n_neurons, -1)
        first[: t.n_clamped] = np.arange(t.n_clamped)
        old = hidden < self.n_hidden
        first[t.hidden[old]] = t.n_clamped + hidden[old]
        first[t.outputs] = self.mask.shape[0] - t.n_outputs + np.arange(t.n_outputs)
        a, b = first[src], first[dst]
        good = (a < 0) | (b < 0)
        good[~good] = self.mask[a[~good], b[~good]]
        return np.asarray(np.stack([src, dst], axis=1)[good])

    def absent(self, topology: Topology, hidden: IntArray) -> IntArray:
        """Allowed edges that are not there."""
        t, n = topology, topology.n_neurons
        if self.mask is None and n * n <= SQUARE:  # much faster than to compare lists
            free = np.zeros((n, n), np.bool_)  # [to, from]
            last = n if self.from_outputs else n - t.n_outputs
            free[t.n_clamped :, : t.n_inputs] = True
            free[t.n_clamped :, t.n_clamped : last] = True
            if not self.between_outputs:
                free[n - t.n_outputs :, n - t.n_outputs :] = False
            if not self.self_loops:
                np.fill_diagonal(free, False)
            free[t.dst, t.src] = False
            return np.argwhere(free)[:, ::-1]
        pairs = self.pairs(topology, hidden)
        return pairs[~np.isin(pairs[:, 1] * n + pairs[:, 0], t.dst * n + t.src)]

    def dense(self, topology: Topology) -> Topology:
        """The graph with all allowed edges, and the edges of its bias to all of them."""
        t = topology
        pairs = [self.pairs(t, np.arange(t.n_hidden)), np.stack([t.src, t.dst], axis=1)]
        if t.bias:
            free = np.arange(t.n_clamped, t.n_neurons)
            pairs.append(np.stack([np.full(len(free), t.n_inputs), free], axis=1))
        every = np.unique(np.concatenate(pairs), axis=0)
        return Topology(t.n_inputs, t.n_hidden, t.n_outputs, every, bias=t.bias)

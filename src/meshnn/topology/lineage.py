"""`Lineage`: the history of a graph, edit by edit.

The numbers of neurons change when hidden neurons are added or removed, so a lineage uses permanent names: the numbers
of inputs and bias, then consecutive numbers for hidden neurons in order of creation, and -1, -2, ... for the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from meshnn.arguments import whole_number
from meshnn.arrays import IntArray
from meshnn.errors import TopologyError
from meshnn.topology.topology import Topology

__all__ = ["Lineage", "LineageStep"]


class LineageStep(NamedTuple):
    """One edit: its epoch, the added and removed edges as pairs of names, and the reason."""

    epoch: int
    added: IntArray
    removed: IntArray
    reason: str


class Lineage:
    """The first graph and all later edits.

    Examples
    --------
    >>> from meshnn import Topology
    >>> from meshnn.topology.lineage import Lineage
    >>> lineage = Lineage(Topology.layered([2, 1]))
    >>> lineage.edges_over_time()
    [(0, 3)]
    """

    def __init__(self, topology: Topology) -> None:
        self.n_clamped, self.n_outputs = topology.n_clamped, topology.n_outputs
        self.born = topology.n_hidden  # number of hidden neurons ever created
        self.hidden = np.arange(topology.n_hidden, dtype=np.int64)  # creation index of each current hidden neuron
        self.first = self.named(topology)
        self.steps: list[LineageStep] = []

    def named(self, topology: Topology) -> IntArray:
        """Return the edges of the current graph as pairs of names."""
        assert topology.n_hidden == len(self.hidden)
        outputs = -1 - np.arange(self.n_outputs)
        names = np.concatenate([np.arange(self.n_clamped), self.n_clamped + self.hidden, outputs])
        return np.stack([names[topology.src], names[topology.dst]], axis=1)

    def record(
        self, epoch: int, before: IntArray, after: Topology, edges: IntArray, hidden: IntArray, reason: str
    ) -> LineageStep:
        """Add an edit, from the edges before it (as names), the new graph, and the origin of its edges and neurons.

        `edges` and `hidden` contain for each edge and hidden neuron its index before the edit, or -1 if it is new.
        """
        fresh = hidden < 0
        self.hidden = np.append(self.hidden, 0)[hidden]  # index -1: a new neuron
        self.hidden[fresh] = self.born + np.arange(fresh.sum())
        self.born += int(fresh.sum())
        gone = np.delete(before, edges[edges >= 0], axis=0)
        step = LineageStep(epoch, self.named(after)[edges < 0], gone, reason)
        self.steps.append(step)
        return step

    def edges_over_time(self) -> list[tuple[int, int]]:
        """Return (epoch, number of edges) of the first graph and after every edit."""
        changes = [len(step.added) - len(step.removed) for step in self.steps]
        counts = accumulate(changes, initial=len(self.first))
        return list(zip([0, *(step.epoch for step in self.steps)], counts, strict=True))

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays; the arrays of all steps are concatenated."""
        empty = np.empty((0, 2), np.int64)
        counts = [[len(step.added), len(step.removed)] for step in self.steps]
        return {
            "born": self.born,
            "epochs": [step.epoch for step in self.steps],
            "reasons": [step.reason for step in self.steps],
            "hidden": self.hidden,
            "first": self.first,
            "added": np.concatenate([empty, *(step.added for step in self.steps)]),
            "removed": np.concatenate([empty, *(step.removed for step in self.steps)]),
            "counts": np.array(counts, np.int64).reshape(-1, 2),
        }

    @classmethod
    def from_tree(cls, tree: dict[str, Any], topology: Topology) -> Lineage:
        """Return the lineage that `to_tree` stored, after checks; it must end in the given topology."""
        self = cls(topology)
        held = {name: tree[name] for name in ("hidden", "first", "added", "removed", "counts")}
        for name, array in held.items():
            wanted = (topology.n_hidden,) if name == "hidden" else (len(array), 2)
            if array.dtype != np.int64 or array.shape != wanted:
                raise TopologyError(f"the lineage has {array.dtype} {array.shape} for {name}")
        self.born = whole_number("born", tree["born"], least=topology.n_hidden)
        self.hidden, self.first = held["hidden"], held["first"]
        epochs, reasons, counts = list(tree["epochs"]), list(tree["reasons"]), held["counts"]
        right = len(epochs) == len(reasons) == len(counts) and (counts >= 0).all()
        if not right or (counts.sum(axis=0) != [len(held["added"]), len(held["removed"])]).any():
            raise TopologyError("the steps of the lineage do not fit together")
        ends = np.cumsum(counts, axis=0)
        for k, (epoch, reason) in enumerate(zip(epochs, reasons, strict=True)):
            if not isinstance(reason, str):
                raise TopologyError("a reason in the lineage is not text")
            a, r = (held[name][ends[k, c] - counts[k, c] : ends[k, c]] for c, name in enumerate(("added", "removed")))
            self.steps.append(LineageStep(whole_number("epoch", epoch, least=0), a, r, reason))
        if not np.array_equal(np.sort(_keys(self.last())), np.sort(_keys(self.named(topology)))):
            raise TopologyError("the steps of the lineage do not end in the edges of the graph")
        return self

    def last(self) -> IntArray:
        """Return the edges after the last step."""
        *_, last = self._graphs()
        return last

    def graphs(self) -> list[IntArray]:
        """Return the first edges and those after every step."""
        return list(self._graphs())

    def _graphs(self) -> Iterator[IntArray]:
        edges = self.first
        yield edges
        for step in self.steps:
            edges = np.concatenate([edges[~np.isin(_keys(edges), _keys(step.removed))], step.added])
            yield edges


def _keys(pairs: IntArray) -> IntArray:
    return (pairs[:, 0] + 2**31) * 2**32 + (pairs[:, 1] + 2**31)

"""Products of tensors and weights as operators of ONNX: Gemm, or, of large blocks that are nearly empty, edge by edge.

Nothing is made twice: weights of a tick serve another, and so do sums of tensors that have not changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.export.onnx_graph import Graph, digest

__all__ = ["Block", "Sums", "batch_of"]

#: A block is sparse from so many entries on, if edges are so many times fewer: Gemm is faster for one sample up to four
#: times as many, but slower for many samples from a quarter on.
SPARSE_ENTRIES, SPARSE_TIMES = 2**18, 100
#: Columns that are read are gathered first if they are a smaller share than this, and so many products are saved.
FEW, SAVED = 0.25, 2**14


@dataclass(frozen=True)
class Block:
    """Edges from columns of one tensor to those of another."""

    src: IntArray
    dst: IntArray
    weights: Array
    height: int
    width: int

    @cached_property
    def used(self) -> IntArray:
        """Columns that are read."""
        return np.unique(self.src)

    @property
    def sparse(self) -> bool:
        """Whether to go edge by edge."""
        entries = len(self.used) * self.width
        return entries >= SPARSE_ENTRIES and entries > SPARSE_TIMES * len(self.src)

    @property
    def narrow(self) -> bool:
        """Whether to gather columns first."""
        left = self.height - len(self.used)
        return len(self.used) < FEW * self.height and left * self.width > SAVED

    def narrowed(self) -> Block:
        """Without columns that nobody reads."""
        return Block(np.searchsorted(self.used, self.src), self.dst, self.weights, len(self.used), self.width)

    def dense(self) -> Array:
        """As a matrix (height, width)."""
        found = np.zeros((self.height, self.width))
        found[self.src, self.dst] = self.weights
        return found


class Sums:
    """Weighted sums in a graph; those of the body of a loop see what there is outside of it."""

    def __init__(self, graph: Graph, features: str, outer: Sums | None = None) -> None:
        self.graph, self.features = graph, features
        self.made: dict[tuple[str, ...], str] = {} if outer is None else dict(outer.made)
        self.weights: dict[str, str] = {} if outer is None else outer.weights

    def together(self, label: str, names: tuple[str, ...]) -> str:
        """Tensors side by side; what is there of the first of them is taken as it is."""
        if len(names) == 1:
            return names[0]
        if names not in self.made:
            before = self.made.get(names[:-1])
            joined = names if before is None else (before, names[-1])
            self.made[names] = self.graph.add("Concat", joined, f"{label}/sources", axis=1)
        return self.made[names]

    def add(self, label: str, tensor: str, block: Block, bias: Array, before: str, key: str) -> str:
        """A tensor times weights, added to what was summed before, or to the bias; `key` stands for the neurons."""
        same = digest(block.src, block.dst, block.weights, np.array([block.height, block.width]))
        done = (tensor, before, key, same)  # a tensor may hold states of then that others have replaced since
        if done not in self.made:
            product = self._sparse if block.sparse else self._dense
            self.made[done] = product(label, tensor, block, bias, before, same)
        return self.made[done]

    def _dense(self, label: str, tensor: str, block: Block, bias: Array, before: str, same: str) -> str:
        g = self.graph
        if block.narrow:
            picked = (tensor, digest(block.used), "columns")
            if picked not in self.made:
                columns = g.constant(f"{label}/columns", block.used)
                self.made[picked] = g.add("Gather", (tensor, columns), f"{label}/picked", axis=1)
            tensor, block = self.made[picked], block.narrowed()
        if same not in self.weights:
            g.check_size(block.height * block.width * np.dtype(g.dtype).itemsize)  # before it is made
            self.weights[same] = g.constant(f"{label}/weights", block.dense())
        added = before or g.constant(f"{label}/bias", bias)
        return g.add("Gemm", (tensor, self.weights[same], added), f"{label}/sum")

    def _sparse(self, label: str, tensor: str, block: Block, bias: Array, before: str, same: str) -> str:
        """Edge by edge: rows of samples are gathered, multiplied, and added to the rows of neurons."""
        g = self.graph
        turned = (tensor, "turned")
        if turned not in self.made:
            self.made[turned] = g.add("Transpose", (tensor,), f"{label}/turned", perm=[1, 0])
        if same not in self.weights:
            self.weights[same] = g.constant(f"{label}/weights", block.weights[:, None])
        src = g.constant(f"{label}/sources", block.src)
        dst = g.constant(f"{label}/targets", block.dst[:, None])
        begin = np.zeros(block.width) if before else bias
        shape = self._shape(block.width, turned=True)
        empty = g.add("Expand", (g.constant(f"{label}/bias", begin[:, None]), shape), f"{label}/begin")
        taken = g.add("Gather", (self.made[turned], src), f"{label}/gathered", axis=0)
        products = g.add("Mul", (taken, self.weights[same]), f"{label}/products")
        rows = g.add("ScatterND", (empty, dst, products), f"{label}/rows", reduction="add")
        found = g.add("Transpose", (rows,), f"{label}/sum", perm=[1, 0])
        return g.add("Add", (before, found), f"{label}/all") if before else found

    def spread(self, label: str, bias: Array) -> str:
        """Constants for every sample of a batch."""
        g = self.graph
        return g.add("Expand", (g.constant(f"{label}/bias", bias), self._shape(len(bias))), f"{label}/sum")

    def _shape(self, width: int, turned: bool = False) -> str:
        key = ("shape", str(width), str(turned))
        if key not in self.made:
            count, wide = self._batch(), self.graph.constant(f"shape/{width}", np.array([width]))
            ends = (wide, count) if turned else (count, wide)
            self.made[key] = self.graph.add("Concat", ends, "shape/turned" if turned else "shape", axis=0)
        return self.made[key]

    def _batch(self) -> str:
        if ("batch",) not in self.made:
            self.made["batch",] = batch_of(self.graph, self.features)
        return self.made["batch",]


def batch_of(graph: Graph, features: str, axis: int = 0) -> str:
    """The number of samples, as a shape of one axis."""
    return graph.add("Shape", (features,), "shape/batch", start=axis, end=axis + 1)

"""Strong components of a graph, and the cost of exact influence on it.

Neurons of one strong component are influenced by the same edges. Therefore the derivatives ds[o]/dA[e], which a stream
carries forward, form blocks: one per component, with a column per edge that reaches it. Small components make small
blocks. A graph whose only cycles are self-loops costs per tick as much as its forward pass; a dense component of h
neurons costs h^4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshnn.arrays import BoolArray, IntArray
from meshnn.topology.reach import longest_paths


def components(n: int, n_clamped: int, src: IntArray, dst: IntArray) -> IntArray:
    """Return the component of each neuron, -1 if clamped; no edge between free neurons leads to a lower number."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    free = (src >= n_clamped) & (dst >= n_clamped)
    a, b = src[free] - n_clamped, dst[free] - n_clamped
    graph = csr_array((np.ones(len(a), np.int8), (a, b)), shape=(n - n_clamped, n - n_clamped))
    count, label = connected_components(graph, directed=True, connection="strong")
    # SciPy does not define the order of its labels: sort by depth, then by the first neuron
    between = label[a] != label[b]
    depth = longest_paths(count, label[a][between], label[b][between])
    assert depth is not None  # the graph of components has no cycle
    first = np.unique(label, return_index=True)[1]
    rank = np.empty(count, np.int64)
    rank[np.lexsort((first, depth))] = np.arange(count)
    return np.concatenate([np.full(n_clamped, -1), rank[label]])


def reaching(label: IntArray, src: IntArray, dst: IntArray) -> Iterator[IntArray]:
    """Yield, per component and in order, the components that reach it, itself included.

    Time and memory are proportional to the result.
    """
    a, b, count = label[src], label[dst], int(label.max()) + 1
    links = np.unique(np.stack([b, a], axis=1)[a != b], axis=0)
    begin = np.searchsorted(links[:, 0], np.arange(count + 1))
    reach: list[IntArray] = []
    seen = np.zeros(count, np.bool_)
    for c in range(count):
        found = [np.array([c])]
        for p in links[begin[c] : begin[c + 1], 1][::-1]:  # the last ones first, because they often include the others
            if not seen[p]:
                found.append(reach[p])
                seen[reach[p]] = True
        reach.append(np.unique(np.concatenate(found)))
        seen[reach[c]] = False
        yield reach[c]


def influence_cost(n: int, n_clamped: int, src: IntArray, dst: IntArray, wanted: BoolArray) -> int:
    """Return the sum, over edges i -> o between free neurons, of the wanted edges whose destination reaches i."""
    label = components(n, n_clamped, src, dst)
    count = int(label.max()) + 1
    into = np.bincount(label[dst[wanted & (dst >= n_clamped)]], minlength=count)  # wanted edges into each component
    free = (src >= n_clamped) & (dst >= n_clamped)
    leaving = np.bincount(label[src[free]], minlength=count)  # edges that start in each component
    reach = reaching(label, src[free], dst[free])
    return sum(int(edges) * int(into[those].sum()) for edges, those in zip(leaving, reach, strict=True))

"""Conversion of graphs (matrices, networkx, dictionaries) to and from plain edge arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.errors import TopologyError

__all__ = ["adjacency_entries", "check_dict", "networkx_edges", "networkx_nodes"]

#: Header of a topology dictionary.
HEADER = {"format": "meshnn.topology", "version": 1}


def adjacency_entries(A: Any) -> tuple[int, IntArray, Array]:
    """Return `(n, edges, values)` of a square matrix, sorted by (destination, source).

    The edges are the non-zero entries of a dense matrix, and the stored entries of a sparse one. Stored zeros count, so
    that an edge of weight 0 survives the conversion to a matrix and back.
    """
    if isinstance(A, np.ma.MaskedArray):
        raise TopologyError("the adjacency matrix is a masked array; fill it first, for example A.filled(0)")
    if hasattr(A, "tocoo"):
        coo = A.tocsr().tocoo()  # CSR sums duplicate entries, as scipy defines them
        shape, src, dst, values = coo.shape, coo.row, coo.col, np.asarray(coo.data)
    else:
        try:
            dense = np.asarray(A)
        except ValueError:  # rows of different lengths
            dense = np.empty(0)
        if dense.dtype.kind not in "biufc":
            raise TopologyError(f"the adjacency matrix must hold numbers, got dtype {dense.dtype}")
        dense = np.atleast_2d(dense)
        src, dst, *_ = np.nonzero(dense)
        shape, values = dense.shape, dense[src, dst]
    if len(shape) != 2 or shape[0] != shape[1]:
        raise TopologyError(f"the adjacency matrix must be square (n, n), got shape {tuple(shape)}")
    if not np.isfinite(values).all():
        k = int(np.flatnonzero(~np.isfinite(values))[0])
        raise TopologyError(f"A[{src[k]}, {dst[k]}] is {values[k]}; an entry is a finite weight, or 0 for no edge")
    order = np.lexsort((src, dst))
    return shape[0], np.stack([src, dst], axis=1).astype(np.int64)[order], values[order]


def networkx_nodes(
    graph: Any, inputs: Sequence[Hashable] | None, outputs: Sequence[Hashable] | None, bias: Hashable | None
) -> tuple[dict[Hashable, int], int, int, bool]:
    """Return the neuron of each node of a directed networkx graph, `n_inputs`, `n_outputs` and whether it has a bias.

    Inputs, outputs and bias that are None are the nodes with that role, in the order of `graph.nodes`.
    """
    if not hasattr(graph, "is_directed") or not hasattr(graph, "edges"):
        raise TopologyError(f"expected a networkx.DiGraph, got {type(graph).__name__}")
    if not graph.is_directed():
        raise TopologyError("the graph is undirected; pass G.to_directed(), which has every edge in both directions")
    if graph.is_multigraph():
        raise TopologyError("the graph is a multigraph; pass nx.DiGraph(G), which merges parallel edges")
    first = _with_role(graph, "input") if inputs is None else list(inputs)
    last = _with_role(graph, "output") if outputs is None else list(outputs)
    constant = _with_role(graph, "bias") if bias is None else [bias]
    if len(constant) > 1:
        raise TopologyError(f"at most one node may have the role 'bias', got {constant}")
    chosen = [*first, *constant, *last]
    for node in chosen:
        if node not in graph:
            raise TopologyError(f"{node!r} is not a node of the graph; nodes are {list(graph.nodes)[:8]}")
    taken = set(chosen)
    if len(taken) != len(chosen):
        raise TopologyError(f"inputs, outputs and bias must be different nodes, got {chosen}")
    hidden = [node for node in graph.nodes if node not in taken]
    neurons = {node: k for k, node in enumerate([*first, *constant, *hidden, *last])}
    return neurons, len(first), len(last), bool(constant)


def _with_role(graph: Any, role: str) -> list[Hashable]:
    roles = dict(graph.nodes(data="role"))
    if unknown := {str(given) for given in roles.values()} - {"None", "input", "bias", "hidden", "output"}:
        raise TopologyError(f"the role of a node is input, bias, hidden or output; got {sorted(unknown)[:4]}")
    found = [node for node, given in roles.items() if given == role]
    if not found and role != "bias":
        raise TopologyError(f"no node has the attribute role={role!r}; name the {role}s: {role}s=[...]")
    return found


def networkx_edges(graph: Any, neurons: dict[Hashable, int]) -> IntArray:
    """Return the edges `(n_edges, 2)`, in the order of `graph.edges`."""
    return np.array([(neurons[a], neurons[b]) for a, b in graph.edges], dtype=np.int64).reshape(-1, 2)


def check_dict(d: Any) -> dict[str, Any]:
    """Return the dictionary, or raise an error if its format, version or keys are wrong."""
    if not isinstance(d, dict):
        raise TopologyError(f"expected a dictionary made by Topology.to_dict(), got {type(d).__name__}")
    if d.get("format") != HEADER["format"]:
        raise TopologyError(f"expected a dictionary with format {HEADER['format']!r}, got {d.get('format')!r}")
    if d.get("version") != HEADER["version"] or isinstance(d["version"], bool):
        raise TopologyError(f"this meshnn reads topologies of version {HEADER['version']}, got {d.get('version')!r}")
    wanted = {"format", "version", "n_inputs", "n_hidden", "n_outputs", "bias", "edges"}
    if set(d) != wanted:
        raise TopologyError(f"a topology dictionary has the keys {sorted(wanted)}, got {sorted(map(str, d))}")
    return d

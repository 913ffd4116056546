"""Graphs to networkx: the only file that imports it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["build_digraph"]


def build_digraph(roles: Iterable[str], edges: Iterable[tuple[int, int]]) -> Any:
    """A `networkx.DiGraph` whose nodes are 0, 1, ... with the attribute `role`."""
    try:
        import networkx as nx
    except ImportError as error:  # an optional dependency: say how to get it
        raise ImportError("networkx is not installed; pip install 'meshnn[plots]' brings it") from error
    graph = nx.DiGraph()
    graph.add_nodes_from((node, {"role": role}) for node, role in enumerate(roles))
    graph.add_edges_from(edges)
    return graph

"""Graphs to and from networkx: the only file that imports it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["build_digraph", "read_graphml"]


def build_digraph(roles: Iterable[str], edges: Iterable[tuple[int, int]]) -> Any:
    """A `networkx.DiGraph` whose nodes are 0, 1, ... with the attribute `role`."""
    graph = _networkx().DiGraph()
    graph.add_nodes_from((node, {"role": role}) for node, role in enumerate(roles))
    graph.add_edges_from(edges)
    return graph


def read_graphml(path: str) -> Any:
    """The graph in a GraphML file; a ValueError if it is none."""
    try:
        return _networkx().read_graphml(path)
    except OSError:
        raise
    except Exception as error:  # the parser of XML and networkx have many ways to say no
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:  # an optional dependency: say how to get it
        raise ImportError("networkx is not installed; pip install 'meshnn[plots]' brings it") from error
    return networkx

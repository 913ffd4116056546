"""Conversion of graphs to and from networkx. Only this module imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["build_digraph", "read_graphml"]


def build_digraph(
    nodes: Mapping[str, Sequence[Any]],
    edges: Sequence[tuple[int, int]],
    edge_attributes: Mapping[str, Sequence[Any]] | None = None,
    **attributes: Any,
) -> Any:
    """Return a `networkx.DiGraph` with nodes 0, 1, ...; attributes are lists in the order of nodes and edges."""
    graph = _networkx().DiGraph(**attributes)
    for k, values in enumerate(zip(*nodes.values(), strict=True)):
        graph.add_node(k, **{name: value for name, value in zip(nodes, values, strict=True) if value is not None})
    graph.add_edges_from(edges)
    for name, given in (edge_attributes or {}).items():
        for edge, value in zip(edges, given, strict=True):
            graph.edges[edge][name] = value
    return graph


def read_graphml(path: str) -> Any:
    """Return the graph in a GraphML file; raise a ValueError if it cannot be read."""
    try:
        return _networkx().read_graphml(path)
    except OSError:
        raise
    except Exception as error:  # the XML parser and networkx raise many exception classes
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:  # an optional dependency
        raise ImportError("networkx is not installed; install it with pip install 'meshnn[plots]'") from error
    return networkx

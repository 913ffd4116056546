"""The directed graph of a network: inputs, hidden neurons, outputs and edges, without weights."""

from meshnn.topology.topology import Topology

__all__ = ["Topology"]

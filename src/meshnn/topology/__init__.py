"""The graph of a network: directed, with inputs, hidden neurons and outputs. No numbers."""

from meshnn.topology.topology import Topology

__all__ = ["Topology"]

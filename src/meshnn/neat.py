"""Genomes of neat-python as meshes, and back: evolve a graph, learn its weights, continue evolution with them.

`FeedForwardNetwork` and `RecurrentNetwork` of neat and the mesh of a genome have the same outputs, but for rounding.
"""

from __future__ import annotations

from meshnn.integrations.neat import from_neat, gradient_by_gene, nodes, to_neat

__all__ = ["from_neat", "gradient_by_gene", "nodes", "to_neat"]

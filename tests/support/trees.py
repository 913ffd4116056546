"""Trees of plain values and arrays (`to_tree`), compared bit by bit."""

import numpy as np


def bits(tree):
    """The same as values that == compares: also NaN, also 0.0 and -0.0."""
    if hasattr(tree, "to_tree"):
        return bits(tree.to_tree())
    if isinstance(tree, dict):
        return {name: bits(value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [bits(value) for value in tree]
    if isinstance(tree, np.ndarray):
        return tree.dtype.str, tree.shape, tree.tobytes()
    return repr(tree)

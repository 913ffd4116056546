"""Compare trees of plain values and arrays (`to_tree`) bit by bit."""

import numpy as np


def bits(tree):
    """Return values that compare with == bit by bit: NaN equals NaN, 0.0 differs from -0.0."""
    if hasattr(tree, "to_tree"):
        return bits(tree.to_tree())
    if isinstance(tree, dict):
        return {name: bits(value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [bits(value) for value in tree]
    if isinstance(tree, np.ndarray):
        return tree.dtype.str, tree.shape, tree.tobytes()
    return repr(tree)

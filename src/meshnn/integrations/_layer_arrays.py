"""Layers of other libraries on NumPy arrays: outputs and the vector-Jacobian product of one net or a stack of nets.

`values` has shape `(*stack, n_values)` and `x` `(*stack, ..., n_inputs)`. The axes of the stack are those that `vmap`
of PyTorch or JAX puts in front; each has its full length or 1 and is broadcast. Without a stack there is one net.
Results are written to C-contiguous arrays of the caller, in which the stack has its full shape.
"""

from __future__ import annotations

from math import prod

import numpy as np

from meshnn.arrays import Array
from meshnn.engine.layer import Layer

__all__ = ["forward", "vjp"]


def forward(layer: Layer, values: Array, x: Array, y: Array, n_jobs: int | None = None) -> None:
    """Write the outputs to y `(*stack, ..., n_outputs)`."""
    values, x = np.ascontiguousarray(values), np.ascontiguousarray(x)
    stack = y.shape[: values.ndim - 1]
    if values.size == values.shape[-1]:  # one net: all samples in one call
        stack = ()
    size = prod(y.shape[len(stack) : -1])
    for at_values, at_x, at_y in zip(*(_addresses(a, stack) for a in (values, x, y)), strict=True):
        layer.forward(at_values, at_x, at_y, size, n_jobs)


def vjp(
    layer: Layer, values: Array, x: Array, g: Array, by_values: Array | None, by_x: Array | None,
    n_jobs: int | None = None,
) -> None:  # fmt: skip
    """Write dE/dvalues to by_values `(*stack, n_values)` and dE/dx to by_x from g = dE/dy, unless they are None."""
    values, x, g = (np.ascontiguousarray(a) for a in (values, x, g))
    axes = values.ndim - 1
    stack = np.broadcast_shapes(values.shape[:-1], x.shape[:axes], g.shape[:axes])
    size, given = prod(x.shape[axes:-1]), (values, x, g, by_values, by_x)
    places = ([0] * prod(stack) if a is None else _addresses(a, stack) for a in given)
    for at_values, at_x, at_g, to_values, to_x in zip(*places, strict=True):
        layer.back(at_values, at_x, at_g, to_values, to_x, size, None, n_jobs)


def _addresses(array: Array, stack: tuple[int, ...]) -> list[int]:
    """Return the address of each part of a stack; an axis of length 1 is the same part again and again."""
    first: int = array.__array_interface__["data"][0]
    if not stack:
        return [first]
    found = np.array(first, np.uint64)
    for length, own, stride in zip(stack, array.shape, array.strides, strict=False):
        found = found[..., None] + np.arange(length, dtype=np.uint64) * np.uint64(stride if own > 1 else 0)
    addresses: list[int] = found.ravel().tolist()
    return addresses

"""Layers of other libraries on NumPy arrays: outputs and the vector-Jacobian product of one net or a stack of nets.

`values` has shape `(*stack, n_values)` and `x` `(*stack, ..., n_inputs)`. The axes of the stack are those that `vmap`
of PyTorch or JAX adds in front; each has its full length or 1 and is broadcast. Without a stack there is one net.
"""

from __future__ import annotations

from math import prod

import numpy as np

from meshnn.arrays import Array
from meshnn.engine.layer import Layer

__all__ = ["forward", "vjp"]


def forward(layer: Layer, values: Array, x: Array, n_outputs: int, n_jobs: int | None = None) -> Array:
    """Return the outputs `(*stack, ..., n_outputs)` of samples x."""
    values, x, axes = np.ascontiguousarray(values), np.ascontiguousarray(x), values.ndim - 1
    stack = np.broadcast_shapes(values.shape[:-1], x.shape[:axes]) if axes else ()
    y = np.empty((*stack, *x.shape[axes:-1], n_outputs), layer.dtype)
    if values.size == values.shape[-1]:  # one net: all samples in one call
        stack = ()
    size = prod(y.shape[len(stack) : -1])
    for at_values, at_x, at_y in zip(*(_addresses(a, stack) for a in (values, x, y)), strict=True):
        layer.forward(at_values, at_x, at_y, size, n_jobs)
    return y


def vjp(
    layer: Layer, values: Array, x: Array, g: Array, wanted: tuple[bool, bool] = (True, True), n_jobs: int | None = None
) -> tuple[Array, Array]:
    """Return dE/dvalues `(*stack, n_values)` and dE/dx from g = dE/dy; results that are not requested are empty."""
    values, x, g = (np.ascontiguousarray(a) for a in (values, x, g))
    axes = values.ndim - 1
    stack = np.broadcast_shapes(values.shape[:-1], x.shape[:axes], g.shape[:axes]) if axes else ()
    shapes = [(*stack, *a.shape[axes:]) if want else (0,) for a, want in zip((values, x), wanted, strict=True)]
    made = by_values, by_x = [np.empty(shape, layer.dtype) for shape in shapes]
    size = prod(x.shape[axes:-1])
    places = [_addresses(a, stack) for a in (values, x, g)]
    places += [_addresses(a, stack) if want else [0] * prod(stack) for a, want in zip(made, wanted, strict=True)]
    for at_values, at_x, at_g, to_values, to_x in zip(*places, strict=True):
        layer.back(at_values, at_x, at_g, to_values, to_x, size, None, n_jobs)
    return by_values, by_x


def _addresses(array: Array, stack: tuple[int, ...]) -> list[int]:
    """Return the address of each element of a stack; an axis of length 1 repeats the same address."""
    first: int = array.__array_interface__["data"][0]
    if not stack:
        return [first]
    strides = np.broadcast_to(array, (*stack, *array.shape[len(stack) :])).strides[: len(stack)]
    addresses: list[int] = (first + np.tensordot(strides, np.indices(stack), 1)).ravel().tolist()
    return addresses

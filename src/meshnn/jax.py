"""meshnn in JAX: a net of any graph as a function that `jax.grad`, `jax.jit` and `jax.vmap` take.

JAX is imported when a function is made, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.engine.layer import Layer
from meshnn.errors import DataError, MeshError
from meshnn.mesh import Mesh

__all__ = ["mesh_function"]


def mesh_function(mesh: Mesh) -> Callable[[Any, Any], Any]:
    """The function of a mesh, `f(parameters, x)`, run by meshnn's kernels on the CPU inside JAX.

    It can be compiled, batched and differentiated once by both arguments (`jax.grad`, `jax.vjp`, `jax.jacrev`); JAX
    calls back into Python for it (`jax.pure_callback`).

    Parameters
    ----------
    mesh : Mesh
        Its graph, ticks, activations, ties and fixed weights; what it learns is handed in.

    Returns
    -------
    f : callable
        Of parameters `(n_parameters,)` and x `(..., n_inputs)`, both of the dtype of the mesh, to outputs
        `(..., n_outputs)`.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.jax import mesh_function
    >>> m = Mesh(Topology.layered([2, 1], bias=False), weights=[3.0, 4.0])
    >>> f = mesh_function(m)  # doctest: +SKIP
    >>> jax.grad(lambda w: f(w, jnp.ones((1, 2))).sum())(jnp.asarray(m.parameters))  # doctest: +SKIP
    Array([1., 1.], dtype=float32)
    """
    if not isinstance(mesh, Mesh):
        raise MeshError(f"mesh_function takes a Mesh, got {type(mesh).__name__}; an estimator has one, `mesh_`")
    import jax
    import jax.numpy as jnp

    struct: Any = jax.ShapeDtypeStruct
    t, n_parameters, dtype = mesh.topology, mesh.n_parameters, mesh.dtype
    layer = Layer.of(t, mesh.ticks, mesh.codes, mesh.ties, dtype)
    fixed = mesh.values[n_parameters:].copy()

    @jax.custom_vjp
    def outputs(values: Any, x: Any) -> Any:
        shape = struct((*x.shape[:-1], t.n_outputs), dtype)
        return jax.pure_callback(_Host(layer, t.n_outputs).forward, shape, values, x, vmap_method="expand_dims")

    def remember(values: Any, x: Any) -> Any:
        return outputs(values, x), (values, x)

    def back(kept: Any, g: Any) -> Any:
        shapes = tuple(struct(a.shape, dtype) for a in kept)
        host = _Host(layer, t.n_outputs).back
        return jax.pure_callback(host, shapes, *kept, g, vmap_method="expand_dims")

    outputs.defvjp(remember, back)

    def f(parameters: Any, x: Any) -> Any:
        parameters, x = jnp.asarray(parameters), jnp.asarray(x)
        if parameters.dtype != dtype or x.dtype != dtype:
            raise DataError(
                f"parameters and x must be {dtype} as the mesh is, got {parameters.dtype} and {x.dtype}; convert them, "
                'or build the mesh with another dtype (for float64 JAX wants jax.config.update("jax_enable_x64", True))'
            )
        if parameters.shape != (n_parameters,) or x.ndim == 0 or x.shape[-1] != t.n_inputs:
            raise DataError(
                f"parameters must have shape ({n_parameters},) and x (..., {t.n_inputs}), got {parameters.shape} and "
                f"{x.shape}"
            )
        return outputs(jnp.concatenate([parameters, fixed]) if len(fixed) else parameters, x)

    return f


class _Host:
    """What JAX calls, with arrays that `vmap` has given more axes in front, some of length 1."""

    def __init__(self, layer: Layer, n_outputs: int) -> None:
        self.layer, self.n_outputs = layer, n_outputs

    def forward(self, values: Any, x: Any) -> Array:
        values, x, lead = _stacked(values, x)
        y = np.empty((*lead, *x.shape[len(lead) : -1], self.n_outputs), x.dtype)
        whole = values.size == values.shape[-1]  # one net
        for net, some, out in [(values, x, y)] if whole else _pairs(lead, values, x, y):
            self.layer.forward(_at(net), _at(some), _at(out), some.size // some.shape[-1])
        return y

    def back(self, values: Any, x: Any, g: Any) -> tuple[Array, Array]:
        values, x, lead = _stacked(values, x, g.shape[: values.ndim - 1])
        g = np.ascontiguousarray(np.broadcast_to(g, (*lead, *g.shape[len(lead) :])))
        dv, dx = np.empty((*lead, values.shape[-1]), x.dtype), np.empty_like(x)
        for net, some, slope, *out in _pairs(lead, np.broadcast_to(values, dv.shape), x, g, dv, dx):
            self.layer.back(_at(net), _at(some), _at(slope), _at(out[0]), _at(out[1]), some.size // some.shape[-1])
        return dv, dx


def _stacked(values: Any, x: Any, more: tuple[int, ...] = ()) -> tuple[Array, Array, tuple[int, ...]]:
    """Arrays of NumPy, x with all axes of vmap in full, and these axes."""
    values, x, axes = np.asarray(values), np.asarray(x), values.ndim - 1
    lead = np.broadcast_shapes(values.shape[:-1], x.shape[:axes], more)
    whole = np.broadcast_to(x, (*lead, *x.shape[axes:]))
    if values.size != values.shape[-1]:
        values = np.broadcast_to(values, (*lead, values.shape[-1]))
    return np.ascontiguousarray(values), np.ascontiguousarray(whole), lead


def _pairs(lead: tuple[int, ...], *arrays: Array) -> Any:
    return ([a[k] for a in arrays] for k in np.ndindex(*lead))


def _at(array: Array) -> int:
    return int(array.__array_interface__["data"][0])

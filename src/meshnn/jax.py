"""meshnn in JAX: a mesh as a function for `jax.grad`, `jax.jit` and `jax.vmap`.

JAX is imported by the first call of `mesh_function`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from meshnn.engine.layer import Layer
from meshnn.errors import DataError, MeshError
from meshnn.integrations import _layer_arrays
from meshnn.mesh import Mesh

__all__ = ["mesh_function"]


def mesh_function(mesh: Mesh) -> Callable[[Any, Any], Any]:
    """Return a mesh as a function `f(parameters, x)` for JAX; meshnn's kernels run it on the CPU.

    The function can be compiled, batched and differentiated once with respect to both arguments (`jax.grad`,
    `jax.vjp`, `jax.jacrev`). JAX calls it through `jax.pure_callback`.

    Parameters
    ----------
    mesh : Mesh
        Provides the graph, ticks, activations, ties and fixed weights. The trained weights are an argument of `f`.

    Returns
    -------
    f : callable
        Maps parameters `(n_parameters,)` and x `(..., n_inputs)`, both with the dtype of the mesh, to outputs
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
        raise MeshError(
            f"mesh_function expects a Mesh, got {type(mesh).__name__}; for a fitted estimator pass its `mesh_`"
        )
    import jax
    import jax.numpy as jnp

    struct: Any = jax.ShapeDtypeStruct
    # with "expand_dims" every axis of vmap stands in front of all arguments, with length 1 where it is not batched
    call = partial(jax.pure_callback, vmap_method="expand_dims")
    t, n_parameters, dtype = mesh.topology, mesh.n_parameters, mesh.dtype
    layer = Layer.of(t, mesh.ticks, mesh.codes, mesh.ties, dtype)
    fixed = mesh.values[n_parameters:].copy()

    @jax.custom_vjp
    def outputs(values: Any, x: Any) -> Any:
        shape = struct((*x.shape[:-1], t.n_outputs), dtype)
        return call(lambda w, x: _layer_arrays.forward(layer, w, x, t.n_outputs), shape, values, x)

    def remember(values: Any, x: Any) -> Any:
        return outputs(values, x), (values, x)

    def back(kept: Any, g: Any) -> Any:
        shapes = tuple(struct(a.shape, dtype) for a in kept)
        return call(lambda w, x, g: _layer_arrays.vjp(layer, w, x, g), shapes, *kept, g)

    outputs.defvjp(remember, back)

    def f(parameters: Any, x: Any) -> Any:
        parameters, x = jnp.asarray(parameters), jnp.asarray(x)
        if parameters.dtype != dtype or x.dtype != dtype:
            raise DataError(
                f"parameters and x must be {dtype} as the mesh is, got {parameters.dtype} and {x.dtype}; convert them "
                '(float64 needs jax.config.update("jax_enable_x64", True))'
            )
        if parameters.shape != (n_parameters,) or x.ndim == 0 or x.shape[-1] != t.n_inputs:
            raise DataError(
                f"parameters must have shape ({n_parameters},) and x (..., {t.n_inputs}), got {parameters.shape} and "
                f"{x.shape}"
            )
        return outputs(jnp.concatenate([parameters, fixed]) if len(fixed) else parameters, x)

    return f

"""`meshnn.jax`: the function of a mesh in JAX, compared with `Mesh` and PyTorch."""

import numpy as np
import pytest

from meshnn import Mesh, MeshClassifier, MeshError, Topology

jax = pytest.importorskip("jax", reason="meshnn.jax IS NOT TESTED without jax: pip install '.[jax]'")
import jax.numpy as jnp  # noqa: E402
import torch  # noqa: E402

from meshnn.jax import mesh_function  # noqa: E402
from meshnn.torch import MeshLayer  # noqa: E402

pytestmark = pytest.mark.slow  # compiling its kernels and JAX takes longer than all its tests


def make(ties=False):
    topology = Topology.mesh(3, 5, 2, self_loops=True)
    tied = np.arange(topology.n_edges) % 7 - 1 if ties else None
    return Mesh(topology, 4, "tanh", random_state=0, tied=tied)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def witness(mesh, weights, x):
    """Return gradients of the sum of squares by PyTorch, in plain operations."""
    layer = MeshLayer.from_mesh(mesh, pure=True)
    w, x = torch.tensor(np.array(weights), requires_grad=True), torch.tensor(np.array(x), requires_grad=True)
    found = torch.autograd.grad(torch.func.functional_call(layer, {"weight": w}, (x,)).square().sum(), (w, x))
    return [a.numpy() for a in found]


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("shape", "ties", "wrap"), [
    ((3,), False, jax.jit), ((70, 3), False, jax.jit), ((2, 5, 3), True, jax.jit), ((0, 3), False, jax.jit),
    ((4, 3), True, lambda f: f),
])  # fmt: skip
def test_outputs_and_gradients(shape, ties, wrap):
    mesh = make(ties)
    f, w, x = mesh_function(mesh), jnp.asarray(mesh.parameters), numbers(*shape)
    close(wrap(f)(w, x), MeshLayer.from_mesh(mesh)(torch.tensor(x)).detach().numpy())
    got = wrap(jax.grad(lambda w, x: (f(w, x) ** 2).sum(), (0, 1)))(w, x)
    for a, b in zip(got, witness(mesh, w, x), strict=True):
        close(a, b)


def test_batches_of_nets_and_of_samples():
    mesh = make(ties=True)
    f, x = mesh_function(mesh), numbers(4, 3)
    ws = jnp.stack([jnp.asarray(mesh.parameters) * k for k in (1.0, 0.5, -1.0)])

    def loss(w, x):
        return (f(w, x) ** 2).sum()

    gradient = jax.grad(loss)
    close(jax.vmap(f, (None, 0))(ws[0], x), f(ws[0], x))
    close(jax.vmap(f, (0, None))(ws, x), np.stack([f(w, x) for w in ws]))
    each = np.stack([np.stack([witness(mesh, w, a)[0] for a in x]) for w in ws])
    close(jax.vmap(gradient, (None, 0))(ws[0], x), each[0])
    close(jax.vmap(gradient, (0, None))(ws, x), np.stack([witness(mesh, w, x)[0] for w in ws]))
    close(jax.jit(jax.vmap(jax.vmap(gradient, (None, 0)), (0, None)))(ws, x), each)
    close(jax.vmap(jax.vmap(gradient, (0, None)), (None, 0))(ws, x), each.swapaxes(0, 1))
    rows = jax.jacrev(f)(ws[0], x)
    close(np.einsum("bo,bop->p", 2 * np.asarray(f(ws[0], x)), rows), witness(mesh, ws[0], x)[0])


def test_what_is_refused():
    mesh = make()
    f, w = mesh_function(mesh), jnp.asarray(mesh.parameters)
    with pytest.raises(MeshError, match="int32"):
        f(w, jnp.ones((2, 3), jnp.int32))
    with pytest.raises(MeshError, match=r"\(2, 4\)"):
        f(w, jnp.ones((2, 4)))
    with pytest.raises(MeshError, match=str(len(w) - 1)):
        f(w[1:], jnp.ones((2, 3)))
    with pytest.raises(MeshError, match="MeshClassifier"):
        mesh_function(MeshClassifier())

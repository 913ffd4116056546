"""The same loss and gradient in other libraries, optimised for one thread.

Dense: the product with the inputs is computed once, the last tick only computes the outputs, and a layered net is
computed by layers. Sparse: PyTorch with CSR products and `sampled_addmm`, because autograd would compute a dense
gradient; JAX with a gather and a segment sum over the list of edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.topology import Topology

__all__ = ["PEERS", "warm_up"]

Array = NDArray[Any]
#: A call computes loss and gradient once and returns the loss, or None if it is not available.
Step = Callable[[], float | None]


def warm_up(contestant: str) -> None:
    """Import the library and allocate its constant memory, so that it does not count as memory of a net."""
    if contestant.startswith("torch"):
        import torch

        torch.set_num_threads(1)
        x = torch.ones(64, 64, requires_grad=True)
        _backward((x @ x).relu().sum())
    elif contestant.startswith("jax"):
        import jax

        jax.jit(jax.grad(lambda x: (x @ x).sum()))(np.ones((64, 64), np.float32)).block_until_ready()
    elif contestant != "tensor":
        import sklearn.neural_network  # noqa: F401


def _tensor(t: Topology, layered: bool, ticks: int, X: Array, y: Array, weights: Array) -> Step:
    """Return a call of the paper's algorithm."""
    from meshnn.mesh import Mesh
    from meshnn.paper.tensor import tensor_gradient

    mesh = Mesh(t, ticks, "relu", weights=weights)
    return lambda: tensor_gradient(mesh, X, y)[0]


def _torch_dense(t: Topology, layered: bool, ticks: int, X: Array, y: Array, weights: Array) -> Step:
    import torch

    labels = torch.from_numpy(y)
    relu, cross_entropy = torch.relu, torch.nn.functional.cross_entropy
    x = torch.from_numpy(_with_bias(t, X))
    c, n, o = t.n_clamped, t.n_neurons, t.n_outputs
    src, dst = torch.from_numpy(t.src.astype(np.int64)), torch.from_numpy(t.dst.astype(np.int64))
    whole = torch.zeros(n, n)
    whole[src, dst] = torch.from_numpy(weights)
    if layered:  # two matrices, each with the bias in its last row
        first = whole[:c, c : n - o].clone().requires_grad_(True)
        second = torch.cat([whole[c : n - o, n - o :], whole[c - 1 : c, n - o :]]).requires_grad_(True)
        ones = torch.ones(len(X), 1)
        del whole

        def layers() -> float:
            first.grad = second.grad = None
            loss = cross_entropy(torch.cat([relu(x @ first), ones], dim=1) @ second, labels)
            _backward(loss)
            return float(loss.detach())

        return layers
    mask = torch.zeros(n, n)
    mask[src, dst] = 1.0
    A = whole.requires_grad_(True)

    def step() -> float:
        A.grad = None
        masked = A * mask
        z = drive = x @ masked[:c, c:]
        for k in range(1, ticks):
            s = torch.cat([relu(z[:, :-o]), z[:, -o:]], dim=1)
            z = drive + s @ masked[c:, c:] if k < ticks - 1 else drive[:, -o:] + s @ masked[c:, -o:]
        loss = cross_entropy(z[:, -o:], labels)
        _backward(loss)
        return float(loss.detach())

    return step


def _torch_sparse(t: Topology, layered: bool, ticks: int, X: Array, y: Array, weights: Array) -> Step:
    import warnings

    import torch

    warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
    n, c, o = t.n_neurons, t.n_clamped, t.n_outputs

    def csr(rows: Array, columns: Array) -> Any:
        ptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        return torch.sparse_csr_tensor(torch.tensor(ptr), torch.tensor(columns), torch.zeros(len(rows)), (n, n))

    order = np.argsort(t.src, kind="stable")
    by_dst = csr(t.dst, t.src.astype(np.int64))
    by_src = csr(t.src[order], t.dst[order].astype(np.int64))
    turned = torch.from_numpy(order)

    class Product(torch.autograd.Function):
        """z = At s, At in CSR given by its values."""

        @staticmethod
        def forward(ctx: Any, values: Any, s: Any) -> Any:
            """Compute the product."""
            ctx.save_for_backward(values, s)
            return torch.sparse_csr_tensor(by_dst.crow_indices(), by_dst.col_indices(), values, (n, n)) @ s

        @staticmethod
        def backward(ctx: Any, dz: Any) -> Any:
            """Compute the gradient for the edges only."""
            values, s = ctx.saved_tensors
            dz = dz.contiguous()
            grad = torch.sparse.sampled_addmm(by_dst, dz, s.t(), beta=0.0).values()
            if not ctx.needs_input_grad[1]:
                return grad, None
            A = torch.sparse_csr_tensor(by_src.crow_indices(), by_src.col_indices(), values[turned], (n, n))
            return grad, A @ dz

    product: Any = Product.apply
    x = torch.from_numpy(_with_bias(t, X)).t().contiguous()
    labels = torch.from_numpy(y)
    start = torch.cat([x, torch.zeros(n - c, x.shape[1])])
    values = torch.tensor(weights, requires_grad=True)

    def step() -> float:
        values.grad = None
        s = start
        for _ in range(ticks):
            z = product(values, s)
            s = torch.cat([x, torch.relu(z[c:-o]), z[-o:]])
        loss = torch.nn.functional.cross_entropy(s[-o:].t(), labels)
        _backward(loss)
        return float(loss.detach())

    return step


def _jax(outputs: Callable[[Any, Any, Any], Any], parameters: Any, x: Array, y: Array) -> Step:
    """Return a compiled call for loss and gradient of a function of (jax.numpy, parameters, x)."""
    import jax
    import jax.numpy as jnp

    data, labels = jnp.asarray(x), jnp.asarray(y)

    def loss(w: Any) -> Any:
        logits = outputs(jnp, w, data)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()

    both, w = jax.jit(jax.value_and_grad(loss)), jax.tree.map(jnp.asarray, parameters)
    done: Any = jax.block_until_ready

    def step() -> float:
        return float(done(both(w))[0])

    return step


def _jax_dense(t: Topology, layered: bool, ticks: int, X: Array, y: Array, weights: Array) -> Step:
    c, n, o = t.n_clamped, t.n_neurons, t.n_outputs
    A, mask = np.zeros((n, n), np.float32), np.zeros((n, n), np.float32)
    A[t.src, t.dst], mask[t.src, t.dst] = weights, 1.0

    def layers(jnp: Any, w: Any, x: Any) -> Any:
        hidden = jnp.maximum(x @ w[0], 0.0)
        return jnp.concatenate([hidden, jnp.ones((x.shape[0], 1), x.dtype)], axis=1) @ w[1]

    def mesh(jnp: Any, w: Any, x: Any) -> Any:
        masked = w * mask
        z = drive = x @ masked[:c, c:]
        for k in range(1, ticks):
            s = jnp.concatenate([jnp.maximum(z[:, :-o], 0.0), z[:, -o:]], axis=1)
            z = drive + s @ masked[c:, c:] if k < ticks - 1 else drive[:, -o:] + s @ masked[c:, -o:]
        return z[:, -o:]

    if layered:
        second = np.concatenate([A[c : n - o, n - o :], A[c - 1 : c, n - o :]])
        return _jax(layers, (A[:c, c : n - o].copy(), second), _with_bias(t, X), y)
    return _jax(mesh, A, _with_bias(t, X), y)


def _jax_edges(t: Topology, layered: bool, ticks: int, X: Array, y: Array, weights: Array) -> Step:
    c, n, o = t.n_clamped, t.n_neurons, t.n_outputs
    src, dst = t.src, t.dst

    def outputs(jnp: Any, w: Any, x: Any) -> Any:
        import jax

        clamped = x.T
        s = jnp.concatenate([clamped, jnp.zeros((n - c, x.shape[0]), x.dtype)])
        for _ in range(ticks):
            z = jax.ops.segment_sum(w[:, None] * s[src], dst, num_segments=n, indices_are_sorted=True)
            s = jnp.concatenate([clamped, jnp.maximum(z[c : n - o], 0.0), z[n - o :]])
        return s[n - o :].T

    return _jax(outputs, weights, _with_bias(t, X), y)


def _sklearn(t: Topology, layered: bool, ticks: int, X: Array, y: Array, weights: Array) -> Step:
    """Return a whole training step with checks and Adam, the smallest unit; it returns no loss."""
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier((t.n_hidden,), batch_size=len(X), alpha=0.0, random_state=0)
    classes = np.arange(t.n_outputs)

    def step() -> None:
        model.partial_fit(X, y, classes=classes)

    return step


def _backward(loss: Any) -> None:
    loss.backward()


def _with_bias(t: Topology, X: Array) -> Array:
    return np.concatenate([X, np.ones((len(X), int(t.bias)), np.float32)], axis=1)


#: Builders by name, with arguments (topology, whether it is layered, ticks, X, y, weights).
PEERS: dict[str, Callable[..., Step]] = {
    "tensor": _tensor,
    "torch dense": _torch_dense,
    "torch sparse": _torch_sparse,
    "jax dense": _jax_dense,
    "jax edges": _jax_edges,
    "sklearn": _sklearn,
}

"""The same training in PyTorch: autograd through the ticks and torch.optim.Adam, float32.

`masked` and `split` as in peer_jax.py. The large net uses CSR products with a handwritten backward pass, whose gradient
with respect to the weights is `sampled_addmm`; autograd through a sparse matrix would build a dense gradient of 40 GB.
"""

import warnings

import torch

warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)  # CSR is in beta in PyTorch

WAYS = ("masked", "split")


def _outputs(way, t, ticks, A, x, zeros):
    c, o = t.n_clamped, t.n_outputs
    if way == "masked":
        s = torch.cat([x, zeros], dim=1)
        for _ in range(ticks):
            z = s @ A[:, c:]
            s = torch.cat([x, torch.relu(z[:, :-o]), z[:, -o:]], dim=1)
        return s[:, -o:]
    drive = x @ A[:c, c:]
    z = drive
    for k in range(1, ticks):
        s = torch.cat([torch.relu(z[:, :-o]), z[:, -o:]], dim=1)
        z = drive + s @ A[c:, c:] if k < ticks - 1 else drive[:, -o:] + s @ A[c:, -o:]
    return z[:, -o:]


def trainer(way, topology, ticks, X, y, weights, steps, rate=1e-3, compiled=False):
    """Return a function that takes `steps` steps of Adam and returns the losses; `compiled` uses torch.compile."""
    t = topology
    x = torch.cat([torch.tensor(X), torch.ones(len(X), int(t.bias))], dim=1)
    labels = torch.tensor(y)
    zeros = torch.zeros(len(X), t.n_neurons - t.n_clamped)
    mask = torch.zeros(t.n_neurons, t.n_neurons)
    src, dst = torch.tensor(t.src.copy()), torch.tensor(t.dst.copy())
    mask[src, dst] = 1.0

    def loss_of(A):
        return torch.nn.functional.cross_entropy(_outputs(way, t, ticks, A * mask, x, zeros), labels)

    if compiled:
        loss_of = torch.compile(loss_of)

    def run():
        A = torch.zeros(t.n_neurons, t.n_neurons)
        A[src, dst] = torch.tensor(weights)
        A.requires_grad_(True)
        adam = torch.optim.Adam([A], lr=rate, fused=True)
        losses = []
        for _ in range(steps):
            adam.zero_grad()
            loss = loss_of(A)
            loss.backward()
            adam.step()
            losses.append(loss.detach())
        return torch.stack(losses).numpy()

    return run


class _SparseProduct(torch.autograd.Function):
    """z = At s with At (n, n) in CSR given by its values; s is (n, batch)."""

    @staticmethod
    def forward(ctx, values, s, pattern, transposed, to_transposed):
        At = torch.sparse_csr_tensor(pattern.crow_indices(), pattern.col_indices(), values, pattern.shape)
        ctx.save_for_backward(values, s)
        ctx.rest = pattern, transposed, to_transposed
        return At @ s

    @staticmethod
    def backward(ctx, dz):
        values, s = ctx.saved_tensors
        pattern, transposed, to_transposed = ctx.rest
        dz = dz.contiguous()
        # only the entries of dz s' that are edges
        grad = torch.sparse.sampled_addmm(pattern, dz, s.t(), beta=0.0).values()
        ds = None
        if ctx.needs_input_grad[1]:
            A = torch.sparse_csr_tensor(
                transposed.crow_indices(), transposed.col_indices(), values[to_transposed], pattern.shape
            )
            ds = A @ dz
        return grad, ds, None, None, None


def large_gradient(topology, ticks, X, y, weights):
    """Return a function for loss and gradient of a large sparse net; the gradient is in order of (dst, src)."""
    import numpy as np

    t = topology
    n, c, o = t.n_neurons, t.n_clamped, t.n_outputs
    ptr = np.concatenate([[0], np.cumsum(np.bincount(t.dst, minlength=n))])
    starts = torch.tensor(t.src.astype(np.int64))
    pattern = torch.sparse_csr_tensor(torch.tensor(ptr), starts, torch.zeros(t.n_edges), (n, n))
    order = np.argsort(t.src, kind="stable")
    out_ptr = np.concatenate([[0], np.cumsum(np.bincount(t.src, minlength=n))])
    ends = torch.tensor(t.dst[order].astype(np.int64))
    transposed = torch.sparse_csr_tensor(torch.tensor(out_ptr), ends, torch.zeros(t.n_edges), (n, n))
    to_transposed = torch.tensor(order)
    x = torch.tensor(X).t().contiguous()
    if t.bias:
        x = torch.cat([x, torch.ones(1, x.shape[1])])
    labels = torch.tensor(y)
    start = torch.cat([x, torch.zeros(n - c, x.shape[1])])

    def run():
        values = torch.tensor(weights, requires_grad=True)
        s = start
        for _ in range(ticks):
            z = _SparseProduct.apply(values, s, pattern, transposed, to_transposed)
            s = torch.cat([x, torch.relu(z[c:-o]), z[-o:]])
        loss = torch.nn.functional.cross_entropy(s[-o:].t(), labels)
        loss.backward()
        return loss.item(), values.grad.numpy()

    return run

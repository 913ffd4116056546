"""PyTorch as a witness: gradients and whole trainings by its automatic differentiation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["dense_reference", "train_dense"]

Array = NDArray[np.float64]


def dense_reference(
    A: Array, X: Array, y: NDArray[np.int64], ticks: int, n_outputs: int, activation: str
) -> tuple[Array, Array]:
    """States (ticks + 1, batch, n) and the gradient (n, n) of the mean cross-entropy, by autograd in float64.

    A is dense, the first `X.shape[1]` neurons are clamped to X, every other neuron has the same activation.
    """
    import torch

    phi: Any = getattr(torch, activation)
    matrix = torch.tensor(A, requires_grad=True)
    x = torch.tensor(X)
    s = torch.cat([x, torch.zeros(len(X), A.shape[0] - X.shape[1], dtype=torch.float64)], dim=1)
    states = [s]
    for _ in range(ticks):
        s = torch.cat([x, phi(states[-1] @ matrix)[:, X.shape[1] :]], dim=1)
        states.append(s)
    loss = torch.nn.functional.cross_entropy(s[:, -n_outputs:], torch.tensor(y))
    (gradient,) = torch.autograd.grad(loss, matrix)
    return torch.stack(states).detach().numpy(), gradient.numpy()


def train_dense(
    A: NDArray[np.float32],
    X: NDArray[np.float32],
    y: NDArray[np.int64],
    ticks: int,
    n_outputs: int,
    batches: Iterable[tuple[NDArray[np.int64], float]],
) -> NDArray[np.float32]:
    """The matrix after a step of Adam on every batch (rows, rate), by autograd in float32.

    X has a column for every clamped neuron, the bias included. Hidden neurons are ReLU, outputs are sums; entries of A
    that are 0 stay so.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many trainings may run beside each other
    try:
        matrix = torch.tensor(A, requires_grad=True)
        mask = torch.tensor(A != 0)
        n_clamped, free = X.shape[1], A.shape[0] - X.shape[1]
        samples, labels = torch.tensor(X), torch.tensor(y)
        optimizer = torch.optim.Adam([matrix], lr=0.0, eps=1e-8)
        for rows, rate in batches:
            x, target = samples[rows], labels[rows]
            s = torch.cat([x, torch.zeros(len(x), free)], dim=1)
            for _ in range(ticks):
                sums = (s @ matrix)[:, n_clamped:]
                s = torch.cat([x, torch.relu(sums[:, :-n_outputs]), sums[:, -n_outputs:]], dim=1)
            loss = torch.nn.functional.cross_entropy(s[:, -n_outputs:], target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            assert matrix.grad is not None
            matrix.grad.mul_(mask)
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
        return matrix.detach().numpy()
    finally:
        torch.set_num_threads(threads)

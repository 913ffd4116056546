"""PyTorch as a witness: states and gradients by its automatic differentiation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["dense_reference"]

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

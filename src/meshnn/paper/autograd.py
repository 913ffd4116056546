"""The same training with PyTorch's automatic differentiation, for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from meshnn.estimators import MeshClassifier
from meshnn.paper.features import ImageFeatures
from meshnn.paper.recipes import fit_whole

__all__ = ["score_by_autograd"]


def score_by_autograd(model: MeshClassifier, data: ImageFeatures, size: int, rate: float) -> float:
    """Return the accuracy of the same net, initial weights and batches, trained by PyTorch."""
    epochs, seeds = int(model.max_epochs), np.random.SeedSequence(model.random_state).generate_state(3)
    # one epoch sets up the net and the scaling; the initial weights depend only on the seed
    fit_whole(model.set_params(max_epochs=1), data.X, data.y)
    mesh, scaling = model.mesh_, model.preprocessing_.scaling
    t, first = mesh.topology, mesh.draw_weights(int(seeds[1])).astype(np.float32)
    # zeros mark absent edges; a weight as small as 1e-30 does not change sums
    first[first == 0] = np.float32(1e-30)
    A = np.zeros((t.n_neurons, t.n_neurons), np.float32)
    A[t.src, t.dst] = first
    X = scaling.inputs(data.X).astype(np.float32)
    with_bias = np.hstack([X, np.ones((len(X), 1), np.float32)])
    rng, n = np.random.default_rng(int(seeds[2])), len(X)
    steps = -(-n // size)

    def batches() -> Iterator[tuple[NDArray[np.int64], float]]:
        for epoch in range(epochs):
            order = rng.permutation(n)
            for step in range(steps):
                done = (epoch * steps + step) / (epochs * steps)
                yield order[step * size : (step + 1) * size], rate * 0.5 * (1 + np.cos(np.pi * done))

    mesh.weights = _train_dense(A, with_bias, data.y, mesh.ticks, t.n_outputs, batches())[t.src, t.dst]
    return float(model.score(data.test_X, data.test_y))


def _train_dense(
    A: NDArray[np.float32],
    X: NDArray[np.float32],
    y: NDArray[np.int64],
    ticks: int,
    n_outputs: int,
    batches: Iterable[tuple[NDArray[np.int64], float]],
) -> NDArray[np.float32]:
    """Return the matrix after one Adam step per batch (rows, rate), by autograd in float32.

    X has a column for every clamped neuron, including the bias. Hidden neurons are ReLU, outputs are sums; entries of A
    that are 0 remain 0.
    """
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

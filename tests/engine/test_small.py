"""Everything that is computed, on a few small nets against the loops: what fails here, fails within seconds."""

import numpy as np
import pytest

import naive
from meshnn import Mesh, Topology
from meshnn.training import train
from solver_options import with_solver

HIDDEN = ["tanh", "relu", "sin", "gauss", "sigmoid", "softplus", "elu", "leaky_relu", "identity"]


def small(ticks, seed):
    """A net with cycles and dead edges, 33 samples (a row and one more) with weights, and what the loops say."""
    rng = np.random.default_rng(seed)
    hidden = [HIDDEN[k] for k in rng.permutation(9)[:5]]
    topology = Topology.mesh(2, 5, 2, self_loops=True, density=0.7, random_state=seed)
    weights = rng.standard_normal(topology.n_edges) * 0.6
    mesh = Mesh(topology, ticks, hidden, weights=weights, dtype="float64")
    X = rng.standard_normal((ticks, 33, 2))
    return mesh, X, rng.integers(0, 2, 33), rng.standard_normal((33, 2)), rng.uniform(0.1, 2.0, 33)


def by_loops(mesh, X):
    """States (ticks + 1, batch, n) and Jacobian (batch, n_outputs, n_edges)."""
    t = mesh.topology
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src, t.dst] = mesh.weights
    names = ["identity"] * t.n_clamped + mesh.activations
    clamped = np.concatenate([X, np.ones((*X.shape[:2], 1))], axis=2)
    found = [naive.run(A.tolist(), t.n_clamped, t.n_outputs, names, clamped[:, b].tolist()) for b in range(X.shape[1])]
    states = np.array([s for s, _ in found]).swapaxes(0, 1)
    return states, np.array([j for _, j in found])[:, :, t.src, t.dst]


def slopes(loss, outputs, y):
    """Loss of each sample and its derivative by the outputs."""
    each = [naive.loss_and_slope(loss, out.tolist(), target) for out, target in zip(outputs, y.tolist(), strict=True)]
    return np.array([value for value, _ in each]), np.array([slope for _, slope in each])


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("solver", ["sgd", "adam"])
@pytest.mark.parametrize("size", [None, 10])
@pytest.mark.parametrize("gradient", ["adjoint", "factored"])
def test_steps(solver, size, gradient):
    mesh, X, labels, *_ = small(3, 2)
    twin, _, _, _, _ = small(3, 2)
    options = {"solver": solver, "momentum": 0.0, "nesterov": False, "schedule": "constant", "learning_rate": 0.1}
    row = next(iter(train(mesh, X, labels, batch_size=size, l2=0.0, max_epochs=2, random_state=0, gradient=gradient,
                          **with_solver(options))))  # fmt: skip
    seed = int(np.random.default_rng(0).integers(2**63))
    order = np.arange(33) if size is None else np.random.default_rng(seed).permutation(33)
    first, second, total, hits = np.zeros(len(twin.weights)), np.zeros(len(twin.weights)), 0.0, 0.0
    for k, begin in enumerate(range(0, 33, size or 33), start=1):
        at = order[begin : begin + (size or 33)]
        states, J = by_loops(twin, X[:, at])
        each, slope = slopes("cross_entropy", states[-1][:, -2:], labels[at])
        total += each.sum() / 33
        hits += (states[-1][:, -2:].argmax(axis=1) == labels[at]).sum() / 33
        g = np.einsum("bo,boe->e", slope, J) / len(at)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        if solver == "adam":
            g = first / (1 - 0.9**k) / (np.sqrt(second / (1 - 0.999**k)) + 1e-8)
        twin.weights = twin.weights - 0.1 * g
    close(mesh.weights, twin.weights)
    outputs = by_loops(twin, X)[0][-1][:, -2:]
    if size is None:  # the loss after the step
        total, hits = slopes("cross_entropy", outputs, labels)[0].mean(), (outputs.argmax(axis=1) == labels).mean()
    assert row.loss == pytest.approx(total, rel=1e-9)
    assert row.accuracy == pytest.approx(hits, rel=1e-9)

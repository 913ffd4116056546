"""Everything that is computed, on a few small nets against the loops: what fails here, fails within seconds."""

from functools import cache

import numpy as np
import pytest

import naive
from meshnn import Mesh, Topology
from meshnn.plan import METHODS
from meshnn.training import train
from meshnn.training.api import as_samples
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


@cache
def expected(ticks, seed):
    mesh, X, *_ = small(ticks, seed)
    return by_loops(mesh, X)


@cache
def grown(ticks, seed):
    """The same net with all edges there can be, the new ones at weight 0: the graph and what the loops say."""
    mesh, X, *_ = small(ticks, seed)
    t = mesh.topology
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src, t.dst] = mesh.weights
    src, dst = (array.ravel() for array in np.meshgrid(np.arange(t.n_neurons), np.arange(3, t.n_neurons)))
    whole = Topology(2, 5, 2, np.stack([src, dst], axis=1))
    dense = Mesh(whole, ticks, mesh.activations[:5], weights=A[whole.src, whole.dst], dtype="float64")
    return whole, by_loops(dense, X)


def slopes(loss, outputs, y):
    """Loss of each sample and its derivative by the outputs."""
    each = [naive.loss_and_slope(loss, out.tolist(), target) for out, target in zip(outputs, y.tolist(), strict=True)]
    return np.array([value for value, _ in each]), np.array([slope for _, slope in each])


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


CASES = [(1, 0), (2, 1), (3, 2), (3, 3), (5, 4)]


@pytest.mark.parametrize("case", CASES)
def test_states_and_outputs(case):
    mesh, X, *_ = small(*case)
    states, _ = expected(*case)
    close(mesh.forward(X), states[-1][:, -2:])
    close(mesh.states(X), states)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_gradients(case, method):
    mesh, X, labels, values, share = small(*case)
    states, J = expected(*case)
    share = share / share.sum()
    for loss, y in (("cross_entropy", labels), ("squared_error", values)):
        each, slope = slopes(loss, states[-1][:, -2:], y)
        value, grad = mesh.gradient(X, y, loss, method, sample_weight=share)
        assert value == pytest.approx(share @ each, rel=1e-9)
        close(grad, np.einsum("b,bo,boe->e", share, slope, J))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_looks_after_every_tick(case, method):
    """Looks after all ticks, and a readout that weighs them."""
    mesh, X, labels, values, share = small(*case)
    by_tick = [by_loops(Mesh(mesh.topology, k, mesh.activations[:5], weights=mesh.weights, dtype="float64"), X[:k])
               for k in range(1, len(X) + 1)]  # fmt: skip
    outputs, J = (np.array(parts) for parts in zip(*[(s[-1][:, -2:], j) for s, j in by_tick], strict=True))
    rng = np.random.default_rng(5)
    seen, weights = rng.random(outputs.shape[:2]) < 0.7, rng.random(outputs.shape[:2])
    seen[0] = True
    for loss, y in (("cross_entropy", labels), ("squared_error", values)):
        each, slope = (np.array(parts) for parts in zip(*[slopes(loss, out, y) for out in outputs], strict=True))
        counted = share * seen / (share * seen).sum()
        targets = np.broadcast_to(y, (len(X), *y.shape))
        value, grad = mesh.gradient(X, targets, loss, method, sample_weight=share, loss_ticks=seen)
        assert value == pytest.approx((counted * each).sum(), rel=1e-9)
        close(grad, np.einsum("kb,kbo,kboe->e", counted, slope, J))
        each, slope = slopes(loss, (weights[:, :, None] * outputs).sum(axis=0), y)
        value, grad = mesh.gradient(X, y, loss, method, sample_weight=share, readout=weights)
        assert value == pytest.approx(share @ each / share.sum(), rel=1e-9)
        close(grad, np.einsum("b,bo,kb,kboe->e", share / share.sum(), slope, weights, J))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_jacobians(case, method):
    mesh, X, *_ = small(*case)
    close(mesh.jacobian(X, method), expected(*case)[1])


@pytest.mark.parametrize("method", ["factored", "adjoint"])
@pytest.mark.parametrize("case", CASES)
def test_curvature(case, method):
    mesh, X, labels, values, share = small(*case)
    states, J = expected(*case)
    outputs, live = states[-1][:, -2:], np.flatnonzero(~mesh.dead_edges())
    p = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    bent = np.einsum("bo,op->bop", p, np.eye(2)) - p[:, :, None] * p[:, None]
    for loss, y, H in (("cross_entropy", labels, bent), ("squared_error", values, np.array([np.eye(2)] * 33))):
        samples = as_samples(mesh, X, y, loss, share)
        engine = mesh.engine("curvature", method, 33)
        model = engine.curvature(mesh.values, samples.X, samples.targets, live, 1)
        each, slope = slopes(loss, outputs, y)
        assert model.loss == pytest.approx(share @ each / share.sum(), rel=1e-9)
        close(model.grad, np.einsum("b,bo,boe->e", share / share.sum(), slope, J)[live])
        close(model.matrix, np.einsum("b,boe,bop,bpf->ef", share / share.sum(), J, H, J)[np.ix_(live, live)])
        if loss == "cross_entropy":
            hit = outputs.argmax(axis=1) == labels
            assert model.correct == pytest.approx(share @ hit / share.sum(), rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_growth_scores(case, method):
    """Of the edges of the graph and of absent ones, in any order."""
    mesh, X, labels, _, share = small(*case)
    whole, (states, J) = grown(*case)
    _, slope = slopes("cross_entropy", states[-1][:, -2:], labels)
    want = np.einsum("b,bo,boe->e", share / share.sum(), slope, J)
    at = np.random.default_rng(0).permutation(whole.n_edges)
    got = mesh.growth_scores(X, labels, src=whole.src[at], dst=whole.dst[at], gradient=method, sample_weight=share)
    close(got, want[at])


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

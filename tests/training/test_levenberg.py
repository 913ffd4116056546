"""Levenberg-Marquardt: its matrix against dense Jacobians and autograd, its steps against NumPy, its limits."""

import numpy as np
import pytest

from meshnn import Mesh, MeshError, Topology
from meshnn.tables.synthetic import spirals
from meshnn.training import Settings, train
from meshnn.training.api import as_samples
from meshnn.training.evidence import Evidence
from meshnn.training.solvers import choose_solver
from meshnn.training.solvers.base import penalised_parameters
from meshnn.training.solvers.lm import LM
from meshnn.training.structure.graph import Edit, apply_edit


def softmax(Y):
    e = np.exp(Y - Y.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def dense_model(mesh, X, y, loss, share):
    """Return gradient and Gauss-Newton matrix from the full Jacobian and the full Hessian of the loss."""
    J, Y = mesh.jacobian(X), mesh.forward(X)
    if loss == "cross_entropy":
        p = softmax(Y)
        slopes = p - np.eye(Y.shape[1])[y]
        hessians = np.einsum("bo,op->bop", p, np.eye(Y.shape[1])) - p[:, :, None] * p[:, None]
    else:
        slopes, hessians = Y - y, np.broadcast_to(np.eye(Y.shape[1]), (len(Y), Y.shape[1], Y.shape[1]))
    grad = np.einsum("b,bo,boe->e", share, slopes, J)
    return grad, np.einsum("b,boe,bop,bpf->ef", share, J, hessians, J)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("ticks", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [5, 100])
def test_the_matrix_equals_the_dense_one(loss, n_outputs, ticks, size):
    rng = np.random.default_rng(ticks)
    t = Topology.mesh(3, 4, n_outputs, self_loops=True)
    mesh = Mesh(t, ticks, "tanh", weights=rng.standard_normal(t.n_edges), dtype="float64")
    X = rng.standard_normal((size, 3))
    y = rng.integers(0, n_outputs, size) if loss == "cross_entropy" else rng.standard_normal((size, n_outputs))
    weight = rng.random(size)
    live = np.flatnonzero(~mesh.dead_edges())
    samples = as_samples(mesh, X, y, loss, weight)
    for method in ("factored", "adjoint"):
        engine = mesh.engine("curvature", method, size)
        model = engine.curvature(mesh.values, samples.X, samples.targets, live, 1)
        grad, matrix = dense_model(mesh, X, y, loss, weight / weight.sum())
        np.testing.assert_allclose(model.grad, grad[live], rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(model.matrix, matrix[np.ix_(live, live)], rtol=1e-9, atol=1e-13)
        assert model.loss == pytest.approx(mesh.gradient(X, y, loss, sample_weight=weight)[0], rel=1e-12)
        outside = np.setdiff1d(np.arange(t.n_edges), live)
        assert not matrix[outside].any()


def test_saturated_outputs_stay_finite():
    mesh = Mesh(Topology.layered([1, 3]), weights=[1e4, 0, -1e4, 0, 5e3, 0], dtype="float64")
    samples = as_samples(mesh, [[1.0], [-1.0], [0.0]], [0, 0, 1], "cross_entropy")
    model = mesh.engine("curvature", batch=3).curvature(mesh.values, samples.X, samples.targets, np.arange(6), 1)
    assert np.isfinite(model.matrix).all()
    assert model.loss == pytest.approx((0 + 2e4 + np.log(3)) / 3)


def test_many_samples_in_any_number_of_threads_give_the_same_bits():
    rng = np.random.default_rng(0)
    mesh = Mesh(Topology.mesh(4, 8, 3), 3, "tanh", dtype="float64", random_state=0)
    X, y = rng.standard_normal((20_000, 4)), rng.integers(0, 3, 20_000)
    samples = as_samples(mesh, X, y, "cross_entropy")
    live = np.arange(mesh.topology.n_edges)
    engine = mesh.engine("curvature", batch=len(X))
    one, *others = (engine.curvature(mesh.values, samples.X, samples.targets, live, n) for n in (1, 2, 3, 8))
    for other in others:
        np.testing.assert_array_equal(one.matrix, other.matrix)
        np.testing.assert_array_equal(one.grad, other.grad)
    grad = mesh.gradient(X, y)[1]
    np.testing.assert_allclose(one.grad, grad, rtol=1e-9, atol=1e-13)


def by_hand(mesh, X, y, loss, l2, damping):
    """Run one iteration of the documented algorithm with dense matrices; return the loss and the next damping."""
    n = len(X)
    t = mesh.topology
    decay = l2 * (t.src != t.n_inputs)

    def value():
        return mesh.gradient(X, y, loss)[0] + 0.5 * (decay * mesh.weights**2).sum()

    growth = 2.0
    start, before = mesh.weights.copy(), value()
    grad, matrix = dense_model(mesh, X, y, loss, np.full(n, 1 / n))
    grad, matrix = grad + decay * start, matrix + np.diag(decay)
    scale = np.maximum(np.diag(matrix), 1e-6 * np.diag(matrix).max())
    while True:
        step = -np.linalg.solve(matrix + damping * np.diag(scale), grad)
        mesh.weights = start + step
        gain = (before - value()) / (-grad @ step - 0.5 * step @ matrix @ step)
        if gain > 1e-4:
            return value(), damping * max(1 / 3, 1 - (2 * gain - 1) ** 3)
        damping, growth = damping * growth, growth * 2


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_iterations_equal_those_by_hand(loss):
    X, y = spirals(120, random_state=0)
    X /= 10
    target = y if loss == "cross_entropy" else np.stack([y, 1.0 - y], axis=1)
    mesh, other = (Mesh(Topology.mesh(2, 4, 2), 3, "tanh", dtype="float64", random_state=3) for _ in range(2))
    damping, met = 1e-2, set()
    for row in train(mesh, X, target, loss, solver="lm", l2=1e-4, max_epochs=12, tol=0):
        want, next_damping = by_hand(other, X, target, loss, 1e-4, damping)
        assert row.loss == pytest.approx(want, rel=1e-9)
        assert row.learning_rate == pytest.approx(next_damping, rel=1e-5)
        np.testing.assert_allclose(mesh.weights, other.weights, rtol=1e-6, atol=1e-9)
        met.add(row.learning_rate < damping)
        # every iteration starts from the same weights, because differences in the last digit would grow
        damping, other.weights = row.learning_rate, mesh.weights
    assert len(met) == 2  # the damping decreased and increased


@pytest.mark.parametrize("spoil", ["constant", "one sample", "dead", "zero", "huge"])
def test_singular_matrices_never_raise(spoil):
    X, y = spirals(50, random_state=0)
    t = Topology.mesh(2, 5, 2)
    mesh = Mesh(t, 2 if spoil == "dead" else 3, "tanh", dtype="float64", random_state=0)
    if spoil == "constant":
        X = np.zeros_like(X)
    elif spoil == "one sample":
        X, y = X[:1], y[:1]
    elif spoil == "zero":
        mesh.weights[:] = 0
    elif spoil == "huge":
        X *= 1e8
    before = mesh.gradient(X, y)[0]
    rows = list(train(mesh, X, y, solver="lm", max_epochs=40, l2=0.0))
    assert np.isfinite(mesh.weights).all()
    assert rows[-1].loss <= before * (1 + 1e-12)


def test_a_loss_that_is_infinite_from_the_start_is_told():
    mesh = Mesh(Topology.layered([1, 1]), weights=[1e200, 0], dtype="float64")
    with pytest.raises(MeshError, match="inf"):
        list(train(mesh, [[1e100]], [0.0], "squared_error", solver="lm"))


def test_tol_zero_runs_exactly_so_many_iterations_even_when_there_is_nothing_left_to_do():
    mesh = Mesh(Topology.layered([1, 1]), dtype="float64", random_state=0)
    x = np.linspace(-1, 1, 20)[:, None]
    rows = list(train(mesh, x, 2 * x, "squared_error", solver="lm", l2=0.0, max_epochs=80, tol=0))
    assert rows[-1].epoch == len(rows) == 80
    assert len(list(train(mesh, x, 2 * x, "squared_error", solver="lm", l2=0.0, max_epochs=80))) < 40


def test_auto_takes_lm_within_its_budget_and_says_why():
    small = choose_solver(Settings(), 100, 700, 1)
    assert small.solver.name == "lm"
    assert "100² x (700 + 100 / 3) = 7.3e+06 multiply-adds" in small.reason
    large = choose_solver(Settings(), 10_000, 700, 9)
    assert large.solver.name == "adam"
    assert "more than" in large.reason
    samples = 4 * 10**4 - 34  # 100 edges
    assert choose_solver(Settings(), 100, samples, 1).solver.name == "lm"
    assert choose_solver(Settings(), 100, samples + 1, 1).solver.name == "adam"
    assert choose_solver(Settings(), int(1.2e9 ** (1 / 3)) + 1, 1, 1).solver.name == "adam"  # the factorisation
    assert choose_solver(Settings(l1=0.1), 100, 700, 1).solver.name == "adam"
    assert small.alternative.name == "adam"  # a candidate of the search, like penalties
    assert choose_solver(Settings(l2=0.1), 100, 700, 1).alternative is None
    classes = choose_solver(Settings(), 100, 700, 1, noisy=True)
    assert (classes.solver.name, classes.alternative.name) == ("adam", "lm")
    assert "more weights (701) than samples (700)" in choose_solver(Settings(), 701, 700, 1, noisy=True).reason
    assert choose_solver(Settings(solver="sgd"), 100, 700, 1).reason == "as asked for"


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
def test_penalties_of_a_given_matrix(loss, scale):
    """The equations of the evidence, evaluated for an arbitrary matrix and arbitrary weights."""
    rng = np.random.default_rng(1)
    mesh = Mesh(Topology.mesh(2, 4, 2), 3, "tanh", dtype="float64", random_state=0)
    t, live = mesh.topology, np.flatnonzero(~mesh.dead_edges())
    y = rng.integers(0, 2, 30) if loss == "cross_entropy" else rng.standard_normal((30, 2))
    samples = as_samples(mesh, rng.standard_normal((30, 2)), y, loss, rng.uniform(0.5, 3.0, 30))
    penalised = (t.src[live] != 2).astype(float)
    half = rng.standard_normal((len(live), 2 * len(live)))
    matrix, w, error = scale * half @ half.T / len(live), 0.1 * rng.standard_normal(len(live)), 0.3
    now = rng.uniform(0.5, 2.0, len(live)) * penalised * 1e-3
    evidence = Evidence(mesh, samples, live, penalised)
    found = evidence.penalties(matrix, w, now, error)

    layer = [np.searchsorted([3, 7], end[live], side="right") for end in (t.src, t.dst)]
    having = penalised > 0
    inverse = np.diag(np.linalg.inv(matrix + np.diag(np.where(having, now, now[having].mean()))))
    kinds = [np.flatnonzero(having & (layer[0] == a) & (layer[1] == b)) for a in range(3) for b in range(3)]
    kinds = [kind for kind in kinds if len(kind)]
    gamma = [sum(1 - now[e] * inverse[e] for e in kind) for kind in kinds]
    factor, least = samples.total_weight, 1e-8
    mean = np.exp(np.log(now[having]).mean())
    if loss == "squared_error":
        factor = max(2 * samples.total_weight - sum(gamma), 1.0) / (2 * error)
        crowded = sum(gamma) > 0.15 * 2 * samples.total_weight
        least = 2 * mean if crowded else least
    common = sum(gamma) / (factor * sum(w[e] ** 2 for kind in kinds for e in kind))
    want = np.zeros(len(live))
    for kind, known in zip(kinds, gamma, strict=True):
        want[kind] = min(max((known + 10) / (factor * (w[kind] ** 2).sum() + 10 / common), least), 10.0)
    np.testing.assert_allclose(found, want, rtol=1e-8)
    assert evidence.mean(now) == pytest.approx(mean, rel=1e-12)
    assert evidence.mean(np.zeros(len(live))) == 0.0
    assert not found[~having].any()


def test_a_matrix_that_does_not_fit_is_refused(monkeypatch):
    X, y = spirals(50, random_state=0)
    mesh = Mesh(Topology.mesh(2, 5, 2), 3, "tanh", dtype="float64", random_state=0)
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 10_000)
    with pytest.raises(MeshError, match="adam"):
        list(train(mesh, X, y, solver="lm"))


def test_edges_that_stay_keep_their_penalty():
    X, y = spirals(50, random_state=0)
    mesh = Mesh(Topology.mesh(2, 4, 2, density=0.8, random_state=3), 3, "tanh", dtype="float64", random_state=0)
    samples = as_samples(mesh, X, y, "cross_entropy")
    solver = LM().start(mesh, samples, Settings(solver="lm"), np.random.default_rng(0))
    t, old = mesh.topology, solver.live
    solver.penalties = np.random.default_rng(0).uniform(0.1, 1.0, len(old)) * (t.src[old] != 2)
    solver.restore(solver.state() | {"damping": 5.0})
    of = dict(zip(zip(t.src[old].tolist(), t.dst[old].tolist(), strict=True), solver.penalties, strict=True))
    mean = np.exp(np.log([value for value in of.values() if value > 0]).mean())
    there = set(zip(t.src.tolist(), t.dst.tolist(), strict=True))
    new = next((a, b) for a in (0, 1) for b in t.hidden.tolist() if (a, b) not in there)
    remove = np.arange(t.n_edges) == old[3]
    solver.rewire(apply_edit(mesh, Edit(remove, np.array([new]), np.ones(1), "")))
    t = mesh.topology
    pairs = list(zip(t.src[solver.live].tolist(), t.dst[solver.live].tolist(), strict=True))
    assert new in pairs
    assert pairs[0] in of
    np.testing.assert_allclose(solver.penalties, [0 if a == 2 else of.get((a, b), mean) for a, b in pairs], rtol=1e-12)
    assert solver.state()["damping"] == 1e-2  # the damping is reset
    assert solver.error == pytest.approx(mesh.gradient(X, y)[0], rel=1e-12)


def test_penalties_stay_where_the_samples_say_nothing():
    mesh = Mesh(Topology.mesh(2, 4, 2), 3, "tanh", dtype="float64", random_state=0)
    live = np.flatnonzero(~mesh.dead_edges())
    samples = as_samples(mesh, np.ones((5, 2)), np.arange(5) % 2, "cross_entropy")
    n = len(live)
    now = np.full(n, 1e-3)
    for matrix, weights, penalised in [
        (np.eye(n), np.zeros(n), np.ones(n)),  # all weights are 0
        (-np.eye(n), np.ones(n), np.ones(n)),  # no minimum
        (np.eye(n), np.ones(n), np.zeros(n)),  # no penalised parameter
        (np.zeros((n, n)), np.ones(n), np.ones(n)),  # no weight is determined
    ]:
        evidence = Evidence(mesh, samples, live, penalised)
        np.testing.assert_array_equal(evidence.penalties(matrix, weights, now, 1.0), now)


def evidence_of(n_samples, n_inputs=3):
    mesh = Mesh(Topology.mesh(n_inputs, 4, 1), activation="tanh", dtype="float64", random_state=0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, n_inputs))
    samples = as_samples(mesh, X, X[:, 0], "squared_error")
    live = mesh.live_parameters()
    found = Evidence(mesh, samples, live, penalised_parameters(mesh)[live].astype(float))
    t = mesh.topology
    straight = (t.src < n_inputs) & (t.dst >= t.n_neurons - t.n_outputs)
    return found, straight[mesh.ties.first[live]]


@pytest.mark.parametrize("what", ["straight", "bent"])
def test_only_edges_that_could_overfit_are_bounded(what):
    """The curvature of one kind of edges is far above the penalty (determined), that of the others is 0."""
    evidence, straight = evidence_of(20)
    chosen = straight if what == "straight" else ~straight & (evidence.penalised > 0)
    assert (~straight & (evidence.penalised > 0)).sum() > evidence.crowded * evidence.count  # above the limit
    curvature = np.diag(np.where(chosen, 1e6, 1e-9))
    now = np.where(evidence.penalised > 0, 1e-3, 0.0)
    evidence.penalties(curvature, np.ones(len(now)), now, error=0.1)
    assert (evidence.least > 1e-8) == (what == "bent")


def test_straight_edges_are_bounded_where_they_outnumber_samples():
    evidence, straight = evidence_of(20, n_inputs=30)
    curvature = np.diag(np.where(straight, 1e6, 1e-9))
    evidence.penalties(curvature, np.ones(len(straight)), np.where(evidence.penalised > 0, 1e-3, 0.0), error=0.1)
    assert evidence.least > 1e-8

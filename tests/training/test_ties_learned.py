"""Training of tied and fixed edges: every solver, penalties, structure, files, estimators, checkpoints."""

import numpy as np
import pytest

import meshnn
from meshnn import Mesh, MeshRegressor, Topology
from meshnn.training import structure, train
from solver_options import solver_with

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = np.tanh(X[:, :1] - 0.5 * X[:, 1:2])


def ties(topology):
    """Return ties in groups of three edges with one parameter; bias edges are not tied, every seventh edge is fixed."""
    parameter = np.arange(topology.n_edges) // 3
    bias = topology.src == topology.n_inputs
    parameter[bias] = topology.n_edges + np.arange(int(bias.sum()))
    parameter[::7] = -1
    used = np.unique(parameter[parameter >= 0])
    return np.where(parameter >= 0, np.searchsorted(used, parameter), -1)


def net(dtype="float64", parameter=ties):
    t = Topology.mesh(3, 4, 1)
    return Mesh(t, 3, "tanh", dtype=dtype, random_state=1, tied=None if parameter is None else parameter(t))


@pytest.mark.parametrize("solver", ["lm", "adam", "sgd"])
@pytest.mark.parametrize("batch_size", [None, 16])
def test_every_solver_moves_parameters_and_nothing_else(solver, batch_size):
    mesh = net()
    fixed, before = mesh.weights[mesh.tied < 0], mesh.parameters.copy()
    first = mesh.gradient(X, Y, "squared_error")[0]
    rows = list(train(mesh, X, Y, "squared_error", solver=solver_with(solver, learning_rate=0.003),
                      max_epochs=20, batch_size=batch_size, tol=0, l2=0.0, n_restarts=2))  # fmt: skip
    np.testing.assert_array_equal(mesh.weights[mesh.tied < 0], fixed)
    tied = mesh.tied >= 0
    np.testing.assert_array_equal(mesh.weights[tied], mesh.parameters[mesh.tied[tied]])
    assert not np.array_equal(mesh.parameters, before)
    assert min(row.loss for row in rows) < first


@pytest.mark.parametrize("solver", ["adam", "sgd"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("repeat", [1, 300])
def test_steps_of_a_tied_net(solver, threads, repeat):
    """One full-batch step, in one piece and in buckets, against a step from the gradient of the parameters."""
    mesh, l2, rate = net(), 0.1, 0.01
    samples, targets = (np.tile(array, (repeat, 1)) for array in (X, Y))
    penalised = np.array([np.any(mesh.topology.src[mesh.tied == p] != 3) for p in range(mesh.n_parameters)])
    grad = mesh.gradient(samples, targets, "squared_error")[1] + l2 * penalised * mesh.parameters
    step = rate * grad / (np.abs(grad) + 1e-8) if solver == "adam" else rate * grad
    want = mesh.parameters - step
    rule = solver_with(solver, learning_rate=rate, schedule="constant", nesterov=False)
    list(train(mesh, samples, targets, "squared_error", solver=rule, max_epochs=1, batch_size=None, l2=l2,
               n_jobs=threads))  # fmt: skip
    np.testing.assert_allclose(mesh.parameters, want, rtol=1e-9, atol=1e-12)


def test_lm_on_a_linear_tied_net_finds_the_least_squares():
    """y = a (x0 + x1) + 2 x2 + b: one undamped iteration of lm solves the two normal equations."""
    t = Topology(3, 0, 1, [(0, 4), (1, 4), (2, 4), (3, 4)])
    mesh = Mesh(t, 1, weights=[0.3, 0.3, 2.0, 0.0], tied=[0, 0, -1, 1], dtype="float64")
    y = RNG.standard_normal(60)
    list(train(mesh, X, y, "squared_error", solver="lm", max_epochs=60, l2=0.0, tol=0))
    design = np.stack([X[:, 0] + X[:, 1], np.ones(60)], axis=1)
    want = np.linalg.lstsq(design, y - 2.0 * X[:, 2], rcond=None)[0]
    np.testing.assert_allclose(mesh.parameters, want, rtol=1e-6)
    assert mesh.weights[2] == 2.0


def groups(mesh):
    """Return the edges of every parameter."""
    pairs = np.stack([mesh.topology.src, mesh.topology.dst], axis=1)
    return [frozenset(map(tuple, pairs[mesh.tied == p].tolist())) for p in range(mesh.n_parameters)]


@pytest.mark.parametrize("solver", ["lm", "adam"])
@pytest.mark.filterwarnings("ignore:Prune.to=20. ends with")  # there may be no group that is small enough
@pytest.mark.parametrize("by", ["magnitude", "movement", "saliency"])
def test_a_tied_group_goes_whole_and_a_fixed_edge_never(solver, by):
    mesh = net()
    before = groups(mesh)
    t, fixed = mesh.topology, mesh.tied < 0
    wires = set(zip(t.src[fixed].tolist(), t.dst[fixed].tolist(), strict=True))
    values = dict(zip(zip(t.src.tolist(), t.dst.tolist(), strict=True), mesh.weights.tolist(), strict=True))
    policy = structure.Prune(to=20, start="given", by=by)
    list(train(mesh, X, Y, "squared_error", solver=solver, max_epochs=30, structure=policy, tol=0, random_state=0))
    t, fixed = mesh.topology, mesh.tied < 0
    assert 20 <= t.n_edges < 36  # it stops when no whole group can be removed
    left = dict(zip(zip(t.src.tolist(), t.dst.tolist(), strict=True), mesh.weights.tolist(), strict=True))
    assert all(left[wire] == values[wire] for wire in wires)
    assert set(zip(t.src[fixed].tolist(), t.dst[fixed].tolist(), strict=True)) == wires
    assert set(groups(mesh)) <= set(before)


def test_new_edges_have_parameters_of_their_own():
    mesh = net()
    before = groups(mesh)
    policies = [structure.Grow(to=mesh.topology.n_hidden + 1, slow=1.0, wait=1)]
    list(train(mesh, X, Y, "squared_error", solver="lm", max_epochs=12, structure=policies, tol=0, random_state=0))
    assert mesh.topology.n_hidden == 5
    new = [group for group in groups(mesh) if len(group) == 1 and any(7 + 1 in pair for pair in group)]
    assert new
    assert mesh.n_parameters > len(before)


@pytest.mark.parametrize("solver", ["lm", "adam", "sgd"])
def test_estimators_learn_tied_nets(solver, tmp_path):
    def make(n_inputs, n_outputs):
        graph = Topology.mesh(n_inputs, 4, n_outputs)
        return Mesh(graph, tied=ties(graph), weights=np.where(ties(graph) < 0, 0.25, 0.1))

    model = MeshRegressor(mesh=make, solver=solver, max_epochs=10, random_state=0).fit(X, Y[:, 0])
    mesh = model.mesh_
    np.testing.assert_allclose(mesh.weights[mesh.tied < 0], 0.25)
    tied = mesh.tied >= 0
    np.testing.assert_array_equal(mesh.weights[tied], mesh.parameters[mesh.tied[tied]])
    model.save(tmp_path / "m.mesh")
    again = meshnn.load(tmp_path / "m.mesh")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.mesh.tied, mesh.tied)  # a callable is not saved, but its result is
    np.testing.assert_array_equal(again.fit(X, Y[:, 0]).mesh_.weights, mesh.weights)


def test_sparsify_takes_whole_groups():
    mesh = net("float32")
    before = groups(mesh)
    policy = structure.Sparsify(l1=0.3, threshold=1e-3, begin=0.0)
    list(train(mesh, X, Y, "squared_error", solver="adam", max_epochs=60, structure=policy, tol=0, random_state=0))
    assert set(groups(mesh)) <= set(before)
    assert len(groups(mesh)) < len(before)

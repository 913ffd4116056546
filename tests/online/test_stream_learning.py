"""Streams: learners, late and missing targets, growth, copies, recovery from NaN."""

import copy
import pickle

import numpy as np
import pytest
import torch

from cases import close
from meshnn import Mesh, MeshError, Topology
from meshnn.streaming.growth import grown
from stream_models import LEARNERS, recurrent, series

# -- learners -----------------------------------------------------------------------------------------------------


def test_adam_is_adam():
    """Parameters of a static net equal those of torch's Adam on the same samples, one at a time."""
    mesh, X = recurrent(1), series(20)
    Y = series(20, seed=5)
    mesh.ticks = 3
    w = torch.tensor(mesh.weights, requires_grad=True)
    optimiser = torch.optim.Adam([w], lr=0.02)
    stream = mesh.stream(memory="none", rate=0.02, clip=1e9)
    twin = Mesh(mesh.topology, 3, "tanh", dtype="float64", weights=mesh.weights.copy())
    for x, y in zip(X, Y, strict=True):
        twin.weights = w.detach().numpy()
        w.grad = torch.tensor(twin.gradient(x[None], y[None], "squared_error")[1])
        optimiser.step()
    stream.run(X, Y)
    close(mesh.weights, w.detach().numpy(), 1e-10)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("memory", ["carry", "none"])
@pytest.mark.parametrize("scale", [True, False])
def test_whole_arrays_are_single_steps(learner, memory, scale):
    X, Y = series(60), series(60, seed=3)
    Y[::7] = np.nan
    Y[3, 0] = np.nan
    meshes = [recurrent(2) for _ in range(2)]
    for mesh in meshes:
        mesh.ticks = 2
    a, b = (mesh.stream(learner=learner, memory=memory, scale=scale) for mesh in meshes)
    out = a.run(X, Y)
    for x, y, want in zip(X, Y, out, strict=True):
        peeked = b.peek(x)
        got = b.step(x)
        assert np.array_equal(peeked, got)
        assert np.array_equal(got, want)
        b.learn(y)
    assert np.array_equal(meshes[0].weights, meshes[1].weights)
    assert a.learned == b.learned > 0


@pytest.mark.parametrize("learner", LEARNERS)
def test_an_output_without_targets(learner):
    """The readout of an output whose targets are always missing does not change."""
    mesh = Mesh(Topology.layered([2, 3, 2]), 2, "tanh", dtype="float64", random_state=0)
    t, before = mesh.topology, mesh.weights.copy()
    Y = series(40, seed=9)
    Y[:, 1] = np.nan
    settings = {"forgetting": 0.0} if learner == "ekf" else {}  # forgetting also changes parameters without targets
    mesh.stream(learner=learner, memory="none", **settings).run(series(), Y)
    second = t.dst == t.n_neurons - 1
    assert np.array_equal(mesh.weights[second], before[second])
    assert (mesh.weights[~second] != before[~second]).all()


@pytest.mark.parametrize("learner", LEARNERS)
def test_late_targets(learner):
    """The derivative belongs to the parameters and outputs at the time of the sample; arrays equal single steps."""
    (mesh, X), Y = (recurrent(), series(12)), series(12, seed=4)
    stream, want = mesh.stream(learner=learner, delay=5), {}
    for k, x in enumerate(X):
        stream.step(x)
        want[k] = stream.gradient([0.1, -0.2])
    for lag in range(6):
        close(stream.gradient([0.1, -0.2], delay=lag), want[11 - lag], 1e-13)
    a, b = recurrent(), recurrent()
    out, single = a.stream(learner=learner, delay=3).run(X, Y, delay=3), b.stream(learner=learner, delay=3)
    for k, x in enumerate(X):
        assert np.array_equal(single.step(x), out[k])
        if k >= 3:
            single.learn(Y[k - 3], delay=3)
    assert np.array_equal(a.weights, b.weights)
    assert (a.weights != mesh.weights).any()
    with pytest.raises(MeshError, match="delay=6"):
        stream.learn([0.1, -0.2], delay=6)


def test_parallel_streams_share_parameters():
    """The step of Adam follows the mean gradient of the streams with a target."""
    X, Y = series(6 * 3).reshape(6, 3, 2), series(6 * 3, seed=7).reshape(6, 3, 2)
    Y[2, 1] = np.nan
    mesh = recurrent()
    grads = []
    for b in (0, 2):
        single = recurrent().stream()
        single.run(X[:3, b])
        grads.append(single.gradient(Y[2, b]))
    stream = mesh.stream(n_streams=3)
    stream.run(X[:3])
    close(stream.gradient(Y[2]), np.mean(grads, axis=0), 1e-12)
    assert stream.run(X, Y).shape == (6, 3, 2)


def test_filter_on_a_linear_net_is_ridge_regression():
    """Without forgetting, with noise of variance r, weights are the least-squares solution with penalty r / p0."""
    rng = np.random.default_rng(0)
    X, r = rng.standard_normal((50, 3)), 0.25
    y = X @ [1.0, -2.0, 0.5] + 0.3 + 0.5 * rng.standard_normal(50)
    mesh = Mesh(Topology.layered([3, 1]), 1, dtype="float64", weights=np.zeros(4))
    stream = mesh.stream(learner="ekf", memory="none", replays=0, forgetting=0.0, noise=r, tails=0.0, p0=2.0)
    stream.run(X, y)
    design = np.column_stack([X, np.ones(50)])
    want = np.linalg.solve(design.T @ design + r / 2.0 * np.eye(4), design.T @ y)
    close(mesh.weights, want, 1e-6)
    x = np.array([0.1, 0.2, 0.3])
    stream.step(x)
    row = np.array([*x, 1.0])
    variance = row @ np.linalg.solve(design.T @ design / r + np.eye(4) / 2.0, row) + r
    assert stream.variance()[0, 0] == pytest.approx(variance, rel=1e-6)


# -- growth --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("memory", ["carry", "none"])
def test_growth_changes_no_prediction(learner, memory):
    """New edges have weight 0; states, influences and the state of the learner continue."""
    mesh, X, Y = recurrent(0), series(30), series(30, seed=2)
    mesh.ticks = 3
    stream = mesh.stream(learner=learner, memory=memory)
    stream.run(X, Y)
    before, jacobian = stream.peek([0.3, -0.4]), stream.jacobian()[0]
    old = mesh.topology
    mesh.grow_stream(stream, inputs=2, outputs=1)
    after = stream.peek([0.3, -0.4, 0.0, 0.0])
    close(after[:2], before, 1e-13, 1.0)
    assert after[2] == 0
    growth = grown(old, 2, 1)
    kept = growth.edges >= 0
    if memory == "carry":
        assert np.array_equal(stream.jacobian()[0][:2][:, kept], jacobian[:, growth.edges[kept]])
    stream.run(np.column_stack([X, X]), np.column_stack([Y, Y[:, 0]]))
    assert (mesh.weights[~kept] != 0).any()


def test_gradient_after_growth_is_that_of_the_whole_past():
    mesh, X = recurrent(), series(20, 4)
    stream = mesh.stream()
    stream.run(X[:10, :2])
    mesh.grow_stream(stream, inputs=2, outputs=1)
    stream.run(X[10:])
    X[:10, 2:] = 0
    whole = Mesh(mesh.topology, 20, "tanh", weights=mesh.weights, dtype="float64")
    target = [[0.1, 0.2, 0.3]]
    _, want = whole.gradient(X[:, None], target, "squared_error", gradient="adjoint")
    close(stream.gradient(target[0]), want, 1e-11)


def test_growth_of_odd_graphs():
    """Outputs that only read inputs, nets without hidden neurons, nets without a bias."""
    for t in (Topology.layered([2, 1]), Topology(1, 0, 1, [(0, 1)], bias=False), Topology.cascade(2, 2, 1)):
        found = grown(t, inputs=1, outputs=2)
        assert found.topology.n_inputs == t.n_inputs + 1
        assert found.topology.n_outputs == t.n_outputs + 2
        found.topology.check_reachable(found.topology.n_neurons)
        old = {(int(a), int(b)) for a, b in zip(t.src, t.dst, strict=True)}
        g, n = found.topology, found.neurons
        kept = {(int(n[a]), int(n[b])) for a, b, e in zip(g.src, g.dst, found.edges, strict=True) if e >= 0}
        assert kept == old


# -- files and copies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("memory", ["carry", "none"])
def test_goes_on_bit_by_bit(learner, memory):
    X, Y = series(80), series(80, seed=2)
    mesh = recurrent()
    mesh.ticks = 2
    stream = mesh.stream(learner=learner, memory=memory, scale=True, delay=2)
    stream.run(X[:40], Y[:40])
    twin = Mesh.from_tree(copy.deepcopy(mesh.to_tree()))
    other = twin.stream(learner=learner, memory=memory, scale=True, delay=2)
    other.restore(stream.to_tree())
    assert np.array_equal(stream.run(X[40:], Y[40:]), other.run(X[40:], Y[40:]))
    assert np.array_equal(mesh.weights, twin.weights)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_copy_goes_on_bit_by_bit_on_a_mesh_of_float32(learner):
    X, Y = series(60), series(60, seed=2)
    stream = recurrent(dtype="float32").stream(learner=learner)
    stream.run(X[:30], Y[:30])
    for other in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):
        assert np.array_equal(other.values, stream.values)
        twin = copy.deepcopy(stream)
        assert np.array_equal(other.run(X[30:], Y[30:]), twin.run(X[30:], Y[30:]))


@pytest.mark.parametrize("assign", ["weights", "parameters"])
@pytest.mark.parametrize("portable", [False, True])
def test_training_continues_from_assigned_weights(assign, portable):
    """A stream continues with the assigned weights, and the mesh receives the trained ones."""
    mesh, X, Y = recurrent(dtype="float32"), series(40), series(40, seed=2)
    stream = mesh.stream(portable=portable)
    stream.run(X[:20], Y[:20])
    assigned = np.linspace(-0.5, 0.5, mesh.n_parameters).astype(np.float32)
    setattr(mesh, assign, assigned)
    stream.refresh()
    stream.reset()
    fresh = recurrent(dtype="float32")
    fresh.weights = assigned
    np.testing.assert_array_equal(stream.peek(X[0]), fresh.stream(portable=portable).peek(X[0]))
    stream.run(X[20:], Y[20:])
    assert (mesh.weights != assigned).any()


# -- recovery from NaN -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_diverging_net_is_reset(learner):
    """An identity neuron that doubles its state at every tick overflows after a thousand ticks."""
    mesh = Mesh(Topology(1, 1, 1, [(0, 2), (2, 2), (2, 3), (1, 3)]), 1, "identity", weights=[1.0, 1.0, 2.0, 0.5],
                dtype="float64")  # fmt: skip
    stream = mesh.stream(learner=learner)
    X = np.ones((5000, 1))
    stream.run(X, np.zeros((5000, 1)))
    assert np.isfinite(mesh.weights).all()
    assert np.isfinite(stream.state).all()
    assert np.isfinite(stream.step([1.0])).all()


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("memory", ["carry", "none"])
def test_hostile_data_end_finite(learner, memory):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 2))
    X[::50] *= 1e6
    X[500:700] = 3.0
    X[700, 0] = 1e300
    X[800:900, 1] = np.nan
    Y = X[:, :1] * 2
    Y[::31] = 1e12
    Y[600:700] = -1e6
    Y[~np.isfinite(Y)] = np.nan
    mesh = recurrent(0, 2, 5, 1)
    mesh.ticks = 2
    stream = mesh.stream(learner=learner, memory=memory, scale=True)
    out = stream.run(X, Y)
    assert np.isfinite(out).all()
    assert np.isfinite(mesh.weights).all()
    for array in stream.learner.state().values():
        assert np.isfinite(array).all()


# -- costs and errors --------------------------------------------------------------------------------------------------


def test_explain_prices_before_anything_is_made():
    stream = Mesh(Topology.mesh(4, 60, 2), 1, "tanh", random_state=0).stream()
    text = str(stream.explain())
    assert "room" not in vars(stream)
    assert all(word in text for word in ("exact", "snap-1", "<- this"))
    assert "decoupled by neuron" in str(recurrent(hidden=40).stream(learner="ekf").explain())
    rows = {row.method: row for row in stream.explain().rows}
    assert rows["snap-1"].multiply_adds < rows["exact"].multiply_adds


def test_influence_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 1_000_000)
    with pytest.raises(MeshError, match="snap-1"):
        Mesh(Topology.mesh(4, 60, 2), 1, "tanh", random_state=0).stream().step(np.zeros(4))


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (lambda s: s.step([1.0]), "samples have 2 inputs"),
        (lambda s: s.step([1.0, np.nan]), "input 1 of sample 0 is nan"),
        (lambda s: s.learn([1.0, 2.0]), "call step"),
        (lambda s: s.run(np.zeros((3, 2)), np.zeros((4, 2))), "targets must have shape"),
        (lambda s: s.run(np.zeros((3, 2)), np.full((3, 2), np.inf)), "finite"),
        (lambda s: s.run(np.zeros((3, 2)), np.zeros((3, 2)), delay=1), "delay=1"),
        (lambda s: s.variance(), "ekf"),
        (lambda s: recurrent().stream("poisson").run(series(3), -np.ones((3, 2))), "-1"),
        (lambda s: recurrent().stream("cross_entropy").run(series(3), np.arange(3)), "2"),
        (lambda s: s.run([["a", "b"]]), "numbers"),
    ],
)
def test_bad_input_is_a_sentence_and_changes_nothing(do, words):
    stream = recurrent().stream()
    before = stream.to_tree()
    with pytest.raises(MeshError, match=words):
        do(stream)
    after = stream.to_tree()
    assert all(np.array_equal(before[k], after[k], equal_nan=True) for k in before)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learner": "adamm"}, "did you mean 'adam'"),
        ({"method": "snap-0"}, "snap-1"),
        ({"memory": "some"}, "unknown memory"),
        ({"n_streams": 0}, "n_streams"),
        ({"delay": -1}, "delay"),
        ({"learner": "ekf", "rat": 3}, "no setting 'rat'"),
        ({"rate": -1.0}, "rate"),
        ({"loss": "hubber"}, "huber"),
    ],
)
def test_settings_that_make_no_sense(settings, words):
    with pytest.raises(MeshError, match=words):
        recurrent().stream(**settings)

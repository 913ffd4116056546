"""Streams: exact through all of the past, test then train, late and missing targets, growth, never a NaN."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import naive
from cases import by_autograd, cases, close, terms
from meshnn import Mesh, MeshError, Topology, networks
from meshnn.streaming.growth import grown

LEARNERS = ("adam", "sgd", "ekf")


def recurrent(seed=0, n_inputs=2, hidden=5, n_outputs=2, dtype="float64", **kwargs):
    return Mesh(Topology.mesh(n_inputs, hidden, n_outputs), 1, "tanh", dtype=dtype, random_state=seed, **kwargs)


def series(T=40, d=2, seed=1):
    return np.random.default_rng(seed).standard_normal((T, d))


# -- exact ---------------------------------------------------------------------------------------------------------


def past(case):
    """A stream beside each sample of the batch, run up to the last tick."""
    X, mesh = case.X, case.mesh
    held = X.ndim == 2
    stream = mesh.stream(case.loss, ticks_per_sample=mesh.ticks if held else 1, n_streams=X.shape[-2])
    stream.run(X[None] if held else X)
    return stream


@given(cases(most_batch=5, streams=True))
def test_gradient_through_the_whole_past(case):
    case.sample_weight = None  # streams count alike
    _, want = by_autograd(case)
    got = past(case).gradient(case.y)
    close(got, want, 1e-10, terms(case))


@given(cases(most_batch=2, most_hidden=4, ticks=3, streams=True), st.integers(0, 2**32 - 1))
def test_state_that_is_forgotten_leaves_a_static_net(case, seed):
    """Samples of before leave no trace, whatever the graph."""
    rng = np.random.default_rng(seed)
    mesh, B = case.mesh, case.X.shape[-2]
    X = case.X if case.X.ndim == 2 else case.X[0]
    stream = mesh.stream(case.loss, memory="none", n_streams=B)
    stream.run(rng.standard_normal((3, *X.shape)))
    out = stream.step(X)
    close(out, mesh.forward(X), 1e-12, 1.0)
    _, want = mesh.gradient(X, case.y, case.loss, gradient="adjoint")
    close(stream.gradient(case.y), want, 1e-10, 1.0 + np.abs(want).max(initial=0.0))


def test_jacobian_of_a_stream_is_that_of_plain_loops():
    mesh, X = recurrent(3), series(7)
    stream = mesh.stream()
    stream.run(X)
    t = mesh.topology
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src, t.dst] = mesh.weights
    inputs = [[*x, 1.0] for x in X.tolist()]
    names = ["identity"] * t.n_clamped + mesh.activations
    _, want = naive.run(A.tolist(), t.n_clamped, t.n_outputs, names, inputs)
    close(stream.jacobian()[0], np.array(want)[:, t.src, t.dst], 1e-12)


def test_by_hand():
    """x -> h, h -> h (tanh), h -> y: two samples, a tick each; the output is that of the state before."""
    mesh = Mesh(Topology(1, 1, 1, [(0, 1), (1, 1), (1, 2)], bias=False), 3, "tanh",
                weights=[0.5, 0.3, 2.0], dtype="float64")  # fmt: skip
    stream = mesh.stream(ticks_per_sample=1)
    out = stream.run([[1.0], [-2.0], [0.0]])
    h1 = math.tanh(0.5)
    h2 = math.tanh(0.5 * -2 + 0.3 * h1)
    assert out[:, 0].tolist() == pytest.approx([0.0, 2 * h1, 2 * h2], abs=1e-15)
    # y = 2 h2: by a: slope2 (-2 + 0.3 slope1), by the loop: slope2 h1, by the readout: h2
    slope1, slope2 = 1 - h1 * h1, 1 - h2 * h2
    want = np.array([2 * slope2 * (-2 + 0.3 * slope1 * 1.0), 2 * slope2 * h1, h2])
    assert stream.jacobian()[0, 0].tolist() == pytest.approx(want.tolist(), abs=1e-14)


@pytest.mark.parametrize("parameter", ["tied", "fixed"])
def test_tied_and_fixed_edges(parameter):
    t = Topology.mesh(2, 4, 1)
    number = np.arange(t.n_edges) // 2 if parameter == "tied" else np.where(np.arange(t.n_edges) % 3, -1, 0)
    if parameter == "fixed":
        number[number == 0] = np.arange((number == 0).sum())
    rng = np.random.default_rng(0)
    values = 0.4 * rng.standard_normal(t.n_edges)
    weights = values[number] if parameter == "tied" else values
    mesh = Mesh(t, 6, "tanh", weights=weights, tied=number, dtype="float64")
    X = series(6)
    stream = mesh.stream(ticks_per_sample=1)
    stream.run(X)
    _, want = mesh.gradient(X[:, None], [[0.7]], "squared_error", gradient="adjoint")
    close(stream.gradient([0.7]), want, 1e-11)


def test_after_a_hundred_thousand_steps_as_backprop_through_the_last_thousand():
    """A contracting net: what lies further back than a thousand steps is below rounding."""
    mesh = recurrent(0, 1, 8, 1)
    t = mesh.topology
    inner = (t.src >= t.n_clamped) & (t.dst < t.n_neurons - 1)
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src[inner], t.dst[inner]] = mesh.weights[inner]
    mesh.weights[inner] *= 0.9 / np.linalg.norm(A, 2)  # every step forgets a tenth at least
    X = series(100_000, 1)
    stream = mesh.stream()
    out = stream.run(X)
    got = stream.gradient([0.3])
    w = torch.tensor(mesh.weights, requires_grad=True)
    matrix = torch.zeros(t.n_neurons, t.n_neurons, dtype=torch.float64)
    matrix = matrix.index_put((torch.tensor(t.src.astype(np.int64)), torch.tensor(t.dst.astype(np.int64))), w)
    s = torch.zeros(t.n_neurons - t.n_clamped, dtype=torch.float64)
    for x in X[-1000:, 0]:
        z = torch.cat([torch.tensor([x, 1.0], dtype=torch.float64), s]) @ matrix[:, t.n_clamped :]
        s = torch.cat([torch.tanh(z[:-1]), z[-1:]])
    (0.5 * (s[-1] - 0.3) ** 2).backward()
    close(out[-1], [s[-1].item()], 1e-12, 1.0)
    close(got, w.grad.numpy(), 1e-10)


# -- cut influences ------------------------------------------------------------------------------------------------


def cut(mesh, X, hops):
    """SnAp by plain loops: the influence of an edge is kept on neurons within so many hops of its end.

    An output reads what its sources have kept: there it is one hop more.
    """
    t = mesh.topology
    n, A = t.n_neurons, np.zeros((t.n_neurons, t.n_neurons))
    A[t.src, t.dst] = mesh.weights
    near = np.eye(n, dtype=bool)
    step = A != 0
    step[: t.n_clamped] = False
    for _ in range(hops):
        near = near | (near.astype(int) @ step.astype(int) > 0)
    further = near | (near.astype(int) @ step.astype(int) > 0)
    near[:, n - t.n_outputs :] = further[:, n - t.n_outputs :]
    s, J = np.zeros(n), np.zeros((n, t.n_edges))
    for x in X:
        s[: t.n_clamped] = [*x, 1.0]
        z = s @ A
        new = np.where(np.arange(n) < n - t.n_outputs, np.tanh(z), z)
        slope = np.where(np.arange(n) < n - t.n_outputs, 1 - np.tanh(z) ** 2, 1.0)
        after = A.T @ J
        after[t.dst, np.arange(t.n_edges)] += s[t.src]
        after *= slope[:, None]
        after[~near.T[:, t.dst]] = 0
        after[: t.n_clamped] = 0
        s, J = new, after
    return J[n - t.n_outputs :]


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_snap_is_what_it_says(hops):
    mesh = Mesh(Topology.mesh(2, 9, 2, density=0.35, random_state=2), 4, "tanh", dtype="float64", random_state=0)
    X = series(9)
    stream = mesh.stream(method=f"snap-{hops + 1}", ticks_per_sample=1)
    stream.run(X)
    close(stream.jacobian()[0], cut(mesh, X, hops), 1e-11)
    assert stream.plan.exact is False


def test_snap_of_many_hops_is_exact_and_dearer():
    mesh = Mesh(Topology.mesh(1, 12, 1, density=0.2, random_state=0), 5, "tanh", dtype="float64", random_state=0)
    X = series(8, 1)
    exact, snap = (mesh.stream(method=method, ticks_per_sample=1) for method in ("exact", "snap-13"))
    exact.run(X)
    snap.run(X)
    close(snap.jacobian(), exact.jacobian(), 1e-12)
    prices = [mesh.stream(method=f"snap-{r}", ticks_per_sample=1).plan.multiply_adds for r in (1, 2, 3)]
    assert prices == sorted(prices)
    assert prices[-1] <= exact.plan.multiply_adds


def test_columns_are_exact_at_the_price_of_the_forward_pass():
    mesh = networks.columns(3, 50, 1, dtype="float64", random_state=0)
    plan = mesh.stream(ticks_per_sample=1).plan
    assert plan.exact
    assert plan.multiply_adds < 4 * mesh.topology.n_edges


# -- learning ------------------------------------------------------------------------------------------------------


def test_adam_is_adam():
    """Parameters after steps of a static net are those of torch's Adam on the same samples, one at a time."""
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
def test_a_part_of_a_target(learner):
    """The readout of an output whose targets are always missing does not move."""
    mesh = Mesh(Topology.layered([2, 3, 2]), 2, "tanh", dtype="float64", random_state=0)
    t, before = mesh.topology, mesh.weights.copy()
    Y = series(40, seed=9)
    Y[:, 1] = np.nan
    settings = {"forgetting": 0.0} if learner == "ekf" else {}  # forgetting fades what nothing is told about
    mesh.stream(learner=learner, memory="none", **settings).run(series(), Y)
    second = t.dst == t.n_neurons - 1
    assert np.array_equal(mesh.weights[second], before[second])
    assert (mesh.weights[~second] != before[~second]).all()


@pytest.mark.parametrize("learner", LEARNERS)
def test_late_targets(learner):
    """The derivative by the parameters of then, at the outputs of then."""
    mesh, X = recurrent(), series(12)
    stream = mesh.stream(learner=learner, delay=5)
    want = {}
    for k, x in enumerate(X):
        stream.step(x)
        want[k] = stream.gradient([0.1, -0.2])
    for lag in range(6):
        close(stream.gradient([0.1, -0.2], delay=lag), want[11 - lag], 1e-13)
    before = mesh.weights.copy()
    stream.learn([0.1, -0.2], delay=5)
    assert (mesh.weights != before).any()
    with pytest.raises(MeshError, match="delay=6"):
        stream.learn([0.1, -0.2], delay=6)


@pytest.mark.parametrize("learner", LEARNERS)
def test_delay_is_learning_late(learner):
    X, Y = series(30), series(30, seed=4)
    a, b = recurrent(), recurrent()
    out = a.stream(learner=learner, delay=3).run(X, Y, delay=3)
    stream = b.stream(learner=learner, delay=3)
    for k, x in enumerate(X):
        assert np.array_equal(stream.step(x), out[k])
        if k >= 3:
            stream.learn(Y[k - 3], delay=3)
    assert np.array_equal(a.weights, b.weights)


def test_streams_beside_each_other_share_what_they_learn():
    """The step of Adam is along the mean of their gradients, those with a target."""
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
    """Without forgetting, with noise of variance r, weights are those of least squares with a penalty r / p0."""
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


# -- growing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("memory", ["carry", "none"])
def test_growth_changes_no_prediction(learner, memory):
    """New edges have weight 0; states, influences and what the learner knows go on."""
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
    """Outputs that read nothing but inputs, nets without hidden neurons, without a bias."""
    for t in (Topology.layered([2, 1]), Topology(1, 0, 1, [(0, 1)], bias=False), Topology.cascade(2, 2, 1)):
        found = grown(t, inputs=1, outputs=2)
        assert found.topology.n_inputs == t.n_inputs + 1
        assert found.topology.n_outputs == t.n_outputs + 2
        found.topology.check_reachable(found.topology.n_neurons)
        old = {(int(a), int(b)) for a, b in zip(t.src, t.dst, strict=True)}
        g, n = found.topology, found.neurons
        kept = {(int(n[a]), int(n[b])) for a, b, e in zip(g.src, g.dst, found.edges, strict=True) if e >= 0}
        assert kept == old


# -- remembering -----------------------------------------------------------------------------------------------------


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


def test_a_stored_stream_of_another_net_is_refused():
    tree = recurrent(hidden=4).stream().to_tree()
    with pytest.raises(MeshError, match="must be"):
        recurrent().stream().restore(tree)


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
def test_weights_that_are_assigned_are_learned_from(assign, portable):
    """A stream goes on with them once it looks at them, and what it learns is in the mesh."""
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


def test_reset_forgets_the_past_only():
    mesh, X = recurrent(), series(10)
    stream = mesh.stream()
    stream.run(X)
    stream.reset()
    fresh = mesh.stream()
    assert np.array_equal(stream.step(X[0]), fresh.step(X[0]))


# -- never a NaN -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_net_that_explodes_is_set_back(learner):
    """An identity neuron that doubles itself at every tick is infinite after a thousand."""
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
    X = rng.standard_normal((3000, 2))
    X[::50] *= 1e6
    X[500:900] = 3.0
    X[1000:1200] = 0.0
    X[1500, 0] = 1e300
    X[1600:1700, 1] = np.nan
    Y = X[:, :1] * 2
    Y[::31] = 1e12
    Y[1000:1100] = -1e6
    Y[~np.isfinite(Y)] = np.nan
    mesh = recurrent(0, 2, 5, 1)
    mesh.ticks = 2
    stream = mesh.stream(learner=learner, memory=memory, scale=True)
    out = stream.run(X, Y)
    assert np.isfinite(out).all()
    assert np.isfinite(mesh.weights).all()
    for array in stream.learner.state().values():
        assert np.isfinite(array).all()


# -- what it costs, and what is refused --------------------------------------------------------------------------------


def test_explain_prices_before_anything_is_made():
    stream = Mesh(Topology.mesh(4, 60, 2), 1, "tanh", random_state=0).stream()
    text = str(stream.explain())
    assert stream._room is None
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
        (lambda s: s.step([1.0, np.nan]), "give 0 for what is missing"),
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
    assert all(np.array_equal(before["room"][k], after["room"][k]) for k in before["room"])


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

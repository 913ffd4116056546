"""Portable streams against streams in float64, against plain NumPy, and with extreme data."""

import pickle
import platform

import numpy as np
import pytest
from export_cases import random_net

import boards
from meshnn import Mesh, MeshRegressor, Topology
from meshnn.errors import DataError, FileError, MeshError
from meshnn.streaming.portable import PortableStream, portable_of

PLAIN = {"forgetting": 0.0, "noise": 0.3, "tails": 0.0}


def recurrent(hidden=5, inputs=2, outputs=1):
    """Return a fully recurrent net."""
    first, last = inputs + 1, inputs + 1 + hidden
    pairs = [(i, j) for i in range(last) for j in range(first, last)]
    pairs += [(i, o) for i in range(inputs, last) for o in range(last, last + outputs)]
    return Topology(inputs, hidden, outputs, pairs)


def tied_mesh(dtype="float64"):
    """Return two columns that share their weights, a fixed edge, and a dead edge."""
    pairs = [(0, 3), (1, 4), (3, 3), (4, 4), (2, 3), (2, 4), (3, 6), (4, 6), (0, 5), (5, 5), (3, 4)]
    topology = Topology(2, 3, 1, pairs)
    edges = list(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    shared = {(0, 3): 0, (1, 4): 0, (3, 3): 1, (4, 4): 1, (2, 3): 2, (2, 4): 2, (3, 6): 3, (4, 6): 4, (0, 5): 5,
              (5, 5): 6, (3, 4): -1}  # fmt: skip
    weights = {0: 0.7, 1: 0.5, 2: 0.2, 3: 0.9, 4: -0.6, 5: 0.3, 6: 0.1, -1: 0.4}
    numbers = [shared[edge] for edge in edges]
    return Mesh(topology, 2, "tanh", weights=[weights[k] for k in numbers], tied=numbers, dtype=dtype)


def samples(mesh, T, seed=0):
    rng = np.random.default_rng(seed)
    t = mesh.topology
    X = rng.normal(size=(T, t.n_inputs)).astype(np.float32)
    return X, rng.normal(size=(T, t.n_outputs)).astype(np.float32)


@pytest.mark.parametrize("name", ["recurrent", "tied", *range(16)])
@pytest.mark.parametrize("memory", ["carry", "none"])
def test_exact_influences(name, memory):
    """Influences equal those of a stream in float64, which other tests compare with oracles."""
    made = {"recurrent": lambda: Mesh(recurrent(), 1, "tanh", dtype="float64", random_state=0), "tied": tied_mesh}
    mesh, again = (made[name]() if name in made else random_net(name)[0] for _ in range(2))
    got, other = mesh.stream(memory=memory, portable=True), again.stream(memory=memory)
    X, Y = samples(mesh, 8)
    np.testing.assert_allclose(got.run(X), other.run(X), rtol=1e-4, atol=1e-5)
    want = other.jacobian()
    scale = max(np.abs(want).max(), 1e-3)
    np.testing.assert_allclose(got.jacobian(), want, atol=1e-5 * scale)
    np.testing.assert_allclose(got.gradient(Y[-1]), other.gradient(Y[-1]), atol=2e-5 * scale)
    if memory == "carry":  # otherwise irrelevant influences are not computed in float64
        np.testing.assert_allclose(got.state, other.state[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", ["squared_error", "binary_cross_entropy", "cross_entropy"])
@pytest.mark.parametrize("learner", ["adam", "sgd"])
def test_first_order_steps_are_those_of_streams(learner, loss):
    mesh, other = (Mesh(recurrent(4, 2, 3), 1, "tanh", dtype="float64", random_state=0) for _ in range(2))
    X, Y = samples(mesh, 60)
    labels = np.random.default_rng(1).integers(0, 3, 60).astype(float)
    targets = {"squared_error": Y, "binary_cross_entropy": (Y > 0).astype(float), "cross_entropy": labels}[loss]
    targets[7] = np.nan
    got = mesh.stream(loss, learner, portable=True, l2=1e-3, clip=0.5)
    want = other.stream(loss, learner, l2=1e-3, clip=0.5)
    np.testing.assert_allclose(got.run(X, targets), want.run(X, targets), atol=2e-4)
    assert (got.samples, got.learned) == (want.samples, want.learned) == (60, 59)
    np.testing.assert_array_equal(mesh.weights.astype(np.float32), got.parameters)


def dense_filter(mesh, X, Y, q, noise, ceiling=10.0):
    """Compute the textbook filter with all outputs at once, in float64, from Jacobians."""
    N, C = mesh.n_parameters, mesh.topology.n_outputs
    P, theta = np.eye(N), mesh.values[:N].astype(np.float64)
    for t in range(len(X)):
        y, H = mesh.forward(X[t : t + 1])[0], mesh.jacobian(X[t : t + 1])[0]
        S = H @ P @ H.T + noise * np.eye(C)
        K = P @ H.T @ np.linalg.inv(S)
        theta = (theta + K @ (Y[t] - y)) * (1 - 0.5 * q / ceiling)
        P = P - K @ H @ P
        P[np.diag_indices(N)] *= 1 + 1e-5  # required in float32
        P[np.diag_indices(N)] = np.minimum(P.diagonal() + np.maximum(0, q - P.diagonal() * q / ceiling), ceiling)
        mesh.values[:N] = theta
    return theta, P


@pytest.mark.parametrize("q", [0.0, 1e-3])
def test_the_filter_is_the_textbooks(q):
    mesh, other = (Mesh(Topology.layered([2, 3, 2]), 2, "tanh", dtype="float64", random_state=0) for _ in range(2))
    X, Y = samples(mesh, 40)
    Y = np.stack([np.tanh(X[:, 0]), X[:, 1] * X[:, 0]], axis=1) + 0.1 * Y
    got = mesh.stream(learner="ekf", memory="none", portable=True, **PLAIN | {"forgetting": q})
    got.run(X, Y)
    theta, P = dense_filter(other, X, Y.astype(np.float32), q, PLAIN["noise"])
    np.testing.assert_allclose(got.parameters, theta, atol=2e-4)
    np.testing.assert_allclose(got.covariance(), P, atol=2e-4)


@pytest.mark.parametrize("loss", ["squared_error", "binary_cross_entropy", "cross_entropy"])
@pytest.mark.parametrize("scale", [False, True])
def test_the_filter_of_streams(loss, scale):
    """With one output or two classes, the filter in float64 gives the same results, with all estimated settings."""
    outputs = 2 if loss == "cross_entropy" else 1
    mesh, other = (Mesh(recurrent(3, 2, outputs), 1, "tanh", dtype="float64", random_state=0) for _ in range(2))
    X, Y = samples(mesh, 80)
    y = np.tanh(X[:, :1]) * X[:, 1:] + 0.1 * Y[:, :1]
    targets = y if loss == "squared_error" else (y > 0).astype(float)
    got, want = mesh.stream(loss, "ekf", portable=True, scale=scale), other.stream(loss, "ekf", scale=scale)
    out, want_out = got.run(X[:25], targets[:25]), want.run(X[:25], targets[:25])
    np.testing.assert_allclose(out, want_out, atol=2e-3)
    got, now = PortableStream(want), want.run(X[25:60], targets[25:60])
    assert got.samples == 25
    np.testing.assert_allclose(got.run(X[25:60], targets[25:60]), now, atol=5e-3)
    got.into_stream(want)
    np.testing.assert_allclose(want.run(X[60:], targets[60:]), got.run(X[60:], targets[60:]), atol=2e-3)


def test_of_three_classes_the_filter_learns_as_well():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2)).astype(np.float32)
    labels = np.where(X[:, 0] * X[:, 1] > 0.2, 2, (X[:, 0] > 0).astype(int)).astype(float)
    right = {}
    for portable in (False, True):
        mesh = Mesh(Topology.layered([2, 8, 3]), 2, "tanh", dtype="float64", random_state=0)
        settings = {} if portable else {"replays": 0}
        stream = mesh.stream("cross_entropy", "ekf", memory="none", portable=portable, **settings)
        out = stream.run(X, labels)
        right[portable] = (out.argmax(axis=1) == labels)[500:].mean()
    assert right[True] > max(0.9, right[False] - 0.02)


def hostile(T, d, m, seed):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(T, d)) * 10.0 ** rng.choice([0, 0, 0, 3, 30, -30], size=(T, d))).astype(np.float32)
    Y = (rng.normal(size=(T, m)) * 10.0 ** rng.choice([0, 0, 0, 5, 37], size=(T, m))).astype(np.float32)
    X[rng.random(X.shape) < 0.02] = 0
    Y[rng.random(Y.shape) < 0.05] = np.nan
    return X, Y


@pytest.mark.parametrize("T", [4000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_nothing_breaks_it(T):
    for k, (learner, scale) in enumerate([("ekf", True), ("ekf", False), ("adam", False), ("sgd", True)]):
        mesh = Mesh(recurrent(4, 2, 2), 1, ["tanh", "relu", "sin", "softplus"], random_state=0)
        stream = mesh.stream(learner=learner, scale=scale, portable=True)
        X, Y = hostile(T, 2, 2, k)
        if scale:
            X[::17, 0] = np.nan
        stream.run(X, Y)
        for name in PortableStream.kept:
            assert np.isfinite(getattr(stream.room, name)).all(), (learner, scale, name)
        assert stream.learned > T // 3
        x = np.sin(np.arange(3000) / 3).astype(np.float32)  # training continues
        stream.reset()
        out = stream.run(np.stack([x[:-1], x[:-1]], axis=1), np.stack([x[1:], -x[1:]], axis=1))
        assert np.isfinite(out).all()
        if learner == "ekf":
            assert (stream.covariance().diagonal() > 0).all()
            assert stream.covariance().diagonal().max() <= 10
            assert not scale or np.square(out[-500:, 0] - x[-500:]).mean() < 0.1


def test_a_noisy_stream_for_long_keeps_its_covariance_sound():
    mesh = Mesh(recurrent(6, 1, 1), 1, "tanh", random_state=0)
    stream = mesh.stream(learner="ekf", portable=True, forgetting=0.0)
    rng = np.random.default_rng(0)
    x = (np.sin(0.2 * np.arange(10_001)) + 0.3 * rng.normal(size=10_001)).astype(np.float32)
    stream.run(x[:-1, None], x[1:])
    eigenvalues = np.linalg.eigvalsh(stream.covariance().astype(np.float64))
    assert eigenvalues.min() > -1e-3 * eigenvalues.max()
    assert stream.left_out == 0


FLUSH = """
unsigned set(unsigned mode);
unsigned set(unsigned mode) { unsigned before = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(mode); return before; }
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets a register of x86")
def test_denormal_numbers_are_kept():
    """A thread that flushes denormal numbers to 0 computes the same bits, and its mode is restored."""
    library = boards.load(FLUSH, {})
    found = []
    for mode in (0x1F80, 0x9FC0):
        mesh = Mesh(recurrent(3, 1, 1), 1, "tanh", random_state=0)
        mesh.weights = mesh.weights * np.float32(1e-3)
        stream = mesh.stream(portable=True)
        X = np.zeros((40, 1), np.float32)
        X[0] = 1e-30
        stream.run(X[:1])
        before = library.set(mode)
        try:
            out = stream.run(X)
            left = library.set(mode)
        finally:
            library.set(before)
        assert left & 0x8040 == mode & 0x8040
        found.append(np.concatenate([out.ravel(), stream.state, stream.jacobian().ravel()]).view(np.uint32))
    np.testing.assert_array_equal(*found)
    assert ((found[0] & 0x7FFFFFFF) - 1 < 0x7FFFFF).any()  # denormal numbers occur


def test_look_state_tree_and_pickle():
    X, Y = samples(Mesh(recurrent(), 1, "tanh", random_state=0), 30)
    for learner in ("adam", "ekf"):
        stream = Mesh(recurrent(), 1, "tanh", random_state=0).stream(learner=learner, scale=True, portable=True)
        stream.run(X[:10], Y[:10])
        before = stream.to_tree()
        seen = stream.peek(X[10])
        for name, array in before.items():
            np.testing.assert_array_equal(getattr(stream.room, name), array)
        np.testing.assert_array_equal(stream.step(X[10]), seen)
        stream.learn(Y[10])
        after, copied = stream.to_tree(), pickle.loads(pickle.dumps(stream))
        want = stream.run(X[11:], Y[11:])
        np.testing.assert_array_equal(copied.run(X[11:], Y[11:]), want)
        fresh = Mesh(recurrent(), 1, "tanh", random_state=9).stream(learner=learner, scale=True, portable=True)
        fresh.restore(after)
        np.testing.assert_array_equal(fresh.run(X[11:], Y[11:]), want)
        with pytest.raises(FileError, match="theta"):
            Mesh(recurrent(3), 1).stream(learner=learner, scale=True, portable=True).restore(after)


def test_refusals():
    mesh = Mesh(recurrent(), 1, "tanh", random_state=0)
    for loss, options, named in (
        ("squared_error", {"n_streams": 2}, "n_streams=1"), ("squared_error", {"delay": 3}, "delay=0"),
        ("squared_error", {"method": "snap-1"}, "exact"), ("huber", {}, "squared_error"),
    ):  # fmt: skip
        with pytest.raises(MeshError, match=named):
            mesh.stream(loss, portable=True, **options)
    stream = mesh.stream(portable=True)
    with pytest.raises(MeshError, match="step"):
        stream.learn([1.0])
    with pytest.raises(DataError, match="input 1 of sample 0"):
        stream.step([0.0, np.nan])
    with pytest.raises(MeshError, match="learner"):
        stream.covariance()
    with pytest.raises(MeshError, match="n_streams=2"):
        mesh.stream(n_streams=2).portable()
    with pytest.raises(MeshError, match="object"):
        portable_of(object())


def test_a_trained_regressor_goes_on_with_what_training_knows_of_its_weights():
    X = np.random.default_rng(0).standard_normal((200, 2))
    model = MeshRegressor(hidden=2, solver="lm", random_state=0).fit(X, X[:, 0] - 2 * X[:, 1] ** 2)
    portable, x = portable_of(model), np.array([[0.3, -0.7]])
    _, std = model.predict(x, return_std=True)
    scale = model.preprocessing_.scaling
    J = model.mesh_.jacobian(((x - scale.x_mean) / scale.x_scale).astype(model.mesh_.dtype))[0, 0]
    variance = J @ portable.covariance() @ J + portable.room.noise[0]
    np.testing.assert_allclose(np.sqrt(variance) * scale.y_scale[0], std, rtol=1e-3)

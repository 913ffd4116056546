"""The Kalman filter against the textbook form in plain NumPy, closed forms, and with extreme data."""

import math

import numpy as np
import pytest

from meshnn import Mesh, Topology, codes
from meshnn.codes import Memo, StreamNumbers
from meshnn.errors import MeshError
from meshnn.streaming.kalman import KalmanLearner, KalmanSettings
from meshnn.streaming.state import LIMITS

PLAIN = {"forgetting": 0.0, "noise": 0.5, "tails": 0.0}


def random_state(rng, group, n_outputs, **settings):
    """Return a state with a random positive definite covariance within its blocks, and this covariance."""
    state = KalmanLearner(group, n_outputs, **settings)
    P = np.zeros((len(group), len(group)))
    for members in blocks_of(state):
        root = rng.normal(size=(len(members), len(members)))
        P[np.ix_(members, members)] = 0.05 * root @ root.T + 0.1 * np.eye(len(members))
    state.set_covariance(P)
    return state, state.covariance()


def blocks_of(state):
    return [block.members for block in state.blocks()]


def softmax(y):
    e = np.exp(y - y.max())
    return e / e.sum()


@pytest.mark.parametrize("kind", ["full", "decoupled"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_squared_errors_are_the_textbook(kind, n_outputs):
    rng = np.random.default_rng(n_outputs)
    group = rng.integers(4, size=21)
    state, P = random_state(rng, group, n_outputs, covariance=kind, **PLAIN)
    theta = rng.normal(size=21)
    want_theta, want_P = theta.copy(), P.copy()
    for step in range(1, 6):
        H, y, t = rng.normal(size=(n_outputs, 21)), rng.normal(size=n_outputs), rng.normal(size=n_outputs)
        H[:, group == 0] *= np.arange(n_outputs)[:, None] == 0  # the readout of one output
        seen = np.arange(n_outputs) != step  # one target is missing in each of the first steps
        t[~seen] = np.nan
        S = H[seen] @ want_P @ H[seen].T + 0.5 * np.eye(seen.sum())
        K = want_P @ H[seen].T @ np.linalg.inv(S)
        want_theta += K @ (t - y)[seen]
        changed = want_P - K @ S @ K.T
        for members in blocks_of(state):
            want_P[np.ix_(members, members)] = changed[np.ix_(members, members)]
        state.update(theta, H, y, t, codes.LossCode.SQUARED_ERROR)
    np.testing.assert_allclose(theta, want_theta, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(state.covariance(), want_P, rtol=1e-9, atol=1e-10)


def curved(code, y, t):
    """Return slope and curvature of a loss with respect to its outputs."""
    if code == codes.LossCode.CROSS_ENTROPY:
        p = softmax(y)
        return np.eye(len(y))[int(t[0])] - p, np.diag(p) - np.outer(p, p)
    rate = 1 / (1 + np.exp(-y)) if code == codes.LossCode.BINARY_CROSS_ENTROPY else np.exp(y)
    return t - rate, np.diag(rate * (1 - rate) if code == codes.LossCode.BINARY_CROSS_ENTROPY else rate)


@pytest.mark.parametrize("surprise", [0.3, 8.0])
@pytest.mark.parametrize("kind", ["full", "decoupled"])
@pytest.mark.parametrize(
    "code", [codes.LossCode.CROSS_ENTROPY, codes.LossCode.BINARY_CROSS_ENTROPY, codes.LossCode.POISSON]
)
def test_updates_with_other_losses(code, kind, surprise):
    """At the new outputs, the slope of the loss balances the prior; P^-1 increases by H' A H."""
    rng = np.random.default_rng(5)
    n_outputs = 4 if code == codes.LossCode.CROSS_ENTROPY else 2
    group = np.repeat(np.arange(3), 6)
    state, P = random_state(rng, group, n_outputs, covariance=kind, **PLAIN)
    theta, H = np.zeros(18), rng.normal(size=(n_outputs, 18))
    y = surprise * np.array([1.0, -1.0, 0.5, -0.5])[:n_outputs]
    t = {
        codes.LossCode.CROSS_ENTROPY: [1.0],
        codes.LossCode.BINARY_CROSS_ENTROPY: [0.0, 1.0],
        codes.LossCode.POISSON: [2.0, 7.0],
    }[code]
    t = np.array(t + [0.0] * (n_outputs - len(t)))
    state.update(theta, H, y, t, code)
    after = y + H @ theta
    slope, A_after = curved(code, after, t)
    np.testing.assert_allclose(theta, P @ H.T @ slope, atol=1e-4 * np.abs(theta).max())
    A_before = curved(code, y, t)[1]
    if code == codes.LossCode.CROSS_ENTROPY:
        p = 0.5 * (softmax(y) + softmax(after))
        A = np.diag(p) - np.outer(p, p)
    else:
        A = np.maximum(A_before, A_after) if code == codes.LossCode.BINARY_CROSS_ENTROPY else 0.5 * (A_before + A_after)
    got = state.covariance()
    if kind == "full":
        np.testing.assert_allclose(np.linalg.inv(got), np.linalg.inv(P) + H.T @ A @ H, rtol=1e-3, atol=1e-3)
    else:
        # P - U' A (I + S A)^-1 U, within the blocks
        change = P @ H.T @ A @ np.linalg.inv(np.eye(n_outputs) + H @ P @ H.T @ A) @ H @ P
        for members in blocks_of(state):
            here = np.ix_(members, members)
            np.testing.assert_allclose(got[here], (P - change)[here], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("right", [0, 3, 69])
@pytest.mark.parametrize("ties", [False, True])
def test_the_most_likely_classes_are_updated(right, ties):
    """Outputs are biases only: with the omitted classes as constants, the step has a closed form."""
    rng, n = np.random.default_rng(right), 70
    y = rng.integers(0, 3, n).astype(float) if ties else 5 * rng.normal(size=n)
    edges = [(1, 2 + o) for o in range(n)] + [(0, 2)]
    mesh = Mesh(Topology(1, 0, n, np.array(edges)), 1, dtype="float64")
    mesh.weights = np.where(mesh.topology.src == 1, y[mesh.topology.dst - 2], 0.0)
    stream = mesh.stream("cross_entropy", "ekf", memory="none", ticks_per_sample=1, forgetting=0.0, replays=0)
    stream.run(np.zeros((1, 1)), np.array([float(right)]))
    chosen = stream.learner.filter.chosen
    assert sorted(chosen) == list(range(n))
    assert chosen[0] == right
    others = np.delete(y, right)
    assert y[chosen[1 : StreamNumbers.AT_ONCE]].tolist() == np.sort(others)[::-1][: StreamNumbers.AT_ONCE - 1].tolist()
    after = mesh.weights[mesh.topology.src == 1]
    np.testing.assert_array_equal(after[chosen[StreamNumbers.AT_ONCE :]], y[chosen[StreamNumbers.AT_ONCE :]])
    # each output has variance 1, so it moves by the slope of the loss at the end; the softmax includes all classes
    moved = np.eye(n)[right] - softmax(after)
    np.testing.assert_allclose(
        (after - y)[chosen[: StreamNumbers.AT_ONCE]], moved[chosen[: StreamNumbers.AT_ONCE]], atol=1e-4
    )


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("kind", ["full", "decoupled"])
def test_omitted_classes_are_constants(kind, fresh):
    """Omitting classes changes nothing if their outputs do not depend on any parameter."""
    rng = np.random.default_rng(1)
    n, few, group = 9, 4, np.repeat([0, 1, 2], 4)
    H, y = np.zeros((n, 12)), 2 * rng.normal(size=n)
    H[:few] = rng.normal(size=(few, 12))
    H[1, group == 2] = 0  # a block that the output does not depend on
    theta, target = rng.normal(size=12), np.full(n, 2.0)
    whole, _ = random_state(np.random.default_rng(2), group, n, covariance=kind, forgetting=1e-3)
    part, _ = random_state(np.random.default_rng(2), group, few, covariance=kind, forgetting=1e-3)
    np.testing.assert_array_equal(whole.covariance(), part.covariance())
    at, here = theta.copy(), theta.copy()
    for _ in range(2):
        loss = whole.update(at, H, y, target, codes.LossCode.CROSS_ENTROPY, fresh)
        rest = math.log(np.exp(y[few:]).sum())
        found = part.update(here, H[:few], y[:few], target[:few], codes.LossCode.CROSS_ENTROPY, fresh, rest)
        assert found == pytest.approx(loss, rel=1e-12)
        np.testing.assert_allclose(here, at, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(part.covariance(), whole.covariance(), rtol=1e-7, atol=1e-9)
    assert not np.allclose(at, theta)
    assert math.isnan(part.update(here, H[:few], y[:few], target[:few], codes.LossCode.CROSS_ENTROPY, True, math.nan))


def test_missing_targets_change_nothing():
    rng = np.random.default_rng(1)
    state, _ = random_state(rng, np.zeros(9), 3, **PLAIN)
    theta, H, y = rng.normal(size=9), rng.normal(size=(3, 9)), rng.normal(size=3)
    before = theta.tobytes(), state.filter.P.tobytes(), state.filter.memo.tobytes()
    for given in (
        (H, y, np.full(3, np.nan), codes.LossCode.SQUARED_ERROR),
        (H, y, np.full(3, np.nan), codes.LossCode.CROSS_ENTROPY),
        (H, np.array([0.1, np.inf, 0.2]), np.zeros(3), codes.LossCode.SQUARED_ERROR),
        (np.full_like(H, np.nan), y, np.zeros(3), codes.LossCode.SQUARED_ERROR),
    ):
        assert math.isnan(state.update(theta, *given))
    assert before == (theta.tobytes(), state.filter.P.tobytes(), state.filter.memo.tobytes())


def test_an_outlier_moves_less_than_a_likely_error():
    moved = []
    for error in (1.0, 1e3):
        state = KalmanLearner(np.zeros(3), 1, noise=0.5)
        theta = np.zeros(3)
        state.update(theta, np.ones((1, 3)), np.zeros(1), np.array([error]), codes.LossCode.SQUARED_ERROR)
        moved.append(np.abs(theta).max())
    assert moved[1] < 0.1 * moved[0]


def test_replayed_samples_leave_what_is_known():
    rng = np.random.default_rng(3)
    state, _ = random_state(rng, np.zeros(9), 1)
    H, y, t = rng.normal(size=(1, 9)), np.array([-1.0]), np.array([1.0])
    before, replayed, fresh = (state.filter.P.copy(), state.filter.memo.copy()), np.zeros(9), np.zeros(9)
    state.update(replayed, H, y, t, codes.LossCode.BINARY_CROSS_ENTROPY, False)
    np.testing.assert_array_equal(state.filter.P, before[0])
    np.testing.assert_array_equal(state.filter.memo, before[1])
    state.update(fresh, H, y, t, codes.LossCode.BINARY_CROSS_ENTROPY)
    assert 0 < np.linalg.norm(replayed) < np.linalg.norm(fresh)


@pytest.mark.parametrize("moves", [False, True])
def test_forgetting_is_found(moves):
    rng = np.random.default_rng(4)
    X, walk = rng.normal(size=(3000, 3)), np.cumsum(0.3 * rng.normal(size=(3000, 3)), axis=0)
    truth = walk if moves else rng.normal(size=3)
    mesh = Mesh(Topology.layered([3, 1]), 1, dtype="float64", random_state=0)
    stream = mesh.stream(learner="ekf", memory="none")
    stream.run(X, np.sum(X * truth, axis=1) + 0.5 * rng.normal(size=3000))
    assert (stream.learner.q > 1e-3) == (stream.learner.q > stream.learner.settings.steady) == moves
    if not moves:
        assert 0.15 < stream.learner.noise[0] < 0.4  # the true value is 0.25


@pytest.mark.parametrize("kind", ["full", "decoupled"])
@pytest.mark.parametrize("name", ["CROSS_ENTROPY", "BINARY_CROSS_ENTROPY", "SQUARED_ERROR", "HUBER"])
def test_stays_positive(name, kind):
    """10,000 samples with slopes and targets of any size, repeated samples, and outputs with weight 0."""
    code = getattr(codes.LossCode, name)
    rng = np.random.default_rng(6)
    state = KalmanLearner(np.repeat(np.arange(3), 4), 2, covariance=kind)
    H = rng.normal(size=(50, 2, 12)) * 10.0 ** rng.uniform(-6, 4, size=(50, 1, 1))
    H[:10] = H[0]
    H[10:15, 1] = 0.0
    n = 10_000
    Y = rng.normal(size=(n, 2)) * 10.0 ** rng.uniform(-3, 6, size=(n, 1))
    targets = rng.integers(2, size=(n, 2)).astype(float)
    targets[4_000:6_000] = 1.0
    if code in (codes.LossCode.SQUARED_ERROR, codes.LossCode.HUBER):
        targets *= 10.0 ** rng.uniform(-3, 90, size=(n, 1))
    targets[rng.random((n, 2)) < 0.1] = np.nan
    theta = rng.normal(size=12)
    for t in range(n):
        state.update(theta, H[t % 50], Y[t], targets[t], code)
    P = state.covariance()
    assert np.isfinite(theta).all()
    assert np.isfinite(np.delete(state.filter.memo, Memo.LOG_Q)).all()
    assert np.linalg.eigvalsh(P)[0] > 0
    assert P.diagonal().max() <= 10.0


@pytest.mark.parametrize("kind", ["full", "decoupled"])
def test_growth_keeps_what_was_known(kind):
    rng = np.random.default_rng(7)
    group = np.repeat([5, 6, 9], [3, 9, 4])
    state, P = random_state(rng, group, 2, covariance=kind, p0=0.5)
    state.filter.memo[:] = rng.normal(size=len(state.filter.memo))
    # new: a parameter into 5 and an output with three parameters; removed: one into 6; the order has changed
    origin = np.array([0, -1, 2, 1, 11, 10, 9, 8, 7, 6, 5, 4, 12, 13, 14, 15, -1, -1, -1])
    new_group = np.array([5] * 4 + [6] * 8 + [9] * 4 + [10] * 3)
    new = state.moved(origin, new_group, np.array([0, 1, -1]))
    got, kept = new.covariance(), origin >= 0
    np.testing.assert_array_equal(got[np.ix_(kept, kept)], P[np.ix_(origin[kept], origin[kept])])
    np.testing.assert_array_equal(got[~kept][:, ~kept], 0.5 * np.eye(4))
    assert not got[~kept][:, kept].any()
    memo, want = new.filter.memo, state.filter.memo
    np.testing.assert_array_equal(memo[:5], want[:5])
    assert memo[5] == 1.0
    np.testing.assert_array_equal(memo[6:][kept], want[5:][origin[kept]])
    assert not memo[6:][~kept].any()


def test_full_becomes_decoupled_when_it_grows():
    side = math.isqrt(LIMITS.full_covariance)
    state = KalmanLearner(np.arange(side) % 5, 1)
    assert state.kind == "full"
    new = state.moved(np.append(np.arange(side), -1), np.arange(side + 1) % 5, np.array([0]))
    assert new.kind == "decoupled"
    assert len(new.filter.offset) == 5
    np.testing.assert_array_equal(new.covariance(), np.eye(side + 1))


@pytest.mark.parametrize(
    "wrong", [{"covariance": "ful"}, {"start": 1.0}, {"forgetting": -1.0}, {"noise": 0.0}, {"replay": 2.0}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(MeshError, match="start" if "start" in wrong else next(iter(wrong))):
        KalmanSettings(**wrong)

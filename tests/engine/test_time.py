"""Losses after any tick, readouts, and states that are carried on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases import (
    ALL_METHODS,
    LOSS_NAMES,
    TimedCase,
    by_autograd_in_time,
    cases,
    close,
    targets_for,
    timed_cases,
    torch_states,
)
from examples import examples
from meshnn import Mesh, Topology
from meshnn.errors import MeshError
from solver_options import solver_with

EVERY_METHOD = (*ALL_METHODS, "auto", "forward")


@pytest.mark.parametrize("method", EVERY_METHOD)
@examples(60)
@given(case=timed_cases())
def test_gradient_equals_autograd_through_the_sequence(method, case):
    want_loss, want = by_autograd_in_time(case)
    got_loss, got = case.mesh.gradient(case.X, case.y, case.loss, method, case.sample_weight, **case.options)
    assert got_loss == pytest.approx(want_loss, rel=1e-10, abs=1e-14)
    close(got, want, 1e-10)


@examples(40)
@given(case=cases(most_batch=70), seed=st.integers(0, 1000))
def test_jacobian_from_a_state_equals_autograd(case, seed):
    t = case.mesh.topology
    state = np.random.default_rng(seed).standard_normal((case.inputs().shape[1], t.n_neurons))

    def outputs(A):
        return torch_states(case, A, state)[-1][:, -t.n_outputs :]

    want = torch.autograd.functional.jacobian(outputs, torch.tensor(case.dense())).numpy()[:, :, t.src, t.dst]
    close(case.mesh.jacobian(case.X, state=state), want, 1e-10)
    close(
        case.mesh.jacobian(case.X, "adjoint", state=state[0]),
        case.mesh.jacobian(case.X, state=state[:1].repeat(len(state), 0)),
        0,
    )


@pytest.mark.parametrize("method", EVERY_METHOD)
@pytest.mark.parametrize("looks", [{}, {"loss_ticks": "all"}, {"readout": [0.5, 0.0, 0.5, 1.0]}])
def test_growth_scores_from_a_state(method, looks):
    """Those of edges that are there with weight 0."""
    rng = np.random.default_rng(3)
    whole = Topology.mesh(2, 3, 2)
    kept = np.ones(whole.n_edges, bool)
    kept[rng.permutation(whole.n_edges)[:9]] = False
    kept[whole.src == whole.n_inputs] = True
    few = Topology(2, 3, 2, np.stack([whole.src, whole.dst], axis=1)[kept])
    mesh, other = (Mesh(t, 4, "tanh", dtype="float64", random_state=1) for t in (few, whole))
    weights = np.zeros(whole.n_edges)
    weights[kept] = mesh.weights
    other.weights = weights
    X, y, state = rng.standard_normal((4, 11, 2)), rng.integers(0, 2, 11), rng.standard_normal((11, whole.n_neurons))
    _, want = other.gradient(X, y, state=state, **looks)
    src, dst = whole.src[~kept], whole.dst[~kept]
    close(mesh.growth_scores(X, y, src=src, dst=dst, gradient=method, state=state, **looks), want[~kept], 1e-11)
    assert not np.allclose(mesh.growth_scores(X, y, src=src, dst=dst, gradient=method, **looks), want[~kept], rtol=1e-3)


@examples(40)
@given(case=cases(most_batch=33), seed=st.integers(0, 1000), cut=st.integers(1, 7), given_state=st.booleans())
def test_two_halves_are_one_run(case, seed, cut, given_state):
    t, ticks = case.mesh.topology, case.mesh.ticks
    inputs = case.inputs()[:, :, : t.n_inputs]
    state = None
    if given_state:
        state = np.random.default_rng(seed).standard_normal((inputs.shape[1], t.n_neurons))
    want = torch.stack(torch_states(case, torch.tensor(case.dense()), state)).numpy()
    outputs, end = case.mesh.forward(case.X, every_tick=True, state=state, return_state=True)
    close(outputs, want[:, :, -t.n_outputs :], 1e-11)
    close(end[:, t.n_clamped :], want[-1], 1e-11)
    np.testing.assert_array_equal(end[:, : t.n_inputs], inputs[-1])
    last = case.mesh.forward(case.X, state=state, return_state=True)
    np.testing.assert_array_equal(last[0], outputs[-1])
    np.testing.assert_array_equal(last[1], end)
    if state is not None:
        states = case.mesh.states(case.X, state=state)
        close(states[1:, :, t.n_clamped :], want, 1e-11)
        np.testing.assert_array_equal(states[0, :, t.n_clamped :], state[:, t.n_clamped :])
        np.testing.assert_array_equal(states[:-1, :, : t.n_inputs], inputs)
    if ticks > 1:
        cut = 1 + cut % (ticks - 1) if ticks > 2 else 1
        first, middle = case.mesh.forward(inputs[:cut], every_tick=True, state=state, return_state=True)
        second, after = case.mesh.forward(inputs[cut:], every_tick=True, state=middle, return_state=True)
        close(np.concatenate([first, second]), outputs, 1e-12)
        close(after, end, 1e-12)


def test_a_net_worked_by_hand():
    """y <- tanh(a x + b y), y looked at after both of two ticks, from y = s on; every number by pen and paper."""
    a, b, s, x1, x2, t1, t2 = 0.5, -0.8, 0.3, 0.7, -1.1, 0.2, 0.6
    y1 = math.tanh(a * x1 + b * s)
    y2 = math.tanh(a * x2 + b * y1)
    d1, d2 = 1 - y1**2, 1 - y2**2
    by_a = [d1 * x1, d2 * (x2 + b * d1 * x1)]
    by_b = [d1 * s, d2 * (y1 + b * d1 * s)]
    e1, e2 = y1 - t1, y2 - t2
    mesh = Mesh(Topology(1, 0, 1, [(0, 1), (1, 1)], bias=False), 2, output_activation="tanh", weights=[a, b],
                dtype="float64")  # fmt: skip
    X, Y, state = [[[x1]], [[x2]]], [[[t1]], [[t2]]], [99.0, s]  # what a state says of inputs is ignored
    for method in EVERY_METHOD:
        loss, got, end = mesh.gradient(X, Y, "squared_error", method, loss_ticks="all", state=state, return_state=True)
        assert loss == pytest.approx(0.25 * (e1**2 + e2**2), rel=1e-14)
        want = [0.5 * (e1 * by_a[0] + e2 * by_a[1]), 0.5 * (e1 * by_b[0] + e2 * by_b[1])]
        np.testing.assert_allclose(got, want, rtol=1e-13)
        np.testing.assert_allclose(end, [[x2, y2]], rtol=1e-14)
        # the mean of both outputs against one target
        loss, got = mesh.gradient(X, Y[0], "squared_error", method, readout=[0.5, 0.5], state=state)
        e = 0.5 * (y1 + y2) - t1
        assert loss == pytest.approx(0.5 * e**2, rel=1e-14)
        np.testing.assert_allclose(got, [0.5 * e * sum(by_a), 0.5 * e * sum(by_b)], rtol=1e-13)


@pytest.mark.parametrize("method", ALL_METHODS)
@examples(15)
@given(case=timed_cases(most_batch=5))
def test_float32_is_near_float64(method, case):
    wide = case.mesh
    names = wide.activations[: wide.topology.n_hidden], wide.activations[-1]
    narrow = Mesh(wide.topology, wide.ticks, *names, weights=wide.weights, dtype="float32")
    rounded = Mesh(wide.topology, wide.ticks, *names, weights=narrow.weights, dtype="float64")
    exact = {name: None if v is None else np.float32(v) if name != "loss_ticks" else v
             for name, v in case.options.items()}  # fmt: skip
    X, y = case.X.astype(np.float32), case.y if case.loss == "cross_entropy" else case.y.astype(np.float32)
    want_loss, want = rounded.gradient(X, y, case.loss, method, case.sample_weight, **exact)
    got_loss, got = narrow.gradient(X, y, case.loss, method, case.sample_weight, **exact)
    assert got.dtype == np.float32
    outputs = np.abs(rounded.forward(X, every_tick=True, state=exact["state"])).max()
    assert got_loss == pytest.approx(want_loss, rel=1e-4, abs=1e-5 * max(1.0, outputs**2))
    # single terms may be larger than their sum, by the sizes that the chain rule multiplies
    size = np.abs(rounded.states(X, state=np.zeros(wide.topology.n_neurons) if case.state is None else exact["state"]))
    close(got, want, 1e-3, scale=1e-2 * max(1.0, float(size.max())) ** 2)


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_ties_and_fixed_edges(method):
    rng = np.random.default_rng(3)
    t = Topology.mesh(2, 4, 2)
    parameter = rng.integers(-1, 6, t.n_edges)
    parameter = np.unique(parameter, return_inverse=True)[1] - 1
    mesh = Mesh(t, 5, "tanh", dtype="float64", random_state=0, tied=parameter)
    free = Mesh(t, 5, "tanh", weights=mesh.weights, dtype="float64")
    X, y, state = rng.standard_normal((5, 9, 2)), rng.integers(0, 2, (5, 9)), rng.standard_normal(t.n_neurons)
    looks, states = np.ones((5, 9), bool), np.tile(state, (9, 1))
    _, each = by_autograd_in_time(TimedCase(free, X, y, "cross_entropy", None, looks, None, states, by_tick=True))
    want = np.bincount(parameter[parameter >= 0], each[parameter >= 0])
    _, got = mesh.gradient(X, y, gradient=method, loss_ticks="all", state=state)
    close(got, want, 1e-12)


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_what_is_not_looked_at_is_ignored(method, loss):
    """Targets that are NaN there, and states that overflow on what is filled up behind a short sequence."""
    rng = np.random.default_rng(0)
    t = Topology.mesh(2, 3, 2)
    mesh = Mesh(t, 4, "relu", dtype="float32", random_state=0)
    mesh.weights *= 2.0
    X = rng.standard_normal((4, 70, 2))
    length = rng.integers(1, 3, 70)
    looks = np.arange(4)[:, None] < length
    X[~looks] = 3e38
    y = np.stack([targets_for(loss, rng, 70, 2) for _ in range(4)]).astype(float)
    y[~looks] = np.nan
    assert not np.isfinite(mesh.forward(X, every_tick=True)).all()
    value, grad = mesh.gradient(X, y, loss, method, loss_ticks=looks)
    assert np.isfinite(value)
    assert np.isfinite(grad).all()
    # the same as short sequences by themselves
    short, want = 0.0, np.zeros(t.n_edges)
    for n in (1, 2):
        some = length == n
        part = mesh.gradient(X[:n, some], y[:n, some], loss, method, loss_ticks="all")
        short += part[0] * some.sum() * n / looks.sum()
        want += part[1].astype(float) * some.sum() * n / looks.sum()
    assert value == pytest.approx(short, rel=1e-4)
    close(grad, want, 1e-4)


def test_samples_without_weight_bring_no_state(mesh):
    rng = np.random.default_rng(0)
    X, y, state = rng.standard_normal((3, 6, 3)), rng.integers(0, 2, 6), rng.standard_normal((6, 12))
    state = state[:, : mesh.topology.n_neurons]
    weight = np.array([1.0, 0.0, 2.0, 0.0, 0.0, 1.0])
    some = weight > 0
    for method in ALL_METHODS:
        got = mesh.gradient(X, y, "cross_entropy", method, weight, loss_ticks="all", state=state)
        want = mesh.gradient(X[:, some], y[some], "cross_entropy", method, weight[some], loss_ticks="all",
                             state=state[some])  # fmt: skip
        assert got[0] == want[0]
        np.testing.assert_array_equal(got[1], want[1])


def test_jacobian_of_ties_and_of_any_length():
    t, rng = Topology.mesh(2, 4, 2), np.random.default_rng(0)
    mesh, longer = (
        Mesh(t, ticks, "tanh", dtype="float64", random_state=1, tied=np.arange(t.n_edges) // 2) for ticks in (3, 5)
    )
    longer.values[:] = mesh.values
    X, nothing = rng.standard_normal((5, 40, 2)), np.zeros(t.n_neurons)
    close(mesh.jacobian(X, state=nothing), longer.jacobian(X), 1e-12)
    for n in (1, 2):
        np.testing.assert_array_equal(mesh.jacobian(X, state=nothing, n_jobs=n), mesh.jacobian(X, state=nothing))
    for gradient, state in (("factored", nothing), ("newton", nothing), ("auto", [1.0])):
        with pytest.raises(MeshError):
            mesh.jacobian(X, gradient, state=state)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"loss_ticks": np.zeros((3, 4))}, "0 everywhere"),
        ({"loss_ticks": np.ones((4, 3))}, r"loss_ticks .*\(3, 4\)"),
        ({"loss_ticks": np.full((3, 4), -0.5)}, "loss_ticks .*at least 0"),
        ({"loss_ticks": "some"}, "loss_ticks"),
        ({"loss_ticks": "all", "readout": np.ones(3)}, "not both"),
        ({"loss_ticks": "all", "y": np.zeros((4, 3))}, r"\(4, 3\)"),
        ({"loss_ticks": "all", "loss": "squared_error", "y": np.zeros((3, 4))}, r"\(3, 4, 2\)"),
        ({"loss_ticks": np.arange(4) * np.ones((3, 1)) > 0, "sample_weight": [1.0, 0.0, 0.0, 0.0]}, "sample_weight"),
        ({"readout": np.ones((4, 3))}, r"\(3, 4\)"),
        ({"readout": np.zeros(3)}, "sample 0"),
        ({"readout": np.full(3, np.nan)}, "not finite"),
        ({"state": np.zeros(3)}, r"\(4, 11\)"),
        ({"state": np.full(11, np.inf)}, "inf"),
    ],
)
def test_refusals(options, value):
    mesh = Mesh(Topology.mesh(3, 5, 2), 3, random_state=0)
    with pytest.raises(MeshError, match=value):
        mesh.gradient(np.zeros((3, 4, 3)), **{"y": np.zeros(4, int)} | options)


# -- training ------------------------------------------------------------------------------------------------------


def looks_of(case):
    """Inputs and targets as a trainer has them."""
    from meshnn.training.api import as_samples

    looks = {"readout": case.readout} if case.readout is not None else {"loss_ticks": case.looks}
    return as_samples(case.mesh, case.X, case.y, case.loss, case.sample_weight, **looks)


def without_state(case):
    case.state = None
    return case


def autograd_curvature(case):
    """J' H J summed over all looks, with the Hessian of each loss by autograd."""
    from cases import _TORCH_LOSSES

    t, ticks = case.mesh.topology, case.mesh.ticks

    def outputs(A):
        found = torch.stack(torch_states(case, A))[:, :, -t.n_outputs :]
        if case.readout is None:
            return found
        return (torch.tensor(case.readout)[:, :, None] * found).sum(dim=0)[None]

    A = torch.tensor(case.dense())
    J = torch.autograd.functional.jacobian(outputs, A).numpy()[:, :, :, t.src, t.dst]
    Y = outputs(A)
    y = torch.tensor(case.y)
    weight = case.shares[None] if case.readout is not None else case.weights
    total = np.zeros((t.n_edges, t.n_edges))
    for k in range(ticks if case.readout is None else 1):
        for b in range(Y.shape[1]):
            target = (y[k] if case.by_tick else y)[b : b + 1]

            def loss(z, target=target):
                return _TORCH_LOSSES[case.loss](z, target).sum()

            H = torch.autograd.functional.hessian(loss, Y[k, b : b + 1]).numpy()[0, :, 0, :]
            total += weight[k, b] * J[k, b].T @ H @ J[k, b]
    return total


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error", "binary_cross_entropy", "poisson"])
@examples(15)
@given(data=st.data())
def test_curvature_equals_autograd(loss, data):
    case = without_state(data.draw(timed_cases(loss=loss, most_batch=5, most_hidden=3)))
    samples, live = looks_of(case), np.arange(case.mesh.n_parameters)
    engine = case.mesh.engine("curvature", "auto", samples.count)
    got = engine.curvature(case.mesh.values, samples.X, samples.targets, live)
    want_loss, want = by_autograd_in_time(case)
    assert got.loss == pytest.approx(want_loss, rel=1e-10, abs=1e-14)
    close(got.grad, want, 1e-10)
    close(got.matrix, autograd_curvature(case), 1e-9)


def sequences(seed=0, count=150, ticks=7):
    """Sequences of different lengths whose label is the sign of their sum, filled up with zeros."""
    rng = np.random.default_rng(seed)
    length = rng.integers(2, ticks + 1, count)
    within = np.arange(ticks)[:, None] < length
    X = rng.standard_normal((ticks, count, 1)) * within[:, :, None]
    sums = X[:, :, 0].cumsum(axis=0)
    end = within & (np.arange(ticks)[:, None] == length - 1)
    return X, sums, within, end, length


def memory_net(dtype="float64"):
    return Mesh(Topology.mesh(1, 4, 2), 7, "tanh", dtype=dtype, random_state=0)


@pytest.mark.parametrize("size", [None, 64])
@pytest.mark.parametrize("reads", [False, True])
def test_compiled_epochs_are_steps_one_by_one(reads, size):
    """With gradient="influence" every step is a call."""
    from meshnn.training import train

    X, sums, within, _, length = sequences()
    options = {"readout": within / length} if reads else {"loss_ticks": within}
    y = (sums > 0).astype(int)
    y = y[length - 1, np.arange(len(length))] if reads else y
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(length))

    def learned(method):
        mesh = memory_net()
        rows = list(train(mesh, X, y, sample_weight=weight, solver="adam", batch_size=size or len(length), l2=1e-4,
                          max_epochs=4, tol=0.0, gradient=method, random_state=0, **options))  # fmt: skip
        return mesh.weights.copy(), [row.loss for row in rows]

    want, steps = learned("influence")
    for method in ("adjoint", "factored"):
        got, losses = learned(method)
        close(got, want, 1e-9)
        np.testing.assert_allclose(losses, steps, rtol=1e-9)


@pytest.mark.parametrize("solver", ["lm", "adam"])
@pytest.mark.parametrize("reads", ["end", "mean", "every"])
def test_sequences_of_different_lengths_are_learned(solver, reads):
    from meshnn.training import train

    X, sums, within, end, length = sequences()
    label = (sums > 0).astype(int)
    y = label if reads == "every" else label[length - 1, np.arange(len(length))]
    option = {"end": {"readout": end}, "mean": {"readout": within / length}, "every": {"loss_ticks": within}}[reads]
    mesh = memory_net()
    rows = list(train(mesh, X, y, solver=solver_with(solver, learning_rate=0.02), l2=1e-4,
                      max_epochs=15 if solver == "lm" else 60, random_state=0, **option))  # fmt: skip
    assert rows[-1].loss < 0.8 * math.log(2.0)
    assert rows[-1].loss < rows[0].loss or solver == "lm"


@pytest.mark.parametrize("method", EVERY_METHOD)
@examples(15)
@given(case=timed_cases().map(without_state), seed=st.integers(0, 1000))
def test_growth_scores_equal_autograd(method, case, seed):
    n = case.mesh.topology.n_neurons
    src, dst = np.divmod(np.random.default_rng(seed).permutation(n * n)[:12], n)
    options = {name: value for name, value in case.options.items() if name != "state"}
    got = case.mesh.growth_scores(case.X, case.y, case.loss, src, dst, method, case.sample_weight, **options)
    close(got, by_autograd_in_time(case, (src, dst))[1], 1e-10)


def test_a_graph_that_changes_learns_sequences():
    from meshnn.training import structure, train

    X, sums, within, *_ = sequences(count=80)
    mesh = memory_net()
    policy = structure.Prune(to=20, by="movement", end=0.5)
    rows = list(train(mesh, X, (sums > 0).astype(int), solver="adam", max_epochs=20, tol=0.0, random_state=0,
                      loss_ticks=within, structure=policy))  # fmt: skip
    assert mesh.topology.n_edges == 20
    assert np.isfinite(rows[-1].loss)


def test_many_masks_are_not_all_kept():
    rng = np.random.default_rng(0)
    mesh = Mesh(Topology.mesh(1, 2, 1), 12, "tanh", dtype="float64", random_state=0)
    X = rng.standard_normal((12, 2, 1))
    for k in range(32):
        looks = np.array([bool(k & (1 << bit)) for bit in range(11)] + [True])
        want = mesh.gradient(X, [[0.5], [0.1]], "squared_error", "influence", loss_ticks=looks)[1]
        close(mesh.gradient(X, [[0.5], [0.1]], "squared_error", "adjoint", loss_ticks=looks)[1], want, 1e-12)
    assert len(mesh._engines._made) <= 16

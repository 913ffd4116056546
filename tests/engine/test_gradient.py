"""Every method against plain loops, torch autograd, central differences and nets worked by hand."""

import math
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases import (
    ACTIVATION_NAMES,
    ALL_METHODS,
    LOSS_NAMES,
    Case,
    by_autograd,
    by_differences,
    by_loops,
    by_parameters,
    cases,
    close,
    jacobian_by_autograd,
    targets_for,
    terms,
    tied_cases,
    timed_cases,
    torch_states,
)
from examples import examples
from meshnn import Mesh, MeshError, Topology

EVERY_METHOD = (*ALL_METHODS, "auto", "forward")


def check(case, want_loss, want, tolerance=1e-10, methods=ALL_METHODS, scale=0.0):
    for method in methods:
        got_loss, got = case.gradient(method)
        assert got_loss == pytest.approx(want_loss, rel=1e-10, abs=1e-14)
        close(got, want, tolerance, scale)


# -- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSS_NAMES)
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@examples(20)
@given(data=st.data())
def test_every_activation_and_loss_equals_autograd(activation, loss, data):
    case = data.draw(cases(activation=activation, loss=loss))
    check(case, *by_autograd(case))


@pytest.mark.parametrize("method", EVERY_METHOD)
@examples(60)
@given(case=timed_cases())
def test_gradient_in_time_equals_autograd(method, case):
    check(case, *by_autograd(case), methods=[method])


@examples(40)
@given(case=st.one_of(cases(most_hidden=3, most_batch=5), timed_cases(False, most_hidden=3, most_batch=2, ticks=4)))
def test_gradient_equals_the_loops(case):
    check(case, *by_loops(case))


SMOOTH = ("identity", "softplus", "sigmoid", "tanh", "sin", "gauss")


@examples(60)
@given(data=st.data(), activation=st.sampled_from(SMOOTH))
def test_gradient_equals_central_differences(data, activation):
    case = data.draw(cases(most_hidden=4, most_batch=5, activation=activation))
    if case.mesh.activations[-1] not in SMOOTH:  # central differences are inaccurate at a kink
        case.mesh = Mesh(case.mesh.topology, case.mesh.ticks, activation, "tanh", case.mesh.weights, "float64")
    check(case, case.gradient("adjoint")[0], by_differences(case), 2e-6)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "elu", "hardtanh"])
def test_gradient_equals_central_differences_away_from_kinks(activation):
    rng, t = np.random.default_rng(0), Topology.mesh(3, 6, 2)
    mesh = Mesh(t, 3, activation, activation, 0.6 * rng.standard_normal(t.n_edges), "float64")
    X = rng.standard_normal((50, 3))
    sums = (mesh.states(X)[:-1] @ mesh.adjacency().toarray())[..., t.n_clamped :, None]
    X = X[(np.abs(sums - [-1.0, 0.0, 1.0]) > 1e-3).all(axis=(0, 2, 3))]
    assert len(X) > 20
    case = Case(mesh, X, rng.standard_normal((len(X), 2)), "squared_error")
    check(case, case.gradient()[0], by_differences(case), 2e-6)


@examples(60)
@given(case=tied_cases())
def test_gradient_of_ties_equals_autograd(case):
    want_loss, each = by_autograd(case)
    t, names = case.mesh.topology, case.mesh.activations
    plain = Mesh(t, case.mesh.ticks, names[: t.n_hidden], names[-1], case.mesh.weights, "float64")
    # the contributions of tied edges may cancel
    check(case, want_loss, by_parameters(case.mesh, each), scale=terms(replace(case, mesh=plain)))


@pytest.mark.parametrize("method", ALL_METHODS)
@examples(60)
@given(case=st.one_of(cases(), timed_cases(most_batch=5)))
def test_float32_is_near_float64(method, case):
    narrow, rounded = case.in_float32()
    (want_loss, want), (got_loss, got) = rounded.gradient(method), narrow.gradient(method)
    assert got.dtype == np.float32
    states = case.mesh.states(
        case.X, state=np.zeros(case.mesh.topology.n_neurons) if case.state is None else case.state
    )
    # single terms may be larger than their sum, by the factors of the chain rule
    size = max(1.0, float(np.abs(states).max())) ** 2
    assert got_loss == pytest.approx(want_loss, rel=1e-4, abs=1e-5 * size)
    close(got, want, 1e-3, scale=1e-2 * size if case.looks else terms(rounded))


# -- Jacobians and growth scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", *ALL_METHODS])
@examples(50)
@given(case=st.one_of(cases(most_batch=33), tied_cases(most_batch=5)))
def test_jacobian_equals_autograd(method, case):
    want = by_parameters(case.mesh, jacobian_by_autograd(case))
    got = case.mesh.jacobian(case.X, method)
    assert got.shape == want.shape
    close(got, want, 1e-10)


@examples(40)
@given(case=cases(most_batch=70), seed=st.integers(0, 1000))
def test_jacobian_from_a_state_equals_autograd(case, seed):
    batch, n = case.inputs().shape[1], case.mesh.topology.n_neurons
    state = np.random.default_rng(seed).standard_normal((batch, n))
    close(case.mesh.jacobian(case.X, state=state), jacobian_by_autograd(case, state), 1e-10)
    one = case.mesh.jacobian(case.X, "adjoint", state=state[0])
    np.testing.assert_array_equal(one, case.mesh.jacobian(case.X, state=np.repeat(state[:1], batch, 0)))


@examples(30)
@given(case=cases(most_batch=5))
def test_float32_jacobian_is_near(case):
    narrow, rounded = case.in_float32()
    for method in ALL_METHODS:
        close(narrow.mesh.jacobian(narrow.X, method), rounded.mesh.jacobian(rounded.X, method), 1e-4)


def test_jacobian_of_ties_and_of_any_length():
    t, rng = Topology.mesh(2, 4, 2), np.random.default_rng(0)
    mesh, longer = (
        Mesh(t, ticks, "tanh", dtype="float64", random_state=1, tied=np.arange(t.n_edges) // 2) for ticks in (3, 5)
    )
    longer.values[:] = mesh.values
    X, nothing = rng.standard_normal((5, 40, 2)), np.zeros(t.n_neurons)
    close(mesh.jacobian(X, state=nothing), longer.jacobian(X), 1e-12)
    for gradient, state in (("factored", nothing), ("newton", nothing), ("auto", [1.0])):
        with pytest.raises(MeshError):
            mesh.jacobian(X, gradient, state=state)


def scores(case, src, dst, method):
    more = {"sample_weight": case.sample_weight, **case.looks}
    return case.mesh.growth_scores(case.X, case.y, case.loss, src, dst, method, **more)


@pytest.mark.parametrize("method", EVERY_METHOD)
@examples(50)
@given(case=st.one_of(cases(), timed_cases()), seed=st.integers(0, 1000))
def test_growth_scores_equal_autograd(method, case, seed):
    """Scores are tested for edges of the graph and for absent ones, which autograd treats as edges of weight 0."""
    n = case.mesh.topology.n_neurons
    src, dst = np.divmod(np.random.default_rng(seed).permutation(n * n)[:12], n)
    close(scores(case, src, dst, method), by_autograd(case, (src, dst))[1], 1e-10)


@pytest.mark.parametrize("method", ["auto", *ALL_METHODS])
def test_growth_scores_of_pairs_that_repeat_unevenly(method):
    rng = np.random.default_rng(0)
    mesh = Mesh(Topology.mesh(2, 5, 2), 3, "tanh", dtype="float64", random_state=0)
    case = Case(mesh, rng.standard_normal((6, 2)), rng.standard_normal((6, 2)), "squared_error")
    for _ in range(10):
        src, dst = rng.integers(0, mesh.topology.n_neurons, (2, 80))
        close(scores(case, src, dst, method), by_autograd(case, (src, dst))[1], 1e-10)
    assert mesh.growth_scores(case.X, case.y, case.loss, src=[[0, 1]], dst=[[4], [5]]).shape == (2, 2)


def test_growth_scores_of_a_chain_without_input():
    """x  h1 -> h2 -> y and x -> y: h1 has no input, so the states on the chain are 0, but the score of x -> h1 not."""
    t = Topology(1, 2, 1, [(1, 2), (2, 3), (0, 3)], bias=False)
    mesh = Mesh(t, 3, "tanh", weights=[0.5, 2.0, 0.25], dtype="float64")  # sorted: h1->h2, x->y, h2->y
    w_h1h2, w_xy, w_h2y = mesh.weights
    want = (w_xy * 3.0) * w_h2y * w_h1h2 * 3.0  # (y - 0) times the product along the chain, all slopes 1 at 0
    for method in ALL_METHODS:
        got = mesh.growth_scores([[3.0]], [[0.0]], "squared_error", src=[0], dst=[1], gradient=method)
        assert got == pytest.approx([want], rel=1e-14)


# -- outputs and states --------------------------------------------------------------------------------------------


@examples(60)
@given(case=cases(most_batch=33), seed=st.integers(0, 1000), cut=st.integers(1, 7), given_state=st.booleans())
def test_outputs_states_and_two_halves_of_a_run(case, seed, cut, given_state):
    t, ticks, inputs = case.mesh.topology, case.mesh.ticks, case.inputs()
    features = inputs[:, :, : t.n_inputs]
    begin = np.random.default_rng(seed).standard_normal((inputs.shape[1], t.n_neurons)) if given_state else None
    want = torch.stack(torch_states(case, torch.tensor(case.dense()), begin)).numpy()
    states = case.mesh.states(case.X, state=begin)
    assert states.shape == (ticks + 1, inputs.shape[1], t.n_neurons)
    close(states[1:, :, t.n_clamped :], want, 1e-11)
    np.testing.assert_array_equal(states[:-1, :, : t.n_clamped], inputs)
    np.testing.assert_array_equal(states[0, :, t.n_clamped :], begin[:, t.n_clamped :] if given_state else 0.0)
    outputs, end = case.mesh.forward(case.X, every_tick=True, state=begin, return_state=True)
    close(outputs, want[:, :, -t.n_outputs :], 1e-11)
    close(end[:, t.n_clamped :], want[-1], 1e-11)
    np.testing.assert_array_equal(end[:, : t.n_inputs], features[-1])
    last = case.mesh.forward(case.X, state=begin, return_state=True)
    np.testing.assert_array_equal(last[0], outputs[-1])
    np.testing.assert_array_equal(last[1], end)
    close(case.mesh.forward(case.X, state=begin), outputs[-1], 1e-12)
    if ticks > 1:
        cut = 1 + cut % (ticks - 1)
        first, middle = case.mesh.forward(features[:cut], every_tick=True, state=begin, return_state=True)
        second, after = case.mesh.forward(features[cut:], every_tick=True, state=middle, return_state=True)
        close(np.concatenate([first, second]), outputs, 1e-12)
        close(after, end, 1e-12)


# -- by hand -------------------------------------------------------------------------------------------------------


def test_a_net_worked_by_hand():
    """x -> h -> y with a self-loop on h, tanh, with two and with three ticks; all numbers are worked by hand.

    s1 = tanh(a x); two ticks: y = c s1; three ticks: s2 = tanh(a x + b s1), y = c s2.
    """
    a, b, c, x, target = 0.5, -0.8, 1.5, 0.7, 0.2
    t = Topology(1, 1, 1, [(0, 1), (1, 1), (1, 2)], bias=False)  # sorted: x->h, h->h, h->y
    s1 = math.tanh(a * x)
    s2 = math.tanh(a * x + b * s1)
    d1, d2 = 1 - s1**2, 1 - s2**2
    for ticks, s, slopes in ((2, s1, [c * d1 * x, 0.0, s1]), (3, s2, [c * d2 * (x + b * d1 * x), c * d2 * s1, s2])):
        for method in ALL_METHODS:
            mesh = Mesh(t, ticks, "tanh", weights=[a, b, c], dtype="float64")
            loss, got = mesh.gradient([[x]], [[target]], "squared_error", method)
            assert loss == pytest.approx(0.5 * (c * s - target) ** 2, rel=1e-14)
            np.testing.assert_allclose(got, (c * s - target) * np.array(slopes), rtol=1e-13, atol=1e-17)


def test_a_net_in_time_worked_by_hand():
    """y <- tanh(a x + b y), a loss at both of two ticks, from the initial state s; all numbers are worked by hand."""
    a, b, s, x1, x2, t1, t2 = 0.5, -0.8, 0.3, 0.7, -1.1, 0.2, 0.6
    y1 = math.tanh(a * x1 + b * s)
    y2 = math.tanh(a * x2 + b * y1)
    d1, d2 = 1 - y1**2, 1 - y2**2
    by_a = [d1 * x1, d2 * (x2 + b * d1 * x1)]
    by_b = [d1 * s, d2 * (y1 + b * d1 * s)]
    e1, e2 = y1 - t1, y2 - t2
    mesh = Mesh(Topology(1, 0, 1, [(0, 1), (1, 1)], bias=False), 2, output_activation="tanh", weights=[a, b],
                dtype="float64")  # fmt: skip
    X, Y, state = [[[x1]], [[x2]]], [[[t1]], [[t2]]], [99.0, s]  # the state of inputs is ignored
    for method in EVERY_METHOD:
        loss, got, end = mesh.gradient(X, Y, "squared_error", method, loss_ticks="all", state=state, return_state=True)
        assert loss == pytest.approx(0.25 * (e1**2 + e2**2), rel=1e-14)
        want = [0.5 * (e1 * by_a[0] + e2 * by_a[1]), 0.5 * (e1 * by_b[0] + e2 * by_b[1])]
        np.testing.assert_allclose(got, want, rtol=1e-13)
        np.testing.assert_allclose(end, [[x2, y2]], rtol=1e-14)
        # the mean of both outputs compared with one target
        loss, got = mesh.gradient(X, Y[0], "squared_error", method, readout=[0.5, 0.5], state=state)
        e = 0.5 * (y1 + y2) - t1
        assert loss == pytest.approx(0.5 * e**2, rel=1e-14)
        np.testing.assert_allclose(got, [0.5 * e * sum(by_a), 0.5 * e * sum(by_b)], rtol=1e-13)


# -- masked samples ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_a_sample_of_weight_0_is_ignored(method, loss):
    """It may overflow: infinity times 0 would make every sum NaN."""
    rng = np.random.default_rng(0)
    m = Mesh(Topology.mesh(2, 4, 2), 3, "relu", dtype="float32", random_state=0)
    X, y, state = rng.standard_normal((90, 2)), targets_for(loss, rng, 90, 2), rng.standard_normal((90, 9))
    weight = np.ones(90)
    far = X.copy()
    far[[3, 89]] = 3e38
    weight[[3, 89]] = 0.0
    kept = weight > 0
    for inputs, more in ((far, {}), (np.repeat(far[None], 3, axis=0), {"loss_ticks": "all", "state": state})):
        short = more | {"state": state[kept]} if more else {}
        want = m.gradient(X[kept] if inputs.ndim == 2 else inputs[:, kept], y[kept], loss, method, **short)
        got = m.gradient(inputs, y, loss, method, weight, **more)
        assert got[0] == want[0]
        np.testing.assert_array_equal(got[1], want[1])


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_masked_ticks_are_ignored(method, loss):
    """Masked targets may be NaN, and states may overflow on the padding behind a short sequence."""
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
    # the same sequences without padding
    short, want = 0.0, np.zeros(t.n_edges)
    for n in (1, 2):
        some = length == n
        part = mesh.gradient(X[:n, some], y[:n, some], loss, method, loss_ticks="all")
        short += part[0] * some.sum() * n / looks.sum()
        want += part[1].astype(float) * some.sum() * n / looks.sum()
    assert value == pytest.approx(short, rel=1e-4)
    close(grad, want, 1e-4)


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss is a kibibyte there")
def test_a_long_sequence_takes_little_memory():
    """Memory of the carried influences and of the packed inputs does not grow with the number of ticks."""
    program = """
        import resource, numpy as np
        from meshnn import Mesh, Topology
        ticks = 5000
        X = np.random.default_rng(0).standard_normal((ticks, 1, 40)).astype(np.float32)
        m = Mesh(Topology(40, 1, 1, [(0, 40), (1, 40), (40, 40), (40, 41)], bias=False), ticks, "tanh", random_state=0)
        last = np.arange(ticks) == ticks - 1
        m.gradient(X[:2], [[1.0]], "squared_error", "influence", loss_ticks=last[-2:])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        m.gradient(X, [[1.0]], "squared_error", "influence", loss_ticks=last)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / X.nbytes)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 30  # one row of samples per tick would take 64 times as much

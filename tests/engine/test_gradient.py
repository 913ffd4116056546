"""Every method against the loops, torch autograd, central differences and a net worked by hand."""

import math
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import (
    ACTIVATION_NAMES,
    ALL_METHODS,
    LOSS_NAMES,
    by_autograd,
    by_differences,
    by_loops,
    by_loops_in_time,
    cases,
    close,
    targets_for,
    terms,
    timed_cases,
    torch_outputs,
)
from examples import examples
from meshnn import Mesh, Topology


def check(case, want_loss, want, tolerance=1e-10):
    for method in ALL_METHODS:
        got_loss, got = case.mesh.gradient(case.X, case.y, case.loss, method, case.sample_weight)
        assert got_loss == pytest.approx(want_loss, rel=1e-10, abs=1e-14)
        close(got, want, tolerance)


@pytest.mark.parametrize("loss", LOSS_NAMES)
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@examples(20)
@given(data=st.data())
def test_every_activation_and_loss_equals_autograd(activation, loss, data):
    case = data.draw(cases(activation=activation, loss=loss))
    check(case, *by_autograd(case))


@examples(40)
@given(case=cases(most_hidden=3, most_batch=5))
def test_gradient_equals_the_loops(case):
    check(case, *by_loops(case))


SMOOTH = ("identity", "softplus", "sigmoid", "tanh", "sin", "gauss")


@examples(60)
@given(data=st.data(), activation=st.sampled_from(SMOOTH))
def test_gradient_equals_central_differences(data, activation):
    case = data.draw(cases(most_hidden=4, most_batch=5, activation=activation))
    if case.mesh.activations[-1] not in SMOOTH:  # a kink would spoil the difference, not the gradient
        case.mesh = Mesh(case.mesh.topology, case.mesh.ticks, activation, "tanh", case.mesh.weights, "float64")
    want = by_differences(case)
    for method in ALL_METHODS:
        close(case.mesh.gradient(case.X, case.y, case.loss, method, case.sample_weight)[1], want, 2e-6)


@pytest.mark.parametrize("method", ALL_METHODS)
@examples(60)
@given(case=cases())
def test_float32_is_near_float64(method, case):
    wide = case.mesh
    narrow = Mesh(wide.topology, wide.ticks, wide.activations[: wide.topology.n_hidden], wide.activations[-1],
                  weights=wide.weights, dtype="float32")  # fmt: skip
    # compare on the very numbers that float32 holds
    X, y = case.X.astype(np.float32), case.y if case.loss == "cross_entropy" else case.y.astype(np.float32)
    rounded = Mesh(wide.topology, wide.ticks, wide.activations[: wide.topology.n_hidden], wide.activations[-1],
                   weights=narrow.weights, dtype="float64")  # fmt: skip
    want_loss, want = rounded.gradient(X, y, case.loss, method, case.sample_weight)
    got_loss, got = narrow.gradient(X, y, case.loss, method, case.sample_weight)
    assert got.dtype == np.float32
    assert got_loss == pytest.approx(want_loss, rel=1e-4, abs=1e-6)
    close(got, want, 1e-4, scale=terms(case))


@examples(60)
@given(case=cases(most_batch=33))
def test_forward_and_states(case):
    import torch

    want = torch_outputs(case, torch.tensor(case.dense())).numpy()
    close(case.mesh.forward(case.X), want, 1e-11)
    states = case.mesh.states(case.X)
    t = case.mesh.topology
    assert states.shape == (case.mesh.ticks + 1, want.shape[0], t.n_neurons)
    close(states[-1][:, t.outputs], want, 1e-11)
    inputs = case.inputs()
    for k in range(case.mesh.ticks):
        np.testing.assert_array_equal(states[k][:, : t.n_clamped], inputs[k])
    np.testing.assert_array_equal(states[0][:, t.n_clamped :], 0.0)


@examples(25)
@given(case=timed_cases(reads=False, most_hidden=3, most_batch=2, ticks=4))
def test_gradients_in_time_equal_the_loops(case):
    want_loss, want = by_loops_in_time(case)
    for method in ALL_METHODS:
        got_loss, got = case.mesh.gradient(case.X, case.y, case.loss, method, case.sample_weight, **case.options)
        assert got_loss == pytest.approx(want_loss, rel=1e-10, abs=1e-14)
        close(got, want, 1e-10)


def test_a_net_worked_by_hand():
    """x -> h -> y with a self-loop on h, tanh, two ticks then three; every number by pen and paper.

    s1 = tanh(a x); two ticks: y = c s1; three ticks: s2 = tanh(a x + b s1), y = c s2.
    """
    a, b, c, x, target = 0.5, -0.8, 1.5, 0.7, 0.2
    t = Topology(1, 1, 1, [(0, 1), (1, 1), (1, 2)], bias=False)  # sorted: x->h, h->h, h->y
    X, Y = [[x]], [[target]]

    s1 = math.tanh(a * x)
    y = c * s1
    want = [(y - target) * c * (1 - s1**2) * x, 0.0, (y - target) * s1]
    for method in ALL_METHODS:
        loss, got = Mesh(t, 2, "tanh", weights=[a, b, c], dtype="float64").gradient(X, Y, "squared_error", method)
        assert loss == pytest.approx(0.5 * (y - target) ** 2, rel=1e-14)
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-17)

    s2 = math.tanh(a * x + b * s1)
    y = c * s2
    d1, d2 = 1 - s1**2, 1 - s2**2
    want = [(y - target) * c * d2 * (x + b * d1 * x), (y - target) * c * d2 * s1, (y - target) * s2]
    for method in ALL_METHODS:
        loss, got = Mesh(t, 3, "tanh", weights=[a, b, c], dtype="float64").gradient(X, Y, "squared_error", method)
        assert loss == pytest.approx(0.5 * (y - target) ** 2, rel=1e-14)
        np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_a_sample_without_weight_is_not_looked_at(method, loss):
    """It may overflow: infinity times no share would be NaN in every sum."""
    rng = np.random.default_rng(0)
    m = Mesh(Topology.mesh(2, 4, 2), 3, "relu", dtype="float32", random_state=0)
    X, y = rng.standard_normal((90, 2)), targets_for(loss, rng, 90, 2)
    weight = np.ones(90)
    far = X.copy()
    far[[3, 89]] = 3e38
    weight[[3, 89]] = 0.0
    kept = weight > 0
    want = m.gradient(X[kept], y[kept], loss, method)
    for inputs in (far, np.repeat(far[None], 3, axis=0)):
        got = m.gradient(inputs, y, loss, method, weight)
        assert got[0] == want[0]
        np.testing.assert_array_equal(got[1], want[1])


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss is a kibibyte there")
def test_a_long_sequence_takes_little_memory():
    """Carried influences do not grow with time, and neither does what is packed of the inputs."""
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
    assert float(done.stdout) < 30  # a row of samples per tick would take 64 times as much

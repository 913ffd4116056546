"""Streams: exact derivatives through the whole past, and truncated ones."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases import by_autograd, cases, close, terms
from meshnn import Mesh, Topology, networks
from stream_models import recurrent, series

# -- exact derivatives ------------------------------------------------------------------------------------------------


def past(case):
    """Return one parallel stream per sample of the batch, run up to the last tick."""
    X, mesh = case.X, case.mesh
    held = X.ndim == 2
    stream = mesh.stream(case.loss, ticks_per_sample=mesh.ticks if held else 1, n_streams=X.shape[-2])
    stream.run(X[None] if held else X)
    return stream


@given(cases(most_batch=5, streams=True))
def test_gradient_through_the_whole_past(case):
    case.sample_weight = None  # streams do not weight samples
    _, want = by_autograd(case)
    got = past(case).gradient(case.y)
    close(got, want, 1e-10, terms(case))


@given(cases(most_batch=2, most_hidden=4, ticks=3, streams=True), st.integers(0, 2**32 - 1))
def test_reset_states_give_a_static_net(case, seed):
    """Earlier samples have no effect, on any graph."""
    rng = np.random.default_rng(seed)
    mesh, B = case.mesh, case.X.shape[-2]
    X = case.X if case.X.ndim == 2 else case.X[0]
    stream = mesh.stream(case.loss, memory="none", n_streams=B)
    stream.run(rng.standard_normal((3, *X.shape)))
    out = stream.step(X)
    close(out, mesh.forward(X), 1e-12, 1.0)
    _, want = mesh.gradient(X, case.y, case.loss, gradient="adjoint")
    close(stream.gradient(case.y), want, 1e-10, 1.0 + np.abs(want).max(initial=0.0))


def test_by_hand():
    """x -> h, h -> h (tanh), h -> y: two samples of one tick each; the output reads the state of the previous tick."""
    mesh = Mesh(Topology(1, 1, 1, [(0, 1), (1, 1), (1, 2)], bias=False), 3, "tanh",
                weights=[0.5, 0.3, 2.0], dtype="float64")  # fmt: skip
    stream = mesh.stream(ticks_per_sample=1)
    out = stream.run([[1.0], [-2.0], [0.0]])
    h1 = math.tanh(0.5)
    h2 = math.tanh(0.5 * -2 + 0.3 * h1)
    assert out[:, 0].tolist() == pytest.approx([0.0, 2 * h1, 2 * h2], abs=1e-15)
    # y = 2 h2; derivatives: a: slope2 (-2 + 0.3 slope1), loop: slope2 h1, readout: h2
    slope1, slope2 = 1 - h1 * h1, 1 - h2 * h2
    want = np.array([2 * slope2 * (-2 + 0.3 * slope1 * 1.0), 2 * slope2 * h1, h2])
    assert stream.jacobian()[0, 0].tolist() == pytest.approx(want.tolist(), abs=1e-14)


def test_after_100000_steps_equals_backprop_through_the_last_1000():
    """In a contracting net, the effect of samples more than a thousand steps ago is below rounding."""
    mesh = recurrent(0, 1, 8, 1)
    t = mesh.topology
    inner = (t.src >= t.n_clamped) & (t.dst < t.n_neurons - 1)
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src[inner], t.dst[inner]] = mesh.weights[inner]
    mesh.weights[inner] *= 0.9 / np.linalg.norm(A, 2)  # every step contracts by at least a tenth
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


# -- truncated influences -----------------------------------------------------------------------------------------


def cut(mesh, X, hops):
    """Compute SnAp by plain loops: keep the influence of an edge on neurons within a number of hops of its end.

    An output reads the influences of its sources, so there it is one hop more.
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


def test_snap_of_many_hops_is_exact():
    mesh = Mesh(Topology.mesh(1, 12, 1, density=0.2, random_state=0), 5, "tanh", dtype="float64", random_state=0)
    exact, snap = (mesh.stream(method=method, ticks_per_sample=1) for method in ("exact", "snap-13"))
    for stream in (exact, snap):
        stream.run(series(8, 1))
    close(snap.jacobian(), exact.jacobian(), 1e-12)


def test_columns_are_exact_at_the_price_of_the_forward_pass():
    mesh = networks.columns(3, 50, 1, dtype="float64", random_state=0)
    plan = mesh.stream(ticks_per_sample=1).plan
    assert plan.exact
    assert plan.multiply_adds < 4 * mesh.topology.n_edges

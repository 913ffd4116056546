"""The Jacobian and the growth scores."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases import ALL_METHODS, Case, by_autograd, cases, close, torch_outputs
from examples import examples
from meshnn import Mesh, Topology


def autograd_jacobian(case):
    t = case.mesh.topology
    full = torch.autograd.functional.jacobian(lambda A: torch_outputs(case, A), torch.tensor(case.dense()))
    return full.numpy()[:, :, t.src, t.dst]


@pytest.mark.parametrize("method", ["auto", *ALL_METHODS])
@examples(50)
@given(case=cases(most_batch=33))
def test_jacobian_equals_autograd(method, case):
    want = autograd_jacobian(case)
    got = case.mesh.jacobian(case.X, method)
    assert got.shape == want.shape
    close(got, want, 1e-10)


@examples(30)
@given(case=cases(most_batch=5))
def test_float32_jacobian_is_near(case):
    wide = case.mesh
    hidden, output = wide.activations[: wide.topology.n_hidden], wide.activations[-1]
    narrow = Mesh(wide.topology, wide.ticks, hidden, output, weights=wide.weights, dtype="float32")
    rounded = Mesh(wide.topology, wide.ticks, hidden, output, weights=narrow.weights, dtype="float64")
    X = case.X.astype(np.float32)
    for method in ALL_METHODS:
        close(narrow.jacobian(X, method), rounded.jacobian(X, method), 1e-4)


@pytest.mark.parametrize("method", ["auto", *ALL_METHODS])
@examples(50)
@given(case=cases(), seed=st.integers(0, 1000))
def test_growth_scores_equal_autograd(method, case, seed):
    """Of edges that are there and of absent ones, which autograd takes for edges of weight 0."""
    n = case.mesh.topology.n_neurons
    src, dst = np.divmod(np.random.default_rng(seed).permutation(n * n)[:12], n)
    scores = case.mesh.growth_scores(case.X, case.y, case.loss, src, dst, method, case.sample_weight)
    close(scores, by_autograd(case, (src, dst))[1], 1e-10)


def test_growth_scores_wake_a_sleeping_chain():
    """x  h1 -> h2 -> y and x -> y: nothing feeds h1 yet, so every state on the chain is 0, but its score is not."""
    t = Topology(1, 2, 1, [(1, 2), (2, 3), (0, 3)], bias=False)
    mesh = Mesh(t, 3, "tanh", weights=[0.5, 2.0, 0.25], dtype="float64")  # sorted: h1->h2, x->y, h2->y
    case = Case(mesh, np.array([[3.0]]), np.array([[0.0]]), "squared_error", None)
    w_h1h2, w_xy, w_h2y = mesh.weights
    want = (w_xy * 3.0) * w_h2y * w_h1h2 * 3.0  # (y - 0) times the product along the chain, all slopes 1 at 0
    for method in ALL_METHODS:
        got = mesh.growth_scores(case.X, case.y, "squared_error", src=[0], dst=[1], gradient=method)
        assert got == pytest.approx([want], rel=1e-14)
    assert mesh.growth_scores(case.X, case.y, "squared_error", src=[[0, 1]], dst=[[1], [2]]).shape == (2, 2)


@pytest.mark.parametrize("method", ["auto", *ALL_METHODS])
def test_growth_scores_of_pairs_that_repeat_unevenly(method):
    """Each repetition has the score of the pair asked for once, by automatic differentiation."""
    rng = np.random.default_rng(0)
    t = Topology.mesh(2, 5, 2)
    mesh = Mesh(t, 3, "tanh", dtype="float64", random_state=0)
    case = Case(mesh, rng.standard_normal((6, 2)), rng.standard_normal((6, 2)), "squared_error", None)
    for _ in range(10):
        src, dst = rng.integers(0, t.n_neurons, (2, 80))
        scores = mesh.growth_scores(case.X, case.y, case.loss, src, dst, method)
        close(scores, by_autograd(case, (src, dst))[1], 1e-10)

"""Tied and fixed edges: through gradient, Jacobian, curvature and growth scores, against autograd by the parameters."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases import ALL_METHODS, Case, cases, close, terms, torch_loss, torch_outputs
from examples import examples
from meshnn import Mesh, MeshError, Topology
from meshnn.parameters import Ties
from meshnn.training.api import as_samples


def tie(mesh, rng, n_parameters, fixed):
    """The same net with random ties: some edges fixed, the others share parameters."""
    count = mesh.topology.n_edges
    parameter = rng.integers(0, max(n_parameters, 1), count)
    parameter[rng.random(count) < fixed] = -1
    used = np.unique(parameter[parameter >= 0])
    parameter = np.where(parameter >= 0, np.searchsorted(used, parameter), -1)
    names = mesh.activations
    t = mesh.topology
    tied = Mesh(t, mesh.ticks, names[: t.n_hidden], names[-1], dtype="float64", random_state=rng, tied=parameter)
    tied.parameters = rng.standard_normal(tied.n_parameters) * 0.6
    return tied


@st.composite
def tied_cases(draw, **how):
    case = draw(cases(**how))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    case.mesh = tie(case.mesh, rng, draw(st.integers(1, 8)), draw(st.sampled_from([0.0, 0.3, 0.9])))
    return case


def outputs_of(case, theta):
    """Outputs as torch computes them from parameters."""
    t, mesh = case.mesh.topology, case.mesh
    number = torch.tensor(np.maximum(mesh.tied, 0))
    learned = theta[number] if len(theta) else torch.zeros(t.n_edges, dtype=torch.float64)
    weights = torch.where(torch.tensor(mesh.tied >= 0), learned, torch.tensor(mesh.weights))
    A = torch.zeros(t.n_neurons, t.n_neurons, dtype=torch.float64)
    return torch_outputs(case, A.index_put((torch.tensor(t.src), torch.tensor(t.dst)), weights))


@examples(60)
@given(case=tied_cases())
def test_gradient_by_parameters_equals_autograd(case):
    theta = torch.tensor(case.mesh.parameters, requires_grad=True)
    loss = torch_loss(case, outputs_of(case, theta))
    want = torch.autograd.grad(loss, theta, allow_unused=True)[0] if len(theta) else None
    want = np.zeros(len(theta)) if want is None else want.numpy()
    t, names = case.mesh.topology, case.mesh.activations
    untied = Mesh(t, case.mesh.ticks, names[: t.n_hidden], names[-1], case.mesh.weights, "float64")
    plain = Case(untied, case.X, case.y, case.loss, case.sample_weight)
    for method in ALL_METHODS:
        got_loss, got = case.mesh.gradient(case.X, case.y, case.loss, method, case.sample_weight)
        assert got.shape == (case.mesh.n_parameters,)
        assert got_loss == pytest.approx(loss.item(), rel=1e-10, abs=1e-14)
        close(got, want, 1e-10, scale=terms(plain))  # what tied edges add may cancel


@examples(30)
@given(case=tied_cases(most_batch=5))
def test_jacobian_by_parameters_equals_autograd(case):
    theta = torch.tensor(case.mesh.parameters)
    want = torch.autograd.functional.jacobian(lambda v: outputs_of(case, v), theta).numpy()
    for method in ALL_METHODS:
        got = case.mesh.jacobian(case.X, method)
        assert got.shape == want.shape
        close(got, want, 1e-10)


@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy", "huber", "poisson", "binary_cross_entropy"])
def test_curvature_by_parameters(loss):
    """J' H J of the tied net, from its own Jacobian and the Hessian of the loss by the outputs, sample by sample."""
    rng = np.random.default_rng(0)
    mesh = tie(Mesh(Topology.mesh(3, 5, 3), 3, "tanh", dtype="float64", random_state=1), rng, 9, 0.3)
    X = rng.standard_normal((70, 3))
    y = rng.integers(0, 3, 70) if loss == "cross_entropy" else 3.0 * np.abs(rng.standard_normal((70, 3)))
    y = (y > 2.0).astype(float) if loss == "binary_cross_entropy" else y
    samples = as_samples(mesh, X, y, loss)
    live = np.arange(mesh.n_parameters)
    outputs, J = mesh.forward(X), mesh.jacobian(X)
    want = sum(j.T @ hessian(loss, o, t) @ j for j, o, t in zip(J, outputs, np.asarray(y), strict=True)) / len(X)
    for method in ("factored", "adjoint"):
        engine = mesh.engine("curvature", method, len(X))
        got = engine.curvature(mesh.values, samples.X, samples.targets, live, 1)
        close(got.matrix, want, 1e-10)
        close(got.grad, mesh.gradient(X, y, loss)[1], 1e-10)


def hessian(loss, outputs, target):
    if loss == "cross_entropy":
        p = np.exp(outputs - outputs.max())
        p /= p.sum()
        return np.diag(p) - np.outer(p, p)
    if loss == "huber":
        return np.diag(1 / np.maximum(np.abs(outputs - target), 1.0))
    if loss == "binary_cross_entropy":
        p = 1 / (1 + np.exp(-outputs))
        return np.diag(p * (1 - p))
    return np.diag(np.exp(outputs)) if loss == "poisson" else np.eye(len(outputs))


def test_weights_and_parameters():
    t = Topology(3, 0, 1, [(0, 3), (1, 3), (2, 3)], bias=False)
    m = Mesh(t, 1, weights=[0.5, 0.5, 2.0], tied=[0, 0, -1])
    assert m.parameters.tolist() == [0.5]
    assert m.tied.tolist() == [0, 0, -1]
    m.parameters[0] = 3.0
    assert m.weights.tolist() == [3.0, 3.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        m.weights[0] = 1.0
    m.weights = [1.0, 1.0, 5.0]  # a fixed weight can be set, but is not learned
    assert m.values.tolist() == [1.0, 5.0]
    m.weights = m.draw_weights(0)
    assert m.weights[2] == 5.0
    with pytest.raises(MeshError, match=r"edges 0 and 1 share parameter 0, but their weights are 1.0 and 2.0"):
        m.weights = [1.0, 2.0, 3.0]
    with pytest.raises(MeshError, match=r"parameters must have shape \(1,\)"):
        m.parameters = [1.0, 2.0]


def test_without_ties_parameters_are_the_weights(mesh):
    assert mesh.parameters.base is mesh.weights or mesh.parameters is mesh.weights
    mesh.parameters[3] = 7.0
    assert mesh.weights[3] == 7.0
    same = Mesh(mesh.topology, tied=np.arange(mesh.topology.n_edges))
    assert same.ties.plain


@pytest.mark.parametrize(
    ("parameter", "match"),
    [
        ([0, 1], r"\(2,\)"),
        ([0, 0.5, 1], "whole"),
        ([0, -2, 1], "whole"),
        ([0, 2, 2], "number 1"),
        ([0, 10**12, 1], "gaps"),
        ([True, False, True], "whole"),
        (["a", "b", "c"], "tied"),
    ],
)
def test_refusals(parameter, match):
    t = Topology(3, 0, 1, [(0, 3), (1, 3), (2, 3)], bias=False)
    with pytest.raises(MeshError, match=match):
        Mesh(t, tied=parameter)


def test_edits_keep_ties():
    ties = Ties(6, [0, 1, 0, -1, 2, 2])
    edited, origin = ties.edited(np.array([0, 2, 3, -1, 4, -1]))  # edges 1 and 5 are gone, two are new
    assert origin.tolist() == [0, 2, -1, -1]
    assert edited.tied.tolist() == [0, 0, -1, 2, 1, 3]
    whole = ties.whole(np.array([True, True, False, True, True, True]))
    assert whole.tolist() == [False, True, False, False, True, True]


def test_nothing_but_fixed_edges():
    m = Mesh(Topology.mesh(2, 3, 1), tied=np.full(Topology.mesh(2, 3, 1).n_edges, -1), dtype="float64")
    case = Case(m, np.ones((4, 2)), np.ones((4, 1)), "squared_error", None)
    assert m.gradient(case.X, case.y, case.loss)[1].shape == (0,)
    assert m.jacobian(case.X).shape == (4, 1, 0)

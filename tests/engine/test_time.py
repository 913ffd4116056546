"""Sequences: errors, curvature and training; test_gradient.py tests the gradients in time."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases import _TORCH_LOSSES, LOSS_NAMES, by_autograd, by_parameters, close, tied_cases, timed_cases, torch_readouts
from examples import examples
from meshnn import Mesh, Topology
from meshnn.errors import MeshError
from meshnn.training import structure, train
from meshnn.training.api import as_samples
from solver_options import solver_with


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


def curvature_by_autograd(case):
    """Return J' H J summed over all evaluated outputs, with the Hessian of each loss by autograd."""
    t, A, y = case.mesh.topology, torch.tensor(case.dense()), torch.tensor(case.y)
    J = torch.autograd.functional.jacobian(lambda A: torch_readouts(case, A), A).numpy()[:, :, :, t.src, t.dst]
    J, Y = by_parameters(case.mesh, J), torch_readouts(case, A)
    weight = case.shares[None] if case.readout is not None else case.shares_in_time
    total = np.zeros((case.mesh.n_parameters,) * 2)
    for k, b in np.argwhere(weight).tolist():
        target = (y[k] if case.by_tick else y)[b : b + 1]
        loss = partial(lambda target, z: _TORCH_LOSSES[case.loss](z, target).sum(), target)
        H = torch.autograd.functional.hessian(loss, Y[k, b : b + 1]).numpy()[0, :, 0, :]
        if case.loss == "huber":  # beyond the width, the curvature is that of a parabola that touches the loss
            H = np.diag(1 / np.maximum(np.abs((Y[k, b] - target[0]).numpy()), 1.0))
        total += weight[k, b] * J[k, b].T @ H @ J[k, b]
    return total


@pytest.mark.parametrize("loss", [name for name in LOSS_NAMES if not name.startswith("quantile")])
@examples(15)
@given(data=st.data())
def test_curvature_equals_autograd(loss, data):
    small = {"loss": loss, "most_batch": 5, "most_hidden": 3}
    case = replace(data.draw(st.one_of(timed_cases(**small), tied_cases(**small))), state=None)
    samples = as_samples(case.mesh, case.X, case.y, case.loss, case.sample_weight, **case.looks)
    engine = case.mesh.engine("curvature", "auto", samples.count)
    got = engine.curvature(case.mesh.values, samples.X, samples.targets, np.arange(case.mesh.n_parameters))
    want_loss, want = by_autograd(case)
    assert got.loss == pytest.approx(want_loss, rel=1e-10, abs=1e-14)
    close(got.grad, by_parameters(case.mesh, want), 1e-10, scale=np.abs(want).max(initial=0.0))
    close(got.matrix, curvature_by_autograd(case), 1e-9)


def sequences(seed=0, count=150, ticks=7):
    """Return sequences of different lengths, padded with zeros, whose label is the sign of their sum."""
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
    """With gradient="influence" every step is a separate call."""
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
    X, sums, within, end, length = sequences()
    label = (sums > 0).astype(int)
    y = label if reads == "every" else label[length - 1, np.arange(len(length))]
    option = {"end": {"readout": end}, "mean": {"readout": within / length}, "every": {"loss_ticks": within}}[reads]
    mesh = memory_net()
    rows = list(train(mesh, X, y, solver=solver_with(solver, learning_rate=0.02), l2=1e-4,
                      max_epochs=15 if solver == "lm" else 60, random_state=0, **option))  # fmt: skip
    assert rows[-1].loss < 0.8 * math.log(2.0)
    assert rows[-1].loss < rows[0].loss or solver == "lm"


def test_a_graph_that_changes_learns_sequences():
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

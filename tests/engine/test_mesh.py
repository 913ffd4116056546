"""The public interface of Mesh and its invariances."""

import numpy as np
import pytest
from hypothesis import given
from scipy import sparse

from cases import ALL_METHODS, cases
from examples import examples
from meshnn import Mesh, MeshError, Topology


def test_defaults(mesh):
    assert Mesh(mesh.topology).dtype == np.float32
    assert Mesh(mesh.topology).ticks == 3
    assert Mesh(mesh.topology).activations == ["relu"] * 6 + ["identity"] * 2
    bias = mesh.topology.src == 3
    assert (mesh.weights[bias] == 0).all()
    assert (mesh.weights[~bias] != 0).all()
    np.testing.assert_array_equal(
        Mesh(mesh.topology, random_state=5).weights,
        Mesh(mesh.topology, random_state=np.random.default_rng(5)).weights,
    )


def test_adjacency_round_trip_keeps_zero_weights(mesh):
    mesh.weights[4] = 0.0
    A = mesh.adjacency()
    assert isinstance(A, sparse.csr_array)
    again = Mesh.from_adjacency(A, 3, 2, bias=True, activation="tanh")
    assert again.topology == mesh.topology
    assert again.dtype == mesh.dtype
    np.testing.assert_array_equal(again.weights, mesh.weights)
    dense = Mesh.from_adjacency(A.toarray(), 3, 2, bias=True)
    assert dense.topology.n_edges == mesh.topology.n_edges - 9  # eight zero biases and the edge above are removed


def test_plans_are_cached_until_the_graph_changes(mesh, batch, monkeypatch):
    from meshnn.plan import Method

    calls = []
    real = Method.plan
    monkeypatch.setattr(Method, "plan", lambda *a, **k: calls.append(a) or real(*a, **k))
    mesh.gradient(*batch)
    mesh.weights = mesh.weights * 2
    mesh.weights[0] = 1.0
    mesh.gradient(*batch)
    assert len(calls) == 1
    mesh.ticks = 4
    mesh.gradient(*batch)
    assert len(calls) == 2
    t = mesh.topology
    fewer = Topology(3, 6, 2, np.stack([t.src, t.dst], 1)[:-1])
    mesh.rewire(fewer)
    mesh.gradient(*batch)
    assert len(calls) == 3
    np.testing.assert_array_equal(mesh.weights[:1], [1.0])


def test_rewire_keeps_weights_of_edges_that_stay(mesh):
    t, before = mesh.topology, mesh.weights.copy()
    edges = np.stack([t.src, t.dst], 1)
    mesh.rewire(Topology(3, 6, 2, [*edges[5:].tolist(), (4, 4)]))
    after = {(i, j): w for i, j, w in zip(mesh.topology.src, mesh.topology.dst, mesh.weights, strict=True)}
    assert after[4, 4] == 0.0
    assert [after[i, j] for i, j in edges[5:].tolist()] == before[5:].tolist()
    with pytest.raises(MeshError, match="rewire keeps the neurons"):
        mesh.rewire(Topology.mesh(3, 7, 2))


# -- invariances -------------------------------------------------------------------------------------------------


@examples(60)
@given(case=cases())
def test_dead_edges_have_no_gradient_and_no_influence(case):
    m = case.mesh
    dead = m.dead_edges()
    for method in ALL_METHODS:
        assert (m.gradient(case.X, case.y, case.loss, method)[1][dead] == 0).all()
    before = m.forward(case.X)
    m.weights[dead] = 1e6
    np.testing.assert_array_equal(m.forward(case.X), before)
    t = m.topology
    kept = ~dead
    if kept.any():
        alive = Topology(t.n_inputs, t.n_hidden, t.n_outputs, np.stack([t.src, t.dst], 1)[kept], bias=t.bias)
        smaller = Mesh(alive, m.ticks, m.activations[: t.n_hidden], m.activations[-1], m.weights[kept], "float64")
        np.testing.assert_array_equal(smaller.forward(case.X), before)


@examples(60)
@given(case=cases(activation="sin"))
def test_live_edges_do_have_an_influence(case):
    """The mask is not merely an upper bound: with generic weights every live edge of a smooth net has a gradient."""
    t = case.mesh.topology
    m = Mesh(t, case.mesh.ticks, "sin", "identity", case.mesh.weights, "float64")
    J = np.abs(m.jacobian(case.X, "adjoint")).max(axis=(0, 1), initial=0)
    assert ((J == 0) == m.dead_edges()).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_sample_weights_of_any_dtype(mesh, batch, dtype):
    X, y = batch
    weight = np.random.default_rng(0).integers(1, 5, 100)
    want = mesh.gradient(X, y, sample_weight=weight.astype(np.float64))[1]
    np.testing.assert_allclose(mesh.gradient(X, y, sample_weight=weight.astype(dtype))[1], want, rtol=1e-13, atol=1e-16)
    huge = weight * 1e307
    np.testing.assert_allclose(mesh.gradient(X, y, sample_weight=huge)[1], want, rtol=1e-13, atol=1e-16)


def test_deepcopy(mesh, batch):
    import copy

    mesh.gradient(*batch)
    twin = copy.deepcopy(mesh)
    twin.weights[0] += 1.0
    assert twin.weights[0] != mesh.weights[0]
    assert twin.gradient(*batch)[0] != mesh.gradient(*batch)[0]

"""Selection of edges that a changing graph removes, adds and allows."""

import numpy as np
import pytest

from meshnn import Mesh, MeshError, Topology
from meshnn.tables.synthetic import spirals
from meshnn.training import structure, train
from meshnn.training.api import as_samples
from meshnn.training.structure.choosing import importance, weakest
from meshnn.training.structure.graph import Allowed
from meshnn.training.structure.policies import RegrowMemory
from meshnn.training.structure.runtime import Structure

X, Y = spirals(120, random_state=0)


def new_mesh(hidden=6, ticks=3, density=1.0, **more):
    topology = Topology.mesh(2, hidden, 2, density=density, random_state=1, **more)
    return Mesh(topology, ticks=ticks, activation="tanh", dtype="float64", random_state=0)


def view_of(mesh, y=Y, max_epochs=10):
    own = Structure((), mesh, as_samples(mesh, X, y, "cross_entropy"), max_epochs, np.random.default_rng(0))
    return own._view(1, 1.0)


def test_dead_edges_go_first_whatever_their_weight():
    mesh = new_mesh(6, ticks=2)  # all edges between hidden neurons are dead
    dead = mesh.dead_edges()
    scores = np.where(dead, 1e6, np.abs(mesh.weights))
    count = int(dead.sum())
    np.testing.assert_array_equal(weakest(view_of(mesh), scores, count, bias=False), dead)
    more = weakest(view_of(mesh), scores, count + 3, bias=False)
    assert more[dead].all()
    rest = np.sort(scores[~dead & (mesh.topology.src != 2)])[:3]
    assert set(scores[more & ~dead]) == set(rest)


def test_regrow_swaps_the_smallest_weights_for_the_largest_gradients():
    mesh = new_mesh(8, density=0.55)
    view = view_of(mesh, max_epochs=100)
    absent = view.absent()
    edit = structure.Regrow(every=1, fraction=0.45, decay="constant").propose(view, RegrowMemory())
    scores = np.abs(mesh.growth_scores(X, Y, "cross_entropy", absent[:, 0], absent[:, 1]))
    grown = {tuple(pair) for pair in edit.add.tolist()}
    assert len(grown) == edit.remove.sum() == round(0.45 * (mesh.topology.src != 2).sum())
    taken = np.array([tuple(pair) in grown for pair in absent.tolist()])
    assert scores[taken].min() >= scores[~taken].max()
    np.testing.assert_array_equal(edit.remove, weakest(view, np.abs(mesh.weights), len(grown), bias=False))
    drawn = structure.Regrow(every=1, fraction=0.45, decay="constant", grow="random").propose(view, RegrowMemory())
    assert len(drawn.add) == len(edit.add)
    assert {tuple(pair) for pair in drawn.add.tolist()} != grown


def test_allowed_edges_only():
    mask = np.zeros((11, 11), bool)
    topology = Topology.mesh(2, 6, 2, density=0.3, self_loops=True, feedback=False, random_state=0)
    mask[topology.src, topology.dst] = True
    mask[:9, 3:] |= np.random.default_rng(0).random((9, 8)) < 0.4
    mesh = Mesh(topology, ticks=3, activation="tanh", random_state=0)
    options = {"solver": "adam", "batch_size": 32, "tol": 0.0, "max_epochs": 20}
    for row in train(mesh, X, Y, structure=structure.Regrow(every=1, allowed=mask), **options):
        assert mask[mesh.topology.src, mesh.topology.dst].all(), row.epoch
    assert mesh.topology != topology
    with pytest.raises(MeshError, match=r"the net has the edge .* which `allowed` does not contain"):
        Allowed(topology, np.zeros((11, 11), bool))
    with pytest.raises(MeshError, match="allowed must be a mask of shape"):
        Allowed(topology, np.zeros((3, 3), bool))


def test_criteria():
    mesh = new_mesh(5)
    samples = as_samples(mesh, X, Y, "cross_entropy")
    rng = np.random.default_rng(0)
    w = mesh.weights
    np.testing.assert_array_equal(importance("magnitude", mesh, samples, rng), np.abs(w))
    _, grad = mesh.gradient(X, Y)
    np.testing.assert_allclose(importance("movement", mesh, samples, rng), np.abs(w * grad), atol=1e-12)
    outputs = mesh.forward(X)
    p = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    J, want = mesh.jacobian(X), np.zeros(len(w))
    for n in range(len(X)):
        H = np.diag(p[n]) - np.outer(p[n], p[n])
        want += np.diag(J[n].T @ H @ J[n]) / len(X)
    np.testing.assert_allclose(importance("saliency", mesh, samples, rng), 0.5 * w**2 * want, atol=1e-12)
    # at a minimum this is the change of the loss to second order
    y = mesh.forward(X)
    values = as_samples(mesh, X, y, "squared_error")
    saliency = importance("saliency", mesh, values, rng)
    for edge in (0, 7, 20):
        mesh.weights[edge] *= 1 - 1e-3
        loss, _ = mesh.gradient(X, y, "squared_error")
        mesh.weights[edge] /= 1 - 1e-3
        np.testing.assert_allclose(loss, 1e-6 * saliency[edge], rtol=1e-2, atol=1e-18)


def test_no_output_is_cut_off():
    """A path to every output remains, also without a bias."""
    for seed in range(5):
        topology = Topology.mesh(2, 8, 3, bias=False, random_state=seed)
        mesh = Mesh(topology, ticks=3, activation="tanh", dtype="float64", random_state=seed)
        view = view_of(mesh, y=np.random.default_rng(seed).integers(0, 3, len(X)))
        remove = weakest(view, np.abs(mesh.weights), topology.n_edges, bias=True)
        kept = np.stack([topology.src, topology.dst], axis=1)[~remove]
        assert 3 <= len(kept) <= 9
        Topology(2, 8, 3, kept, bias=False).check_reachable(3)


def pairs_of_graph(topology):
    return list(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))


def test_what_is_allowed_follows_from_the_graph():
    for more in ({}, {"self_loops": True}, {"feedback": False}, {"self_loops": True, "feedback": False}):
        sparse = Topology.mesh(3, 6, 2, density=0.5, random_state=0, **more)
        dense = Topology.mesh(3, 6, 2, **more)
        assert Allowed(sparse).dense(sparse) == dense
        absent = Allowed(sparse).absent(sparse, np.arange(6))
        np.testing.assert_array_equal(absent, [p for p in pairs_of_graph(dense) if p not in pairs_of_graph(sparse)])


def test_a_mask_knows_the_first_neurons_and_leaves_new_ones_free():
    mask = np.random.default_rng(0).random((8, 8)) < 0.5  # inputs 0 and 1, bias 2, hidden 3 to 5, outputs 6 and 7
    now = Topology(2, 3, 2, [])
    first = {0: 0, 1: 1, 3: 5, 5: 3, 6: 6, 7: 7}  # hidden neuron 4 is new, the others are permuted
    absent = Allowed(Topology(2, 3, 2, []), mask).absent(now, np.array([2, 9, 0]))
    want = [(i, j) for j in range(3, 8) for i in (0, 1, *range(3, 8)) if 4 in (i, j) or mask[first[i], first[j]]]
    assert [tuple(pair) for pair in absent.tolist()] == want

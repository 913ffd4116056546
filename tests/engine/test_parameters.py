"""Tied and fixed edges; their gradients are in test_gradient.py."""

import numpy as np
import pytest

from meshnn import Mesh, MeshError, Topology
from meshnn.parameters import Ties


def test_weights_and_parameters():
    t = Topology(3, 0, 1, [(0, 3), (1, 3), (2, 3)], bias=False)
    m = Mesh(t, 1, weights=[0.5, 0.5, 2.0], tied=[0, 0, -1])
    assert m.parameters.tolist() == [0.5]
    assert m.tied.tolist() == [0, 0, -1]
    m.parameters[0] = 3.0
    assert m.weights.tolist() == [3.0, 3.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        m.weights[0] = 1.0
    m.weights = [1.0, 1.0, 5.0]  # a fixed weight can be assigned, but is not trained
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
        ([0, 2, 2], "parameter 1;"),
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
    edited, origin = ties.edited(np.array([0, 2, 3, -1, 4, -1]))  # edges 1 and 5 are removed, two are new
    assert origin.tolist() == [0, 2, -1, -1]
    assert edited.tied.tolist() == [0, 0, -1, 2, 1, 3]
    whole = ties.whole(np.array([True, True, False, True, True, True]))
    assert whole.tolist() == [False, True, False, False, True, True]


def test_nothing_but_fixed_edges():
    m = Mesh(Topology.mesh(2, 3, 1), tied=np.full(Topology.mesh(2, 3, 1).n_edges, -1), dtype="float64")
    assert m.gradient(np.ones((4, 2)), np.ones((4, 1)), "squared_error")[1].shape == (0,)
    assert m.jacobian(np.ones((4, 2))).shape == (4, 1, 0)

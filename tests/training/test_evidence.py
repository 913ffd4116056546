"""Penalties from the evidence: which edges may be determined by how many samples."""

import numpy as np
import pytest

from meshnn import Mesh, Topology
from meshnn.training.api import as_samples
from meshnn.training.evidence import Evidence
from meshnn.training.solvers.base import penalised_parameters


def evidence_of(n_samples, n_inputs=3):
    mesh = Mesh(Topology.mesh(n_inputs, 4, 1), activation="tanh", dtype="float64", random_state=0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, n_inputs))
    samples = as_samples(mesh, X, X[:, 0], "squared_error")
    live = mesh.live_parameters()
    found = Evidence(mesh, samples, live, penalised_parameters(mesh)[live].astype(float))
    t = mesh.topology
    straight = (t.src < n_inputs) & (t.dst >= t.n_neurons - t.n_outputs)
    return found, straight[mesh.ties.first[live]]


@pytest.mark.parametrize("what", ["straight", "bent"])
def test_only_edges_that_could_learn_by_heart_are_bounded(what):
    """Determined means: a curvature far above the penalty. All of one kind are, of the others nothing is known."""
    evidence, straight = evidence_of(20)
    chosen = straight if what == "straight" else ~straight & (evidence.penalised > 0)
    assert (
        ~straight & (evidence.penalised > 0)
    ).sum() > evidence.crowded * evidence.count  # more than the bound allows
    curvature = np.diag(np.where(chosen, 1e6, 1e-9))
    now = np.where(evidence.penalised > 0, 1e-3, 0.0)
    evidence.penalties(curvature, np.ones(len(now)), now, error=0.1)
    assert (evidence.least > 1e-8) == (what == "bent")


def test_straight_edges_are_bounded_where_they_outnumber_samples():
    evidence, straight = evidence_of(20, n_inputs=30)
    curvature = np.diag(np.where(straight, 1e6, 1e-9))
    evidence.penalties(curvature, np.ones(len(straight)), np.where(evidence.penalised > 0, 1e-3, 0.0), error=0.1)
    assert evidence.least > 1e-8

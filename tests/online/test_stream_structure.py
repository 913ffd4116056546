"""Structure policies on streams."""

import numpy as np
import pytest

import meshnn
from meshnn import MeshError, MeshStreamClassifier, MeshStreamRegressor
from meshnn.training import structure


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    for a, b in rng.standard_normal((n, 2)).tolist():
        yield {"a": a, "b": b}, bool(a * b > 0)


def test_pruned_to_its_budget_and_goes_on_learning():
    model = MeshStreamClassifier(12, structure=structure.Prune(to=30, start="given"), structure_every=50,
                                 structure_rounds=4, random_state=0)  # fmt: skip
    for x, y in rows(250):
        model.learn_one(x, y)
    assert model.mesh_.topology.n_edges == 30
    assert model.stream_.learned > 200
    assert len(model.stream_.learner.group) == 30
    before = model.mesh_.weights.copy()
    model.learn_one({"a": 0.3, "b": -2.0}, True)
    assert (model.mesh_.weights != before).any()


def test_an_edit_keeps_covariance_and_weights_of_remaining_edges():
    """Pruning leaves the covariance of the remaining edges bit-identical."""
    policy = structure.Prune(to=12, start="given", end=0.5)
    model = MeshStreamClassifier(6, structure=policy, structure_every=100, structure_rounds=1, random_state=0)
    plain = MeshStreamClassifier(6, random_state=0)
    for x, y in rows(100):
        model.learn_one(x, y)
        plain.learn_one(x, y)
    assert len(model.mesh_.weights) == 12
    assert len(set(model.mesh_.weights) & set(plain.mesh_.weights)) >= 11  # a bias may have replaced a neuron
    P, Q = plain.stream_.learner.covariance(), model.stream_.learner.covariance()
    assert set(np.diag(Q).tolist()) <= set(np.diag(P).tolist())


def test_grows_when_the_loss_stalls():
    """With random labels the loss never improves: a neuron is added at every opportunity, up to the limit."""
    rng = np.random.default_rng(0)
    policy = structure.Grow(to=5, wait=1, slow=1.0, gain=0.0, candidates=2)
    model = MeshStreamClassifier(2, structure=policy, structure_every=25, random_state=0)
    for k in range(400):
        model.learn_one({"a": float(rng.standard_normal())}, bool(rng.integers(2)))
        assert model.mesh_.topology.n_hidden >= 2, k
    assert model.mesh_.topology.n_hidden > 2
    assert model.mesh_.topology.n_hidden <= 5
    assert "a neuron grown" in model._structure.log[0]


@pytest.mark.parametrize("policy", [structure.Prune(to=10, start="given"), structure.Grow(to=6, wait=1, slow=1.0)])
def test_saved_in_the_middle(policy, tmp_path):
    model = MeshStreamRegressor(4, structure=policy, structure_every=40, structure_rounds=6, random_state=0)
    data = list(rows(300))
    for x, _ in data[:130]:
        model.learn_one(x, x["a"] * x["b"])
    model.save(tmp_path / "model.mesh")
    other = meshnn.load(tmp_path / "model.mesh")
    for x, _ in data[130:]:
        model.learn_one(x, x["a"] * x["b"])
        other.learn_one(x, x["a"] * x["b"])
    assert np.array_equal(model.mesh_.weights, other.mesh_.weights)
    assert model._structure.log == other._structure.log != []


def test_features_and_classes_that_come_between_edits():
    model = MeshStreamClassifier(8, structure=structure.Prune(to=0.5, start="given"), structure_every=30,
                                 structure_rounds=6, random_state=0)  # fmt: skip
    for k, (x, y) in enumerate(rows(300)):
        model.learn_one(x | ({"c": 1.0} if k > 100 else {}), str(y) if k < 150 else "third")
    assert model.classes_[-1] == "third"
    assert model.mesh_.topology.n_inputs == 3
    assert set(model.predict_proba_one({"a": 0.0, "b": 1.0})) == {"True", "False", "third"}


@pytest.mark.parametrize("kind", [MeshStreamClassifier, MeshStreamRegressor])
@pytest.mark.parametrize(
    ("policy", "what"),
    [("prune", "Prune"), (structure.Prune(to=999), "999"), ([structure.Grow(to=6), structure.Prune(to=999)], "999")],
)
def test_a_policy_that_cannot_be_is_refused_at_the_first_sample(kind, policy, what):
    model = kind(4, structure=policy, random_state=0)
    for _ in range(2):  # the model is unchanged
        with pytest.raises(MeshError, match=what):
            model.learn_one({"a": 1.0, "b": 2.0}, 0.5)
        assert (model.stream_, model.n_samples_, len(model.features_)) == (None, 0, 0)
    model.structure = structure.Prune(to=17, start="given")  # the 2 * 4 + 4 + 4 + 1 edges of the first net
    model.learn_one({"a": 1.0, "b": 2.0}, 0.5)
    assert model.mesh_.topology.n_edges == 17

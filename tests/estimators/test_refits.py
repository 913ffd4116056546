"""Models that are fitted again: incompatible state is discarded, compatible state is kept."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

import meshnn
from meshnn import MeshClassifier, MeshError, MeshRegressor, Topology, storage
from meshnn.training import structure


@pytest.fixture(scope="module")
def from_a_table(tmp_path_factory):
    """Return iris and the file of a model that was fitted to it."""
    folder = tmp_path_factory.mktemp("refits")
    iris = load_iris(as_frame=True)
    frame = iris.frame.drop(columns="target").assign(species=iris.target_names[iris.target])
    model = MeshClassifier(3, max_epochs=20, random_state=0).fit(frame.drop(columns="species"), frame.species)
    model.target_ = "species"  # set by `meshnn fit`
    model.save(folder / "iris.mesh")
    return frame, folder / "iris.mesh"


# -- state of a table ----------------------------------------------------------------------------------------------


def test_another_fit_forgets_how_the_table_became_features(from_a_table, tmp_path):
    frame, path = from_a_table
    X, y = frame.drop(columns="species"), frame.species
    for columns in (X.columns[::-1], X.columns[:2]):
        model = meshnn.load(path).fit(X[columns], y)
        assert model.encoder_.feature_names == list(columns)
        assert not hasattr(model, "target_")
        assert model.score(X[columns], y) > 0.7
        model.save(tmp_path / "again.mesh")
        assert (meshnn.load(tmp_path / "again.mesh").predict(X[columns]) == model.predict(X[columns])).all()


def test_what_goes_on_sees_the_features_that_predicting_sees(from_a_table):
    frame, path = from_a_table
    mixed = frame[frame.columns[::-1]]
    X, y = mixed.drop(columns="species"), mixed.species

    def warm(model, X):
        return model.set_params(warm_start=True, max_epochs=1).fit(X, y)

    def stream(model, X):
        return model.set_params(solver="adam").partial_fit(X, y)

    for go_on in (warm, stream):
        by_name, in_order = (go_on(meshnn.load(path), features) for features in (X, X[X.columns[::-1]]))
        assert by_name.encoder_.feature_names == list(frame.columns[:-1])
        assert (by_name.mesh_.weights == in_order.mesh_.weights).all()


# -- state of the solver ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MeshRegressor, MeshClassifier])
def test_short_fits_with_warm_start_equal_one_long_fit(kind, tmp_path):
    """This also holds through a file. The penalties are estimated although no single fit is long enough for it."""
    X, y = load_diabetes(return_X_y=True) if kind is MeshRegressor else load_iris(return_X_y=True)
    options = {"hidden": 4, "solver": "lm", "l2": "evidence", "tol": 0, "random_state": 0}
    whole = kind(max_epochs=24, **options).fit(X[::3], y[::3])
    model = kind(max_epochs=2, warm_start=True, **options)
    for k in range(12):
        model.fit(X[::3], y[::3])
        if k == 5:
            model.save(tmp_path / "half.mesh")
            model = meshnn.load(tmp_path / "half.mesh")
    assert model.l2_ == whole.l2_ != 1e-4
    assert (model.mesh_.weights == whole.mesh_.weights).all()


def _saved(model, folder):
    model.save(folder / "model.mesh")
    return folder / "model.mesh"


def test_penalties_from_the_evidence_and_penalties_given(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    options = {"hidden": 4, "solver": "lm", "max_epochs": 7, "tol": 0, "random_state": 0}
    model = MeshRegressor(l2="evidence", warm_start=True, **options).fit(X[:100], y[:100])
    found = model.l2_
    for again in (model, meshnn.load(_saved(model, tmp_path))):
        assert again.set_params(l2="auto", max_epochs=1).fit(X[:100], y[:100]).l2_ == found != 1e-4
        again.set_params(l2=0.5).fit(X[:100], y[:100])
        assert again.set_params(l2="evidence").fit(X[:100], y[:100]).l2_ == pytest.approx(1e-4)  # 0.5 is not reused


@pytest.mark.parametrize("solver", ["auto", "adam", "lm"])
def test_a_warm_start_keeps_the_result_of_the_search(solver, tmp_path, monkeypatch):
    """Samples that the net was trained on cannot be a hold-out set."""
    X, y = load_diabetes(return_X_y=True)
    model = MeshRegressor(4, solver=solver, max_epochs=3, warm_start=True, tol=0, random_state=0)
    model.fit(X[:100], y[:100])
    assert "held-out loss" in model.solver_reason_
    before, found = model.solver_, model.l2_
    monkeypatch.setattr("meshnn.training.trainer.search", lambda *args: pytest.fail("searched again"))
    for again in (model, meshnn.load(_saved(model, tmp_path))):
        again.fit(X[:100], y[:100])
        assert again.solver_ == before
        if before == "adam" or again._solver_state["penalties"] is None:
            assert again.l2_ == found
    model.set_params(solver="sgd").fit(X[:100], y[:100])
    assert model.solver_ == "sgd"


def test_a_converged_fit_continues_with_other_targets():
    """The large damping at convergence belongs to the old targets."""
    X = np.linspace(-1, 1, 50)[:, None]
    options = {"solver": "lm", "l2": 0.0, "tol": 0, "warm_start": True, "random_state": 0, "standardize": False}
    model = MeshRegressor(0, max_epochs=40, **options).fit(X, X[:, 0])
    assert model.history_[-1].learning_rate > 1  # the damping grew until no step lowered the loss
    model.set_params(max_epochs=20).fit(X, 3 - X[:, 0])
    np.testing.assert_allclose(model.predict(X), 3 - X[:, 0], atol=1e-6)


# -- structure policies --------------------------------------------------------------------------------------------


class Own(structure.Policy):
    """A policy that cannot be saved."""

    def busy(self, view, memory):
        return False

    def propose(self, view, memory):
        return None


@pytest.mark.slow
@pytest.mark.parametrize("policies", [
    structure.Prune(to=30, by="movement"), structure.Prune(to=0.4, start="given"), [structure.Prune(np.int64(30))],
    structure.Regrow(fraction=np.float64(0.2)), structure.Sparsify(l1=0.01, threshold=0.01),
    [structure.Grow(to=5, wait=1), structure.Prune(to=20, start="given", begin=0.5, end=0.9)],
])  # fmt: skip
def test_a_loaded_model_changes_its_graph_again(policies, tmp_path):
    X, y = load_iris(return_X_y=True)
    given = Topology.mesh(4, 3, 3, density=0.8, random_state=0)
    for topology in (None, given):
        sizes = {"hidden": 3} if topology is None else {"mesh": topology}
        options = sizes | {"structure": policies, "max_epochs": 6, "tol": 0}
        model = MeshClassifier(solver="adam", random_state=0, **options).fit(X, y)
        again = meshnn.load(_saved(model, tmp_path))
        assert again.structure == policies
        assert again.mesh == topology
        assert again.fit(X, y).mesh_.topology == model.mesh_.topology
        assert (again.mesh_.weights == model.mesh_.weights).all()


def test_a_policy_that_a_file_cannot_hold_is_asked_for(tmp_path):
    X, y = load_iris(return_X_y=True)
    for policies in (Own(), [structure.Prune(to=20), Own()]):
        model = MeshClassifier(3, structure=policies, solver="adam", max_epochs=2, random_state=0).fit(X, y)
        again = meshnn.load(_saved(model, tmp_path))
        again = meshnn.load(_saved(again, tmp_path))  # it also survives a second file
        assert (again.predict(X) == model.predict(X)).all()
        with pytest.raises(
            MeshError, match=r"was trained with the policy Own, which its file cannot hold; call set_params\(struct"
        ):
            again.fit(X, y)
        assert again.set_params(structure=None).fit(X, y).mesh_.topology.n_edges == Topology.mesh(4, 3, 3).n_edges
    tree = storage.read(_saved(model, tmp_path))
    tree["parameters"]["structure"] = {"single": True, "policies": [{"kind": "Prune", "to": -3}]}
    storage.write(tmp_path / "old.mesh", tree)
    with pytest.raises(MeshError, match="does not hold a valid classifier"):
        meshnn.load(tmp_path / "old.mesh")

"""Models that are fitted again: nothing of the old one stays that does not fit, nothing is lost that should stay."""

import pandas as pd
import pytest
from sklearn.datasets import load_iris

import meshnn
from commands import meshnn as command


@pytest.fixture(scope="module")
def from_a_table(tmp_path_factory):
    """Iris, and the file of a model that `meshnn fit` made of it."""
    folder = tmp_path_factory.mktemp("refits")
    iris = load_iris(as_frame=True)
    frame = iris.frame.drop(columns="target").assign(species=iris.target_names[iris.target])
    frame.to_csv(folder / "iris.csv", index=False)
    done = command("fit", folder / "iris.csv", "-y", "species", "-n", 3, "--epochs", 20, "-o", folder / "iris.mesh")
    assert done.returncode == 0, done.stderr
    return frame, folder / "iris.mesh"


# -- what a table became -------------------------------------------------------------------------------------------


def test_another_fit_forgets_how_the_table_became_features(from_a_table, tmp_path):
    frame, path = from_a_table
    X, y = frame.drop(columns="species"), frame.species
    for columns in (X.columns[::-1], X.columns[:2]):
        model = meshnn.load(path).fit(X[columns], y)
        assert not hasattr(model, "encoder_")
        assert not hasattr(model, "target_")
        assert model.score(X[columns], y) > 0.7
        model.save(tmp_path / "again.mesh")
        assert (meshnn.load(tmp_path / "again.mesh").predict(X[columns]) == model.predict(X[columns])).all()
    model = meshnn.load(path)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:3])
    assert (model.predict(X) == meshnn.load(path).predict(X)).all()  # a fit that is refused changes nothing


def test_what_goes_on_sees_the_features_that_predicting_sees(from_a_table):
    frame, path = from_a_table
    mixed = frame[frame.columns[::-1]]
    X, y = mixed.drop(columns="species"), mixed.species

    def warm(model, X):
        return model.set_params(warm_start=True, max_epochs=1).fit(X, y)

    def stream(model, X):
        return model.set_params(solver="adam").partial_fit(X, y)

    for go_on in (warm, stream):
        by_name, in_order = (go_on(meshnn.load(path), features) for features in (X, X[X.columns[::-1]].to_numpy()))
        assert by_name.encoder_.feature_names == list(frame.columns[:-1])
        assert (by_name.mesh_.weights == in_order.mesh_.weights).all()

"""Hold-out samples passed by the user, and scores instead of the loss."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.metrics import balanced_accuracy_score, mean_absolute_error

import meshnn
from meshnn import MeshClassifier, MeshError, MeshRegressor
from meshnn.training import Checkpoint, EarlyStopping

X, Y = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(150)
LEARN, HOLD = ORDER[:100], ORDER[100:]
OPTIONS = {"hidden": 4, "random_state": 0, "max_epochs": 30, "solver": "lm", "tol": 0}


def fit(make=MeshClassifier, hold=HOLD, y=Y, **options):
    return make(**OPTIONS | options).fit(X[LEARN], y[LEARN], X_val=X[hold], y_val=y[hold])


def held_out_loss(model):
    margins = model.decision_function(X[HOLD])
    return -(margins - np.logaddexp.reduce(margins, axis=1, keepdims=True))[np.arange(50), Y[HOLD]].mean()


def test_the_weights_that_do_best_on_given_samples_are_kept():
    model = fit(l2=1e-3)
    validation = model.history_["validation"]
    assert len(validation) == 30
    assert held_out_loss(model) == pytest.approx(validation.min(), rel=1e-9)
    # all samples are used for training
    np.testing.assert_allclose(model.preprocessing_.scaling.x_mean, X[LEARN].mean(axis=0))
    plain = MeshClassifier(**OPTIONS, l2=1e-3).fit(X[LEARN], Y[LEARN])
    np.testing.assert_array_equal(model.history_["loss"], plain.history_["loss"])
    both = fit(early_stopping=True, l2=1e-3)  # no other samples are held out
    np.testing.assert_array_equal(both.mesh_.weights, model.mesh_.weights)
    stopped = fit(tol=1e-4, early_stopping=EarlyStopping(validation_fraction=None, patience=3), max_epochs=200)
    assert "validation loss fell by less than" in stopped.history_[-1].note


def test_scores_instead_of_the_loss():
    model = fit(early_stopping=EarlyStopping(scoring="balanced_accuracy"))
    scores = model.history_["validation"]
    assert balanced_accuracy_score(Y[HOLD], model.predict(X[HOLD])) == scores.max()
    seen = []

    def scorer(estimator, features, answers):
        seen.append((features, answers))
        return -mean_absolute_error(answers, estimator.predict(features))

    again = fit(MeshRegressor, early_stopping=EarlyStopping(scoring=scorer))
    assert len(seen) == 30
    np.testing.assert_array_equal(seen[0][0], X[HOLD])
    np.testing.assert_array_equal(seen[0][1], Y[HOLD])
    assert -mean_absolute_error(Y[HOLD], again.predict(X[HOLD])) == again.history_["validation"].max()
    stopped = fit(early_stopping=EarlyStopping(scoring="accuracy", patience=3), tol=1e-4, max_epochs=200)
    assert "the validation score rose by less than 0.0001 in 3 epochs" in stopped.history_[-1].note


def test_tables_sparse_matrices_and_labels():
    frame = pd.DataFrame(X, columns=list("abcd")).assign(e=np.array(["x", "y"])[ORDER % 2])
    options = OPTIONS | {"max_epochs": 4, "early_stopping": EarlyStopping(scoring="accuracy")}
    model = MeshClassifier(**options).fit(frame.iloc[LEARN], Y[LEARN], X_val=frame.iloc[HOLD, ::-1], y_val=Y[HOLD])
    assert model.history_["validation"].max() == model.score(frame.iloc[HOLD], Y[HOLD])
    assert model.feature_names_in_.tolist() == list("abcde")
    thin = sparse.csr_array(X)
    model = MeshClassifier(**options).fit(thin[LEARN], Y[LEARN], X_val=thin[HOLD], y_val=Y[HOLD])
    assert model.history_["validation"].max() == model.score(thin[HOLD], Y[HOLD])
    labels = np.stack([Y > 0, Y > 1], axis=1).astype(int)
    model = fit(y=labels, **options)
    assert model.history_["validation"].max() == model.score(X[HOLD], labels[HOLD])
    column = MeshRegressor(**OPTIONS | {"max_epochs": 2}).fit(X[LEARN], Y[LEARN], X_val=X[HOLD], y_val=Y[HOLD][:, None])
    assert column.predict(X).shape == (150,)  # the shape of y


def test_checkpoints_and_files(tmp_path):
    path = tmp_path / "run.mesh"
    options = {"max_epochs": 6, "early_stopping": EarlyStopping(scoring="accuracy")}
    whole = fit(**options)
    options["callbacks"] = Checkpoint(path)
    np.testing.assert_array_equal(fit(**options).mesh_.weights, whole.mesh_.weights)
    assert fit(**options).history_ == whole.history_
    with pytest.raises(MeshError, match="another X_val, y_val"):
        fit(hold=HOLD[1:], **options)
    with pytest.raises(MeshError, match="another early_stopping"):
        fit(max_epochs=6, callbacks=Checkpoint(path))
    whole.save(path)
    assert meshnn.load(path).early_stopping == EarlyStopping(scoring="accuracy")
    run = tmp_path / "callable.mesh"
    for _ in range(2):  # functions cannot be compared, so a new function counts as a different one
        scored = EarlyStopping(scoring=lambda model, X, y: 0.0)
        fit(early_stopping=scored, max_epochs=2, callbacks=Checkpoint(run))
    fit(early_stopping=scored, max_epochs=2).save(path)
    assert meshnn.load(path).early_stopping == EarlyStopping()


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ("y_val", lambda: MeshClassifier(**OPTIONS).fit(X, Y, X_val=X)),
        ("features", lambda: MeshClassifier(**OPTIONS).fit(X, Y, X_val=X[:, :2], y_val=Y)),
        ("class 7", lambda: MeshClassifier(**OPTIONS).fit(X, Y, X_val=X, y_val=np.full(150, 7))),
        ("columns", lambda: MeshRegressor(**OPTIONS).fit(X, Y, X_val=X, y_val=X)),
        (
            "held-out",
            lambda: MeshClassifier(**OPTIONS, early_stopping=EarlyStopping(None, scoring="accuracy")).fit(X, Y),
        ),
        ("accurracy", lambda: fit(early_stopping=EarlyStopping(scoring="accurracy"))),
        ("scoring", lambda: fit(early_stopping=EarlyStopping(scoring=["accuracy"]))),
        ("nan", lambda: fit(early_stopping=EarlyStopping(scoring=lambda model, X, y: float("nan")))),
    ],
)
def test_what_is_refused(value, call):
    with pytest.raises(ValueError, match=value):
        call()

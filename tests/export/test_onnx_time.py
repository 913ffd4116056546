"""Sequences and streams as ONNX, and meshes in pipelines of scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
from onnx_cases import FEW, close, run, session, stream_of, table
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from meshnn import (
    MeshClassifier,
    MeshRegressor,
    MeshSequenceClassifier,
    MeshSequenceRegressor,
    MeshStreamClassifier,
    MeshStreamRegressor,
)  # fmt: skip
from meshnn.estimators.sequences import Reading
from meshnn.export import ExportError
from meshnn.export.onnx.net import state_neurons


@pytest.fixture(scope="module")
def sequences():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((8, 7, 2)) * 3 + 1
    return X, rng.integers(0, 3, 8), rng.integers(0, 3, (8, 7))


def by_steps(runs, X, lag):
    """Return the outputs of all calls: one per step, and `lag` more with the last step held.

    X has the shape (steps, samples, features).
    """
    names = [value.name for value in runs.get_outputs()]
    widths = [value.shape[1] for value in runs.get_inputs() if value.name == "state_in"]
    feed = {"state_in": np.zeros((X.shape[1], *widths))} if widths else {}
    answers = []
    for t in range(len(X) + lag):
        found = dict(zip(names, runs.run(None, feed | {"features": X[min(t, len(X) - 1)]}), strict=True))
        if widths:
            feed = {"state_in": found.pop("state_out")}
        answers.append(found)
    return answers


@pytest.mark.parametrize("readout", ["last", "mean", "all"])
@pytest.mark.parametrize("kind", [MeshSequenceClassifier, MeshSequenceRegressor])
def test_sequences(sequences, kind, readout):
    X, y, each = sequences
    classes = kind is MeshSequenceClassifier
    model = kind(5, readout=readout, activation=["tanh", "sigmoid", "relu", "tanh", "sin"], **FEW)
    model.fit(X, each * (1 if classes else 1.5) if readout == "all" else y)
    name, options = ("probabilities", {"zipmap": False}) if classes else ("variable", {})
    turned = X.transpose(1, 0, 2)
    for per_step, delay in ((1, 0), (1, 2), (2, 1), (2, 3), (3, 2)):
        model.preprocessing_ = replace(model.preprocessing_, reading=Reading.of(per_step, delay, readout))
        want = np.asarray(model.predict_proba(X) if classes else model.predict(X)[..., None])
        whole = run(model.to_onnx(dtype="float64", sequence=True, **options), turned)[name]
        np.testing.assert_allclose(whole.swapaxes(0, 1) if readout == "all" else whole, want, atol=1e-6)
        lag = 0 if readout == "last" else -(-delay // per_step)
        answers = by_steps(session(model.to_onnx(dtype="float64", **options)), turned, lag)
        if readout == "all":
            stepped = np.stack([answer[name] for answer in answers[lag:]], axis=1)
        else:
            stepped = answers[-1][name]
        np.testing.assert_allclose(stepped, want, atol=1e-6)
        if readout == "last":  # also the readout of the steps so far
            part = model.predict_proba(X[:, :3]) if classes else model.predict(X[:, :3])[:, None]
            np.testing.assert_allclose(answers[2][name], part, atol=1e-6)


def test_labels_of_all_steps(sequences):
    X, _, each = sequences
    model = MeshSequenceClassifier(4, readout="all", **FEW).fit(X, np.array(["a", "b", "c"])[each])
    found = run(model.to_onnx(dtype="float64", sequence=True), X.transpose(1, 0, 2))
    np.testing.assert_array_equal(found["label"].T, model.predict(X))
    with pytest.raises(ExportError, match="all steps"):
        model.to_onnx(sequence=True, zipmap=True)


@pytest.mark.parametrize("memory", ["none", "carry"])
@pytest.mark.parametrize("classes", [["no", "yes"], [5, 3, 4], None, "poisson"])
def test_streams(memory, classes):
    options = {"hidden": 6, "memory": memory, "random_state": 0}
    if classes is None or classes == "poisson":
        model = MeshStreamRegressor(loss=classes or "squared_error", **options)
    else:
        model = MeshStreamClassifier(**options)
    stream_of(model, None if classes == "poisson" else classes)
    labelled = isinstance(model, MeshStreamClassifier)
    runs = session(model.to_onnx(dtype="float64", **({"zipmap": False} if labelled else {})))
    names = [value.name for value in runs.get_outputs()]
    assert ("state_out" in names) == (memory == "carry")
    state = {"state_in": model.stream_.room.s[:, state_neurons(model.blueprint())].copy()} if memory == "carry" else {}
    rng = np.random.default_rng(1)
    for k in range(12):
        row = [rng.standard_normal() * 2 + 10, rng.standard_normal(), 0.5]
        row[0] = {3: np.nan, 5: np.inf, 7: 1e30, 9: -1e30}.get(k, row[0])
        x = {name: v for name, v in zip(("a", "b", "same"), row, strict=True) if np.isfinite(v)}
        found = dict(zip(names, runs.run(None, state | {"features": np.array([row])}), strict=True))
        if labelled:
            np.testing.assert_allclose(found["probabilities"][0], [*model.predict_proba_one(x).values()], atol=1e-6)
            assert found["label"].tolist() == [model.predict_one(x)]
        else:
            np.testing.assert_allclose(found["variable"][0, 0], model.predict_one(x), rtol=1e-6)
        if memory == "carry":  # the library advances its state without training
            moments = model.stream_.room.x_moments.copy()
            model.stream_.step([v if np.isfinite(v) else np.nan for v in row])
            model.stream_.room.x_moments[:] = moments
            state = {"state_in": found["state_out"]}


@pytest.mark.parametrize("readout", ["last", "mean", "all"])
def test_a_missing_step_has_no_answer_from_there_on(sequences, readout):
    X, y, each = sequences
    model = MeshSequenceRegressor(4, activation="relu", readout=readout, **FEW).fit(X, each if readout == "all" else y)
    model.preprocessing_ = replace(model.preprocessing_, reading=Reading.of(1, 0, readout))
    bad = X.transpose(1, 0, 2).copy()
    bad[3, 0, 1] = np.nan
    whole = run(model.to_onnx(dtype="float64", sequence=True), bad)["variable"]
    last = whole if readout != "all" else whole[-1]
    assert np.isnan(last[:, 0]).tolist() == [True] + 7 * [False]
    stepped = [
        np.isnan(answer["variable"][:2, 0]).tolist()
        for answer in by_steps(session(model.to_onnx(dtype="float64")), bad, 0)
    ]
    assert stepped == 3 * [[False, False]] + 4 * [[True, False]]


# -- pipelines -----------------------------------------------------------------------------------------------------


def converted(model, X, **options):
    """Convert with skl2onnx."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="PIPELINES ARE NOT TESTED without skl2onnx: pip install '.[dev]'")
    from meshnn.integrations.skl2onnx import register

    register()  # a second call has no effect
    return skl2onnx.to_onnx(model, X[:1], **options)


def scaled(model, X, y):
    return make_pipeline(StandardScaler(), model).fit(X, y)


@pytest.mark.parametrize("labels", [[0, 1, 2], ["x", "y", "z"]])
def test_pipelines_with_a_classifier(labels):
    X, y = table()
    pipeline = scaled(MeshClassifier(5, **FEW), X, np.array(labels)[y])
    want, mesh = pipeline.predict_proba(X), pipeline[-1]

    def answers(**options):
        return run(converted(pipeline, X, options={MeshClassifier: {"zipmap": False} | options}), X)

    assert answers()["label"].tolist() == pipeline.predict(X).tolist()
    close(answers()["probabilities"], want, "float64")
    scores = mesh.mesh_.forward(mesh.preprocessing_.inputs(pipeline[0].transform(X)))
    close(answers(raw_scores=True)["probabilities"], scores, "float64")
    np.testing.assert_array_equal(answers(nocl=True)["label"], want.argmax(axis=1))
    short = run(converted(pipeline, X.astype("f")), X.astype("f"))
    assert short["output_label"].tolist() == pipeline.predict(X).tolist()
    np.testing.assert_allclose([[*row.values()] for row in short["output_probability"]], want, atol=1e-5)
    with pytest.raises(ExportError, match="float64"):
        converted(pipeline, X)
    with pytest.raises(ExportError, match="opset 15"):
        converted(pipeline, X, options={MeshClassifier: {"zipmap": False}}, target_opset=15)


def test_pipelines_with_regressors_and_several_labels():
    X, y = np.round(table()[0]), table()[1]
    for target in (X[:, 0] * 3, X[:, :2]):
        pipeline = scaled(MeshRegressor(5, **FEW), X, target)
        close(run(converted(pipeline, X), X)["variable"], pipeline.predict(X).reshape(len(X), -1), "float64")
    model, whole = MeshClassifier(5, **FEW).fit(X, np.stack([y > 0, y > 1], axis=1).astype(int)), X.astype(np.int64)
    found = run(converted(model, whole, options={MeshClassifier: {"zipmap": False}}), whole)
    np.testing.assert_array_equal(found["label"], model.predict(X))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)
    with pytest.raises(ExportError, match="several labels"):
        converted(model, X.astype("f"))

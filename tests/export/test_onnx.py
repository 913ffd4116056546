"""Models of ONNX, run by onnxruntime: what comes out is what the library says, and what the oracle says."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
from export_cases import oracle, random_net
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import naive
from cases import ACTIVATION_NAMES, date_columns, rare_and_dated
from meshnn import (
    Mesh,
    MeshClassifier,
    MeshError,
    MeshRegressor,
    MeshSequenceClassifier,
    MeshSequenceRegressor,
    MeshStreamClassifier,
    MeshStreamRegressor,
    Topology,
)
from meshnn.estimators.sequences import Reading
from meshnn.export import ExportError
from meshnn.export.onnx import to_onnx
from meshnn.export.onnx.graph import Graph
from meshnn.export.onnx.net import state_neurons

onnx = pytest.importorskip("onnx", reason="ONNX IS NOT TESTED without onnx: pip install '.[dev]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX IS NOT TESTED without onnxruntime: pip install '.[dev]'")

FEW = {"max_epochs": 2, "solver": "adam", "l2": 0.0, "random_state": 0}


def session(model, checked=True):
    if checked:
        onnx.checker.check_model(model, full_check=True)
    assert {domain.domain for domain in model.opset_import} <= {"", "ai.onnx.ml"}
    if model.producer_name == "meshnn":  # onnxruntime would warn of what nobody reads
        assert {tensor.name for tensor in model.graph.initializer} <= read_by(model.graph)
        large = [tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= 64]
        assert len({(tensor.raw_data, tuple(tensor.dims)) for tensor in large}) == len(large)  # nothing is there twice
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def read_by(graph):
    """Names that nodes read, those in bodies too."""
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return {name for node in graph.node for name in node.input}.union(*map(read_by, bodies))


def run(model, X, checked=True, **more):
    """Outputs by their names."""
    runs = session(model, checked)
    feed = {runs.get_inputs()[0].name: X} | more
    return dict(zip([value.name for value in runs.get_outputs()], runs.run(None, feed), strict=True))


def operators(model):
    return [node.op_type for node in model.graph.node]


# -- nets ----------------------------------------------------------------------------------------------------------


def close(got, want, dtype):
    """To 1e-6 of the largest number, or of 1; in float64 far closer."""
    assert got.dtype == dtype
    assert got.shape == want.shape
    size = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=0, atol=(1e-12 if dtype == "float64" else 1e-6) * size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 500), marks=pytest.mark.slow)])
def test_random_nets(seeds, dtype):
    for seed in seeds:
        mesh, X = random_net(seed)
        found = run(mesh.to_onnx(dtype=dtype, opset=18 + seed % 4), X.astype(dtype))["outputs"]
        close(found, mesh.forward(X), dtype)
        close(found, oracle(mesh, X), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_every_activation_far_from_zero_too(name, dtype):
    mesh = Mesh(Topology(1, 0, 1, [(0, 1)], bias=False), 1, output_activation=name, weights=[1.0], dtype="float64")
    X = np.array([[-800.0], [-90.0], [-3.0], [-1e-3], [0.0], [1e-3], [3.0], [90.0], [800.0]])
    found = run(mesh.to_onnx(dtype=dtype), X.astype(dtype))["outputs"]

    def phi(t):
        return naive.activate(name, t)[0] if abs(t) < 700 else mesh.forward([[t]]).item()  # where math.exp overflows

    np.testing.assert_allclose(found[:, 0], [phi(t) for t in X[:, 0].tolist()], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_many_equal_ticks_are_a_loop(seed):
    mesh, X = random_net(seed, ticks=90)
    close(run(mesh.to_onnx(dtype="float64"), X)["outputs"], mesh.forward(X), "float64")
    model = Mesh(Topology.mesh(2, 5, 2), 500, random_state=0).to_onnx()
    assert "Loop" in operators(model)
    assert len(model.SerializeToString()) < 8000


@pytest.mark.parametrize("ticks", [30, 120])
def test_large_blocks_that_are_nearly_empty(ticks):
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.integers(0, 1203, 3606), np.repeat(np.arange(3, 1205), 3)], axis=1)
    weights = 0.5 * rng.standard_normal(len(np.unique(pairs, axis=0)))
    mesh = Mesh(Topology(2, 1200, 2, np.unique(pairs, axis=0)), ticks, "tanh", weights=weights, dtype="float64")
    model = mesh.to_onnx(dtype="float64")
    assert "ScatterND" in operators(model)
    assert ("Loop" in operators(model)) == (ticks == 120)
    X = rng.standard_normal((3, 2))
    close(run(model, X)["outputs"], mesh.forward(X), "float64")


def test_a_layered_net_is_what_one_would_write_by_hand():
    model = Mesh(Topology.layered([2, 3, 1]), activation="tanh", random_state=0).to_onnx(name="layers")
    assert operators(model) == ["Mul", "ReduceSum", "Gemm", "Tanh", "Gemm", "Add"]  # the first two find missing values
    names = [tensor.name for tensor in model.graph.initializer if tensor.name.startswith("tick")]
    assert names == ["tick1/weights", "tick1/bias", "tick2/weights", "tick2/bias"]
    assert (model.graph.name, model.producer_name, model.opset_import[0].version) == ("layers", "meshnn", 18)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts == {"neurons": "2 inputs, 3 hidden, 1 outputs", "edges": "13", "ticks": "2"}


# -- models --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)) * [1.0, 3.0, 0.01, 100.0] + [0.0, 5.0, 0.02, -300.0]
    return X, rng.integers(0, 3, 60)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("labels", [[0, 1, 2], [7, -1, 2**40], ["a", "ß", "c"], [False, True, True], [1.0, 3.0, 2.0]])
def test_classifiers(table, labels, dtype):
    X, y = table
    X = X.astype(np.float32).astype(np.float64)  # so that both see the same
    model = MeshClassifier(5, **FEW).fit(X, np.array(labels)[y])
    want = model.predict_proba(X)
    plain = run(model.to_onnx(zipmap=False, dtype=dtype), X.astype(dtype))
    assert list(plain) == ["label", "probabilities"]
    assert plain["label"].tolist() == model.predict(X).tolist()
    close(plain["probabilities"], want, dtype)
    zipped = run(model.to_onnx(dtype=dtype), X.astype(dtype))
    assert list(zipped) == ["output_label", "output_probability"]
    assert zipped["output_label"].tolist() == model.predict(X).tolist()
    rows = [[row[label] for label in model.classes_.tolist()] for row in zipped["output_probability"]]
    np.testing.assert_allclose(rows, want, atol=1e-6)


def test_several_labels(table):
    X, y = table
    model = MeshClassifier(5, **FEW).fit(X, np.stack([y > 0, y > 1], axis=1).astype(int))
    found = run(model.to_onnx(dtype="float64"), X)
    np.testing.assert_array_equal(found["label"], model.predict(X))
    close(found["probabilities"], model.predict_proba(X), "float64")
    with pytest.raises(ExportError, match="several labels"):
        model.to_onnx(zipmap=True)


def positive(n_inputs, n_outputs):
    return Mesh(Topology.mesh(n_inputs, 5, n_outputs), activation="tanh", output_activation="softplus", random_state=0)


@pytest.mark.parametrize(
    "options",
    [{}, {"loss": "poisson"}, {"loss": "quantile", "quantile": 0.9}, {"mesh": positive}, {"standardize": False}],
)
def test_regressors(table, options):
    X, _ = table
    X = X if options.get("standardize", True) else X / 100
    for targets in (np.abs(X[:, 1]) * 10 + 50, np.abs(X[:, :2]) + 1):
        model = MeshRegressor(**{"hidden": "auto" if "mesh" in options else 5} | FEW | options).fit(X, targets)
        found = run(model.to_onnx(dtype="float64"), X)["variable"]
        assert found.shape == (60, 1 if targets.ndim == 1 else 2)
        want = model.predict(X).reshape(found.shape)
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


def test_means_far_from_zero_do_not_cost_digits(table):
    X = (table[0][:, :2] + [2e4, 0.0]).astype(np.float32).astype(np.float64)
    model = MeshRegressor(5, **FEW).fit(X, X[:, 0] - 2e4)
    want = model.predict(X)
    got = run(model.to_onnx(), X.astype("f"))["variable"][:, 0]
    np.testing.assert_allclose(got, want, atol=2e-6 * np.abs(want).max())


def test_an_output_that_nothing_reaches_is_the_mean():
    blueprint = replace(
        Mesh(Topology(1, 0, 2, [(0, 2), (1, 3)]), 1, weights=[2.0, 0.0], dtype="float64").blueprint(),
        src=np.array([0]), dst=np.array([2]), weights=np.array([2.0]), bias=True,
        y_mean=np.array([1.0, 7.0]), y_scale=np.array([3.0, 5.0]),
    )  # fmt: skip
    found = run(to_onnx(blueprint, dtype="float64"), np.array([[1.0], [2.0]]))["outputs"]
    np.testing.assert_allclose(found, [[7.0, 7.0], [13.0, 7.0]])


# -- time ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sequences():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((8, 7, 2)) * 3 + 1
    return X, rng.integers(0, 3, 8), rng.integers(0, 3, (8, 7))


def by_steps(runs, X, lag):
    """Answers of all calls: one a step, and `lag` more with the last one held; X is (steps, samples, features)."""
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
        model.preprocessing_ = replace(model.preprocessing_, reading=Reading.of(readout, per_step, delay))
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
        if readout == "last":  # also the answer to what was seen so far
            part = model.predict_proba(X[:, :3]) if classes else model.predict(X[:, :3])[:, None]
            np.testing.assert_allclose(answers[2][name], part, atol=1e-6)


def test_labels_of_all_steps(sequences):
    X, _, each = sequences
    model = MeshSequenceClassifier(4, readout="all", **FEW).fit(X, np.array(["a", "b", "c"])[each])
    found = run(model.to_onnx(dtype="float64", sequence=True), X.transpose(1, 0, 2))
    np.testing.assert_array_equal(found["label"].T, model.predict(X))
    with pytest.raises(ExportError, match="all steps"):
        model.to_onnx(sequence=True, zipmap=True)


def stream_of(model, classes):
    rng = np.random.default_rng(0)
    for _ in range(60):
        a, b = rng.standard_normal(2)
        target = abs(a + b) if classes is None else classes[int(abs(a + b) * 2) % len(classes)]
        model.learn_one({"a": a * 2 + 10, "b": b, "same": 3.0}, target)
    return model


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
        if memory == "carry":  # the library goes on, too, without learning
            moments = model.stream_.room.x_moments.copy()
            model.stream_.step([v if np.isfinite(v) else np.nan for v in row])
            model.stream_.room.x_moments[:] = moments
            state = {"state_in": found["state_out"]}


# -- pipelines -----------------------------------------------------------------------------------------------------


def converted(model, X, **options):
    """By skl2onnx."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="PIPELINES ARE NOT TESTED without skl2onnx: pip install '.[dev]'")
    from meshnn.integrations.skl2onnx import register

    register()  # again does no harm
    return skl2onnx.to_onnx(model, X[:1], **options)


def scaled(model, X, y):
    return make_pipeline(StandardScaler(), model).fit(X, y)


@pytest.mark.parametrize("labels", [[0, 1, 2], ["x", "y", "z"]])
def test_pipelines_with_a_classifier(table, labels):
    X, y = table
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


def test_pipelines_with_regressors_several_labels_and_loops(table):
    X, y = np.round(table[0]), table[1]
    for target in (X[:, 0] * 3, X[:, :2]):
        pipeline = scaled(MeshRegressor(5, **FEW), X, target)
        close(run(converted(pipeline, X), X)["variable"], pipeline.predict(X).reshape(len(X), -1), "float64")
    looped = MeshRegressor(mesh=Topology.mesh(4, 5, 1), ticks=90, activation="tanh", **FEW).fit(X, X[:, 0])
    exported = converted(looped, X)
    assert "Loop" in operators(exported)
    close(run(exported, X)["variable"], looped.predict(X)[:, None], "float64")
    model, whole = MeshClassifier(5, **FEW).fit(X, np.stack([y > 0, y > 1], axis=1).astype(int)), X.astype(np.int64)
    found = run(converted(model, whole, options={MeshClassifier: {"zipmap": False}}), whole)
    np.testing.assert_array_equal(found["label"], model.predict(X))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)
    with pytest.raises(ExportError, match="several labels"):
        converted(model, X.astype("f"))


# -- files and refusals --------------------------------------------------------------------------------------------


def test_files_are_whole(tmp_path):
    mesh, _ = random_net(0)
    model = mesh.to_onnx(tmp_path / "net.onnx", dtype="float64")
    assert onnx.load(tmp_path / "net.onnx") == model
    for path, options, named in (
        (tmp_path / "net.onnx", {"opset": 17}, "opset 17"), (tmp_path / "nowhere" / "net.onnx", {}, "nowhere"),
        (3, {}, "3"), (None, {"opset": 99}, "99"), (None, {"dtype": "float16"}, "float16"),
        (None, {"sequence": True}, "sequence=True"), (None, {"zipmap": True}, "zipmap=True"),
        (None, {"zipmap": "columns"}, "columns"),
    ):  # fmt: skip
        with pytest.raises(MeshError, match=named):
            mesh.to_onnx(path, **options)
    assert onnx.load(tmp_path / "net.onnx") == model
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_models_that_cannot_be_written_are_refused():
    X = np.random.default_rng(0).standard_normal((30, 2))
    huge = MeshRegressor(2, **FEW).fit(X * [1.0, 1e300], X[:, 0])
    huge.to_onnx(dtype="float64")
    wide = Mesh(Topology(1, 0, 1, [(0, 2)]), 1, weights=[1e300], dtype="float64")
    odd = stream_of(MeshStreamClassifier(3, random_state=0), [0.5, 1.0])
    pairs = stream_of(MeshStreamClassifier(3, random_state=0), [(1, 2), "b"])
    for model, named in (
        (huge, "feature 1"), (MeshClassifier(), "fit"), (MeshStreamClassifier(), "learn_one"),
        (wide, "tick1/weights"), (odd, r"0\.5"), (pairs, r"\(1, 2\)"),
    ):  # fmt: skip
        with pytest.raises(ExportError, match=named):
            model.to_onnx()
    with pytest.raises(ExportError, match="GiB"):
        Graph("float32").check_size(2**31)


# -- missing values and text columns -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_missing_features_have_no_answer(table, dtype):
    X, y = table
    bad = X[:4].astype(dtype)
    bad[1, 2], bad[2, 0] = np.nan, np.inf
    for model, name, options in (
        (MeshClassifier(5, activation="relu", **FEW).fit(X, y), "probabilities", {"zipmap": False}),
        (MeshClassifier(5, activation="tanh", **FEW).fit(X, y), "probabilities", {"zipmap": False}),
        (MeshRegressor(5, activation="relu", **FEW).fit(X, X[:, :2]), "variable", {}),
    ):
        found = run(model.to_onnx(dtype=dtype, **options), bad)[name]
        assert np.isnan(found).all(axis=1).tolist() == [False, True, True, False]
        want = (model.predict_proba if options else model.predict)(X[[0, 3]])
        np.testing.assert_allclose(found[[0, 3]], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("readout", ["last", "mean", "all"])
def test_a_missing_step_has_no_answer_from_there_on(sequences, readout):
    X, y, each = sequences
    model = MeshSequenceRegressor(4, activation="relu", readout=readout, **FEW).fit(X, each if readout == "all" else y)
    model.preprocessing_ = replace(model.preprocessing_, reading=Reading.of(readout, 1, 0))
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_text_columns_are_encoded(dtype):
    rng = np.random.default_rng(0)
    towns = np.array(["Ulm", "Bonn", "Ürzig"], dtype=object)
    frame = pandas.DataFrame(
        {"size": rng.normal(size=90), "label": towns[rng.integers(3, size=90)], "sold": rng.random(90) > 0.5}
    )
    y = np.where(frame["label"] == "Ulm", "yes", "no")
    frame.loc[::9, "size"], frame.loc[::7, "label"] = np.nan, None
    model = MeshClassifier(4, **FEW | {"max_epochs": 20}).fit(frame, y)
    frame.loc[1, "label"] = "elsewhere"
    with pytest.warns(match="elsewhere"):
        want = model.predict_proba(frame)
    exported = model.to_onnx(zipmap=False, dtype=dtype)
    assert [value.name for value in exported.graph.input] == ["size", "label_column", "sold"]
    feed = {"label_column": frame[["label"]].fillna("").to_numpy(), "sold": frame[["sold"]].to_numpy(dtype)}
    found = run(exported, frame[["size"]].to_numpy(dtype), **feed)
    np.testing.assert_allclose(found["probabilities"], want, atol=1e-5)
    assert found["label"].tolist() == np.array(model.classes_)[want.argmax(axis=1)].tolist()


@pytest.mark.filterwarnings("ignore:column day holds dates")
def test_rare_texts_share_a_feature_and_dates_are_passed_in_parts():
    frame, y = rare_and_dated()
    with pytest.warns(match="rarest"):
        model = MeshRegressor(4, **FEW).fit(frame, y)
    frame.loc[1, "code"] = "elsewhere"  # as the rare ones
    exported = model.to_onnx(dtype="float64")
    names = [value.name for value in exported.graph.input]
    assert names == ["code", "day.month", "day.weekday", "day.days"]
    feed = dict(zip(names[1:], date_columns(frame["day"]).T[:, :, None], strict=True))
    found = run(exported, frame[["code"]].fillna("").to_numpy(), **feed)["variable"][:, 0]
    np.testing.assert_allclose(found, model.predict(frame), atol=1e-5)


def test_gaps_of_numbers_are_filled():
    X = np.random.default_rng(0).standard_normal((40, 2))
    X[::5, 0] = np.nan
    frame = pandas.DataFrame(X, columns=["a", "b"])
    model = MeshRegressor(3, **FEW).fit(frame, X[:, 1])
    exported = model.to_onnx(dtype="float64")
    facts = {entry.key: entry.value for entry in exported.metadata_props}
    assert facts["features"] == "a, b"
    close(run(exported, X)["variable"][:, 0], model.predict(frame), "float64")


def test_without_onnx(monkeypatch):
    import sys

    mesh, _ = random_net(0)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ExportError, match=r"meshnn\[onnx\]"):
        mesh.to_onnx()
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    from meshnn.integrations.skl2onnx import register

    with pytest.raises(ExportError, match="skl2onnx"):
        register()

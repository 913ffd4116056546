"""ONNX models run by onnxruntime give the outputs of the library and of the oracle."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
from export_cases import oracle, random_net, towns
from onnx_cases import FEW, close, onnx, operators, run, stream_of, table

import naive
from cases import ACTIVATION_NAMES, date_columns, rare_and_dated
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, MeshStreamClassifier, Topology
from meshnn.export import ExportError
from meshnn.export.onnx import to_onnx

# -- nets ----------------------------------------------------------------------------------------------------------


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
        return naive.activate(name, t)[0] if abs(t) < 700 else mesh.forward([[t]]).item()  # math.exp overflows

    np.testing.assert_allclose(found[:, 0], [phi(t) for t in X[:, 0].tolist()], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_many_ticks_store_their_weights_once(seed):
    mesh, X = random_net(seed, ticks=90)
    close(run(mesh.to_onnx(dtype="float64"), X)["outputs"], mesh.forward(X), "float64")
    model = Mesh(Topology.mesh(2, 5, 2), 90, random_state=0).to_onnx()
    assert len(model.graph.initializer) < 25


def test_large_blocks_that_are_nearly_empty():
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.integers(0, 1203, 3606), np.repeat(np.arange(3, 1205), 3)], axis=1)
    weights = 0.5 * rng.standard_normal(len(np.unique(pairs, axis=0)))
    mesh = Mesh(Topology(2, 1200, 2, np.unique(pairs, axis=0)), 30, "tanh", weights=weights, dtype="float64")
    model = mesh.to_onnx(dtype="float64")
    assert "ScatterND" in operators(model)
    X = rng.standard_normal((3, 2))
    close(run(model, X)["outputs"], mesh.forward(X), "float64")


def test_a_layered_net_is_what_one_would_write_by_hand():
    model = Mesh(Topology.layered([2, 3, 1]), activation="tanh", random_state=0).to_onnx(name="layers")
    assert operators(model) == [
        "Mul",
        "ReduceSum",
        "Gemm",
        "Tanh",
        "Gemm",
        "Add",
    ]  # the first two detect missing values
    names = [tensor.name for tensor in model.graph.initializer if tensor.name.startswith("tick")]
    assert names == ["tick1/weights", "tick1/bias", "tick2/weights", "tick2/bias"]
    assert (model.graph.name, model.producer_name, model.opset_import[0].version) == ("layers", "meshnn", 18)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts == {"neurons": "2 inputs, 3 hidden, 1 outputs", "edges": "13", "ticks": "2"}


# -- models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("labels", [[0, 1, 2], [7, -1, 2**40], ["a", "ß", "c"], [False, True, True], [1.0, 3.0, 2.0]])
def test_classifiers(labels, dtype):
    X, y = table()
    X = X.astype(np.float32).astype(np.float64)  # the same inputs for both
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


def test_several_labels():
    X, y = table()
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
def test_regressors(options):
    X, _ = table()
    X = X if options.get("standardize", True) else X / 100
    for targets in (np.abs(X[:, 1]) * 10 + 50, np.abs(X[:, :2]) + 1):
        model = MeshRegressor(**{"hidden": "auto" if "mesh" in options else 5} | FEW | options).fit(X, targets)
        found = run(model.to_onnx(dtype="float64"), X)["variable"]
        assert found.shape == (60, 1 if targets.ndim == 1 else 2)
        want = model.predict(X).reshape(found.shape)
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


def test_means_far_from_zero_do_not_cost_digits():
    X = (table()[0][:, :2] + [2e4, 0.0]).astype(np.float32).astype(np.float64)
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


# -- missing values and text columns -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_missing_features_have_no_answer(dtype):
    X, y = table()
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_text_columns_are_encoded(dtype):
    frame, y = towns()
    model = MeshClassifier(4, **FEW | {"max_epochs": 20}).fit(frame, np.where(y > 0.5, "yes", "no"))
    frame = frame.assign(label=frame["label"].where(frame.index != 1, "elsewhere"))
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
    frame.loc[1, "code"] = "elsewhere"  # treated like a rare level
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

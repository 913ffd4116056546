"""Models in C: classes, values, sequences, streams, missing values, text columns, and the command."""

import ctypes
import shutil

import numpy as np
import pandas
import pytest
from export_cases import iris, of_header, towns
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split

import meshnn
from cases import date_columns, rare_and_dated
from commands import meshnn as run_command
from meshnn import MeshClassifier, MeshRegressor, MeshSequenceClassifier, MeshStreamClassifier
from meshnn.export import CNet, ExportError
from meshnn.export.c.nets import float_outputs

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
FEW = {"random_state": 0, "max_epochs": 3}


def given(net, X):
    """Return features in the types of the header."""
    return X if net.dtype == np.float32 else net.quantise(X)


def test_a_classifier_predicts_the_same(tmp_path):
    (model, X, y), path = iris(), tmp_path / "iris.h"
    report = model.to_c(path, X=X, y=y)
    net = CNet(path)
    np.testing.assert_allclose(net.predict_proba(X), model.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(model.classes_[net.predict(X)], model.predict(X))
    assert f"{model.score(X, y):.4f} in floats" in str(report)
    assert f"{model.score(X, y):.4f} in floats" in path.read_text()
    report = model.to_c(path, X=X, y=y, dtype="int8")
    net = CNet(path)
    coded = net.quantise(X)
    assert f"{(model.classes_[net.predict(coded)] == y).mean():.4f} in int8" in str(report)
    np.testing.assert_array_equal(net.predict_proba(coded).argmax(axis=1), net.predict(coded))


def test_labels_are_numbers_or_escaped_text_of_limited_length(tmp_path):
    """NUL would end a string, */ a comment, and compilers limit the length of strings."""
    path, X = tmp_path / "net.h", np.random.default_rng(0).standard_normal((40, 2))
    MeshClassifier(2, **FEW).fit(X, 10 * (np.arange(40) % 3) - 5).to_c(path)
    number = of_header(path, "net_label", ctypes.c_int, ctypes.c_int)
    assert [number(k) for k in range(3)] == [-5, 5, 15]
    names = np.array(["a\0b", "x" * 5000, "x" * 5000 + "y", '*/ "\\?ß'], dtype=object)
    frame = pandas.DataFrame(X, columns=["n\0*/\n#error", "m" * 5000])
    model = MeshClassifier(2, **FEW).fit(frame, names[np.arange(40) % 4])
    for dtype in ("float32", "int8"):
        model.to_c(path, dtype=dtype)
        assert max(map(len, path.read_text().splitlines())) < 1500
        text = of_header(path, "net_label", ctypes.c_int, ctypes.c_char_p)
        got = [text(k) for k in range(4)]
        assert got[:2] == ['*/ "\\?ß'.encode(), b"a\\0b"]  # in the order of classes_
        assert all(len(label) <= 200 and label.startswith(b"x" * 100) for label in got[2:])
        assert got[2] != got[3]


@pytest.mark.slow
def test_regressors_and_several_labels_predict_the_same(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    two, path = np.stack([y, -0.5 * y], axis=1), tmp_path / "net.h"
    options = {"hidden": 4, "random_state": 0, "max_epochs": 20}
    quantile = {"loss": "quantile", "quantile": 0.9}
    for target, more in ((y, {}), (two, {}), (np.rint(y), {"loss": "poisson"}), (two, quantile)):
        model = MeshRegressor(**options, **more).fit(X, target)
        model.to_c(path)
        np.testing.assert_allclose(CNet(path).predict(X), model.predict(X), rtol=1e-4)
        assert "R2" in str(model.to_c(path, dtype="int16", X=X, y=target))
        net = CNet(path)
        np.testing.assert_allclose(net.predict(net.quantise(X)), model.predict(X), rtol=0.02, atol=0.5)
    model = MeshClassifier(**options).fit(X, np.stack([y > 100, y > 150, y > 200], axis=1).astype(int))
    model.to_c(path)
    np.testing.assert_allclose(CNet(path).predict_proba(X), model.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(CNet(path).predict(X), model.predict(X))


@pytest.mark.parametrize("readout", ["last", "mean", "all"])
def test_sequences_are_read_as_in_python(tmp_path, readout):
    rng, path = np.random.default_rng(0), tmp_path / "net.h"
    X = [rng.standard_normal((int(rng.integers(3, 9)), 2)) for _ in range(20)]
    y = [int(x[:, 0].sum() > 0) for x in X]
    answers = [np.full(len(x), k) for x, k in zip(X, y, strict=True)] if readout == "all" else y
    model = MeshSequenceClassifier(hidden=4, readout=readout, **FEW).fit(X, answers)
    model.to_c(path)
    net = CNet(path)
    for x, p in zip(X, model.predict_proba(X), strict=True):
        net.reset()
        got = net.predict_proba(x)
        np.testing.assert_allclose(got if readout == "all" else got[-1], p, atol=1e-5)
        net.reset()
        np.testing.assert_allclose(net.outputs(x), float_outputs(model.blueprint(), x), atol=1e-4)
    if readout == "mean":
        with pytest.raises(ExportError, match="mean"):
            model.to_c(path, dtype="int8")
        return
    exact = model.to_c(path, dtype="int8", X=np.concatenate(X)).net
    net = CNet(path)
    np.testing.assert_array_equal(net.outputs(net.quantise(X[0])), exact.outputs(exact.coding(X[0])))


@pytest.mark.parametrize("memory", ["none", "carry"])
def test_streams_predict_the_same(tmp_path, memory):
    model = MeshStreamClassifier(hidden=3, memory=memory, random_state=0)
    rows = np.random.default_rng(0).standard_normal((60, 2)) * [1.0, 20.0] + [0.0, 5.0]
    for k, (a, b) in enumerate(rows):
        model.learn_one({"a": a, "b": b, "always": 1.0}, "up" if a > 0 or k % 7 == 0 else "down")
    model.to_c(tmp_path / "net.h")
    X = np.c_[rows[:20, 0], np.ones(20), rows[:20, 1]]  # features are sorted by name
    X[3, 0], X[4, 2] = np.nan, np.inf
    got, stream = CNet(tmp_path / "net.h").predict_proba(X), model.stream_
    stream.reset()
    moments = stream.room.x_moments.copy()
    for x, p in zip(X, got, strict=True):
        want = stream.step(x) if memory == "carry" else stream.peek(x)
        stream.room.x_moments[:] = moments  # C uses the moments at the end of the stream
        np.testing.assert_allclose(p, [1 / (1 + np.exp(-want[0])), 1 / (1 + np.exp(want[0]))], atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_loaded_model_is_quantised_without_samples(tmp_path, dtype):
    """The model stores the ranges of its training rows, so the accuracy is that with samples."""
    X, y = load_digits(return_X_y=True)
    X = X + 0.25 * np.sin(np.arange(64))  # not integers
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    MeshClassifier(hidden=12, random_state=0, max_epochs=20).fit(X, y).save(tmp_path / "digits.mesh")
    model = meshnn.load(tmp_path / "digits.mesh")
    model.to_c(tmp_path / "net.h", dtype=dtype)
    net = CNet(tmp_path / "net.h")
    assert (net.predict(net.quantise(X_test)) == y_test).mean() > model.score(X_test, y_test) - 0.02
    model.partial_fit(X[:100], y[:100])  # partial_fit does not see all rows
    for bare in (model, model.mesh_):
        with pytest.raises(ExportError, match="X="):
            bare.to_c(tmp_path / "none.h", dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int16"])
def test_missing_features_give_no_prediction(tmp_path, dtype):
    """The class is -1, a label 255, probabilities and values are NaN; other rows are not affected."""
    X, path = np.random.default_rng(0).standard_normal((60, 3)), tmp_path / "net.h"
    bad = X[:4].copy()
    bad[1, 2], bad[2, 0] = np.nan, np.inf
    labels = (X > 0).astype(int)
    for model in (
        MeshClassifier(3, **FEW).fit(X, labels[:, 0] + labels[:, 1]),
        MeshClassifier(3, **FEW).fit(X, labels),
        MeshRegressor(3, **FEW).fit(X, X[:, 0]),
        MeshRegressor(3, **FEW).fit(X, X[:, :2]),
    ):
        model.to_c(path, dtype=dtype)
        net = CNet(path)
        got = net.predict(given(net, bad))
        missing = {"i": -1, "u": 255, "f": np.nan}[got.dtype.kind]
        np.testing.assert_array_equal(got[1:3], np.full_like(got[1:3], missing))
        np.testing.assert_array_equal(got[[0, 3]], net.predict(given(net, X[:4]))[[0, 3]])
        if "probabilities" in net.interface["functions"]:
            assert np.isnan(net.predict_proba(given(net, bad))).all(axis=1).tolist() == [False, True, True, False]
        missing = np.nan if dtype == "float32" else -(2**31)
        np.testing.assert_array_equal(net.outputs(given(net, bad))[1:3], np.full((2, net.n_outputs), missing))
    MeshSequenceClassifier(3, **FEW).fit(X.reshape(12, 5, 3), np.arange(12) % 2).to_c(path, dtype=dtype)
    net = CNet(path)
    assert (net.predict(given(net, bad)) < 0).tolist() == [False, True, True, True]  # until init is called
    net.reset()
    assert (net.predict(given(net, X[:4])) >= 0).all()


def codes_of(path, function, texts):
    code = of_header(path, function, ctypes.c_char_p, ctypes.c_float)
    return [code(text.encode() if isinstance(text, str) else None) for text in texts]


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_text_columns_are_encoded(tmp_path, dtype):
    (frame, y), path = towns(), tmp_path / "net.h"
    model = MeshRegressor(4, max_epochs=20, random_state=0).fit(frame, y)
    frame = frame.assign(label=frame["label"].where(frame.index != 1, "elsewhere"))
    model.to_c(path, dtype=dtype)
    assert "NET_LABEL_ULM = 2" in path.read_text()
    rows = np.c_[frame["size"], codes_of(path, "net_code_label", frame["label"]), frame["sold"]]
    assert np.isnan(rows[:, 1]).any()  # a missing value is imputed
    net = CNet(path)
    with pytest.warns(match="elsewhere"):
        want = model.predict(frame)
    np.testing.assert_allclose(
        net.predict(given(net, rows)), want, atol=1e-5 if dtype == "float32" else 0.01 * want.std()
    )


@pytest.mark.filterwarnings("ignore:column day holds dates")
def test_rare_texts_share_a_feature_and_dates_are_passed_in_parts(tmp_path):
    frame, y = rare_and_dated()
    with pytest.warns(match="rarest"):
        model = MeshRegressor(4, max_epochs=20, random_state=0).fit(frame, y)
    frame.loc[1, "code"] = "elsewhere"  # treated like a rare level
    model.to_c(tmp_path / "net.h")
    rows = np.c_[codes_of(tmp_path / "net.h", "net_code_code", frame["code"]), date_columns(frame["day"])]
    np.testing.assert_allclose(CNet(tmp_path / "net.h").predict(rows), model.predict(frame), rtol=1e-4)


def test_the_command_checks_tables_with_texts_and_refuses_options(tmp_path):
    flats, (frame, y) = tmp_path / "flats.mesh", towns()
    MeshRegressor(4, max_epochs=5, random_state=0).fit(frame, y).save(flats)
    for name, *options in (["a.h"], ["a.h", "--dtype", "int8", "--json"], ["a.onnx"]):
        said = run_command("export", flats, "--out", tmp_path / name, "--check", *options)
        assert said.returncode == 0, said.stderr
        assert "1,000 predictions" in said.stdout
    for options, named in (
        (["--out", tmp_path / "b.txt"], ".onnx"),
        (["--out", flats, "--to", "c"], "flats.mesh"),
        (["--out", tmp_path / "c.h", "--target", "species"], "--target"),
        (["--out", tmp_path / "c.h", "--no-tune"], "--no-tune"),
    ):
        said = run_command("export", flats, *options)
        assert said.returncode == 2
        assert named in said.stderr
    assert not (tmp_path / "c.h").exists()

"""Nets as C: bit by bit the same in whole numbers, near the oracle in floats, without warnings, within their bounds."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.model_selection import train_test_split

import boards
import meshnn
import naive
from cases import date_columns, rare_and_dated
from commands import meshnn as run_command
from meshnn import Mesh, MeshClassifier, MeshRegressor, MeshSequenceClassifier, MeshStreamClassifier, Topology
from meshnn.errors import DataError, MeshError
from meshnn.export import CNet, CompilerError, ExportError
from meshnn.export.c.layout import Layout
from meshnn.export.c.nets import IntegerNet, float_outputs, table_of
from meshnn.export.c.quantise import Quantiser
from meshnn.export.c.text import literal
from meshnn.export.c.writer import write_net

gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
ACTIVATIONS = ["tanh", "sigmoid", "relu", "elu", "softplus", "gauss", "sin", "leaky_relu", "identity"]


def random_mesh(rng, acyclic=False):
    """Any graph: cycles, self-loops, dead edges, neurons that nothing reaches."""
    while True:
        n_inputs, n_hidden, n_outputs = (int(rng.integers(*span)) for span in ((1, 6), (0, 8), (1, 4)))
        bias = bool(rng.integers(2))
        first, n = n_inputs + bias, n_inputs + bias + n_hidden + n_outputs
        forward = acyclic or rng.random() < 0.4
        edges = [(i, j) for i in range(n) for j in range(first, n) if rng.random() < 0.5 and (i < j or not forward)]
        kinds = [str(name) for name in rng.choice(ACTIVATIONS, n_hidden)] if n_hidden else "relu"
        try:
            graph = Topology(n_inputs, n_hidden, n_outputs, edges, bias)
            mesh = Mesh(graph, int(rng.integers(1, 6)), kinds, str(rng.choice(ACTIVATIONS)), dtype="float64")
        except MeshError:  # no output can be reached
            continue
        mesh.weights = rng.standard_normal(graph.n_edges) * rng.choice([0.3, 1.0, 2.0])
        return mesh


def by_loops(mesh, X):
    """Outputs by the oracle."""
    t = mesh.topology
    A = mesh.adjacency().toarray().tolist()
    phi = ["identity"] * t.n_clamped + mesh.activations
    found = []
    for x in X:
        clamped = [*x.tolist(), 1.0] if t.bias else x.tolist()
        s = [0.0] * t.n_neurons
        for _ in range(mesh.ticks):
            s[: t.n_clamped] = clamped
            s = [
                s[j] if j < t.n_clamped else naive.activate(phi[j], sum(s[i] * A[i][j] for i in range(t.n_neurons)))[0]
                for j in range(t.n_neurons)
            ]
        found.append(s[-t.n_outputs :])
    return np.array(found)


def samples(rng, n, kind):
    if kind == "real":
        return rng.standard_normal((40, n))
    low, high = (0, 256) if kind == "bytes" else (-9, 10)
    return rng.integers(low, high, (40, n)).astype(float)


def check_integers(mesh, X, bits, optimize, folder):
    net = Quantiser(mesh.blueprint(), X, bits)()
    write_net(net, folder / "net.h", optimize, "net")
    compiled = CNet(folder / "net.h")
    coded = X if net.coding.whole else compiled.quantise(X)
    np.testing.assert_array_equal(coded - net.coding.middle, net.coding(X))
    np.testing.assert_array_equal(compiled.outputs(coded), net.outputs(net.coding(X)))


@gcc
@pytest.mark.parametrize("optimize", ["size", "speed"])
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))])
def test_any_net_in_c(tmp_path, seed, optimize):
    """Floats are near the oracle, whole numbers have the bits of NumPy."""
    rng = np.random.default_rng(1000 + seed)
    for kind in ("real", "bytes", "small"):
        mesh = random_mesh(rng)
        X = samples(rng, mesh.topology.n_inputs, kind)
        for bits in (8, 16):
            check_integers(mesh, X, bits, optimize, tmp_path)
        X = 0.3 * samples(rng, mesh.topology.n_inputs, "real")
        mesh.to_c(tmp_path / "net.h", optimize=optimize)
        got, want = CNet(tmp_path / "net.h").outputs(X), by_loops(mesh, X)
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_whole_numbers_come_near_to_floats(name):
    rng = np.random.default_rng(0)
    mesh = Mesh(Topology.mesh(3, 6, 2), 3, name, dtype="float64", random_state=1)
    X = rng.standard_normal((200, 3))
    want = mesh.forward(X)
    for bits, most in ((8, 0.06), (16, 0.002)):
        quantiser = Quantiser(mesh.blueprint(), X, bits)
        net = quantiser()
        got = net.outputs(quantiser.coding(X)) * net.out_scale
        assert np.sqrt(np.mean((got - want) ** 2)) < most * want.std(), bits


@pytest.mark.parametrize("bits", [8, 16])
def test_tables_are_the_activations(bits):
    for name in ("tanh", "sigmoid", "gauss", "softplus", "elu"):
        table = table_of(name, bits)
        t = np.arange(table.most + 1)
        want = np.array(
            [
                abs(naive.activate(name, (-1 if name in ("softplus", "elu") else 1) * k)[0])
                for k in t / 2**table.fraction
            ]
        )
        np.testing.assert_allclose(table(t) / 2**15, want, atol=0.3 * 2.0**-7 if bits == 8 else 2.0**-12)


@gcc
def test_sums_stay_below_the_bound_that_the_header_names(tmp_path):
    """The worst inputs there are, compiled so that an overflow ends the process; and the bound is nearly met."""
    rng = np.random.default_rng(5)
    mesh = Mesh(Topology.layered([30, 1]), dtype="float64", random_state=0)
    X = rng.integers(-128, 128, (50, 30)).astype(float)
    net = Quantiser(mesh.blueprint(), X, 8)()
    write_net(net, tmp_path / "net.h", "size", "net")
    flags = ("-std=c99", "-O1", "-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error")
    worst = np.where(net.weights[0] > 0, 127, -128)
    got = CNet(tmp_path / "net.h", flags=flags).outputs(np.stack([worst, -worst - 1]))
    assert 0.9 * net.bound[0] < np.abs(got).max() <= net.bound[0]
    assert f"{net.bound.max():,}" in (tmp_path / "net.h").read_text()


@gcc
@pytest.mark.parametrize("bits", [8, 16])
def test_no_inputs_can_make_a_sum_overflow(tmp_path, bits):
    rng = np.random.default_rng(6)
    flags = ("-std=c99", "-O1", "-fsanitize=undefined", "-fno-sanitize=shift", "-fsanitize-undefined-trap-on-error")
    for _ in range(4):
        mesh = random_mesh(rng)
        mesh.weights = mesh.weights * 10
        n = mesh.topology.n_inputs
        net = Quantiser(mesh.blueprint(), samples(rng, n, "small"), bits)()
        write_net(net, tmp_path / "net.h", "size", "net")
        low, high = net.coding.least + net.coding.middle, net.coding.most + net.coding.middle
        X = rng.choice([low, high, 0], (300, n))
        np.testing.assert_array_equal(
            CNet(tmp_path / "net.h", flags=flags).outputs(X), net.outputs(X - net.coding.middle)
        )


def test_a_net_that_could_overflow_is_refused():
    mesh = Mesh(Topology.layered([2, 1], bias=False), dtype="float64", random_state=0)
    net = Quantiser(mesh.blueprint(), np.zeros((3, 2)), 8)()
    with pytest.raises(ExportError, match="4294966528"):
        IntegerNet(
            net.layout, net.coding, 8, [net.weights[0] + 2**24], net.bias, net.shift, net.out_scale, {}, net.step
        )


# -- estimators --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", 'versi"color*/', "virgïnica"])[y]
    return MeshClassifier(hidden=5, random_state=0, max_epochs=60).fit(X, names), X, names


@gcc
def test_a_classifier_predicts_the_same(tmp_path, iris):
    model, X, y = iris
    report = model.to_c(tmp_path / "iris.h", X=X, y=y)
    net = CNet(tmp_path / "iris.h")
    np.testing.assert_allclose(net.predict_proba(X), model.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(model.classes_[net.predict(X)], model.predict(X))
    assert f"{model.score(X, y):.4f} in floats" in str(report)
    assert f"{model.score(X, y):.4f} in floats" in (tmp_path / "iris.h").read_text()
    report = model.to_c(tmp_path / "iris.h", X=X, y=y, dtype="int8")
    net = CNet(tmp_path / "iris.h")
    right = (model.classes_[net.predict(net.quantise(X))] == y).mean()
    assert f"{right:.4f} in int8" in str(report)
    np.testing.assert_array_equal(net.predict_proba(net.quantise(X)).argmax(axis=1), net.predict(net.quantise(X)))


@gcc
def test_labels_are_texts_or_numbers(tmp_path, iris):
    iris[0].to_c(tmp_path / "net.h")
    X, y = load_iris(return_X_y=True)
    MeshClassifier(hidden=3, random_state=0, max_epochs=5).fit(X, 10 * y - 5).to_c(tmp_path / "other.h")
    source = '#include "net.h"\n#include "other.h"\nconst char *text(int k);\n'
    source += "const char *text(int k) { return net_label(k); }\n"
    source += "int number(int k);\nint number(int k) { return (int)other_label(k); }\n"
    library = boards.load(source, {name: (tmp_path / name).read_text() for name in ("net.h", "other.h")})
    library.text.restype = boards.ctypes.c_char_p
    assert [library.text(k).decode() for k in range(3)] == iris[0].classes_.tolist()
    assert [library.number(k) for k in range(3)] == [-5, 5, 15]


@pytest.mark.slow
@gcc
def test_regressors_and_several_labels_predict_the_same(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    two = np.stack([y, -0.5 * y], axis=1)
    quantile = {"loss": "quantile", "quantile": 0.9}
    for target, options in ((y, {}), (two, {}), (np.rint(y), {"loss": "poisson"}), (two, quantile)):
        model = MeshRegressor(hidden=4, random_state=0, max_epochs=20, **options).fit(X, target)
        model.to_c(tmp_path / "net.h")
        np.testing.assert_allclose(CNet(tmp_path / "net.h").predict(X), model.predict(X), rtol=1e-4)
        report = model.to_c(tmp_path / "net.h", dtype="int16", X=X, y=target)
        net = CNet(tmp_path / "net.h")
        np.testing.assert_allclose(net.predict(net.quantise(X)), model.predict(X), rtol=0.02, atol=0.5)
        assert "R2" in str(report)
    labels = np.stack([y > 100, y > 150, y > 200], axis=1).astype(int)
    model = MeshClassifier(hidden=4, random_state=0, max_epochs=20).fit(X, labels)
    model.to_c(tmp_path / "net.h")
    net = CNet(tmp_path / "net.h")
    np.testing.assert_allclose(net.predict_proba(X), model.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(net.predict(X), model.predict(X))


@gcc
@pytest.mark.parametrize("readout", ["last", "mean", "all"])
def test_sequences_are_read_as_in_python(tmp_path, readout):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((int(rng.integers(3, 9)), 2)) for _ in range(20)]
    y = [int(x[:, 0].sum() > 0) for x in X]
    answers = [np.full(len(x), k) for x, k in zip(X, y, strict=True)] if readout == "all" else y
    model = MeshSequenceClassifier(hidden=4, readout=readout, random_state=0, max_epochs=5).fit(X, answers)
    model.to_c(tmp_path / "net.h")
    net, want = CNet(tmp_path / "net.h"), model.predict_proba(X)
    for x, p in zip(X, want, strict=True):
        net.reset()
        got = net.predict_proba(x)
        np.testing.assert_allclose(got if readout == "all" else got[-1], p, atol=1e-5)
        net.reset()
        np.testing.assert_allclose(net.outputs(x), float_outputs(model.blueprint(), x), atol=1e-4)
    if readout == "mean":
        with pytest.raises(ExportError, match='readout="mean"'):
            model.to_c(tmp_path / "net.h", dtype="int8")
        return
    report = model.to_c(tmp_path / "net.h", dtype="int8", X=np.concatenate(X))
    net = CNet(tmp_path / "net.h")
    np.testing.assert_array_equal(net.outputs(net.quantise(X[0])), report.net.outputs(report.net.coding(X[0])))


@gcc
@pytest.mark.parametrize("memory", ["none", "carry"])
def test_streams_predict_the_same(tmp_path, memory):
    rng = np.random.default_rng(0)
    model = MeshStreamClassifier(hidden=3, memory=memory, random_state=0)
    rows = rng.standard_normal((60, 2)) * [1.0, 20.0] + [0.0, 5.0]
    for k, (a, b) in enumerate(rows):
        model.learn_one({"a": a, "b": b, "always": 1.0}, "up" if a > 0 or k % 7 == 0 else "down")
    model.to_c(tmp_path / "net.h")
    net = CNet(tmp_path / "net.h")
    X = np.c_[rows[:20, 0], np.ones(20), rows[:20, 1]]  # features are sorted by name
    X[3, 0], X[4, 2] = np.nan, np.inf
    got, stream = net.predict_proba(X), model.stream_
    stream.reset()
    moments = stream.room.x_moments.copy()
    for x, p in zip(X, got, strict=True):
        want = stream.step(x) if memory == "carry" else stream.peek(x)
        stream.room.x_moments[:] = moments  # C has those of the end
        np.testing.assert_allclose(p, [1 / (1 + np.exp(-want[0])), 1 / (1 + np.exp(want[0]))], atol=1e-5)
    assert "x[2]: b" in (tmp_path / "net.h").read_text()


# -- files, names, refusals --------------------------------------------------------------------------------------------


@gcc
def test_headers_give_no_warnings_in_c_and_in_cpp(tmp_path, iris):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    model, X, _ = iris
    texts = {}
    for k, options in enumerate(
        ({}, {"optimize": "speed"}, {"dtype": "int8", "X": X}, {"dtype": "int16", "X": X, "optimize": "speed"})
    ):
        model.to_c(tmp_path / f"net{k}.h", **options)
        texts[f"net{k}.h"] = (tmp_path / f"net{k}.h").read_text()
    source = "".join(f'#include "net{k}.h"\n' for k in range(4))
    source += "int sum(const float *x);\nint sum(const float *x) { return net0_predict(x) + net1_predict(x); }\n"
    for compiler, flags in (("gcc", "-std=c99 -Os"), ("gcc", "-std=c11 -O3"), ("g++", "-std=c++11 -O2")):
        library = boards.load(source, texts, flags, compiler)
        assert library is not None
    assert all("#include" not in text.replace("#include <stdint.h>", "") for text in texts.values())


def test_dead_edges_and_settled_neurons_cost_nothing():
    layered = Topology.layered([3, 4, 2])
    want = Mesh(layered, 2, random_state=0).blueprint()
    n = layered.n_neurons
    more = [*zip(layered.src.tolist(), layered.dst.tolist(), strict=True), (5, 5), (n - 1, 6)]
    dead = Mesh(Topology(3, 4, 2, more), 2, random_state=0).blueprint()  # a loop and a way back, which come too late
    assert [len(found) for found in want.timetable] == [len(found) for found in dead.timetable] == [4, 2]
    settled = Mesh(layered, 7, random_state=0).blueprint()
    assert [len(found) for found in settled.timetable] == [4, 2, 0, 0, 0, 0, 0]
    assert settled.once
    sizes = [Layout(blueprint, padded=False, size=4).multiply_adds for blueprint in (want, dead, settled)]
    assert sizes == [20, 20, 20]


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"dtype": "int4"}, MeshError, "int4"),
        ({"name": "2 nets"}, ExportError, "2 nets"),
        ({"dtype": "int8", "X": [["a", "b", "c", "d"]]}, DataError, "X"),
        ({"dtype": "int8", "X": np.zeros((5, 3))}, DataError, r"\(n, 4\)"),
        ({"X": np.zeros((5, 4)), "y": ["rose"] * 5}, DataError, "rose"),
        ({"y": [0]}, DataError, "X"),
        ({"dtype": "int8", "learn": True}, ExportError, "int8"),
    ],
)
def test_wrong_options_are_refused(tmp_path, iris, options, error, named):
    with pytest.raises(error, match=named):
        iris[0].to_c(tmp_path / "net.h", **options)
    assert not (tmp_path / "net.h").exists()


def test_models_that_cannot_be_written_are_refused(tmp_path, iris):
    path = tmp_path / "net.h"
    for model in (MeshClassifier(), MeshStreamClassifier()):
        with pytest.raises(ExportError, match=r"fit|learn_one"):
            model.to_c(path)
    with pytest.raises(ExportError, match="20,000"):
        Mesh(Topology.layered([200, 200, 2]), random_state=0).to_c(path, optimize="speed")
    X = np.random.default_rng(0).standard_normal((30, 1))
    with pytest.raises(MeshError, match=r"e\+2"):  # no float holds such features
        MeshRegressor(hidden=2, max_epochs=2, random_state=0).fit(X * 1e300, X[:, 0]).to_c(path)
    assert not path.exists()
    with pytest.raises(MeshError, match="nowhere"):
        iris[0].to_c(tmp_path / "nowhere" / "net.h")


def test_tables_are_counted_as_they_are_written(tmp_path, iris):
    model, X, y = iris
    loops, lines = (model.to_c(tmp_path / "net.h", optimize=optimize) for optimize in ("size", "speed"))
    assert loops.table_bytes > 4 * loops.n_edges
    assert lines.table_bytes == 8 * X.shape[1]  # the weights are in the code, the scaling is not
    one = model.to_c(tmp_path / "net.h", X=X[:1], y=y[:1])
    assert "on the 1 sample passed" in str(one)


@gcc
def test_what_is_no_header_is_refused(tmp_path, iris):
    path = tmp_path / "net.h"
    for text in (None, "int x;\n"):
        if text is not None:
            path.write_text(text)
        with pytest.raises(CompilerError, match=r"net\.h"):
            CNet(path)
    Mesh(Topology.layered([1, 2, 1]), random_state=0).to_c(path, learn=True)
    with pytest.raises(CompilerError, match="CLearner"):
        CNet(path)
    iris[0].to_c(path)
    with pytest.raises(CompilerError, match="no-such-compiler"):
        CNet(path, compiler="no-such-compiler")
    path.write_text(path.read_text().replace("return t;", "return t", 1))
    with pytest.raises(CompilerError, match="error"):
        CNet(path)


# -- ranges, odd names, missing values, text columns -------------------------------------------------------------------


@gcc
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_loaded_model_needs_no_samples(tmp_path, dtype):
    """It keeps the ranges of its training rows, and is as good as with samples."""
    X, y = load_digits(return_X_y=True)
    X = X + 0.25 * np.sin(np.arange(64))  # no whole numbers
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    MeshClassifier(hidden=12, random_state=0, max_epochs=30).fit(X, y).save(tmp_path / "digits.mesh")
    model = meshnn.load(tmp_path / "digits.mesh")
    model.to_c(tmp_path / "net.h", dtype=dtype)
    net = CNet(tmp_path / "net.h")
    assert (net.predict(net.quantise(X_test)) == y_test).mean() > model.score(X_test, y_test) - 0.02
    learned = model.partial_fit(X[:100], y[:100])  # which does not see all rows
    for bare in (learned, model.mesh_, Mesh(Topology.layered([2, 3, 1]), random_state=0)):
        with pytest.raises(ExportError, match="X="):
            bare.to_c(tmp_path / "none.h", dtype=dtype)
    assert not (tmp_path / "none.h").exists()


@gcc
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_odd_class_names_are_escaped_and_bounded(tmp_path, dtype):
    X = np.random.default_rng(0).standard_normal((40, 2))
    names = np.array(["a\0b", "x" * 5000, "x" * 5000 + "y", '*/ "\\?'], dtype=object)
    frame = pandas.DataFrame(X, columns=["n\0*/\n#error", "m" * 5000])
    model = MeshClassifier(2, max_epochs=2, random_state=0).fit(frame, names[np.arange(40) % 4])
    model.to_c(tmp_path / "net.h", dtype=dtype)
    assert max(map(len, (tmp_path / "net.h").read_text().splitlines())) < 1500
    source = '#include "net.h"\nconst char *text(int k);\nconst char *text(int k) { return net_label(k); }\n'
    library = boards.load(source, {"net.h": (tmp_path / "net.h").read_text()})
    library.text.restype = boards.ctypes.c_char_p
    got = [library.text(k) for k in range(4)]
    assert got[:2] == [b'*/ "\\?', b"a\\0b"]  # in the order of classes_
    assert all(len(label) <= 200 and label.startswith(b"x" * 100) for label in got[2:])
    assert got[2] != got[3]


@gcc
@pytest.mark.parametrize("dtype", ["float32", "int8", "int16"])
def test_missing_features_have_no_answer(tmp_path, dtype):
    """The class is -1, a label 255, probabilities and values are NaN; other rows stay as they are."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    bad = X[:4].copy()
    bad[1, 2], bad[2, 0] = np.nan, np.inf
    labels = (X > 0).astype(int)
    for model in (
        MeshClassifier(3, max_epochs=3, random_state=0).fit(X, labels[:, 0] + labels[:, 1]),
        MeshClassifier(3, max_epochs=3, random_state=0).fit(X, labels),
        MeshRegressor(3, max_epochs=3, random_state=0).fit(X, X[:, 0]),
        MeshRegressor(3, max_epochs=3, random_state=0).fit(X, X[:, :2]),
    ):
        model.to_c(tmp_path / "net.h", dtype=dtype)
        net = CNet(tmp_path / "net.h")
        given, good = (x if dtype == "float32" else net.quantise(x) for x in (bad, X[:4]))
        got = net.predict(given)
        missing = {"i": -1, "u": 255, "f": np.nan}[got.dtype.kind]
        np.testing.assert_array_equal(got[1:3], np.full_like(got[1:3], missing))
        np.testing.assert_array_equal(got[[0, 3]], net.predict(good)[[0, 3]])
        if net.n_classes:
            assert np.isnan(net.predict_proba(given)).all(axis=1).tolist() == [False, True, True, False]
        missing = np.nan if dtype == "float32" else -(2**31)
        np.testing.assert_array_equal(net.outputs(given)[1:3], np.full((2, net.n_outputs), missing))
    sequences = MeshSequenceClassifier(3, max_epochs=2, random_state=0).fit(X.reshape(12, 5, 3), np.arange(12) % 2)
    sequences.to_c(tmp_path / "net.h", dtype=dtype)
    net = CNet(tmp_path / "net.h")
    got = net.predict(bad if dtype == "float32" else net.quantise(bad))
    assert (got < 0).tolist() == [False, True, True, True]  # until init
    net.reset()
    assert (net.predict(X[:4] if dtype == "float32" else net.quantise(X[:4])) >= 0).all()


@gcc
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_text_columns_are_encoded(tmp_path, dtype):
    rng = np.random.default_rng(0)
    towns = np.array(["Ulm", 'Bad "Urach"', "Bonn*/", "ulm", "Ürzig"], dtype=object)
    frame = pandas.DataFrame(
        {"size": rng.normal(size=200), "int": towns[rng.integers(5, size=200)], "sold": rng.random(200) > 0.5}
    )
    y = frame["size"] * (frame["int"] == "Ulm") + frame["sold"]
    frame.loc[::9, "size"], frame.loc[::7, "int"] = np.nan, None
    model = MeshRegressor(4, max_epochs=20, random_state=0).fit(frame, y)
    frame.loc[1, "int"] = "elsewhere"
    model.to_c(tmp_path / "net.h", dtype=dtype)
    text = (tmp_path / "net.h").read_text()
    source = (
        '#include "net.h"\nfloat code(const char *text);\nfloat code(const char *text) { return net_code_int(text); }\n'
    )
    library = boards.load(source, {"net.h": text})
    library.code.restype, library.code.argtypes = boards.ctypes.c_float, [boards.ctypes.c_char_p]
    codes = [library.code(town.encode() if isinstance(town, str) else None) for town in frame["int"]]
    assert "NET_INT_ULM = 2" in text
    rows = np.c_[frame["size"], codes, frame["sold"]]
    net = CNet(tmp_path / "net.h")
    got = net.predict(rows if dtype == "float32" else net.quantise(rows))
    with pytest.warns(match="elsewhere"):
        want = model.predict(frame)
    np.testing.assert_allclose(got, want, atol=1e-5 if dtype == "float32" else 0.01 * want.std())
    assert np.isfinite(codes).sum() < 200  # a gap is NaN, and is filled


@gcc
@pytest.mark.filterwarnings("ignore:column day holds dates")
def test_rare_texts_share_a_feature_and_dates_are_passed_in_parts(tmp_path):
    frame, y = rare_and_dated()
    with pytest.warns(match="rarest"):
        model = MeshRegressor(4, max_epochs=20, random_state=0).fit(frame, y)
    frame.loc[1, "code"] = "elsewhere"  # as the rare ones
    model.to_c(tmp_path / "net.h")
    source = '#include "net.h"\nfloat code(const char *t);\nfloat code(const char *t) { return net_code_code(t); }\n'
    library = boards.load(source, {"net.h": (tmp_path / "net.h").read_text()})
    library.code.restype, library.code.argtypes = boards.ctypes.c_float, [boards.ctypes.c_char_p]
    codes = [library.code(text.encode() if isinstance(text, str) else None) for text in frame["code"]]
    rows = np.c_[codes, date_columns(frame["day"])]
    np.testing.assert_allclose(CNet(tmp_path / "net.h").predict(rows), model.predict(frame), rtol=1e-4)


# -- the command -------------------------------------------------------------------------------------------------------


@gcc
def test_the_command_writes_and_checks(tmp_path):
    model = tmp_path / "iris.mesh"
    X, y = load_iris(return_X_y=True)
    MeshClassifier(hidden=4, random_state=0, max_epochs=30).fit(X, y).save(model)
    for options in ([], ["--dtype", "int8", "--json"]):
        said = run_command("export", model, "--out", tmp_path / "a.h", "--check", *options)
        assert said.returncode == 0, said.stderr
        assert "1,000 predictions" in said.stdout
    assert '"dtype": "int8"' in said.stdout
    for options, named in (
        (["--out", tmp_path / "b.txt"], ".onnx"),
        (["--out", model, "--to", "c"], "iris.mesh"),
        (["--out", tmp_path / "c.h", "--target", "species"], "--target"),
        (["--out", tmp_path / "c.h", "--no-tune"], "--no-tune"),
    ):
        said = run_command("export", model, *options)
        assert said.returncode == 2
        assert named in said.stderr
    assert not (tmp_path / "c.h").exists()


@gcc
def test_the_command_exports_text_columns(tmp_path):
    table, model = tmp_path / "flats.csv", tmp_path / "flats.mesh"
    rows = [f"{k % 7},{'Ulm' if k % 3 else 'Bonn'},{k % 7 + 5 * (k % 3 > 0)}.5" for k in range(60)]
    table.write_text("\n".join(["size,city,price", *rows]))
    assert run_command("fit", table, "--target", "price", "--out", model, "--max-epochs", "20").returncode == 0
    for options in (["flats.h"], ["flats.h", "--dtype", "int8"], ["flats.onnx"]):
        said = run_command("export", model, "--check", "--out", tmp_path / options[0], *options[1:])
        assert said.returncode == 0, said.stderr
        assert "1,000 predictions" in said.stdout


# -- boards ------------------------------------------------------------------------------------------------------------


def digits():
    """A net of 64-12-10 that was trained on three quarters of the digits, and the rest of them."""
    X, y = load_digits(return_X_y=True)
    a, b, _, truth = train_test_split(X, y, test_size=0.25, random_state=0)
    return meshnn.load(Path(__file__).parents[1] / "files" / "digits.mesh"), a, b, truth


CALLED = "{text}\nextern {kind} x[{n}]; {kind} x[{n}];\nextern volatile int k; volatile int k;\n"


@pytest.mark.slow
def test_digits_in_one_and_a_half_kilobytes(tmp_path):
    """At least 0.97 in int8, at most 1.5 kB of flash with code, at most 4,000 instructions on a Cortex-M3."""
    model, train, test, truth = digits()
    model.to_c(tmp_path / "net.h", dtype="int8", X=train)
    headers = {"net.h": (tmp_path / "net.h").read_text()}
    assert (CNet(tmp_path / "net.h").predict(test) == truth).mean() >= 0.97
    before = CALLED.format(text='#include "net.h"', kind="int8_t", n=64)
    main = f"{before}int main(void) {{ k = net_predict(x); return 0; }}\n"
    built = boards.build("m3", main, headers, "-std=c99 -O2")
    sizes = {name: size for name, size in built.symbols().items() if name.startswith("net_")}
    assert 900 < sum(sizes.values()) <= 1536, sizes
    assert boards.instructions("m3", "", "k = net_predict(x);", headers, "-std=c99 -O2", before) <= 4000


def printing(kind, X, calls, n_outputs):
    """A program that prints the outputs for some samples."""
    rows = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in X)
    out = "int32_t" if kind.startswith("int") else "float"
    return f"""{boards.SAY}#include "net.h"
static const {kind} samples[{len(X)}][{len(X[0])}] = {{{rows}}};
int main(void) {{
    int i, j;
    {out} y[{n_outputs}];
    for (i = 0; i < {len(X)}; i++) {{
        {calls}
        for (j = 0; j < {n_outputs}; j++) {{
            uint32_t bits;
            __builtin_memcpy(&bits, &y[j], 4);
            say_bits(bits);
        }}
    }}
    return 0;
}}
"""


def said_words(text):
    return [int(word, 16) for word in re.findall(r"^[0-9a-f]{8}\r?$", text, re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.parametrize("board", ["m3", "m4f"])
def test_floats_have_the_same_bits_on_every_processor(tmp_path, board):
    rng = np.random.default_rng(4)
    mesh = Mesh(Topology.mesh(3, 9, 2), 4, ACTIVATIONS, "tanh", random_state=0)
    X = rng.standard_normal((30, 3)).astype(np.float32)
    mesh.to_c(tmp_path / "net.h")
    want = CNet(tmp_path / "net.h").outputs(X).view(np.uint32).ravel().tolist()
    program = printing("float", [[literal(v) for v in row] for row in X], "net_outputs(samples[i], y);", 2)
    for flags in ("-std=c99 -O2", "-std=gnu99 -O3", "-std=c99 -Os"):
        said = boards.build(board, program, {"net.h": (tmp_path / "net.h").read_text()}, flags).run()
        assert said_words(said) == want, flags


@pytest.mark.slow
def test_sixty_edges_run_on_eight_bits(tmp_path):
    """An ATmega2560: the bits of Python, tables in flash."""
    rng = np.random.default_rng(4)
    mesh = Mesh(Topology.layered([4, 8, 2]), 2, "tanh", random_state=0)
    assert mesh.topology.n_edges == 58
    X = rng.standard_normal((10, 4))
    for dtype in ("int8", "int16"):
        report = mesh.to_c(tmp_path / "net.h", dtype=dtype, X=X)
        coded = report.net.coding(X)
        want = report.net.outputs(coded).astype(np.int32).view(np.uint32).ravel().tolist()
        program = printing(f"{dtype}_t", coded.tolist(), "net_outputs(samples[i], y);", 2)
        built = boards.build("avr", program, {"net.h": (tmp_path / "net.h").read_text()}, "-std=c99 -Os")
        assert said_words(built.run()) == want
        assert built.sizes()["data"] < 16 + 10 * 4 * 2  # the samples, and nothing of the net
    mesh.to_c(tmp_path / "net.h")
    few = X[:3].astype(np.float32)
    program = printing("float", [[literal(v) for v in row] for row in few], "net_outputs(samples[i], y);", 2)
    built = boards.build("avr", program, {"net.h": (tmp_path / "net.h").read_text()}, "-std=c99 -Os")
    want = CNet(tmp_path / "net.h").outputs(few).view(np.uint32).ravel().tolist()
    assert said_words(built.run()) == want

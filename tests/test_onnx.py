"""Models of ONNX, run by onnxruntime: what comes out is what the library says, and what the oracle says."""

from dataclasses import replace

import numpy as np
import pytest

import naive
from cases import ACTIVATION_NAMES, repair
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
from meshnn.export import onnx_graph, onnx_net, onnx_sums
from meshnn.export.blueprint import ExportError
from meshnn.export.onnx_activations import activate
from meshnn.export.onnx_time import state_neurons

onnx = pytest.importorskip("onnx", reason="ONNX IS NOT TESTED without onnx: pip install '.[dev]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX IS NOT TESTED without onnxruntime: pip install '.[dev]'")

FEW = {"max_epochs": 2, "solver": "adam", "l2": 0.0, "random_state": 0}


def session(model, checked=True):
    if checked:
        onnx.checker.check_model(model, full_check=True)
    assert {domain.domain for domain in model.opset_import} <= {"", "ai.onnx.ml"}
    if model.producer_name == "meshnn":  # onnxruntime would warn of what nobody reads
        assert {tensor.name for tensor in model.graph.initializer} <= read_by(model.graph)
        large = [tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= onnx_graph.SHARED]
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


def random_net(seed, ticks=None):
    """Cycles, self-loops, dead edges, ties, every activation."""
    rng = np.random.default_rng(seed)
    n_inputs, n_hidden, n_outputs = rng.integers(1, 4), rng.integers(0, 7), rng.integers(1, 4)
    bias, ticks = bool(rng.integers(2)), int(rng.integers(1, 7)) if ticks is None else ticks
    n = n_inputs + bias + n_hidden + n_outputs
    pairs = np.argwhere(rng.random((n, n)) < rng.choice([0.1, 0.3, 0.6, 1.0])).tolist()
    topology = repair(int(n_inputs), int(n_hidden), int(n_outputs), bias, pairs, ticks)
    hidden = [ACTIVATION_NAMES[k] for k in rng.integers(0, 9, n_hidden)]
    fan_in = np.maximum(np.bincount(topology.dst, minlength=n), 1)[topology.dst]
    weights = rng.standard_normal(topology.n_edges) * 1.2 / np.sqrt(fan_in)
    parameter = None
    if rng.integers(2):  # of each pair of edges one weight
        parameter = np.arange(topology.n_edges) // 2
        weights = weights[: parameter[-1] + 1][parameter]
    output = ACTIVATION_NAMES[rng.integers(9)]
    mesh = Mesh(topology, ticks, hidden, output, weights=weights, tied=parameter, dtype="float64")
    return mesh, rng.standard_normal((5, n_inputs))


def close(got, want, dtype):
    """To 1e-6 of the largest number, or of 1; in float64 far closer."""
    assert got.dtype == dtype
    assert got.shape == want.shape
    size = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=0, atol=(1e-12 if dtype == "float64" else 1e-6) * size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 1000), marks=pytest.mark.slow)])
def test_random_nets(seeds, dtype):
    for seed in seeds:
        mesh, X = random_net(seed)
        close(run(mesh.to_onnx(dtype=dtype), X.astype(dtype))["outputs"], mesh.forward(X), dtype)


@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_says_the_same(seed):
    mesh, X = random_net(1000 + seed)
    t = mesh.topology
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src, t.dst] = mesh.weights
    names = ["identity"] * t.n_clamped + mesh.activations
    want = []
    for x in X.tolist():
        states, _ = naive.run(A.tolist(), t.n_clamped, t.n_outputs, names, [[*x, 1.0][: t.n_clamped]] * mesh.ticks)
        want.append(states[-1][-t.n_outputs :])
    close(run(mesh.to_onnx(dtype="float64"), X)["outputs"], np.array(want), "float64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_every_activation_far_from_zero_too(name, dtype):
    mesh = Mesh(Topology(1, 0, 1, [(0, 1)], bias=False), 1, output_activation=name, weights=[1.0], dtype="float64")
    X = np.array([[-800.0], [-90.0], [-3.0], [-1e-3], [0.0], [1e-3], [3.0], [90.0], [800.0]])
    found = run(mesh.to_onnx(dtype=dtype), X.astype(dtype))["outputs"]

    def phi(t):
        return naive.activate(name, t)[0] if abs(t) < 700 else mesh.forward([[t]]).item()  # where math.exp overflows

    np.testing.assert_allclose(found[:, 0], [phi(t) for t in X[:, 0].tolist()], rtol=1e-6, atol=1e-6)


def test_many_equal_ticks_are_a_loop(monkeypatch):
    monkeypatch.setattr(onnx_net, "LOOP", 4)
    looped = 0
    for seed in range(25):
        mesh, X = random_net(seed, ticks=12)
        model = mesh.to_onnx(dtype="float64")
        looped += "Loop" in operators(model)
        close(run(model, X)["outputs"], mesh.forward(X), "float64")
    assert looped > 5
    monkeypatch.undo()
    mesh = Mesh(Topology.mesh(2, 5, 2), 500, random_state=0)
    assert len(mesh.to_onnx().SerializeToString()) < 5000


def test_large_blocks_that_are_nearly_empty(monkeypatch):
    monkeypatch.setattr(onnx_sums, "SPARSE_ENTRIES", 6)
    monkeypatch.setattr(onnx_sums, "SPARSE_TIMES", 1)
    sparse = 0
    for seed in range(25):
        mesh, X = random_net(seed)
        model = mesh.to_onnx(dtype="float64")
        sparse += "ScatterND" in operators(model)
        close(run(model, X)["outputs"], mesh.forward(X), "float64")
    assert sparse > 2
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.integers(0, 1203, 3606), np.repeat(np.arange(3, 1205), 3)], axis=1)
    mesh = Mesh(Topology(2, 1200, 2, np.unique(pairs, axis=0)), 30, random_state=0)
    model = mesh.to_onnx()
    assert "ScatterND" in operators(model)
    X = rng.standard_normal((3, 2)).astype(np.float32)
    close(run(model, X)["outputs"], mesh.forward(X), "float32")


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_that_are_read(sparse, monkeypatch):
    """Few columns of a tensor are picked before they are multiplied; also in loops."""
    monkeypatch.setattr(onnx_net, "LOOP", 4)
    monkeypatch.setattr(onnx_sums, "SPARSE_ENTRIES", 2 if sparse else 2**60)
    monkeypatch.setattr(onnx_sums, "SPARSE_TIMES", 0)
    monkeypatch.setattr(onnx_sums, "FEW", 1.0)
    monkeypatch.setattr(onnx_sums, "SAVED", 0)
    picked = 0
    for seed in range(15):
        mesh, X = random_net(seed, ticks=12)
        model = mesh.to_onnx(dtype="float64")
        picked += any(node.output[0].endswith("/picked") and node.op_type == "Gather" for node in model.graph.node)
        close(run(model, X)["outputs"], mesh.forward(X), "float64")
    assert picked > 2


def test_deep_nets_put_sources_together_once():
    mesh = Mesh(Topology.cascade(3, 12, 2), random_state=0, dtype="float64")
    model = mesh.to_onnx(dtype="float64")
    X = np.random.default_rng(0).standard_normal((4, 3))
    close(run(model, X)["outputs"], mesh.forward(X), "float64")
    joins = [node for node in model.graph.node if node.op_type == "Concat"]
    assert len(joins) <= 12
    assert max(len(node.input) for node in joins[1:]) == 2


def test_a_layered_net_is_what_one_would_write_by_hand():
    model = Mesh(Topology.layered([2, 3, 1]), activation="tanh", random_state=0).to_onnx(name="layers")
    assert operators(model) == ["Gemm", "Tanh", "Gemm"]
    assert [tensor.name for tensor in model.graph.initializer] == [
        "tick1/weights", "tick1/bias", "tick2/weights", "tick2/bias",
    ]  # fmt: skip
    assert (model.graph.name, model.producer_name) == ("layers", "meshnn")
    assert model.opset_import[0].version == 18
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts == {"neurons": "2 inputs, 3 hidden, 1 outputs", "edges": "13", "ticks": "2"}


def test_every_opset_that_is_promised():
    mesh, X = random_net(3)
    for opset in (18, 19, 20, 21):
        model = mesh.to_onnx(opset=opset, dtype="float64")
        assert model.opset_import[0].version == opset
        close(run(model, X)["outputs"], mesh.forward(X), "float64")


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
    with pytest.raises(ExportError, match="zipmap=True is for one class a sample, not for several labels"):
        model.to_onnx(zipmap=True)


@pytest.mark.parametrize(
    "options", [{}, {"loss": "poisson"}, {"output_activation": "softplus"}, {"standardize": False}]
)
def test_regressors(table, options):
    X, _ = table
    X = X if options.get("standardize", True) else X / 100
    for targets in (np.abs(X[:, 1]) * 10 + 50, np.abs(X[:, :2]) + 1):
        model = MeshRegressor(5, **FEW | options).fit(X, targets)
        found = run(model.to_onnx(dtype="float64"), X)["variable"]
        assert found.shape == (60, 1 if targets.ndim == 1 else 2)
        want = model.predict(X).reshape(found.shape)
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


def test_scaling_goes_into_the_weights(table):
    X, _ = table
    model = MeshRegressor(3, activation="tanh", topology=Topology.layered([4, 3, 1]), **FEW).fit(X, 100 + 5 * X[:, 0])
    assert operators(model.to_onnx()) == ["Gemm", "Tanh", "Gemm"]


def test_means_far_from_zero_do_not_cost_digits(table):
    """Dates, for instance: subtracted first, since their product with a weight has no digits left for what varies."""
    X = (table[0][:, :2] + [2e4, 0.0]).astype(np.float32).astype(np.float64)
    model = MeshRegressor(5, **FEW).fit(X, X[:, 0] - 2e4)
    exported = model.to_onnx()
    assert operators(exported)[0] == "Sub"
    want = model.predict(X)
    np.testing.assert_allclose(run(exported, X.astype("f"))["variable"][:, 0], want, atol=2e-6 * np.abs(want).max())


def test_an_output_that_nothing_reaches_is_the_mean():
    """Values are scaled back in the last Gemm: an output that never changes still has its mean."""
    blueprint = replace(
        Mesh(Topology(1, 0, 2, [(0, 2), (1, 3)]), 1, weights=[2.0, 0.0], dtype="float64").blueprint(),
        src=np.array([0]), dst=np.array([2]), weights=np.array([2.0]), bias=True,
        y_mean=np.array([1.0, 7.0]), y_scale=np.array([3.0, 5.0]),
    )  # fmt: skip
    from meshnn.export.onnx import to_onnx

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


def test_states_are_handed_on_as_they_are_computed(sequences):
    X, y, _ = sequences
    activation = ["tanh", "identity", "tanh", "relu", "identity"]
    model = MeshSequenceRegressor(5, activation=activation, **FEW).fit(X, y)
    model.preprocessing_ = replace(model.preprocessing_, reading=Reading.of("last", 1, 0))
    found = model.to_onnx()
    assert "Gather" not in operators(found)  # columns in the order of the tensors, outputs in one of their own
    names = model.mesh_.activations
    facts = {entry.key: entry.value for entry in found.metadata_props}
    state = [int(j) for j in facts["state"].removeprefix("neurons ").split(", ")]
    assert sorted(state) == list(range(3, 8))
    assert [names[j - 3] for j in state] == ["identity", "identity", "relu", "tanh", "tanh"]


def test_labels_of_all_steps(sequences):
    X, _, each = sequences
    model = MeshSequenceClassifier(4, readout="all", **FEW).fit(X, np.array(["a", "b", "c"])[each])
    found = run(model.to_onnx(dtype="float64", sequence=True), X.transpose(1, 0, 2))
    np.testing.assert_array_equal(found["label"].T, model.predict(X))
    with pytest.raises(ExportError, match="not for all steps of sequences"):
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


@pytest.fixture
def convert():
    skl2onnx = pytest.importorskip("skl2onnx", reason="PIPELINES ARE NOT TESTED without skl2onnx: pip install '.[dev]'")
    from meshnn.integrations.skl2onnx import register

    register()
    register()  # again does no harm
    return skl2onnx.to_onnx


@pytest.mark.parametrize("labels", [[0, 1, 2], ["x", "y", "z"]])
def test_pipelines_with_a_classifier(convert, table, labels):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = table
    pipeline = make_pipeline(StandardScaler(), MeshClassifier(5, **FEW)).fit(X, np.array(labels)[y])
    want, mesh = pipeline.predict_proba(X), pipeline[-1]
    asked = {MeshClassifier: {"zipmap": False}}
    found = run(convert(pipeline, X[:1], options=asked), X)
    assert found["label"].tolist() == pipeline.predict(X).tolist()
    close(found["probabilities"], want, "float64")
    short = run(convert(pipeline, X[:1].astype("f")), X.astype("f"))
    assert short["output_label"].tolist() == pipeline.predict(X).tolist()
    np.testing.assert_allclose([[*row.values()] for row in short["output_probability"]], want, atol=1e-5)
    raw = run(convert(pipeline, X[:1], options={MeshClassifier: {"zipmap": False, "raw_scores": True}}), X)
    close(raw["probabilities"], mesh.mesh_.forward(mesh.preprocessing_.inputs(pipeline[0].transform(X))), "float64")
    numbers = run(convert(pipeline, X[:1], options={MeshClassifier: {"zipmap": False, "nocl": True}}), X)
    np.testing.assert_array_equal(numbers["label"], want.argmax(axis=1))
    with pytest.raises(ExportError, match="float64, which its operator does not take; pass options="):
        convert(pipeline, X[:1])
    with pytest.raises(ExportError, match="opset 15 is older than the operators that are needed; pass target_opset=18"):
        convert(pipeline, X[:1], options=asked, target_opset=15)


def test_pipelines_with_a_regressor(convert, table):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, _ = table
    for y in (X[:, 0] * 3, X[:, :2]):
        pipeline = make_pipeline(StandardScaler(), MeshRegressor(5, **FEW)).fit(X, y)
        found = run(convert(pipeline, X[:1]), X)["variable"]
        close(found, pipeline.predict(X).reshape(len(X), -1), "float64")


def test_pipelines_with_several_labels_whole_numbers_and_loops(convert, table, monkeypatch):
    X, y = np.round(table[0]), table[1]
    model = MeshClassifier(5, **FEW).fit(X, np.stack([y > 0, y > 1], axis=1).astype(int))
    found = run(convert(model, X[:1].astype(np.int64), options={MeshClassifier: {"zipmap": False}}), X.astype(np.int64))
    np.testing.assert_array_equal(found["label"], model.predict(X))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)
    with pytest.raises(ExportError, match="zipmap is not for several labels"):
        convert(model, X[:1].astype("f"))
    monkeypatch.setattr(onnx_net, "LOOP", 4)
    looped = MeshRegressor(topology=Topology.mesh(4, 5, 1), ticks=12, **FEW).fit(X, X[:, 0])
    exported = convert(looped, X[:1])
    assert "Loop" in operators(exported)
    close(run(exported, X)["variable"], looped.predict(X)[:, None], "float64")


# -- files and refusals --------------------------------------------------------------------------------------------


def test_files_are_whole(tmp_path):
    mesh, _ = random_net(0)
    model = mesh.to_onnx(tmp_path / "net.onnx", dtype="float64")
    assert onnx.load(tmp_path / "net.onnx") == model
    held = (tmp_path / "net.onnx").read_bytes()
    with pytest.raises(ExportError, match="opset 17 is older than the operators that are needed; pass one from 18 to"):
        mesh.to_onnx(tmp_path / "net.onnx", opset=17)
    assert (tmp_path / "net.onnx").read_bytes() == held
    with pytest.raises(MeshError, match="its directory does not exist; create it first"):
        mesh.to_onnx(tmp_path / "nowhere" / "net.onnx")
    with pytest.raises(MeshError, match="path must be a string or a Path, got 3"):
        mesh.to_onnx(3)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_refusals(monkeypatch):
    mesh, _ = random_net(0)
    with pytest.raises(ExportError, match="opset 99 is not known to this version of onnx; pass one from 18 to"):
        mesh.to_onnx(opset=99)
    with pytest.raises(MeshError, match="unknown dtype 'float16'; did you mean"):
        mesh.to_onnx(dtype="float16")
    with pytest.raises(ExportError, match="sequence=True is for models that live in time"):
        mesh.to_onnx(sequence=True)
    with pytest.raises(ExportError, match="not for what is no classifier"):
        mesh.to_onnx(zipmap=True)
    with pytest.raises(MeshError, match="zipmap must be True or False, got 'columns'"):
        mesh.to_onnx(zipmap="columns")
    X = np.random.default_rng(0).standard_normal((30, 2))
    huge = MeshRegressor(2, **FEW).fit(X * [1.0, 1e300], X[:, 0])
    with pytest.raises(ExportError, match=r"feature 1 has numbers around 1e\+300, which float32 cannot hold"):
        huge.to_onnx()
    huge.to_onnx(dtype="float64")
    with pytest.raises(ExportError, match="has learned nothing yet; call fit first"):
        MeshClassifier().to_onnx()
    with pytest.raises(ExportError, match="nothing was learned yet"):
        MeshStreamClassifier().to_onnx()
    wide = Mesh(Topology(1, 0, 1, [(0, 2)]), 1, weights=[1e300], dtype="float64")
    with pytest.raises(ExportError, match='tick1/weights has numbers that float32 cannot hold; pass dtype="float64"'):
        wide.to_onnx()
    odd = stream_of(MeshStreamClassifier(3, random_state=0), [0.5, 1.0])
    with pytest.raises(ExportError, match=r"the class 0\.5 cannot be a label of ONNX"):
        odd.to_onnx()
    pairs = stream_of(MeshStreamClassifier(3, random_state=0), [(1, 2), "b"])
    with pytest.raises(ExportError, match="cannot be a label of ONNX, which are all texts or all whole numbers"):
        pairs.to_onnx()
    with pytest.raises(ExportError, match="does not know the activation 'swish'; it knows identity, relu"):
        activate(onnx_graph.Graph("float32"), "swish", "t", "tick1")
    monkeypatch.setattr(onnx_graph, "MOST_BYTES", 10)
    with pytest.raises(ExportError, match="and a file of ONNX holds less than 2; prune edges or neurons"):
        mesh.to_onnx()


def test_texts_in_a_table_are_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(20.0), "town": ["x", "y"] * 10})
    model = MeshClassifier(3, **FEW).fit(frame, np.arange(20) % 2)
    with pytest.raises(ExportError, match="column 'town' holds texts"):
        model.to_onnx()
    numbers = MeshClassifier(3, **FEW).fit(frame[["a"]], np.arange(20) % 2)
    assert {"features": "a", "classes": "0, 1"}.items() <= {
        entry.key: entry.value for entry in numbers.to_onnx().metadata_props
    }.items()


def test_without_onnx(monkeypatch):
    import sys

    mesh, _ = random_net(0)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ExportError, match=r"onnx is not installed; pip install 'meshnn\[onnx\]' brings it"):
        mesh.to_onnx()
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    from meshnn.integrations.skl2onnx import register

    with pytest.raises(ExportError, match=r"skl2onnx is not installed; pip install 'meshnn\[onnx\]' brings it"):
        register()

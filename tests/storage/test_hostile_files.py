"""Untrusted files: inconsistent parts are rejected at load, and by the core."""

import numpy as np
import pytest

import fuzz_files
import meshnn
from meshnn import Mesh, MeshForecaster, MeshStreamClassifier, MeshStreamRegressor, Topology, _core, storage
from meshnn.errors import FileError


def trees():
    """Return the trees of a classifier, a regressor and a forecaster in the middle of their streams."""
    classifier, regressor = MeshStreamClassifier(4, random_state=0), MeshStreamRegressor(4, random_state=0)
    forecaster = MeshForecaster(season=4, hidden=1, lags=2, random_state=0)
    for k in range(30):
        classifier.learn_one({"a": k % 3, "b": k % 5}, k % 3)
        regressor.learn_one({"a": k % 3, "b": k % 5}, k % 3)
        forecaster.learn_one(k % 4 + 0.1 * k, {"x": k % 5})
    return {"classifier": classifier.to_tree(), "regressor": regressor.to_tree(), "forecaster": forecaster.to_tree()}


def put(tree, path, value):
    *inside, last = path.split(".")
    for key in inside:
        tree = tree[int(key) if isinstance(tree, list) else key]
    last = int(last) if isinstance(tree, list) else last
    if isinstance(tree[last], np.ndarray):
        tree[last] = value(tree[last].copy())
    else:
        tree[last] = value


def first(number):
    def change(array):
        array.reshape(-1)[0] = number
        return array

    return change


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("regressor", "features", [f"f{k}" for k in range(1000)]),
        ("classifier", "classes", [0, 1, 2, 3]),
        ("classifier", "classes", [0, 1, 1]),
        ("classifier", "ticks_per_sample", 0),
        ("regressor", "stream.side", first(2**40)),
        ("regressor", "stream.side", first(-1)),
        ("regressor", "stream.clock", first(-5)),
        ("regressor", "stream.J", lambda a: a[..., :-8].copy()),
        ("regressor", "stream.x_moments", lambda a: a.astype(np.float32)),
        ("regressor", "stream.P", first(np.nan)),
        ("regressor", "stream.P", first(1e300)),
        ("regressor", "stream.memo", lambda a: a[:-1].copy()),
        ("regressor", "stream.values", lambda a: a[:-1].copy()),
        ("forecaster", "features", []),
        ("forecaster", "judge.ages", first(2**40)),
        ("forecaster", "experts.3.w", lambda a: a[:-1].copy()),
        ("forecaster", "experts.3.number", 2**40),
        ("forecaster", "past.values", first(np.inf)),
        ("forecaster", "params.hidden", 2**40),
    ],
)
def test_parts_that_do_not_fit(kind, path, value, tmp_path):
    tree = trees()[kind]
    put(tree, path, value)
    storage.write(tmp_path / "a.mesh", tree)
    with pytest.raises(FileError):
        meshnn.load(tmp_path / "a.mesh")


@pytest.mark.parametrize("portable", [False, True])
def test_the_core_refuses_arrays_of_another_length(portable):
    stream = Mesh(Topology.mesh(2, 3, 1), random_state=0).stream(portable=portable)
    stream.step([0.0, 0.0])
    if not portable:
        stream.room.side[:] = 2**40
        with pytest.raises(ValueError, match="stream"):
            stream.step([0.0, 0.0])
        stream.room.side[:] = 0
    kind = "PortableState" if portable else "StreamState"
    for name in ("s", "J", "clock"):
        fields = vars(stream.room) | {"values": stream.__dict__.get("values"), "loss": 1, "rate": 0.1, "clip": 1.0,
                                          "carry": True, "use_filter": False}  # fmt: skip
        fields[name] = fields[name][..., : fields[name].shape[-1] // 2].copy()
        short = _core.Struct(kind, fields, "f")
        X, out = np.zeros((1, 2), np.float32), np.zeros((1, 1), np.float32)
        plan, _, *learner = stream._structs
        given = (plan, short, stream.rule, 1, X, None, out) if portable else (
            plan, short, *learner, 1, X[None], X[:0, None], 0, out[None]
        )  # fmt: skip
        with pytest.raises(ValueError, match="length"):
            (_core.portable if portable else _core.stream)(*given)


def test_invalid_stored_targets():
    """With two classes targets are numbers; with a third class they become labels, which are indices."""
    model = MeshStreamClassifier(4, random_state=0)
    for k in range(60):
        model.learn_one({"a": k % 3, "b": k % 5}, k % 2)
    tree = model.to_tree()
    tree["stream"]["replay_y"][:] = 1e9
    model = MeshStreamClassifier.from_tree(tree)
    for k in range(60):
        model.learn_one({"a": k % 3, "b": k % 5}, k % 3)
        assert set(np.unique(model.stream_.room.replay_y)) <= {0.0, 1.0, 2.0} or k < 2
    assert sum(model.predict_proba_one({"a": 1, "b": 2}).values()) == pytest.approx(1.0)


def test_a_sample_of_edited_files():
    assert fuzz_files.fuzz(120) == []


@pytest.mark.slow
def test_many_edited_files():
    assert fuzz_files.fuzz(3000, first=100_000) == []

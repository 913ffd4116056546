"""Files of earlier versions: they load, predict what they did, and unfinished runs go on to their end."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import meshnn
from meshnn import MeshClassifier, storage
from meshnn.storage import FileError
from meshnn.upgrade import tree_of_version_1

FOLDER = Path(__file__).parent / "files" / "v0.1"
PREDICTED = json.loads((FOLDER / "predictions.json").read_text())
_spec = importlib.util.spec_from_file_location("make", FOLDER / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)


def predictions(name, model):
    if name == "mesh":
        return model.forward(make.X[:8])
    if name == "table":
        colours = np.where(make.X[:8, 2] > 0, "red", "blue")
        return model.predict_proba(pd.DataFrame({"size": make.X[:8, 0], "colour": colours}))
    inputs = make.X[:8, : model.n_features_in_]
    return model.predict(inputs) if name == "regressor" else model.predict_proba(inputs)


@pytest.mark.parametrize("name", list(PREDICTED))
def test_models_of_0_1_predict_what_they_did(name, tmp_path):
    model = meshnn.load(FOLDER / f"{name}.mesh")
    np.testing.assert_allclose(predictions(name, model), PREDICTED[name], rtol=0, atol=1e-6)
    model.save(tmp_path / "now.mesh")
    again = meshnn.load(tmp_path / "now.mesh")
    np.testing.assert_array_equal(predictions(name, again), predictions(name, model))


def test_what_else_is_in_models_of_0_1():
    mesh = meshnn.load(FOLDER / "mesh.mesh")
    assert mesh.activations == ["tanh", "relu", "sin", "gauss", "sigmoid", "sigmoid"]
    assert meshnn.load(FOLDER / "classifier.mesh").classes_.tolist() == ["no", "yes"]
    pruned = meshnn.load(FOLDER / "pruned.mesh").mesh_
    assert pruned.lineage_.edges_over_time()[-1][1] == pruned.topology.n_edges == 20
    assert meshnn.load(FOLDER / "table.mesh").target_ == "class"
    stream = meshnn.load(FOLDER / "stream.mesh")
    assert [row.epoch for row in stream.history_] == [1, 2]
    assert stream._solver_state["done"] == 8
    stream.partial_fit(make.X, make.Y)
    assert stream._solver_state["done"] == 12


@pytest.mark.parametrize("name", list(make.RUNS))
def test_unfinished_runs_of_0_1_go_on(name, tmp_path):
    path = tmp_path / "run.mesh"
    shutil.copy(FOLDER / f"{name}.mesh", path)
    half = storage.read(path)
    count = len(half["history"]["note"])
    seen = []
    options = {"activation": "tanh", "learning_rate": 0.01} | make.RUNS[name]  # defaults of 0.1
    model = MeshClassifier(checkpoint=path, callbacks=lambda row, mesh: seen.append(row), **options)
    model.fit(make.X, make.Y)
    last = 12 * make.RUNS[name].get("n_restarts", 1)
    assert len(seen) == last - count > 0
    assert seen[0].epoch == half["history"]["epoch"][-1] + 1
    assert len(model.history_) == last
    assert storage.read(path)["training"]["state"]["finished"]


def test_the_momentum_of_0_1_leads_to_the_same_step():
    """Its velocities had the rate in them, and stepped by m v - rate g."""
    velocity, gradient, m = np.array([0.3, -0.2]), np.array([1.0, 2.0]), 0.9
    header = {
        "kind": "classifier", "notes": [], "history": {}, "solver": ["sgd", ""], "parameters": {"learning_rate": 0.1},
        "stream": {"seed": 0, "memory": {"factor": 0.5}},
        "training": {"state": {"notes": [], "history": {}, "numbers": {}, "solver": {"safe_loss": 1.0}}},
    }  # fmt: skip
    arrays = {f"training.solver.{name}": velocity.copy() for name in ("first", "safe_first")}
    arrays |= {"stream.first": velocity.copy(), "training.history.learning_rate": np.array([0.1, 0.02, np.nan])}
    tree = tree_of_version_1(header, arrays)
    solver = tree["training"]["state"]["solver"]
    for held, rate in ((tree["stream"]["memory"], 0.05), (solver["now"], 0.02), (solver["safe"], 0.02)):
        np.testing.assert_allclose(-rate * (m * held["first"] + gradient), m * velocity - rate * gradient)


@pytest.mark.parametrize("name", ["mesh", "stream", "unfinished-adam", "unfinished-lm"])
def test_damaged_files_of_0_1_are_refused(name, tmp_path):
    content = (FOLDER / f"{name}.mesh").read_bytes()
    path = tmp_path / "a.mesh"
    for at in range(0, len(content), 97):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(FileError, match=r"a\.mesh"):
            meshnn.load(path)
        path.write_bytes(content[:at])
        with pytest.raises(FileError, match=r"a\.mesh"):
            meshnn.load(path)


@pytest.mark.parametrize("header", [
    {"kind": "classifier"}, {"kind": "classifier", "notes": []}, {"kind": "mesh", "lineage": 5},
    {"kind": "classifier", "notes": [], "history": {}, "training": {"state": {}}},
    {"kind": "classifier", "notes": [], "history": {}, "training": None},
])  # fmt: skip
def test_nonsense_of_version_1_is_no_crash(header, tmp_path, monkeypatch):
    """With a right checksum, as only somebody who means it would write it."""
    arrays = {"lineage.first": np.zeros(1)}
    with pytest.raises((KeyError, TypeError, AttributeError)):
        tree_of_version_1(json.loads(json.dumps(header)), arrays)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    path = tmp_path / "a.mesh"
    front = {"format": "meshnn", "version": "1", "header": text, "sha256": storage._digest("1", text, arrays)}
    entry = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
    front = json.dumps({"__metadata__": front, "lineage.first": entry}).encode()
    path.write_bytes(len(front).to_bytes(8, "little") + front + bytes(8))
    with pytest.raises(FileError, match=r"is damaged: it is no file of version 1"):
        storage.read(path)

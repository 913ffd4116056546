"""Files as meshnn 0.1 wrote them, and what it predicted: run once with that version, never again.

PYTHONPATH=<meshnn 0.1>/src python tests/files/v0.1/make.py
"""

import csv
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from meshnn import Mesh, MeshClassifier, MeshRegressor, Topology
from meshnn.training import structure

FOLDER = Path(__file__).parent
#: Sums and remainders of small numbers: the same bits on every machine, or a checkpoint would not know its data again.
X = ((np.arange(60)[:, None] * [37, 23, 11]) % 64) / 32.0 - 1.0
Y = (X[:, 0] * X[:, 1] > X[:, 2] / 4).astype(np.int64)
NAMED = np.array(["no", "yes"])[Y]
FIRST_ORDER = {"solver": "adam", "batch_size": 16, "tol": 0, "random_state": 0, "ticks": 3}
#: Runs that were interrupted after epoch 6 of 12.
RUNS = {
    "unfinished-lm": {"hidden": 3, "solver": "lm", "tol": 0, "max_epochs": 12, "random_state": 0, "n_restarts": 2},
    "unfinished-adam": {"hidden": 3, "max_epochs": 12, "early_stopping": True} | FIRST_ORDER,
    "unfinished-prune": {"hidden": 4, "max_epochs": 12, "structure": structure.Prune(to=20)} | FIRST_ORDER,
}


def interrupt(row, mesh):
    if row.epoch == 6:
        raise KeyboardInterrupt


def make():
    found = {}
    mesh = Mesh(Topology.mesh(3, 4, 2), 3, ["tanh", "relu", "sin", "gauss"], "sigmoid", dtype="float64", random_state=0)
    mesh.save(FOLDER / "mesh.mesh")
    found["mesh"] = mesh.forward(X[:8]).tolist()
    models = {
        "classifier": MeshClassifier(3, max_epochs=8, random_state=0, class_weight={"no": 2.0}).fit(X, NAMED),
        "regressor": MeshRegressor(3, max_epochs=8, random_state=0).fit(X[:, :2], X[:, 1:] ** 2),
        "pruned": MeshClassifier(4, max_epochs=12, structure=structure.Prune(to=20), **FIRST_ORDER).fit(X, Y),
        "stream": MeshClassifier(3, **FIRST_ORDER).partial_fit(X, Y, classes=[0, 1]).partial_fit(X, Y),
    }
    for name, options in RUNS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MeshClassifier(checkpoint=FOLDER / f"{name}.mesh", callbacks=interrupt, **options).fit(X, Y)
    for name, model in models.items():
        model.save(FOLDER / f"{name}.mesh")
        inputs = X[:8, : model.n_features_in_]
        answer = model.predict(inputs) if name == "regressor" else model.predict_proba(inputs)
        found[name] = answer.tolist()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table.csv")
        with table.open("w", newline="") as file:
            rows = [[x, "red" if z > 0 else "blue", c] for (x, _, z), c in zip(X, NAMED, strict=True)]
            csv.writer(file).writerows([["size", "colour", "class"], *rows])
        command = ["fit", table, "--target", "class", "--hidden", "2", "--epochs", "5", "--out", FOLDER / "table.mesh"]
        subprocess.run([sys.executable, "-m", "meshnn", *map(str, command), "--json"], check=True, capture_output=True)
    import pandas as pd

    import meshnn

    frame = pd.DataFrame({"size": X[:8, 0], "colour": np.where(X[:8, 2] > 0, "red", "blue")})
    found["table"] = meshnn.load(FOLDER / "table.mesh").predict_proba(frame).tolist()
    (FOLDER / "predictions.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    make()

"""Small calls, such as predictions of single rows, in which Python costs more than the kernel."""

import numpy as np

from meshnn import Mesh, MeshClassifier, MeshRegressor, Topology
from timing import best_of


def measure(quick=False):
    """Return one row per call: microseconds and the bar."""
    rng = np.random.default_rng(0)
    mesh = Mesh(Topology.mesh(2, 5, 2), 2, random_state=0)
    X, y = rng.standard_normal((64, 2)).astype(np.float32), rng.integers(0, 2, 64)
    table, labels, values = rng.standard_normal((60, 4)), rng.integers(0, 3, 60), rng.standard_normal(60)
    few = {"hidden": 5, "max_epochs": 5, "solver": "adam", "l2": 0.0, "random_state": 0}
    classifier, regressor = MeshClassifier(**few).fit(table, labels), MeshRegressor(**few).fit(table, values)
    contestants = {
        "Mesh.forward, one row of 3-5-2": (lambda: mesh.forward(X[:1]), 8),
        "Mesh.gradient, 64 rows of 3-5-2": (lambda: mesh.gradient(X, y), 20),
        "MeshClassifier.predict, one row": (lambda: classifier.predict(table[:1]), 60),
        "MeshRegressor.predict, one row": (lambda: regressor.predict(table[:1]), 60),
    }
    calls = {name: call for name, (call, _) in contestants.items()}
    best = best_of(calls, rounds=20 if quick else 100, calls=50)
    return [{"what": name, "microseconds": best[name] * 1e6, "bar": most} for name, (_, most) in contestants.items()]

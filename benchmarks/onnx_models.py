"""ONNX models: bytes, and microseconds per call in onnxruntime on one thread, compared with Python and MLPClassifier.

    python benchmarks/onnx_models.py [--quick] [--json FILE]

All timings of a net alternate in one run. `bound`: with inputs and outputs bound (IOBinding).
"""

import argparse
import json
import warnings

import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from meshnn import Mesh, MeshClassifier, Topology
from timing import best_of

BATCHES = (1, 1000)


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def bound(runs, X):
    held = runs.io_binding()
    held.bind_cpu_input(runs.get_inputs()[0].name, X)
    for value in runs.get_outputs():
        held.bind_output(value.name)
    return lambda: runs.run_with_iobinding(held)


def classifiers(rng):
    """Yield nets of classifiers, with the layers of an equivalent MLPClassifier, if there is one."""
    yield "33-50-10, 20% of edges", Topology.mesh(32, 50, 10, density=0.2, random_state=0), 2, (50,)
    yield "33-50-10, all edges", Topology.mesh(32, 50, 10), 2, (50,)
    yield "33-50-10, layered", Topology.layered([32, 50, 10]), 2, (50,)
    yield "33-50-10, all edges, 8 ticks", Topology.mesh(32, 50, 10), 8, None
    yield "65-256-256-10, layers", Topology.layered([64, 256, 256, 10]), 3, (256, 256)
    yield "cascade 33-20-10", Topology.cascade(32, 20, 10), 21, None


def nets(rng):
    """Yield nets alone: large and sparse, and with many ticks."""
    pairs = np.stack([rng.integers(0, 3033, 15050), np.repeat(np.arange(33, 3043), 5)], axis=1)  # five edges per neuron
    yield "33-3000-10, 15,000 edges, 12 ticks", Topology(32, 3000, 10, np.unique(pairs, axis=0)), 12
    yield "33-50-10, all edges, 200 ticks", Topology.mesh(32, 50, 10), 200


def timed(calls, quick):
    return {name: seconds * 1e6 for name, seconds in best_of(calls, rounds=5 if quick else 15, calls=20).items()}


def row_of_classifier(name, topology, ticks, layers, rng, quick):
    samples, labels = rng.standard_normal((200, 32 if topology.n_inputs == 32 else 64)), np.arange(200) % 10
    few = {"activation": "tanh", "max_epochs": 1, "solver": "adam", "l2": 0.0, "n_jobs": 1, "random_state": 0}
    ours = MeshClassifier(mesh=topology, ticks=ticks, **few).fit(samples, labels)
    models = {"onnxruntime": ours.to_onnx(zipmap=False), "onnxruntime, zipmap": ours.to_onnx()}
    if layers is not None:
        peer = MLPClassifier(layers, activation="tanh", max_iter=1, random_state=0).fit(samples, labels)
        asked = {"zipmap": False}
        models["skl2onnx of MLPClassifier"] = to_onnx(peer, samples[:1].astype("f"), options={id(peer): asked})
    row = {"net": name, "edges": topology.n_edges, "bytes": {k: v.ByteSize() for k, v in models.items()}}
    for size in BATCHES:
        X = rng.standard_normal((size, topology.n_inputs)).astype(np.float32)
        wanted = ours.predict_proba(X)
        calls = {
            "model.predict": lambda X=X: ours.predict(X),
            "mesh.forward": lambda X=X: ours.mesh_.forward(X, n_jobs=1),
        }
        for key, model in models.items():
            runs = session(model)
            feed = {runs.get_inputs()[0].name: X}
            calls[key] = lambda runs=runs, feed=feed: runs.run(None, feed)
            if "zipmap" not in key:
                calls[f"{key}, bound"] = bound(runs, X)
        row[f"batch {size}"] = timed(calls, quick)
        row["difference"] = float(np.abs(calls["onnxruntime"]()[1] - wanted).max())
    return row


def row_of_net(name, topology, ticks, rng, quick):
    mesh = Mesh(topology, ticks, random_state=0)
    model = mesh.to_onnx()
    runs = session(model)
    row = {"net": name, "edges": topology.n_edges, "bytes": {"onnxruntime": model.ByteSize()}}
    for size in (1, 100):
        X = rng.standard_normal((size, topology.n_inputs)).astype(np.float32)
        calls = {
            "mesh.forward": lambda X=X: mesh.forward(X, n_jobs=1),
            "onnxruntime": lambda X=X: runs.run(None, {"features": X}),
        }
        row[f"batch {size}"] = timed(calls, quick)
        row["difference"] = float(np.abs(calls["onnxruntime"]()[0] - mesh.forward(X)).max())
    return row


def measure(quick=False):
    """Return one row per net."""
    rng = np.random.default_rng(0)
    for net in classifiers(rng):
        yield row_of_classifier(*net, rng, quick)
    for net in nets(rng):
        yield row_of_net(*net, rng, quick)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = []
    for row in measure(given.quick):
        rows.append(row)
        print(f"{row['net']} ({row['edges']:,} edges), largest difference {row['difference']:.1e}")
        for key, value in row.items():
            if isinstance(value, dict):
                print(f"  {key}: " + ", ".join(f"{k} {v:,.{v < 100:d}f}" for k, v in value.items()))
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()

"""784-128-10 on images of digits, batches of 64: seconds per epoch of torch.nn, MLPClassifier and meshnn.

Images come from ../shared/data/mnist or $MESHNN_DATA. Without them random pixels of the same shape are used, whose
accuracy has no meaning; the table contains a note.
"""

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier

from meshnn import Mesh, Topology
from meshnn.training import Adam, train

HIDDEN, BATCH, RATE, ROWS = 128, 64, 1e-3, 20_000


def pictures():
    """Return training and test rows, and the name of the data."""
    from meshnn.paper.mnist import load_images

    here = Path(__file__).resolve().parents[1]
    for folder in (os.environ.get("MESHNN_DATA", ""), here.parent / "shared" / "data", "/work/shared/data"):
        if folder and (Path(folder) / "mnist").is_dir():
            found = load_images("mnist", folder)
            X, test = (np.ascontiguousarray(x.reshape(len(x), -1) / 255.0, np.float32) for x in (found[0], found[2]))
            y, test_y = (labels.astype(np.int64) for labels in (found[1], found[3]))
            return X[:ROWS], y[:ROWS], test, test_y, "MNIST"
    rng = np.random.default_rng(0)
    X, y = rng.random((ROWS + 2000, 784), np.float32), rng.integers(0, 10, ROWS + 2000)
    return X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:], "RANDOM PIXELS, no MNIST found"


def by_torch(X, y, test, epochs):
    """Train torch.nn in its fastest simple form: tensors indexed by a permutation, no data loader, fused Adam."""
    torch.manual_seed(0)
    X, y, test = map(torch.from_numpy, (X, y, test))
    model = torch.nn.Sequential(torch.nn.Linear(784, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10))
    adam = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    start = time.perf_counter()
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(BATCH):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
            adam.step()
    seconds = time.perf_counter() - start
    with torch.no_grad():
        return seconds, model(test).argmax(1).numpy()


def by_sklearn(X, y, test, epochs):
    """Train MLPClassifier, one epoch per call, because `fit` would check for convergence."""
    model = MLPClassifier((HIDDEN,), batch_size=BATCH, learning_rate_init=RATE, alpha=0.0, random_state=0)
    start = time.perf_counter()
    for _ in range(epochs):
        model.partial_fit(X, y, classes=np.arange(10))
    return time.perf_counter() - start, model.predict(test)


def by_meshnn(X, y, test, epochs, n_jobs):
    """Run `train` with all settings given, so that no search is run."""
    mesh = Mesh(Topology.layered([784, HIDDEN, 10]), 2, "relu", random_state=0)
    start = time.perf_counter()
    for _ in train(mesh, X, y, solver=Adam(RATE, "constant"), batch_size=BATCH, l2=0.0,
                   max_epochs=epochs, tol=0.0, n_jobs=n_jobs, random_state=0):  # fmt: skip
        pass
    return time.perf_counter() - start, mesh.forward(test).argmax(1)


def measure(quick=False):
    """Return seconds per epoch and test accuracy of all; the best of some alternating rounds."""
    X, y, test, test_y, what = pictures()
    epochs, rounds = (2, 2) if quick else (5, 3)
    contestants = {
        "torch.nn": by_torch,
        "MLPClassifier": by_sklearn,
        "meshnn, 1 thread": partial(by_meshnn, n_jobs=1),
        "meshnn, 2 threads": partial(by_meshnn, n_jobs=2),
    }
    by_meshnn(X[:BATCH], y[:BATCH], test[:BATCH], 1, 1)  # warm-up
    rows = {name: {"seconds": float("inf"), "note": ""} for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            seconds, guess = run(X, y, test, epochs)
            rows[name]["seconds"] = min(rows[name]["seconds"], seconds / epochs)
            rows[name]["accuracy"] = float((guess == test_y).mean())
    seconds, accuracy = ({name: row[key] for name, row in rows.items()} for key in ("seconds", "accuracy"))
    peer = min(seconds["torch.nn"], seconds["MLPClassifier"])
    multiply_adds = (
        2 * 784 * HIDDEN + 3 * HIDDEN * 10
    )  # forward, correlation, and one backward step through the readout
    for row in rows.values():
        row["note"] = f"{2e-9 * multiply_adds * len(X) / row['seconds']:.0f} GFLOP/s"
    return {
        "data": what,
        "samples": len(X),
        "epochs": epochs,
        "rows": rows,
        "times peer": peer / seconds["meshnn, 1 thread"],
        "times one thread": seconds["meshnn, 1 thread"] / seconds["meshnn, 2 threads"],
        "behind": min(accuracy["torch.nn"], accuracy["MLPClassifier"]) - accuracy["meshnn, 1 thread"],
    }

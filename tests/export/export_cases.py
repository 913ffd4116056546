"""Random nets of any graph, their outputs by the oracle, and C functions called from Python."""

import ctypes
from functools import cache

import numpy as np
import pandas
from sklearn.datasets import load_iris

import boards
import naive
from cases import ACTIVATION_NAMES, repair
from meshnn import Mesh, MeshClassifier


@cache
def iris():
    """Return a classifier of flowers with special characters in names, and its training data."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", 'versi"color*/', "virgïnica"])[y]
    return MeshClassifier(hidden=5, random_state=0, max_epochs=60).fit(X, names), X, names


@cache
def towns():
    """Return a table with a text column, missing values, booleans and special characters, and its targets."""
    rng = np.random.default_rng(0)
    names = np.array(["Ulm", 'Bad "Urach"', "Bonn*/", "ulm", "Ürzig"], dtype=object)
    frame = pandas.DataFrame(
        {"size": rng.normal(size=200), "label": names[rng.integers(5, size=200)], "sold": rng.random(200) > 0.5}
    )
    y = frame["size"] * (frame["label"] == "Ulm") + frame["sold"]
    frame.loc[::9, "size"], frame.loc[::7, "label"] = np.nan, None
    return frame, y


def random_net(seed, ticks=None, dtype="float64"):
    """Return a net with cycles, self-loops, dead edges, ties and all activations."""
    rng = np.random.default_rng(seed)
    n_inputs, n_hidden, n_outputs = rng.integers(1, 4), rng.integers(0, 7), rng.integers(1, 4)
    bias, ticks = bool(rng.integers(2)), int(rng.integers(1, 7)) if ticks is None else ticks
    n = n_inputs + bias + n_hidden + n_outputs
    pairs = np.argwhere(rng.random((n, n)) < rng.choice([0.1, 0.3, 0.6, 1.0])).tolist()
    topology = repair(int(n_inputs), int(n_hidden), int(n_outputs), bias, pairs, ticks)
    hidden = [ACTIVATION_NAMES[k] for k in rng.integers(0, len(ACTIVATION_NAMES), n_hidden)]
    fan_in = np.maximum(np.bincount(topology.dst, minlength=n), 1)[topology.dst]
    weights = rng.standard_normal(topology.n_edges) * 1.2 / np.sqrt(fan_in)
    parameter = None
    if rng.integers(2):  # edges in pairs share one weight
        parameter = np.arange(topology.n_edges) // 2
        weights = weights[: parameter[-1] + 1][parameter]
    output = ACTIVATION_NAMES[rng.integers(len(ACTIVATION_NAMES))]
    mesh = Mesh(topology, ticks, hidden, output, weights=weights, tied=parameter, dtype=dtype)
    return mesh, rng.standard_normal((5, n_inputs))


def oracle(mesh, X):
    """Return the outputs of the oracle."""
    t = mesh.topology
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src, t.dst] = mesh.weights
    names = ["identity"] * t.n_clamped + mesh.activations
    found = []
    for x in X.tolist():
        states, _ = naive.run(A.tolist(), t.n_clamped, t.n_outputs, names, [[*x, 1.0][: t.n_clamped]] * mesh.ticks)
        found.append(states[-1][-t.n_outputs :])
    return np.array(found)


def of_header(path, name, given, returned):
    """Return a function of a header with one argument, with the given types of ctypes."""
    kinds = {ctypes.c_char_p: "const char *", ctypes.c_float: "float ", ctypes.c_int: "int "}
    head = f"{kinds[returned]}called({kinds[given]}a)"
    source = f'#include "net.h"\n{head};\n{head} {{ return {name}(a); }}\n'
    found = boards.load(source, {"net.h": path.read_text()}).called
    found.restype, found.argtypes = returned, [given]
    return found

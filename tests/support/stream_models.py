"""Small nets, series and stream models that several tests use."""

import math

import numpy as np

from meshnn import Mesh, MeshStreamClassifier, MeshStreamRegressor, Topology

LEARNERS = ("adam", "sgd", "ekf")


def recurrent(seed=0, n_inputs=2, hidden=5, n_outputs=2, dtype="float64", **kwargs):
    return Mesh(Topology.mesh(n_inputs, hidden, n_outputs), 1, "tanh", dtype=dtype, random_state=seed, **kwargs)


def series(T=40, d=2, seed=1):
    return np.random.default_rng(seed).standard_normal((T, d))


def samples(count, features="abc", seed=0):
    rng = np.random.default_rng(seed)
    return [dict(zip(features, row, strict=True)) for row in rng.standard_normal((count, len(features))).tolist()]


def label(x, classes=2):
    """Return a class by the angle of the sample."""
    return int((math.atan2(x["b"], x["a"]) / math.pi + 1) / 2 * classes * 0.999)


def value(x):
    return 3 * x["a"] - x["b"] + 10


def classifier(count=60, classes=2, **params):
    model = MeshStreamClassifier(**{"hidden": 4, "random_state": 0, **params})
    for x in samples(count):
        model.learn_one(x, label(x, classes))
    return model


def regressor(count=60, **params):
    model = MeshStreamRegressor(**{"hidden": 4, "random_state": 0, **params})
    for x in samples(count):
        model.learn_one(x, abs(value(x)))
    return model

"""The default estimators on generated tables of 50,000 to 500,000 rows, beside LightGBM, with two threads each.

python benchmarks/medium.py               # four tables and MNIST, about three minutes
python benchmarks/medium.py --only mixed

The tables have steps, categories of many levels, interactions and smooth parts. Log loss (or R2) and accuracy are those
of a test set of a fifth of the rows. MNIST is read from ../shared/data and skipped without it.
"""

import argparse
import gzip
import time
from pathlib import Path

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.metrics import log_loss

from meshnn import MeshClassifier, MeshRegressor

MNIST = Path(__file__).parents[2] / "shared" / "data" / "mnist"


def _classes(score, rng):
    return (rng.random(len(score)) < 1 / (1 + np.exp(-score))).astype(int)


def steps(rng, n=50_000):
    """Thresholds of ten columns, two of them with long tails, and classes with noise."""
    X = rng.normal(size=(n, 10))
    X[:, 5:7] = np.exp(2 * X[:, 5:7])
    at, height = rng.normal(size=(8, 3)), 2 * rng.normal(size=(8, 3))
    score = sum(height[k, j] * (X[:, k] > at[k, j]) for k in range(5) for j in range(3))
    score = score + height[5, 0] * (X[:, 5] > 1) + height[6, 0] * (X[:, 6] > 3)
    return X, _classes(score - score.mean(), rng)


def categories(rng, n=200_000):
    """Columns of 300, 60 and 12 text levels with effects, and four numeric columns."""
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    score = np.sin(2 * X["a"].to_numpy()) + (X["b"].to_numpy() > 0.3) * X["c"].to_numpy()
    for name, count in (("shop", 300), ("kind", 60), ("month", 12)):
        level = np.minimum(rng.exponential(count / 4, n).astype(int), count - 1)
        score = score + rng.normal(size=count)[level]
        X[name] = pd.Categorical.from_codes(level, [f"{name} {k}" for k in range(count)])
    return X, _classes(score, rng)


def interactions(rng, n=500_000):
    """A numeric target with products, a maximum, a step and noise."""
    X = rng.uniform(-1, 1, (n, 12))
    y = 3 * X[:, 0] * X[:, 1] + 2 * np.maximum(X[:, 2], X[:, 3]) + (X[:, 4] > 0.2) * X[:, 5] + np.sin(4 * X[:, 6])
    return X, y + np.abs(X[:, 7]) + 0.5 * rng.normal(size=n)


def mixed(rng, n=250_000):
    """25 columns: smooth parts, steps, products, long tails and codes from 0 to 11."""
    X = rng.normal(size=(n, 25))
    X[:, 5:10] = np.exp(X[:, 5:10])
    X[:, 10:14] = rng.integers(0, 12, (n, 4))
    score = np.sin(2 * X[:, 0]) + (X[:, 1] > 0.5) - 1.5 * (X[:, 2] < -0.3) * (X[:, 3] > 0) + 0.7 * X[:, 4] * X[:, 15]
    score = score + 0.5 * np.log(X[:, 5]) + 0.5 * np.abs(X[:, 16])
    for k in range(4):
        score = score + 0.7 * rng.normal(size=12)[X[:, 10 + k].astype(int)]
    return X, _classes(score, rng)


TABLES = {"steps": steps, "categories": categories, "interactions": interactions, "mixed": mixed}


def measure(name, model, X, y, X_test, y_test):
    """Fit and print one line."""
    begin, used = time.perf_counter(), time.process_time()
    model.fit(X, y)
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    figures = f"R2 {model.score(X_test, y_test):.4f}"
    if hasattr(model, "predict_proba"):
        loss = log_loss(y_test, model.predict_proba(X_test))
        figures = f"accuracy {model.score(X_test, y_test):.4f}, log loss {loss:.4f}"
    who = "meshnn" if hasattr(model, "mesh_") else "LightGBM"
    print(f"{name:<13} {who:<9} {figures}, {seconds:.1f} s ({used:.1f} s of processors)", flush=True)


def table(name, seed):
    """Measure both models on one table."""
    X, y = TABLES[name](np.random.default_rng(seed))
    classes, train = y.dtype.kind == "i", np.arange(len(y)) % 5 > 0
    parts = X[train], y[train], X[~train], y[~train]
    mesh = (MeshClassifier if classes else MeshRegressor)(random_state=seed, max_categories=400)
    trees = (LGBMClassifier if classes else LGBMRegressor)(n_jobs=2, verbose=-1, random_state=seed)
    for model in (mesh, trees):
        measure(name, model, *parts)


def mnist(seed):
    """Measure the default classifier on the pixels of MNIST: 50,000 training images, all test images."""
    if not MNIST.exists():
        print(f"*** mnist skipped: {MNIST} does not exist")
        return

    def read(name, header):
        return np.frombuffer(gzip.decompress((MNIST / f"{name}.gz").read_bytes()), np.uint8, offset=header)

    parts = [read(f"{part}-{what}", header) for part in ("train", "t10k")
             for what, header in (("images-idx3-ubyte", 16), ("labels-idx1-ubyte", 8))]  # fmt: skip
    X, y, X_test, y_test = (each.reshape(-1, 784) if k % 2 == 0 else each for k, each in enumerate(parts))
    measure("mnist", MeshClassifier(random_state=seed), X[:50_000] / 255.0, y[:50_000], X_test / 255.0, y_test)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*TABLES, "mnist"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in TABLES if options.only is None else [options.only]:
        if name != "mnist":
            table(name, options.seed)
    if options.only in (None, "mnist"):
        mnist(options.seed)


if __name__ == "__main__":
    main()

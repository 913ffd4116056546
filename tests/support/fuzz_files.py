"""Hostile files: edited trees of every kind of model with a valid checksum, which are loaded and used.

The only allowed results are `FileError` at load, or a model that predicts and learns. The tries run in subprocesses,
so that crashes of the core are detected too. `python tests/support/fuzz_files.py --tries 10000` prints errors and the
seed of each try.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np

from meshnn import Mesh, MeshForecaster, MeshStreamClassifier, MeshStreamRegressor, Topology, storage
from meshnn.errors import FileError, MemoryLimitError, MeshError
from meshnn.loading import from_tree
from meshnn.training.structure import Grow, Prune

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
ROWS = [dict(zip("abc", row, strict=True)) for row in X.tolist()]
SECONDS = 20  # per try
NUMBERS = [0, 1, -1, 2, 3, 7, 2**31, 2**40, 2**63 - 1, -(2**40), 10**30, 0.5, -0.5, 1e300, -1e300, 1e-300, float("nan"),
           float("inf"), -float("inf"), True, False, None, "", "text", "auto", [], {}, [1], {"a": 1}]  # fmt: skip


# -- models and their use ----------------------------------------------------------------------------------------------


def stream_model(make, count=30, classes=0, **params):
    model = make(**{"hidden": 3, "random_state": 0, **params})
    for k, x in enumerate(ROWS[:count]):
        model.learn_one(x, k % classes if classes else abs(x["a"]) + k % 3)
    return model.to_tree()


def use_stream(model):
    for k in range(12):
        x = {**ROWS[k], **({"new": 1.0} if k > 8 else {})}
        model.predict_one(x)
        if hasattr(model, "predict_proba_one"):
            model.predict_proba_one(x)
        model.learn_one(x, "fresh" if k == 11 and hasattr(model, "predict_proba_one") else 1)
    model.to_tree()


def forecaster(count=60, **params):
    model = MeshForecaster(**{"hidden": 1, "lags": 2, "random_state": 0, **params})
    for k in range(count):
        model.learn_one(5 + np.sin(k / 2) + k % 3, {"x": float(k % 5)})
    return model.to_tree()


def use_forecaster(model):
    for k in range(4):
        x = dict.fromkeys(model.features_.names, 1.0) or {"x": 1.0}
        model.forecast(3)
        model.learn_one(4.0 + k, x)
    if model.n_samples_:
        model.forecast(3, [x] * 3)
        model.forecast_interval(5, [x] * 5)
    model.to_tree()


def bare_stream(portable=False, **settings):
    def tree():
        mesh = Mesh(Topology.mesh(3, 3, 2), 2, "tanh", random_state=0)
        stream = mesh.stream(portable=portable, **settings)
        stream.run(X, X[:, :2])
        return {"kind": "bare", "mesh": mesh.to_tree() | {"kind": "mesh"}, "stream": stream.to_tree()}

    def use(read):
        if not isinstance(read.get("mesh"), dict) or not isinstance(read.get("stream"), dict):
            raise FileError("no net, or no stream")
        mesh = from_tree("bare", read["mesh"])
        if (mesh.topology.n_inputs, mesh.topology.n_outputs) != (3, 2):
            raise FileError("another net")
        try:
            stream = mesh.stream(portable=portable, **settings)
        except MeshError as error:
            raise FileError(str(error)) from None
        stream.restore(read["stream"])
        stream.run(X, X[:, :2])
        stream.peek(X[0])

    return tree, use


def estimator(make, frame=False, partial=False, **params):
    def tree():
        import pandas as pd

        model = make(hidden=3, max_epochs=5, random_state=0, **params)
        y = (X[:, 0] > 0).astype(int)
        data = pd.DataFrame({"a": X[:, 0], "t": np.where(X[:, 1] > 0, "u", "v")}) if frame else X
        if "Sequence" in make.__name__:
            data = [X[k : k + 4] for k in range(30)]
            y = y[:30]
        if partial:
            model.partial_fit(data, y, **({"classes": [0, 1]} if "Classifier" in make.__name__ else {}))
        else:
            model.fit(data, y)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "a.mesh")
            return storage.read(Path(folder) / "a.mesh")

    return tree


def use_estimator(model):
    import pandas as pd

    count = model.n_features_in_
    data = X[:, :1].repeat(count, axis=1)
    if hasattr(model, "encoder_"):
        kinds_ = {c.name: c.kind for c in model.encoder_.columns}
        data = pd.DataFrame({n: ["u"] * 5 if kind == "categorical" else X[:5, 0] for n, kind in kinds_.items()})
    elif hasattr(model, "feature_names_in_"):
        data = pd.DataFrame(data, columns=model.feature_names_in_)
    if hasattr(model, "reading_"):
        data = [np.asarray(data)[:4]]
    try:
        model.predict(data)
    except MeshError as error:  # overflow or columns of another type: a valid error
        if isinstance(error, FileError):
            raise


def use_mesh(mesh):
    inputs = np.ones((2, mesh.topology.n_inputs))
    with contextlib.suppress(MeshError):
        mesh.forward(inputs)


def kinds():
    from meshnn import MeshClassifier, MeshRegressor, MeshSequenceClassifier

    tied = np.arange(24) // 2
    loaded = lambda use: lambda read: use(from_tree("fuzzed.mesh", read))  # noqa: E731
    online, series, plain = loaded(use_stream), loaded(use_forecaster), loaded(use_estimator)
    classifier, regressor = MeshStreamClassifier, MeshStreamRegressor
    found = {
        "two classes": (lambda: stream_model(classifier, classes=2), online),
        "four classes": (lambda: stream_model(classifier, classes=4, settings={"replays": 12}), online),
        "adam": (lambda: stream_model(classifier, classes=3, learner="adam", memory="carry"), online),
        "one class": (lambda: stream_model(classifier, classes=1), online),
        "decoupled": (lambda: stream_model(regressor, settings={"covariance": "decoupled"}), online),
        "grown": (lambda: stream_model(regressor, structure=Grow(to=6, wait=1), structure_every=10), online),
        "pruned": (lambda: stream_model(classifier, classes=3, structure=Prune(to=9), structure_every=8), online),
        "never fed": (lambda: stream_model(regressor, 0), online),
        "forecaster": (forecaster, series),
        "seasonal": (lambda: forecaster(season=4), series),
        "fresh forecaster": (lambda: forecaster(0), series),
        "bare": bare_stream(learner="ekf", memory="none", scale=True),
        "bare late": bare_stream(learner="adam", delay=2, n_streams=1),
        "portable": bare_stream(True, learner="ekf", scale=True),
        "portable adam": bare_stream(True, learner="adam"),
        "mesh": (lambda: Mesh(Topology.mesh(2, 3, 1), random_state=0).to_tree() | {"kind": "mesh"}, loaded(use_mesh)),
        "tied": (
            lambda: Mesh(Topology.mesh(2, 3, 1), weights=0.1 * tied, tied=tied).to_tree() | {"kind": "mesh"},
            loaded(use_mesh),
        ),
        "classifier": (estimator(MeshClassifier), plain),
        "frame": (estimator(MeshClassifier, frame=True), plain),
        "regressor": (estimator(MeshRegressor), plain),
        "partial": (estimator(MeshClassifier, partial=True, solver="adam"), plain),
        "sequences": (estimator(MeshSequenceClassifier), plain),
    }
    return found


# -- edits -------------------------------------------------------------------------------------------------------------


def places(tree, path=()):
    """Yield every container, key and leaf below a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (tree, key, value)
        yield from places(value, (*path, key))


def edit(tree, rng):
    """Change one value in a way that a file can store."""
    sites = list(places(tree))
    holder, key, value = sites[rng.integers(len(sites))]
    choice = rng.integers(10)
    if choice == 0:
        if isinstance(holder, dict):
            del holder[key]
        else:
            holder.insert(int(key), copy.deepcopy(value)) if rng.integers(2) else holder.pop(int(key))
    elif choice == 1:
        _, _, other = sites[rng.integers(len(sites))]
        holder[key] = copy.deepcopy(other)
    elif isinstance(value, np.ndarray):
        holder[key] = edited_array(value, rng)
    elif isinstance(value, list) and value and choice < 6:
        holder[key] = [value[k % len(value)] for k in range(int(rng.integers(2 * len(value) + 2)))]
    elif isinstance(value, dict) and choice < 4:
        value["added"] = 1
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and choice < 6:
        holder[key] = value + type(value)(rng.choice([1, -1, 2, 1000]))
    else:
        holder[key] = copy.deepcopy(NUMBERS[rng.integers(len(NUMBERS))])


def edited_array(array, rng):
    choice = rng.integers(6)
    if choice == 0:
        kinds_ = ["<f4", "<f8", "<i4", "<i8", "|u1", "|b1"]
        with np.errstate(all="ignore"):
            return array.astype(kinds_[rng.integers(len(kinds_))])
    if choice == 1:
        flat = np.resize(
            array.ravel() if array.size else np.zeros(1, array.dtype), int(rng.integers(2 * array.size + 2))
        )
        return flat if rng.integers(2) or array.ndim < 2 else np.resize(array, (array.shape[0] + 1, *array.shape[1:]))
    if choice == 2:
        return array.reshape(-1) if rng.integers(2) else array[None].copy()
    array = array.copy()
    if not array.size:
        return np.ones(3, array.dtype)
    if array.dtype.kind == "f":
        values = [np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0, -1.0, 1e9]
    else:
        values = [0, 1, -1, 2, 5, 255, 2**31 - 1, 2**40, 2**62, -(2**62)]
    with np.errstate(all="ignore"):
        new = np.array(values[rng.integers(len(values))]).astype(array.dtype)[()]
    array.reshape(-1)[rng.integers(array.size) if choice < 5 else slice(None)] = new
    return array


# -- tries -------------------------------------------------------------------------------------------------------------


def attempt(tree, use, rng, path):
    """Return None, "refused" or a traceback."""
    tree = copy.deepcopy(tree)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        edit(tree, rng)
    try:
        storage.write(path, tree)
    except MeshError:
        return "refused"
    signal.alarm(SECONDS)
    try:
        read = storage.read(path)
        use(read)
    except (FileError, MemoryLimitError):
        return "refused"
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return None


def work(first, tries, report):
    """Run tries in this process; each is recorded before it runs."""
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    warnings.simplefilter("ignore")
    models = {name: (make(), use) for name, (make, use) in kinds().items()}
    for _tree, use in models.values():
        use(copy.deepcopy(_tree))  # unchanged trees work
    names, refused, failed = list(models), 0, 0
    with tempfile.TemporaryDirectory() as folder, open(report, "a") as log:
        for seed in range(first, first + tries):
            name = names[seed % len(names)]
            print(f"try {seed} {name}", file=log, flush=True)
            found = attempt(*models[name], np.random.default_rng(seed), Path(folder) / "a.mesh")
            refused += found == "refused"
            if found not in (None, "refused"):
                failed += 1
                print(f"FAILED {seed} {name}\n{found}", file=log, flush=True)
        print(f"done: {tries} tries, {refused} refused, {failed} failed", file=log, flush=True)


def fuzz(tries, first=0):
    """Run tries in subprocesses, a new one after each crash; return one text per failure."""
    failures, end = [], first + tries
    while first < end:
        with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
            command = [sys.executable, __file__, "--work", str(first), str(end - first), log.name]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            text = log.read()
        failures += [part.split("\ntry ")[0] for part in text.split("FAILED ")[1:]]
        if done.returncode == 0:
            return failures
        started = [line for line in text.splitlines() if line.startswith("try ")]
        last = int(started[-1].split()[1]) if started else end
        failures.append(f"{started[-1:]} ended with {done.returncode}: {done.stderr[-2000:]}")
        first = last + 1
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--work", nargs=3)
    given = parser.parse_args()
    if given.work:
        work(int(given.work[0]), int(given.work[1]), given.work[2])
        sys.exit()
    found = fuzz(given.tries, given.first)
    print("\n\n".join(found))
    print(f"{given.tries} tries, {len(found)} failures")
    sys.exit(bool(found))

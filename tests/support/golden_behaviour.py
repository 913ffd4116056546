"""The cases of the golden record of behaviour and their recorded values.

`files/golden_behaviour.npz` contains the predictions of estimators and streams and the outputs of exported nets, as in
`golden.py`; `files/golden_behaviour.json` the choices of estimators and the output of commands. Write them again only
after a deliberate change of behaviour: `python tests/support/golden_behaviour.py --write`. All names of parameters and
options are in the tables at the top: renaming one changes one line here, and no record.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import scipy.sparse

import meshnn
from commands import meshnn as command
from golden import ACTIVATIONS, Values, load, save
from golden_nets import generator, integers, uniform
from meshnn import Mesh, Topology, training
from meshnn.errors import MeshError
from meshnn.export import CLearner, CNet

FILE = Path(__file__).parents[1] / "files" / "golden_behaviour.npz"  # and .json
CLASSIFIER, REGRESSOR = "MeshClassifier", "MeshRegressor"
SEQUENCE_CLASSIFIER, SEQUENCE_REGRESSOR = "MeshSequenceClassifier", "MeshSequenceRegressor"
STREAM_CLASSIFIER, STREAM_REGRESSOR, FORECASTER = "MeshStreamClassifier", "MeshStreamRegressor", "MeshForecaster"

SEED, FEW = {"random_state": 0}, {"max_epochs": 4}
ONE = FEW | {"n_members": 1, "embedding": None}
ADAM = {"solver": "adam", "l2": 1e-3, "hidden": 5} | FEW
SGD = ADAM | {"solver": training.SGD(schedule="linear", momentum=0.8, nesterov=False)}
LM = {"solver": "lm", "l2": 1e-2, "hidden": 4, "max_epochs": 3}
EARLY = ADAM | {"early_stopping": training.EarlyStopping(0.2, 3), "max_epochs": 8}
LAYERS = ADAM | {"hidden": (6, 4), "activation": "elu", "batch_size": 32}
BALANCED, HEAVY = ADAM | {"class_weight": "balanced"}, ADAM | {"class_weight": {"low": 1.0, "high": 3.0}}
MEAN, RAW = ADAM | {"readout": "mean"}, ADAM | {"standardize": False, "ticks": 4, "l1": 1e-3}
RESTARTS = ADAM | {"n_restarts": 3, "tol": 0.0, "solver": training.Adam(schedule="constant")}
ALL, HUBER = LM | {"readout": "all"}, LM | {"loss": "huber", "activation": "sin"}
CASCADE = LM | {"mesh": Topology.cascade(3, 4, 1), "ticks": 6, "hidden": "auto"}
#: Per table: class of the estimator, and arguments of the constructor by name of the case.
TABLES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "classes": (CLASSIFIER, {"default": ONE, "members": FEW, "adam": ADAM, "sgd": SGD, "lm": LM, "early": EARLY,
                             "layers": LAYERS, "balanced": BALANCED, "raw": RAW, "restarts": RESTARTS}),
    "two": (CLASSIFIER, {"default": ONE, "lm": LM | {"activation": "tanh"}}),
    "labels": (CLASSIFIER, {"default": ONE, "lm": LM}),
    "frame": (CLASSIFIER, {"default": ONE, "members": FEW, "early": EARLY}),
    "weighted": (CLASSIFIER, {"adam": HEAVY, "lm": LM}), "sparse-classes": (CLASSIFIER, {"adam": ADAM}),
    "wide": (CLASSIFIER, {"default": ONE}), "wide-numbers": (REGRESSOR, {"adam": ADAM}),
    "numbers": (REGRESSOR, {"default": ONE, "members": FEW, "adam": ADAM, "lm": LM, "early": EARLY, "huber": HUBER,
                            "deep": CASCADE}),
    "outputs": (REGRESSOR, {"default": ONE, "adam": ADAM}), "frame-numbers": (REGRESSOR, {"lm": LM}),
    "sparse": (REGRESSOR, {"default": ONE}), "weighted-numbers": (REGRESSOR, {"lm": LM}),
    "counts": (REGRESSOR, {"default": ONE | {"loss": "poisson"}, "lm": LM | {"loss": "poisson"}}),
    "sequences": (SEQUENCE_CLASSIFIER, {"default": ONE, "mean": MEAN, "lm": LM, "early": EARLY}),
    "sums": (SEQUENCE_REGRESSOR, {"default": ONE, "lm": LM}), "steps": (SEQUENCE_REGRESSOR, {"all": ALL}),
}  # fmt: skip
ESTIMATORS = {f"{name}-{case}": (kind, name, arguments) for name, (kind, cases) in TABLES.items()
              for case, arguments in cases.items()}  # fmt: skip
THREADS = [{"n_jobs": count} for count in (1, 2, 3)]
CHOSEN = {"solver": "solver_", "loss": "loss_", "l2": "l2_", "features": "n_features_in_", "epochs": "n_iter_"}

SGD_MESH = {"hidden": 6, "learner": "sgd", "topology": "mesh", "ticks_per_sample": 3}
ONLINE_ADAM = {"hidden": 6, "learner": "adam", "settings": {"rate": 0.01}}
ONLINE_HUBER = {"hidden": 6, "loss": "huber", "topology": "columns", "activation": "sigmoid"}
DECOUPLED = {"hidden": 6, "settings": {"covariance": "decoupled", "replays": 2}}
SEASON = {"season": 12, "lags": 6, "hidden": 3, "horizon": 6}
CARRY, NONE, PORTABLE = {"memory": "carry"}, {"memory": "none"}, {"portable": True}
#: Online models: class, and arguments of the constructor by name of the case.
ONLINE: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "classes": (STREAM_CLASSIFIER, {"default": {}, "sgd": SGD_MESH, "adam": ONLINE_ADAM, "carry": ONLINE_ADAM | CARRY}),
    "numbers": (STREAM_REGRESSOR, {"default": {}, "sgd": SGD_MESH, "adam": ONLINE_ADAM, "huber": ONLINE_HUBER,
                                   "decoupled": DECOUPLED, "carry": {"hidden": 3} | CARRY}),
    "series": (FORECASTER, {"default": {}, "season": SEASON}),
}  # fmt: skip
STREAMS = {f"{name}-{case}": (kind, given) for name, (kind, cases) in ONLINE.items() for case, given in cases.items()}
#: Stream of a net by case: dtype, arguments of `Mesh.stream`. Portable streams have the same bits on all machines.
NET_STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "float32-adam": ("float32", {"learner": "adam"} | CARRY), "float32-sgd": ("float32", {"learner": "sgd"} | NONE),
    "float64-filter": ("float64", {"learner": "ekf"} | NONE),
    "portable-adam": ("float32", {"learner": "adam"} | PORTABLE),
    "portable-sgd": ("float32", {"learner": "sgd"} | PORTABLE),
    "portable-filter": ("float32", {"learner": "ekf", "scale": True} | NONE | PORTABLE),
}  # fmt: skip

QUICK = "--hidden 4 --max-epochs 4 --l2 0.01 --json"
#: Commands that run one after the other in one folder; recorded is the output, or the file named after `>`.
COMMANDS = {
    "fit": f"fit flowers.csv --target kind --out flowers.mesh {QUICK}",
    "fit-auto": "fit flowers.csv --target kind --max-epochs 3 --json",
    "fit-balanced": f"fit flowers.csv --target kind --class-weight balanced --drop colour --out plain.mesh {QUICK}",
    "fit-numbers": f"fit flowers.csv --target size --drop kind --solver lm --out sizes.mesh {QUICK}",
    "fit-counts": f"fit gaps.csv --target petals --loss poisson --solver adam {QUICK}",
    "fit-pruned": f"fit flowers.csv --target kind --edges 25 {QUICK}",
    "fit-grown": f"fit flowers.csv --target kind --grow {QUICK}",
    "fit-blocks": f"fit blocks --target size --task regress --solver adam --out blocks.mesh {QUICK}",
    "predict": "predict flowers.mesh flowers.csv --json",
    "predict-probabilities": "predict flowers.mesh flowers.csv --probabilities --keep size,colour --json",
    "predict-numbers": "predict sizes.mesh flowers.csv --json",
    "evaluate": "evaluate flowers.mesh flowers.csv --json",
    "evaluate-numbers": "evaluate sizes.mesh flowers.csv --json",
    "info": "info flowers.mesh --json",
    "explain": "explain --json",
    "explain-jacobian": "explain --inputs 4 --hidden 6 --outputs 1 --ticks 4 --jacobian --json",
    "explain-model": "explain flowers.mesh --batch-size 105 --json",
    "plot": "plot flowers.mesh --what adjacency --out net.png --json",
    "export-c": "export plain.mesh --out flowers.h --optimize speed --check --json",
    "export-int8": "export plain.mesh --out small.h --dtype int8 --data flowers.csv --no-tune --check --json",
    "export-onnx": "export plain.mesh --out flowers.onnx --check --json",
    "stream": "stream flowers.csv --target kind --hidden 4 --window 50 --out s.mesh --no-picture --json",
    "stream-numbers": "stream flowers.csv --target size --learner adam --out n.mesh --no-picture --json",
    "stream-resumed": "stream flowers.csv --resume s.mesh --new-rows --out t.mesh --no-picture --json",
    "info-stream": "info s.mesh --json",
    "export-learner": "export n.mesh --out learner.h --learn --check --json",
    "import": "import saved.bin --into n.mesh --out learned.mesh --json",
    "forecast": "forecast airline.csv --horizon 3 --origins 3 --model air.mesh --json",
    "info-forecast": "info air.mesh --json",
    "verify": "verify --tests 1 --reference numpy --json",
    "reproduce": "reproduce iris --quick --trials 2 --jobs 1 --out paper --json",
}
NETS = [f"net{k:03}" for k in range(200)]
INTEGER_NETS = {name: ("int8", "int16")[k % 2] for k, name in enumerate(NETS[:64:4])}
SLOW = ("reproduce",)
#: Keys of JSON whose numbers depend on the machine, on versions or on rounding: only the type is recorded.
MASKED = {"seconds", "training_seconds", "rows_per_second", "milliseconds", "bytes", "written_with", "versions", "mean",
          "half_width", "worst", "work"}  # fmt: skip


@cache
def table(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """Return samples, targets and further arguments of `fit`."""
    rng = generator("table", name)
    n, d = (20, 60) if "wide" in name else (120, 30) if "sparse" in name else (150, 3)
    X: Any = uniform(rng, n, d)
    value = 2.0 * X[:, 0] - X[:, 1] * X[:, 2] + 0.2 * uniform(rng, n)
    labels = np.stack([value > 0, X[:, 1] > 0, np.abs(X[:, 2]) > 1], axis=1).astype(int)
    outputs, high = np.stack([value, 5.0 + np.abs(value)], axis=1), np.where(value > 0, "high", "low")
    numbers, words = 10.0 + 3.0 * value, np.array(["low", "middle", "high"])[np.digitize(value, [-1.5, 1.5])]
    y = numbers if name == "sparse" or "numbers" in name else words
    y = {"two": labels[:, 0], "weighted": high, "labels": labels, "outputs": outputs,
         "counts": np.floor(np.abs(value))}.get(name, y)  # fmt: skip
    if "sparse" in name:
        X = scipy.sparse.csr_array(np.where(rng.random((n, d)) < 0.8, 0.0, X))
    if "frame" in name:
        X = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "sure": X[:, 1] > 0.3})
        X["town"] = np.array(["Bonn", "Rome", "Oslo", None], dtype=object)[integers(rng, 4, n)]
        X.loc[rng.random(n) < 0.1, "b"] = np.nan
    if name in ("sequences", "sums", "steps"):
        X = [uniform(rng, length, 2) for length in 3 + integers(rng, 5, 60)]
        sums = [np.cumsum(x[:, 0] - 0.5 * x[:, 1]) for x in X]
        last = np.array([each[-1] for each in sums])
        y = {"steps": sums, "sums": last, "sequences": np.where(last > 0, "up", "down")}[name]
    return X, y, {"sample_weight": 0.2 + 2.0 * rng.random(n)} if "weighted" in name else {}


def estimator(name: str, **changed: Any) -> tuple[Values, dict[str, Any]]:
    """Fit an estimator; return its predictions for some rows and its choices."""
    kind, data, arguments = ESTIMATORS[name]
    X, y, more = table(data)
    model = getattr(meshnn, kind)(**SEED, **(arguments | changed)).fit(X, y, **more)
    predicted, values = model.predict(X[:40]), {}
    facts = {key: getattr(model, name) for key, name in CHOSEN.items()}
    facts |= {"edges": model.mesh_.topology.n_edges, "ticks": model.mesh_.ticks}
    if hasattr(model, "predict_proba"):
        shares = np.asarray(model.predict_proba(X[:40]))
        likely = shares > 0.5 if predicted.ndim > 1 else model.classes_[shares.argmax(axis=1)]
        values["probabilities"] = shares.ravel()
        facts |= {"classes": model.classes_, "the likeliest are predicted": np.array_equal(predicted, likely)}
    else:
        values["predictions"] = np.concatenate([np.ravel(each) for each in predicted])
    dtype = np.float64 if facts["solver"] == "lm" else np.float32  # the dtype of training
    values = {key: value.astype(dtype) for key, value in values.items()}
    return values, json.loads(json.dumps(facts, default=lambda each: np.asarray(each).tolist()))


@cache
def rows() -> tuple[list[dict[str, float]], list[str], list[float]]:
    """Return samples of a stream with missing values, a late feature and a late class; classes; values."""
    rng = generator("rows")
    A, gap = uniform(rng, 1000, 3), rng.random((1000, 3)) < 0.05
    X = [{"abc"[k]: float(A[i, k]) for k in range(3) if k == 0 or not (gap[i, k] or i < 100 * k)} for i in range(1000)]
    value = A[:, 0] - A[:, 1] * np.roll(A[:, 0], 1) + 0.2 * uniform(rng, 1000)
    classes = ["odd" if i > 300 and v > 1.5 else "up" if v > 0 else "down" for i, v in enumerate(value)]
    return X, classes, (3.0 * value + 7.0).tolist()


def stream(name: str) -> Values:
    """Return predictions of an online model at intervals while it learns 1000 rows."""
    kind, arguments = STREAMS[name]
    model = getattr(meshnn, kind)(**SEED, **arguments)
    (X, classes, values), found = rows(), []
    for k, (x, label, value) in enumerate(zip(X, classes, values, strict=True)):
        if kind == FORECASTER:
            model.learn_one(100.0 + 0.1 * k + 10.0 * abs(k % 12 - 5.0) + value)
            found += [*model.forecast(6), *np.ravel(model.forecast_interval(6))] if k % 200 == 199 else []
        elif k % 25 == 24 and kind == STREAM_CLASSIFIER:
            found += [model.predict_proba_one(x).get(each, 0.0) for each in ("down", "odd", "up")]
        elif k % 25 == 24:
            found.append(model.predict_one(x))
        if kind != FORECASTER:
            model.learn_one(x, label if kind == STREAM_CLASSIFIER else value)
    return {"predictions": np.array(found, np.float64)}


def net_stream(name: str, path: Path | None = None) -> Values:
    """Return outputs of a net that learns 1000 rows; outputs of its C learner if a path is given."""
    (dtype, arguments), rng, t = NET_STREAMS[name], generator("net stream"), Topology.mesh(3, 5, 1)
    X = uniform(rng, 1000, 3).astype(np.float32)
    Y = X[:, :1] - X[:, 1:2] * X[:, 2:]
    learner: Any = Mesh(t, 2, "tanh", weights=uniform(rng, t.n_edges) / 3.0, dtype=dtype).stream(**arguments)
    if path is not None:
        learner.to_c(path)
        learner = CLearner(path)
    outputs = np.ascontiguousarray(learner.run(X, Y)[::20].ravel(), dtype)
    return {"outputs": outputs.view(np.uint32) if arguments.get("portable") else outputs}


@cache
def net(name: str) -> tuple[Mesh, np.ndarray]:
    """Draw a net and its inputs: layers, or any graph with cycles, skips, dead edges and unreachable neurons."""
    rng, kind = generator(name), NETS.index(name) % 3
    while True:
        sizes, bias = [int(1 + k) for k in integers(rng, 6, 3) * [0.8, 1.4, 0.5]], bool(rng.random() < 0.5)
        first, n = sizes[0] + bias, sum(sizes) + bias
        taken = rng.random((n, n)) < 0.25 + 0.5 * rng.random()
        pairs = [(i, j) for i in range(n) for j in range(first, n) if taken[i, j] and (kind != 1 or i < j)]
        names = [ACTIVATIONS[k] for k in integers(rng, len(ACTIVATIONS), sizes[1] + 1)]
        dtype, ticks = ("float32", "float64")[int(rng.random() < 0.5)], 1 + int(5 * rng.random())
        try:
            t = Topology(*sizes, pairs, bias) if kind else Topology.layered(sizes)
            weights = uniform(rng, t.n_edges) / np.sqrt(np.bincount(t.dst, minlength=t.n_neurons)[t.dst])
            found = Mesh(t, ticks, names[1:], names[0], weights=weights.astype(np.float32), dtype=dtype)
        except MeshError:  # no output can be reached
            continue
        return found, uniform(rng, 6, sizes[0]).astype(np.float32)


def by_mesh(name: str) -> Values:
    """Return the outputs of a net, which C and ONNX reproduce."""
    return {"outputs": np.asarray(net(name)[0].forward(net(name)[1]), np.float32).ravel()}


def by_onnx(name: str) -> np.ndarray:
    """Return the outputs that onnxruntime computes."""
    import onnxruntime

    mesh, X = net(name)
    model = mesh.to_onnx(dtype=str(mesh.dtype))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X.astype(mesh.dtype)})[0].ravel()


def by_c(names: list[str], folder: Path) -> dict[str, np.ndarray]:
    """Return the outputs of several nets that are compiled together."""
    text, found = "", {}
    for k, (name, mesh) in enumerate((name, net(name)[0]) for name in names):
        mesh.to_c(folder / f"{name}.h", name=name, optimize=("size", "speed")[k % 2])
        step = f"{name}_outputs(x + k * {mesh.topology.n_inputs}, y + k * {mesh.topology.n_outputs})"
        head = f"void run_{name}(const float *x, float *y, long n)"
        text += f'#include "{name}.h"\n{head} {{ long k; for (k = 0; k < n; k++) {step}; }}\n'
    (folder / "nets.c").write_text(text)
    options, library = ["-O0", "-shared", "-fPIC", "-lm", "-o"], folder / f"{names[0]}.so"
    subprocess.run([os.environ.get("CC") or "cc", folder / "nets.c", *options, library], check=True)
    loaded = ctypes.CDLL(str(library))
    for name in names:
        X, found[name] = net(name)[1], np.empty(len(net(name)[1]) * net(name)[0].topology.n_outputs, np.float32)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (X, found[name])]
        getattr(loaded, f"run_{name}")(*pointers, ctypes.c_long(len(X)))
    return found


def integer(name: str, compiled: bool = False) -> Values:
    """Return the outputs of an integer net, times their scale, by Python or by C."""
    (mesh, X), dtype, samples = net(name), INTEGER_NETS[name], uniform(generator(name, "X"), 50, 9)
    with tempfile.TemporaryDirectory() as folder:
        made = mesh.to_c(path := Path(folder) / "net.h", dtype=dtype, X=samples[:, : X.shape[1]], tune=False).net
        chip = CNet(path) if compiled else None
        whole = chip.outputs(chip.quantise(X)) if chip else made.outputs(made.coding(X))
    return {dtype: np.asarray(whole * made.out_scale, np.float64).ravel()}


def write_tables() -> None:
    """Write the tables that commands read into the current folder."""
    (X, words, _), rng = table("classes"), generator("flowers")
    frame = pd.DataFrame({"length": X[:, 0], "width": X[:, 1], "depth": X[:, 2]}).round(4)
    frame["colour"] = np.array(["red", "blue", "white"])[integers(rng, 3, 150)]
    frame["size"] = (X[:, 0] + np.abs(X[:, 1]) + (frame.colour == "red")).round(4)
    frame.assign(kind=words).to_csv("flowers.csv", index=False)
    gaps = frame.drop(columns="size").mask(rng.random((150, 4)) < 0.1)
    gaps.assign(petals=np.floor(np.abs(3 * X[:, 0])).astype(int)).to_csv("gaps.csv", index=False)
    os.mkdir("blocks")
    for k in range(2):
        frame[["length", "width", "size"]][75 * k : 75 * k + 75].to_parquet(f"blocks/{k}.parquet")
    shutil.copy(FILE.parents[2] / "examples" / "airline.csv", ".")


def commands(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Run commands in a new folder, and yield the masked output of each."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), mock.patch.dict(os.environ):
        os.environ["XDG_CACHE_HOME"] = folder  # measured costs of this machine would change choices
        write_tables()
        for name in names:
            if name == "import" and Path("learner.h").exists():
                Path("saved.bin").write_bytes(CLearner("learner.h").save(True))
            line, _, file = COMMANDS[name].partition(" > ")
            done = command(*line.split())
            text = Path(file).read_text() if file and not done.returncode else done.stdout
            yield name, done.stderr if done.returncode else masked(json.loads(text))


def masked(value: Any, key: str = "") -> Any:
    """Return JSON without values that depend on the machine or on wording: some keys, sentences, fractions in text."""
    if isinstance(value, dict):
        return {each: masked(inner, key if key in MASKED else each) for each, inner in value.items()}
    if key in MASKED:
        return value if str(value).startswith("<") else f"<{type(value).__name__}>"
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    if isinstance(value, str) and value.count(" ") > 2:
        return "<sentence>"
    return re.sub(r"\d+\.\d+(e[+-]\d+)?|\d+e[+-]\d+", "#", value) if isinstance(value, str) else value


KINDS: dict[str, tuple[Any, Any]] = {
    "estimator": (ESTIMATORS, lambda name: estimator(name)[0]), "stream": (STREAMS, stream), "integer":
    (INTEGER_NETS, integer), "net-stream": (NET_STREAMS, net_stream), "net": (NETS, by_mesh),
}  # fmt: skip


def write(only: list[str]) -> None:
    """Write the records of all cases, or of the given ones ("estimator/outputs-default", "command/fit")."""
    kept = FILE.with_suffix(".json")
    cases = [
        (kind, name) for kind, (names, _) in KINDS.items() for name in names if not only or f"{kind}/{name}" in only
    ]
    values = {f"{kind}/{name}/{key}": v for kind, name in cases for key, v in KINDS[kind][1](name).items()}
    facts = {f"{kind}/{name}": estimator(name)[1] for kind, name in cases if kind == "estimator"}
    found = {f"command/{name}": printed for name, printed in commands(list(COMMANDS))}
    facts |= {name: printed for name, printed in found.items() if not only or name in only}
    assert not (failed := [found for found in facts.values() if isinstance(found, str)]), failed
    if only:
        values, facts = load(FILE) | values, json.loads(kept.read_text(encoding="utf-8")) | facts
    save(FILE, values)
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items()]
    kept.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(values)} arrays and {len(facts)} records of plain values beside {FILE}")


if __name__ == "__main__":
    write(sys.argv[2:]) if sys.argv[1:2] == ["--write"] else sys.exit(__doc__)

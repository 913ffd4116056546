"""Exports of the page: model files and Python code that trains the same net."""

from __future__ import annotations

import json
import platform
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from meshnn import loading
from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.estimators.preprocessing import Preprocessing
from meshnn.export.blueprint import ExportError
from meshnn.mesh import Mesh
from meshnn.play.data import PlayData
from meshnn.play.net import PlayNet
from meshnn.topology import Topology
from meshnn.training import History

__all__ = ["exported", "model_of", "python_of"]


def model_of(mesh: Mesh, data: PlayData, done: int, solver: str) -> Any:
    """Return a fitted estimator with the net, its scaling and its classes."""
    preprocessing = Preprocessing(len(data.features), None, data.encoder, data.scaling)
    tree: dict[str, Any] = {
        "kind": "classifier" if data.task == "classify" else "regressor",
        "versions": {"python": platform.python_version()},
        "parameters": {"random_state": data.seed, "ticks": mesh.ticks},
        "mesh": mesh.to_tree(),
        "preprocessing": preprocessing.to_tree(),
        "n_iter": done,
        "l2": 0.0,
        "best_restart": 0,
        "loss": data.loss,
        "solver": ["adam" if solver != "lm" else "lm", "as in meshnn play"],
        "history": History().to_tree(),
        "stream": {"seed": data.seed, "memory": None, "weight": 0.0},
    }
    if data.task == "classify":
        classes = np.array(data.classes)
        text = {"dtype": classes.dtype.str, "values": classes.tolist()}
        tree["classes"] = classes if classes.dtype.kind in "biuf" else text
    else:
        tree |= {"flat": True, "laplace": "it was trained in meshnn play"}
    if data.encoder is not None:
        tree["target"] = data.target
    return loading.from_tree("the net of the page", tree)


def exported(what: str, net: PlayNet) -> tuple[str, bytes]:
    """Return the name and contents of a file of kind "mesh", "c" or "onnx"."""
    model = model_of(net.mesh, net.data, net.learner.done, net.solver)
    kinds = {"mesh": (".mesh", model.save), "c": (".h", model.to_c), "onnx": (".onnx", model.to_onnx)}
    ending, write = kinds[known("file", what, kinds)]
    stem = re.sub(r"[^a-z0-9]+", "_", Path(net.data.title).stem.lower()).strip("_") or "net"
    stem = stem if stem[0].isalpha() else f"net_{stem}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{stem}{ending}"
        try:
            write(path)
        except ExportError as error:
            raise MeshError(str(error)) from None
        except ImportError as error:
            raise MeshError(f"{error}; pip install 'meshnn[onnx]'") from None
        return path.name, path.read_bytes()


def python_of(mesh: Mesh, data: PlayData, solver: str, rate: float, done: int = 0) -> str:
    """Return Python code that trains the same net on the same samples."""
    t, classify, streams = mesh.topology, data.task == "classify", solver.startswith("stream")
    kinds = mesh.activations[: t.n_hidden]
    kind = repr(kinds[0] if len(set(kinds)) == 1 else kinds) if kinds else '"tanh"'
    options = f"ticks={mesh.ticks}, activation={kind}, random_state={data.seed}".replace("'", '"')
    lines = [*_samples(data, "50_000" if streams else "1000"), f"topology = {_graph(t)}"]
    if streams:
        learner = '"ekf"' if solver == "stream" else f'"adam", rate={rate:g}'
        score = "(out.argmax(axis=1) == y).mean()" if classify else "((out[:, 0] - y) ** 2).mean()"
        imports = ["from meshnn import Mesh, Topology"]
        if not data.streams:
            imports.append("from sklearn.preprocessing import StandardScaler")
            lines.insert(-1, "X = StandardScaler().fit_transform(X)")
        lines += [
            f'mesh = Mesh(topology, {options}, dtype="float64")',
            f'stream = mesh.stream("{data.loss}", {learner}, memory="none")',
            "out = stream.run(X, y)  # each sample is predicted, then learned",
            f"print({score})",
        ]
    else:
        model = "MeshClassifier" if classify else "MeshRegressor"
        imports = ["from sklearn.model_selection import train_test_split", f"from meshnn import {model}, Topology"]
        how = 'solver="lm", l2="evidence"'
        if solver == "adam":
            imports.append("from meshnn.training import Adam")
            how = f"solver=Adam(learning_rate={rate:g}), l2=0.0001"
            if done >= 200:  # with fewer epochs, `fit` chooses their number
                how += f", max_epochs={min(done, 2000)}"
        split = f"test_size=0.3{', stratify=y' if classify else ''}, random_state={data.seed}"
        lines.insert(-1, f"X, X_test, y, y_test = train_test_split(X, y, {split})")
        lines += [
            f"model = {model}(mesh=topology, {options}, {how}).fit(X, y)", "print(model.score(X_test, y_test))"
        ]  # fmt: skip
    return "\n".join([*imports, *lines]) + "\n"


def _samples(data: PlayData, count: str) -> list[str]:
    """Return code that makes X and y; `count` is the number of samples of a stream."""
    if data.streams:
        return ["from meshnn.play.data import drift", f"X, y = drift({count}, random_state={data.seed})"]
    if data.encoder is not None:
        target = _quoted(data.target)
        impute = ", impute=True" if data.encoder.impute else ""
        drop = [name for name, why in data.encoder.left_out.items() if why == "dropped on request"]
        dropped = f", drop=[{', '.join(map(_quoted, drop))}]" if drop else ""
        return [
            "from meshnn.tables.encoder import Encoder",
            "from meshnn.tables.reader import read_table",
            "from meshnn.tables.target import target_column",
            f"goal = target_column(read_table({_quoted(data.title)}).table, {target})",
            f"X = Encoder.learn(goal.table, {target}{dropped}{impute}).encode(goal.table).X",
            "y = goal.values",
        ]
    if data.name in ("iris", "digits"):
        return [f"from sklearn.datasets import load_{data.name}", f"X, y = load_{data.name}(return_X_y=True)"]
    name = data.name.replace("-", "_")
    return [f"from meshnn.tables.synthetic import {name}", f"X, y = {name}(1000, random_state={data.seed})"]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _graph(t: Topology) -> str:
    sizes = f"{t.n_inputs}, {t.n_hidden}, {t.n_outputs}"
    for feedback in (True, False):
        if t.bias and t == Topology.mesh(t.n_inputs, t.n_hidden, t.n_outputs, feedback=feedback):
            return f"Topology.mesh({sizes}{'' if feedback else ', feedback=False'})"
    if t.bias and t.n_hidden and t == Topology.layered([t.n_inputs, t.n_hidden, t.n_outputs]):
        return f"Topology.layered([{sizes}])"
    edges = ", ".join(f"({src}, {dst})" for src, dst in zip(t.src.tolist(), t.dst.tolist(), strict=True))
    return f"Topology({sizes}, [{edges}]{'' if t.bias else ', bias=False'})"

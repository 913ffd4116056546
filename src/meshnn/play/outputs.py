"""What leaves the bench: models as files, and the lines of Python that do the same."""

from __future__ import annotations

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
from meshnn.topology import Topology
from meshnn.training import History

__all__ = ["FILES", "exported", "model_of", "python_of"]

#: Epochs of adam; with fewer, `fit` finds how many itself.
MANY = 200

FILES = {"mesh": ".mesh", "c": ".h", "onnx": ".onnx"}


def model_of(mesh: Mesh, data: PlayData, done: int, solver: str) -> Any:
    """A fitted estimator: the net with the scaling of its features, and its classes."""
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
        tree["classes"] = classes if classes.dtype.kind in "biuf" else _texts(classes)
    else:
        tree |= {"flat": True, "laplace": "it was trained in meshnn play"}
    if data.encoder is not None:
        tree["target"] = data.target
    return loading.from_tree("the net of the page", tree)


def _texts(classes: Any) -> dict[str, Any]:
    return {"dtype": classes.dtype.str, "values": classes.tolist()}


def exported(what: str, mesh: Mesh, data: PlayData, done: int, solver: str) -> tuple[str, bytes]:
    """A file by the kind of it: its name and what is in it."""
    ending = FILES[known("file", what, FILES)]
    model = model_of(mesh, data, done, solver)
    stem = re.sub(r"[^a-z0-9]+", "_", Path(data.title).stem.lower()).strip("_") or "net"
    stem = stem if stem[0].isalpha() else f"net_{stem}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{stem}{ending}"
        try:
            if what == "mesh":
                model.save(path)
            elif what == "c":
                model.to_c(path)
            else:
                model.to_onnx(path)
        except ExportError as error:
            raise MeshError(str(error)) from None
        except ImportError as error:
            raise MeshError(f"{error}; pip install 'meshnn[onnx]'") from None
        return path.name, path.read_bytes()


def python_of(mesh: Mesh, data: PlayData, solver: str, rate: float, done: int = 0) -> str:
    """The lines of Python that learn the same net from the same samples, for as many epochs if they were many."""
    t, stream = mesh.topology, solver.startswith("stream")
    lines = ["from sklearn.model_selection import train_test_split"]
    model = "MeshClassifier" if data.task == "classify" else "MeshRegressor"
    lines.append("from meshnn import Mesh, Topology" if stream else f"from meshnn import {model}, Topology")
    if stream and not data.streams:
        lines.append("from sklearn.preprocessing import StandardScaler")
    stratify = ", stratify=y" if data.task == "classify" else ""
    split = f"X, X_test, y, y_test = train_test_split(X, y, test_size=0.3{stratify}, random_state={data.seed})"
    lines += [*_samples(data, stream), *([] if stream else [split])]
    lines += [f"topology = {_graph(t)}"]
    kinds = mesh.activations[: t.n_hidden]
    kind = repr(kinds[0] if len(set(kinds)) == 1 else kinds) if kinds else '"tanh"'
    options = f"ticks={mesh.ticks}, activation={kind}, random_state={data.seed}".replace("'", '"')
    if stream:
        learner = '"ekf"' if solver == "stream" else f'"adam", rate={rate:g}'
        lines.append(f'mesh = Mesh(topology, {options}, dtype="float64")')
        lines.append(f'stream = mesh.stream("{data.loss}", {learner}, memory="none")')
        lines.append("out = stream.run(X, y)  # each sample is predicted, then learned")
        last = "(out.argmax(axis=1) == y).mean()" if data.task == "classify" else "((out[:, 0] - y) ** 2).mean()"
        return "\n".join([*_without(lines, "train_test_split"), f"print({last})"]) + "\n"
    how = 'solver="lm", l2="evidence"' if solver == "lm" else f'solver="adam", learning_rate={rate:g}, l2=0.0001'
    if solver == "adam" and done >= MANY:
        how += f", max_epochs={min(done, 10 * MANY)}"
    lines.append(f"model = {model}(topology=topology, {options}, {how}).fit(X, y)")
    lines.append("print(model.score(X_test, y_test))")
    return "\n".join(lines) + "\n"


def _without(lines: list[str], name: str) -> list[str]:
    return [line for line in lines if name not in line]


def _samples(data: PlayData, stream: bool) -> list[str]:
    scaled = ["X = StandardScaler().fit_transform(X)"] if stream and not data.streams else []
    if data.streams:
        count = "50_000" if stream else "1000"
        lines = ["from meshnn.play.data import drift", f"X, y = drift({count}, random_state={data.seed})"]
    elif data.encoder is not None:
        target = _quoted(data.target)
        impute = ", impute=True" if data.encoder.impute else ""
        drop = [name for name, why in data.encoder.left_out.items() if why == "dropped on request"]
        dropped = f", drop=[{', '.join(map(_quoted, drop))}]" if drop else ""
        lines = [
            "from meshnn.tables.encoder import Encoder",
            "from meshnn.tables.reader import read_table",
            "from meshnn.tables.target import target_column",
            f"goal = target_column(read_table({_quoted(data.title)}).table, {target})",
            f"X = Encoder.learn(goal.table, {target}{dropped}{impute}).encode(goal.table).X",
            "y = goal.values",
        ]
    elif data.name in ("iris", "digits"):
        lines = [f"from sklearn.datasets import load_{data.name}", f"X, y = load_{data.name}(return_X_y=True)"]
    else:
        name = data.name.replace("-", "_")
        lines = [f"from meshnn.tables.synthetic import {name}", f"X, y = {name}(1000, random_state={data.seed})"]
    return lines + scaled


def _quoted(text: str) -> str:
    return repr(text) if '"' in text or "\\" in text else f'"{text}"' if text.isprintable() else repr(text)


def _graph(t: Topology) -> str:
    sizes = f"{t.n_inputs}, {t.n_hidden}, {t.n_outputs}"
    for feedback in (True, False):
        if t.bias and t == Topology.mesh(t.n_inputs, t.n_hidden, t.n_outputs, feedback=feedback):
            return f"Topology.mesh({sizes}{'' if feedback else ', feedback=False'})"
    if t.bias and t.n_hidden and t == Topology.layered([t.n_inputs, t.n_hidden, t.n_outputs]):
        return f"Topology.layered([{sizes}])"
    edges = ", ".join(f"({src}, {dst})" for src, dst in zip(t.src.tolist(), t.dst.tolist(), strict=True))
    return f"Topology({sizes}, [{edges}]{'' if t.bias else ', bias=False'})"

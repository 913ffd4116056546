"""Messages to the page: the samples, graph, states and decision regions of a net."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.files import finite
from meshnn.play.data import PlayData, PlayTable, drift
from meshnn.play.limits import LIMITS
from meshnn.play.net import PlayNet

__all__ = ["Message", "data_message", "frame", "graph_message", "json_message", "packed", "picture",
           "settings_message", "table_facts"]  # fmt: skip

Message = str | bytes  # JSON as text, or bytes with a JSON head and arrays of numbers


def json_message(kind: str, **fields: Any) -> str:
    """Return a message as JSON, with null for NaN and infinity."""
    return json.dumps(finite({"kind": kind} | fields), allow_nan=False)


def packed(kind: str, arrays: dict[str, NDArray[Any]], **fields: Any) -> bytes:
    """Return a message with arrays: the head's length in 4 bytes, the head in JSON, the arrays (floats first)."""
    kinds = {name: "u1" if array.dtype == np.uint8 else "f4" for name, array in arrays.items()}
    order = sorted(arrays, key=lambda name: kinds[name])  # f4 before u1, for alignment
    fields["arrays"] = [[name, kinds[name], int(arrays[name].size)] for name in order]
    head = json_message(kind, **fields).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join(np.ascontiguousarray(arrays[name], f"<{kinds[name]}").tobytes() for name in order)
    return struct.pack("<I", len(head)) + head + body


def table_facts(table: PlayTable | None) -> dict[str, Any]:
    """Return the description of a table for the page."""
    if table is None:
        return {}
    return {
        "name": table.name, "columns": table.columns, "target": table.target or table.columns[-1],
        "impute": table.impute, "drop": table.drop, "text": table.text if table.from_file else None,
    }  # fmt: skip


def data_message(data: PlayData) -> Message:
    """Return the samples, and their points if they have two features."""
    flat = len(data.features) == 2
    arrays: dict[str, NDArray[Any]] = {}
    if flat and not data.streams:
        arrays = {"x": data.raw[:, 0], "y": data.raw[:, 1]}
        if data.task == "classify":
            arrays["label"] = np.concatenate([data.y, data.test_y]).astype(np.uint8)
    return packed(
        "data", arrays, name=data.name, title=data.title, task=data.task, features=data.features,
        classes=[str(c) for c in data.classes], train=len(data.y), test=len(data.test_y), paper=data.paper,
        figure=data.figure, notes=data.notes, seed=data.seed, streams=data.streams, flat=flat,
    )  # fmt: skip


def graph_message(net: PlayNet) -> Message:
    """Return the graph."""
    t = net.mesh.topology
    return json_message(
        "graph", names=net.names, inputs=t.n_inputs, outputs=t.n_outputs, bias=t.bias,
        activations=net.mesh.activations, src=t.src.tolist(), dst=t.dst.tolist(),
        dead=np.flatnonzero(net.mesh.dead_edges()).tolist(), ticks=net.mesh.ticks, version=net.version,
        undo=len(net.undone), redo=len(net.redone),
    )  # fmt: skip


def settings_message(net: PlayNet, running: bool, pace: int) -> Message:
    """Return the settings of training."""
    return json_message(
        "settings", running=running, solver=net.solver, rate=net.rate, pace=pace, budget=net.budget,
        ticks=net.mesh.ticks, unit=net.learner.unit, uses_rate=net.solver in ("adam", "stream-adam"),
    )  # fmt: skip


def frame(net: PlayNet) -> Message:
    """Return weights, states of the chosen sample, and scores."""
    states = net.mesh.states(net.sample, n_jobs=1)[:, 0]
    return packed(
        "frame", {"weights": net.mesh.weights, "states": states.ravel()}, version=net.version,
        done=net.learner.done, loss=net.result.loss, rate=net.result.accuracy, test=_test_score(net),
    )  # fmt: skip


def _test_score(net: PlayNet) -> float:
    """Return the accuracy or R² of the hold-out set; NaN for a stream."""
    data = net.data
    if data.streams:
        return math.nan
    out = net.mesh.forward(data.test_X, n_jobs=1)
    if data.task == "classify":
        return float((out.argmax(axis=1) == data.test_y).mean())
    rest, whole = ((data.test_y - out) ** 2).sum(), ((data.test_y - data.test_y.mean()) ** 2).sum()
    return float(1 - rest / whole) if whole > 0 else math.nan


def picture(net: PlayNet) -> Message:
    """Return decision regions for two features; otherwise predictions against targets, or a confusion matrix."""
    data, mesh = net.data, net.mesh
    if data.task == "regress":
        true, found = data.test_y[: LIMITS.shown], mesh.forward(data.test_X[: LIMITS.shown], n_jobs=1)
        values = (data.scaling.values(v)[:, 0] for v in (true, found))
        return packed("scatter", dict(zip(("true", "found"), values, strict=True)), target=data.target)
    if len(data.features) != 2:
        found, count = mesh.forward(data.test_X, n_jobs=1).argmax(axis=1), data.n_outputs
        table = np.bincount(data.test_y * count + found, minlength=count * count).reshape(count, count)
        return json_message("confusion", counts=table.tolist())
    low, high = data.raw.min(axis=0), data.raw.max(axis=0)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    across, up = (np.linspace(low[k], high[k], LIMITS.grid) for k in range(2))
    points = np.stack(np.meshgrid(across, up[::-1]), axis=-1).reshape(-1, 2)  # the first row is at the top
    out = mesh.forward(data.scaling.inputs(points), n_jobs=1)
    sure = 1 / np.exp(out - out.max(axis=1, keepdims=True)).sum(axis=1)  # the largest probability
    arrays = {"best": out.argmax(axis=1).astype(np.uint8), "sure": np.rint(255 * sure).astype(np.uint8)}
    if data.streams:  # the last samples
        X, y = drift(300, max(net.learner.done - 300, 0), data.seed)
        arrays |= {"x": X[:, 0], "y": X[:, 1], "label": y.astype(np.uint8)}
    return packed("regions", arrays, size=LIMITS.grid, low=low.tolist(), high=high.tolist())

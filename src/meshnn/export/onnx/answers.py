"""From the outputs of a net to labels, probabilities or values, named as skl2onnx names them."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.onnx.graph import CODES, ML, Graph, Value

__all__ = ["answer", "labels"]


def answer(
    graph: Graph, blueprint: Blueprint, outputs: str, axes: tuple[int | str, ...], *, zipmap: bool, raw: bool = False
) -> None:
    """Add the outputs of a graph; `axes` are those of samples."""
    if blueprint.classes:
        _classes(graph, blueprint, outputs, axes, zipmap, raw)
        return
    values = outputs
    if blueprint.link == "exp":
        values = graph.add("Exp", (values,), "rates")
    if blueprint.y_scale is not None and blueprint.y_mean is not None:
        values = graph.add("Mul", (values, graph.constant("scale_back/scale", blueprint.y_scale)), "scale_back/scaled")
        values = graph.add("Add", (values, graph.constant("scale_back/mean", blueprint.y_mean)), "scale_back")
    name = "outputs" if blueprint.title.startswith("Mesh(") else "variable"  # of a net alone
    _give(graph, values, name, graph.dtype, (*axes, blueprint.n_outputs))


def _give(graph: Graph, tensor: str, name: str, kind: str, shape: tuple[int | str, ...]) -> None:
    """Add a tensor as an output, under its public name."""
    last = graph.nodes[-1]
    if last.outputs == (tensor,):  # no node reads it yet: it is renamed
        name = graph.name(name)
        graph.nodes[-1] = last._replace(outputs=(name,))
    else:
        name = graph.add("Identity", (tensor,), name)
    graph.outputs.append(Value(name, kind, shape))


def _classes(
    graph: Graph, blueprint: Blueprint, outputs: str, axes: tuple[int | str, ...], zipmap: bool, raw: bool
) -> None:  # fmt: skip
    n = len(blueprint.classes)
    if blueprint.several:
        on = graph.add("Greater", (outputs, graph.constant("zero", 0.0)), "label/on")
        graph.outputs.append(Value(graph.add("Cast", (on,), "label", to=CODES["int64"]), "int64", (*axes, n)))
        chances = outputs if raw else graph.add("Sigmoid", (outputs,), "chances")
        _give(graph, chances, "probabilities", graph.dtype, (*axes, n))
        return
    found = labels(blueprint)
    kind = "string" if found.dtype == object else "int64"
    label, name = ("output_label", "output_probability") if zipmap else ("label", "probabilities")
    number = _number(graph, blueprint, outputs)
    if np.array_equal(found, np.arange(n)):
        _give(graph, number, label, "int64", axes)
    else:
        picked = graph.add("Gather", (graph.constant("classes", found), number), label, axis=0)
        graph.outputs.append(Value(picked, kind, axes))
    if blueprint.link == "logit":
        minus = graph.add("Neg", (outputs,), "chances/minus")
        outputs = graph.add("Concat", (outputs, minus), "chances/both", axis=-1)
        chances = outputs if raw else graph.add("Sigmoid", (outputs,), "chances")
    else:
        chances = outputs if raw else graph.add("Softmax", (outputs,), "chances", axis=-1)
    if not zipmap:
        _give(graph, chances, name, graph.dtype, (*axes, n))
        return
    if graph.dtype != "float32":
        chances = graph.add("Cast", (chances,), "chances/short", to=CODES["float32"])  # ZipMap takes no others
    key = "classlabels_strings" if kind == "string" else "classlabels_int64s"
    graph.add("ZipMap", (chances,), name, ML, **{key: found.tolist()})
    graph.outputs.append(Value(name, f"map of {kind}", axes))


def _number(graph: Graph, blueprint: Blueprint, outputs: str) -> str:
    """Return the number of the most likely class; the first of equally likely ones."""
    if blueprint.link != "logit":
        return graph.add("ArgMax", (outputs,), "label/number", axis=-1, keepdims=0)
    # one output, the logit of the first class; the second is likelier below 0
    below = graph.add("Less", (outputs, graph.constant("zero", 0.0)), "label/second")
    flat = graph.add("Squeeze", (below, graph.constant("axis/classes", np.array([-1]))), "label/flat")
    return graph.add("Cast", (flat,), "label/number", to=CODES["int64"])


def labels(blueprint: Blueprint) -> Array:
    """Return the classes as ONNX has them: whole numbers or texts."""
    classes: list[Any] = list(blueprint.classes)
    if all(isinstance(label, str) for label in classes):
        return np.array(classes, object)
    for label in classes:
        whole = isinstance(label, int) or (isinstance(label, float) and label.is_integer())
        if not whole or not -(2**63) <= label < 2**63:
            raise ExportError(
                f"the class {label!r} cannot be a label of ONNX, which are all texts or all whole numbers; fit the "
                "model to such labels"
            )
    return np.array([int(label) for label in classes], np.int64)

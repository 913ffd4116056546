"""`to_onnx`: a trained model as an ONNX file for onnxruntime and other runtimes, using standard operators only."""

from __future__ import annotations

from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np

from meshnn.arguments import known, switch, whole_number
from meshnn.arrays import Array
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.onnx.features import encoded, missing_flag, scaled
from meshnn.export.onnx.graph import Graph, imported
from meshnn.export.onnx.net import OnnxNet, in_time, state_neurons
from meshnn.files import as_path, write_whole

__all__ = ["to_onnx"]

LEAST_OPSET = 18  #: Oldest opset (2022) that has all operators used here.


def to_onnx(
    blueprint: Blueprint, path: str | PathLike[str] | None = None, *, zipmap: bool | None = None,
    sequence: bool = False, opset: int = LEAST_OPSET, dtype: str = "float32", name: str | None = None,
) -> Any:  # fmt: skip
    """Return an ONNX model.

    The input is `features` (N, n_inputs); a model of a table with text columns has one input (N, 1) per column. A
    classifier has the outputs `label` (N,) and `probabilities` (N, n_classes), a multi-label classifier both as
    (N, n_labels), a regressor `variable` (N, n_outputs), and a bare `Mesh` `outputs`. A row with a feature that is NaN
    or infinite gets NaN. A stateful model takes one step per call: its input `state_in` (N, n_state) is zero at first,
    and its output `state_out` is the next `state_in`.

    Parameters
    ----------
    blueprint : Blueprint
        The result of `model.blueprint()`.
    path : path-like, optional
        File to write. If writing fails, no partial file is left.
    zipmap : bool, optional
        Whether probabilities are a list of dictionaries by class, with outputs named `output_label` and
        `output_probability`, as skl2onnx does by default; False returns a tensor (N, n_classes). The default is True,
        except for multi-label classifiers and for all steps of sequences, which always return a tensor.
    sequence : bool, default False
        For stateful models: take whole sequences (steps, N, n_inputs) in one call, without a state.
    opset : int, default 18
        Version of the operator set, at least 18.
    dtype : {"float32", "float64"}, default "float32"
        Type of features, computation and outputs. Use "float64" if features or weights do not fit in float32.
    name : str, optional
        Name of the graph, by default "mesh".

    Returns
    -------
    onnx.ModelProto

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> model = Mesh(Topology.layered([2, 3, 1]), random_state=0).to_onnx()
    >>> [node.op_type for node in model.graph.node]
    ['Mul', 'ReduceSum', 'Gemm', 'Relu', 'Gemm', 'Add']
    """
    onnx = imported()
    newest = onnx.defs.onnx_opset_version()
    if path is not None:
        as_path(path)
    if not LEAST_OPSET <= whole_number("opset", opset, least=0) <= newest:
        raise ExportError(f"opset {opset} is not supported; pass a number from {LEAST_OPSET} to {newest}")
    graph = build(blueprint, Graph(known("dtype", dtype, ("float32", "float64"))), zipmap=zipmap, sequence=sequence)
    domains = [onnx.helper.make_opsetid("", opset)]
    if any(node.domain for node in graph.nodes):
        domains.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
    model = onnx.helper.make_model(
        graph.proto(name or "mesh"), opset_imports=domains, producer_name="meshnn",
        producer_version=version("meshnn"), doc_string=blueprint.title,
        ir_version=onnx.helper.find_min_ir_version_for(domains, ignore_unknown=True),
    )  # fmt: skip
    onnx.helper.set_model_props(model, _metadata(blueprint, sequence))
    if path is not None:
        write_whole(path, [model.SerializeToString()])
    return model


def build(
    blueprint: Blueprint, graph: Graph, *, zipmap: bool | None = False, sequence: bool = False, raw: bool = False
) -> Graph:
    """Fill an empty graph and return it; with `raw`, a classifier returns net outputs instead of probabilities."""
    timing = blueprint.timing
    if switch("sequence", sequence) and timing is None:
        raise ExportError("sequence=True requires a stateful model, but this one takes single samples; leave it out")
    steps = sequence and timing is not None and timing.readout == "all"
    plain = blueprint.several or steps or not blueprint.classes
    if zipmap is not None and switch("zipmap", zipmap) and plain:
        kind = "several labels" if blueprint.several else "all steps of sequences" if steps else "a regressor or a Mesh"
        raise ExportError(f"zipmap=True requires a classifier with one class per sample, not {kind}; leave it out")
    if timing is None:
        features = encoded(graph, blueprint)
        flag = missing_flag(graph, blueprint, features)
        net = OnnxNet(blueprint, graph, scaled(graph, blueprint, features))
        *ticks, last = blueprint.timetable
        never = np.setdiff1d(blueprint.outputs, np.concatenate(ticks)) if ticks else blueprint.outputs
        net.run([*ticks, np.union1d(last, never)])
        outputs = net.collected(blueprint.outputs, "outputs")
        outputs = graph.add("Add", (outputs, flag), "missing/checked") if flag else outputs
    else:
        outputs = in_time(graph, blueprint, timing, sequence)
    states, graph.outputs = graph.outputs, []
    axes = ("T", "N") if steps else ("N",)
    if blueprint.classes:
        _add_classes(graph, blueprint, outputs, axes, zipmap=not plain if zipmap is None else zipmap, raw=raw)
    else:
        _add_values(graph, blueprint, outputs, axes)
    graph.outputs += states
    return graph


def _metadata(blueprint: Blueprint, sequence: bool) -> dict[str, str]:
    found = {
        "neurons": f"{blueprint.n_inputs} inputs, {blueprint.n_hidden} hidden, {blueprint.n_outputs} outputs",
        "edges": str(len(blueprint.src)), "ticks": str(blueprint.ticks), "features": ", ".join(blueprint.features),
        "columns": ", ".join(column.name for column in blueprint.columns),
        "classes": ", ".join(str(label) for label in blueprint.classes),
    }  # fmt: skip
    if blueprint.timing is not None:
        found |= {key: str(value) for key, value in blueprint.timing._asdict().items()}
        if not sequence:
            found["state"] = "neurons " + ", ".join(str(j) for j in state_neurons(blueprint).tolist())
    return {key: value for key, value in found.items() if value}


# -- outputs, with the names that skl2onnx uses --------------------------------------------------------------------


def _add_output(graph: Graph, tensor: str, name: str, shape: tuple[int | str, ...], kind: str = "") -> None:
    """Add a tensor as an output under its public name."""
    last = graph.nodes[-1]
    if list(last.output) == [tensor]:  # no node reads it yet, so it can be renamed
        name = graph.name(name)
        last.output[0], last.name = name, f"{name}/{last.op_type}"
    else:
        name = graph.add("Identity", (tensor,), name)
    graph.output(name, shape, kind)


def _add_values(graph: Graph, blueprint: Blueprint, values: str, axes: tuple[str, ...]) -> None:
    if blueprint.link == "exp":
        values = graph.add("Exp", (values,), "rates")
    if blueprint.y_scale is not None and blueprint.y_mean is not None:
        values = graph.add("Mul", (values, graph.constant("scale_back/scale", blueprint.y_scale)), "scale_back/scaled")
        values = graph.add("Add", (values, graph.constant("scale_back/mean", blueprint.y_mean)), "scale_back")
    name = "outputs" if blueprint.title.startswith("Mesh(") else "variable"  # a bare Mesh, or a regressor
    _add_output(graph, values, name, (*axes, blueprint.n_outputs))


def _add_classes(
    graph: Graph, blueprint: Blueprint, outputs: str, axes: tuple[str, ...], zipmap: bool, raw: bool
) -> None:
    """Add the predicted labels and the probabilities."""
    labels, two, zero = _labels(blueprint), blueprint.link == "logit", graph.constant("zero", 0.0)
    if blueprint.several:
        on = graph.add("Greater", (outputs, zero), "label/on")
        graph.output(graph.cast(on, "label", "int64"), (*axes, len(labels)), "int64")
    else:
        if two:  # one output, the logit of the first class; the second class is more likely below 0
            below = graph.add("Less", (outputs, zero), "label/second")
            flat = graph.add("Squeeze", (below, graph.constant("axis/classes", np.array([-1]))), "label/flat")
            number = graph.cast(flat, "label/number", "int64")
        else:  # ties go to the first class
            number = graph.add("ArgMax", (outputs,), "label/number", axis=-1, keepdims=0)
        if not np.array_equal(labels, np.arange(len(labels))):
            number = graph.add("Gather", (graph.constant("classes", labels), number), "label/of_number", axis=0)
        _add_output(graph, number, "output_label" if zipmap else "label", axes, labels.dtype.name)
    if two:
        minus = graph.add("Neg", (outputs,), "chances/minus")
        outputs = graph.add("Concat", (outputs, minus), "chances/both", axis=-1)
    if not raw and blueprint.link == "softmax":
        outputs = graph.add("Softmax", (outputs,), "chances", axis=-1)
    elif not raw:
        outputs = graph.add("Sigmoid", (outputs,), "chances")
    if not zipmap:
        return _add_output(graph, outputs, "probabilities", (*axes, len(labels)))
    if graph.dtype != "float32":
        outputs = graph.cast(outputs, "chances/short", "float32")  # ZipMap takes no other type
    key = "classlabels_strings" if labels.dtype == object else "classlabels_int64s"
    name = graph.add("ZipMap", (outputs,), "output_probability", "ai.onnx.ml", **{key: labels.tolist()})
    helper = graph.onnx.helper
    entry = helper.make_map_type_proto(graph.code(labels.dtype.name), helper.make_tensor_type_proto(1, []))
    graph.outputs.append(helper.make_value_info(name, helper.make_sequence_type_proto(entry)))


def _labels(blueprint: Blueprint) -> Array:
    """Return the classes as ONNX labels: integers or strings."""
    classes: list[Any] = list(blueprint.classes)
    if all(isinstance(label, str) for label in classes):
        return np.array(classes, object)
    for label in classes:
        whole = isinstance(label, int) or (isinstance(label, float) and label.is_integer())
        if not whole or not -(2**63) <= label < 2**63:
            raise ExportError(
                f"the class {label!r} cannot be an ONNX label; fit the model to labels that are all strings or all "
                "integers"
            )
    return np.array([int(label) for label in classes], np.int64)

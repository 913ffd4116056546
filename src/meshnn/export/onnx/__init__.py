"""`to_onnx`: a trained model as a file for onnxruntime and others, of operators of the standard only."""

from __future__ import annotations

import sys
from os import PathLike
from typing import Any

import numpy as np

from meshnn.arguments import known, switch, whole_number
from meshnn.arrays import IntArray
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.onnx.answers import answer
from meshnn.export.onnx.features import encoded, missing_flag, scaled
from meshnn.export.onnx.graph import ML, Graph, as_protos, imported
from meshnn.export.onnx.net import OnnxNet
from meshnn.export.onnx.sequences import one_step, state_neurons, whole_sequence
from meshnn.files import as_path, write_whole

__all__ = ["LEAST_OPSET", "build", "to_onnx"]

#: Operators are those of opset 18 (2022), or of any later one.
LEAST_OPSET, ML_OPSET = 18, 3


def to_onnx(
    blueprint: Blueprint, path: str | PathLike[str] | None = None, *, zipmap: bool | None = None,
    sequence: bool = False, opset: int = LEAST_OPSET, dtype: str = "float32", name: str | None = None,
) -> Any:  # fmt: skip
    """Return an ONNX model, see docs/onnx.md.

    Its input is `features` (N, n_inputs); a model of a table with text columns has an input (N, 1) per column. A
    classifier has `label` (N,) and `probabilities`, a regressor `variable` (N, n_outputs), a net alone `outputs`. Of
    several labels both are (N, n_labels). A row with a feature that is NaN or infinite gets NaN. Models that live in
    time take one step per call: `state_in` (N, n_state), zeros at first, and `state_out`, the next `state_in`.

    Parameters
    ----------
    blueprint : Blueprint
        Of `model.blueprint()`.
    path : path-like, optional
        Where to write it: the whole file or none.
    zipmap : bool, optional
        Probabilities as a list of dictionaries by class, and names `output_label` and `output_probability`, as skl2onnx
        gives them by default, and so here; False: as a tensor (N, n_classes). Of several labels, and of all steps of
        sequences, they always are a tensor.
    sequence : bool
        Of models that live in time: whole sequences (steps, N, n_inputs) in one call, and no state.
    opset : int
        From 18 on.
    dtype : "float32" or "float64"
        Of features, of what is computed and of what comes out.
    name : str, optional
        Of the graph.

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
    opset = whole_number("opset", opset, least=0)
    if not LEAST_OPSET <= opset <= newest:
        why = "older than the operators that are needed" if opset < LEAST_OPSET else "not known to this version of onnx"
        raise ExportError(f"opset {opset} is {why}; pass one from {LEAST_OPSET} to {newest}")
    graph = build(blueprint, Graph(known("dtype", dtype, ("float32", "float64"))), zipmap=zipmap, sequence=sequence)
    proto = as_protos(graph, name or "mesh")
    domains = [onnx.helper.make_opsetid("", opset)]
    if any(node.domain == ML for node in graph.nodes):
        domains.append(onnx.helper.make_opsetid(ML, ML_OPSET))
    model = onnx.helper.make_model(
        proto, opset_imports=domains, producer_name="meshnn", producer_version=_version(), doc_string=blueprint.title,
        ir_version=onnx.helper.find_min_ir_version_for(domains, ignore_unknown=True),
    )  # fmt: skip
    onnx.helper.set_model_props(model, _facts(blueprint, sequence))
    if path is not None:
        write_whole(path, [model.SerializeToString()])
    return model


def build(
    blueprint: Blueprint, graph: Graph, *, zipmap: bool | None = False, sequence: bool = False, raw: bool = False
) -> Graph:
    """Fill an empty graph and return it; with `raw` classifiers return outputs instead of probabilities."""
    timing = blueprint.timing
    if zipmap is not None:
        zipmap = switch("zipmap", zipmap)
    if switch("sequence", sequence) and timing is None:
        raise ExportError("sequence=True is for models that live in time, and this one takes samples; leave it out")
    steps = sequence and timing is not None and timing.readout == "all"
    plain = blueprint.several or steps or not blueprint.classes
    if zipmap and plain:
        what = "several labels" if blueprint.several else "all steps of sequences" if steps else "what is no classifier"
        raise ExportError(f"zipmap=True is for one class per sample, not for {what}; leave it out")
    axes: tuple[int | str, ...] = ("N",)
    if timing is None:
        features = encoded(graph, blueprint)
        flag = missing_flag(graph, blueprint, features)
        net = OnnxNet(blueprint, graph, scaled(graph, blueprint, features))
        net.run(_ticks(blueprint))
        outputs = net.collected(blueprint.outputs, "outputs")
        outputs = graph.add("Add", (outputs, flag), "missing/checked") if flag else outputs
    elif sequence:
        outputs, axes = whole_sequence(graph, blueprint, timing), ("T", "N") if steps else ("N",)
    else:
        outputs = one_step(graph, blueprint, timing)
    states, graph.outputs = graph.outputs, []
    answer(graph, blueprint, outputs, axes, zipmap=not plain if zipmap is None else zipmap, raw=raw)
    graph.outputs += states
    return graph


def _ticks(blueprint: Blueprint) -> list[IntArray]:
    """Return the timetable, with outputs that no neuron reads in the last tick if they can wait or never change."""
    ticks, outputs = list(blueprint.timetable), blueprint.outputs
    read = np.isin(outputs, blueprint.src[blueprint.alive])
    made = np.isin(outputs, np.concatenate(ticks))
    late = outputs[~read] if blueprint.once else outputs[~made]
    ticks = [np.setdiff1d(neurons, late) for neurons in ticks]
    ticks[-1] = np.union1d(ticks[-1], late)
    return ticks


def _facts(blueprint: Blueprint, sequence: bool) -> dict[str, str]:
    """Return the metadata of the file."""
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


def _version() -> str:
    # not imported: the package is above what is in it
    return str(sys.modules["meshnn"].__version__)

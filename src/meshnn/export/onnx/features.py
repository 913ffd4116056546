"""Nodes from the inputs of an ONNX model to the scaled features of its net: encoding, imputation and scaling."""

from __future__ import annotations

import numpy as np

from meshnn.export.blueprint import Blueprint, ExportError, InputColumn
from meshnn.export.onnx.graph import Graph


def encoded(graph: Graph, blueprint: Blueprint) -> str:
    """Add the inputs and return the unscaled features (N, n_inputs).

    There is one input, or one per column if the table has a text column.
    """
    columns = blueprint.columns
    if not any(column.categories for column in columns):
        features = graph.input("features", ("N", blueprint.n_inputs))
        return _filled(graph, features, "features/filled", [column.fill for column in columns])
    parts = [_column(graph, column) for column in columns]
    return graph.add("Concat", tuple(parts), "features", axis=1)


def _filled(graph: Graph, tensor: str, name: str, fills: list[float | None]) -> str:
    """Replace NaN in the columns that have a fill value."""
    if all(fill is None for fill in fills):
        return tensor
    values = graph.constant(f"{name}/fill", np.array([np.nan if v is None else v for v in fills]), finite=False)
    return graph.add("Where", (graph.add("IsNaN", (tensor,), f"{name}/gaps"), values, tensor), name)


def _column(graph: Graph, column: InputColumn) -> str:
    """Return the features of one column: a number, or one per category; the empty string is a missing value."""
    outputs = ("label", "probabilities", "output_label", "output_probability", "variable", "outputs", "")
    wanted = f"{column.name}_column" if column.name in outputs else column.name
    name = graph.input(wanted, ("N", 1), "object" if column.categories else "")
    if not column.categories:
        return _filled(graph, name, f"{name}/filled", [column.fill])
    codes = {text: k for k, text in enumerate(column.categories)}
    count = column.width
    if "" not in codes:
        codes[""] = count if column.fill is None else int(column.fill)
    keys = {"keys_strings": list(codes), "values_int64s": list(codes.values()), "default_int64": column.unseen}
    number = graph.add("LabelEncoder", (name,), f"{name}/number", "ai.onnx.ml", **keys)
    hot = graph.add("Equal", (number, graph.constant(f"{name}/numbers", np.arange(count))), f"{name}/equal")
    features = graph.cast(hot, f"{name}/features", graph.dtype)
    if column.fill is not None or "" in column.categories:
        return features
    gap = graph.add("Equal", (number, graph.constant(f"{name}/gap", np.array(count))), f"{name}/missing")
    nan = graph.constant("nan", np.array(np.nan), finite=False)
    return graph.add("Where", (gap, nan, features), f"{name}/checked")


def scaled(graph: Graph, blueprint: Blueprint, name: str) -> str:
    """Return the scaled features; in a stream model, a feature that is not finite counts as its mean."""
    r = blueprint
    if r.x_mean is not None and r.x_scale is not None:
        beyond = np.abs(r.x_mean) / 1e3 + r.x_scale > np.finfo(graph.dtype).max / 1e3
        if (large := np.flatnonzero(np.isfinite(r.x_scale) & beyond)).size:
            shown = f"numbers around {abs(r.x_mean[large[0]]) + r.x_scale[large[0]]:.1g}"
            raise ExportError(
                f"feature {large[0]} has {shown}, which are too large for {graph.dtype}; scale the features first"
            )
        factor, mean = 1.0 / r.x_scale, r.x_mean.astype(graph.dtype)  # the scale of a constant feature is infinite
        centred = graph.add("Sub", (name, graph.constant("scale/mean", mean)), "scale/centred")
        name = graph.add("Mul", (centred, graph.constant("scale/factor", factor)), "scale/scaled")
        if (rest := (mean - r.x_mean) * factor).any():  # the rounding error of the mean
            name = graph.add("Add", (name, graph.constant("scale/rest", rest)), "scale/shifted")
    if not np.isfinite(r.x_cut):
        return name
    zero = graph.constant("zero", 0.0)
    finite = graph.add("Equal", (graph.add("Sub", (name, name), "scale/nothing"), zero), "scale/finite")
    name = graph.add("Where", (finite, name, zero), "scale/filled")
    name = graph.add("Max", (name, graph.constant("scale/low", -r.x_cut)), "scale/above")
    return graph.add("Min", (name, graph.constant("scale/high", r.x_cut)), "scale/clipped")


def missing_flag(graph: Graph, blueprint: Blueprint, *tensors: str) -> str:
    """Return a flag (N, 1), 0 or NaN where a row is not finite; "" if the model accepts such rows."""
    if np.isfinite(blueprint.x_cut):
        return ""
    total = ""
    for tensor in tensors:
        nothing = graph.add("Mul", (tensor, graph.constant("zero", 0.0)), "missing/nothing")
        flag = graph.add("ReduceSum", (nothing, graph.constant("axis/last", np.array([-1]))), "missing/flag")
        total = graph.add("Add", (total, flag), "missing/any") if total else flag
    return total

"""Activations as operators of ONNX."""

from __future__ import annotations

from meshnn.codes import ACTIVATIONS
from meshnn.export.blueprint import ExportError
from meshnn.export.onnx_graph import Graph

__all__ = ["activate"]


def activate(g: Graph, name: str, t: str, label: str) -> str:
    """phi(t), of operators that onnxruntime has for this precision."""
    simple = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "sin": "Sin"}
    if g.dtype == "float32":
        simple |= {"elu": "Elu", "softplus": "Softplus"}
    if name == "identity":
        return t
    if name in simple:
        return g.add(simple[name], (t,), label)
    if name == "gauss":
        square = g.add("Mul", (t, t), f"{label}/square")
        return g.add("Exp", (g.add("Neg", (square,), f"{label}/minus"),), label)
    if name == "leaky_relu":
        if g.dtype == "float32":
            return g.add("LeakyRelu", (t,), label, alpha=0.01)
        return g.add("Max", (t, g.add("Mul", (t, g.constant("leaky_relu/slope", 0.01)), f"{label}/low")), label)
    one = g.constant("one", 1.0)
    if name == "elu":
        power = g.add("Exp", (g.add("Min", (t, g.constant("zero", 0.0)), f"{label}/low"),), f"{label}/power")
        below = g.add("Sub", (power, one), f"{label}/below")
        return g.add("Add", (g.add("Relu", (t,), f"{label}/above"), below), label)
    if name == "softplus":
        size = g.add("Neg", (g.add("Abs", (t,), f"{label}/size"),), f"{label}/minus")
        power = g.add("Exp", (size,), f"{label}/power")
        soft = g.add("Log", (g.add("Add", (one, power), f"{label}/more"),), f"{label}/soft")
        return g.add("Add", (g.add("Relu", (t,), f"{label}/above"), soft), label)
    raise ExportError(f"ONNX export does not know the activation {name!r}; it knows {', '.join(ACTIVATIONS)}")

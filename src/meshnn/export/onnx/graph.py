"""`Graph`: nodes, constants and names of an ONNX graph."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from meshnn.export.blueprint import ExportError


class Graph:
    """Nodes in the order in which they run.

    The body of a loop is a graph with an `outer` one; its constants belong to the outermost.
    """

    def __init__(self, dtype: str, outer: Graph | None = None, prefix: str = "") -> None:
        self.dtype, self.prefix, self.onnx = dtype, prefix, imported()
        self.outermost: Graph = self if outer is None else outer.outermost
        self.inputs, self.outputs, self.nodes = list[Any](), list[Any](), list[Any]()
        self.constants: dict[tuple[Any, ...], Any] = {}  # by their content
        self._names: set[str] = set()

    def add(self, op: str, inputs: tuple[str, ...], output: str, domain: str | None = None, **attributes: Any) -> str:
        """Add a node with one output, after which it is named, and return the name of the output."""
        name = self.name(output)
        node = self.onnx.helper.make_node(op, inputs, [name], f"{name}/{op}", domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def cast(self, tensor: str, output: str, kind: str) -> str:
        """Add a conversion to a type of NumPy."""
        return self.add("Cast", (tensor,), output, to=self.code(kind))

    def code(self, kind: str) -> int:
        """Return the number of a type of NumPy in the standard; texts are objects."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def input(self, wanted: str, shape: tuple[int | str, ...], kind: str = "") -> str:
        """Add an input, by default of numbers, and return its name; axes with a name have any length."""
        name = self.name(wanted)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, self.code(kind or self.dtype), shape))
        return name

    def output(self, name: str, shape: tuple[int | str, ...], kind: str = "") -> None:
        """Let a tensor be an output."""
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, self.code(kind or self.dtype), shape))

    def name(self, wanted: str) -> str:
        """Return the wanted name, with a number if it is taken."""
        base = found = self.prefix + wanted
        count = 1
        while found in self.outermost._names:
            count += 1
            found = f"{base}_{count}"
        self.outermost._names.add(found)
        return found

    def constant(self, wanted: str, value: Any, finite: bool = True) -> str:
        """Add an initialiser, floats in the precision of the graph, unless an equal one exists; return its name."""
        array, constants = np.asarray(value), self.outermost.constants
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # refused by name
                array = array.astype(self.dtype)
            if finite and not np.isfinite(array).all():
                advice = 'pass dtype="float64"' if self.dtype == "float32" else "scale the features first"
                raise ExportError(f"{wanted} has numbers that {self.dtype} cannot hold; {advice}")
        # small ones that are equal by chance keep names that say what they are; those of equal ticks are shared
        content = tuple(array.tolist()) if array.dtype == object else blake2b(array.tobytes()).digest()
        kind = "" if array.nbytes >= 64 else wanted.rpartition("/")[2]
        key = (kind, array.dtype.str, array.shape, content)
        if key not in constants:
            constants[key] = self.onnx.numpy_helper.from_array(array, self.name(wanted))
        return str(constants[key].name)

    def proto(self, name: str) -> Any:
        """Return a GraphProto."""
        constants = list(self.constants.values())
        return self.onnx.helper.make_graph(self.nodes, name, self.inputs, self.outputs, constants)


def imported() -> Any:
    """Return the module `onnx`."""
    try:
        import onnx
        import onnx.checker
        import onnx.compose
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:  # an optional dependency: say how to get it
        raise ExportError("onnx is not installed; pip install 'meshnn[onnx]' brings it") from error
    return onnx

"""`Graph`: nodes, constants and names of an ONNX graph."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from meshnn.export.blueprint import ExportError


class Graph:
    """Nodes of a graph in the order in which they run.

    The body of a loop is a graph inside an `outer` graph; its constants belong to the outermost graph.
    """

    def __init__(self, dtype: str, outer: Graph | None = None, prefix: str = "") -> None:
        self.dtype, self.prefix, self.onnx = dtype, prefix, imported()
        self.outermost: Graph = self if outer is None else outer.outermost
        self.inputs, self.outputs, self.nodes = list[Any](), list[Any](), list[Any]()
        self.constants: dict[tuple[Any, ...], Any] = {}  # by their content
        self._names: set[str] = set()

    def add(self, op: str, inputs: tuple[str, ...], output: str, domain: str | None = None, **attributes: Any) -> str:
        """Add a node with one output, name it after the output, and return that name."""
        name = self.name(output)
        node = self.onnx.helper.make_node(op, inputs, [name], f"{name}/{op}", domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def cast(self, tensor: str, output: str, kind: str) -> str:
        """Add a conversion to a NumPy type."""
        return self.add("Cast", (tensor,), output, to=self.code(kind))

    def code(self, kind: str) -> int:
        """Return the ONNX code of a NumPy type; strings have the type "object"."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def input(self, wanted: str, shape: tuple[int | str, ...], kind: str = "") -> str:
        """Add an input and return its name; axes given by a name have any length, and "" is the type of the graph."""
        name = self.name(wanted)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, self.code(kind or self.dtype), shape))
        return name

    def output(self, name: str, shape: tuple[int | str, ...], kind: str = "") -> None:
        """Declare a tensor as an output."""
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, self.code(kind or self.dtype), shape))

    def name(self, wanted: str) -> str:
        """Reserve and return the wanted name, with a number appended if it is taken."""
        base = found = self.prefix + wanted
        count = 1
        while found in self.outermost._names:
            count += 1
            found = f"{base}_{count}"
        self.outermost._names.add(found)
        return found

    def constant(self, wanted: str, value: Any, finite: bool = True) -> str:
        """Add an initialiser unless an equal one exists, and return its name; floats get the precision of the graph."""
        array, constants = np.asarray(value), self.outermost.constants
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # refused below
                array = array.astype(self.dtype)
            if finite and not np.isfinite(array).all():
                advice = 'pass dtype="float64"' if self.dtype == "float32" else "scale the features first"
                raise ExportError(f"{wanted} has numbers too large for {self.dtype}; {advice}")
        # large constants are shared whenever they are equal, small ones only if they also have the same role
        content = tuple(array.tolist()) if array.dtype == object else blake2b(array.tobytes()).digest()
        kind = "" if array.nbytes >= 64 else wanted.rpartition("/")[2]
        key = (kind, array.dtype.str, array.shape, content)
        if key not in constants:
            constants[key] = self.onnx.numpy_helper.from_array(array, self.name(wanted))
        return str(constants[key].name)

    def proto(self, name: str) -> Any:
        """Return the graph as a GraphProto."""
        constants = list(self.constants.values())
        return self.onnx.helper.make_graph(self.nodes, name, self.inputs, self.outputs, constants)


def imported() -> Any:
    """Import and return the module `onnx`."""
    try:
        import onnx
        import onnx.checker
        import onnx.compose
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:  # an optional dependency
        raise ExportError("onnx is not installed; install it with pip install 'meshnn[onnx]'") from error
    return onnx

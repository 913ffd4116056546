"""`Graph`: nodes, constants and names of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from meshnn.export.blueprint import ExportError


class Node(NamedTuple):
    """One operator; its domain is "" or that of classical machine learning, which is part of the standard, too."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: str
    attributes: dict[str, Any]


class Graph:
    """Nodes in the order in which they run.

    The body of a loop is a graph with an `outer` one; its constants belong to the outermost. `naming` makes unique
    names for a graph that becomes part of another model, and `known` are inputs that exist there already.
    """

    def __init__(
        self, dtype: str, outer: Graph | None = None, prefix: str = "", naming: Callable[[str], str] | None = None
    ) -> None:
        self.dtype, self.prefix, self.onnx = dtype, prefix, imported()
        self.outermost: Graph = self if outer is None else outer.outermost
        self.naming, self.known = naming, dict[str, str]()
        self.inputs, self.outputs, self.nodes = list[Any](), list[Any](), list[Node]()
        self.constants: dict[str, Any] = {}
        self._equal: dict[tuple[Any, ...], str] = {}
        self._names: set[str] = set()
        self._bytes = 0

    def add(self, op: str, inputs: tuple[str, ...], output: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the name of the output."""
        name = self.name(output)
        self.nodes.append(Node(op, inputs, (name,), domain, attributes))
        return name

    def cast(self, tensor: str, output: str, kind: str) -> str:
        """Add a conversion to a type of NumPy."""
        return self.add("Cast", (tensor,), output, to=self.code(kind))

    def code(self, kind: str) -> int:
        """Return the number of a type of NumPy in the standard; texts are objects."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def input(self, name: str, shape: tuple[int | str, ...], kind: str = "") -> str:
        """Add an input, by default of numbers, and return its name; axes with a name have any length."""
        name = self.known.get(name) or self.name(name)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, self.code(kind or self.dtype), shape))
        return name

    def output(self, name: str, shape: tuple[int | str, ...], kind: str = "") -> None:
        """Let a tensor be an output."""
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, self.code(kind or self.dtype), shape))

    def name(self, wanted: str) -> str:
        """Return the wanted name, with a number if it is taken."""
        base = found = self.prefix + wanted
        if self.outermost.naming is not None:
            return self.outermost.naming(base)
        count = 1
        while found in self.outermost._names:
            count += 1
            found = f"{base}_{count}"
        self.outermost._names.add(found)
        return found

    def constant(self, wanted: str, value: Any, finite: bool = True) -> str:
        """Add an initialiser, floats in the precision of the graph, unless an equal one exists; return its name."""
        array, owner = np.asarray(value), self.outermost
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # refused by name
                array = array.astype(self.dtype)
            if finite and not np.isfinite(array).all():
                advice = 'pass dtype="float64"' if self.dtype == "float32" else "scale the features first"
                raise ExportError(f"{wanted} has numbers that {self.dtype} cannot hold; {advice}")
        # small ones that are equal by chance keep names that say what they are; those of equal ticks are shared
        content = tuple(array.tolist()) if array.dtype == object else blake2b(array.tobytes()).digest()
        key = ("" if array.nbytes >= 64 else wanted.rpartition("/")[2], array.dtype.str, array.shape, content)
        if key not in owner._equal:
            self.check_size(array.nbytes)
            owner._equal[key] = name = self.name(wanted)
            owner.constants[name] = self.onnx.numpy_helper.from_array(array, name)
            owner._bytes += array.nbytes
        return owner._equal[key]

    def check_size(self, more: int) -> None:
        """Refuse further constants that do not fit in one file."""
        total = more + self.outermost._bytes
        if total > 2**31 - 2**20:  # a file is one protobuf message, which is below 2 GiB
            raise ExportError(
                f"the model would take {total / 2**30:.1f} GiB, and a file of ONNX holds less than 2; prune edges or "
                "neurons, or keep it in a .mesh file"
            )

    def proto(self, name: str) -> Any:
        """Return a GraphProto; nodes are named after their first outputs."""
        make = self.onnx.helper.make_node
        nodes = [
            make(op, inputs, outputs, f"{outputs[0]}/{op}", domain=domain or None, **attributes)
            for op, inputs, outputs, domain, attributes in self.nodes
        ]
        return self.onnx.helper.make_graph(nodes, name, self.inputs, self.outputs, list(self.constants.values()))


def imported() -> Any:
    """Return the module `onnx`."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:  # an optional dependency: say how to get it
        raise ExportError("onnx is not installed; pip install 'meshnn[onnx]' brings it") from error
    return onnx

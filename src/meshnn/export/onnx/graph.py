"""`Graph`: nodes and constants of an ONNX graph as plain values, and their conversion by the module `onnx`."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array
from meshnn.export.blueprint import ExportError

#: The domain of operators for classical machine learning, part of the standard.
ML = "ai.onnx.ml"
#: Numbers of types in the standard.
CODES = {"float32": 1, "int64": 7, "string": 8, "bool": 9, "float64": 11}


class Node(NamedTuple):
    """One operator; an attribute that is a `Graph` is a body."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    domain: str


class Value(NamedTuple):
    """An input or output of a graph."""

    name: str
    kind: str  # a key of CODES; "map of string", "map of int64": one per sample
    shape: tuple[int | str, ...]  # axes with a name have any length


class Graph:
    """Nodes in the order in which they run. The body of a loop is a graph of its own, with the constants of all.

    Parameters
    ----------
    dtype : "float32" or "float64"
    outer : Graph, optional
        The graph that this is the body of a loop in.
    prefix : str
        Of the names of nodes.
    naming : callable, optional
        Makes a unique name, for graphs that become part of another model.
    """

    def __init__(
        self, dtype: str, outer: Graph | None = None, prefix: str = "", naming: Callable[[str], str] | None = None
    ) -> None:
        self.dtype, self.prefix = dtype, prefix
        self.naming: Callable[[str], str] | None = naming if outer is None else outer.naming
        self.known: dict[str, str] = {}  # names of inputs that exist already
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {} if outer is None else outer.constants
        self._bytes: list[int] = [0] if outer is None else outer._bytes
        self._equal: dict[tuple[Any, ...], str] = {} if outer is None else outer._equal
        self._names: set[str] = set() if outer is None else outer._names

    def add(self, op: str, inputs: tuple[str, ...], output: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the name of the output."""
        name = self.name(output)
        self.nodes.append(Node(op, inputs, (name,), attributes, domain))
        return name

    def input(self, name: str, shape: tuple[int | str, ...], kind: str = "") -> str:
        """Add an input, by default of numbers, and return its name."""
        self.inputs.append(Value(self.known.get(name) or self.name(name), kind or self.dtype, shape))
        return self.inputs[-1].name

    def name(self, wanted: str) -> str:
        """Return the wanted name, with a number if it is taken."""
        if self.naming is not None:
            return self.naming(self.prefix + wanted)
        base = found = self.prefix + wanted
        count = 1
        while found in self._names:
            count += 1
            found = f"{base}_{count}"
        self._names.add(found)
        return found

    def constant(self, wanted: str, value: Any, finite: bool = True) -> str:
        """Add an initialiser, floats in the precision of the graph, unless an equal one exists; return its name."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # refused by name
                array = array.astype(self.dtype)
            if finite and not np.isfinite(array).all():
                advice = 'pass dtype="float64"' if self.dtype == "float32" else "scale the features first"
                raise ExportError(f"{wanted} has numbers that {self.dtype} cannot hold; {advice}")
        # small ones that are equal by chance keep names that say what they are
        content = tuple(array.tolist()) if array.dtype == object else blake2b(array.tobytes()).digest()
        key = ("" if array.nbytes >= 64 else wanted, array.dtype.str, array.shape, content)
        if key not in self._equal:
            self.check_size(array.nbytes)
            self._equal[key] = self.name(wanted)
            self.constants[self._equal[key]] = array
            self._bytes[0] += array.nbytes
        return self._equal[key]

    def check_size(self, more: int) -> None:
        """Refuse further constants that do not fit in one file."""
        total = more + self._bytes[0]
        if total > 2**31 - 2**20:  # a file is one protobuf message, which is below 2 GiB
            raise ExportError(
                f"the model would take {total / 2**30:.1f} GiB, and a file of ONNX holds less than 2; prune edges or "
                "neurons, or keep it in a .mesh file"
            )


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


def as_protos(graph: Graph, name: str, shared: bool = False) -> Any:
    """Return a GraphProto; the constants of a body stay with the outermost graph."""
    onnx = imported()
    constants = [] if shared else [tensor_proto(onnx, key, array) for key, array in graph.constants.items()]
    return onnx.helper.make_graph(
        [_node(onnx, node) for node in graph.nodes], name, [_value(onnx, value) for value in graph.inputs],
        [_value(onnx, value) for value in graph.outputs], constants,
    )  # fmt: skip


def _node(onnx: Any, node: Node) -> Any:
    """Return a NodeProto, named after its first output."""
    attributes = {
        key: as_protos(value, node.outputs[0] + "/body", shared=True) if isinstance(value, Graph) else value
        for key, value in node.attributes.items()
    }
    name = f"{node.outputs[0]}/{node.op}"
    return onnx.helper.make_node(node.op, node.inputs, node.outputs, name, domain=node.domain or None, **attributes)


def tensor_proto(onnx: Any, name: str, array: Array) -> Any:
    """Return a TensorProto."""
    if array.dtype == object:
        texts = [text.encode() for text in array.tolist()]
        return onnx.helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, texts)
    return onnx.numpy_helper.from_array(array, name)


def _value(onnx: Any, value: Value) -> Any:
    helper = onnx.helper
    if not value.kind.startswith("map of "):
        return helper.make_tensor_value_info(value.name, CODES[value.kind], value.shape)
    number = helper.make_tensor_type_proto(CODES["float32"], [])  # ZipMap returns no others
    entry = helper.make_map_type_proto(CODES[value.kind.removeprefix("map of ")], number)
    return helper.make_value_info(value.name, helper.make_sequence_type_proto(entry))

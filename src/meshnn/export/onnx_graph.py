"""`Graph`: nodes and constants of an ONNX graph as plain values, and what becomes of them where `onnx` is installed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array
from meshnn.export.blueprint import ExportError

__all__ = ["ML", "Graph", "Node", "Value", "as_protos", "digest", "imported", "node_proto", "tensor_proto"]

#: The domain of operators for classical machine learning, part of the standard.
ML = "ai.onnx.ml"
#: Bytes of constants that a model may have: a file is one message, and those are below 2 GiB.
MOST_BYTES = 2**31 - 2**20
#: Bytes from which on equal constants are one.
SHARED = 64


class Node(NamedTuple):
    """One operator; an attribute that is a `Graph` is a body."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    domain: str


class Value(NamedTuple):
    """What goes into a graph, or comes out."""

    name: str
    kind: str  # "float32", "float64", "int64", "bool" or "string"; "map of string", "map of int64": one a sample
    shape: tuple[int | str, ...]  # axes with a name have any length


class Graph:
    """Nodes in the order in which they run. Bodies of loops are graphs of their own, which see the constants of all.

    Parameters
    ----------
    dtype : "float32" or "float64"
    outer : Graph, optional
        The one that this is a body in.
    prefix : str
        Of names inside.
    naming : callable, optional
        Makes a name that is used nowhere else: graphs that become part of another model.
    """

    def __init__(
        self, dtype: str, outer: Graph | None = None, prefix: str = "", naming: Callable[[str], str] | None = None
    ) -> None:
        self.dtype, self.prefix = dtype, prefix
        self.naming: Callable[[str], str] | None = naming if outer is None else outer.naming
        self.known: dict[str, str] = {}  # inputs that have a name already
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {} if outer is None else outer.constants
        self._bytes: list[int] = [0] if outer is None else outer._bytes
        self._equal: dict[tuple[Any, ...], str] = {} if outer is None else outer._equal
        self._names: set[str] = set() if outer is None else outer._names

    def add(self, op: str, inputs: tuple[str, ...], output: str, domain: str = "", **attributes: Any) -> str:
        """A node with one output, whose name it gives back."""
        name = self.name(output)
        self.nodes.append(Node(op, inputs, (name,), attributes, domain))
        return name

    def input(self, name: str, shape: tuple[int | str, ...]) -> str:
        """Numbers that go in."""
        self.inputs.append(Value(self.known.get(name) or self.name(name), self.dtype, shape))
        return self.inputs[-1].name

    def name(self, wanted: str) -> str:
        """That, or with a number if there is one of this name."""
        if self.naming is not None:
            return self.naming(self.prefix + wanted)
        base = found = self.prefix + wanted
        count = 1
        while found in self._names:
            count += 1
            found = f"{base}_{count}"
        self._names.add(found)
        return found

    def constant(self, wanted: str, value: Any) -> str:
        """An initialiser, floats in the precision of the graph; the same one again for the same numbers."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # refused by name
                array = array.astype(self.dtype)
            if not np.isfinite(array).all():
                advice = 'pass dtype="float64"' if self.dtype == "float32" else "scale the features first"
                raise ExportError(f"{wanted} has numbers that {self.dtype} cannot hold; {advice}")
        # small ones that are equal by chance keep names that say what they are
        content = tuple(array.tolist()) if array.dtype == object else digest(array)
        key = ("" if array.nbytes >= SHARED else wanted, array.dtype.str, array.shape, content)
        if key not in self._equal:
            self.check_size(array.nbytes)
            self._equal[key] = self.name(wanted)
            self.constants[self._equal[key]] = array
            self._bytes[0] += array.nbytes
        return self._equal[key]

    def check_size(self, more: int) -> None:
        """Refuse constants of so many bytes more if they cannot be in one file."""
        total = more + self._bytes[0]
        if total > MOST_BYTES:
            raise ExportError(
                f"the model would take {total / 2**30:.1f} GiB, and a file of ONNX holds less than 2; prune edges or "
                "neurons, or keep it in a .mesh file"
            )


def digest(*arrays: Array) -> str:
    """Equal arrays have an equal one."""
    found = blake2b(digest_size=16)
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def imported() -> Any:
    """The module `onnx`."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:  # an optional dependency: say how to get it
        raise ExportError("onnx is not installed; pip install 'meshnn[onnx]' brings it") from error
    return onnx


def as_protos(graph: Graph, name: str, shared: bool = False) -> Any:
    """As a GraphProto; of a body, constants stay with the outermost graph."""
    onnx = imported()
    constants = [] if shared else [tensor_proto(onnx, key, array) for key, array in graph.constants.items()]
    return onnx.helper.make_graph(
        [node_proto(onnx, node) for node in graph.nodes], name, [_value(onnx, value) for value in graph.inputs],
        [_value(onnx, value) for value in graph.outputs], constants,
    )  # fmt: skip


def node_proto(onnx: Any, node: Node) -> Any:
    """As a NodeProto, named by what it makes."""
    attributes = {
        key: as_protos(value, node.outputs[0] + "/body", shared=True) if isinstance(value, Graph) else value
        for key, value in node.attributes.items()
    }
    name = f"{node.outputs[0]}/{node.op}"
    return onnx.helper.make_node(node.op, node.inputs, node.outputs, name, domain=node.domain or None, **attributes)


def tensor_proto(onnx: Any, name: str, array: Array) -> Any:
    """As a TensorProto."""
    if array.dtype == object:
        texts = [text.encode() for text in array.tolist()]
        return onnx.helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, texts)
    return onnx.numpy_helper.from_array(array, name)


def _value(onnx: Any, value: Value) -> Any:
    helper, kinds = onnx.helper, onnx.TensorProto
    codes = {"float32": kinds.FLOAT, "float64": kinds.DOUBLE, "int64": kinds.INT64, "bool": kinds.BOOL}
    codes["string"] = kinds.STRING
    if not value.kind.startswith("map of "):
        return helper.make_tensor_value_info(value.name, codes[value.kind], value.shape)
    # ZipMap gives floats of 32 bits, whatever it is given
    number = helper.make_tensor_type_proto(kinds.FLOAT, [])
    entry = helper.make_map_type_proto(codes[value.kind.removeprefix("map of ")], number)
    return helper.make_value_info(value.name, helper.make_sequence_type_proto(entry))

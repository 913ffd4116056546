"""The ticks of a net as operators of ONNX.

Neurons of a tick that share an activation are one tensor (batch, neurons). Their weighted sums are one Gemm over the
tensors that hold their sources, side by side; of large blocks with few edges, products edge by edge. Constants that are
equal are stored once, so cycles can be unrolled; many equal ticks are a Loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.limits import LIMITS
from meshnn.export.onnx.graph import Graph, Node, Value

__all__ = ["OnnxNet", "activate", "batch_of"]


@dataclass
class _States:
    """Which tensor holds the state of each neuron, and in which column; -1: the state is 0."""

    holder: IntArray
    column: IntArray
    names: list[str] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    def put(self, name: str, neurons: IntArray) -> None:
        """Let the states of neurons be the columns of a tensor."""
        self.holder[neurons], self.column[neurons] = len(self.names), np.arange(len(neurons))
        self.names.append(name)
        self.widths.append(len(neurons))

    def copy(self) -> _States:
        """Return a copy."""
        return _States(self.holder.copy(), self.column.copy(), list(self.names), list(self.widths))


class OnnxNet:
    """The neurons of a blueprint in a graph.

    Parameters
    ----------
    blueprint : Blueprint
    graph : Graph
    features : str
        The tensor (batch, n_inputs) of scaled features.
    state : (name, neurons), optional
        A tensor of states of the tick before the first.
    outer : Net, optional
        That of the surrounding graph, for the body of a loop, which sees its tensors.
    """

    def __init__(
        self, blueprint: Blueprint, graph: Graph, features: str, state: tuple[str, IntArray] | None = None,
        outer: OnnxNet | None = None,
    ) -> None:  # fmt: skip
        self.blueprint, self.graph, self.features = blueprint, graph, features
        n = blueprint.n_neurons
        self.joined: dict[tuple[str, ...], str] = {} if outer is None else dict(outer.joined)
        self.states: _States = _States(np.full(n, -1), np.zeros(n, np.int64)) if outer is None else outer.states.copy()
        self.read = np.zeros(n, np.bool_)  # neurons that others read
        self.read[blueprint.src[blueprint.alive]] = True
        self.codes = np.array([ACTIVATIONS[name] for name in blueprint.activations])
        if outer is None:
            self.states.put(features, np.arange(blueprint.n_inputs))
        if state is not None:
            self.states.put(*state)

    def run(self, ticks: list[IntArray]) -> None:
        """Run ticks, each given by the neurons whose states are computed."""
        k = 0
        while k < len(ticks):
            self.tick(k + 1, ticks[k])
            same = 0
            while k + same + 1 < len(ticks) and np.array_equal(ticks[k + same + 1], ticks[k]):
                same += 1
            k += 1
            if same >= LIMITS.onnx_loop and len(ticks[k]):  # after the first tick, when there are tensors of all states
                self.loop(k + 1, ticks[k], same)
                k += same

    def tick(self, k: int, neurons: IntArray) -> None:
        """Compute the states of neurons from those one tick before."""
        groups = self._groups(neurons)
        made = []
        for activation, members in groups:
            label = f"tick{k}" if len(groups) == 1 else f"tick{k}/{activation}"
            made.append((activate(self.graph, activation, self._summed(label, members), label), members))
        for name, members in made:
            self.states.put(name, members)

    def _groups(self, neurons: IntArray) -> list[tuple[str, IntArray]]:
        """Group neurons by activation; outputs that no neuron reads are tensors of their own."""
        codes = self.codes[neurons - self.blueprint.n_clamped]
        apart = (neurons >= self.blueprint.n_neurons - self.blueprint.n_outputs) & ~self.read[neurons]
        found = [
            (code, neurons[(codes == code) & (apart == end)]) for code in np.unique(codes) for end in (False, True)
        ]
        return [(list(ACTIVATIONS)[code], members) for code, members in found if len(members)]

    def loop(self, k: int, neurons: IntArray, count: int) -> None:
        """Repeat the same tick `count` times."""
        g, label, groups = self.graph, f"tick{k}_to_{k + count - 1}", self._groups(neurons)
        body = Graph(g.dtype, g, label + "/")
        inner = OnnxNet(self.blueprint, body, self.features, outer=self)
        carried = [self.states.names[self.states.holder[members[0]]] for _, members in groups]
        body.inputs += [Value(body.name("number"), "int64", ()), Value(body.name("go"), "bool", ())]
        for activation, members in groups:
            body.inputs.append(Value(body.name(f"before/{activation}"), g.dtype, ("N", len(members))))
            inner.states.put(body.inputs[-1].name, members)
        inner.tick(k, neurons)
        body.outputs.append(Value(body.add("Identity", (body.inputs[1].name,), "on"), "bool", ()))
        for _, members in groups:
            name = inner.states.names[inner.states.holder[members[0]]]
            body.outputs.append(Value(name, g.dtype, ("N", len(members))))
        outputs = tuple(g.name(f"{label}/{activation}") for activation, _ in groups)
        often, go = g.constant(label + "/count", np.array(count)), g.constant("loop/go", np.array(True))
        g.nodes.append(Node("Loop", (often, go, *carried), outputs, {"body": body}, ""))
        for name, (_, members) in zip(outputs, groups, strict=True):
            self.states.put(name, members)

    # -- weighted sums ---------------------------------------------------------------------------------------------

    def _summed(self, label: str, members: IntArray) -> str:
        """Return the weighted sums (batch, neurons) of neurons."""
        r, s, g = self.blueprint, self.states, self.graph
        edges = np.concatenate([np.arange(*r.pointers[j : j + 2]) for j in members.tolist()])
        src, weights = r.src[edges], r.weights[edges]
        dst = np.searchsorted(members, r.dst[edges])
        ours = (src == r.n_inputs) & r.bias
        bias = np.bincount(dst[ours], weights[ours], len(members)).astype(float)
        live = s.holder[src] >= 0
        src, dst, weights = src[live], dst[live], weights[live]
        if not len(src):
            return g.add("Expand", (g.constant(f"{label}/bias", bias), self._shape(label, len(bias))), f"{label}/sum")
        holders, at = np.unique(s.holder[src], return_inverse=True)
        starts = np.concatenate([[0], np.cumsum([s.widths[h] for h in holders])])
        tensor = self._together(label, tuple(s.names[h] for h in holders))
        rows, shape = s.column[src] + starts[at], (int(starts[-1]), len(members))
        entries = shape[0] * shape[1]
        if entries >= LIMITS.onnx_sparse_entries and entries > LIMITS.onnx_sparse_times * len(src):
            return self._by_edges(label, tensor, (rows, dst, weights), bias)
        g.check_size(entries * np.dtype(g.dtype).itemsize)  # before it is made
        matrix = np.zeros(shape)
        matrix[rows, dst] = weights
        constants = g.constant(f"{label}/weights", matrix), g.constant(f"{label}/bias", bias)
        return g.add("Gemm", (tensor, *constants), f"{label}/sum")

    def _by_edges(self, label: str, tensor: str, edges: tuple[IntArray, IntArray, Array], bias: Array) -> str:
        """Gather the source of every edge, multiply by its weight and add to its target."""
        g, (src, dst, weights) = self.graph, edges
        turned = g.add("Transpose", (tensor,), f"{label}/turned", perm=[1, 0])
        taken = g.add("Gather", (turned, g.constant(f"{label}/sources", src)), f"{label}/gathered", axis=0)
        products = g.add("Mul", (taken, g.constant(f"{label}/weights", weights[:, None])), f"{label}/products")
        shape = self._shape(label, len(bias), turned=True)
        start = g.add("Expand", (g.constant(f"{label}/bias", bias[:, None]), shape), f"{label}/begin")
        targets = g.constant(f"{label}/targets", dst[:, None])
        rows = g.add("ScatterND", (start, targets, products), f"{label}/rows", reduction="add")
        return g.add("Transpose", (rows,), f"{label}/sum", perm=[1, 0])

    def _together(self, label: str, names: tuple[str, ...]) -> str:
        """Return tensors side by side."""
        if len(names) == 1:
            return names[0]
        if names not in self.joined:
            self.joined[names] = self.graph.add("Concat", names, f"{label}/sources", axis=1)
        return self.joined[names]

    def _shape(self, label: str, width: int, turned: bool = False) -> str:
        count, wide = batch_of(self.graph, self.features), self.graph.constant(f"shape/{width}", np.array([width]))
        return self.graph.add("Concat", (wide, count) if turned else (count, wide), f"{label}/shape", axis=0)

    def collected(self, neurons: IntArray, name: str) -> str:
        """Return the states of neurons, in this order, as one tensor."""
        s, g = self.states, self.graph
        holders = list(dict.fromkeys(s.holder[neurons].tolist()))
        starts = np.concatenate([[0], np.cumsum([s.widths[h] for h in holders])])
        columns = s.column[neurons] + starts[[holders.index(h) for h in s.holder[neurons].tolist()]]
        tensor = self._together(name, tuple(s.names[h] for h in holders))
        if np.array_equal(columns, np.arange(starts[-1])):
            return tensor
        return g.add("Gather", (tensor, g.constant(f"{name}/columns", columns)), f"{name}/picked", axis=1)


def batch_of(graph: Graph, features: str, axis: int = 0) -> str:
    """Return the number of samples, as a shape of one axis."""
    return graph.add("Shape", (features,), "shape/batch", start=axis, end=axis + 1)


def activate(g: Graph, name: str, t: str, label: str) -> str:
    """Return phi(t), in operators that onnxruntime has for this precision."""
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

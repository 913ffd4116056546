"""The ticks of a net as operators of ONNX, chosen by the time that onnxruntime took for them.

Neurons of a tick that share an activation are one tensor (batch, neurons). Its weighted sums are a chain of Gemm, one a
tensor that holds sources, each adding to the one before: no slower than to put sources together first, and what inputs
that do not change add is computed once for all ticks. Scaling goes into weights and biases where rounding allows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.onnx_activations import activate
from meshnn.export.onnx_graph import Graph, Node, Value, digest
from meshnn.export.onnx_sums import Block, Sums

__all__ = ["Net", "output_scales"]

#: Tensors that a chain of Gemm reads; from more of them sources are put together first.
CHAIN = 3
#: Columns that are put together, read or not, where each neuron is computed once.
POOL = 256
#: Means of features, in deviations, up to which they go into the biases: beyond, rounding would show.
FAR = {"float32": 8.0, "float64": 1e6}
#: Equal ticks from which on they are a loop: what is unrolled is faster for one sample, but takes time to load.
LOOP = 64


@dataclass
class States:
    """Which tensor holds the state of each neuron, and in which column; -1: the state is 0."""

    holder: IntArray
    column: IntArray
    names: list[str] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    def put(self, name: str, neurons: IntArray) -> None:
        """The states of neurons are the columns of a tensor."""
        self.holder[neurons], self.column[neurons] = len(self.names), np.arange(len(neurons))
        self.names.append(name)
        self.widths.append(len(neurons))

    def copy(self) -> States:
        """Another that can change."""
        return States(self.holder.copy(), self.column.copy(), list(self.names), list(self.widths))


class Net:
    """A blueprint's neurons in a graph.

    Parameters
    ----------
    blueprint : Blueprint
    graph : Graph
    features : str
        The tensor (batch, n_inputs) as users give it.
    state : (name, neurons), optional
        A tensor of states of the tick before the first.
    outer : Net, optional
        That of the graph around, for the body of a loop: what it has made is seen here.
    """

    def __init__(
        self, blueprint: Blueprint, graph: Graph, features: str, state: tuple[str, IntArray] | None = None,
        outer: Net | None = None,
    ) -> None:  # fmt: skip
        self.blueprint, self.graph, self.features = blueprint, graph, features
        self.sums: Sums = Sums(graph, features, None if outer is None else outer.sums)
        n = blueprint.n_neurons
        self.states: States = States(np.full(n, -1), np.zeros(n, np.int64)) if outer is None else outer.states.copy()
        self.read = np.zeros(n, np.bool_)  # whose states other neurons see
        self.read[blueprint.src[blueprint.alive]] = True
        self.codes = np.array([ACTIVATIONS[name] for name in blueprint.activations])
        self.folded = output_scales(blueprint)
        self.x_gain: Array
        self.x_left: Array
        if outer is None:
            self._take_in(state)
        else:
            self.x_gain, self.x_left = outer.x_gain, outer.x_left

    # -- inputs ----------------------------------------------------------------------------------------------------

    def _take_in(self, state: tuple[str, IntArray] | None) -> None:
        r = self.blueprint
        mean = np.zeros(r.n_inputs) if r.x_mean is None else r.x_mean
        scale = np.ones(r.n_inputs) if r.x_scale is None else r.x_scale
        most = np.finfo(self.graph.dtype).max
        large = np.flatnonzero(np.isfinite(scale) & (np.abs(mean) / 1e3 + scale > most / 1e3))
        if large.size:
            raise ExportError(
                f"feature {large[0]} has numbers around {abs(mean[large[0]]) + scale[large[0]]:.1g}, which "
                f"{self.graph.dtype} cannot hold; scale the features first"
            )
        far = np.abs(mean / scale).max(initial=0.0) > FAR[self.graph.dtype]
        taken = mean.astype(self.graph.dtype).astype(np.float64) if far else np.zeros(r.n_inputs)
        # what is left of the mean goes into the biases: next to nothing if it was subtracted
        self.x_gain, self.x_left = 1.0 / scale, mean - taken
        name = self.features
        if far:
            name = self.graph.add("Sub", (name, self.graph.constant("scale/mean", taken)), "centred")
        if np.isfinite(r.x_cut):
            name = self._cut(name, r.x_cut * scale)
        self.states.put(name, np.arange(r.n_inputs))
        if state is not None:
            self.states.put(*state)

    def _cut(self, name: str, reach: Array) -> str:
        """Numbers that are NaN or infinite are the mean, others are cut to as far as that from it."""
        g, most = self.graph, float(np.finfo(self.graph.dtype).max)
        low, high = (np.clip(self.x_left + sign * reach, -most, most) for sign in (-1.0, 1.0))
        nothing = g.add("Sub", (name, name), "scale/nothing")  # NaN of what is not finite
        finite = g.add("Equal", (nothing, g.constant("scale/zero", 0.0)), "scale/finite")
        name = g.add("Where", (finite, name, g.constant("scale/missing", self.x_left)), "scale/filled")
        name = g.add("Max", (name, g.constant("scale/low", low)), "scale/above")
        return g.add("Min", (name, g.constant("scale/high", high)), "scaled")

    # -- ticks -----------------------------------------------------------------------------------------------------

    def run(self, ticks: list[IntArray]) -> None:
        """One tick after the other: of each, the neurons whose states are computed."""
        k = 0
        while k < len(ticks):
            self.tick(k + 1, ticks[k])
            same = 0
            while k + same + 1 < len(ticks) and np.array_equal(ticks[k + same + 1], ticks[k]):
                same += 1
            k += 1
            # after the first of them, so that there are tensors of all states, and constant parts
            if same >= LOOP and len(ticks[k]):
                self.loop(k + 1, ticks[k], same)
                k += same

    def tick(self, k: int, neurons: IntArray) -> None:
        """States of neurons, of those one tick before."""
        made = []
        groups = self._groups(neurons)
        for activation, members in groups:
            label = f"tick{k}" if len(groups) == 1 else f"tick{k}/{activation}"
            summed = self._summed(label, members)
            made.append((activate(self.graph, activation, summed, label), members))
        for name, members in made:
            self.states.put(name, members)

    def _groups(self, neurons: IntArray) -> list[tuple[str, IntArray]]:
        """By activation; outputs that nobody reads apart, so that they are tensors of their own."""
        names = self.codes[neurons - self.blueprint.n_clamped]
        last = neurons >= self.blueprint.n_neurons - self.blueprint.n_outputs
        found = []
        for code in np.unique(names):
            for apart in (False, True):
                members = neurons[(names == code) & ((last & ~self.read[neurons]) == apart)]
                if len(members):
                    found.append((list(ACTIVATIONS)[code], members))
        return found

    def loop(self, k: int, neurons: IntArray, count: int) -> None:
        """The same tick so many times."""
        g, label = self.graph, f"tick{k}_to_{k + count - 1}"
        groups = self._groups(neurons)
        body = Graph(g.dtype, g, label + "/")
        inner = Net(self.blueprint, body, self.features, outer=self)
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
        """What flows into neurons (batch, neurons)."""
        r, s = self.blueprint, self.states
        counts = r.pointers[members + 1] - r.pointers[members]
        dst = np.repeat(np.arange(len(members)), counts)
        edges = np.arange(len(dst)) + np.repeat(r.pointers[members] - np.cumsum(counts) + counts, counts)
        src, weights, bias = r.src[edges], r.weights[edges], np.zeros(len(members))
        if self.folded is not None:
            weights, bias = weights * self.folded[0][r.dst[edges]], self.folded[1][members]
        if r.bias:
            ours = src == r.n_inputs
            bias = bias + np.bincount(dst[ours], weights[ours], len(members))
        inputs = src < r.n_inputs
        weights[inputs] *= self.x_gain[src[inputs]]
        bias = bias - np.bincount(dst[inputs], weights[inputs] * self.x_left[src[inputs]], len(members))
        key, total = digest(members), ""
        for holders, held in self._parts(s.holder[src]):
            tensor = self.sums.together(label, tuple(s.names[h] for h in holders))
            starts = np.concatenate([[0], np.cumsum([s.widths[h] for h in holders])])
            begin = np.zeros(len(s.names), np.int64)
            begin[holders] = starts[:-1]
            columns = s.column[src[held]] + begin[s.holder[src[held]]]
            shown = label if total == "" else f"{label}/and"
            block = Block(columns, dst[held], weights[held], int(starts[-1]), len(members))
            total = self.sums.add(shown, tensor, block, bias, total, key)
        return total or self.sums.spread(label, bias)

    def _parts(self, holder: IntArray) -> list[tuple[IntArray, BoolArray]]:
        """Tensors that are read, together or one by one, and the edges from each; inputs first, which never change."""
        used = np.unique(holder[holder >= 0])
        if len(used) <= CHAIN:
            return [(np.array([h]), holder == h) for h in used]
        if self.blueprint.once:
            # all that there is up to the last of them, so that each tick only adds to what the one before put together
            everything = np.arange(used[-1] + 1)
            widths = np.array(self.states.widths)
            if widths[everything].sum() <= max(POOL, 2 * widths[used].sum()):
                used = everything
            return [(used, holder >= 0)]
        rest = used[used > 0]
        parts = [(rest, holder > 0)]
        return [(np.array([0]), holder == 0), *parts] if len(rest) < len(used) else parts

    # -- what is read ----------------------------------------------------------------------------------------------

    def collected(self, neurons: IntArray, name: str) -> str:
        """The states of neurons, in this order, as one tensor."""
        s, g = self.states, self.graph
        holders = list(dict.fromkeys(s.holder[neurons].tolist()))
        names = tuple(s.names[h] for h in holders)
        starts = np.concatenate([[0], np.cumsum([s.widths[h] for h in holders])])
        columns = s.column[neurons] + starts[[holders.index(h) for h in s.holder[neurons].tolist()]]
        tensor = names[0] if len(names) == 1 else g.add("Concat", names, f"{name}/parts", axis=1)
        if np.array_equal(columns, np.arange(starts[-1])):
            return tensor
        return g.add("Gather", (tensor, g.constant(f"{name}/columns", columns)), f"{name}/picked", axis=1)


def output_scales(blueprint: Blueprint) -> tuple[Array, Array] | None:
    """By what weights into neurons are multiplied and what is added to their biases, if that scales values back."""
    first = blueprint.n_neurons - blueprint.n_outputs
    linear = blueprint.link == "identity" and all(
        name == "identity" for name in blueprint.activations[blueprint.n_hidden :]
    )
    read = bool((blueprint.src[blueprint.alive] >= first).any())
    if blueprint.y_scale is None or blueprint.y_mean is None or not linear or read:
        return None
    gain, offset = np.ones(blueprint.n_neurons), np.zeros(blueprint.n_neurons)
    gain[first:], offset[first:] = blueprint.y_scale, blueprint.y_mean
    return gain, offset

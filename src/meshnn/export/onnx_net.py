"""The ticks of a net as operators of ONNX, chosen by the time that onnxruntime took for them.

Neurons of a tick that share an activation are one tensor (batch, neurons). Its weighted sums are a chain of Gemm, one a
tensor that holds sources, each adding to the one before: no slower than to put sources together first, and what inputs
that do not change add is computed once for all ticks. Large blocks that are nearly empty are Gather, Mul and ScatterND
instead, with samples along the last axis. Scaling goes into weights and biases where rounding allows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.export.onnx_graph import Graph, Node, Value
from meshnn.export.recipe import ExportError, Recipe

__all__ = ["Net", "activate", "batch_of", "output_scales"]

#: Tensors that a chain of Gemm reads; from more of them sources are put together first.
CHAIN = 3
#: Columns that are put together, read or not, where each neuron is computed once.
POOL = 256
#: A block is sparse from so many entries on, if edges are so many times fewer: before that Gemm is faster for one
#: sample and not much slower for many.
SPARSE_ENTRIES, SPARSE_TIMES = 2**20, 100
#: Columns of a tensor that are read, as a share, below which they are gathered before they are multiplied.
FEW = 0.25
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
    """A recipe's neurons in a graph.

    Parameters
    ----------
    recipe : Recipe
    graph : Graph
    features : str
        The tensor (batch, n_inputs) as users give it.
    state : (name, neurons), optional
        A tensor of states of the tick before the first.
    outer : Net, optional
        That of the graph around, for the body of a loop: what it has made is seen here.
    """

    def __init__(
        self, recipe: Recipe, graph: Graph, features: str, state: tuple[str, IntArray] | None = None,
        outer: Net | None = None,
    ) -> None:  # fmt: skip
        self.recipe, self.graph, self.features = recipe, graph, features
        self.made: dict[tuple[str, ...], str] = {} if outer is None else dict(outer.made)
        self.blocks: dict[str, str] = {} if outer is None else outer.blocks
        n = recipe.n_neurons
        self.states: States = States(np.full(n, -1), np.zeros(n, np.int64)) if outer is None else outer.states.copy()
        self.read = np.zeros(n, np.bool_)  # whose states other neurons see
        self.read[recipe.src[recipe.alive]] = True
        self.folded = output_scales(recipe)
        self.x_gain: Array
        self.x_left: Array
        if outer is None:
            self._take_in(state)
        else:
            self.x_gain, self.x_left = outer.x_gain, outer.x_left

    # -- inputs ----------------------------------------------------------------------------------------------------

    def _take_in(self, state: tuple[str, IntArray] | None) -> None:
        r = self.recipe
        mean = np.zeros(r.n_inputs) if r.x_mean is None else r.x_mean
        scale = np.ones(r.n_inputs) if r.x_scale is None else r.x_scale
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
        names = np.array([ACTIVATIONS[name] for name in self.recipe.activations])[neurons - self.recipe.n_clamped]
        last = neurons >= self.recipe.n_neurons - self.recipe.n_outputs
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
        inner = Net(self.recipe, body, self.features, outer=self)
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
        r, s = self.recipe, self.states
        place = np.full(r.n_neurons, -1)
        place[members] = np.arange(len(members))
        edges = np.flatnonzero(place[r.dst] >= 0)
        src, dst, weights, bias = r.src[edges], place[r.dst[edges]], r.weights[edges], np.zeros(len(members))
        if self.folded is not None:
            weights, bias = weights * self.folded[0][r.dst[edges]], self.folded[1][members]
        if r.bias:
            ours = src == r.n_inputs
            bias = bias + np.bincount(dst[ours], weights[ours], len(members))
        inputs = src < r.n_inputs
        weights[inputs] *= self.x_gain[src[inputs]]
        bias = bias - np.bincount(dst[inputs], weights[inputs] * self.x_left[src[inputs]], len(members))
        parts = self._parts(s.holder[src])
        key = _digest(members)
        total = ""
        for holders, held in parts:
            tensor = self._together(label, holders)
            starts = np.concatenate([[0], np.cumsum([s.widths[h] for h in holders])])
            begin = np.zeros(len(s.names), np.int64)
            begin[holders] = starts[:-1]
            columns = s.column[src[held]] + begin[s.holder[src[held]]]
            shown = label if total == "" else f"{label}/and"
            block = _Block(columns, dst[held], weights[held], int(starts[-1]), len(members))
            total = self._add_block(shown, tensor, block, bias if total == "" else None, total, key)
        return total or self._spread(label, bias)

    def _parts(self, holder: IntArray) -> list[tuple[IntArray, BoolArray]]:
        """Tensors that are read, together or one by one, and the edges from each; inputs first, which never change."""
        used = np.unique(holder[holder >= 0])
        if len(used) <= CHAIN:
            return [(np.array([h]), holder == h) for h in used]
        if self.recipe.once:
            # all that there is up to the last of them, so that each tick only adds to what the one before put together
            everything = np.arange(used[-1] + 1)
            widths = np.array(self.states.widths)
            if widths[everything].sum() <= max(POOL, 2 * widths[used].sum()):
                used = everything
            return [(used, holder >= 0)]
        rest = used[used > 0]
        parts = [(rest, holder > 0)]
        return [(np.array([0]), holder == 0), *parts] if len(rest) < len(used) else parts

    def _together(self, label: str, holders: IntArray) -> str:
        names: tuple[str, ...] = tuple(self.states.names[h] for h in holders)
        if len(names) == 1:
            return names[0]
        if names not in self.made:
            before = self.made.get(names[:-1])
            joined = names if before is None else (before, names[-1])
            self.made[names] = self.graph.add("Concat", joined, f"{label}/sources", axis=1)
        return self.made[names]

    def _add_block(self, label: str, tensor: str, block: _Block, bias: Array | None, before: str, key: str) -> str:
        """Products of a tensor and weights, added to a bias or to what is there."""
        g = self.graph
        same = _digest(block.src, block.dst, block.weights, np.array([block.height, block.width]))  # of another tick
        done = (tensor, before, key, same)  # a tensor may hold states of then that others have replaced since
        if done in self.made:
            return self.made[done]
        if block.sparse:
            found = self._sparse(label, tensor, block, bias, before, same)
        else:
            if len(block.used) < FEW * block.height:
                picked = (tensor, _digest(block.used), "columns")
                if picked not in self.made:
                    number = g.constant(f"{label}/columns", block.used)
                    self.made[picked] = g.add("Gather", (tensor, number), f"{label}/picked", axis=1)
                tensor, block = self.made[picked], block.narrowed()
            g.check_size(block.height * block.width * np.dtype(g.dtype).itemsize)
            if same not in self.blocks:
                self.blocks[same] = g.constant(f"{label}/weights", block.dense())
            added = before or g.constant(f"{label}/bias", bias)
            found = g.add("Gemm", (tensor, self.blocks[same], added), f"{label}/sum")
        self.made[done] = found
        return found

    def _sparse(self, label: str, tensor: str, block: _Block, bias: Array | None, before: str, same: str) -> str:
        """Edge by edge: rows of samples are gathered, multiplied, and added to the rows of neurons."""
        g = self.graph
        turned = (tensor, "turned")
        if turned not in self.made:
            self.made[turned] = g.add("Transpose", (tensor,), f"{label}/turned", perm=[1, 0])
        if same not in self.blocks:
            self.blocks[same] = g.constant(f"{label}/weights", block.weights[:, None])
        src = g.constant(f"{label}/sources", block.src)
        dst = g.constant(f"{label}/targets", block.dst[:, None])
        begin = np.zeros(block.width) if bias is None else bias
        shape = self._shape(block.width, turned=True)
        empty = g.add("Expand", (g.constant(f"{label}/bias", begin[:, None]), shape), f"{label}/begin")
        taken = g.add("Gather", (self.made[turned], src), f"{label}/gathered", axis=0)
        products = g.add("Mul", (taken, self.blocks[same]), f"{label}/products")
        rows = g.add("ScatterND", (empty, dst, products), f"{label}/rows", reduction="add")
        found = g.add("Transpose", (rows,), f"{label}/sum", perm=[1, 0])
        return g.add("Add", (before, found), f"{label}/all") if before else found

    def _spread(self, label: str, bias: Array) -> str:
        """Constants for every sample of a batch."""
        g = self.graph
        return g.add("Expand", (g.constant(f"{label}/bias", bias), self._shape(len(bias))), f"{label}/sum")

    def _shape(self, width: int, turned: bool = False) -> str:
        key = ("shape", str(width), str(turned))
        if key not in self.made:
            count, wide = self._batch(), self.graph.constant(f"shape/{width}", np.array([width]))
            ends = (wide, count) if turned else (count, wide)
            self.made[key] = self.graph.add("Concat", ends, "shape/turned" if turned else "shape", axis=0)
        return self.made[key]

    def _batch(self) -> str:
        if ("batch",) not in self.made:
            self.made["batch",] = batch_of(self.graph, self.features)
        return self.made["batch",]

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


@dataclass(frozen=True)
class _Block:
    """Edges from columns of one tensor to those of another."""

    src: IntArray
    dst: IntArray
    weights: Array
    height: int
    width: int

    @property
    def used(self) -> IntArray:
        return np.unique(self.src)

    @property
    def sparse(self) -> bool:
        entries = len(self.used) * self.width
        return entries >= SPARSE_ENTRIES and entries > SPARSE_TIMES * len(self.src)

    def narrowed(self) -> _Block:
        """Without columns that nobody reads."""
        used = self.used
        return _Block(np.searchsorted(used, self.src), self.dst, self.weights, len(used), self.width)

    def dense(self) -> Array:
        found = np.zeros((self.height, self.width))
        found[self.src, self.dst] = self.weights
        return found


def output_scales(recipe: Recipe) -> tuple[Array, Array] | None:
    """By what weights into neurons are multiplied and what is added to their biases, if that scales values back."""
    first = recipe.n_neurons - recipe.n_outputs
    linear = recipe.link == "identity" and all(name == "identity" for name in recipe.activations[recipe.n_hidden :])
    read = bool((recipe.src[recipe.alive] >= first).any())
    if recipe.y_scale is None or recipe.y_mean is None or not linear or read:
        return None
    gain, offset = np.ones(recipe.n_neurons), np.zeros(recipe.n_neurons)
    gain[first:], offset[first:] = recipe.y_scale, recipe.y_mean
    return gain, offset


def _digest(*arrays: Array) -> str:
    """Equal arrays have an equal one."""
    found = blake2b(digest_size=16)
    for array in arrays:
        found.update(array.tobytes())
    return found.hexdigest()


def batch_of(graph: Graph, features: str, axis: int = 0) -> str:
    """The number of samples, as a shape of one axis."""
    return graph.add("Shape", (features,), "shape/batch", start=axis, end=axis + 1)


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

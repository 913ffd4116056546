"""The ticks of a net as operators of ONNX, and the steps of a net that lives in time.

Neurons of a tick that share an activation are one tensor (batch, neurons). Their weighted sums are one Gemm over the
tensors that hold their sources, side by side; of large blocks with few edges, products edge by edge. Constants that are
equal are stored once, so cycles are unrolled.

Step t of a sequence is read `delay` ticks after its end: during a later step, or, for the last step, while it is held.
That is after `lag` more steps, after tick `look` of the last of these, counted from 1.
"""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.export.blueprint import Blueprint, SequenceTiming
from meshnn.export.onnx.features import missing_flag, scaled
from meshnn.export.onnx.graph import Graph


class OnnxNet:
    """The neurons of a blueprint in a graph, from a tensor (batch, n_inputs) of scaled features on."""

    def __init__(self, blueprint: Blueprint, graph: Graph, features: str) -> None:
        self.blueprint, self.graph, self.features = blueprint, graph, features
        self.joined: dict[tuple[str, ...], str] = {}
        self.tensors: list[tuple[str, int]] = []  # name and width
        # the tensor that holds the state of each neuron, -1 if the state is 0, and the column in it
        self.holder, self.column = np.full(blueprint.n_neurons, -1), np.zeros(blueprint.n_neurons, np.int64)
        self.put(features, np.arange(blueprint.n_inputs))

    def put(self, name: str, neurons: IntArray) -> None:
        """Let the states of neurons be the columns of a tensor."""
        self.holder[neurons], self.column[neurons] = len(self.tensors), np.arange(len(neurons))
        self.tensors.append((name, len(neurons)))

    def run(self, ticks: list[IntArray]) -> None:
        """Run ticks, each given by the neurons whose states are computed; those of one activation are a tensor."""
        names, away = self.blueprint.activations, self.blueprint.n_clamped
        for k, neurons in enumerate(ticks):
            codes = np.array([ACTIVATIONS[names[j - away]] for j in neurons.tolist()], np.int64)
            groups = [neurons[codes == code] for code in np.unique(codes)]
            made = []
            for members in groups:
                activation = names[members[0] - away]
                label = f"tick{k + 1}" if len(groups) == 1 else f"tick{k + 1}/{activation}"
                made.append(activate(self.graph, activation, self._summed(label, members), label))
            for name, members in zip(made, groups, strict=True):
                self.put(name, members)

    def _summed(self, label: str, members: IntArray) -> str:
        """Return the weighted sums (batch, neurons) of neurons."""
        r, g = self.blueprint, self.graph
        edges = np.concatenate([np.arange(*r.pointers[j : j + 2]) for j in members.tolist()])
        src, weights = r.src[edges], r.weights[edges]
        dst = np.searchsorted(members, r.dst[edges])
        ours = (src == r.n_inputs) & r.bias
        bias = np.bincount(dst[ours], weights[ours], len(members)).astype(float)
        live = self.holder[src] >= 0
        src, dst, weights = src[live], dst[live], weights[live]
        tensor, rows, width = self._held(label, src) if len(src) else (self.features, src, r.n_inputs)
        entries = width * len(members)
        if entries >= 2**18 and entries > 100 * len(src):  # a matrix that is nearly empty
            return self._by_edges(label, tensor, (rows, dst, weights), bias)
        matrix = np.zeros((width, len(members)))
        matrix[rows, dst] = weights
        constants = g.constant(f"{label}/weights", matrix), g.constant(f"{label}/bias", bias)
        return g.add("Gemm", (tensor, *constants), f"{label}/sum")

    def _by_edges(self, label: str, tensor: str, edges: tuple[IntArray, IntArray, Array], bias: Array) -> str:
        """Gather the source of every edge, multiply by its weight and add to its target."""
        g, (src, dst, weights) = self.graph, edges
        turned = g.add("Transpose", (tensor,), f"{label}/turned", perm=[1, 0])
        taken = g.add("Gather", (turned, g.constant(f"{label}/sources", src)), f"{label}/gathered", axis=0)
        products = g.add("Mul", (taken, g.constant(f"{label}/weights", weights[:, None])), f"{label}/products")
        sizes = g.constant(f"shape/{len(bias)}", np.array([len(bias)])), batch_of(g, self.features)
        shape = g.add("Concat", sizes, f"{label}/shape", axis=0)
        start = g.add("Expand", (g.constant(f"{label}/bias", bias[:, None]), shape), f"{label}/begin")
        targets = g.constant(f"{label}/targets", dst[:, None])
        rows = g.add("ScatterND", (start, targets, products), f"{label}/rows", reduction="add")
        return g.add("Transpose", (rows,), f"{label}/sum", perm=[1, 0])

    def _held(self, label: str, neurons: IntArray) -> tuple[str, IntArray, int]:
        """Return one tensor with the states of neurons, their columns in it, and its width."""
        holders, at = np.unique(self.holder[neurons], return_inverse=True)
        names = tuple(self.tensors[h][0] for h in holders)
        starts = np.cumsum([0, *(self.tensors[h][1] for h in holders)])
        if len(names) > 1 and names not in self.joined:
            self.joined[names] = self.graph.add("Concat", names, f"{label}/sources", axis=1)
        return self.joined.get(names, names[0]), self.column[neurons] + starts[at], int(starts[-1])

    def collected(self, neurons: IntArray, name: str) -> str:
        """Return the states of neurons, in this order, as one tensor."""
        tensor, columns, width = self._held(name, neurons)
        if np.array_equal(columns, np.arange(width)):
            return tensor
        return self.graph.add(
            "Gather", (tensor, self.graph.constant(f"{name}/columns", columns)), f"{name}/picked", axis=1
        )


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
    one, above = g.constant("one", 1.0), g.add("Relu", (t,), f"{label}/above")
    if name == "elu":
        power = g.add("Exp", (g.add("Min", (t, g.constant("zero", 0.0)), f"{label}/low"),), f"{label}/power")
        return g.add("Add", (above, g.add("Sub", (power, one), f"{label}/below")), label)
    size = g.add("Neg", (g.add("Abs", (t,), f"{label}/size"),), f"{label}/minus")  # softplus
    more = g.add("Add", (one, g.add("Exp", (size,), f"{label}/power")), f"{label}/more")
    return g.add("Add", (above, g.add("Log", (more,), f"{label}/soft")), label)


# -- nets in time --------------------------------------------------------------------------------------------------


def state_neurons(blueprint: Blueprint) -> IntArray:
    """Return the neurons whose states are carried: those that others read, in the order of a tick."""
    read = np.unique(blueprint.src[blueprint.alive])
    read = read[read >= blueprint.n_clamped]
    codes = np.array([ACTIVATIONS[blueprint.activations[j - blueprint.n_clamped]] for j in read.tolist()], np.int64)
    found: IntArray = read[np.argsort(codes, kind="stable")]
    return found


def in_time(graph: Graph, blueprint: Blueprint, timing: SequenceTiming, sequence: bool) -> str:
    """Add one step per call, or a Scan over sequences (steps, N, n_inputs) of one length; return what is read.

    Step by step, a readout at the end of sequences is that of a sequence that ends with this step.
    """
    shape = ("N", blueprint.n_inputs)
    width = len(state_neurons(blueprint)) + (blueprint.n_outputs + 1) * (timing.readout == "mean")
    lag, look = 0, timing.per_step + timing.delay
    if sequence or timing.readout != "last":
        lag = -(-timing.delay // timing.per_step)
        look -= timing.per_step * lag
    if not sequence:
        features, state = graph.input("features", shape), graph.input("state_in", ("N", width)) if width else ""
        after, outputs = _step(graph, blueprint, timing, features, state, (lag, look))
        if width:
            graph.output(graph.add("Identity", (after,), "state_out"), ("N", width))
        return outputs
    steps = features = graph.input("features", ("T", *shape))
    if lag:
        last = graph.constant("hold/last", np.full(lag, -1))
        held = graph.add("Gather", (features, last), "hold/steps", axis=0)
        steps = graph.add("Concat", (features, held), "steps", axis=0)
    width = max(width, 1)  # a net without state remembers a missing step there
    sizes = batch_of(graph, features, axis=1), graph.constant("state/width", np.array([width]))
    begin = graph.add("Concat", sizes, "state/shape", axis=0)
    begin = graph.add("Expand", (graph.constant("zero", 0.0), begin), "state/begin")
    body = Graph(graph.dtype, graph, "step/")
    state, now = body.input("state", ("N", width)), body.input("features", shape)
    found = _step(body, blueprint, timing, now, state, (lag, look))
    for tensor, name, columns in zip(found, ("state_after", "outputs"), (width, blueprint.n_outputs), strict=True):
        body.output(body.add("Identity", (tensor,), name), ("N", columns))
    end, looks = graph.name("state/end"), graph.name("looks")
    make, scan = graph.onnx.helper.make_node, {"body": body.proto("step/body"), "num_scan_inputs": 1}
    graph.nodes.append(make("Scan", (begin, steps), (end, looks), f"{end}/Scan", **scan))
    if timing.readout == "all":
        return _sliced(graph, looks, "looks/of_steps", 0, lag, 2**31) if lag else looks
    return graph.add("Gather", (looks, graph.constant("last", np.array(-1))), "outputs", axis=0)


def _step(
    graph: Graph, blueprint: Blueprint, timing: SequenceTiming, features: str, state: str, looks: tuple[int, int]
) -> tuple[str, str]:
    """Add the ticks of a step, and those until outputs are read; return the state after the step and the outputs.

    With the mean of all steps as the readout the state has more columns: sums of outputs, and the number of steps.
    After a feature that is not finite, outputs and state are NaN.
    """
    kept, (lag, look), mean = state_neurons(blueprint), looks, timing.readout == "mean"
    flag = missing_flag(graph, blueprint, *((features, state) if state else (features,)))
    net = OnnxNet(blueprint, graph, scaled(graph, blueprint, features))
    if len(kept):
        net.put(_sliced(graph, state, "state/neurons", 1, 0, len(kept)) if mean else state, kept)
    ticks = _wanted(blueprint, kept, timing.per_step, look)
    after, outputs, begin = state, "", 0
    for end in sorted({timing.per_step, look}):
        net.run(ticks[begin:end])
        begin = end
        if end == timing.per_step and len(kept):
            after = net.collected(kept, "state")
        if end == look:
            outputs = net.collected(blueprint.outputs, "outputs")
    if mean:
        width = len(kept) + blueprint.n_outputs
        total, outputs = _mean_so_far(graph, state, outputs, (len(kept), width), lag)
        after = graph.add("Concat", (after, total), "state/after", axis=1) if len(kept) else total
    if flag:
        after = graph.add("Add", (after, flag), "state/checked") if after else ""
        outputs = graph.add("Add", (outputs, flag), "missing/checked")
    return after, outputs


def _wanted(blueprint: Blueprint, kept: IntArray, per_step: int, look: int) -> list[IntArray]:
    """Return for each tick the neurons whose states matter for the state after the step or for the outputs."""
    wanted = np.zeros(blueprint.n_neurons, np.bool_)
    found = []
    for k in range(max(per_step, look), 0, -1):
        if k == per_step:
            wanted[kept] = True
        if k == look:
            wanted[blueprint.outputs] = True
        found.append(np.flatnonzero(wanted))
        sources = blueprint.src[wanted[blueprint.dst]]
        wanted = np.zeros(blueprint.n_neurons, np.bool_)
        wanted[sources] = True
        wanted[: blueprint.n_clamped] = False
    return found[::-1]


def _mean_so_far(graph: Graph, state: str, outputs: str, columns: tuple[int, int], lag: int) -> tuple[str, str]:
    """Return sums and count including these outputs, unless they are of a step before the first, and the mean."""
    one, delay = graph.constant("one", 1.0), graph.constant("mean/lag", float(lag))
    count = _sliced(graph, state, "mean/before", 1, columns[1], columns[1] + 1)
    there = graph.add("GreaterOrEqual", (count, delay), "mean/there")
    looked = graph.add("Where", (there, outputs, graph.constant("zero", 0.0)), "mean/look")
    total = graph.add("Add", (_sliced(graph, state, "mean/sums", 1, *columns), looked), "mean/total")
    more = graph.add("Add", (count, one), "mean/count")
    number = graph.add("Max", (graph.add("Sub", (more, delay), "mean/steps"), one), "mean/number")
    mean = graph.add("Div", (total, number), "mean")
    return graph.add("Concat", (total, more), "mean/after", axis=1), mean


def _sliced(graph: Graph, tensor: str, name: str, axis: int, begin: int, end: int) -> str:
    ends = [graph.constant(f"{name}/{key}", np.array([k])) for key, k in (("from", begin), ("to", end), ("axis", axis))]
    return graph.add("Slice", (tensor, *ends), name)

"""The ticks of a net as ONNX operators, and the steps of a stateful net.

The neurons of a tick that share an activation are one tensor (batch, neurons). Their weighted sums are one Gemm over
the concatenated tensors of their sources, or products edge by edge for a large block with few edges. Cycles are
unrolled; this costs little space, because equal constants are stored once.

The outputs of step t of a sequence are read `delay` ticks after its end: during a later step, or, for the last steps,
while the last input is repeated. They are read `steps_later` steps after step t, after tick `read_tick` of that step,
counted from 1.
"""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.export.blueprint import Blueprint, SequenceTiming
from meshnn.export.onnx.features import missing_flag, scaled
from meshnn.export.onnx.graph import Graph


class OnnxNet:
    """The neurons of a blueprint as nodes of a graph, starting from a tensor (batch, n_inputs) of scaled features."""

    def __init__(self, blueprint: Blueprint, graph: Graph, features: str) -> None:
        self.blueprint, self.graph, self.features = blueprint, graph, features
        self.joined: dict[tuple[str, ...], str] = {}
        self.tensors: list[tuple[str, int]] = []  # name and width
        # the tensor that holds the state of each neuron, -1 if the state is 0, and its column
        self.tensor_of, self.column = np.full(blueprint.n_neurons, -1), np.zeros(blueprint.n_neurons, np.int64)
        self.put(features, np.arange(blueprint.n_inputs))

    def put(self, name: str, neurons: IntArray) -> None:
        """Declare the columns of a tensor as the states of neurons."""
        self.tensor_of[neurons], self.column[neurons] = len(self.tensors), np.arange(len(neurons))
        self.tensors.append((name, len(neurons)))

    def run(self, ticks: list[IntArray]) -> None:
        """Add ticks, each given by the neurons to compute, with one tensor per activation."""
        names, n_clamped = self.blueprint.activations, self.blueprint.n_clamped
        for k, neurons in enumerate(ticks):
            codes = np.array([ACTIVATIONS[names[j - n_clamped]] for j in neurons.tolist()], np.int64)
            groups = [neurons[codes == code] for code in np.unique(codes)]
            made = []
            for members in groups:
                activation = names[members[0] - n_clamped]
                label = f"tick{k + 1}" if len(groups) == 1 else f"tick{k + 1}/{activation}"
                made.append(activate(self.graph, activation, self._summed(label, members), label))
            for name, members in zip(made, groups, strict=True):
                self.put(name, members)

    def _summed(self, label: str, members: IntArray) -> str:
        """Return the weighted sums (batch, len(members)) of some neurons."""
        r, g = self.blueprint, self.graph
        edges = np.concatenate([np.arange(*r.pointers[j : j + 2]) for j in members.tolist()])
        src, weights = r.src[edges], r.weights[edges]
        dst = np.searchsorted(members, r.dst[edges])
        from_bias = (src == r.n_inputs) & r.bias
        bias = np.bincount(dst[from_bias], weights[from_bias], len(members)).astype(float)
        live = self.tensor_of[src] >= 0
        src, dst, weights = src[live], dst[live], weights[live]
        tensor, rows, width = self._joined(label, src) if len(src) else (self.features, src, r.n_inputs)
        entries = width * len(members)
        if entries >= 2**18 and entries > 100 * len(src):  # a large, sparse matrix
            return self._by_edges(label, tensor, (rows, dst, weights), bias)
        matrix = np.zeros((width, len(members)))
        matrix[rows, dst] = weights
        constants = g.constant(f"{label}/weights", matrix), g.constant(f"{label}/bias", bias)
        return g.add("Gemm", (tensor, *constants), f"{label}/sum")

    def _by_edges(self, label: str, tensor: str, edges: tuple[IntArray, IntArray, Array], bias: Array) -> str:
        """Gather the source of each edge, multiply it by the weight and add the product to the target."""
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

    def _joined(self, label: str, neurons: IntArray) -> tuple[str, IntArray, int]:
        """Return one tensor that contains the states of some neurons, their columns in it, and its width."""
        indices, at = np.unique(self.tensor_of[neurons], return_inverse=True)
        names = tuple(self.tensors[h][0] for h in indices)
        starts = np.cumsum([0, *(self.tensors[h][1] for h in indices)])
        if len(names) > 1 and names not in self.joined:
            self.joined[names] = self.graph.add("Concat", names, f"{label}/sources", axis=1)
        return self.joined.get(names, names[0]), self.column[neurons] + starts[at], int(starts[-1])

    def collected(self, neurons: IntArray, name: str) -> str:
        """Return the states of some neurons, in this order, as one tensor."""
        tensor, columns, width = self._joined(name, neurons)
        if np.array_equal(columns, np.arange(width)):
            return tensor
        return self.graph.add(
            "Gather", (tensor, self.graph.constant(f"{name}/columns", columns)), f"{name}/picked", axis=1
        )


def batch_of(graph: Graph, features: str, axis: int = 0) -> str:
    """Return the number of samples as a shape with one axis."""
    return graph.add("Shape", (features,), "shape/batch", start=axis, end=axis + 1)


def activate(g: Graph, name: str, t: str, label: str) -> str:
    """Return phi(t), using operators that onnxruntime implements for this precision."""
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
    if name == "hardtanh":
        return g.add("Clip", (t, g.constant("minus_one", -1.0), one), label)
    above = g.add("Relu", (t,), f"{label}/above")
    if name == "elu":
        power = g.add("Exp", (g.add("Min", (t, g.constant("zero", 0.0)), f"{label}/low"),), f"{label}/power")
        return g.add("Add", (above, g.add("Sub", (power, one), f"{label}/below")), label)
    size = g.add("Neg", (g.add("Abs", (t,), f"{label}/size"),), f"{label}/minus")  # softplus
    more = g.add("Add", (one, g.add("Exp", (size,), f"{label}/power")), f"{label}/more")
    return g.add("Add", (above, g.add("Log", (more,), f"{label}/soft")), label)


# -- stateful nets -------------------------------------------------------------------------------------------------


def state_neurons(blueprint: Blueprint) -> IntArray:
    """Return the neurons whose states are carried: those that are read by others, sorted by activation."""
    read = np.unique(blueprint.src[blueprint.alive])
    read = read[read >= blueprint.n_clamped]
    codes = np.array([ACTIVATIONS[blueprint.activations[j - blueprint.n_clamped]] for j in read.tolist()], np.int64)
    found: IntArray = read[np.argsort(codes, kind="stable")]
    return found


def in_time(graph: Graph, blueprint: Blueprint, timing: SequenceTiming, sequence: bool) -> str:
    """Add one step per call, or a Scan over sequences (steps, N, n_inputs) of one length; return the outputs.

    With one step per call, each step is treated as the last of its sequence.
    """
    shape = ("N", blueprint.n_inputs)
    width = len(state_neurons(blueprint)) + (blueprint.n_outputs + 1) * (timing.readout == "mean")
    steps_later, read_tick = 0, timing.per_step + timing.delay
    if sequence or timing.readout != "last":
        steps_later = -(-timing.delay // timing.per_step)
        read_tick -= timing.per_step * steps_later
    if not sequence:
        features, state = graph.input("features", shape), graph.input("state_in", ("N", width)) if width else ""
        after, outputs = _step(graph, blueprint, timing, features, state, (steps_later, read_tick))
        if width:
            graph.output(graph.add("Identity", (after,), "state_out"), ("N", width))
        return outputs
    steps = features = graph.input("features", ("T", *shape))
    if steps_later:
        last = graph.constant("hold/last", np.full(steps_later, -1))
        held = graph.add("Gather", (features, last), "hold/steps", axis=0)
        steps = graph.add("Concat", (features, held), "steps", axis=0)
    width = max(width, 1)  # a net without state uses the column as the flag of a missing value
    sizes = batch_of(graph, features, axis=1), graph.constant("state/width", np.array([width]))
    begin = graph.add("Concat", sizes, "state/shape", axis=0)
    begin = graph.add("Expand", (graph.constant("zero", 0.0), begin), "state/begin")
    body = Graph(graph.dtype, graph, "step/")
    state, now = body.input("state", ("N", width)), body.input("features", shape)
    found = _step(body, blueprint, timing, now, state, (steps_later, read_tick))
    for tensor, name, columns in zip(found, ("state_after", "outputs"), (width, blueprint.n_outputs), strict=True):
        body.output(body.add("Identity", (tensor,), name), ("N", columns))
    end, readouts = graph.name("state/end"), graph.name("looks")
    make, scan = graph.onnx.helper.make_node, {"body": body.proto("step/body"), "num_scan_inputs": 1}
    graph.nodes.append(make("Scan", (begin, steps), (end, readouts), f"{end}/Scan", **scan))
    if timing.readout == "all":
        return _sliced(graph, readouts, "looks/of_steps", 0, steps_later, 2**31) if steps_later else readouts
    return graph.add("Gather", (readouts, graph.constant("last", np.array(-1))), "outputs", axis=0)


def _step(
    graph: Graph, blueprint: Blueprint, timing: SequenceTiming, features: str, state: str, read_at: tuple[int, int]
) -> tuple[str, str]:
    """Add the ticks of a step and those until the outputs are read; return the state after the step and the outputs.

    If the readout is the mean of all steps, the state has extra columns: the sums of the outputs and the number of
    steps. After a feature that is not finite, outputs and state are NaN.
    """
    kept, (steps_later, read_tick), mean = state_neurons(blueprint), read_at, timing.readout == "mean"
    flag = missing_flag(graph, blueprint, *((features, state) if state else (features,)))
    net = OnnxNet(blueprint, graph, scaled(graph, blueprint, features))
    if len(kept):
        net.put(_sliced(graph, state, "state/neurons", 1, 0, len(kept)) if mean else state, kept)
    ticks = _ticks_to_run(blueprint, kept, timing.per_step, read_tick)
    after, outputs, begin = state, "", 0
    for end in sorted({timing.per_step, read_tick}):
        net.run(ticks[begin:end])
        begin = end
        if end == timing.per_step and len(kept):
            after = net.collected(kept, "state")
        if end == read_tick:
            outputs = net.collected(blueprint.outputs, "outputs")
    if mean:
        width = len(kept) + blueprint.n_outputs
        total, outputs = _mean_so_far(graph, state, outputs, (len(kept), width), steps_later)
        after = graph.add("Concat", (after, total), "state/after", axis=1) if len(kept) else total
    if flag:
        after = graph.add("Add", (after, flag), "state/checked") if after else ""
        outputs = graph.add("Add", (outputs, flag), "missing/checked")
    return after, outputs


def _ticks_to_run(blueprint: Blueprint, kept: IntArray, per_step: int, read_tick: int) -> list[IntArray]:
    """Return, for each tick, the neurons that influence the state after the step or the outputs."""
    wanted = np.zeros(blueprint.n_neurons, np.bool_)
    found = []
    for k in range(max(per_step, read_tick), 0, -1):
        if k == per_step:
            wanted[kept] = True
        if k == read_tick:
            wanted[blueprint.outputs] = True
        found.append(np.flatnonzero(wanted))
        sources = blueprint.src[wanted[blueprint.dst]]
        wanted = np.zeros(blueprint.n_neurons, np.bool_)
        wanted[sources] = True
        wanted[: blueprint.n_clamped] = False
    return found[::-1]


def _mean_so_far(graph: Graph, state: str, outputs: str, columns: tuple[int, int], steps_later: int) -> tuple[str, str]:
    """Return the sums and the count including these outputs, and the mean; outputs before the first step count as 0."""
    one, delay = graph.constant("one", 1.0), graph.constant("mean/lag", float(steps_later))
    count = _sliced(graph, state, "mean/before", 1, columns[1], columns[1] + 1)
    there = graph.add("GreaterOrEqual", (count, delay), "mean/there")
    counted = graph.add("Where", (there, outputs, graph.constant("zero", 0.0)), "mean/look")
    total = graph.add("Add", (_sliced(graph, state, "mean/sums", 1, *columns), counted), "mean/total")
    more = graph.add("Add", (count, one), "mean/count")
    number = graph.add("Max", (graph.add("Sub", (more, delay), "mean/steps"), one), "mean/number")
    mean = graph.add("Div", (total, number), "mean")
    return graph.add("Concat", (total, more), "mean/after", axis=1), mean


def _sliced(graph: Graph, tensor: str, name: str, axis: int, begin: int, end: int) -> str:
    ends = [graph.constant(f"{name}/{key}", np.array([k])) for key, k in (("from", begin), ("to", end), ("axis", axis))]
    return graph.add("Slice", (tensor, *ends), name)

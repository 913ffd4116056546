"""Nets that live in time: one step per call, with the state as input and output, or whole sequences by a Scan.

Step t of a sequence is read `delay` ticks after its end: during a later step, or, for the last step, while it is held.
That is after `lag` more steps, after tick `look` of the last of these, counted from 1.
"""

from __future__ import annotations

import numpy as np

from meshnn.arrays import IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.export.blueprint import Blueprint, SequenceTiming
from meshnn.export.onnx.features import missing_flag, scaled
from meshnn.export.onnx.graph import Graph, Node, Value
from meshnn.export.onnx.net import OnnxNet, batch_of

__all__ = ["one_step", "state_neurons", "whole_sequence"]


def state_neurons(blueprint: Blueprint) -> IntArray:
    """Return the neurons whose states are carried: those that others read, in the order of a tick."""
    read = np.unique(blueprint.src[blueprint.alive])
    read = read[read >= blueprint.n_clamped]
    codes = np.array([ACTIVATIONS[blueprint.activations[j - blueprint.n_clamped]] for j in read.tolist()], np.int64)
    found: IntArray = read[np.argsort(codes, kind="stable")]
    return found


def one_step(graph: Graph, blueprint: Blueprint, timing: SequenceTiming) -> str:
    """Add one step per call; a readout at the end of sequences is that of a sequence that ends with this step.

    With the mean of all steps as the readout the state has more columns: sums of outputs, and the number of steps.
    After a feature that is not finite, outputs and state are NaN.
    """
    features, kept = graph.input("features", ("N", blueprint.n_inputs)), state_neurons(blueprint)
    lag, look = _looks(timing)
    if timing.readout == "last":
        lag, look = 0, timing.per_step + timing.delay
    more = blueprint.n_outputs + 1 if timing.readout == "mean" else 0
    before, sums = "", ""
    width = len(kept) + more
    if width:
        before = graph.input("state_in", ("N", width))
    flag = missing_flag(graph, blueprint, *((features, before) if before else (features,)))
    if more:
        sums = _columns(graph, before, "state/sums", len(kept), width)
        before = _columns(graph, before, "state/neurons", 0, len(kept)) if len(kept) else ""
    after, outputs = _step(graph, blueprint, timing.per_step, look, features, before)
    if more:
        sums, outputs = _mean_so_far(graph, outputs, sums, blueprint.n_outputs, lag)
        after = graph.add("Concat", (after, sums), "state/after", axis=1) if after else sums
    if width:
        out = graph.add("Add", (after, flag), "state_out") if flag else graph.add("Identity", (after,), "state_out")
        graph.outputs.append(Value(out, graph.dtype, ("N", width)))
    return graph.add("Add", (outputs, flag), "missing/checked") if flag else outputs


def whole_sequence(graph: Graph, blueprint: Blueprint, timing: SequenceTiming) -> str:
    """Add a Scan over sequences (steps, N, n_inputs) of one length; return what is read of each, or after each step."""
    features, kept = graph.input("features", ("T", "N", blueprint.n_inputs)), state_neurons(blueprint)
    lag, look = _looks(timing)
    steps = features
    if lag:
        last = graph.constant("hold/last", np.full(lag, -1))
        held = graph.add("Gather", (features, last), "hold/steps", axis=0)
        steps = graph.add("Concat", (features, held), "steps", axis=0)
    body = Graph(graph.dtype, graph, "step/")
    wide = graph.constant("state/width", np.array([max(len(kept), 1)]))
    shape = graph.add("Concat", (batch_of(graph, features, axis=1), wide), "state/shape", axis=0)
    begin = graph.add("Expand", (graph.constant("zero", 0.0), shape), "state/begin")
    before = body.input("state", ("N", max(len(kept), 1)))
    now = body.input("features", ("N", blueprint.n_inputs))
    flag = missing_flag(body, blueprint, now, before)
    after, outputs = _step(body, blueprint, timing.per_step, look, now, before if len(kept) else "")
    for tensor, name, width in (
        (after or before, "state_after", max(len(kept), 1)),
        (outputs, "outputs", blueprint.n_outputs),
    ):
        found = body.add("Add", (tensor, flag), name) if flag else body.add("Identity", (tensor,), name)
        body.outputs.append(Value(found, graph.dtype, ("N", width)))
    names = tuple(graph.name(name) for name in ("state/end", "looks"))
    graph.nodes.append(Node("Scan", (begin, steps), names, {"body": body, "num_scan_inputs": 1}, ""))
    if timing.readout == "last":
        return graph.add("Gather", (names[-1], graph.constant("last", np.array(-1))), "outputs", axis=0)
    looks = _rows(graph, names[-1], lag) if lag else names[-1]
    if timing.readout == "all":
        return looks
    return graph.add("ReduceMean", (looks, graph.constant("axis/steps", np.array([0]))), "outputs", keepdims=0)


def _looks(timing: SequenceTiming) -> tuple[int, int]:
    """Return how many steps later a step is read, and after which tick of that step."""
    lag = -(-timing.delay // timing.per_step)
    return lag, timing.per_step + timing.delay - timing.per_step * lag


def _step(graph: Graph, blueprint: Blueprint, per_step: int, look: int, features: str, before: str) -> tuple[str, str]:
    """Add the ticks of a step, and those until outputs are read; return the state after the step and the outputs."""
    kept = state_neurons(blueprint)
    net = OnnxNet(blueprint, graph, scaled(graph, blueprint, features), (before, kept) if before else None)
    ticks = _wanted(blueprint, kept, per_step, look)
    first, second = min(per_step, look), max(per_step, look)
    net.run(ticks[:first])
    after = outputs = ""
    for k in (first, second):
        net.run(ticks[first:k])
        if k == per_step and len(kept) and not after:
            after = net.collected(kept, "state")
        if k == look and not outputs:
            outputs = net.collected(blueprint.outputs, "outputs")
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


def _mean_so_far(graph: Graph, outputs: str, sums: str, n_outputs: int, lag: int) -> tuple[str, str]:
    """Return sums and count including these outputs, unless they are of a step before the first, and the mean."""
    count = _columns(graph, sums, "mean/before", n_outputs, n_outputs + 1)
    there = graph.add("GreaterOrEqual", (count, graph.constant("mean/lag", float(lag))), "mean/there")
    looked = graph.add("Where", (there, outputs, graph.constant("zero", 0.0)), "mean/look")
    total = graph.add("Add", (_columns(graph, sums, "mean/sums", 0, n_outputs), looked), "mean/total")
    more = graph.add("Add", (count, graph.constant("one", 1.0)), "mean/count")
    number = graph.add("Sub", (more, graph.constant("mean/lag", float(lag))), "mean/steps")
    number = graph.add("Max", (number, graph.constant("one", 1.0)), "mean/number")
    mean = graph.add("Div", (total, number), "mean")
    return graph.add("Concat", (total, more), "mean/after", axis=1), mean


def _columns(graph: Graph, tensor: str, name: str, begin: int, end: int) -> str:
    """Return some columns."""
    ends = (graph.constant(f"{name}/from", np.array([begin])), graph.constant(f"{name}/to", np.array([end])))
    return graph.add("Slice", (tensor, *ends, graph.constant("axis/columns", np.array([1]))), name)


def _rows(graph: Graph, tensor: str, begin: int) -> str:
    """Return the rows from one on."""
    ends = (graph.constant("looks/from", np.array([begin])), graph.constant("looks/to", np.array([2**31])))
    return graph.add("Slice", (tensor, *ends, graph.constant("axis/steps", np.array([0]))), "looks/of_steps")

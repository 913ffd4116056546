"""Nets with memory, ready to run: a graph for time with its activations, its fixed edges and its first weights.

`Topology.columns`, `cascade_of_columns`, `delay_line` and `reservoir` are graphs. Here each has the `Mesh` it is meant
for, so that one line is enough. They are ordinary nets: every method differentiates them exactly, files keep them, and
whoever wants something else takes `topology`, `tied`, `weights` and `activations` from one and changes it.

Memory is counted in ticks. A neuron that keeps the share 1 - 1/tau of itself at every tick forgets with the time
constant tau: after tau ticks about a third is left. The time constants of several neurons are spread evenly in the
logarithm between the two ends of `memory`.

A leaky neuron, s <- (1 - a) s + a phi(...), is not a neuron of this engine, which computes s <- phi(...). It is two:
one that computes u = phi(...), and an identity behind it with a self-loop of 1 - a that reads u with the weight
a = 1/tau. That takes one tick more. Both wires are fixed: a loop that is learned past 1 would grow without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshnn.arguments import POSITIVE, as_generator, as_list, real_number, whole_number
from meshnn.arrays import Array, BoolArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.topology.builders import Seed, recurrent_ticks

__all__ = ["cascade_of_columns", "columns", "delay_line", "recurrent", "reservoir"]


def columns(
    n_inputs: int,
    n_columns: int,
    n_outputs: int,
    *,
    memory: Sequence[float] = (2.0, 50.0),
    leaky: bool = False,
    bias: bool = True,
    activation: str = "tanh",
    **settings: Any,
) -> Mesh:
    """Neurons that remember by a self-loop each, and read nothing of each other.

    Exact influence on a stream costs a tick what the forward pass does.

    Parameters
    ----------
    n_inputs, n_columns, n_outputs : int
    memory : (float, float)
        Shortest and longest time constant in ticks, at least 1; self-loops begin at 1 - 1/tau.
    leaky : bool
        Whether a column is a neuron and a leaky integrator behind it, whose leak is fixed; otherwise it is one neuron,
        and its self-loop is learned.
    bias : bool
    activation : str
        That of the neurons that read the inputs.
    **settings
        `ticks`, `output_activation`, `dtype` and `random_state`, as for `Mesh`.

    Examples
    --------
    >>> from meshnn import networks
    >>> net = networks.columns(2, 3, 1, memory=(2, 8), dtype="float64", random_state=0)
    >>> net.weights[net.topology.src == net.topology.dst].round(3).tolist()
    [0.5, 0.75, 0.875]
    >>> networks.columns(2, 3, 1, leaky=True).activations
    ['tanh', 'tanh', 'tanh', 'identity', 'identity', 'identity', 'identity']
    """
    stage = max(whole_number("n_columns", n_columns, 0), 1)
    return cascade_of_columns(
        n_inputs, n_columns, n_outputs, per_stage=stage, memory=memory, leaky=leaky, bias=bias, activation=activation,
        **settings,
    )  # fmt: skip


def cascade_of_columns(
    n_inputs: int,
    n_columns: int,
    n_outputs: int,
    *,
    per_stage: int = 1,
    memory: Sequence[float] = (2.0, 50.0),
    leaky: bool = False,
    bias: bool = True,
    activation: str = "tanh",
    **settings: Any,
) -> Mesh:
    """Columns in stages: each reads the inputs and all columns of earlier stages, so memory is built on memory.

    Parameters
    ----------
    n_inputs, n_columns, n_outputs : int
    per_stage : int
        Columns a stage; the last stage may have fewer.
    memory, leaky, bias, activation, **settings
        As for `columns`.

    Examples
    --------
    >>> from meshnn import networks
    >>> networks.cascade_of_columns(2, 6, 1, per_stage=2, random_state=0)
    Mesh(2-6-1 + bias, 45 edges, 3 ticks, float32)
    """
    graph = Topology.cascade_of_columns(n_inputs, n_columns, n_outputs, per_stage, leaky, bias)
    names = [activation] * n_columns + ["identity"] * (n_columns * leaky)
    wires = (graph.dst >= graph.n_clamped + n_columns) & (graph.dst < graph.outputs[0])
    net = Mesh(graph, activation=names, tied=_learned(~wires) if leaky else None, **settings)
    constants, weights = _time_constants(memory, n_columns), np.array(net.weights, np.float64)
    if leaky:
        _leak(weights, graph, constants)
    else:
        weights[graph.src == graph.dst] = 1.0 - 1.0 / constants
    net.weights = weights
    return net


def delay_line(
    n_inputs: int,
    length: int,
    n_hidden: int,
    n_outputs: int,
    *,
    ticks_per_sample: int = 1,
    bias: bool = True,
    activation: str = "tanh",
    **settings: Any,
) -> Mesh:
    """A net with one hidden layer on the last `length + 1` samples, which fixed chains of neurons keep as they were.

    Nothing is forgotten before `length` steps and everything after. There is no cycle.

    Parameters
    ----------
    n_inputs, length, n_hidden, n_outputs : int
        Without hidden neurons it is a linear filter.
    ticks_per_sample : int
        Ticks for which each sample is held. With 1, outputs see what the hidden layer made of the samples up to the one
        before; with 2, of those up to the present one.
    bias, activation, **settings
        As for `columns`. By default the ticks suffice for the last tap to reach an output.

    Examples
    --------
    >>> from meshnn import networks
    >>> net = networks.delay_line(1, 2, 0, 1, bias=False, dtype="float64")       # y = a x(t) + b x(t-1) + c x(t-2)
    >>> net.parameters = [1.0, 10.0, 100.0]
    >>> net.forward([[[7.0]], [[8.0]], [[9.0]]]).tolist()
    [[789.0]]
    """
    graph = Topology.delay_line(n_inputs, length, n_hidden, n_outputs, ticks_per_sample, bias)
    line = graph.n_hidden - n_hidden
    names = ["identity"] * line + [activation] * n_hidden
    net = Mesh(graph, activation=names, tied=_learned(graph.dst >= graph.n_clamped + line), **settings)
    net.weights = np.where(net.ties.fixed, 1.0, net.weights)
    return net


def recurrent(
    n_inputs: int,
    n_state: int,
    n_outputs: int,
    *,
    n_layer: int = 0,
    lags: int = 0,
    input_scale: float = 0.5,
    state_scale: float = 0.3,
    bias: bool = True,
    ticks: int | None = None,
    activation: str = "tanh",
    random_state: Seed = None,
    **settings: Any,
) -> Mesh:
    """The recurrent net of the textbooks: the state goes on once a sample, and outputs have seen the present one.

    With more than one tick a sample, neurons that read each other at every tick would go on as often. Here fixed chains
    hand the state on, so that it reads what it was one sample ago.

    Parameters
    ----------
    n_inputs, n_state, n_outputs : int
    n_layer : int
        Neurons of a layer between state and outputs, which reads the inputs, too.
    lags : int
        Inputs of so many samples before are read by the state, each with weights of its own.
    input_scale, state_scale : float
        Standard deviations of what a neuron of the state reads at first, of inputs of variance 1 and of a state of
        variance 1. Small ones begin near a linear net.
    bias, ticks, activation, random_state, **settings
        As for `columns`. By default `ticks` is 2, with a layer 3: what a sample takes, also on a stream.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import networks
    >>> net = networks.recurrent(1, 6, 1, n_layer=5, dtype="float64", random_state=0)
    >>> net.ticks, net.n_parameters
    (3, 94)
    >>> x = np.sin(0.3 * np.arange(501))[:, None]
    >>> out = net.stream(learner="ekf", scale=True).run(x[:-1], x[1:])
    >>> bool(np.abs(out - x[1:])[-100:].max() < 0.1)
    True
    """
    outside = real_number("input_scale", input_scale, *POSITIVE)
    inside = real_number("state_scale", state_scale, *POSITIVE)
    graph, rng = Topology.recurrent(n_inputs, n_state, n_outputs, n_layer, lags, bias), as_generator(random_state)
    first = graph.n_hidden - n_state - n_layer  # the chains come first
    names = ["identity"] * first + [activation] * (n_state + n_layer)
    ticks = recurrent_ticks(n_layer) if ticks is None else ticks
    tied = _learned(graph.dst >= graph.n_clamped + first)
    net = Mesh(graph, ticks, names, random_state=rng, tied=tied, **settings)
    state = graph.n_clamped + first
    held = (graph.src >= state - n_state) & (graph.src < state)
    fan = np.where(held, n_state, n_inputs * (lags + 1) + bool(bias))
    spread = np.where(held, inside, outside) / np.sqrt(fan)
    spread = np.where(graph.dst >= state + n_state, 1.0 / np.sqrt(n_state + n_inputs + bool(bias)), spread)
    spread = np.where(graph.dst >= graph.outputs[0], 0.1, spread)  # the first outputs are near the mean
    net.weights = np.where(net.ties.fixed, 1.0, rng.standard_normal(graph.n_edges) * spread)
    return net


def reservoir(
    n_inputs: int,
    n_neurons: int,
    n_outputs: int,
    *,
    density: float = 0.1,
    spectral_radius: float = 0.9,
    input_scale: float = 1.0,
    memory: Sequence[float] | None = None,
    bias: bool = True,
    activation: str = "tanh",
    random_state: Seed = None,
    **settings: Any,
) -> Mesh:
    """An echo state network: a fixed random recurrent net of which only the readout is learned.

    Parameters
    ----------
    n_inputs, n_neurons, n_outputs : int
    density : float
        Share of the pairs of neurons that are edges; with 0 there is no recurrence.
    spectral_radius : float
        Largest absolute eigenvalue of the weights between neurons: how long echoes last.
    input_scale : float
        Weights from inputs and bias are uniform between - and + this.
    memory : (float, float), optional
        Shortest and longest time constant in ticks of leaky neurons; by default neurons do not leak.
    bias, activation, random_state, **settings
        As for `columns`.

    Examples
    --------
    >>> from meshnn import networks
    >>> net = networks.reservoir(1, 50, 1, random_state=0)
    >>> net.topology.n_edges, net.n_parameters                     # the readout: 50 neurons, the input, the bias
    (402, 52)
    """
    largest = real_number("spectral_radius", spectral_radius, *POSITIVE)
    scale = real_number("input_scale", input_scale, *POSITIVE)
    leaky, rng = memory is not None, as_generator(random_state)
    graph = Topology.reservoir(n_inputs, n_neurons, n_outputs, density, leaky, bias, rng)
    names = [activation] * n_neurons + ["identity"] * (n_neurons * leaky)
    tied = _learned(graph.dst >= graph.outputs[0])
    net = Mesh(graph, activation=names, random_state=rng, tied=tied, **settings)
    weights = np.array(net.weights, np.float64)
    reads = graph.dst < graph.n_clamped + n_neurons  # edges into the neurons themselves, not into their integrators
    outside, inside = reads & (graph.src < graph.n_clamped), reads & (graph.src >= graph.n_clamped)
    weights[outside] = rng.uniform(-scale, scale, int(outside.sum()))
    if density > 0:
        drawn = rng.uniform(-1.0, 1.0, int(inside.sum()))
        from_to = (graph.src[inside] - graph.n_clamped) % n_neurons, graph.dst[inside] - graph.n_clamped
        weights[inside] = drawn * (largest / _radius(drawn, *from_to, n_neurons))
    if memory is not None:
        _leak(weights, graph, _time_constants(memory, n_neurons))
    net.weights = weights
    return net


def _leak(weights: Array, graph: Topology, constants: Array) -> None:
    """The two fixed weights into each integrator, in place: those are the last hidden neurons, in order."""
    integrator = (graph.dst >= graph.outputs[0] - len(constants)) & (graph.dst < graph.outputs[0])
    loop = graph.src == graph.dst
    weights[integrator & loop] = 1.0 - 1.0 / constants
    weights[integrator & ~loop] = 1.0 / constants


def _learned(learned: BoolArray) -> Array:
    """A parameter of its own for each edge of a mask; the others are fixed."""
    return np.where(learned, np.cumsum(learned) - 1, -1)


def _time_constants(memory: Sequence[float], count: int) -> Array:
    """Spread evenly in the logarithm, from the shortest to the longest."""
    given = as_list("memory", memory)
    if len(given) != 2:
        raise MeshError(f"memory must be two time constants in ticks, (shortest, longest), got {memory!r}")
    what = "a finite number of ticks of at least 1"
    ends = [real_number(f"memory[{k}]", tau, what, lambda v: 1 <= v < np.inf) for k, tau in enumerate(given)]
    if ends[0] > ends[1]:
        raise MeshError(f"memory must name the shortest time constant first, got {memory!r}")
    return np.geomspace(ends[0], ends[1], count)


def _radius(values: Array, src: Array, dst: Array, n: int) -> float:
    """The largest absolute eigenvalue of a sparse matrix."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import ArpackNoConvergence, eigs

    W = csr_array((values, (src, dst)), shape=(n, n))
    # asked of the graph, because rounding gives a matrix without cycles eigenvalues that are not 0
    if not (src == dst).any() and connected_components(W, connection="strong")[0] == n:
        raise MeshError(
            f"a reservoir of {n} neurons with {len(values)} edges between them has no cycle, so its spectral radius "
            "is 0; take a higher density or another random_state"
        )
    found = None
    if n > 400:  # up to here all eigenvalues are computed, beyond only the largest
        try:
            found = eigs(W, 1, ncv=min(n, 60), v0=np.ones(n), return_eigenvectors=False)
        except ArpackNoConvergence:
            found = None
    if found is None:
        found = np.linalg.eigvals(W.toarray())
    return float(np.abs(found).max())

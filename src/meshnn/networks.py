"""Networks with memory, ready to run: a recurrent graph with its activations, fixed edges and initial weights.

`Topology.columns`, `cascade_of_columns`, `delay_line` and `reservoir` return graphs. The functions of this module
return the matching `Mesh`. It is an ordinary mesh: every gradient method works on it, it can be saved, and its
`topology`, `tied`, `weights` and `activations` can be used to build a variation.

Memory is measured in ticks. A neuron that keeps the share 1 - 1/tau of its state at every tick has the time constant
tau: after tau ticks about a third of the state is left. The time constants of several neurons are spaced evenly on a
logarithmic scale between the two ends of `memory`.

A leaky neuron, s <- (1 - a) s + a phi(...), consists of two neurons, because a neuron of this library computes
s <- phi(...): one neuron computes u = phi(...), and an identity neuron with a self-loop of weight 1 - a reads u with
weight a = 1/tau. This takes one more tick. Both weights are fixed: with a trained self-loop above 1 the state would
grow without bound.
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
    """Return a mesh of neurons that each have a self-loop and no edges between each other.

    Learning from a stream with exact influence takes as many operations per tick as the forward pass.

    Parameters
    ----------
    n_inputs, n_columns, n_outputs : int
        Numbers of inputs, columns and outputs.
    memory : (float, float), default (2, 50)
        Shortest and longest time constant in ticks, at least 1; the initial weights of the self-loops are 1 - 1/tau.
    leaky : bool, default False
        If True, each column is a neuron followed by a leaky integrator with a fixed leak. Otherwise it is one neuron
        with a trained self-loop.
    bias : bool, default True
        Whether there is a bias neuron.
    activation : str, default "tanh"
        Activation of the neurons that read the inputs.
    **settings
        `ticks`, `output_activation`, `dtype` and `random_state`, as for `Mesh`.

    Returns
    -------
    Mesh

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
    """Return a mesh of columns in stages: each column reads the inputs and all columns of earlier stages.

    Parameters
    ----------
    n_inputs, n_columns, n_outputs : int
        Numbers of inputs, columns and outputs.
    per_stage : int, default 1
        Number of columns per stage; the last stage may have fewer.
    memory, leaky, bias, activation, **settings
        As for `columns`.

    Returns
    -------
    Mesh

    Examples
    --------
    >>> from meshnn import networks
    >>> networks.cascade_of_columns(2, 6, 1, per_stage=2, random_state=0)
    Mesh(2-6-1 + bias, 45 edges, 3 ticks, float32)
    """
    graph = Topology.cascade_of_columns(n_inputs, n_columns, n_outputs, per_stage, leaky, bias)
    names = [activation] * n_columns + ["identity"] * (n_columns * leaky)
    integrator = (graph.dst >= graph.n_clamped + n_columns) & (graph.dst < graph.outputs[0])
    net = Mesh(graph, activation=names, tied=_parameter_indices(~integrator) if leaky else None, **settings)
    constants, weights = _time_constants(memory, n_columns), np.array(net.weights, np.float64)
    if leaky:
        _set_leaks(weights, graph, constants)
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
    """Return a mesh with one hidden layer on the last `length + 1` samples, which fixed chains of neurons store.

    The memory covers exactly `length` past samples. There is no cycle.

    Parameters
    ----------
    n_inputs, length, n_hidden, n_outputs : int
        Numbers of inputs, stored past samples, hidden neurons and outputs. Without hidden neurons the mesh is a linear
        filter.
    ticks_per_sample : int, default 1
        Number of ticks for which each sample is held. With 1, the outputs depend on the hidden layer's response to the
        samples up to the previous one; with 2, to those up to the current one. A stream of the mesh uses the same
        number by default.
    bias, activation, **settings
        As for `columns`. The default `ticks` is large enough for the last tap to reach an output.

    Returns
    -------
    Mesh

    Examples
    --------
    >>> from meshnn import networks
    >>> net = networks.delay_line(1, 2, 0, 1, bias=False, dtype="float64")       # y = a x(t) + b x(t-1) + c x(t-2)
    >>> net.parameters = [1.0, 10.0, 100.0]
    >>> net.forward([[[7.0]], [[8.0]], [[9.0]]]).tolist()
    [[789.0]]
    """
    graph = Topology.delay_line(n_inputs, length, n_hidden, n_outputs, ticks_per_sample, bias)
    n_chain = graph.n_hidden - n_hidden
    names = ["identity"] * n_chain + [activation] * n_hidden
    tied = _parameter_indices(graph.dst >= graph.n_clamped + n_chain)
    net = Mesh(graph, activation=names, tied=tied, **settings)
    net.weights = np.where(net.ties.fixed, 1.0, net.weights)
    net.ticks_per_sample = int(ticks_per_sample)
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
    """Return a standard recurrent network: one state update per sample, and outputs that depend on the current sample.

    An output needs several ticks per sample. Fixed chains delay the state by one sample, so that it is updated once per
    sample and not once per tick.

    Parameters
    ----------
    n_inputs, n_state, n_outputs : int
        Numbers of inputs, state neurons and outputs.
    n_layer : int, default 0
        Number of neurons in a layer between state and outputs, which also reads the inputs.
    lags : int, default 0
        Number of past samples that the state reads, each with its own weights.
    input_scale, state_scale : float, default 0.5 and 0.3
        Initial standard deviations of the sum that a state neuron receives from inputs of variance 1 and from a state
        of variance 1. Small values give an initial network that is nearly linear.
    bias, ticks, activation, random_state, **settings
        As for `columns`. The default `ticks` is 2, or 3 with a layer: the number that one sample needs, also on a
        stream.

    Returns
    -------
    Mesh

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
    tied = _parameter_indices(graph.dst >= graph.n_clamped + first)
    net = Mesh(graph, ticks, names, random_state=rng, tied=tied, **settings)
    state = graph.n_clamped + first
    from_state = (graph.src >= state - n_state) & (graph.src < state)
    fan = np.where(from_state, n_state, n_inputs * (lags + 1) + bool(bias))
    spread = np.where(from_state, inside, outside) / np.sqrt(fan)
    spread = np.where(graph.dst >= state + n_state, 1.0 / np.sqrt(n_state + n_inputs + bool(bias)), spread)
    spread = np.where(graph.dst >= graph.outputs[0], 0.1, spread)  # initial outputs are near the mean
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
    """Return an echo state network: a fixed random recurrent network with a trained readout.

    Parameters
    ----------
    n_inputs, n_neurons, n_outputs : int
        Numbers of inputs, reservoir neurons and outputs.
    density : float, default 0.1
        Share of the pairs of neurons that are connected; with 0 there is no recurrence.
    spectral_radius : float, default 0.9
        Largest absolute eigenvalue of the weights between neurons. Larger values give a longer memory.
    input_scale : float, default 1
        Weights from inputs and bias are drawn uniformly from -input_scale to input_scale.
    memory : (float, float), optional
        Shortest and longest time constant, in ticks, of leaky neurons; by default neurons do not leak.
    bias, activation, random_state, **settings
        As for `columns`.

    Returns
    -------
    Mesh

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
    tied = _parameter_indices(graph.dst >= graph.outputs[0])
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
        _set_leaks(weights, graph, _time_constants(memory, n_neurons))
    net.weights = weights
    return net


def _set_leaks(weights: Array, graph: Topology, constants: Array) -> None:
    """Set the two fixed weights into each integrator, in place; the integrators are the last hidden neurons."""
    integrator = (graph.dst >= graph.outputs[0] - len(constants)) & (graph.dst < graph.outputs[0])
    loop = graph.src == graph.dst
    weights[integrator & loop] = 1.0 - 1.0 / constants
    weights[integrator & ~loop] = 1.0 / constants


def _parameter_indices(trained: BoolArray) -> Array:
    """Return one parameter index per edge of a mask, -1 for the other edges, which are fixed."""
    return np.where(trained, np.cumsum(trained) - 1, -1)


def _time_constants(memory: Sequence[float], count: int) -> Array:
    """Return time constants spaced evenly on a logarithmic scale, from the shortest to the longest."""
    given = as_list("memory", memory)
    if len(given) != 2:
        raise MeshError(f"memory must be two time constants in ticks, (shortest, longest), got {memory!r}")
    what = "a finite number of ticks of at least 1"
    ends = [real_number(f"memory[{k}]", tau, what, lambda v: 1 <= v < np.inf) for k, tau in enumerate(given)]
    if ends[0] > ends[1]:
        raise MeshError(f"memory must be (shortest, longest) time constant, got {memory!r}; swap the two")
    return np.geomspace(ends[0], ends[1], count)


def _radius(values: Array, src: Array, dst: Array, n: int) -> float:
    """Return the largest absolute eigenvalue of a sparse matrix."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import ArpackNoConvergence, eigs

    W = csr_array((values, (src, dst)), shape=(n, n))
    # the graph decides, because rounding gives a matrix without cycles eigenvalues that are not 0
    if not (src == dst).any() and connected_components(W, connection="strong")[0] == n:
        raise MeshError(
            f"a reservoir of {n} neurons with {len(values)} edges between them has no cycle, so its spectral radius "
            "is 0; take a higher density or another random_state"
        )
    found = None
    if n > 400:  # only the largest eigenvalue of a large matrix is computed
        try:
            found = eigs(W, 1, ncv=min(n, 60), v0=np.ones(n), return_eigenvectors=False)
        except ArpackNoConvergence:
            found = None
    if found is None:
        found = np.linalg.eigvals(W.toarray())
    return float(np.abs(found).max())

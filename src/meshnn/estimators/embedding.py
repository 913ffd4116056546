"""`Embedding`: piecewise-linear features of numeric columns; `combined`: several nets as one mesh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.codes import ACTIVATIONS, NONZERO_AT_ZERO
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.topology import Topology

#: Maximum number of inputs with ramps: more would take the time that the neurons need.
WIDEST = 500
#: Minimum width of a ramp relative to its distance from 0, so that a net in float32 computes it to 0.1 %.
NARROWEST = 1e-3


def ramps_of(n_samples: int, n_columns: int) -> int:
    """Return the default number of ramps per column: 6, and more for more than 5,000 samples and few columns."""
    return max(6, min(round(6 * (n_samples / 5_000) ** (2 / 3)), WIDEST // n_columns - 1))


@dataclass(frozen=True)
class Embedding:
    """Ramps between quantiles of each column, as further inputs of a net.

    A ramp is 0 up to one quantile and 1 from the next one. Linear functions of ramps are continuous, piecewise linear
    and constant in the tails, so steps and thresholds need few neurons. Ramps have the mean 0 and the variance 1.
    """

    n_columns: int
    column: IntArray  # (n_ramps,)
    begin: FloatArray  # (n_ramps,) the quantile at which a ramp begins to rise
    end: FloatArray
    mean: FloatArray
    scale: FloatArray

    @classmethod
    def learn(cls, X: Array, count: int) -> Embedding | None:
        """Return at most `count` ramps per column of the training inputs, or None if no column has any.

        Columns with two values have none, and tables with many columns have fewer ramps, or none.
        """
        several = [k for k, values in enumerate(X.T) if len(np.unique(values)) > 2] if X.shape[1] < WIDEST else []
        if several:
            count = min(count, (WIDEST - X.shape[1]) // len(several))
        found = []
        for k in several if count > 1 else ():
            values, steps = X[:, k].astype(np.float64), np.linspace(0, 1, count + 1)
            at = _apart(np.quantile(values, steps))
            at = at if len(at) > 3 else _apart(np.quantile(np.unique(values), steps))  # most values are equal
            found += [(k, low, high) for low, high in pairwise(at)]
        if not found:
            return None
        column, begin, end = (np.array(each) for each in zip(*found, strict=True))
        raw = cls(X.shape[1], column, begin, end, np.zeros(len(column)), np.ones(len(column)))
        ramps = raw._ramps(X.astype(np.float64))
        return cls(X.shape[1], column, begin, end, ramps.mean(axis=0), np.maximum(ramps.std(axis=0), 1e-3))

    @property
    def width(self) -> int:
        """Number of inputs of a net behind the embedding: columns and ramps."""
        return self.n_columns + len(self.column)

    def _ramps(self, X: Array) -> Array:
        return np.clip((X[:, self.column] - self.begin) / (self.end - self.begin), 0.0, 1.0)

    def inputs(self, X: Array) -> Array:
        """Return the inputs of a net behind the embedding."""
        return np.concatenate((X, ((self._ramps(X) - self.mean) / self.scale).astype(X.dtype)), axis=1)


def _apart(at: FloatArray) -> FloatArray:
    """Return ascending quantiles without those that are too close to the one before."""
    kept = [float(at[0])]
    for value in at[1:].tolist():
        if value - kept[-1] > max(NARROWEST * max(abs(value), abs(kept[-1])), 1e-30):
            kept.append(value)
    return np.array(kept)


def check_awake(activations: Iterable[str]) -> None:
    """Refuse activations that are not 0 at 0: such neurons cannot wait one tick for the ramps."""
    if awake := [name for name in activations if ACTIVATIONS[name] in NONZERO_AT_ZERO]:
        raise MeshError(f"an embedding needs activations that are 0 at 0, not {awake[0]}; set embedding=None")


def combined(nets: Sequence[Mesh], embeddings: Sequence[Embedding | None], shares: Sequence[float]) -> Mesh:
    """Return one mesh with the weighted mean of the outputs of nets, each behind an embedding or on the columns.

    A ramp becomes a neuron with the activation hardtanh. Its state is late by one tick, so the bias and the columns
    pass through neurons that delay them by one tick too: until then the sums of all neurons are 0, and so are their
    states. If neurons of a member read its outputs, these are hidden neurons too.
    """
    if len(nets) == 1 and embeddings[0] is None:
        return nets[0]
    n = embeddings[0].n_columns if embeddings[0] is not None else nets[0].topology.n_inputs
    columns, delay, ramps = np.arange(n + 1), any(each is not None for each in embeddings), dict[int, IntArray]()
    graph = _Union(n, nets[0].topology.n_outputs)
    if delay:
        check_awake({name for net in nets for name in net.activations})
        columns = graph.neurons(["identity"] * (n + 1))
        graph.connect(np.arange(n + 1), columns, np.ones(n + 1))
    for net, embedding, share in zip(nets, embeddings, shares, strict=True):
        if embedding is not None and id(embedding) not in ramps:
            own = ramps[id(embedding)] = graph.neurons(["hardtanh"] * len(embedding.column))
            slope = 2.0 / (embedding.end - embedding.begin)
            graph.connect(embedding.column, own, slope)
            graph.connect(np.full(len(own), n), own, -slope * embedding.begin - 1.0)
        graph.add(net, columns, None if embedding is None else (embedding, ramps[id(embedding)]), share, len(nets) == 1)
    dtype = "float64" if any(net.dtype == np.float64 for net in nets) else "float32"
    return graph.mesh(nets[0].ticks + delay, nets[0].activations[-1], dtype)


class _Union:
    """The neurons and edges of several nets; outputs have the numbers -n_outputs to -1 until the end."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        self.n_inputs, self.outputs = n_inputs, np.arange(-n_outputs, 0)
        self.activations, self.edges = list[str](), list[tuple[Array, Array, Array]]()

    def neurons(self, activations: Sequence[str]) -> IntArray:
        """Add hidden neurons and return their numbers."""
        self.activations += activations
        last = self.n_inputs + 1 + len(self.activations)
        return np.arange(last - len(activations), last)

    def connect(self, src: Array, dst: Array, weights: Array) -> None:
        """Add edges; weights of the same edge add up."""
        self.edges.append((src, dst, weights))

    def add(
        self, net: Mesh, columns: Array, front: tuple[Embedding, IntArray] | None, share: float, alone: bool
    ) -> None:
        """Add a net that reads these neurons and contributes a share of the outputs."""
        t = net.topology
        first = t.n_neurons - t.n_outputs
        hidden = self.neurons(net.activations[: t.n_hidden])
        ramps: Array = np.zeros(0) if front is None else front[1]
        src, dst, weights = t.src, t.dst, net.weights.astype(np.float64)
        if front is not None:  # an input is (state / 2 + 1 / 2 - mean) / scale
            e = front[0]
            scale, shift = np.ones(t.n_neurons), np.zeros(t.n_neurons)
            scale[e.n_columns : e.width], shift[e.n_columns : e.width] = 0.5 / e.scale, (0.5 - e.mean) / e.scale
            constant = np.bincount(dst, shift[src] * weights, t.n_neurons)
            shifted = np.flatnonzero(constant)
            weights = np.concatenate((weights * scale[src], constant[shifted]))
            src, dst = np.concatenate((src, np.full(len(shifted), t.n_inputs))), np.concatenate((dst, shifted))
        read = not alone and bool((src >= first).any())
        own = self.neurons(net.activations[t.n_hidden :]) if read else self.outputs
        place = np.concatenate((columns[:-1], ramps, columns[-1:], hidden, own)).astype(np.int64)
        last = dst >= first
        if read:
            self.connect(place[src], place[dst], weights)
            self.connect(place[src[last]], self.outputs[dst[last] - first], share * weights[last])
        else:
            self.connect(place[src], place[dst], np.where(last, share * weights, weights))

    def mesh(self, ticks: int, output_activation: str, dtype: str) -> Mesh:
        """Return the mesh."""
        src, dst, weights = (np.concatenate(parts) for parts in zip(*self.edges, strict=True))
        size = self.n_inputs + 1 + len(self.activations) + len(self.outputs)
        pairs, place = np.unique(dst % size * size + src % size, return_inverse=True)  # -1 is the last neuron
        edges = np.stack((pairs % size, pairs // size), axis=1)
        graph = Topology(self.n_inputs, len(self.activations), len(self.outputs), edges)
        values = np.bincount(place, weights)[np.searchsorted(pairs, graph.dst.astype(np.int64) * size + graph.src)]
        return Mesh(graph, ticks, self.activations, output_activation, weights=values, dtype=dtype)

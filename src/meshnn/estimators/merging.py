"""`merged`: several nets behind transforms of their inputs as one mesh."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.codes import ACTIVATIONS, NONZERO_AT_ZERO
from meshnn.errors import MeshError
from meshnn.estimators.embedding import Embedding
from meshnn.estimators.scaling import Rotation
from meshnn.mesh import Mesh
from meshnn.topology import Topology

#: A transform of the scaled features before they enter a net, during training.
Transform = Rotation | Embedding | None


def check_activations(nets: Sequence[Mesh], transforms: Sequence[Transform]) -> None:
    """Refuse activations that are not 0 at 0 if there are ramps: such neurons cannot wait one tick for them."""
    names = {name for net in nets for name in net.activations if ACTIVATIONS[name] in NONZERO_AT_ZERO}
    if names and any(isinstance(each, Embedding) for each in transforms):
        raise MeshError(f"an embedding needs activations that are 0 at 0, not {min(names)}; set embedding=None")


def merged(nets: Sequence[Mesh], transforms: Sequence[Transform], shares: Sequence[float]) -> Mesh:
    """Return one mesh on scaled features with the weighted mean of the outputs of nets behind these transforms.

    A ramp becomes a neuron with the activation hardtanh. Its state is late by one tick, so the bias and the columns
    pass through neurons that delay them by one tick too: until then the sums of all neurons are 0, and so are their
    states. If neurons of a member read its outputs, these are hidden neurons too.
    """
    if isinstance(transforms[0], Rotation):
        return transforms[0].undone(nets[0])
    embedding = next((each for each in transforms if isinstance(each, Embedding)), None)
    if embedding is None and len(nets) == 1:
        return nets[0]
    union = _Union(nets[0].topology, embedding)
    for net, transform, share in zip(nets, transforms, shares, strict=True):
        union.add(net, transform is not None, share, len(nets) == 1)
    dtype = "float64" if any(net.dtype == np.float64 for net in nets) else "float32"
    return union.mesh(nets[0].ticks + (embedding is not None), nets[0].activations[-1], dtype)


class _Union:
    """The neurons and edges of several nets, of which some read the ramps of an embedding.

    Outputs have the numbers -n_outputs to -1 until the end.
    """

    def __init__(self, first: Topology, embedding: Embedding | None) -> None:
        self.embedding, self.n_inputs = embedding, first.n_inputs if embedding is None else embedding.n_columns
        self.outputs = np.arange(-first.n_outputs, 0)
        self.activations, self.edges = list[str](), list[tuple[Array, Array, Array]]()
        self.columns, self.ramps = np.arange(self.n_inputs + 1), np.arange(0)  # sources of the inputs and the bias
        if embedding is not None:
            clamped, self.columns = self.columns, self.neurons(["identity"] * len(self.columns))
            self.connect(clamped, self.columns, np.ones(len(clamped)))
            self.ramps, slope = (
                self.neurons(["hardtanh"] * len(embedding.column)),
                2 / (embedding.end - embedding.begin),
            )
            self.connect(embedding.column, self.ramps, slope)
            self.connect(np.full(len(slope), clamped[-1]), self.ramps, -slope * embedding.begin - 1.0)

    def neurons(self, activations: Sequence[str]) -> IntArray:
        """Add hidden neurons and return their numbers."""
        self.activations += activations
        last = self.n_inputs + 1 + len(self.activations)
        return np.arange(last - len(activations), last)

    def connect(self, src: Array, dst: Array, weights: Array) -> None:
        """Add edges; weights of the same edge add up."""
        self.edges.append((src, dst, weights))

    def add(self, net: Mesh, embedded: bool, share: float, alone: bool) -> None:
        """Add a net that contributes a share of the outputs."""
        t, first = net.topology, net.topology.n_neurons - net.topology.n_outputs
        hidden, ramps = self.neurons(net.activations[: t.n_hidden]), self.ramps[: embedded * len(self.ramps)]
        src, dst, weights = t.src, t.dst, net.weights.astype(np.float64)
        if embedded and self.embedding is not None:  # an input is (state / 2 + 1 / 2 - mean) / scale
            e, scale, shift = self.embedding, np.ones(t.n_neurons), np.zeros(t.n_neurons)
            scale[e.n_columns : e.width], shift[e.n_columns : e.width] = 0.5 / e.scale, (0.5 - e.mean) / e.scale
            constant = np.bincount(dst, shift[src] * weights, t.n_neurons)
            shifted = np.flatnonzero(constant)
            weights = np.concatenate((weights * scale[src], constant[shifted]))
            src, dst = np.concatenate((src, np.full(len(shifted), t.n_inputs))), np.concatenate((dst, shifted))
        read = not alone and bool((src >= first).any())
        own = self.neurons(net.activations[t.n_hidden :]) if read else self.outputs
        place = np.concatenate((self.columns[:-1], ramps, self.columns[-1:], hidden, own))
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
        found = Mesh(graph, ticks, self.activations, output_activation, weights=values, dtype=dtype)
        live = ~found.dead_edges()  # hidden neurons that hold outputs of a member are not read after the last tick
        graph = Topology(
            self.n_inputs, len(self.activations), len(self.outputs), np.stack((graph.src, graph.dst), axis=1)[live]
        )
        return Mesh(graph, ticks, self.activations, output_activation, weights=found.weights[live], dtype=dtype)

"""Families of graphs: the constructors that `Topology` inherits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np

from meshnn.arguments import as_generator, as_list, real_number, switch, whole_number
from meshnn.arrays import IntArray
from meshnn.errors import TopologyError
from meshnn.memory import check_fits

__all__ = ["GraphFamilies", "Seed", "recurrent_ticks"]

Seed = int | np.random.Generator | np.random.SeedSequence | None
#: Sources and destinations.
Ends = tuple[IntArray, IntArray]


class GraphFamilies:
    """Constructors of graphs from a few sizes; see `Topology`."""

    #: Name of the function of `meshnn.networks` that fixes the chains of this graph at 1, if it has chains.
    _chains: str = ""

    if TYPE_CHECKING:

        def __init__(self, n_inputs: int, n_hidden: int, n_outputs: int, edges: IntArray, bias: bool = True) -> None:
            """See `Topology`."""

    @classmethod
    def mesh(
        cls,
        n_inputs: int,
        n_hidden: int,
        n_outputs: int,
        density: float = 1.0,
        self_loops: bool = False,
        feedback: bool = True,
        bias: bool = True,
        random_state: Seed = None,
    ) -> Self:
        """The graph of the paper's figure: hidden neurons and outputs read inputs, bias and hidden neurons.

        With `feedback`, hidden neurons also read the outputs. Exactly `round(density * allowed)` random edges are kept;
        bias edges are always kept and not counted.

        >>> from meshnn import Topology
        >>> Topology.mesh(32, 50, 10, density=0.2, self_loops=True, feedback=False, random_state=0).n_edges
        1044
        """
        sizes = n_inputs, n_hidden, n_outputs = _sizes(n_inputs, n_hidden, n_outputs)
        skip_self, feedback, bias = not switch("self_loops", self_loops), switch("feedback", feedback), _bias(bias)
        # The allowed edges are enumerated but never listed, so that the time for a sparse mesh depends only on its
        # number of edges. A hidden neuron reads features, hidden neurons (itself only with self_loops) and, with
        # feedback, outputs.
        per_output = n_inputs + n_hidden
        per_hidden = per_output - skip_self + n_outputs * feedback
        into_hidden = n_hidden * per_hidden
        index = _draw(into_hidden + n_outputs * per_output, density, random_state)
        hidden = index < into_hidden
        row, column = np.divmod(index[hidden], max(per_hidden, 1))
        column += skip_self & (column >= n_inputs) & (column - n_inputs >= row)  # skip the neuron itself
        outputs, read = np.divmod(index[~hidden] - into_hidden, per_output)
        row, column = np.concatenate([row, n_hidden + outputs]), np.concatenate([column, read])
        column += bias * (column >= n_inputs)
        links = (column, n_inputs + bias + row)
        _, one, free = _neurons(n_inputs, bias, n_hidden + n_outputs)
        return cls(*sizes, _edges([(one, free)], [links]), bias=bias)

    @classmethod
    def layered(cls, sizes: Sequence[int], bias: bool = True) -> Self:
        """A multilayer perceptron: each layer reads the one before and the bias.

        >>> from meshnn import Topology
        >>> Topology.layered([32, 14, 13, 10]).n_edges
        797
        """
        given = as_list("sizes", sizes)
        if len(given) < 2:
            raise TopologyError(f"layered needs at least an input and an output layer, got sizes {given}")
        counts = [whole_number(f"sizes[{k}]", size, least=1) for k, size in enumerate(given)]
        features, one, *layers = _neurons(counts[0], _bias(bias), *counts[1:])
        blocks = [*pairwise([features, *layers]), *((one, layer) for layer in layers)]
        return cls(counts[0], sum(counts[1:-1]), counts[-1], _edges(blocks), bias=bias)

    @classmethod
    def cascade(cls, n_inputs: int, n_hidden: int, n_outputs: int, bias: bool = True) -> Self:
        """A fully connected cascade: each hidden neuron reads all inputs and all hidden neurons before it.

        >>> from meshnn import Topology
        >>> Topology.cascade(2, 3, 1).default_ticks()
        4
        """
        sizes = _sizes(n_inputs, n_hidden, n_outputs)
        features, one, hidden, outputs = _neurons(sizes[0], _bias(bias), *sizes[1:])
        blocks = [*_fed(features, one, hidden, outputs), *_stages(hidden, hidden, 1), (hidden, outputs)]
        return cls(*sizes, _edges(blocks), bias=bias)

    @classmethod
    def columns(cls, n_inputs: int, n_columns: int, n_outputs: int, leaky: bool = False, bias: bool = True) -> Self:
        """Neurons with self-loops and no other cycle: exact influences cost as much per tick as a forward pass.

        Columns read the inputs, outputs read inputs and columns. A leaky column consists of two neurons: the first
        reads the inputs, the second reads the first and has the self-loop. Outputs read the second.
        `meshnn.networks.columns` adds weights.

        >>> from meshnn import Topology
        >>> Topology.columns(2, 5, 1)
        Topology(2 inputs + bias, 5 hidden, 1 outputs, 28 edges)
        >>> Topology.columns(2, 5, 1, leaky=True)
        Topology(2 inputs + bias, 10 hidden, 1 outputs, 33 edges)
        """
        n_columns = whole_number("n_columns", n_columns, 0)
        return cls.cascade_of_columns(n_inputs, n_columns, n_outputs, max(n_columns, 1), leaky, bias)

    @classmethod
    def cascade_of_columns(
        cls, n_inputs: int, n_columns: int, n_outputs: int, per_stage: int = 1, leaky: bool = False, bias: bool = True
    ) -> Self:
        """Columns in stages: each column reads the inputs and all columns of earlier stages.

        The only cycles are self-loops, so a net can be built stage by stage: later stages do not change earlier ones.
        `meshnn.networks.cascade_of_columns` adds weights.

        >>> from meshnn import Topology
        >>> Topology.cascade_of_columns(2, 4, 1, per_stage=2).components().tolist()
        [-1, -1, -1, 0, 1, 2, 3, 4]
        """
        n_inputs, n_columns, n_outputs = _sizes(n_inputs, n_columns, n_outputs, "n_columns")
        per_stage, leaky = whole_number("per_stage", per_stage, 1), switch("leaky", leaky)
        features, one, reads, behind, outputs = _neurons(n_inputs, _bias(bias), n_columns, n_columns * leaky, n_outputs)
        keeps = behind if leaky else reads
        blocks = [*_fed(features, one, reads, outputs), *_stages(keeps, reads, per_stage), (keeps, outputs)]
        links = [(keeps, keeps), *([(reads, keeps)] if leaky else [])]
        return cls(n_inputs, n_columns * (1 + leaky), n_outputs, _edges(blocks, links), bias=bias)

    @classmethod
    def delay_line(
        cls, n_inputs: int, length: int, n_hidden: int, n_outputs: int, ticks_per_sample: int = 1, bias: bool = True
    ) -> Self:
        """A net with one hidden layer on the last `length + 1` inputs, which chains of neurons store.

        The first `n_inputs * length * ticks_per_sample` hidden neurons form the chains, input by input. The last
        `n_hidden` read inputs and taps, as the outputs do. If a sample stays for several ticks, each step of delay
        takes this number of neurons. `meshnn.networks.delay_line` adds weights: the chains are fixed at 1, all other
        weights are learned.

        >>> from meshnn import Topology
        >>> Topology.delay_line(1, 10, 8, 1)
        Topology(1 inputs + bias, 18 hidden, 1 outputs, 126 edges)
        """
        n_inputs, n_hidden, n_outputs = _sizes(n_inputs, n_hidden, n_outputs)
        length, stay = whole_number("length", length, 1), whole_number("ticks_per_sample", ticks_per_sample, 1)
        features, one, line, layer, outputs = _neurons(
            n_inputs, _bias(bias), n_inputs * length * stay, n_hidden, n_outputs
        )
        taps, chain = _chain(features, line, stay)
        blocks = [*_fed(np.concatenate([features, taps]), one, layer, outputs), (layer, outputs)]
        found = cls(n_inputs, len(line) + n_hidden, n_outputs, _edges(blocks, [chain]), bias=bias)
        found.__dict__["_chains"] = "delay_line"
        return found

    @classmethod
    def recurrent(
        cls, n_inputs: int, n_state: int, n_outputs: int, n_layer: int = 0, lags: int = 0, bias: bool = True
    ) -> Self:
        """A standard recurrent net: a state that reads the inputs and its own value of the previous sample.

        Outputs read the state or, with `n_layer`, a layer that reads the state and the inputs. A sample stays for two
        ticks, with a layer for three, so that it reaches the outputs. Chains of neurons pass on the state from sample
        to sample, and the last `lags` inputs, which the state also reads. `meshnn.networks.recurrent` adds weights: the
        chains are fixed at 1, all other weights are learned.

        >>> from meshnn import Topology
        >>> Topology.recurrent(1, 6, 1, n_layer=5)  # 12 of the hidden neurons are chains
        Topology(1 inputs + bias, 23 hidden, 1 outputs, 106 edges)
        """
        n_inputs, n_state, n_outputs = _sizes(n_inputs, n_state, n_outputs, "n_state")
        n_state = whole_number("n_state", n_state, 1)
        n_layer, lags = whole_number("n_layer", n_layer, 0), whole_number("lags", lags, 0)
        stay = recurrent_ticks(n_layer)
        groups = (n_inputs * lags * stay, (stay - 1) * n_state, n_state, n_layer, n_outputs)
        features, one, line, held, state, layer, outputs = _neurons(n_inputs, _bias(bias), *groups)
        taps, chain = _chain(features, line, stay)
        blocks = [
            (np.concatenate([features, taps, held[-n_state:], one]), state),
            (np.concatenate([features, state, one]), layer),
            (np.concatenate([layer if n_layer else state, one]), outputs),
        ]
        links = [chain, (np.concatenate([state, held[:-n_state]]), held)]
        found = cls(n_inputs, sum(groups[:-1]), n_outputs, _edges(blocks, links), bias=bias)
        found.__dict__["_chains"] = "recurrent"
        return found

    @classmethod
    def reservoir(
        cls,
        n_inputs: int,
        n_neurons: int,
        n_outputs: int,
        density: float = 0.1,
        leaky: bool = False,
        bias: bool = True,
        random_state: Seed = None,
    ) -> Self:
        """An echo state network: neurons read the inputs and random other neurons; outputs read all of them.

        Exactly `round(density * n_neurons**2)` of the pairs of neurons are edges; a pair may be a self-loop. A leaky
        neuron consists of two, as in `columns`. `meshnn.networks.reservoir` adds weights: only the readout is learned.

        >>> from meshnn import Topology
        >>> Topology.reservoir(1, 100, 1, random_state=0)
        Topology(1 inputs + bias, 100 hidden, 1 outputs, 1302 edges)
        """
        n_inputs, n_neurons, n_outputs = _sizes(n_inputs, n_neurons, n_outputs, "n_neurons")
        leaky = switch("leaky", leaky)
        features, one, reads, behind, outputs = _neurons(n_inputs, _bias(bias), n_neurons, n_neurons * leaky, n_outputs)
        keeps = behind if leaky else reads
        index = _draw(n_neurons**2, density, random_state, always=True)
        links = [(keeps[index // n_neurons], reads[index % n_neurons]), *([(reads, keeps), (keeps, keeps)] * leaky)]
        blocks = [*_fed(features, one, reads, outputs), (keeps, outputs)]
        return cls(n_inputs, n_neurons * (1 + leaky), n_outputs, _edges(blocks, links), bias=bias)


def recurrent_ticks(n_layer: int) -> int:
    """Return the ticks that a recurrent net needs per sample: one per layer up to the outputs."""
    return 3 if n_layer else 2


def _sizes(n_inputs: int, n_hidden: int, n_outputs: int, name: str = "n_hidden") -> tuple[int, int, int]:
    outer = whole_number("n_inputs", n_inputs, 1), whole_number("n_outputs", n_outputs, 1)
    return outer[0], whole_number(name, n_hidden, 0), outer[1]


def _bias(bias: bool) -> bool:
    return switch("bias", bias)


def _neurons(*counts: int) -> list[IntArray]:
    """Return the numbers of inputs, bias and further groups of neurons, one group after the other."""
    n = sum(counts)
    check_fits(n * 64.0, f"a graph of {n:,} neurons, without its edges,", "take fewer neurons")
    return np.split(np.arange(n), np.cumsum(counts)[:-1])


def _fed(features: IntArray, one: IntArray, hidden: IntArray, outputs: IntArray) -> list[Ends]:
    """Return the edges from features and bias to hidden neurons and outputs."""
    return [(np.concatenate([features, one]), ends) for ends in (hidden, outputs)]


def _stages(sources: IntArray, ends: IntArray, per_stage: int) -> Iterable[Ends]:
    """Return the edges to the neurons of each stage from those of all earlier stages."""
    return [(sources[:k], ends[k : k + per_stage]) for k in range(per_stage, len(ends), per_stage)]


def _chain(features: IntArray, line: IntArray, stay: int) -> tuple[IntArray, Ends]:
    """Return the taps of chains that delay each feature, with `stay` neurons per step, and the edges of the chains."""
    chains = line.reshape(len(features), -1)
    before = np.concatenate([features[:, None], chains], axis=1)[:, :-1]
    return chains[:, stay - 1 :: stay].ravel(), (before.ravel(), line)


def _draw(allowed: int, density: float, random_state: Seed, always: bool = False) -> IntArray:
    """Draw the edges to keep; without `always`, no random numbers are drawn if all are kept."""
    share = real_number("density", density, "a number between 0 and 1", lambda value: 0.0 <= value <= 1.0)
    kept = round(share * allowed)
    _check_edges(kept)
    if kept == allowed and not always:
        return np.arange(allowed, dtype=np.int64)
    chosen = as_generator(random_state).choice(allowed, size=kept, replace=False, shuffle=False)
    return chosen.astype(np.int64)


def _check_edges(count: int) -> None:
    """Raise an error before making the edges of a graph that would not fit in memory, including copies for sorting."""
    check_fits(count * 16.0 * 6, f"a graph of {count:,} edges", "take fewer neurons or a lower density")


def _edges(blocks: Sequence[Ends], links: Sequence[Ends] = ()) -> IntArray:
    """Return the edges `(n_edges, 2)`: from all sources to all ends in each block, and pair by pair in links."""
    count = sum(len(a) * len(b) for a, b in blocks) + sum(len(a) for a, _ in links)
    _check_edges(count)
    edges, done = np.empty((count, 2), np.int64), 0
    for a, b in [*((a, b[:, None]) for a, b in blocks), *links]:
        shape = np.broadcast_shapes(a.shape, b.shape)
        part = edges[done : done + math.prod(shape)].reshape(*shape, 2)
        part[..., 0], part[..., 1] = a, b
        done += math.prod(shape)
    return edges

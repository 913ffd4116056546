"""Families of graphs, as plain `(E, 2)` arrays of (source, destination) in iho order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from meshnn.arguments import as_generator, real_number
from meshnn.arrays import IntArray
from meshnn.memory import check_fits

__all__ = [
    "cascade_edges",
    "check_edges",
    "column_edges",
    "delay_line_edges",
    "layered_edges",
    "mesh_edges",
    "reservoir_edges",
]

Seed = int | np.random.Generator | np.random.SeedSequence | None


def check_edges(count: int, advice: str) -> None:
    """Refuse a graph that would not fit in memory before its edges are drawn; sorting them takes some copies."""
    check_fits(count * 16.0 * 6, f"a graph of {count:,} edges", advice)


def _pairs(sources: IntArray, targets: IntArray) -> IntArray:
    """Every source to every target."""
    return np.stack(np.meshgrid(sources, targets, indexing="ij"), axis=-1).reshape(-1, 2)


def _bias_edges(n_inputs: int, first_free: int, n: int, bias: bool) -> list[IntArray]:
    return [_pairs(np.array([n_inputs]), np.arange(first_free, n))] if bias else []


def mesh_edges(
    n_inputs: int,
    n_hidden: int,
    n_outputs: int,
    *,
    density: float,
    self_loops: bool,
    feedback: bool,
    bias: bool,
    random_state: Seed,
) -> IntArray:
    """The paper's figure: inputs, bias and hidden to hidden and outputs; outputs to hidden when `feedback`.

    The allowed edges are numbered, never listed, so a sparse mesh of a million neurons is drawn in the time of its
    edges. Bias edges are always kept and do not count towards the density.
    """
    density = real_number("density", density, "a number between 0 and 1", lambda d: 0.0 <= d <= 1.0)
    first_hidden = n_inputs + bias
    first_output = first_hidden + n_hidden
    n = first_output + n_outputs
    # Sources of a hidden neuron: features, hidden (but itself unless self_loops), outputs if feedback.
    per_hidden = n_inputs + n_hidden - (not self_loops) + (n_outputs if feedback else 0)
    per_output = n_inputs + n_hidden
    into_hidden = n_hidden * per_hidden
    allowed = into_hidden + n_outputs * per_output
    kept = round(density * allowed)
    check_edges(kept, "take fewer neurons or a lower density")
    if kept == allowed:
        index = np.arange(allowed, dtype=np.int64)
    else:
        index = as_generator(random_state).choice(allowed, size=kept, replace=False, shuffle=False)
        index = index.astype(np.int64)

    hidden = index < into_hidden
    dst = np.empty(kept, dtype=np.int64)
    src = np.empty(kept, dtype=np.int64)
    if per_hidden > 0:
        row, column = np.divmod(index[hidden], per_hidden)
        column += (not self_loops) & (column >= n_inputs) & (column - n_inputs >= row)  # step over the neuron itself
        dst[hidden] = first_hidden + row
        src[hidden] = np.where(column < n_inputs, column, column + bias)
    row, column = np.divmod(index[~hidden] - into_hidden, max(per_output, 1))
    dst[~hidden] = first_output + row
    src[~hidden] = np.where(column < n_inputs, column, column + bias)
    return np.concatenate([np.stack([src, dst], axis=1), *_bias_edges(n_inputs, first_hidden, n, bias)])


def layered_edges(sizes: Sequence[int], bias: bool) -> IntArray:
    """Each layer to the next, the bias to every neuron behind the inputs."""
    check_edges(sum(a * b for a, b in pairwise(sizes)), "take smaller layers, or a sparse Topology.mesh")
    first = [0, *np.cumsum([sizes[0] + bias, *sizes[1:]]).tolist()]
    blocks = [
        _pairs(first[k] + np.arange(sizes[k]), first[k + 1] + np.arange(sizes[k + 1])) for k in range(len(sizes) - 1)
    ]
    return np.concatenate([*blocks, *_bias_edges(sizes[0], first[1], first[-1], bias)])


def cascade_edges(n_inputs: int, n_hidden: int, n_outputs: int, bias: bool) -> IntArray:
    """Each hidden neuron reads all inputs and all hidden neurons before it; outputs read all of them."""
    count = (n_hidden + n_outputs) * (n_inputs + bias) + n_hidden * (n_hidden - 1) // 2 + n_hidden * n_outputs
    check_edges(count, "take fewer neurons")
    first_hidden = n_inputs + bias
    first_output = first_hidden + n_hidden
    n = first_output + n_outputs
    features, hidden = np.arange(n_inputs), np.arange(first_hidden, first_output)
    later, earlier = np.tril_indices(n_hidden, -1)
    return np.concatenate(
        [
            _pairs(features, np.arange(first_hidden, n)),
            np.stack([first_hidden + earlier, first_hidden + later], axis=1),
            _pairs(hidden, np.arange(first_output, n)),
            *_bias_edges(n_inputs, first_hidden, n, bias),
        ]
    )


def column_edges(n_inputs: int, n_columns: int, n_outputs: int, *, per_stage: int, leaky: bool, bias: bool) -> IntArray:
    """Columns: neurons that remember by a self-loop and by nothing else.

    A column reads the inputs and the columns of earlier stages, `per_stage` columns a stage; outputs read inputs and
    columns. A leaky column is two neurons: the first reads, the second, which has the self-loop, reads the first and is
    what others read. Hidden neurons are the first ones of all columns, then the second ones.
    """
    before = np.arange(n_columns) // per_stage * per_stage  # columns of earlier stages
    links = int(before.sum())
    count = n_columns * (n_inputs + bias + 1 + leaky) + links + n_outputs * (n_inputs + bias + n_columns)
    check_edges(count, "take fewer columns, or more a stage")
    first_hidden = n_inputs + bias
    reads = np.arange(first_hidden, first_hidden + n_columns)
    keeps = reads + n_columns if leaky else reads
    first_output = first_hidden + n_columns * (1 + leaky)
    outputs = np.arange(first_output, first_output + n_outputs)
    features, ends = np.arange(n_inputs), np.concatenate([reads, outputs])
    earlier = np.arange(links) - np.repeat(np.cumsum(before) - before, before)
    return np.concatenate(
        [
            _pairs(features, ends),
            np.stack([keeps[earlier], np.repeat(reads, before)], axis=1),
            np.stack([keeps, keeps], axis=1),
            *([np.stack([reads, keeps], axis=1)] if leaky else []),
            _pairs(keeps, outputs),
            *([_pairs(np.array([n_inputs]), ends)] if bias else []),
        ]
    )


def delay_line_edges(
    n_inputs: int, length: int, n_hidden: int, n_outputs: int, *, ticks_per_sample: int, bias: bool
) -> IntArray:
    """Chains of neurons that hand each input on, and a net with one hidden layer that reads inputs and taps.

    Hidden neurons are the chains, one input after the other, then those of the layer. A sample stays for
    `ticks_per_sample` ticks, so a chain has so many neurons for each step of delay; the last one of a step is a tap.
    """
    chain, taps = length * ticks_per_sample, n_inputs * length
    readers = n_hidden + n_outputs
    check_edges(
        n_inputs * chain + readers * (n_inputs + taps + bias) + n_hidden * n_outputs,
        "take a shorter line or fewer neurons",
    )
    first_hidden = n_inputs + bias
    line = first_hidden + np.arange(n_inputs * chain).reshape(n_inputs, chain)
    first_layer = first_hidden + n_inputs * chain
    layer = np.arange(first_layer, first_layer + n_hidden)
    ends = np.arange(first_layer, first_layer + readers)
    features = np.arange(n_inputs)
    hands = np.concatenate([features[:, None], line[:, :-1]], axis=1)  # who hands on to each neuron of a line
    seen = np.concatenate([features, line[:, ticks_per_sample - 1 :: ticks_per_sample].ravel()])
    return np.concatenate(
        [
            np.stack([hands.ravel(), line.ravel()], axis=1),
            _pairs(seen, ends),
            _pairs(layer, ends[n_hidden:]),
            *([_pairs(np.array([n_inputs]), ends)] if bias else []),
        ]
    )


def recurrent_edges(n_inputs: int, n_state: int, n_outputs: int, *, n_layer: int, lags: int, bias: bool) -> IntArray:
    """A state that goes on once a sample, though a sample stays for several ticks, and what reads it.

    With K ticks a sample, chains of K - 1 neurons behind the state hand it on: what it reads of itself is what it was
    one sample ago. Chains of K for each lag of an input do the same. Hidden neurons are the chains of the inputs, those
    of the state, tick by tick, the state, the layer.
    """
    stay = recurrent_ticks(n_layer)
    chain, taps = n_inputs * lags * stay, n_inputs * (lags + 1)
    ends_count = n_layer + n_outputs
    check_edges(
        chain + n_state * (taps + bias + n_state + stay - 1) + n_layer * (n_inputs + n_state + n_outputs)
        + bias * ends_count + n_state * n_outputs,
        "take fewer neurons or fewer lags",
    )  # fmt: skip
    first = n_inputs + bias
    line = first + np.arange(chain).reshape(n_inputs, lags * stay)
    held = first + chain + np.arange((stay - 1) * n_state).reshape(stay - 1, n_state)
    state = first + chain + held.size + np.arange(n_state)
    layer = state[-1] + 1 + np.arange(n_layer)
    outputs = state[-1] + 1 + n_layer + np.arange(n_outputs)
    features = np.arange(n_inputs)
    hands = np.concatenate([features[:, None], line[:, :-1]], axis=1) if lags else line
    seen = np.concatenate([features, line[:, stay - 1 :: stay].ravel()])
    return np.concatenate(
        [
            np.stack([hands.ravel(), line.ravel()], axis=1),
            np.stack([np.concatenate([state, held[:-1].ravel()]), held.ravel()], axis=1),
            _pairs(seen, state),
            _pairs(held[-1], state),
            *([_pairs(features, layer), _pairs(state, layer)] if n_layer else []),
            _pairs(layer if n_layer else state, outputs),
            *([_pairs(np.array([n_inputs]), np.concatenate([state, layer, outputs]))] if bias else []),
        ]
    )


def recurrent_ticks(n_layer: int) -> int:
    """Ticks that a sample stays in front of a recurrent net, so that outputs have seen it: one for each layer."""
    return 3 if n_layer else 2


def reservoir_edges(
    n_inputs: int, n_neurons: int, n_outputs: int, *, density: float, leaky: bool, bias: bool, random_state: Seed
) -> IntArray:
    """Neurons that read the inputs and, at random, each other; outputs read inputs and neurons.

    If `leaky`, each is two: the first reads, the second, with a self-loop, reads the first and is what others read.
    Hidden neurons are all first ones, then all second ones.
    """
    density = real_number("density", density, "a number between 0 and 1", lambda d: 0.0 <= d <= 1.0)
    pairs = n_neurons * n_neurons
    kept = round(density * pairs)
    check_edges(kept + n_neurons * (n_inputs + n_outputs + 3), "take fewer neurons or a lower density")
    index = as_generator(random_state).choice(pairs, size=kept, replace=False, shuffle=False).astype(np.int64)
    first_hidden = n_inputs + bias
    reads = np.arange(first_hidden, first_hidden + n_neurons)
    keeps = reads + n_neurons if leaky else reads
    first_output = first_hidden + n_neurons * (1 + leaky)
    outputs = np.arange(first_output, first_output + n_outputs)
    ends = np.concatenate([reads, outputs])
    return np.concatenate(
        [
            _pairs(np.arange(n_inputs), ends),
            np.stack([keeps[index // n_neurons], reads[index % n_neurons]], axis=1),
            *([np.stack([reads, keeps], axis=1), np.stack([keeps, keeps], axis=1)] if leaky else []),
            _pairs(keeps, outputs),
            *([_pairs(np.array([n_inputs]), ends)] if bias else []),
        ]
    )

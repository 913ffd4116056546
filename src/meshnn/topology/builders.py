"""Families of graphs, as plain `(E, 2)` arrays of (source, destination) in iho order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from meshnn.arguments import as_generator, real_number
from meshnn.arrays import IntArray
from meshnn.memory import check_fits

__all__ = ["cascade_edges", "check_edges", "layered_edges", "mesh_edges"]

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

"""Random pruning of edges, block by block, before training, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import SHARE, as_generator, real_number
from meshnn.errors import TopologyError
from meshnn.topology.builders import Seed
from meshnn.topology.topology import Topology

__all__ = ["blocks_of", "prune"]


def blocks_of(topology: Topology) -> NDArray[np.str_]:
    """Return the block of every edge: I is an input, B the bias, H hidden, O an output; e.g. "I->H".

    >>> from meshnn import Topology
    >>> blocks_of(Topology.layered([1, 1])).tolist()
    ['I->O', 'B->O']
    """
    t = topology
    borders = [t.n_inputs, t.n_clamped, t.n_neurons - t.n_outputs]
    letters = np.array(list("IBHO"))
    source, target = (letters[np.digitize(ends, borders)] for ends in (t.src, t.dst))
    return np.char.add(np.char.add(source, "->"), target)


def prune(
    topology: Topology, fraction: float, blocks: Mapping[str, float] | None = None, random_state: Seed = None
) -> Topology:
    """See `Topology.prune`."""
    share = real_number("fraction", fraction, *SHARE)
    given = dict(blocks or {})
    names = blocks_of(topology)
    known = [f"{a}->{b}" for a in "IBHO" for b in "IBHO"]
    for name, value in given.items():
        if name not in known:
            raise TopologyError(f"unknown block {name!r}, expected e.g. 'I->H' with letters from I, B (bias), H, O")
        real_number(f"blocks[{name!r}]", value, *SHARE)
    rng = as_generator(random_state)
    keep = np.ones(topology.n_edges, np.bool_)
    # one draw for all other blocks, so that the number of pruned edges is exact
    together = ~np.isin(names, list(given)) & (np.char.find(names, "B->") != 0)
    for chosen, part in [(together, share), *((names == name, float(value)) for name, value in given.items())]:
        at = np.flatnonzero(chosen)
        keep[rng.choice(at, size=round(part * len(at)), replace=False)] = False
    pairs = np.stack([topology.src, topology.dst], axis=1)[keep]
    return Topology(topology.n_inputs, topology.n_hidden, topology.n_outputs, pairs, bias=topology.bias)

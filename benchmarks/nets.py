"""The nets that are measured. A size 33 of inputs counts the bias, as in the paper: 32 features and the bias."""

import numpy as np

from meshnn import Topology

#: name, features, hidden, outputs, density, batch; all at 2 ticks
SIX = [
    ("3-5-2, 700", 2, 5, 2, 1.0, 700),
    ("3-15-2, 700", 2, 15, 2, 1.0, 700),
    ("5-10-3, 105", 4, 10, 3, 1.0, 105),
    ("33-50-10 at 20%, 64", 32, 50, 10, 0.2, 64),
    ("33-50-10 at 20%, 512", 32, 50, 10, 0.2, 512),
    ("33-500-10 at 2%, 512", 32, 500, 10, 0.02, 512),
]


def mesh_topology(features, hidden, outputs, density):
    """The mesh of the paper's figure with feedback, random edges by seed 0."""
    return Topology.mesh(features, hidden, outputs, density=density, random_state=0)


def data(features, outputs, batch, seed=0):
    """Standard normal samples and random labels."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((batch, features)).astype(np.float32), rng.integers(0, outputs, batch)


def initial_weights(topology):
    """One draw for all contestants."""
    return (np.random.default_rng(1).standard_normal(topology.n_edges) * 0.3).astype(np.float32)


def large_topology(extra=0, seed=0):
    """1000 inputs, 99,000 hidden with 9 random inputs each and one edge to one of 10 outputs; `extra` among hidden."""
    rng = np.random.default_rng(seed)
    inputs, hidden, outputs = 1000, 99_000, 10
    into = np.repeat(np.arange(inputs, inputs + hidden), 9)
    # nine different inputs each: a random start and random steps, modulo the inputs
    steps = rng.integers(1, inputs // 9, (hidden, 9))
    sources = (np.cumsum(steps, axis=1) + rng.integers(0, inputs, (hidden, 1))).ravel() % inputs
    edges = [np.stack([sources, into], axis=1)]
    edges.append(
        np.stack(
            [np.arange(inputs, inputs + hidden), inputs + hidden + rng.integers(0, outputs, hidden)],
            axis=1,
        )
    )
    if extra:
        pairs = np.unique(rng.integers(0, hidden * hidden, int(extra * 1.01)))
        pairs = rng.permutation(pairs)[:extra]
        edges.append(inputs + np.stack(np.divmod(pairs, hidden), axis=1))
    return Topology(inputs, hidden, outputs, np.concatenate(edges), bias=False)

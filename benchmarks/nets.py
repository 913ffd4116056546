"""The benchmarked nets. A size of 33 inputs counts the bias, as in the paper: 32 features and the bias."""

from typing import NamedTuple

import numpy as np

from meshnn import Topology


class Net(NamedTuple):
    """A row of the table of training steps."""

    name: str
    features: int
    hidden: int
    outputs: int
    density: float
    batch: int
    few: float  # bar: times faster than the fastest JAX at 2 and 3 ticks
    more: float | None  # bar at 4 and 8 ticks; None: not measured
    dense: bool = False

    @property
    def topology(self):
        """Return the graph."""
        return mesh_topology(self.features, self.hidden, self.outputs, self.density)


NETS = [
    Net("3-5-2, 700", 2, 5, 2, 1.0, 700, 4.0, 1.5),
    Net("3-15-2, 700", 2, 15, 2, 1.0, 700, 4.0, 1.5),
    Net("5-10-3, 105", 4, 10, 3, 1.0, 105, 4.0, 1.5),
    Net("33-50-10 at 20%, 64", 32, 50, 10, 0.2, 64, 4.0, 1.5),
    Net("33-50-10 at 20%, 512", 32, 50, 10, 0.2, 512, 4.0, 1.5),
    Net("33-50-10 dense, 64", 32, 50, 10, 1.0, 64, 1.5, 1.5, True),
    Net("33-50-10 dense, 512", 32, 50, 10, 1.0, 512, 1.5, 1.5, True),
    Net("65-200-10 dense, 256", 64, 200, 10, 1.0, 256, 1.0, 1.0, True),
    Net("33-500-10 at 2%, 512", 32, 500, 10, 0.02, 512, 25.0, None),
]


def mesh_topology(features, hidden, outputs, density):
    """Return the mesh of the paper's figure with feedback, with random edges of seed 0."""
    return Topology.mesh(features, hidden, outputs, density=density, random_state=0)


def data(features, outputs, batch, seed=0):
    """Return standard normal samples and random labels."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((batch, features)).astype(np.float32), rng.integers(0, outputs, batch)


def initial_weights(topology):
    """Return the initial weights of all contestants."""
    return (np.random.default_rng(1).standard_normal(topology.n_edges) * 0.3).astype(np.float32)


def large_topology(extra=0, seed=0):
    """Return 1000 inputs, 99,000 hidden neurons with 9 inputs and one output; `extra` edges between hidden."""
    rng = np.random.default_rng(seed)
    inputs, hidden, outputs = 1000, 99_000, 10
    into = np.repeat(np.arange(inputs, inputs + hidden), 9)
    # nine different inputs per neuron: a random start and random steps, modulo the number of inputs
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

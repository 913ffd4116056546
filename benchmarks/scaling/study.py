"""The study: sweeps over one quantity, and their contestants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.topology import Topology

__all__ = ["CONTESTANTS", "NEEDS", "OURS", "SWEEPS", "Graph", "Point", "Sweep", "points_of", "sweeps"]

#: The methods of meshnn.
OURS = ("factored", "influence", "adjoint")
#: All contestants and their labels.
CONTESTANTS = {
    "factored": "meshnn factored (forward-only)",
    "influence": "meshnn influence (forward-only)",
    "adjoint": "meshnn adjoint (backprop)",
    "tensor": "the paper's tensor (forward-only)",
    "torch dense": "PyTorch, dense",
    "torch sparse": "PyTorch, sparse",
    "jax dense": "JAX, dense",
    "jax edges": "JAX, edge list",
    "sklearn": "MLPClassifier",
}
#: The module of each contestant, and the command to install it.
NEEDS = {
    "torch dense": ("torch", "pip install 'meshnn[torch]'"),
    "torch sparse": ("torch", "pip install 'meshnn[torch]'"),
    "jax dense": ("jax", "pip install 'meshnn[bench]'"),
    "jax edges": ("jax", "pip install 'meshnn[bench]'"),
    "sklearn": ("sklearn", "pip install scikit-learn"),
}


def random_graph(inputs: int, hidden: int, outputs: int, fan_in: int, inner: int = 0, seed: int = 0) -> Topology:
    """Return a graph: each hidden neuron reads `fan_in` inputs and `inner` hidden ones, at random, and feeds an output.

    >>> random_graph(20, 100, 3, 5, inner=2).n_edges
    800
    """
    rng = np.random.default_rng(seed)
    into = inputs + np.arange(hidden)
    edges = [np.stack([_different(rng, inputs, hidden, fan_in).ravel(), np.repeat(into, fan_in)], axis=1)]
    edges.append(np.stack([into, inputs + hidden + rng.permutation(hidden) % outputs], axis=1))
    if inner:
        sources = inputs + _different(rng, hidden, hidden, inner).ravel()
        edges.append(np.stack([sources, np.repeat(into, inner)], axis=1))
    return Topology(inputs, hidden, outputs, np.concatenate(edges), bias=False)


def _different(rng: np.random.Generator, of: int, rows: int, count: int) -> NDArray[np.int64]:
    """Return `count` different numbers below `of` in every row: a random start and random steps, modulo `of`."""
    steps = rng.integers(1, max(of // count, 1) + 1, (rows, count))
    start = rng.integers(0, of, (rows, 1))
    found: NDArray[np.int64] = (np.cumsum(steps, axis=1) + start) % of
    return found


@dataclass(frozen=True)
class Graph:
    """Description of a graph: `random` (fan-in from inputs and from hidden), `mesh` (density) or `layered`."""

    kind: str
    inputs: int
    hidden: int
    outputs: int
    density: float = 1.0
    fan_in: int = 0
    inner: int = 0

    def build(self) -> Topology:
        """Build the graph, which is the same in every call."""
        if self.kind == "random":
            return random_graph(self.inputs, self.hidden, self.outputs, self.fan_in, self.inner)
        if self.kind == "layered":
            return Topology.layered([self.inputs, self.hidden, self.outputs])
        return Topology.mesh(self.inputs, self.hidden, self.outputs, density=self.density, random_state=0)


@dataclass(frozen=True)
class Point:
    """One contestant on one net, which runs in one process."""

    sweep: str
    x: float
    graph: Graph
    ticks: int
    batch: int
    contestant: str

    @property
    def key(self) -> str:
        """Return a readable and unique name of the file."""
        stamp = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.sweep}-{self.x:g}-{self.contestant.replace(' ', '-')}-{stamp}"

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Point:
        """Return a point from the result of `asdict`."""
        return cls(**plain | {"graph": Graph(**plain["graph"])})


@dataclass(frozen=True)
class Sweep:
    """Nets that differ in one quantity."""

    name: str
    title: str
    axis: str
    nets: tuple[tuple[float, Graph, int, int], ...]  # value, graph, ticks, batch
    contestants: tuple[str, ...]

    def points(self) -> Iterator[Point]:
        """Yield points by contestant, from small to large, so that larger ones can be skipped after a failure."""
        for contestant in self.contestants:
            for x, graph, ticks, batch in self.nets:
                yield Point(self.name, x, graph, ticks, batch, contestant)


_ALL = ("factored", "influence", "adjoint", "tensor", "torch dense", "torch sparse", "jax dense", "jax edges")
_FEW = ("factored", "adjoint", "torch sparse", "jax edges")


def _neurons(hidden: int) -> Graph:
    return Graph("random", max(4, min(1000, hidden // 10)), hidden, 5, fan_in=4, inner=4)


def sweeps(quick: bool = False) -> tuple[Sweep, ...]:
    """Return the sweeps of the study, or of a quick run."""
    hidden = (
        (10, 1000, 30_000) if quick else (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    )
    dense = (10, 20, 50, 100, 200, 500, 1000)
    fans = (1, 4, 16, 64, 256)
    shares = (0.01, 0.03, 0.1, 0.3, 1.0)
    ticks = (2, 4, 16) if quick else (1, 2, 3, 4, 6, 8, 16, 32, 64)
    outputs = (2, 10, 100, 500)
    batches = (1, 8, 64, 512, 4096, 32768)
    layers = (64, 512) if quick else (16, 64, 128, 512, 2048)
    found = [
        Sweep(
            "neurons", "Neurons: each reads 4 inputs and 4 hidden neurons, 3 ticks, batch 64", "hidden neurons",
            tuple((h, _neurons(h), 3, 64) for h in hidden), _FEW if quick else _ALL,
        ),
        Sweep(
            "ticks", "Ticks: 10-50-5, a fifth of the edges, batch 64", "ticks",
            tuple((k, Graph("mesh", 10, 50, 5, 0.2), k, 64) for k in ticks),
            ("factored", "adjoint", "jax dense") if quick else _ALL,
        ),
        Sweep(
            "layered", "Layers: 784-h-10, 2 ticks, batch 64", "hidden neurons",
            tuple((h, Graph("layered", 784, h, 10), 2, 64) for h in layers),
            ("factored", "torch dense", "sklearn") if quick
            else ("factored", "adjoint", "torch dense", "torch sparse", "jax dense", "sklearn"),
        ),
    ]  # fmt: skip
    if not quick:
        found[1:1] = [
            Sweep(
                "dense", "Dense meshes: 64-h-10, 3 ticks, batch 64", "hidden neurons",
                tuple((h, Graph("mesh", 64, h, 10), 3, 64) for h in dense), _ALL,
            ),
            Sweep(
                "edges", "Edges: 2000 hidden neurons of growing fan-in, 3 ticks, batch 64", "edges",
                tuple((2000 * (2 * f + 1), Graph("random", 1000, 2000, 10, fan_in=f, inner=f), 3, 64) for f in fans),
                tuple(c for c in _ALL if c != "tensor"),
            ),
            Sweep(
                "density", "Density: 64-200-10, 3 ticks, batch 64", "share of edges",
                tuple((d, Graph("mesh", 64, 200, 10, d), 3, 64) for d in shares),
                tuple(c for c in _ALL if c != "tensor"),
            ),
            Sweep(
                "outputs", "Outputs: 20-100-o, a fifth of the edges, 3 ticks, batch 64", "outputs",
                tuple((o, Graph("mesh", 20, 100, o, 0.2), 3, 64) for o in outputs),
                tuple(c for c in _ALL if c != "tensor"),
            ),
            Sweep(
                "batch", "Batch: 32-50-10, a fifth of the edges, 3 ticks", "samples in a batch",
                tuple((b, Graph("mesh", 32, 50, 10, 0.2), 3, b) for b in batches),
                tuple(c for c in _ALL if c != "tensor"),
            ),
        ]  # fmt: skip
    return tuple(found)


#: Sweeps of the whole study by name.
SWEEPS = {sweep.name: sweep for sweep in sweeps()}


def points_of(chosen: tuple[Sweep, ...]) -> list[Point]:
    """Return all points of some sweeps."""
    return [point for sweep in chosen for point in sweep.points()]

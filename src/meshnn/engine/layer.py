"""`Layer`: a network as a function of inputs and weights, with its vector-Jacobian product.

The layers for other libraries (PyTorch, JAX) use it and pass addresses of their own memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from meshnn.arrays import IntArray
from meshnn.engine.engine import Engine
from meshnn.engine.engines import Engines
from meshnn.engine.threads import threads_for
from meshnn.parameters import Ties
from meshnn.plan import ROW_BYTES
from meshnn.topology import Topology

__all__ = ["Layer"]


class Layer:
    """A network with a fixed number of ticks in one dtype.

    The methods take addresses of C-contiguous arrays of the dtype: `values` (n_values,), `X` (size, n_inputs), `Y` and
    `G` (size, n_outputs); the address 0 leaves an output array out. Arguments are not checked. Numbers that are not
    finite propagate, as in other libraries.
    """

    def __init__(self, engines: Engines, ticks: int) -> None:
        self._engines, self.ticks, self.dtype = engines, ticks, engines.dtype
        self.n_values = engines.n_numbers
        self._row = ROW_BYTES // self.dtype.itemsize

    @classmethod
    def of(cls, topology: Topology, ticks: int, codes: IntArray, ties: Ties, dtype: np.dtype[Any]) -> Layer:
        """Return the layer of a graph with activations and ties."""
        return cls(Engines(topology, codes, dtype, None if ties.plain else ties.number, ties.n_numbers), ticks)

    @cached_property
    def _forward(self) -> Engine:
        return self._engines.outputs(self.ticks)

    @cached_property
    def _backward(self) -> Engine:
        return self._engines.layer(self.ticks)

    def keep(self, values: int, X: int, Y: int, size: int, n_jobs: int | None = None) -> Any:
        """Write the outputs to Y; for a batch that fits in one row of samples, also return the states for `back`."""
        if size > self._row or size == 0:
            return self.forward(values, X, Y, size, n_jobs)
        engine = self._backward
        return engine.core.layer(1, size, 1, engine.work, values, X, Y, 1)

    def forward(self, values: int, X: int, Y: int, size: int, n_jobs: int | None = None) -> None:
        """Write the outputs to Y."""
        if size:
            engine = self._forward
            threads = threads_for(size * engine.work, n_jobs)
            engine.core.layer(1, size, threads, engine.work, values, X, Y, 0)

    def back(
        self, values: int, X: int, G: int, grad: int, dX: int, size: int, kept: Any = None,
        n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        """Write dE/dvalues `(n_values,)` to `grad` and dE/dX to `dX`, unless the address is 0.

        With the states that `keep` returned, X is not read.
        """
        engine = self._backward
        threads = threads_for(size * engine.work, n_jobs)
        engine.core.vjp(1, size, threads, engine.work, values, X, 1, G, grad, dX, kept)

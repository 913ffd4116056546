"""A net in plain PyTorch operations, for tensors on other devices and derivatives of any order."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from meshnn.codes import FORMULAS
from meshnn.topology import Topology

__all__ = ["PureNet"]

_I64 = NDArray[np.int64]


class PureNet:
    """The outputs of a net as a function of its inputs and values, in plain PyTorch operations.

    `number` is the index of the value that each edge takes its weight from, `codes` are the activations of all neurons.
    """

    def __init__(self, topology: Topology, number: _I64, codes: _I64, ticks: int) -> None:
        self.topology, self.ticks, self._formulas = topology, ticks, tuple(FORMULAS.values())
        first = topology.n_clamped
        kept = topology.dst >= first  # edges into inputs have no effect
        ends = (topology.src, topology.dst - first, number)
        self._edges = tuple(torch.as_tensor(a[kept].astype(np.int64)) for a in ends)
        kinds = [(int(code), np.flatnonzero(codes[first:] == code)) for code in np.unique(codes[first:])]
        self._kinds = [(code, torch.as_tensor(neurons)) for code, neurons in kinds]
        self._order = torch.as_tensor(np.argsort(np.concatenate([neurons for _, neurons in kinds])))

    def __call__(self, x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return outputs `(..., n_outputs)` of x `(..., n_inputs)`; in a stack of nets, its axes come first in both."""
        src, dst, number = (a.to(x.device) for a in self._edges)
        weights, lead, t = values[..., number], x.shape[:-1], self.topology
        if values.ndim > 1:
            weights = weights.reshape(*values.shape[:-1], *[1] * (x.ndim - values.ndim), len(number))
        clamped = [x, *([x.new_ones((*lead, 1))] if t.bias else [])]
        n_free = t.n_hidden + t.n_outputs
        free = x.new_zeros((*lead, n_free))
        for _ in range(self.ticks):
            terms = torch.cat([*clamped, free], -1)[..., src] * weights
            free = self._activated(x.new_zeros((*lead, n_free)).index_add(-1, dst, terms))
        return free[..., t.n_hidden :]

    def vjp(self, g: torch.Tensor, x: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return dE/dx and dE/dvalues from g = dE/dy, for each net of a stack."""
        axes = values.ndim - 1
        if axes:
            stack = np.broadcast_shapes(values.shape[:-1], x.shape[:axes], g.shape[:axes])
            g, x, values = (t.expand(*stack, *t.shape[axes:]) for t in (g, x, values))
        found: tuple[torch.Tensor, torch.Tensor] = torch.func.vjp(self, x, values)[1](g)
        return found

    def _activated(self, sums: torch.Tensor) -> torch.Tensor:
        found = [self._formulas[code](torch, sums[..., neurons.to(sums.device)]) for code, neurons in self._kinds]
        return torch.cat(found, -1)[..., self._order.to(sums.device)]

"""A net in plain operations of PyTorch, for tensors that our kernels cannot read: on other devices, or of any order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meshnn.codes import ELU, GAUSS, IDENTITY, LEAKY_RELU, RELU, SIGMOID, SIN, SOFTPLUS, TANH

__all__ = ["ACTIVATIONS", "PureNet"]

I64 = NDArray[np.int64]


def _softplus(t: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(t, torch.zeros((), dtype=t.dtype, device=t.device))  # torch's own is linear from 20 on


def _gauss(t: torch.Tensor) -> torch.Tensor:
    return torch.exp(-t * t)


#: By code.
ACTIVATIONS: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {
    IDENTITY: lambda t: t,
    RELU: torch.relu,
    LEAKY_RELU: partial(torch.nn.functional.leaky_relu, negative_slope=0.01),
    ELU: torch.nn.functional.elu,
    SOFTPLUS: _softplus,
    SIGMOID: torch.sigmoid,
    TANH: torch.tanh,
    SIN: torch.sin,
    GAUSS: _gauss,
}


class PureNet:
    """Outputs from inputs and the numbers that edges take their weights from.

    Parameters
    ----------
    src, dst : int array (n_edges,)
    number : int array (n_edges,)
        Which value each edge takes its weight from.
    codes : int array (n_neurons,)
    n_inputs, n_clamped, n_outputs, ticks : int
    """

    def __init__(
        self, src: Any, dst: Any, number: Any, codes: I64, n_inputs: int, n_clamped: int, n_outputs: int, ticks: int
    ) -> None:
        self.n_inputs, self.n_clamped, self.n_outputs, self.ticks = n_inputs, n_clamped, n_outputs, ticks
        moving = np.asarray(dst) >= n_clamped  # what leads into inputs is never seen
        ends = (src, np.asarray(dst) - n_clamped, number)
        self._edges = tuple(torch.as_tensor(np.asarray(a)[moving].astype(np.int64)) for a in ends)
        free = codes[n_clamped:]
        self.n_free = len(free)
        kinds = [(int(code), np.flatnonzero(free == code)) for code in np.unique(free)]
        self._kinds = [(code, torch.as_tensor(those)) for code, those in kinds]
        order = np.concatenate([those for _, those in kinds])
        self._back = torch.as_tensor(np.argsort(order))

    def __call__(self, x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Outputs `(..., n_outputs)` of x `(..., n_inputs)`."""
        src, into, number = (a.to(x.device) for a in self._edges)
        weights, lead = values[number], x.shape[:-1]
        clamped = [x, *([x.new_ones((*lead, 1))] if self.n_clamped > self.n_inputs else [])]
        free = x.new_zeros((*lead, self.n_free))
        for _ in range(self.ticks):
            sums = x.new_zeros((*lead, self.n_free)).index_add(
                -1, into, torch.cat([*clamped, free], -1)[..., src] * weights
            )
            free = self._activated(sums)
        return free[..., self.n_free - self.n_outputs :]

    def _activated(self, sums: torch.Tensor) -> torch.Tensor:
        if len(self._kinds) == 1:
            return ACTIVATIONS[self._kinds[0][0]](sums)
        found = [ACTIVATIONS[code](sums[..., those.to(sums.device)]) for code, those in self._kinds]
        return torch.cat(found, -1)[..., self._back.to(sums.device)]

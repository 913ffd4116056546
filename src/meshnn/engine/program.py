"""`Program`: a plan with what it needs to run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.plan import Plan

__all__ = ["Buffers", "Program"]

Array = NDArray[Any]
Buffers = dict[str, Array]


@dataclass(eq=False)
class Program:
    """A plan with what it needs to run: a dtype, activation codes and a store of reusable buffers."""

    plan: Plan
    dtype: np.dtype[Any]
    codes: NDArray[np.int64]
    work: float  # predicted multiply-adds a sample, to tell whether threads pay
    _free: list[Buffers] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def borrow(self) -> Buffers:
        """Buffers for one worker; give them back with `give_back`."""
        with self._lock:
            if self._free:
                return self._free.pop()
        return self._allocate()

    def give_back(self, buffers: Buffers) -> None:
        """Keep the buffers for the next call."""
        with self._lock:
            self._free.append(buffers)

    def _allocate(self) -> Buffers:
        from meshnn.kernels._row import aligned, lanes

        plan, L = self.plan, lanes(self.dtype)
        depth = 2 if plan.method in ("forward_pass", "blocks") else plan.ticks + 1
        buffers = {"S": aligned((depth, plan.n, L), self.dtype), "D": aligned((depth, plan.n, L), self.dtype)}
        buffers["S"][:, plan.n_inputs : plan.n_clamped] = 1  # the bias
        buffers["G"] = aligned((plan.n_outputs, L), self.dtype)
        buffers["scratch"] = aligned((2, L), self.dtype)
        if plan.method in ("factored", "adjoint", "blocks"):
            buffers["V"] = aligned((2, plan.n, L), self.dtype)
            buffers["T"] = aligned((2, plan.n if plan.method == "factored" else 1, L), self.dtype)
        if plan.blocks is not None:
            buffers["store"] = aligned((max(plan.blocks.store_rows, 1), L), self.dtype)
        return buffers

"""The paper's algorithm, corrected: the whole tensor dS/dA, one sample at a time. An oracle, never a choice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.kernels.tuples import TensorCourse
from meshnn.methods.method import Draft, Method
from meshnn.methods.prices import Work

__all__ = ["Tensor"]

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]


class Tensor(Method):
    """`method="tensor"`."""

    name = "tensor"
    automatic = False

    def draw(self, draft: Draft) -> None:
        """Nothing is skipped and nothing shared."""
        n = float(draft.schedule.topology.n_neurons)
        draft.work = Work(tensor=draft.ticks * n**4, cells=draft.ticks * n**3, samples=1.0)
        draft.extra_bytes = 8.0 * (2.0 * n**3 + n**2)

    def course(self, draft: Draft, drawn: Any) -> tuple[Any, U32, U32]:
        """Weights in the order of edges, gradients in the order of the edges that get one."""
        t, candidates = draft.schedule.topology, draft.schedule.candidates
        number = np.arange(t.n_edges, dtype=np.uint32) if draft.number is None else draft.number.astype(np.uint32)
        sizes = (draft.ticks, t.n_neurons, t.n_inputs, t.n_clamped, t.n_outputs)
        if candidates is None:
            return TensorCourse(*sizes, t.src, t.dst, t.src, t.dst, number), number, number
        every = np.arange(len(candidates[0]), dtype=np.uint32)
        return TensorCourse(*sizes, t.src, t.dst, *candidates, every), number, every

    def rows(self, draft: Draft, drawn: Any) -> dict[str, tuple[int, ...]]:
        """Its tensors are its own."""
        one = (1, draft.schedule.topology.n_neurons)
        return {"S": one, "D": one}

    def gradient_kernel(self) -> Any:
        """In NumPy."""
        from meshnn.kernels.tensor import tensor_gradient_part

        return tensor_gradient_part

    def timed_kernel(self) -> Any:
        """In NumPy."""
        from meshnn.kernels.tensor import timed_tensor_part

        return timed_tensor_part

    def jacobian_kernel(self) -> Any:
        """In NumPy."""
        from meshnn.kernels.tensor import tensor_jacobian_part

        return tensor_jacobian_part

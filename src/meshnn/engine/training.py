"""Many training steps on one batch inside compiled code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.engine.batch import Slab, Targets
from meshnn.engine.program import Program

__all__ = ["AdamState", "FullBatch"]

Array = NDArray[Any]


@dataclass
class AdamState:
    """What Adam remembers between steps."""

    mean: Array
    square: Array
    done: int = 0

    @classmethod
    def fresh(cls, weights: Array) -> AdamState:
        """Nothing remembered yet."""
        return cls(np.zeros_like(weights), np.zeros_like(weights))


class FullBatch:
    """A batch packed once, to take many training steps on inside compiled code, in one thread."""

    def __init__(self, program: Program, X: Array, targets: Targets) -> None:
        self.program = program
        self.loss_code = targets.loss_code
        self.slab = Slab(X, targets, 0, X.shape[1], program.dtype)
        self.slab.pack(0, self.slab.X.shape[1])

    def adam_steps(
        self,
        weights: Array,
        state: AdamState,
        steps: int,
        rate: float,
        betas: tuple[float, float],
        epsilon: float,
    ) -> NDArray[np.float64]:
        """Take steps in place; the loss before each of them."""
        from meshnn.kernels._jit import announce
        from meshnn.kernels.adam import adam_steps_part

        plan, at = self.program.plan, self.program.borrow()
        assert len(weights) == len(state.mean) == len(state.square) == plan.n_gradient  # kernels trust lengths
        losses = np.empty(steps)
        w = np.empty(len(plan.ops.eid), weights.dtype)
        g = np.empty(plan.gradient_entries, weights.dtype)
        total = np.empty_like(weights)
        with announce(adam_steps_part, self.program.dtype):
            adam_steps_part(
                plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient_ops, plan.gradient, plan.tangents,
                weights, w, self.program.codes, self.slab.X, self.slab.y, self.slab.share, self.loss_code,
                at["S"], at["D"], at["V"], at["T"], at["G"], at["scratch"], g,
                total, state.mean, state.square, state.done, steps, rate, *betas, epsilon, losses,
            )  # fmt: skip
        state.done += steps
        self.program.give_back(at)
        return losses

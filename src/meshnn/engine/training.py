"""First-order training on one set of samples: epochs inside compiled code, or step by step in threads.

Which of the two depends on the work of a batch alone, not on the number of threads, so that any number gives the same
bits: small batches run in one thread without leaving compiled code, large ones are cut into parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.engine.batch import Slab, Targets
from meshnn.engine.program import Program
from meshnn.engine.run import WORTH_A_THREAD, evaluate, gradient
from meshnn.engine.threads import chunks_of

__all__ = ["Optimizer", "Steps"]

Array = NDArray[Any]
#: Methods that the compiled epochs know; the others are driven step by step.
COMPILED = ("factored", "adjoint")


@dataclass
class Optimizer:
    """How weights move along a gradient, and what is remembered between steps."""

    code: int  # kernels.steps.ADAM, MOMENTUM or NESTEROV
    betas: tuple[float, float]  # of Adam; the first one is the momentum otherwise
    epsilon: float
    l1: float
    l2: float
    penalised: Array  # (n_edges,) 1 where l1 and l2 apply, else 0
    first: Array  # (n_edges,)
    second: Array  # (n_edges,)
    done: int = 0  # steps taken

    def forget(self) -> None:
        """As new."""
        self.first[:] = 0
        self.second[:] = 0
        self.done = 0

    def step(self, weights: Array, grad: Array, rate: float) -> float:
        """One step in place; the norm of the gradient, penalty included."""
        from meshnn.kernels.steps import update_part

        norm = update_part(weights, grad, *self._moments(), self.done + 1, rate, *self._constants())
        self.done += 1
        return float(norm)

    def _moments(self) -> tuple[Array, Array, int]:
        return self.first, self.second, self.code

    def _constants(self) -> tuple[Any, ...]:
        return (*self.betas, self.epsilon, self.l1, self.l2, self.penalised)

    def penalty(self, weights: Array) -> float:
        """What l1 and l2 add to the loss."""
        if self.l1 == 0.0 and self.l2 == 0.0:
            return 0.0
        w = (weights * self.penalised).astype(np.float64)  # squares of weights gone astray overflow float32
        return float(self.l1 * np.abs(w).sum() + 0.5 * self.l2 * (w @ w))


class Steps:
    """A training set in batches of one size, to take steps on."""

    def __init__(self, program: Program, X: Array, targets: Targets, size: int, n_threads: int | None) -> None:
        self.program, self.targets, self.n_threads = program, targets, n_threads
        self.n = X.shape[1]
        self.size = min(size, self.n)
        self.batches = -(-self.n // self.size)
        if self.batches > 1:  # else they are packed, and looked at, as a whole
            Slab.check(X, program.dtype)
        self.compiled = program.plan.method in COMPILED and self.size * program.work < WORTH_A_THREAD
        self.X = np.require(X, program.dtype, ["C", "A", "W"]) if self.compiled and self.batches > 1 else X
        if self.compiled:
            self._prepare()

    def rewire(self, program: Program) -> None:
        """Go on with another graph of the same inputs and outputs."""
        self.program = program
        was, self.compiled = (
            self.compiled,
            program.plan.method in COMPILED and self.size * program.work < WORTH_A_THREAD,
        )
        if self.compiled:
            if not was and self.batches > 1:
                self.X = np.require(self.X, program.dtype, ["C", "A", "W"])
            self._prepare()

    def _prepare(self) -> None:
        from meshnn.kernels._row import aligned, lanes

        plan, dtype, targets = self.program.plan, self.program.dtype, self.targets
        self._values = np.require(targets.values[None], dtype, ["C", "A", "W"])
        self._weight = np.require(targets.share[None] * self.n, dtype, ["C", "A", "W"])
        if self.batches == 1:
            slab = Slab(self.X, targets, 0, self.n, dtype)
            slab.pack(0, slab.X.shape[1])
            self._packed = (slab.X, slab.y, slab.share)
            self._samples = np.empty((1, self.n, 1), dtype)  # only its length is looked at
        else:
            rows = [self.X, self._values, self._weight]
            chunks, L = chunks_of(self.size, dtype), lanes(dtype)
            self._samples = self.X
            x, y, share = (aligned((a.shape[0], chunks, a.shape[2], L), dtype) for a in rows)
            self._packed = (x, y, share)
        self._room = (np.empty(len(plan.ops.eid), dtype), np.empty(plan.gradient_entries, dtype))
        self._total = np.empty(plan.n_gradient, dtype)

    def epochs(
        self, weights: Array, optimizer: Optimizer, order: NDArray[np.int64], rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Take a step per rate, in place; per epoch its mean loss, share of hits and last gradient norm.

        With one batch an epoch, the last row has the loss and the hits after all steps.
        `order` is (epochs, samples); with one batch an epoch its second axis is not looked at and may be empty. Stops
        after an epoch whose loss is not finite.
        """
        count = len(rates) // self.batches
        assert len(rates) == count * self.batches  # kernels trust lengths
        assert len(order) == count
        assert self.batches == 1 or order.shape == (count, self.n)
        assert len(weights) == len(optimizer.first) == len(optimizer.second) == self.program.plan.n_gradient
        if not self.compiled:
            return self._step_by_step(weights, optimizer, order, rates)
        from meshnn.kernels._jit import announce
        from meshnn.kernels.steps import epochs_part

        plan, at = self.program.plan, self.program.borrow()
        w, g = self._room
        record = np.zeros((count, 3))
        with announce(epochs_part, self.program.dtype):
            done = epochs_part(
                plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient_ops, plan.gradient, plan.tangents,
                weights, w, self.program.codes, self._samples, self._values, self._weight, order, self.size,
                *self._packed, self.targets.loss_code, at["S"], at["D"], at["V"], at["T"], at["G"], at["scratch"], g,
                self._total, *optimizer._moments(), optimizer.done, rates, *optimizer._constants(), record,
            )  # fmt: skip
        self.program.give_back(at)
        optimizer.done += len(rates)
        return record[: done + 1]

    def _step_by_step(
        self, weights: Array, optimizer: Optimizer, order: NDArray[np.int64], rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        record = np.zeros((len(order), 3))
        for k, samples in enumerate(order):
            for b in range(self.batches):
                X, targets = self._batch(samples, b)
                found = gradient(self.program, weights, X, targets, self.n_threads)
                grad = found.grad.astype(weights.dtype)
                norm = optimizer.step(weights, grad, float(rates[k * self.batches + b]))
                share = X.shape[1] / self.n
                record[k] += (found.loss * share, found.hits * share, 0.0)
                record[k, 2] = norm
            if not np.isfinite(record[k, 0]):
                return record[: k + 1]
        if self.batches == 1:
            record[-1, :2] = evaluate(self.program, weights, self.X, self.targets, self.n_threads)
        return record

    def _batch(self, samples: NDArray[np.int64], b: int) -> tuple[Array, Targets]:
        if self.batches == 1:
            return self.X, self.targets
        chosen = samples[b * self.size : (b + 1) * self.size]
        share = self.targets.share[chosen] * (self.n / len(chosen))
        return self.X[:, chosen], Targets(self.targets.loss_code, self.targets.values[chosen], share)

"""First-order training on one set of samples: epochs inside compiled code, or step by step in threads.

Which of the two depends on the work of a batch alone, not on the number of threads, so that any number gives the same
bits: small batches run in one thread without leaving compiled code, large ones are cut into parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.kernels.tuples import Batch, Ledger, Moments, Net, Pace, Set
from meshnn.losses import Targets
from meshnn.program.batch import Slab
from meshnn.program.program import WORTH_A_THREAD, Program, announced
from meshnn.program.threads import chunks_of

__all__ = ["Optimizer", "Steps"]

Array = NDArray[Any]


@dataclass
class Optimizer:
    """How parameters move along a gradient, and what is remembered between steps."""

    code: int  # codes.ADAM, MOMENTUM or NESTEROV
    betas: tuple[float, float]  # of Adam; the first one is the momentum otherwise
    epsilon: float
    l1: float
    l2: float
    penalised: Array  # (n_parameters,) 1 where l1 and l2 count, else 0
    first: Array  # (n_parameters,)
    second: Array  # (n_parameters,)
    done: int = 0  # steps taken

    def forget(self) -> None:
        """As new."""
        self.first[:] = 0
        self.second[:] = 0
        self.done = 0

    @property
    def moments(self) -> Moments:
        """As kernels take it."""
        numbers = (*self.betas, self.epsilon, self.l1, self.l2)
        return Moments(self.code, self.first, self.second, self.penalised, *map(float, numbers))

    def step(self, parameters: Array, grad: Array, rate: float) -> float:
        """One step in place; the norm of the gradient, penalty included."""
        from meshnn.kernels.steps import update_part

        norm = update_part(parameters, grad, self.moments, self.done + 1, rate)
        self.done += 1
        return float(norm)

    def penalty(self, parameters: Array) -> float:
        """What l1 and l2 add to the loss."""
        if self.l1 == 0.0 and self.l2 == 0.0:
            return 0.0
        w = parameters.astype(np.float64)  # squares of weights gone astray overflow float32
        return float(self.penalised @ (self.l1 * np.abs(w) + 0.5 * self.l2 * w**2))


class Steps:
    """A training set in batches of one size, to take steps on."""

    def __init__(self, program: Program, X: Array, targets: Targets, size: int, n_threads: int | None) -> None:
        self.X, self.targets, self.n_threads = X, targets, n_threads
        self.n = X.shape[1]
        self.size = min(size, self.n)
        self.batches = -(-self.n // self.size)
        Slab.check(X, program.dtype)
        self._batch: Any = None
        self.rewire(program)

    def rewire(self, program: Program) -> None:
        """Go on with another graph of the same inputs and outputs."""
        self.program = program = program.suiting(self.X)
        plan = program.plan
        self.compiled = plan.method.compiled and self.size * program.work < WORTH_A_THREAD
        if self.compiled:
            if self._batch is None:
                self._prepare()
            from meshnn.kernels._kept import Kept

            self._net = Kept(Net(np.empty(len(plan.reads), program.dtype), program.codes))
            self._room = (np.empty(len(plan.gives), program.dtype), np.empty(plan.n_gradient, program.dtype))

    def _prepare(self) -> None:
        """The set and a batch of it as kernels take them."""
        from meshnn.kernels._kept import Kept
        from meshnn.kernels._row import aligned, lanes

        dtype, targets = self.program.dtype, self.targets
        self.X, values, weight = (
            np.require(a, dtype, ["C", "A", "W"]) for a in (self.X, targets.values[None], targets.share[None] * self.n)
        )
        self._set = Set(self.X, values, weight)
        chunks, L = chunks_of(self.size, dtype), lanes(dtype)
        X, y, share = (aligned((a.shape[0], chunks, a.shape[2], L), dtype) for a in self._set)
        self._batch = Kept(Batch(X, self.X, y, share, targets.loss.code, self.size))
        if self.batches == 1:
            from meshnn.kernels.packing import pack_part

            for given, packed, repeat in ((self.X, X, True), (values, y, True), (targets.share[None], share, False)):
                pack_part(np.require(given, dtype, ["C", "A", "W"]), 0, chunks, packed, repeat)

    def epochs(
        self, values: Array, optimizer: Optimizer, order: NDArray[np.int64], rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Take a step per rate, in place; per epoch its mean loss, share of hits and last gradient norm.

        `values` are what the edges carry: the parameters, which move, then what is fixed. With one batch an epoch, the
        last row has the loss and the hits after all steps. `order` is (epochs, samples); with one batch an epoch its
        second axis is not looked at and may be empty. Stops after an epoch whose loss is not finite.
        """
        count, plan = len(rates) // self.batches, self.program.plan
        assert len(rates) == count * self.batches  # kernels trust lengths
        assert len(order) == count
        assert self.batches == 1 or order.shape == (count, self.n)
        assert len(optimizer.first) == len(optimizer.second) == len(optimizer.penalised) <= len(values)
        assert len(values) == plan.n_numbers == plan.n_gradient
        if not self.compiled:
            return self._step_by_step(values, optimizer, order, rates)
        from meshnn.kernels.steps import epochs_part

        worker = self.program.borrow()
        record = np.zeros((count, 3))
        with announced(epochs_part, self.program.dtype):
            done = self.program.call(
                epochs_part, self._net, self._batch, worker.kept, self._set,
                Ledger(values, plan.reads, plan.gives, *self._room), optimizer.moments,
                Pace(order, self.size, optimizer.done, rates), record,
            )  # fmt: skip
        self.program.give_back(worker)
        optimizer.done += len(rates)
        return record[: done + 1]

    def _step_by_step(
        self, values: Array, optimizer: Optimizer, order: NDArray[np.int64], rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        record = np.zeros((len(order), 3))
        parameters = values[: len(optimizer.first)]
        for k, samples in enumerate(order):
            for b in range(self.batches):
                X, targets = self._samples(samples, b)
                found = self.program.gradient(values, X, targets, self.n_threads)
                grad = found.grad[: len(parameters)].astype(values.dtype)
                norm = optimizer.step(parameters, grad, float(rates[k * self.batches + b]))
                share = X.shape[1] / self.n
                record[k] += (found.loss * share, found.hits * share, 0.0)
                record[k, 2] = norm
            if not np.isfinite(record[k, 0]):
                return record[: k + 1]
        if self.batches == 1:
            record[-1, :2] = self.program.evaluate(values, self.X, self.targets, self.n_threads)
        return record

    def _samples(self, order: NDArray[np.int64], b: int) -> tuple[Array, Targets]:
        if self.batches == 1:
            return self.X, self.targets
        chosen = order[b * self.size : (b + 1) * self.size]
        return self.X[:, chosen], self.targets.of(chosen, self.n / len(chosen))

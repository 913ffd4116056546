"""First-order training on one set of samples: epochs inside compiled code, by a team of threads if that pays.

Large batches are cut into parts, into how many depends on their work alone, not on the number of threads, so that any
number gives the same bits. Methods without compiled epochs go step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.kernels.tuples import BLOCK, Batch, Ledger, Moments, Net, Pace, Set, Team, TimedBatch, TimedSet
from meshnn.losses import Targets
from meshnn.program.batch import FILLED, Slab, timed_arrays
from meshnn.program.program import WORTH_A_THREAD, Program, announced
from meshnn.program.threads import cores, halves, team_parts, together

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
        self.program = program = program.suiting(self.X, self.targets)
        plan = program.plan
        self.compiled = plan.method.compiled
        if self.compiled:
            if self._batch is None:
                self._prepare()
            from meshnn.kernels._kept import Kept

            last = self.n - (self.batches - 1) * self.size
            self._parts = np.array([team_parts(size, self._per, program.work) for size in (self.size, last)])
            most = int(self._parts.max())
            self._net = Kept(Net(np.empty(len(plan.reads), program.dtype), program.codes))
            entries, give_runs = np.empty((most, len(plan.gives)), program.dtype), plan.give_runs
            if plan.straight and len(plan.gives):  # nothing to be summed up, and less to be held in a cache
                total, give_runs = entries[0], give_runs[:0]
            else:
                total = np.empty(plan.n_gradient, program.dtype)
                give_runs = give_runs if len(give_runs) else np.array([[0, 0, -1]])
            self._lists = (plan.reads, plan.read_runs, plan.gives, give_runs)
            self._room = (entries, total)
            self._found = (np.empty((most, 2)), np.empty(-(-plan.n_gradient // BLOCK)))

    def _prepare(self) -> None:
        """The set and a batch of it as kernels take them."""
        from meshnn.kernels._kept import Kept
        from meshnn.kernels._row import aligned, lanes

        dtype, targets = self.program.dtype, self.targets
        given = timed_arrays(targets, dtype) if targets.timed else (targets.values[None], targets.share[None])
        self.X, values, weight, *more = (
            np.require(a, dtype, ["C", "A", "W"]) for a in (self.X, given[0], given[1] * self.n, *given[2:])
        )
        self._set: Set | TimedSet = TimedSet(self.X, values, weight, *more) if more else Set(self.X, values, weight)
        L = lanes(dtype)
        self._per = L
        if self.batches > 1 and halves(self.size, L, self.program.work, self.program.plan.cost.work.in_tiles):
            self._per = L // 2
        chunks = -(-self.size // self._per)
        packed = [aligned((a.shape[0], chunks, a.shape[2], L), dtype) for a in self._set]
        rest = self.n - (self.batches - 1) * self.size
        code, ticks = targets.loss.code, self.program.plan.ticks

        def batch(size: int) -> Batch | TimedBatch:
            X, y, share = packed[:3]
            if not more:
                return Batch(X, self.X, y, share, code, size, self._per)
            state = np.empty((0, 0), dtype)
            return TimedBatch(X, self.X, y, share, packed[3], packed[4], state, code, size, self._per, ticks)

        self._batch, self._rest = (Kept(batch(size)) for size in (self.size, rest))
        self._packed = packed
        if self.batches == 1:
            self._pack_whole()

    def _pack_whole(self) -> None:
        """The batch that is the whole set, as rows."""
        from meshnn.kernels.packing import pack_part

        dtype, targets = self.program.dtype, self.targets
        given = timed_arrays(targets, dtype) if targets.timed else (targets.values[None], targets.share[None])
        for array, room, repeat in zip((self.X, *given), self._packed, (True, *FILLED), strict=False):
            pack_part(np.require(array, dtype, ["C", "A", "W"]), 0, room.shape[1], room, repeat)

    def order(self, rng: np.random.Generator, epochs: int) -> NDArray[np.int64]:
        """The order of the samples in some epochs, `(epochs, n)`, drawn from a random stream; of one batch none."""
        if self.batches == 1:
            return np.empty((epochs, 0), np.int64)
        return np.stack([rng.permutation(self.n) for _ in range(epochs)])

    def fill(self, values: Array, weight: Array | float) -> None:
        """Put other targets (n, m) in, and weights (n,), which are 1 on average, for samples that were put into `X`."""
        self.targets.values[:] = values
        self.targets.share[:, 0] = weight / self.n
        if self.compiled:
            self._set.values[0], self._set.weight[0, :, 0] = values, weight
            if self.batches == 1:
                self._pack_whole()

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
        from meshnn.kernels.barrier import ABANDONED, GATE
        from meshnn.kernels.steps import epochs_part as plain_part
        from meshnn.kernels.steps import timed_epochs_part

        epochs_part = timed_epochs_part if self.targets.timed else plain_part
        record, gate, room = np.zeros((count, 3)), np.zeros(GATE, np.int64), self._room
        ledger = Ledger(values, *self._lists, *room)
        moments, pace = optimizer.moments, Pace(order, self.size, optimizer.done, rates)

        def task(me: int, team: int) -> int:
            worker = self.program.borrow()
            worker.forget_hits()
            try:
                found: int = self.program.call(
                    epochs_part, self._net, self._batch, self._rest, worker.kept, self._set, ledger, moments, pace,
                    record, Team(me, team, gate, self._parts, *self._found),
                )  # fmt: skip
                return found
            finally:
                self.program.give_back(worker)

        def abandon() -> None:
            gate[ABANDONED] = 1

        worth = self.size * self.program.work >= WORTH_A_THREAD
        threads = self.n_threads if self.n_threads is not None else cores() if worth else 1
        if epochs_part not in self.program._entries:  # compiled by one
            threads = 1
        with announced(epochs_part, self.program.dtype):
            done = together(min(threads, int(self._parts.max())), task, abandon)
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
                grad = found.grad[: len(parameters)].astype(values.dtype, copy=False)
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

"""First-order training on one set of samples, with the epochs computed inside the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn import _core
from meshnn.engine.engine import Engine, converted, not_finite, target_arrays
from meshnn.engine.threads import threads_for
from meshnn.losses import Targets
from meshnn.plan import ROW_BYTES

__all__ = ["Optimizer", "Steps"]

Array = NDArray[Any]


@dataclass
class Optimizer:
    """The hyperparameters of a first-order update rule, and its state between steps."""

    code: int  # codes.ADAM, MOMENTUM or NESTEROV
    betas: tuple[float, float]  # of Adam; for the other rules the first is the momentum
    epsilon: float
    l1: float
    l2: float
    penalised: Array  # (n_parameters,) 1 where l1 and l2 apply, else 0
    first: Array  # (n_parameters,) first moments
    second: Array  # (n_parameters,) second moments
    done: int = 0  # steps taken

    def forget(self) -> None:
        """Reset the state."""
        self.first[:] = 0
        self.second[:] = 0
        self.done = 0

    @property
    def state(self) -> Any:
        """The struct for the core."""
        given = {
            "solver": self.code, "first": self.first, "second": self.second, "penalised": self.penalised,
            "beta1": self.betas[0], "beta2": self.betas[1], "epsilon": self.epsilon, "l1": self.l1, "l2": self.l2,
        }  # fmt: skip
        return _core.Struct("OptimizerState", given, self.first.dtype.char)

    def step(self, parameters: Array, grad: Array, rate: float) -> float:
        """Take one step in place; return the norm of the gradient, including the penalty."""
        norm: float = _core.update(self.state, parameters, grad, self.done + 1, rate)
        self.done += 1
        return norm

    def penalty(self, parameters: Array) -> float:
        """Return the penalty of l1 and l2 on the loss."""
        if self.l1 == 0.0 and self.l2 == 0.0:
            return 0.0
        w = parameters.astype(np.float64)  # squares of diverged weights would overflow float32
        return float(self.penalised @ (self.l1 * np.abs(w) + 0.5 * self.l2 * w**2))


class Steps:
    """A training set in batches of one size, on which an optimiser takes steps."""

    def __init__(self, engine: Engine, X: Array, targets: Targets, size: int, n_jobs: int | None) -> None:
        self.n_jobs, self.targets = n_jobs, targets
        self.n = X.shape[1]
        self.size = min(size, self.n)
        self.batches = -(-self.n // self.size)
        self.X = np.require(converted(X, engine.dtype), requirements=["W"])
        if not np.isfinite(self.X).all():
            raise not_finite(X, self.X)
        self._targets = target_arrays(targets, engine.dtype)
        self.rewire(engine)

    def rewire(self, engine: Engine) -> None:
        """Replace the engine after a change of the graph; inputs and outputs stay the same."""
        self.engine = engine.suited_to(self.X, self.targets)
        lanes = ROW_BYTES // self.engine.dtype.itemsize
        # a batch of one row is split into halves for two threads if it is large and tiles, which can compute half a
        # row, do most of the work
        large = self.size * self.engine.work >= 2_000_000 and self.engine.plan.cost.tiled > 0.9
        self._per = lanes // 2 if large and self.batches > 1 and lanes // 2 < self.size <= lanes else lanes

    def order(self, rng: np.random.Generator, epochs: int) -> NDArray[np.int64]:
        """Draw the order of the samples in each epoch, `(epochs, n)`, or `(epochs, 0)` if there is one batch."""
        if self.batches == 1:
            return np.empty((epochs, 0), np.int64)
        return np.stack([rng.permutation(self.n) for _ in range(epochs)])

    def epochs(
        self, values: Array, optimizer: Optimizer, order: NDArray[np.int64], rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Take one step per learning rate, in place; stop after an epoch whose loss is not finite.

        `values` are the parameters, which are trained, followed by the fixed weights. `order` is from `order()`.

        Returns
        -------
        record : array (epochs, 3)
            Mean loss, share of correct samples and last gradient norm per epoch. With one batch per epoch, the last row
            has the loss and the share after all steps.
        """
        count = len(rates) // self.batches
        engine, record = self.engine, np.zeros((count, 3))
        if not engine.plan.method.compiled:
            return self._step_by_step(values, optimizer, order, rates)
        threads = threads_for(self.size * engine.work, self.n_jobs)
        finished = engine.core.epochs(
            values, self.X, None, 0, threads, engine.work, *self._targets, np.ascontiguousarray(order, np.int64),
            optimizer.state, np.ascontiguousarray(rates, np.float64), record, self.size, self._per, optimizer.done,
        )  # fmt: skip
        optimizer.done += len(rates)
        return record[: finished + 1]

    def _step_by_step(
        self, values: Array, optimizer: Optimizer, order: NDArray[np.int64], rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Take the steps of `epochs` with a method that has no compiled epochs."""
        record = np.zeros((len(order), 3))
        parameters = values[: len(optimizer.first)]
        for k, samples in enumerate(order):
            for b in range(self.batches):
                X, targets = self._batch(samples, b)
                found = self.engine.gradient(values, X, targets, self.n_jobs)
                grad = found.grad[: len(parameters)].astype(values.dtype)
                norm = optimizer.step(parameters, grad, float(rates[k * self.batches + b]))
                share = X.shape[1] / self.n
                record[k] += (found.loss * share, found.correct * share, 0.0)
                record[k, 2] = norm
            if not np.isfinite(record[k, 0]):
                return record[: k + 1]
        if self.batches == 1:
            record[-1, :2] = self.engine.evaluate(values, self.X, self.targets, self.n_jobs)
        return record

    def _batch(self, order: NDArray[np.int64], b: int) -> tuple[Array, Targets]:
        if self.batches == 1:
            return self.X, self.targets
        chosen = order[b * self.size : (b + 1) * self.size]
        return self.X[:, chosen], self.targets.of(chosen, self.n / len(chosen))

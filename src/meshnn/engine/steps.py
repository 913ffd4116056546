"""First-order training on one set of samples: epochs inside the core."""

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
        """Start over."""
        self.first[:] = 0
        self.second[:] = 0
        self.done = 0

    @property
    def state(self) -> Any:
        """The struct that the core takes."""
        given = {
            "solver": self.code, "first": self.first, "second": self.second, "penalised": self.penalised,
            "beta1": self.betas[0], "beta2": self.betas[1], "epsilon": self.epsilon, "l1": self.l1, "l2": self.l2,
        }  # fmt: skip
        return _core.Struct("OptimizerState", given, self.first.dtype.char)

    def step(self, parameters: Array, grad: Array, rate: float) -> float:
        """Take one step in place; return the norm of the gradient, penalty included."""
        norm: float = _core.update(self.state, parameters, grad, self.done + 1, rate)
        self.done += 1
        return norm

    def penalty(self, parameters: Array) -> float:
        """Return what l1 and l2 add to the loss."""
        if self.l1 == 0.0 and self.l2 == 0.0:
            return 0.0
        w = parameters.astype(np.float64)  # squares of diverged weights overflow float32
        return float(self.penalised @ (self.l1 * np.abs(w) + 0.5 * self.l2 * w**2))


class Steps:
    """A training set in batches of one size, to take steps on."""

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
        """Go on with another graph of the same inputs and outputs."""
        self.engine = engine.suited_to(self.X, self.targets)
        lanes = ROW_BYTES // self.engine.dtype.itemsize
        # a batch that fills one row is cut into halves if these are worth it and tiles, which alone compute half a row,
        # do most of the work
        large = self.size * self.engine.work >= 2_000_000 and self.engine.plan.cost.tiled > 0.9
        self._per = lanes // 2 if large and self.batches > 1 and lanes // 2 < self.size <= lanes else lanes

    def order(self, rng: np.random.Generator, epochs: int) -> NDArray[np.int64]:
        """Draw the order of the samples in some epochs `(epochs, n)`; without columns if there is one batch."""
        if self.batches == 1:
            return np.empty((epochs, 0), np.int64)
        return np.stack([rng.permutation(self.n) for _ in range(epochs)])

    def fill(self, values: Array, weight: Array | float) -> None:
        """Replace the targets (n, m) and the weights (n,), of mean 1, for samples that were written into `X`."""
        self.targets.values[:] = values
        self.targets.share[:, 0] = weight / self.n
        self._targets = target_arrays(self.targets, self.engine.dtype)

    def epochs(
        self, values: Array, optimizer: Optimizer, order: NDArray[np.int64], rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Take a step per rate, in place; return mean loss, share of correct samples and last gradient norm per epoch.

        `values` are what the edges carry: the parameters, which move, then what is fixed. With one batch per epoch, the
        last row has the loss and the share after all steps. `order` is (epochs, n); with one batch its second axis may
        be empty. Stops after an epoch whose loss is not finite.
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
        """The same for methods without compiled epochs."""
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

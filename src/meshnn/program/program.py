"""`Program`: a plan that runs itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.kernels.tuples import Net, Room
from meshnn.losses import Targets
from meshnn.methods import Plan
from meshnn.program.batch import Slab, slabs
from meshnn.program.threads import cores, in_threads, parts_of

__all__ = ["Curvature", "Gradient", "Program", "Worker"]

Array = NDArray[Any]
#: Multiply-adds below which a second thread costs more than it brings.
WORTH_A_THREAD = 4_000_000
#: Columns of R that one product of matrices takes at a time: enough to keep it busy, few enough to stay in the cache.
COLUMNS = 768


class Gradient(NamedTuple):
    """A loss and its gradient."""

    loss: float
    hits: float  # share of samples whose largest output is the label's; 0 where there are no labels
    grad: NDArray[np.float64]  # (n_gradient,)


class Curvature(NamedTuple):
    """A quadratic model of a loss at some weights."""

    loss: float
    hits: float
    grad: NDArray[np.float64]  # (n_live,)
    matrix: NDArray[np.float64]  # (n_live, n_live) sum of J' H J


@dataclass
class Worker:
    """The buffers of whoever runs a part."""

    room: Room
    columns: Array | None = None  # of a curvature

    def hits(self) -> float:
        """What the last part has gathered."""
        return float(self.room.scratch[1].sum())


@dataclass(eq=False)
class Program:
    """A graph compiled for one method and dtype; it owns its buffers. Another backend is another program.

    `values` are the numbers that edges take their weights from, `(n_numbers,)`; `n_threads` None is as many as pay.
    """

    plan: Plan
    dtype: np.dtype[Any]
    codes: NDArray[np.int64]
    of_sequences: Callable[[], Program] | None = None  # the same for inputs that change, if this is for held ones only
    _entries: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    _free: list[Worker] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def work(self) -> float:
        """Predicted multiply-adds a sample, to tell whether threads pay."""
        return self.plan.cost.predicted

    # -- what it does ----------------------------------------------------------------------------------------------

    def predict(self, values: Array, X: Array, n_threads: int | None = None) -> Array:
        """Outputs `(batch, n_outputs)`."""
        from meshnn.kernels.forward import predict_part

        if (other := self.suiting(X)) is not self:
            return other.predict(values, X, n_threads)
        out = np.empty((X.shape[1], self.plan.n_outputs), self.dtype)
        net = self._net(values)
        for slab in slabs(X, None, self.dtype):
            Y = out[slab.begin : slab.end]
            self._run(predict_part, slab, n_threads, self._task(predict_part, net, slab, Y))
        return out

    def states(self, values: Array, X: Array, n_threads: int | None = None) -> Array:
        """States `(ticks + 1, batch, n_neurons)`."""
        from meshnn.kernels.forward import states_part

        out = np.empty((self.plan.ticks + 1, X.shape[1], self.plan.n), self.dtype)
        net = self._net(values)
        for slab in slabs(X, None, self.dtype):
            self._run(states_part, slab, n_threads, self._task(states_part, net, slab, out, slab.begin, slab.end))
        return out

    def evaluate(self, values: Array, X: Array, targets: Targets, n_threads: int | None = None) -> tuple[float, float]:
        """Loss and share of hits, without a gradient."""
        from meshnn.kernels.evaluate import loss_part

        if (other := self.suiting(X)) is not self:
            return other.evaluate(values, X, targets, n_threads)
        X, targets = _counting(X, targets)
        net = self._net(values)
        loss = hits = 0.0
        for slab in slabs(X, targets, self.dtype):

            def task(at: Worker, first: int, last: int, slab: Slab = slab) -> tuple[float, float]:
                return self.call(loss_part, net, slab.batch, at.room, first, last), at.hits()

            for part_loss, part_hits in self._run(loss_part, slab, n_threads, task):
                loss += part_loss
                hits += part_hits
        return loss, hits

    def gradient(self, values: Array, X: Array, targets: Targets, n_threads: int | None = None) -> Gradient:
        """Loss and its gradient, summed over the batch in float64."""
        if (other := self.suiting(X)) is not self:
            return other.gradient(values, X, targets, n_threads)
        X, targets = _counting(X, targets)
        plan, net, kernel = self.plan, self._net(values), self.plan.method.gradient_kernel()
        entries = np.zeros(len(plan.gives))
        loss = hits = 0.0
        for slab in slabs(X, targets, self.dtype):

            def task(at: Worker, first: int, last: int, slab: Slab = slab) -> tuple[float, float, Array]:
                g = np.empty(len(plan.gives), self.dtype)
                return self.call(kernel, net, slab.batch, at.room, first, last, g), at.hits(), g

            for part_loss, part_hits, g in self._run(kernel, slab, n_threads, task):
                loss += part_loss
                hits += part_hits
                entries += g
        # of nothing bincount counts integers
        return Gradient(loss, hits, np.bincount(plan.gives, entries, plan.n_gradient).astype(np.float64, copy=False))

    def jacobian(self, values: Array, X: Array, n_threads: int | None = None) -> Array:
        """Derivative of each output by each number, `(batch, n_outputs, n_gradient)`; the plan is one of a Jacobian."""
        kernel, net = self.plan.method.jacobian_kernel(), self._net(values)
        out = np.zeros((X.shape[1], self.plan.n_outputs, self.plan.n_gradient), self.dtype)
        for slab in slabs(X, None, self.dtype):
            self._run(kernel, slab, n_threads, self._task(kernel, net, slab, out[slab.begin : slab.end]))
        return out

    def curvature(
        self, values: Array, X: Array, targets: Targets, live: NDArray[np.int64], n_threads: int | None = None
    ) -> Curvature:
        """Gradient and Gauss-Newton matrix by the numbers `live`; no Jacobian is ever kept.

        The plan must be one of a Jacobian. Each part multiplies with a single-threaded BLAS if the caller limits it.
        """
        from meshnn.kernels._row import aligned, lanes
        from meshnn.kernels.curvature import curvature_part

        X, targets = _counting(X, targets)
        plan, net = self.plan, self._net(values)
        per_chunk = targets.loss.columns(plan.n_outputs) * lanes(self.dtype)
        block = max(1, COLUMNS // per_chunk)  # chunks
        shape = (len(live), block * per_chunk)
        grad, matrix = np.zeros(len(live)), np.zeros((len(live), len(live)))
        loss = hits = 0.0
        for slab in slabs(X, targets, self.dtype):

            def task(at: Worker, first: int, last: int, slab: Slab = slab) -> tuple[float, float, Array, Array]:
                if at.columns is None or at.columns.shape != shape:
                    at.columns = aligned(shape, self.dtype)
                R = at.columns
                g, M, part = np.zeros(len(live), self.dtype), np.zeros((len(live), len(live)), self.dtype), 0.0
                for begin in range(first, last, block):
                    end = min(begin + block, last)
                    if end - begin < block:
                        R[:] = 0  # columns that this block leaves unwritten
                    part += self.call(curvature_part, net, slab.batch, at.room, begin, end, live, g, R)
                    M += R @ R.T
                return part, at.hits(), g, M

            for part_loss, part_hits, g, M in self._run(curvature_part, slab, n_threads, task):
                loss += part_loss
                hits += part_hits
                grad += g
                matrix += M
        return Curvature(loss, hits, grad, matrix)

    # -- how it runs -----------------------------------------------------------------------------------------------

    def _net(self, values: Array) -> Net:
        w = values[self.plan.reads]
        w[self.plan.holes] = 0
        return Net(w, self.codes)

    def suiting(self, X: Array) -> Program:
        """The program for these samples: itself, or one for inputs that change from tick to tick."""
        return self if len(X) == 1 or self.of_sequences is None else self.of_sequences()

    def _task(self, kernel: Any, net: Net, slab: Slab, *into: Any) -> Callable[[Worker, int, int], Any]:
        return lambda at, first, last: self.call(kernel, net, slab.batch, at.room, first, last, *into)

    def call(self, kernel: Any, *arguments: Any) -> Any:
        """Run a kernel on the course of the plan.

        The types of a kernel's arguments are always the same in one program. Numba would look at them at every call,
        which takes longer than a small gradient (38 us against 5), so they are looked at once.
        """
        entry = self._entries.get(kernel)
        if entry is not None:
            return entry(self.plan.course, *arguments)
        result = kernel(self.plan.course, *arguments)
        self._entries[kernel] = _entry(kernel, (self.plan.course, *arguments))
        return result

    def _run(
        self, kernel: Any, slab: Slab, n_threads: int | None, task: Callable[[Worker, int, int], Any]
    ) -> list[Any]:
        """`task(worker, first chunk, last chunk)` for every part of a slab, in threads if that pays; in order."""
        parts = parts_of(slab.size, self.dtype, self.work)

        def one(p: int) -> Any:
            worker = self.borrow()
            worker.room.scratch[1] = 0
            try:
                slab.pack(*parts[p])
                return task(worker, *parts[p])
            finally:
                self.give_back(worker)

        worth = slab.size * self.work >= WORTH_A_THREAD
        threads = n_threads if n_threads is not None else cores() if worth else 1
        with nullcontext() if kernel in self._entries else announced(kernel, self.dtype):
            return in_threads(len(parts), threads, one)

    def borrow(self) -> Worker:
        """Buffers for one worker; give them back with `give_back`."""
        with self._lock:
            if self._free:
                return self._free.pop()
        from meshnn.kernels._row import aligned, lanes

        L = lanes(self.dtype)
        room = Room(**{name: aligned((*self.plan.rows[name], L), self.dtype) for name in Room._fields})
        room.S[:, self.plan.n_inputs : self.plan.n_clamped] = 1  # the bias
        return Worker(room)

    def give_back(self, worker: Worker) -> None:
        """Keep the buffers for the next call."""
        with self._lock:
            self._free.append(worker)


def _entry(kernel: Any, arguments: tuple[Any, ...]) -> Any:
    """The machine code of a kernel for arguments of these types; one in NumPy is its own."""
    if not hasattr(kernel, "overloads"):
        return kernel
    import numba

    return kernel.overloads[tuple(map(numba.typeof, arguments))].entry_point


def announced(kernel: Any, dtype: np.dtype[Any]) -> Any:
    """While a kernel may be compiled; those in NumPy never are."""
    from meshnn.kernels._jit import announce

    return announce(kernel, dtype) if hasattr(kernel, "stats") else nullcontext()


def _counting(X: Array, targets: Targets) -> tuple[Array, Targets]:
    """Without samples that do not count."""
    rows = targets.counting
    return (X, targets) if rows is None else (X[:, rows], targets.of(rows))

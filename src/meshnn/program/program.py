"""`Program`: a plan that runs itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.kernels.tuples import Net, Room
from meshnn.losses import Targets
from meshnn.methods import Plan
from meshnn.program.batch import SLAB, Frame, Run, slabs
from meshnn.program.entries import gradient_of, weights_of
from meshnn.program.threads import cores, in_threads, parts_of, samples_of_one_part
from meshnn.schedule import Timing

__all__ = ["Curvature", "Gradient", "Program", "Worker"]

Array = NDArray[Any]
#: Multiply-adds below which a second thread costs more than it brings.
WORTH_A_THREAD = 4_000_000
#: Columns of R that one product of matrices takes at a time: enough to keep it busy, few enough to stay in the cache.
COLUMNS = 768
#: Weights and inputs of a net for which workers keep weights and samples from call to call ...
SMALL = 2**14
#: ... and numbers in a batch of more than some rows of samples.
MOST_KEPT = 2**18


class Gradient(NamedTuple):
    """A loss and its gradient."""

    loss: float
    hits: float  # share of samples whose largest output is the label's; 0 where there are no labels
    grad: Array  # (n_gradient,) in float64, or as kernels give it where that is large


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
    kept: Any  # the room as kernels take it
    net: Any = None  # kept weights of a small net
    frame: Frame | None = None  # of its last small batch
    columns: Array | None = None  # of a curvature

    def __post_init__(self) -> None:
        self._gathered = self.room.scratch[1]
        self._ones = np.ones_like(self._gathered)

    def forget_hits(self) -> None:
        """Before a part."""
        self._gathered.fill(0)

    def hits(self) -> float:
        """What the last part has gathered."""
        return float(self._gathered.dot(self._ones))  # half the time of a sum


#: Runs a part: `task(worker, first sample, last sample of the slab, net, batch, room, first chunk, last chunk)`.
Task = Callable[..., Any]


@dataclass(eq=False)
class Program:
    """A graph compiled for one method and dtype; it owns its buffers. Another backend is another program.

    `values` are the numbers that edges take their weights from, `(n_numbers,)`; `n_threads` None is as many as pay.
    """

    plan: Plan
    dtype: np.dtype[Any]
    codes: NDArray[np.int64]
    of_sequences: Callable[[], Program] | None = None  # the same for inputs that change, if this is for held ones only
    in_time: Callable[[Timing], Program] | None = None  # the same for losses at ticks, if this is of the last tick only
    _entries: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    _free: list[Worker] = field(default_factory=list)

    @property
    def work(self) -> float:
        """Predicted multiply-adds a sample, to tell whether threads pay."""
        return self.plan.cost.predicted

    # -- what it does ----------------------------------------------------------------------------------------------

    def predict(self, values: Array, X: Array, n_threads: int | None = None) -> Array:
        """Outputs `(batch, n_outputs)`."""
        if (other := self.suiting(X)) is not self:
            return other.predict(values, X, n_threads)
        kernel, out = self._predict_part, np.empty((X.shape[1], self.plan.n_outputs), self.dtype)

        def task(at: Worker, begin: int, end: int, *part: Any) -> None:
            self.call(kernel, *part, out[begin:end])

        for _ in self._run(kernel, values, X, None, n_threads, task):
            pass
        return out

    def follow(
        self, values: Array, X: Array, ticks: str, state: Array | None = None, n_threads: int | None = None
    ) -> tuple[Array, Array]:
        """A run in time: what is asked for of "every" tick or the "last" one, and the states after the last.

        These are the outputs `(ticks or 1, batch, n_outputs)`, or the "whole" states `(ticks + 1, batch, n_neurons)`;
        and `(batch, n_neurons)`, or none if they are not asked for.
        """
        from meshnn.kernels.timed import timed_outputs_part

        plan, size = self.plan, X.shape[1]
        assert plan.timing is not None
        rows, width = {"every": (plan.ticks, plan.n_outputs), "last": (1, plan.n_outputs),
                       "whole": (plan.ticks + 1, plan.n)}[ticks]  # fmt: skip
        out = np.empty((rows, size, width), self.dtype)
        end = np.empty((size if plan.timing.whole_end else 0, plan.n), self.dtype)

        def task(at: Worker, begin: int, stop: int, *part: Any) -> None:
            self.call(timed_outputs_part, *part, out, ticks == "whole", end, begin)

        for _ in self._run(timed_outputs_part, values, X, None, n_threads, task, Run(plan.ticks, state)):
            pass
        return out, end

    def states(self, values: Array, X: Array, n_threads: int | None = None) -> Array:
        """States `(ticks + 1, batch, n_neurons)`."""
        from meshnn.kernels.forward import states_part

        out = np.empty((self.plan.ticks + 1, X.shape[1], self.plan.n), self.dtype)

        def task(at: Worker, begin: int, end: int, *part: Any) -> None:
            self.call(states_part, *part, out, begin, end)

        for _ in self._run(states_part, values, X, None, n_threads, task):
            pass
        return out

    def evaluate(self, values: Array, X: Array, targets: Targets, n_threads: int | None = None) -> tuple[float, float]:
        """Loss and share of hits, without a gradient."""
        if (other := self.suiting(X, targets)) is not self:
            return other.evaluate(values, X, targets, n_threads)
        kernel = self._loss_part
        X, targets = _counting(X, targets)
        loss = hits = 0.0

        def task(at: Worker, begin: int, end: int, *part: Any) -> tuple[float, float]:
            return self.call(kernel, *part), at.hits()

        for part_loss, part_hits in self._run(kernel, values, X, targets, n_threads, task, self._timed_run):
            loss += part_loss
            hits += part_hits
        return loss, hits

    def gradient(
        self, values: Array, X: Array, targets: Targets, n_threads: int | None = None, state: Array | None = None
    ) -> Gradient:
        """Loss and its gradient, summed over the batch in float64; in time, from a `state` (batch, n) on, if given."""
        if (other := self.suiting(X, targets)) is not self:
            return other.gradient(values, X, targets, n_threads, state)
        run = self._timed_run
        if state is not None:
            assert run is not None
            rows = targets.counting
            run = run._replace(state=state if rows is None else state[rows])
        X, targets = _counting(X, targets)
        plan, kernel = self.plan, self._gradient_part
        entries: Array | None = None
        loss = hits = 0.0

        def task(at: Worker, begin: int, end: int, *part: Any) -> tuple[float, float, Array]:
            g = np.empty(len(plan.gives), self.dtype)
            return self.call(kernel, *part, g), at.hits(), g

        for part_loss, part_hits, g in self._run(kernel, values, X, targets, n_threads, task, run):
            loss += part_loss
            hits += part_hits
            if entries is None:
                entries = g
            elif entries.dtype == np.float64:
                entries += g
            else:
                entries = np.add(entries, g, dtype=np.float64)
        return Gradient(loss, hits, gradient_of(plan, entries))

    def jacobian(self, values: Array, X: Array, n_threads: int | None = None, state: Array | None = None) -> Array:
        """Derivative of each output by each number, `(batch, n_outputs, n_gradient)`; the plan is one of a Jacobian.

        In time, from a `state` (batch, n) on, after the last tick.
        """
        kernel, run = self._jacobian_part, self._timed_run
        if state is not None:
            assert run is not None
            run = run._replace(state=state)
        out = np.zeros((X.shape[1], self.plan.n_outputs, self.plan.n_gradient), self.dtype)

        def task(at: Worker, begin: int, end: int, *part: Any) -> None:
            self.call(kernel, *part, out[begin:end])

        for _ in self._run(kernel, values, X, None, n_threads, task, run):
            pass
        return out

    def curvature(
        self, values: Array, X: Array, targets: Targets, live: NDArray[np.int64], n_threads: int | None = None
    ) -> Curvature:
        """Gradient and Gauss-Newton matrix by the numbers `live`; no Jacobian is ever kept.

        The plan must be one of a Jacobian. Each part multiplies with a single-threaded BLAS if the caller limits it.
        """
        from meshnn.kernels._row import aligned, lanes

        if (other := self.suiting(X, targets)) is not self:
            return other.curvature(values, X, targets, live, n_threads)
        kernel, run = self._curvature_part, self._timed_run
        X, targets = _counting(X, targets)
        per_chunk = targets.loss.columns(self.plan.n_outputs) * lanes(self.dtype)
        block = max(1, COLUMNS // per_chunk)  # chunks
        shape = (len(live), block * per_chunk)
        grad, matrix = np.zeros(len(live)), np.zeros((len(live), len(live)))
        loss = hits = 0.0

        def task(
            at: Worker, begin: int, end: int, net: Any, batch: Any, room: Any, first: int, last: int
        ) -> tuple[float, float, Array, Array]:
            if at.columns is None or at.columns.shape != shape:
                at.columns = aligned(shape, self.dtype)
            R = at.columns
            g, M, part = np.zeros(len(live), self.dtype), np.zeros((len(live), len(live)), self.dtype), 0.0
            for start, stop, *ticks in _looks(first, last, block, targets, run):
                if stop - start < block or ticks:
                    R[:] = 0  # columns that this block leaves unwritten
                part += self.call(kernel, net, batch, room, start, stop, *ticks, live, g, R)
                M += R @ R.T
            return part, at.hits(), g, M

        for part_loss, part_hits, g, M in self._run(kernel, values, X, targets, n_threads, task, run):
            loss += part_loss
            hits += part_hits
            grad += g
            matrix += M
        return Curvature(loss, hits, grad, matrix)

    # -- how it runs -----------------------------------------------------------------------------------------------

    def suiting(self, X: Array, targets: Targets | None = None) -> Program:
        """The program for these samples: itself, or one for inputs that change from tick to tick, or looks at ticks."""
        if targets is not None and (targets.at is not None or targets.readout is not None):
            if self.plan.timing is not None:
                return self
            assert self.in_time is not None
            return self.in_time(Timing.at(targets.ticks))
        return self if len(X) == 1 or self.of_sequences is None else self.of_sequences()

    def call(self, kernel: Any, *arguments: Any) -> Any:
        """Run a kernel on the course of the plan.

        The types of a kernel's arguments are always the same in one program, so they are looked at once.
        """
        entry = self._entries.get(kernel)
        if entry is not None:
            return entry(self._course, *arguments)
        if not hasattr(kernel, "overloads"):  # in NumPy
            return kernel(self.plan.course, *(getattr(argument, "given", argument) for argument in arguments))
        from meshnn.kernels._jit import entry_point

        result = kernel(self._course, *arguments)
        self._entries[kernel] = entry_point(kernel, (self._course, *arguments))
        return result

    def _run(
        self, kernel: Any, values: Array, X: Array, targets: Targets | None, n_threads: int | None, task: Task,
        run: Run | None = None,
    ) -> Iterable[Any]:  # fmt: skip
        """What a task returns for every part of a batch, in order; `run`, if it is one in time."""
        if kernel in self._entries and X.shape[1] <= self._at_once and len(X) == 1:
            return (self._run_at_once(values, X, targets, task),)
        return self._run_in_parts(kernel, values, X, targets, n_threads, task, run)

    def _run_in_parts(
        self, kernel: Any, values: Array, X: Array, targets: Targets | None, n_threads: int | None, task: Task,
        run: Run | None = None,
    ) -> Iterator[Any]:  # fmt: skip
        """The same for any batch, in threads if that pays."""
        from meshnn.kernels._kept import Kept

        net = Kept(Net(weights_of(self.plan, values), self.codes))
        for slab in slabs(X, targets, self.dtype, run=run):
            parts = parts_of(slab.size, self.dtype, self.work)

            def one(p: int, slab: Any = slab, parts: list[tuple[int, int]] = parts) -> Any:
                worker = self.borrow()
                worker.forget_hits()
                try:
                    slab.pack(*parts[p])
                    return task(worker, slab.begin, slab.end, net, slab.batch, worker.kept, *parts[p])
                finally:
                    self.give_back(worker)

            worth = slab.size * self.work >= WORTH_A_THREAD
            threads = n_threads if n_threads is not None else cores() if worth else 1
            with nullcontext() if kernel in self._entries else announced(kernel, self.dtype):
                found = in_threads(len(parts), threads, one)
            yield from found

    def _run_at_once(self, values: Array, X: Array, targets: Targets | None, task: Task) -> Any:
        """The same for a small batch of a small net, which is one part: what can be is kept from call to call."""
        worker, size = self.borrow(), X.shape[1]
        try:
            if worker.net is None:
                from meshnn.kernels._kept import Kept

                worker.net = Kept(Net(np.empty(len(self.plan.reads), self.dtype), self.codes))
            w = worker.net.given.w
            values.take(self.plan.reads, out=w, mode="clip")  # "raise" would take a buffer more
            if len(self._holes):
                w[self._holes] = 0
            frame = worker.frame
            if frame is None or not frame.fits(size, targets):
                frame = worker.frame = Frame(size, self.plan.n_inputs, targets, self.dtype)
            frame.pack(X, targets)
            if targets is not None:
                worker.forget_hits()
            return task(worker, 0, size, worker.net, frame.batch, worker.kept, 0, frame.chunks)
        finally:
            self.give_back(worker)

    @cached_property
    def _at_once(self) -> int:
        """Samples up to which a batch is one part and its rooms are kept; 0 for large nets."""
        plan = self.plan
        if len(plan.reads) + plan.n_inputs > SMALL or plan.timing is not None:
            return 0
        most = max(MOST_KEPT // (plan.n_inputs + plan.n_outputs + 1), samples_of_one_part(self.dtype))
        return min(most, samples_of_one_part(self.dtype, self.work), SLAB)

    @cached_property
    def _holes(self) -> NDArray[np.intp]:
        return self.plan.holes.astype(np.intp)  # in 32 bits they take ten times as long

    @cached_property
    def _course(self) -> Any:
        """As kernels take it."""
        from meshnn.kernels._kept import Kept

        return Kept(self.plan.course)

    @cached_property
    def _predict_part(self) -> Any:
        from meshnn.kernels.forward import predict_part

        return predict_part

    @cached_property
    def _gradient_part(self) -> Any:
        method = self.plan.method
        return method.gradient_kernel() if self.plan.timing is None else method.timed_kernel()

    @cached_property
    def _jacobian_part(self) -> Any:
        if self.plan.timing is None:
            return self.plan.method.jacobian_kernel()
        from meshnn.kernels.timed_jacobian import timed_jacobian_part

        return timed_jacobian_part

    @cached_property
    def _loss_part(self) -> Any:
        if self.plan.timing is None:
            from meshnn.kernels.evaluate import loss_part

            return loss_part
        from meshnn.kernels.timed import timed_loss_part

        return timed_loss_part

    @cached_property
    def _curvature_part(self) -> Any:
        if self.plan.timing is None:
            from meshnn.kernels.curvature import curvature_part

            return curvature_part
        from meshnn.kernels.timed_curvature import timed_curvature_part

        return timed_curvature_part

    @cached_property
    def _timed_run(self) -> Run | None:
        return None if self.plan.timing is None else Run(self.plan.ticks)

    def borrow(self) -> Worker:
        """Buffers for one worker; give them back with `give_back`."""
        try:
            return self._free.pop()  # atomic, as append is: threads may share a program
        except IndexError:
            pass
        from meshnn.kernels._kept import Kept
        from meshnn.kernels._row import aligned, lanes

        L = lanes(self.dtype)
        room = Room(**{name: aligned((*self.plan.rows[name], L), self.dtype) for name in Room._fields})
        room.S[:, self.plan.n_inputs : self.plan.n_clamped] = 1  # the bias
        return Worker(room, Kept(room))

    def give_back(self, worker: Worker) -> None:
        """Keep the buffers for the next call."""
        self._free.append(worker)


def announced(kernel: Any, dtype: np.dtype[Any]) -> Any:
    """While a kernel may be compiled; those in NumPy never are."""
    from meshnn.kernels._jit import announce

    return announce(kernel, dtype) if hasattr(kernel, "stats") else nullcontext()


def _looks(first: int, last: int, block: int, targets: Targets, run: Run | None) -> Iterator[tuple[int, ...]]:
    """First and last chunk of every call that makes columns of so many chunks; in time, its first and last tick."""
    if targets.at is None or run is None:
        for start in range(first, last, block):
            yield (start, min(start + block, last), *([] if run is None else [0, 0]))
        return
    counting = np.flatnonzero(targets.ticks) + 1
    for chunk in range(first, last):
        for some in range(0, len(counting), block):  # ticks between them that do not count cost nothing
            ticks = counting[some : some + block]
            yield chunk, chunk + 1, int(ticks[0]), int(ticks[-1]) + 1


def _counting(X: Array, targets: Targets) -> tuple[Array, Targets]:
    """Without samples that do not count."""
    rows = targets.counting
    return (X, targets) if rows is None else (X[:, rows], targets.of(rows))

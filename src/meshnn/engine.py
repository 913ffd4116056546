"""Runs plans over batches: cuts a batch into slabs, slabs into parts, and hands parts to threads.

A batch is cut the same way whatever the number of threads, each part sums its own gradient, and the parts are added in
order: any number of threads gives the same bits. Threads are Python's own, in kernels that release the GIL, so calls from
several threads at once are safe (Numba's thread pool is not).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError
from meshnn.plan import Plan
from meshnn.topology import Topology

__all__ = [
    "Program",
    "Targets",
    "cores",
    "gradient",
    "jacobian",
    "parts_of",
    "predict",
    "states",
    "tensor_gradient",
    "tensor_jacobian",
]

Array = NDArray[Any]
Buffers = dict[str, Array]

#: Samples converted and checked at a time: bounds the memory that a large batch adds.
SLAB = 65536
#: Most parts of a slab, and so most threads that work on it.
PARTS = 8
#: Multiply-adds below which a second thread costs more than it brings.
WORTH_A_THREAD = 2_000_000

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget_pool)


def _executor() -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max_workers=max(cores(), PARTS), thread_name_prefix="meshnn")
        return _pool


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
        if plan.method in ("factored", "adjoint", "blocks"):
            buffers["V"] = aligned((2, plan.n, L), self.dtype)
            buffers["G"] = aligned((plan.n_outputs, L), self.dtype)
            buffers["scratch"] = aligned((2, L), self.dtype)
            buffers["T"] = aligned((2, plan.n if plan.method == "factored" else 1, L), self.dtype)
        if plan.blocks is not None:
            buffers["store"] = aligned((max(plan.blocks.store_rows, 1), L), self.dtype)
        return buffers


@dataclass(frozen=True)
class Targets:
    """What the outputs are compared with: labels (cross-entropy) or values (squared error), and each sample's share."""

    loss_code: int
    labels: NDArray[np.int64]
    values: Array
    share: Array


def _slabs(X: Array, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, Array]]:
    """`(begin, end, samples)`: contiguous, of the right dtype and finite."""
    size = X.shape[1]
    for begin in range(0, size, SLAB):
        end = min(begin + SLAB, size)
        given = X[:, begin:end]
        with np.errstate(over="ignore"):
            # writable, because Numba would compile everything again for a read-only array
            slab = np.require(given, dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
        finite = np.isfinite(slab)
        if not finite.all():
            k, b, i = np.argwhere(~finite)[0].tolist()
            tick = f"tick {k}, " if X.shape[0] > 1 else ""
            value = given[k, b, i]
            hint = f"does not fit {dtype}" if np.isfinite(value) else "is not finite"
            raise DataError(
                f"X holds {value} at {tick}sample {begin + b}, feature {i}, which {hint} "
                f"({int((~finite).sum())} such values in these {end - begin} samples); remove or impute them"
            )
        yield begin, end, slab


def parts_of(size: int, lanes: int) -> list[tuple[int, int]]:
    """A slab of `size` samples as up to `PARTS` runs of whole chunks. Depends on nothing but the size."""
    chunks = -(-size // lanes)
    count = min(PARTS, chunks)
    cuts = [chunks * p // count * lanes for p in range(count + 1)]
    return [(cuts[p], min(cuts[p + 1], size)) for p in range(count)]


def _run(
    program: Program, parts: list[tuple[int, int]], n_threads: int | None, task: Callable[..., Any]
) -> list[Any]:
    """`task(buffers, part number, begin, end)` for every part, in threads if that pays; results in order."""

    def one(p: int) -> Any:
        buffers = program.borrow()
        try:
            return task(buffers, p, *parts[p])
        finally:
            program.give_back(buffers)

    wanted = cores() if n_threads is None else n_threads
    worth = (parts[-1][1] - parts[0][0]) * program.work >= WORTH_A_THREAD
    threads = min(wanted, len(parts)) if n_threads is not None or worth else 1
    if threads <= 1:
        return [one(p) for p in range(len(parts))]
    # Each worker takes the next part that is left; this thread is one of them.
    results: list[Any] = [None] * len(parts)
    left = iter(range(len(parts)))
    guard = threading.Lock()

    def work() -> None:
        while True:
            with guard:
                p = next(left, None)
            if p is None:
                return
            results[p] = one(p)

    others = [_executor().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for other in others:
            other.result()
    return results


def _lanes(program: Program) -> int:
    from meshnn.kernels._row import lanes

    return lanes(program.dtype)


def predict(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """Outputs `(batch, n_outputs)`."""
    from meshnn.kernels._jit import announce
    from meshnn.kernels.forward import predict_part

    plan = program.plan
    w = weights[plan.ops.eid]
    Y = np.empty((X.shape[1], plan.n_outputs), program.dtype)
    for first, last, slab in _slabs(X, program.dtype):

        def task(at: Buffers, p: int, begin: int, end: int, slab: Array = slab, Y: Array = Y[first:last]) -> None:
            predict_part(
                plan.ops, plan.forward, w, program.codes, slab, begin, end, plan.n_inputs, plan.n_clamped,
                at["S"], at["D"], Y,
            )  # fmt: skip

        with announce(predict_part, program.dtype):
            _run(program, parts_of(last - first, _lanes(program)), n_threads, task)
    return Y


def states(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """States `(ticks + 1, batch, n_neurons)`."""
    from meshnn.kernels._jit import announce
    from meshnn.kernels.forward import states_part

    plan = program.plan
    w = weights[plan.ops.eid]
    out = np.empty((plan.ticks + 1, X.shape[1], plan.n), program.dtype)
    for first, last, slab in _slabs(X, program.dtype):

        def task(at: Buffers, p: int, begin: int, end: int, slab: Array = slab, first: int = first) -> None:
            states_part(
                plan.ops, plan.forward, w, program.codes, slab, begin, end, plan.n_inputs, plan.n_clamped,
                at["S"], at["D"], out, first,
            )  # fmt: skip

        with announce(states_part, program.dtype):
            _run(program, parts_of(last - first, _lanes(program)), n_threads, task)
    return out


def gradient(
    program: Program, weights: Array, X: Array, targets: Targets, n_threads: int | None
) -> tuple[float, NDArray[np.float64]]:
    """Loss and its gradient `(n_gradient,)`, summed over the batch in float64."""
    from meshnn.kernels._jit import announce
    from meshnn.kernels.blocks import blocks_gradient_part
    from meshnn.kernels.gradient import gradient_part

    plan, blocks, block_ops = program.plan, program.plan.blocks, program.plan.block_ops
    w = weights[plan.ops.eid]
    bw = weights[block_ops.eid] if block_ops is not None else None
    n_block_edges = len(blocks.eid) if blocks is not None else 0
    entries = np.zeros(plan.gradient_entries)
    block_edges = np.zeros(n_block_edges)
    loss = 0.0
    for first, last, slab in _slabs(X, program.dtype):
        labels, values = targets.labels[first:last], targets.values[first:last]
        share = targets.share[first:last]

        def task(
            at: Buffers, p: int, begin: int, end: int,
            slab: Array = slab, labels: Array = labels, values: Array = values, share: Array = share,
        ) -> tuple[float, Array, Array]:  # fmt: skip
            g = np.empty(plan.gradient_entries, program.dtype)
            ge = np.empty(n_block_edges, program.dtype)
            if blocks is not None:
                part = blocks_gradient_part(
                    plan.ops, plan.forward, plan.back, plan.gradient_ops, plan.gradient, block_ops, blocks, w, bw,
                    program.codes, slab, labels, values, share, targets.loss_code, begin, end, plan.n_inputs,
                    plan.n_clamped, at["S"], at["D"], at["V"], at["G"], at["scratch"], at["store"], g, ge,
                )  # fmt: skip
            else:
                part = gradient_part(
                    plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient_ops, plan.gradient, plan.tangents,
                    w, program.codes, slab, labels, values, share, targets.loss_code, begin, end, plan.n_inputs,
                    plan.n_clamped, at["S"], at["D"], at["V"], at["T"], at["G"], at["scratch"], g,
                )  # fmt: skip
            return part, g, ge

        with announce(gradient_part if blocks is None else blocks_gradient_part, program.dtype):
            results = _run(program, parts_of(last - first, _lanes(program)), n_threads, task)
        for part_loss, g, ge in results:
            loss += part_loss
            entries += g
            block_edges += ge
    total = np.bincount(plan.gradient_ops.eid[: plan.gradient_entries], weights=entries, minlength=plan.n_gradient)
    total = total.astype(np.float64, copy=False)  # an empty count comes as integers
    if blocks is not None:
        total[blocks.eid] += block_edges
    return loss, total


def jacobian(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """Derivative of each output by each edge, `(batch, n_outputs, n_edges)`."""
    from meshnn.kernels._jit import announce
    from meshnn.kernels._row import aligned
    from meshnn.kernels.blocks import blocks_jacobian_part
    from meshnn.kernels.jacobian import jacobian_part

    plan, blocks, block_ops = program.plan, program.plan.blocks, program.plan.block_ops
    w = weights[plan.ops.eid]
    bw = weights[block_ops.eid] if block_ops is not None else None
    J = np.zeros((X.shape[1], plan.n_outputs, plan.n_gradient), program.dtype)
    for first, last, slab in _slabs(X, program.dtype):

        def task(at: Buffers, p: int, begin: int, end: int, slab: Array = slab, J: Array = J[first:last]) -> None:
            if blocks is not None:
                blocks_jacobian_part(
                    plan.ops, plan.forward, block_ops, blocks, w, bw, program.codes, slab, begin, end, plan.n_inputs,
                    plan.n_clamped, at["S"], at["D"], at["store"], J,
                )  # fmt: skip
                return
            if "C" not in at:
                at["C"] = aligned((plan.n_outputs * plan.n_gradient, _lanes(program)), program.dtype)
            jacobian_part(
                plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient, plan.tangents, w, program.codes, slab,
                begin, end, plan.n_inputs, plan.n_clamped, at["S"], at["D"], at["V"], at["T"], at["C"], J,
            )  # fmt: skip

        with announce(jacobian_part if blocks is None else blocks_jacobian_part, program.dtype):
            _run(program, parts_of(last - first, _lanes(program)), n_threads, task)
    return J


def _tensor_samples(
    topology: Topology, ticks: int, codes: NDArray[np.int64], weights: Array, X: Array
) -> Iterator[tuple[int, Array, Array]]:
    """`(sample, outputs, tensor of their derivatives (n, n, n_outputs))` by the paper's algorithm."""
    from meshnn.kernels.activations import activate_all
    from meshnn.kernels.tensor import tensor_jacobian as run

    n, dtype = topology.n_neurons, weights.dtype
    A = np.zeros((n, n), dtype)
    A[topology.src, topology.dst] = weights

    def phi(t: Array) -> tuple[Array, Array]:
        s, slope = t[:, None].copy(), np.empty((n, 1), dtype)
        activate_all(codes, s, slope)
        return s[:, 0], slope[:, 0]

    clamped = np.ones((ticks, topology.n_clamped), dtype)
    for first, last, slab in _slabs(X, dtype):
        for b in range(last - first):
            clamped[:, : topology.n_inputs] = slab[:, b]
            y, P = run(A, clamped, ticks, topology.n_clamped, topology.n_outputs, phi)
            yield first + b, y, P


def tensor_jacobian(
    topology: Topology, ticks: int, codes: NDArray[np.int64], weights: Array, X: Array
) -> Array:
    """`jacobian` by the paper's algorithm."""
    J = np.empty((X.shape[1], topology.n_outputs, topology.n_edges), weights.dtype)
    for b, _, P in _tensor_samples(topology, ticks, codes, weights, X):
        J[b] = P[topology.src, topology.dst].T
    return J


def tensor_gradient(
    topology: Topology,
    ticks: int,
    codes: NDArray[np.int64],
    weights: Array,
    X: Array,
    targets: Targets,
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> tuple[float, NDArray[np.float64]]:
    """`gradient` by the paper's algorithm, for the edges of the graph or any other pairs of neurons."""
    from meshnn.kernels.losses import loss_chunk

    src, dst = (topology.src, topology.dst) if pairs is None else pairs
    total = np.zeros(len(src))
    loss = 0.0
    scratch = np.empty((2, 1), weights.dtype)
    G = np.empty((topology.n_outputs, 1), weights.dtype)
    for b, y, P in _tensor_samples(topology, ticks, codes, weights, X):
        Y = np.ascontiguousarray(y[:, None])
        loss += loss_chunk(
            targets.loss_code, Y, 0, targets.labels, targets.values, targets.share, b, b + 1, G, scratch[0], scratch[1]
        )
        total += P[src, dst] @ G[:, 0]
    return loss, total

"""Runs plans over batches: cuts a batch into slabs, slabs into parts, and hands parts to threads.

A batch is cut the same way whatever the number of threads, each part sums its own gradient, and the parts are added in
order: any number of threads gives the same bits. Threads are Python's own, in kernels that release the GIL, so calls
from several threads at once are safe (Numba's thread pool is not).
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
from meshnn.plan.cost import ROW_BYTES
from meshnn.topology import Topology

__all__ = [
    "AdamState",
    "FullBatch",
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
        buffers["S"][:, plan.n_inputs : plan.n_clamped] = 1  # the bias
        if plan.method in ("factored", "adjoint", "blocks"):
            buffers["V"] = aligned((2, plan.n, L), self.dtype)
            buffers["G"] = aligned((plan.n_outputs, L), self.dtype)
            buffers["scratch"] = aligned((1, L), self.dtype)
            buffers["T"] = aligned((2, plan.n if plan.method == "factored" else 1, L), self.dtype)
        if plan.blocks is not None:
            buffers["store"] = aligned((max(plan.blocks.store_rows, 1), L), self.dtype)
        return buffers


@dataclass(frozen=True)
class Targets:
    """What the outputs are compared with."""

    loss_code: int
    values: Array  # (batch, 1) labels as numbers, or (batch, n_outputs) values
    share: Array  # (batch, 1) each sample's share of the mean


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


def parts_of(size: int, dtype: np.dtype[Any]) -> list[tuple[int, int]]:
    """A slab of `size` samples as up to `PARTS` runs of chunks. Depends on nothing but the size."""
    chunks = chunks_of(size, dtype)
    count = min(PARTS, chunks)
    return [(chunks * p // count, chunks * (p + 1) // count) for p in range(count)]


def chunks_of(size: int, dtype: np.dtype[Any]) -> int:
    """Rows of samples that a batch fills."""
    return -(-size * dtype.itemsize // ROW_BYTES)


def _run(program: Program, size: int, n_threads: int | None, task: Callable[[Buffers, int, int], Any]) -> list[Any]:
    """`task(buffers, first chunk, last chunk)` for every part of a slab, in threads if that pays; results in order."""
    parts = parts_of(size, program.dtype)

    def one(p: int) -> Any:
        buffers = program.borrow()
        try:
            return task(buffers, *parts[p])
        finally:
            program.give_back(buffers)

    wanted = cores() if n_threads is None else n_threads
    worth = size * program.work >= WORTH_A_THREAD
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


def _packed(slab: Array) -> Array:
    """Room for the packed form of samples (T, batch, m)."""
    from meshnn.kernels._row import aligned, lanes

    shape = (slab.shape[0], chunks_of(slab.shape[1], slab.dtype), slab.shape[2], lanes(slab.dtype))
    room: Array = aligned(shape, slab.dtype)
    return room


def _start(kernel: Any, program: Program) -> Any:
    from meshnn.kernels._jit import announce

    return announce(kernel, program.dtype)


def predict(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """Outputs `(batch, n_outputs)`."""
    from meshnn.kernels.forward import pack_part, predict_part

    plan = program.plan
    w = weights[plan.ops.eid]
    out = np.empty((X.shape[1], plan.n_outputs), program.dtype)
    for begin, end, slab in _slabs(X, program.dtype):
        P, Y = _packed(slab), out[begin:end]

        def task(at: Buffers, first: int, last: int, slab: Array = slab, P: Array = P, Y: Array = Y) -> None:
            pack_part(slab, first, last, P)
            predict_part(plan.ops, plan.forward, w, program.codes, P, first, last, at["S"], at["D"], Y)

        with _start(predict_part, program):
            _run(program, end - begin, n_threads, task)
    return out


def states(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """States `(ticks + 1, batch, n_neurons)`."""
    from meshnn.kernels.forward import pack_part, states_part

    plan = program.plan
    w = weights[plan.ops.eid]
    out = np.empty((plan.ticks + 1, X.shape[1], plan.n), program.dtype)
    for begin, end, slab in _slabs(X, program.dtype):
        P = _packed(slab)

        def task(
            at: Buffers,
            first: int,
            last: int,
            slab: Array = slab,
            P: Array = P,
            begin: int = begin,
            end: int = end,
        ) -> None:
            pack_part(slab, first, last, P)
            states_part(
                plan.ops, plan.forward, w, program.codes, P, first, last, at["S"], at["D"], out, begin, end
            )  # fmt: skip

        with _start(states_part, program):
            _run(program, end - begin, n_threads, task)
    return out


def _pack_targets(targets: Targets, begin: int, end: int) -> tuple[Array, Array]:
    """Packed targets and shares of a slab; samples that fill up the last chunk have no share."""
    from meshnn.kernels.forward import pack_part

    packed = []
    for given in (targets.values, targets.share):
        slab = given[None, begin:end]
        P = _packed(slab)
        pack_part(slab, 0, P.shape[1], P)
        packed.append(P)
    y, share = packed
    share.reshape(-1)[end - begin :] = 0
    return y, share


def gradient(
    program: Program, weights: Array, X: Array, targets: Targets, n_threads: int | None
) -> tuple[float, NDArray[np.float64]]:
    """Loss and its gradient `(n_gradient,)`, summed over the batch in float64."""
    from meshnn.kernels.blocks import blocks_gradient_part
    from meshnn.kernels.forward import pack_part
    from meshnn.kernels.gradient import gradient_part

    plan, blocks, block_ops = program.plan, program.plan.blocks, program.plan.block_ops
    w = weights[plan.ops.eid]
    bw = weights[block_ops.eid] if block_ops is not None else None
    n_block_edges = len(blocks.eid) if blocks is not None else 0
    entries = np.zeros(plan.gradient_entries)
    block_edges = np.zeros(n_block_edges)
    loss = 0.0
    for begin, end, slab in _slabs(X, program.dtype):
        P = _packed(slab)
        y, share = _pack_targets(targets, begin, end)

        def task(
            at: Buffers,
            first: int,
            last: int,
            slab: Array = slab,
            P: Array = P,
            y: Array = y,
            share: Array = share,
        ) -> tuple[float, Array, Array]:
            pack_part(slab, first, last, P)
            g = np.empty(plan.gradient_entries, program.dtype)
            ge = np.empty(n_block_edges, program.dtype)
            if blocks is not None:
                part = blocks_gradient_part(
                    plan.ops, plan.forward, plan.back, plan.gradient_ops, plan.gradient, block_ops, blocks, w, bw,
                    program.codes, P, y, share, targets.loss_code, first, last,
                    at["S"], at["D"], at["V"], at["G"], at["scratch"], at["store"], g, ge,
                )  # fmt: skip
            else:
                part = gradient_part(
                    plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient_ops, plan.gradient, plan.tangents,
                    w, program.codes, P, y, share, targets.loss_code, first, last,
                    at["S"], at["D"], at["V"], at["T"], at["G"], at["scratch"], g,
                )  # fmt: skip
            return part, g, ge

        with _start(gradient_part if blocks is None else blocks_gradient_part, program):
            results = _run(program, end - begin, n_threads, task)
        for part_loss, g, ge in results:
            loss += part_loss
            entries += g
            block_edges += ge
    total = np.zeros(plan.n_gradient)
    total += np.bincount(plan.gradient_ops.eid[: plan.gradient_entries], entries, plan.n_gradient)
    if blocks is not None:
        total[blocks.eid] += block_edges
    return loss, total


def jacobian(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """Derivative of each output by each edge, `(batch, n_outputs, n_edges)`."""
    from meshnn.kernels._row import aligned, lanes
    from meshnn.kernels.blocks import blocks_jacobian_part
    from meshnn.kernels.forward import pack_part
    from meshnn.kernels.jacobian import jacobian_part

    plan, blocks, block_ops = program.plan, program.plan.blocks, program.plan.block_ops
    w = weights[plan.ops.eid]
    bw = weights[block_ops.eid] if block_ops is not None else None
    out = np.zeros((X.shape[1], plan.n_outputs, plan.n_gradient), program.dtype)
    for begin, end, slab in _slabs(X, program.dtype):
        P, J = _packed(slab), out[begin:end]

        def task(at: Buffers, first: int, last: int, slab: Array = slab, P: Array = P, J: Array = J) -> None:
            pack_part(slab, first, last, P)
            if blocks is not None:
                blocks_jacobian_part(
                    plan.ops, plan.forward, block_ops, blocks, w, bw, program.codes, P, first, last,
                    at["S"], at["D"], at["store"], J,
                )  # fmt: skip
                return
            if "C" not in at:
                at["C"] = aligned((plan.n_outputs * plan.n_gradient, lanes(program.dtype)), program.dtype)
            jacobian_part(
                plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient, plan.tangents, w, program.codes, P,
                first, last, at["S"], at["D"], at["V"], at["T"], at["C"], J,
            )  # fmt: skip

        with _start(jacobian_part if blocks is None else blocks_jacobian_part, program):
            _run(program, end - begin, n_threads, task)
    return out


def _tensor_samples(
    topology: Topology, ticks: int, codes: NDArray[np.int64], weights: Array, X: Array
) -> Iterator[tuple[int, Array, Array]]:
    """`(sample, outputs, tensor of their derivatives (n, n, n_outputs))` by the paper's algorithm."""
    from meshnn.kernels._row import lanes
    from meshnn.kernels.activations import activate_all
    from meshnn.kernels.tensor import tensor_jacobian as run

    n, dtype = topology.n_neurons, weights.dtype
    A = np.zeros((n, n), dtype)
    A[topology.src, topology.dst] = weights

    def phi(t: Array) -> tuple[Array, Array]:
        s, slope = np.repeat(t[:, None], lanes(dtype), axis=1), np.empty((n, lanes(dtype)), dtype)
        activate_all(codes, s, slope)
        return s[:, 0].copy(), slope[:, 0].copy()

    clamped = np.ones((ticks, topology.n_clamped), dtype)
    for first, last, slab in _slabs(X, dtype):
        for b in range(last - first):
            clamped[:, : topology.n_inputs] = slab[:, b]
            y, P = run(A, clamped, ticks, topology.n_clamped, topology.n_outputs, phi)
            yield first + b, y, P


def tensor_jacobian(topology: Topology, ticks: int, codes: NDArray[np.int64], weights: Array, X: Array) -> Array:
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
    from meshnn.kernels._row import lanes
    from meshnn.kernels.losses import loss_chunk

    L = lanes(weights.dtype)
    src, dst = (topology.src, topology.dst) if pairs is None else pairs
    total = np.zeros(len(src))
    loss = 0.0
    scratch = np.empty((1, L), weights.dtype)
    G = np.empty((topology.n_outputs, L), weights.dtype)
    share = np.zeros((1, L), weights.dtype)
    for b, y, P in _tensor_samples(topology, ticks, codes, weights, X):
        share[0, 0] = targets.share[b, 0]
        rows = np.repeat(y[:, None], L, axis=1), np.repeat(targets.values[b][:, None], L, axis=1)
        loss += loss_chunk(targets.loss_code, *rows, share, G, scratch)
        total += P[src, dst] @ G[:, 0]
    return loss, total


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
    """A batch packed once, to take many training steps on inside compiled code."""

    def __init__(self, program: Program, X: Array, targets: Targets) -> None:
        from meshnn.kernels.forward import pack_part

        slabs = [slab for _, _, slab in _slabs(X, program.dtype)]
        samples = slabs[0] if len(slabs) == 1 else np.concatenate(slabs, axis=1)
        self.program = program
        self.X = _packed(samples)
        pack_part(samples, 0, self.X.shape[1], self.X)
        self.y, self.share = _pack_targets(targets, 0, samples.shape[1])
        self.loss_code = targets.loss_code

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
        from meshnn.kernels.adam import adam_steps_part

        plan, at = self.program.plan, self.program.borrow()
        losses = np.empty(steps)
        w = np.empty(len(plan.ops.eid), weights.dtype)
        g = np.empty(plan.gradient_entries, weights.dtype)
        total = np.empty_like(weights)
        with _start(adam_steps_part, self.program):
            adam_steps_part(
                plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient_ops, plan.gradient, plan.tangents,
                weights, w, self.program.codes, self.X, self.y, self.share, self.loss_code,
                at["S"], at["D"], at["V"], at["T"], at["G"], at["scratch"], g,
                total, state.mean, state.square, state.done, steps, rate, *betas, epsilon, losses,
            )  # fmt: skip
        state.done += steps
        self.program.give_back(at)
        return losses

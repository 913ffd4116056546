"""What a mesh does with a batch: predict, states, gradient, Jacobian."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.engine.batch import Slab, Targets, slabs
from meshnn.engine.program import Buffers, Program
from meshnn.engine.threads import cores, in_threads, parts_of

__all__ = ["Gradient", "evaluate", "gradient", "jacobian", "predict", "run_parts", "states"]

Array = NDArray[Any]

#: Multiply-adds below which a second thread costs more than it brings.
WORTH_A_THREAD = 4_000_000


class Gradient(NamedTuple):
    """A loss and its gradient."""

    loss: float
    hits: float  # share of samples whose largest output is the label's; 0 for squared_error
    grad: NDArray[np.float64]  # (n_gradient,)


def run_parts(
    program: Program, slab: Slab, n_threads: int | None, task: Callable[[Buffers, int, int], Any], kernel: Any
) -> list[Any]:
    """`task(buffers, first chunk, last chunk)` for every part of a slab, in threads if that pays; results in order."""
    parts = parts_of(slab.size, program.dtype, program.work)

    def one(p: int) -> Any:
        buffers = program.borrow()
        try:
            slab.pack(*parts[p])
            return task(buffers, *parts[p])
        finally:
            program.give_back(buffers)

    worth = slab.size * program.work >= WORTH_A_THREAD
    threads = n_threads if n_threads is not None else cores() if worth else 1
    with _announce(kernel, program):
        return in_threads(len(parts), threads, one)


def _announce(kernel: Any, program: Program) -> AbstractContextManager[None]:
    from meshnn.kernels._jit import announce

    return announce(kernel, program.dtype)


def predict(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """Outputs `(batch, n_outputs)`."""
    from meshnn.kernels.forward import predict_part

    plan = program.plan
    w = weights[plan.ops.eid]
    out = np.empty((X.shape[1], plan.n_outputs), program.dtype)
    for slab in slabs(X, None, program.dtype):

        def task(at: Buffers, first: int, last: int, slab: Slab = slab) -> None:
            Y = out[slab.begin : slab.end]
            predict_part(plan.ops, plan.forward, w, program.codes, slab.X, first, last, at["S"], at["D"], Y)

        run_parts(program, slab, n_threads, task, predict_part)
    return out


def states(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """States `(ticks + 1, batch, n_neurons)`."""
    from meshnn.kernels.forward import states_part

    plan = program.plan
    w = weights[plan.ops.eid]
    out = np.empty((plan.ticks + 1, X.shape[1], plan.n), program.dtype)
    for slab in slabs(X, None, program.dtype):

        def task(at: Buffers, first: int, last: int, slab: Slab = slab) -> None:
            states_part(
                plan.ops, plan.forward, w, program.codes, slab.X, first, last, at["S"], at["D"],
                out, slab.begin, slab.end,
            )  # fmt: skip

        run_parts(program, slab, n_threads, task, states_part)
    return out


def evaluate(
    program: Program, weights: Array, X: Array, targets: Targets, n_threads: int | None
) -> tuple[float, float]:
    """Loss and share of hits, without a gradient."""
    from meshnn.kernels.losses import loss_part

    plan = program.plan
    w = weights[plan.ops.eid]
    loss = hits = 0.0
    for slab in slabs(X, targets, program.dtype):

        def task(at: Buffers, first: int, last: int, slab: Slab = slab) -> tuple[float, float]:
            at["scratch"][1] = 0
            part = loss_part(
                plan.ops, plan.forward, w, program.codes, slab.X, slab.y, slab.share, targets.loss_code, first, last,
                at["S"], at["D"], at["G"], at["scratch"],
            )  # fmt: skip
            return part, float(at["scratch"][1].sum())

        for part_loss, part_hits in run_parts(program, slab, n_threads, task, loss_part):
            loss += part_loss
            hits += part_hits
    return loss, hits


def gradient(program: Program, weights: Array, X: Array, targets: Targets, n_threads: int | None) -> Gradient:
    """Loss and its gradient, summed over the batch in float64."""
    from meshnn.kernels.blocks import blocks_gradient_part
    from meshnn.kernels.gradient import gradient_part

    plan, blocks, block_ops = program.plan, program.plan.blocks, program.plan.block_ops
    w = weights[plan.ops.eid]
    bw = weights[block_ops.eid] if block_ops is not None else None
    n_block_edges = len(blocks.eid) if blocks is not None else 0
    entries = np.zeros(plan.gradient_entries)
    block_edges = np.zeros(n_block_edges)
    loss = hits = 0.0
    for slab in slabs(X, targets, program.dtype):

        def task(at: Buffers, first: int, last: int, slab: Slab = slab) -> tuple[float, float, Array, Array]:
            at["scratch"][1] = 0
            g = np.empty(plan.gradient_entries, program.dtype)
            ge = np.empty(n_block_edges, program.dtype)
            if blocks is not None:
                part = blocks_gradient_part(
                    plan.ops, plan.forward, plan.back, plan.gradient_ops, plan.gradient, block_ops, blocks, w, bw,
                    program.codes, slab.X, slab.y, slab.share, targets.loss_code, first, last,
                    at["S"], at["D"], at["V"], at["G"], at["scratch"], at["store"], g, ge,
                )  # fmt: skip
            else:
                part = gradient_part(
                    plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient_ops, plan.gradient, plan.tangents,
                    w, program.codes, slab.X, slab.y, slab.share, targets.loss_code, first, last,
                    at["S"], at["D"], at["V"], at["T"], at["G"], at["scratch"], g,
                )  # fmt: skip
            return part, float(at["scratch"][1].sum()), g, ge

        kernel = gradient_part if blocks is None else blocks_gradient_part
        for part_loss, part_hits, g, ge in run_parts(program, slab, n_threads, task, kernel):
            loss += part_loss
            hits += part_hits
            entries += g
            block_edges += ge
    eid = plan.gradient_ops.eid[: plan.gradient_entries]
    total = np.asarray(np.bincount(eid, entries, plan.n_gradient), dtype=np.float64)  # of nothing it counts integers
    if blocks is not None:
        total[blocks.eid] += block_edges
    return Gradient(loss, hits, total)


def jacobian(program: Program, weights: Array, X: Array, n_threads: int | None) -> Array:
    """Derivative of each output by each edge, `(batch, n_outputs, n_edges)`."""
    from meshnn.kernels._row import aligned, lanes
    from meshnn.kernels.blocks import blocks_jacobian_part
    from meshnn.kernels.jacobian import jacobian_part

    plan, blocks, block_ops = program.plan, program.plan.blocks, program.plan.block_ops
    w = weights[plan.ops.eid]
    bw = weights[block_ops.eid] if block_ops is not None else None
    out = np.zeros((X.shape[1], plan.n_outputs, plan.n_gradient), program.dtype)
    for slab in slabs(X, None, program.dtype):

        def task(at: Buffers, first: int, last: int, slab: Slab = slab) -> None:
            J = out[slab.begin : slab.end]
            if blocks is not None:
                blocks_jacobian_part(
                    plan.ops, plan.forward, block_ops, blocks, w, bw, program.codes, slab.X, first, last,
                    at["S"], at["D"], at["store"], J,
                )  # fmt: skip
                return
            if "C" not in at:
                at["C"] = aligned((plan.n_outputs * plan.n_gradient, lanes(program.dtype)), program.dtype)
            jacobian_part(
                plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient, plan.tangents, w, program.codes,
                slab.X, first, last, at["S"], at["D"], at["V"], at["T"], at["C"], J,
            )  # fmt: skip

        run_parts(program, slab, n_threads, task, jacobian_part if blocks is None else blocks_jacobian_part)
    return out

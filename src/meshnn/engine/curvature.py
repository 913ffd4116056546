"""Gradient and Gauss-Newton matrix of a whole batch, summed over blocks of samples: no Jacobian is ever kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.engine.batch import Slab, Targets, slabs
from meshnn.engine.program import Buffers, Program
from meshnn.engine.run import run_parts
from meshnn.kernels.codes import CROSS_ENTROPY

__all__ = ["Curvature", "columns_of", "curvature"]

Array = NDArray[Any]
#: Columns of R that one product of matrices takes at a time: enough to keep it busy, few enough to stay in the cache.
COLUMNS = 768


class Curvature(NamedTuple):
    """A quadratic model of a loss at some weights."""

    loss: float
    hits: float  # share of samples whose largest output is the label's; 0 for squared_error
    grad: NDArray[np.float64]  # (n_live,)
    matrix: NDArray[np.float64]  # (n_live, n_live) sum of J' H J


def columns_of(loss_code: int, n_outputs: int) -> int:
    """Columns of R that a sample fills."""
    return max(n_outputs - 1, 1) if loss_code == CROSS_ENTROPY else n_outputs


def curvature(
    program: Program, weights: Array, X: Array, targets: Targets, live: NDArray[np.int64], n_threads: int | None
) -> Curvature:
    """The model at `weights`, for the edges `live`; the plan must be one of a Jacobian.

    Parts are added in order, whatever the number of threads. Each multiplies with a single-threaded BLAS if the caller
    limits it to one.
    """
    from meshnn.kernels._row import aligned, lanes
    from meshnn.kernels.curvature import curvature_part

    plan, dtype, L = program.plan, program.dtype, lanes(program.dtype)
    w = weights[plan.ops.eid]
    per_chunk = columns_of(targets.loss_code, plan.n_outputs)
    block = max(1, COLUMNS // (per_chunk * L))  # chunks
    grad, matrix = np.zeros(len(live)), np.zeros((len(live), len(live)))
    loss = hits = 0.0
    for slab in slabs(X, targets, dtype):

        def task(at: Buffers, first: int, last: int, slab: Slab = slab) -> tuple[float, float, Array, Array]:
            if "C" not in at:
                at["C"] = aligned((plan.n_outputs * plan.n_gradient, L), dtype)
            if "P" not in at:
                at["P"] = aligned((plan.n_outputs, L), dtype)
            if "R" not in at or at["R"].shape != (len(live), block * per_chunk * L):
                at["R"] = aligned((len(live), block * per_chunk * L), dtype)
            g, M = np.zeros(len(live), dtype), np.zeros((len(live), len(live)), dtype)
            part = 0.0
            at["scratch"][1] = 0
            for begin in range(first, last, block):
                end = min(begin + block, last)
                R = at["R"]
                if end - begin < block:
                    R[:] = 0  # columns that this block leaves unwritten
                part += curvature_part(
                    plan.ops, plan.forward, plan.back, plan.hops_back, plan.gradient, plan.tangents, w, program.codes,
                    slab.X, slab.y, slab.share, targets.loss_code, begin, end,
                    at["S"], at["D"], at["V"], at["T"], at["G"], at["scratch"], at["P"], at["C"], live, g, R,
                )  # fmt: skip
                M += R @ R.T
            return part, float(at["scratch"][1].sum()), g, M

        for part_loss, part_hits, g, M in run_parts(program, slab, n_threads, task, curvature_part):
            loss += part_loss
            hits += part_hits
            grad += g
            matrix += M
    return Curvature(loss, hits, grad, matrix)

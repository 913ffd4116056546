"""The peak rates of this machine on one thread, and the fraction that a training step reaches."""

import numpy as np

from timing import best_of


def measure(quick=False):
    """Measure a matrix product (numpy, 1024 x 1024 x 1024, float32) and a copy that exceeds all caches."""
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((1024, 1024)).astype(np.float32) for _ in range(2))
    out = np.empty_like(A)
    source = np.ones(64 * 2**20, np.float32)  # 256 MiB
    target = np.zeros_like(source)
    best = best_of(
        {"sgemm": lambda: np.matmul(A, B, out=out), "copy": lambda: np.copyto(target, source)},
        rounds=10 if quick else 30,
    )
    return {"GFLOP/s": 2 * 1024**3 / best["sgemm"] / 1e9, "GB/s": 2 * source.nbytes / best["copy"] / 1e9}


def shares(program, topology, batch, seconds, peak):
    """Return the rates of a step and their fractions of the peaks.

    Operations are those of the plan: two per multiply-add, forward, backward and correlation. Bytes are the minimum per
    step in any order: the batch, the states of every tick (written and read), weights, gradient and both moments of
    Adam. Most of them come from a cache, so the true use of the memory is lower.
    """
    flops = 2.0 * program.plan.cost.multiply_adds * batch / seconds
    edges, states = topology.n_edges, program.plan.ticks * (topology.n_neurons - topology.n_clamped)
    moved = 4.0 * (batch * (topology.n_inputs + topology.n_outputs + 2 * states) + 8 * edges) / seconds
    return {
        "GFLOP/s": flops / 1e9,
        "of sgemm": flops / 1e9 / peak["GFLOP/s"],
        "GB/s": moved / 1e9,
        "of copy": moved / 1e9 / peak["GB/s"],
    }

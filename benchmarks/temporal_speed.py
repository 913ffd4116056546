"""A step of exact influence: dense recurrent nets compared with RTRL in JAX and PyTorch, and a thousand columns."""

import sys
import time

import numpy as np

from meshnn import Mesh, Topology, networks
from peer_rtrl import RATE, with_jax, with_torch
from timing import best_of

D = 8
#: Number of neurons, microseconds of the published torch implementation on two cores, bar of the speed-up.
DENSE = ((16, 185.0, 8.0), (32, 1058.0, 8.0), (64, 3402.0, 5.0), (128, 16840.0, 2.0))
COLUMNS, COLUMNS_BAR = 1000, 60.0


def dense(d, h):
    """Return a fully recurrent net: neurons read inputs, bias and each other, the output reads neurons and bias."""
    first, output = d + 1, d + 1 + h
    pairs = [(i, j) for i in range(output) for j in range(first, output)]
    pairs += [(i, output) for i in (d, *range(first, output))]
    return Topology(d, h, 1, pairs)


def matrices(mesh):
    """Return W (h, h + d + 1) and v (h + 1,) of the peers, which read (h, x, 1) and (h, 1)."""
    t = mesh.topology
    d, output = t.n_inputs, t.n_neurons - 1
    A = np.zeros((t.n_neurons, t.n_neurons), np.float32)
    A[t.src, t.dst] = mesh.weights
    order = [*range(d + 1, output), *range(d), d]
    return A[order, d + 1 : output].T.copy(), A[[*range(d + 1, output), d], output].copy()


def measure(quick=False):
    """Return rows of nets: microseconds per step, and the difference of the outputs of peers with the same training."""
    rng = np.random.default_rng(0)
    rows = []
    for h, published, times in DENSE:
        steps = {16: 500, 32: 200, 64: 40, 128: 10}[h]
        X = rng.standard_normal((steps, D)).astype(np.float32)
        Y = np.roll(X[:, 0], 3)
        mesh = Mesh(dense(D, h), 1, "tanh", random_state=0)
        mesh.weights *= 0.3
        W, v = matrices(mesh)
        stream = mesh.stream("squared_error", "adam", rate=RATE, clip=1e9)
        want = {"torch": with_torch(W, v, X, Y)}
        try:
            want["jax"] = with_jax(W, v, X, Y)
        except ModuleNotFoundError:
            print("*** PEER jax SKIPPED: it is not installed (pip install jax)", file=sys.stderr)
        got = stream.run(X, Y)[:, 0]
        apart = {name: float(np.abs(run() - got).max()) for name, run in want.items()}
        contestants = {"meshnn": lambda s=stream, X=X, Y=Y: s.run(X, Y), **want}
        found = best_of(contestants, rounds=3 if quick else 15)
        microseconds = {name: 1e6 * seconds / steps for name, seconds in found.items()}
        rows.append({
            "net": f"dense {h}", "parameters": mesh.n_parameters, "microseconds": microseconds, "apart": apart,
            "published torch": published, "bar": published / times,
            "multiply-adds": stream.plan.multiply_adds,
            "times": {name: microseconds[name] / microseconds["meshnn"] for name in want},
            "times published": published / microseconds["meshnn"], "wanted": times,
        })  # fmt: skip
    return {"rows": rows, "columns": columns(quick)}


def columns(quick):
    """Measure a thousand neurons with self-loops."""
    mesh = networks.columns(D, COLUMNS, 1, random_state=0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, D)).astype(np.float32)
    Y = np.roll(X[:, :1], 3)
    stream = mesh.stream("squared_error", "adam", ticks_per_sample=1)
    stream.run(X[:2], Y[:2])
    best = float("inf")
    for _ in range(20 if quick else 400):
        start = time.perf_counter()
        stream.run(X, Y)
        best = min(best, time.perf_counter() - start)
    return {
        "columns": COLUMNS,
        "parameters": mesh.n_parameters,
        "microseconds": 1e6 * best / len(X),
        "bar": COLUMNS_BAR,
    }

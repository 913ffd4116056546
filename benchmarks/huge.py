"""Limits of one machine: training steps compared with sparse peers at 1 and 10 million edges, and two larger nets.

    python benchmarks/large.py --huge [--only peers,wide,layered] [--share 1.0]

* peers: gradient and Adam step compared with SciPy's CSR with handwritten backprop and PyTorch's CSR with
  `sampled_addmm`, one thread, batch 64, ticks 2, alternating in one process.
* wide: 1,000,000 hidden neurons with 98 random edges each from 10,000 inputs and 2 to 10 outputs: 100,000,000 edges,
  trained by Adam in batches of 32. Needs 14 GiB.
* layered: 1,800,000 neurons in 5 layers, 20 random edges per neuron, ticks 4: 1000 samples by Adam. Needs 8 GiB.

`--share 0.1` scales the last two to a tenth. They run in separate processes, so that their memory can be measured.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def measure(only=("peers", "wide", "layered"), share=1.0):
    """Return the results by name."""
    return {name: peers() if name == "peers" else _child(name, share) for name in only}


def _child(name, share):
    done = subprocess.run([sys.executable, __file__, name, str(share)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _random_sources(rng, rows, fan_in, sources):
    """Return `fan_in` different sources per row: a random start and random steps, modulo the number of sources."""
    found = np.empty((rows, fan_in), np.int32)
    for begin in range(0, rows, 20_000):
        some = found[begin : begin + 20_000]
        steps = rng.integers(1, sources // fan_in, some.shape, dtype=np.int32)
        some[:] = (np.cumsum(steps, axis=1) + rng.integers(0, sources, (len(some), 1), dtype=np.int32)) % sources
    return found


def wide_topology(hidden, fan_in=98, inputs=10_000, outputs=10, seed=0):
    """Return hidden neurons that read random inputs and feed two outputs each."""
    from meshnn import Topology

    rng, first = np.random.default_rng(seed), np.arange(inputs, inputs + hidden, dtype=np.int32)
    pairs = np.empty((hidden * (fan_in + 2), 2), np.int32)
    into, out = pairs[: hidden * fan_in], pairs[hidden * fan_in :]
    into[:, 0] = _random_sources(rng, hidden, fan_in, inputs).ravel()
    into[:, 1] = np.repeat(first, fan_in)
    one = rng.integers(0, outputs, hidden)
    other = (one + rng.integers(1, outputs, hidden)) % outputs
    out[:, 0], out[:, 1] = np.repeat(first, 2), inputs + hidden + np.stack([one, other], axis=1).ravel()
    return Topology(inputs, hidden, outputs, pairs, bias=False)


def layered_topology(neurons, fan_in=20, layers=5, outputs=10, seed=0):
    """Return random layers of equal size; each neuron of the last layer feeds one of few outputs."""
    from meshnn import Topology

    rng, size = np.random.default_rng(seed), (neurons - outputs) // (layers - 1)
    edges = []
    for layer in range(1, layers - 1):
        source = _random_sources(rng, size, fan_in, size) + np.int32((layer - 1) * size)
        ends = np.arange(layer * size, (layer + 1) * size, dtype=np.int32)
        edges.append(np.stack([source.ravel(), np.repeat(ends, fan_in)], axis=1))
    last = np.arange((layers - 2) * size, (layers - 1) * size, dtype=np.int32)
    edges.append(np.stack([last, (layers - 1) * size + last % outputs], axis=1))
    return Topology(size, (layers - 2) * size, outputs, np.concatenate(edges), bias=False)


# -- the sparse peers --------------------------------------------------------------------------------------------------


def scipy_gradient(t, X, y, weights):
    """Return loss and gradient by SciPy's CSR, two ticks, handwritten backprop; the gradient is in order of (dst, src).

    At two ticks the net is two sparse products. Samples are the last axis, as SciPy's product of CSR with a dense
    matrix requires. The gradient of an edge is the scalar product of two rows, computed in blocks.
    """
    from scipy import sparse

    c, o, n = t.n_clamped, t.n_outputs, t.n_neurons
    hidden = t.dst < n - o
    h = n - c - o
    A = sparse.csr_array((weights[hidden], (t.dst[hidden] - c, t.src[hidden])), shape=(h, c))
    B = sparse.csr_array((weights[~hidden], (t.dst[~hidden] - (n - o), t.src[~hidden] - c)), shape=(o, h))
    rows = [np.repeat(np.arange(M.shape[0]), np.diff(M.indptr)) for M in (A, B)]
    x, batch = np.ascontiguousarray(X.T), len(X)

    def products(row, M, left, right):
        found = np.empty(len(row), np.float32)
        for begin in range(0, len(row), 1 << 16):
            piece = slice(begin, begin + (1 << 16))
            found[piece] = np.einsum("eb,eb->e", left[row[piece]], right[M.indices[piece]])
        return found

    def run():
        A.data[:], B.data[:] = weights[hidden], weights[~hidden]  # weights change in every step
        s = np.maximum(A @ x, 0)
        z = B @ s
        z -= z.max(axis=0)
        p = np.exp(z)
        p /= p.sum(axis=0)
        loss = -np.log(p[y, np.arange(batch)]).mean()
        p[y, np.arange(batch)] -= 1
        p /= batch
        v = (B.T @ p) * (s > 0)
        return float(loss), np.concatenate([products(rows[0], A, v, x), products(rows[1], B, p, s)])

    return run


def peers(sizes=(10_000, 100_000), batch=64, rounds=5):
    """Measure milliseconds per gradient of meshnn and two peers, which must agree, at 1 and 10 million edges."""
    import torch

    import peer_torch
    from meshnn import Mesh
    from nets import data
    from timing import best_of

    torch.set_num_threads(1)
    found = []
    for hidden in sizes:
        t = wide_topology(hidden)
        X, y = data(t.n_inputs, t.n_outputs, batch)
        weights = (np.random.default_rng(1).standard_normal(t.n_edges) * 0.1).astype(np.float32)
        mesh = Mesh(t, 2, weights=weights)
        ways = {
            "meshnn": lambda mesh=mesh, X=X, y=y: mesh.gradient(X, y, n_jobs=1),
            "scipy": scipy_gradient(t, X, y, weights),
            "torch": peer_torch.large_gradient(t, 2, X, y, weights),
        }
        results = {name: way() for name, way in ways.items()}
        loss, grad = results["meshnn"]
        for name, (other, want) in results.items():
            assert abs(loss - other) < 1e-4 * other, (name, loss, other)
            assert np.abs(grad - want).max() < 1e-4 * np.abs(want).max(), name
        best = best_of(ways, rounds=rounds)
        found.append({
            "edges": t.n_edges,
            "milliseconds": {name: seconds * 1e3 for name, seconds in best.items()},
            "times scipy": best["scipy"] / best["meshnn"],
            "times torch": best["torch"] / best["meshnn"],
        })  # fmt: skip
    return found


# -- the largest nets --------------------------------------------------------------------------------------------------


def _train(topology, ticks, batch, samples, epochs, started):
    """Train some epochs with Adam; return seconds to build, seconds per epoch, edge-updates per second, bytes."""
    from meshnn import Mesh
    from meshnn.training import train
    from timing import peak_memory

    mesh = Mesh(topology, ticks, random_state=0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((samples, topology.n_inputs), dtype=np.float32)
    y = rng.integers(0, topology.n_outputs, samples)
    program = mesh.engine("epochs", "auto", batch)
    built = time.perf_counter() - started
    mesh.gradient(X[:batch], y[:batch])  # warm-up
    times, processor = [], time.process_time()
    start = time.perf_counter()
    losses = []
    for row in train(mesh, X, y, solver="adam", batch_size=batch, max_epochs=epochs, l2=0.0, random_state=0):
        losses.append(row.loss)
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
    processor = time.process_time() - processor
    steps = -(-samples // batch)
    return {
        "edges": topology.n_edges,
        "dead": int(mesh.dead_edges().sum()),
        "method": program.plan.method.name,
        "built, s": built,
        "first epoch, s": times[0],
        "processor, s": processor,  # of all epochs: comparable on a busy machine
        "next epochs, s": min(times[1:], default=times[0]),
        "edge-updates per second": topology.n_edges * steps / min(times[1:], default=times[0]),
        "losses": losses,
        "plan, bytes per edge": program.plan.course.ops.nbytes / topology.n_edges,
        "predicted, GiB": program.plan.cost.bytes / 2**30,
        "peak memory, GiB": peak_memory() / 2**30,
    }


def _main(name, share):
    started = time.perf_counter()
    if name == "wide":
        return _train(wide_topology(int(1_000_000 * share)), 2, 32, 96, 3, started)
    return _train(layered_topology(int(1_800_000 * share)), 4, 64, 1000, 1, started)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    print(json.dumps(_main(sys.argv[1], float(sys.argv[2]))))

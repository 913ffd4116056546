"""A million edges: time of planning, first and later gradients, memory; also with a million more edges between hidden.

meshnn runs in a separate process to measure its peak memory: `python large.py EXTRA TICKS METHOD` prints JSON.
`python large.py --huge` runs huge.py instead.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

BATCH = 64


def measure():
    """Return rows for the large graph alone, and with a million edges between hidden neurons at ticks 2 and 3."""
    rows = [_child(0, 2, "auto"), _child(1_000_000, 2, "auto"), _child(1_000_000, 3, "auto")]
    rows += [_child(1_000_000, 3, method) for method in ("factored", "adjoint")]
    return {"rows": rows, "torch": torch_row()}


def _child(extra, ticks, method):
    command = [sys.executable, __file__, str(extra), str(ticks), method]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def torch_row():
    """Compare with the fastest PyTorch implementation, alternating in this process, on a million edges at ticks 2."""
    import numpy as np

    import peer_torch
    from meshnn import Mesh
    from nets import data, initial_weights, large_topology
    from timing import best_of

    topology = large_topology()
    X, y = data(topology.n_inputs, topology.n_outputs, BATCH)
    weights = initial_weights(topology)
    mesh = Mesh(topology, 2, weights=weights)
    peer = peer_torch.large_gradient(topology, 2, X, y, weights)
    want_loss, want = peer()
    loss, got = mesh.gradient(X, y, n_jobs=1)
    scale = np.abs(want).max()
    assert abs(loss - want_loss) < 1e-4 * want_loss, (loss, want_loss)
    assert np.abs(got - want).max() < 1e-4 * scale, "the gradients differ"
    best = best_of({"meshnn": lambda: mesh.gradient(X, y, n_jobs=1), "torch": peer}, rounds=7)
    return {"milliseconds": {k: v * 1e3 for k, v in best.items()}, "times torch": best["torch"] / best["meshnn"]}


def _run(extra, ticks, method):
    from meshnn import Mesh
    from nets import data, initial_weights, large_topology
    from timing import best_of, forget_peak, peak_memory, resident_memory

    imported = resident_memory()
    topology = large_topology(extra)
    X, y = data(topology.n_inputs, topology.n_outputs, BATCH)
    mesh = Mesh(topology, ticks, weights=initial_weights(topology))
    forget_peak()  # excludes temporary arrays of the construction of the graph
    start = time.perf_counter()
    mesh.gradient(X, y, gradient=method, n_jobs=1)
    first = time.perf_counter() - start
    best = best_of({"next": lambda: mesh.gradient(X, y, gradient=method, n_jobs=1)}, rounds=7)["next"]
    explanation = mesh.explain(BATCH)
    return {
        "edges": topology.n_edges,
        "dead": int(mesh.dead_edges().sum()),
        "ticks": ticks,
        "method": method,
        "chosen": explanation.chosen if method == "auto" else method,
        "reason": explanation.reason,
        "methods": [dict(zip(explanation.columns, row, strict=True)) for row in explanation.rows],
        "plan and first gradient, s": first,
        "next gradients, ms": best * 1e3,
        "peak memory over the import, MiB": (peak_memory() - imported) / 2**20,
    }


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    if "--huge" in sys.argv:
        import argparse

        import huge

        parser = argparse.ArgumentParser()
        parser.add_argument("--huge", action="store_true")
        parser.add_argument("--only", default="peers,wide,layered")
        parser.add_argument("--share", type=float, default=1.0)
        options = parser.parse_args()
        print(json.dumps(huge.measure(options.only.split(","), options.share), indent=1))
    else:
        print(json.dumps(_run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))

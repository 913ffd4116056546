"""What a second process brings: epochs on Dask and under torchrun beside threads, one net, one batch size, ratios.

    python benchmarks/cluster.py [--rows 400000] [--hidden 90] [--batch 8192] [--workers 1 2] [--only dask]
    python benchmarks/cluster.py --delay     # the model of docs/clusters.md beside measurements with delayed letters

Epochs are timed from the second row of the history on, so that reading and compiling are not in it; the best of all
epochs counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES = 20


def rows_of(count):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((count, FEATURES), dtype=np.float32)
    score = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * np.abs(X[:, 3]) - 0.4
    return X, (score > 0).astype(np.int64)


def estimator(given):
    from meshnn import MeshClassifier

    return MeshClassifier(given.hidden, solver="adam", l2=1e-6, batch_size=given.batch, tol=0.0, random_state=0,
                          max_epochs=given.epochs, n_threads=given.threads)  # fmt: skip


def figure(model, rows):
    """Rows a second of the best epoch."""
    passed = np.diff(model.history_["seconds"]) / np.diff(model.history_["epoch"])
    return {"rows_a_second": rows / passed.min(), "edges": model.mesh_.topology.n_edges,
            "weights": float(model.mesh_.weights.sum(dtype=np.float64))}  # fmt: skip


def with_threads(given):
    X, y = rows_of(given.rows)
    return figure(estimator(given).fit(X, y), given.rows)


def with_dask(given):
    import dask.array as da
    from distributed import Client, LocalCluster

    X, y = rows_of(given.rows)
    with (
        LocalCluster(n_workers=given.count, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        chunk = -(-given.rows // (4 * given.count))
        model = estimator(given).fit(da.from_array(X, chunks=(chunk, FEATURES)), da.from_array(y, chunks=chunk))
        return figure(model, given.rows)


def with_torch(given):
    from meshnn.integrations.torch_distributed import GroupExchange, fit, together

    if "DELAY_MS" in os.environ:  # letters by gloo that take longer, as between machines
        real, delay = GroupExchange.swap, float(os.environ["DELAY_MS"])

        def late(self, letters):
            time.sleep(delay / 1000)
            return real(self, letters)

        GroupExchange.swap, GroupExchange._board_of = late, lambda self, width: None
    with together() as rank:
        model = fit(estimator(given), given.folder + "/X.npy", given.folder + "/y.npy")
        return figure(model, given.rows) if rank == 0 else None


SIDES = {"threads": with_threads, "dask": with_dask, "torch": with_torch}


def run(given, side, count, folder, environment=None):
    """One side in processes of its own."""
    more = [f"--{name}={getattr(given, name)}" for name in ("rows", "hidden", "batch", "epochs")]
    more += [f"--side={side}", f"--count={count}", f"--folder={folder}"]
    more += [f"--threads={count if side == 'threads' else 1}"]
    start = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}"] if side == "torch" else []
    command = [*(start or [sys.executable]), __file__, *more]
    quiet = os.environ | {"MESHNN_QUIET": "1", "OMP_NUM_THREADS": "1"} | (environment or {})
    found = subprocess.run(command, env=quiet, capture_output=True, text=True)
    lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(found.stderr[-2000:])
    return json.loads(lines[-1])


def delays(given, folder):
    """Rows a second with letters that take longer, and what the model says."""
    alone = run(given, "torch", 1, folder)["rows_a_second"]
    step = given.batch / alone  # seconds of a step of one process
    edges = run(given, "torch", 2, folder, {"DELAY_MS": "0"})
    print(f"one process: {alone:,.0f} rows/s, {1000 * step:.1f} ms a step, {edges['edges']:,} edges")
    free = edges["rows_a_second"]
    own = given.batch / free - step / 2  # what a letter costs here
    print(f"{'delay ms':>9} {'rows/s':>12} {'speedup':>8} {'model':>8}")
    for delay in (0.0, 1.0, 3.0, 10.0, 30.0):
        got = run(given, "torch", 2, folder, {"DELAY_MS": str(delay)})["rows_a_second"]
        model = step / (step / 2 + own + delay / 1000)
        print(f"{delay:9.1f} {got:12,.0f} {got / alone:8.2f} {model:8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--hidden", type=int, default=90)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--delay", action="store_true")
    parser.add_argument("--side", choices=list(SIDES))
    parser.add_argument("--count", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder")
    given = parser.parse_args()
    if given.side:
        found = SIDES[given.side](given)
        if found is not None:
            print(json.dumps(found), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        X, y = rows_of(given.rows)
        np.save(Path(folder) / "X.npy", X)
        np.save(Path(folder) / "y.npy", y)
        if given.delay:
            delays(given, folder)
            return
        for side in given.only:
            first = None
            for count in given.workers:
                began = time.perf_counter()
                r = run(given, side, count, folder)
                first = first or r["rows_a_second"]
                print(
                    f"{side:8s} {count} {r['rows_a_second']:12,.0f} rows/s  {r['rows_a_second'] / first:.2f}x  "
                    f"{r['edges']:,} edges, sum of weights {r['weights']:.12f}, {time.perf_counter() - began:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""Epochs on Dask workers compared with threads: one net, one batch size, rows per second and ratios.

    python benchmarks/cluster.py [--rows 400000] [--hidden 90] [--batch 8192] [--workers 1 2] [--only dask]

Epochs are timed from the second row of the history on, which excludes reading and planning; the best epoch counts.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

FEATURES = 20


def rows_of(count):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((count, FEATURES), dtype=np.float32)
    score = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * np.abs(X[:, 3]) - 0.4
    return X, (score > 0).astype(np.int64)


def estimator(given, n_jobs):
    from meshnn import MeshClassifier

    return MeshClassifier(given.hidden, solver="adam", l2=1e-6, batch_size=given.batch, tol=0.0, random_state=0,
                          max_epochs=given.epochs, n_jobs=n_jobs)  # fmt: skip


def with_threads(given):
    return estimator(given, given.count).fit(*rows_of(given.rows))


def with_dask(given):
    import dask.array as da
    from distributed import Client, LocalCluster

    X, y = rows_of(given.rows)
    with (
        LocalCluster(n_workers=given.count, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        chunk = -(-given.rows // (4 * given.count))
        return estimator(given, 1).fit(da.from_array(X, chunks=(chunk, FEATURES)), da.from_array(y, chunks=chunk))


ENGINES = {"threads": with_threads, "dask": with_dask}


def measure(given):
    """Print the figures of one run in this process."""
    model = ENGINES[given.engine](given)
    seconds = np.diff(model.history_["seconds"]) / np.diff(model.history_["epoch"])
    found = {"rows_per_second": given.rows / seconds.min(), "edges": model.mesh_.topology.n_edges,
             "weights": float(model.mesh_.weights.sum(dtype=np.float64))}  # fmt: skip
    print(json.dumps(found), flush=True)


def run(given, engine, count):
    """Measure one engine in a separate process."""
    options = [f"--{name}={getattr(given, name)}" for name in ("rows", "hidden", "batch", "epochs")]
    command = [sys.executable, __file__, *options, f"--engine={engine}", f"--count={count}"]
    found = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(found.stderr[-2000:])
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--hidden", type=int, default=90)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--engine", choices=list(ENGINES))
    parser.add_argument("--count", type=int)
    given = parser.parse_args()
    if given.engine:
        measure(given)
        return
    for engine in given.only:
        first = None
        for count in given.workers:
            began = time.perf_counter()
            found = run(given, engine, count)
            speed = found["rows_per_second"]
            first = first or speed
            print(
                f"{engine:8s} {count} {speed:12,.0f} rows/s  {speed / first:.2f}x  {found['edges']:,} edges, "
                f"sum of weights {found['weights']:.12f}, {time.perf_counter() - began:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()

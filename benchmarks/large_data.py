"""Out-of-core training: rows per second and resident memory of a fit from Parquet files, compared with data in memory.

    python benchmarks/large_data.py [--rows 20000000] [--folder DIR] [--epochs 2] [--batch 1024] [--hidden 64]

The rows are generated once, in files of a million rows: twenty features and a class that depends non-linearly on them.
Each fit runs in a separate process; times are those of epochs, without reading and planning.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES, PER_FILE = 20, 1_000_000


def rows_of(k, count):
    """Return the rows of file k, which do not depend on the number of files."""
    rng = np.random.default_rng([7, k])
    X = rng.standard_normal((count, FEATURES), dtype=np.float32)
    score = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * np.abs(X[:, 3]) - 0.4
    return X, (score + 0.3 * rng.standard_normal(count) > 0).astype(np.int8)


def make(folder, rows):
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    for k in range(-(-rows // PER_FILE)):
        file, count = folder / f"part-{k:03d}.parquet", min(PER_FILE, rows - k * PER_FILE)
        if not file.exists():
            X, y = rows_of(k, count)
            table = pa.table({**{f"x{i}": X[:, i] for i in range(FEATURES)}, "y": y})
            parquet.write_table(table, file.with_suffix(".part"), compression="snappy")
            file.with_suffix(".part").rename(file)


class Clock:
    """A callback that records the time of each history row and the maximum resident memory."""

    def __init__(self):
        self.at, self.peak = [], 0

    def __call__(self, row, mesh):
        self.at.append((time.perf_counter(), row.epoch))
        now = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
        self.peak = max(self.peak, int(now.split()[1]) // 1024)


def one(given):
    """Run one fit in this process; print a line of JSON."""
    from meshnn import MeshClassifier

    clock = Clock()
    folder = Path(given.folder)
    options = {
        "hidden": given.hidden, "solver": "adam", "l2": 1e-6, "batch_size": given.batch, "tol": 0.0,
        "max_epochs": given.epochs, "random_state": 0, "callbacks": clock, "n_jobs": given.threads,
    }  # fmt: skip
    small = rows_of(999, 5000)
    MeshClassifier(**options | {"max_epochs": 2, "callbacks": None}).fit(*small)  # warm-up
    if given.side == "files":
        begun = time.perf_counter()
        model = MeshClassifier(**options)
        model.fit(folder, "y")
        whole = time.perf_counter() - begun
    else:
        parts = [rows_of(k, min(PER_FILE, given.rows - k * PER_FILE)) for k in range(-(-given.rows // PER_FILE))]
        X, y = np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])
        del parts
        begun = time.perf_counter()
        model = MeshClassifier(**options)
        model.fit(X, y)
        whole = time.perf_counter() - begun
    (start, first), (end, last) = clock.at[0], clock.at[-1]
    X, y = rows_of(1000, 100_000)
    print(json.dumps({
        "side": given.side, "rows_per_second": given.rows * (last - first) / (end - start), "seconds": whole,
        "accuracy": float(np.mean(model.predict(X) == y)), "resident": clock.peak,
        "most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", default=str(Path(tempfile.gettempdir()) / "meshnn-large"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--side", choices=["files", "memory"])
    given = parser.parse_args()
    if given.side:
        one(given)
        return
    given.folder = str(Path(given.folder) / f"{given.rows}")
    make(Path(given.folder), given.rows)
    found = {}
    for side in ("files", "memory"):
        more = [f"--{name}={getattr(given, name)}" for name in ("rows", "folder", "epochs", "batch", "hidden")]
        more += [f"--threads={given.threads}"] * (given.threads is not None)
        command, quiet = [sys.executable, __file__, f"--side={side}", *more], os.environ | {"MESHNN_QUIET": "1"}
        line = subprocess.run(command, env=quiet, stdout=subprocess.PIPE, text=True, check=True).stdout
        found[side] = json.loads(line.splitlines()[-1])
        r = found[side]
        print(
            f"{side:7s} {r['rows_per_second']:12,.0f} rows/s  {r['seconds']:7.1f} s in total  "
            f"accuracy {r['accuracy']:.4f}  resident {r['resident']:,} MiB (at most {r['most']:,})", flush=True,
        )  # fmt: skip
    print(f"files / memory: {found['files']['rows_per_second'] / found['memory']['rows_per_second']:.2f}")


if __name__ == "__main__":
    main()

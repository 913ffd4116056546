"""The two spirals of Lang and Witbrock (1988): the fraction of random initialisations that learn all 194 points.

python benchmarks/two_spirals.py [--starts 100] [--hidden 8 10 12 16] [--jobs 2] [--out FILE]

A mesh of 3 ticks with tanh, one output per class, Levenberg-Marquardt on the cross entropy with a weak penalty, which
bounds the weights once the points on one side are learned. A run that has not learned all points after 3000 iterations
has failed.
"""

import argparse
import json
import os
import time
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is imported
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
from joblib import Parallel, delayed  # noqa: E402

from meshnn import Mesh, Topology  # noqa: E402
from meshnn.training import train  # noqa: E402

#: Hidden neurons: fraction to reach.
TARGETS = {8: 0.20, 10: 0.70, 12: 0.90, 16: 0.99}
TICKS = 3
SETTINGS = {"solver": "lm", "l2": 1e-4, "max_epochs": 3000, "tol": 0.0, "n_jobs": 1}


def points():
    """Return features (194, 2) and classes: 97 points of an inward spiral, and their mirror images."""
    i = np.arange(97)
    angle, r = i * np.pi / 16, 6.5 * (104 - i) / 104
    spiral = np.stack([r * np.sin(angle), r * np.cos(angle)], axis=1)
    return np.concatenate([spiral, -spiral]), np.repeat([1, 0], 97)


def attempt(hidden, start):
    """Run one initialisation; return whether it learned all points, its iterations and its seconds."""
    X, y = points()
    X /= X.std(axis=0)  # the mean is 0
    mesh = Mesh(Topology.mesh(2, hidden, 2), TICKS, "tanh", dtype="float64", random_state=start)
    began = time.perf_counter()
    for row in train(mesh, X, y, **SETTINGS):
        if row.accuracy == 1.0:
            break
    seconds = time.perf_counter() - began
    return bool((mesh.forward(X).argmax(axis=1) == y).all()), row.epoch, seconds


def measure(hidden, starts, jobs):
    """Return a row: fraction of successful starts, iterations and seconds."""
    found = Parallel(n_jobs=jobs)(delayed(attempt)(hidden, start) for start in range(starts))
    success, iterations, seconds = (np.array(column) for column in zip(*found, strict=True))
    return {
        "hidden": hidden,
        "starts": starts,
        "share": float(success.mean()),
        "target": TARGETS.get(hidden),
        "iterations, median of those that succeeded": float(np.median(iterations[success])) if success.any() else None,
        "seconds per start, mean": float(seconds.mean()),
        "seconds per success": float(seconds.sum() / success.sum()) if success.any() else None,
        "failed": np.flatnonzero(~success).tolist(),
    }


def main():
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--hidden", type=int, nargs="+", default=list(TARGETS))
    parser.add_argument(
        "--jobs", type=int, default=1, help="number of processes; more than one increases the measured times"
    )
    parser.add_argument("--out", type=Path, default=None, help="file of the figures, as JSON")
    options = parser.parse_args()
    attempt(options.hidden[0], 0)  # warm-up
    rows = []
    print(f"{options.starts} starts, {SETTINGS}\n")
    print("| hidden | learned all 194 | target | | iterations (median) | s per start | s per success |")
    print("|---|---|---|---|---|---|---|")
    for hidden in options.hidden:
        row = measure(hidden, options.starts, options.jobs)
        rows.append(row)
        if row["target"] is None:
            target, met = "-", "-"
        else:
            target, met = f"{row['target']:.0%}", "ok" if row["share"] >= row["target"] else "MISSED"
        took = [
            "-" if value is None else text.format(value)
            for text, value in (
                ("{:.0f}", row["iterations, median of those that succeeded"]),
                ("{:.2f}", row["seconds per start, mean"]),
                ("{:.2f}", row["seconds per success"]),
            )
        ]
        print(f"| {hidden} | {row['share']:.0%} | {target} | {met} | {' | '.join(took)} |", flush=True)
        if options.out is not None:  # after every size, so that an interrupted run keeps its results
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps({"settings": SETTINGS, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

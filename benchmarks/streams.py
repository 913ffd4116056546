"""Streams, prequential (test, then train): the default models compared with river's, in one run.

    python benchmarks/streams.py [--only sets,speed,hostile,memory] [--peers] [--seeds 5] [--out results/streams.json]

`sets`: the same default settings for all sets. `--peers` adds river's models (minutes: forests take milliseconds per
row). `speed`: one row of 8 features, 16 hidden neurons. `hostile`: ten million rows of extreme data. `memory`: memory
of the process before and after ten million rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from pathlib import Path

import numpy as np

import stream_sets
from meshnn import MeshStreamClassifier, MeshStreamRegressor

#: The bar and the aim: accuracy, or mean absolute error.
BARS = {
    "Bananas": (0.875, 0.885),
    "Phishing": (0.895, 0.912),
    "Elec": (0.912, 0.92),
    "ImageSegments": (0.93, 0.942),
    "TrumpApproval": (0.50, 0.45),
    "ChickWeights": (22.5, 19.2),
}


def ours(task, seed):
    return (MeshStreamRegressor if task == stream_sets.REGRESS else MeshStreamClassifier)(random_state=seed)


def peers(task):
    """Return river's models with default settings, scaled if they require it."""
    from river import ensemble, forest, linear_model, naive_bayes, neighbors, preprocessing, tree

    def scaled(model):
        return preprocessing.StandardScaler() | model

    if task == stream_sets.REGRESS:
        return {
            "AMF": lambda: forest.AMFRegressor(seed=0),
            "ARF": lambda: forest.ARFRegressor(seed=0),
            "HoeffdingTree": lambda: scaled(tree.HoeffdingTreeRegressor()),
            "kNN": lambda: scaled(neighbors.KNNRegressor()),
            "linear": lambda: scaled(linear_model.LinearRegression()),
        }
    return {
        "ARF": lambda: forest.ARFClassifier(seed=0),
        "AMF": lambda: forest.AMFClassifier(seed=0),
        "SRP": lambda: ensemble.SRPClassifier(seed=0),
        "HoeffdingTree": lambda: tree.HoeffdingTreeClassifier(),
        "kNN": lambda: scaled(neighbors.KNNClassifier()),
        "logistic": lambda: scaled(linear_model.LogisticRegression()),
        "naive Bayes": lambda: naive_bayes.GaussianNB(),
    }


def pass_over(model, rows, task, patience=float("inf")):
    """Return mean score (accuracy or absolute error), mean log loss or squared error, microseconds per row, and rows.

    A model that exceeds the time limit `patience` is stopped, and scored on the rows so far.
    """
    total = other = spent = 0.0
    n = 0
    for x, y in rows:
        if spent > patience:
            break
        n += 1
        start = time.perf_counter()
        if task == stream_sets.REGRESS:
            p = model.predict_one(x) or 0.0  # some models predict nothing at first
        else:
            shares = model.predict_proba_one(x)
            p = max(shares, key=shares.get) if shares else None
        model.learn_one(x, y)
        spent += time.perf_counter() - start
        if task == stream_sets.REGRESS:
            total += abs(p - y)
            other += (p - y) ** 2
        else:
            total += p == y
            other -= np.log(max(shares.get(y, 0.0) if shares else 0.0, 1e-15))
    return total / n, other / n, 1e6 * spent / n, n


def sets(args):
    found = []
    for name, (least, aim) in BARS.items():
        data = stream_sets.load(name)
        if data is None:
            continue
        rows, task = list(data.rows()), data.task
        runs = [pass_over(ours(task, seed), rows, task) for seed in range(args.seeds)]
        score = statistics.mean(r[0] for r in runs)
        better = (lambda a, b: a <= b) if task == stream_sets.REGRESS else (lambda a, b: a >= b)
        verdict = "aim met" if better(score, aim) else "met" if better(score, least) else "MISSED"
        spread, other = statistics.pstdev(r[0] for r in runs), statistics.mean(r[1] for r in runs)
        row = {"set": name, "model": "meshnn", "score": score, "spread": spread, "other": other,
               "us": min(r[2] for r in runs), "verdict": verdict}  # fmt: skip
        found.append(row)
        unit, second = ("MAE", "squared error") if task == stream_sets.REGRESS else ("accuracy", "log loss")
        print(f"{name:14s} meshnn        {unit} {score:.4f} +- {row['spread']:.4f}, "
              f"{second} {row['other']:.4g}, {row['us']:.0f} us per row; "
              f"bar {least}, aim {aim}: {verdict}", flush=True)  # fmt: skip
        for peer, make in peers(task).items() if args.peers else ():
            try:
                result = pass_over(make(), rows, task, args.patience)
            except Exception as error:  # the peer does not support these rows
                print(f"{name:14s} {peer:13s} {type(error).__name__}: {error}")
                continue
            found.append(
                {"set": name, "model": peer, "score": result[0], "other": result[1], "us": result[2], "rows": result[3]}
            )
            print(f"{name:14s} {peer:13s} {unit} {result[0]:.4f}, {result[1]:.4g}, {result[2]:.0f} us per row "
                  f"({result[2] / row['us']:.1f} times ours)"
                  f"{'' if result[3] == len(rows) else f', stopped after {result[3]} rows'}"
                  f"{'' if better(score, result[0]) else '  <- better than ours'}", flush=True)  # fmt: skip
    return found


def rows_of_eight(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 8))
    y = (X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.standard_normal(n) > 0).astype(int)
    return X, y


def speed(args):
    """Measure medians of single rows, and whole arrays."""
    X, y = rows_of_eight(20_000)
    rows = [dict(zip("abcdefgh", x, strict=True)) for x in X.tolist()]
    model = MeshStreamClassifier(random_state=0)
    times = []
    for x, label in zip(rows, y.tolist(), strict=True):
        start = time.perf_counter()
        model.predict_one(x)
        model.learn_one(x, label)
        times.append(time.perf_counter() - start)
    median = 1e6 * statistics.median(times[2000:])
    model = MeshStreamClassifier(random_state=0)
    model.learn_one(rows[0], int(y[0]))
    best = 1e9
    for k in range(0, len(X), 500):  # short blocks, some of which run while the machine is idle
        start = time.perf_counter()
        model.stream_.run(X[k : k + 500], y[k : k + 500].astype(float))
        best = min(best, 1e6 * (time.perf_counter() - start) / 500)
    print(f"learn_one + predict_one, 8 features, 16 hidden: median {median:.1f} us (bar 40, aim 25)")
    print(f"run on arrays: {best:.1f} us per row (bar 12)", flush=True)
    result = {"median_us": median, "run_us": best}
    try:
        from river import forest
    except ImportError:
        return result
    forest_ = forest.ARFClassifier(seed=0)
    spent = []
    for x, label in zip(rows[:600], y[:600].tolist(), strict=True):
        start = time.perf_counter()
        forest_.predict_one(x)
        forest_.learn_one(x, label)
        spent.append(time.perf_counter() - start)
    result["arf_us"] = 1e6 * statistics.median(spent[100:])
    times_ours = result["arf_us"] / median
    print(f"river's ARF, same rows: median {result['arf_us']:.0f} us, {times_ours:.0f} times ours (bar 20)")
    return result


def hostile_rows(rng, n):
    """Return a block of extreme rows: jumps, constants, missing values, long runs of one class."""
    X, y = rng.standard_normal((n, 4)), np.zeros(n)
    kind = int(rng.integers(5))
    if kind == 0:
        X *= 1e6
        y[:] = X[:, 0] > 0
    elif kind == 1:
        X[:] = rng.standard_normal(4)
        y[:] = rng.integers(2)
    elif kind == 2:
        X[rng.random(X.shape) < 0.5] = np.nan
        y[rng.random(n) < 0.5] = np.nan
    elif kind == 3:
        y[:] = rng.integers(2)
    else:
        X[rng.random(X.shape) < 0.01] = 1e6
        y[:] = rng.random(n) < 0.5
    return X, y


def clean_rows(rng, n):
    X = rng.standard_normal((n, 4))
    return X, (X[:, 0] * X[:, 1] + 0.5 * X[:, 2] > 0).astype(float)


def hostile(args):
    """Measure the accuracy on clean rows after ten million extreme ones, against a model without them."""
    rng = np.random.default_rng(0)
    X, y = clean_rows(rng, 20_000)
    scores = {}
    for name, million in (("without", 0), ("after hostile rows", args.millions)):
        model = MeshStreamClassifier(random_state=0)
        model.learn_one(dict(enumerate(X[0].tolist())), 0)
        model.learn_one(dict(enumerate(X[1].tolist())), 1)
        stream, bad = model.stream_, np.random.default_rng(1)
        start = time.perf_counter()
        for _ in range(int(million * 20)):
            out = stream.run(*hostile_rows(bad, 50_000))
            assert np.isfinite(out).all()
        assert np.isfinite(model.mesh_.weights).all()
        spent = time.perf_counter() - start
        right = (stream.run(X, y)[:, 0] > 0) == y
        scores[name] = (float(right[:5000].mean()), float(right[10_000:].mean()))
        print(f"{name} ({million} million rows, {spent:.0f} s): accuracy on the first 5,000 clean rows "
              f"{scores[name][0]:.4f}, on the last 10,000 {scores[name][1]:.4f}", flush=True)  # fmt: skip
    gap = scores["without"][1] - scores["after hostile rows"][1]
    print(f"difference {gap:+.4f} (bar 0.01): {'met' if gap <= 0.01 else 'MISSED'}")
    return scores


def memory(args):
    """Measure the memory of the process during ten million rows."""
    model = MeshStreamClassifier(random_state=0)
    X, y = rows_of_eight(50_000)
    model.learn_one(dict(zip("abcdefgh", X[0].tolist(), strict=True)), 0)
    stream, blocks = model.stream_, int(args.millions * 20)
    for _ in range(3):
        stream.run(X, y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(blocks):
        stream.run(X, y)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{blocks * 50_000:,} rows: the process grew by {grown:.2f} MiB (bar 1): {'met' if grown < 1 else 'MISSED'}")
    return {"grown_mib": grown}


SECTIONS = {"sets": sets, "speed": speed, "hostile": hostile, "memory": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=60.0, help="time limit of a peer per set, in seconds")
    parser.add_argument("--millions", type=float, default=10.0, help="millions of rows, for hostile and memory")
    parser.add_argument("--out", default="results/streams.json")
    args = parser.parse_args()
    results = {}
    for name in args.only.split(","):
        print(f"== {name}", flush=True)
        results[name] = SECTIONS[name](args)
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(args.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

"""Test scores of variants of the default settings on small tables and synthetic sets.

python benchmarks/defaults.py --quick          # 3 splits
python benchmarks/defaults.py --only l2        # one group of variants
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_blobs,
    make_circles,
    make_friedman1,
    make_moons,
)
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from meshnn import MeshClassifier, MeshRegressor
from meshnn.tables.synthetic import spirals
from meshnn.training import SGD, Adam

SETS = {
    "iris": lambda seed: load_iris(return_X_y=True),
    "wine": lambda seed: load_wine(return_X_y=True),
    "breast": lambda seed: load_breast_cancer(return_X_y=True),
    "digits": lambda seed: load_digits(return_X_y=True),
    "diabetes": lambda seed: load_diabetes(return_X_y=True),
    "friedman": lambda seed: make_friedman1(500, noise=0.5, random_state=seed),
    "moons": lambda seed: make_moons(1000, noise=0.1, random_state=seed),
    "circles": lambda seed: make_circles(1000, noise=0.1, factor=0.5, random_state=seed),
    "blobs": lambda seed: make_blobs(1000, centers=[(-4, 0), (4, 1), (0, 6)], cluster_std=[1.0, 2.5, 0.5],
                                     random_state=seed),
    "spirals": lambda seed: spirals(1000, random_state=seed),
}  # fmt: skip

GROUPS = {
    "l2": [{"l2": v} for v in ("auto", 0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)],
    "hidden": [{"hidden": v} for v in (4, 8, 16, 32)],
    "early": [{}, {"early_stopping": True}, {"early_stopping": True, "n_restarts": 3}, {"n_restarts": 3}],
    "adam": [{"solver": Adam(learning_rate=r), "batch_size": b} for r in (0.003, 0.01, 0.03) for b in ("auto", 32)],
    "adam l2": [{"solver": "adam", "l2": v} for v in (0.0, 1e-5, 1e-4, 1e-3, 1e-2)],
    "schedule": [{"solver": Adam(schedule=s)} for s in ("cosine", "linear", "constant")],
    "sgd": [{"solver": SGD(learning_rate=r)} for r in (0.01, 0.03, 0.1)],
    "activation": [{"activation": a} for a in ("tanh", "relu", "sigmoid", "sin", "elu")],
    "ticks": [{"ticks": k} for k in (2, 3, 4)],
    "solver": [{"solver": "lm"}, {"solver": "adam"}, {"solver": "sgd"}],
}


def score(name, options, seed):
    X, y = SETS[name](seed)
    regression = name in ("diabetes", "friedman")
    a, b, c, d = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=None if regression else y)
    if options == "sklearn":
        kind = MLPRegressor if regression else MLPClassifier
        model = make_pipeline(StandardScaler(), kind((16,), random_state=seed))
    else:
        kind = MeshRegressor if regression else MeshClassifier
        model = kind(random_state=seed, n_jobs=1, **options)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(a, c)
    return model.score(b, d), time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--sets", nargs="*", choices=list(SETS), default=list(SETS))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    splits = 3 if options.quick else options.splits
    rows = {}
    for group in [*options.only, "peer"]:
        variants = GROUPS.get(group, ["sklearn"])
        print(f"\n| {group} | " + " | ".join(options.sets) + " | mean | s |")
        print("|---|" + "---|" * (len(options.sets) + 2))
        for variant in variants:
            text = (
                ", ".join(f"{k}={v}" for k, v in variant.items()) or "defaults" if variant != "sklearn" else "MLP (16,)"
            )
            cells, seconds = [], 0.0
            for name in options.sets:
                if isinstance(variant, dict) and variant.get("solver") == "lm" and name == "digits":
                    cells.append((np.nan, 0))  # skipped: takes minutes
                    continue
                found = np.array([score(name, variant, seed) for seed in range(splits)])
                cells.append((found[:, 0].mean(), found[:, 1].mean()))
                seconds += found[:, 1].mean()
                print(f"  {text} {name} {cells[-1][0]:.4f} {cells[-1][1]:.2f} s", end="\r", file=sys.stderr)
            means = [m for m, _ in cells]
            rows[f"{group}: {text}"] = dict(zip(options.sets, means, strict=True))
            shown = " | ".join(f"{m:.3f}" for m in means)
            print(f"| {text} | {shown} | {np.nanmean(means):.4f} | {seconds:.1f} |", flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

"""The default estimators on many tables (noise, outliers, few rows, many columns, rare classes), compared with peers.

python benchmarks/tables.py --jobs 2                    # all; every result is cached in results/tables-cache.json
python benchmarks/tables.py --models meshnn --tuning    # meshnn alone, peers from the cache
python benchmarks/tables.py --models meshnn --params '{"l2": 0.01}' --only noise,wine --seeds 1

All models use default settings and the same five folds (stratified for classes), shuffled per seed. A figure is
computed from the predictions of all folds of a seed, then averaged over seeds. Everything uses one thread. Seconds are
processor time per `fit`. A model that fails is listed and counts as the worst.
"""

# ruff: noqa: E402 - threads are set before NumPy is imported

import os

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_threads] = "1"  # before NumPy is imported, here and in the worker processes

import argparse
import json
import sys
import time
import traceback
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
import sklearn
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy.stats import rankdata
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from xgboost import XGBClassifier, XGBRegressor

import meshnn
import real_tables
import table_sets
from meshnn import MeshClassifier, MeshRegressor
from table_sets import CLASSIFY, HELD_OUT, REGRESS

FOLDS = 5
MODELS = ("meshnn", "CatBoost", "LightGBM", "XGBoost", "HistGB", "RF", "SVM", "MLP", "linear")
#: Packages of the boosting libraries.
BOOSTING = {"CatBoost": "catboost", "LightGBM": "lightgbm", "XGBoost": "xgboost-cpu"}
#: Maximum number of rows for probabilities of a support vector machine, which take five more fits.
PROBABLE_ROWS = 3000
#: Maximum number of training rows of a support vector machine, whose time grows with their square.
SVM_ROWS = 6000
LEAST = 1e-6  # probabilities are clipped here before the logarithm
BINS = 10
CACHE = Path(__file__).parents[1] / "results" / "tables-cache.json"


# --- measuring -----------------------------------------------------------------------------------------------------


def make(model, task, seed, params, words=()):
    """Return the estimator of this name with default settings; `words` are the names of the text columns."""
    classes = task == CLASSIFY
    if model == "meshnn":
        return (MeshClassifier if classes else MeshRegressor)(**{"n_jobs": 1, "random_state": seed} | params)
    if model == "CatBoost":
        quiet = {"random_seed": seed, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
        return (CatBoostClassifier if classes else CatBoostRegressor)(**quiet, cat_features=list(words) or None)
    if model == "LightGBM":
        return (LGBMClassifier if classes else LGBMRegressor)(random_state=seed, n_jobs=1, verbose=-1)
    if model == "XGBoost":
        return (XGBClassifier if classes else XGBRegressor)(random_state=seed, n_jobs=1, enable_categorical=True)
    if model == "HistGB":
        return (HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor)(random_state=seed)
    if model == "RF":
        return (RandomForestClassifier if classes else RandomForestRegressor)(random_state=seed, n_jobs=1)
    if model == "MLP":
        inner = (MLPClassifier if classes else MLPRegressor)(random_state=seed)
    elif model == "linear":
        inner = LogisticRegression(max_iter=1000) if classes else Ridge()
    else:
        inner = SVC() if classes else SVR()
    return make_pipeline(StandardScaler(), inner)


def measure(name, model, seed, params):
    """Return the figures of one model on one table with the folds of one seed, or an error."""
    table = table_sets.load(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # default settings of MLP and linear may not converge
            return _folds(table, model, seed, params)
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def _folds(table, model, seed, params):
    X, y, words = table.X, table.y, real_tables.texts(table.X) if table.real else ()
    X = real_tables.prepared(model, X) if table.real else X

    def rows(chosen):
        return X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]

    classes = table.task == CLASSIFY
    splitter = (StratifiedKFold if classes else KFold)(FOLDS, shuffle=True, random_state=seed)
    probable = classes and (model != "SVM" or len(X) <= PROBABLE_ROWS)
    guess = np.empty(len(X), dtype=y.dtype)
    chance = np.zeros((len(X), y.max() + 1)) if probable else None
    splits, seconds, walls = list(splitter.split(X, y)), [], []
    for train, test in splits:
        if model == "SVM" and len(train) > SVM_ROWS:
            train = np.sort(np.random.default_rng(seed).permutation(train)[:SVM_ROWS])
        fitted, took, wall = _timed(make(model, table.task, seed, params, words), rows(train), y[train])
        seconds.append(took)
        walls.append(wall)
        guess[test] = np.ravel(fitted.predict(rows(test)))  # CatBoost returns a column
        if probable:
            if model == "SVM":
                fitted = make_pipeline(StandardScaler(), SVC(probability=True, random_state=seed))
                fitted.fit(rows(train), y[train])
            chance[np.ix_(test, fitted.classes_.astype(int))] = fitted.predict_proba(rows(test))
    if seconds[0] > 1.5 * max(seconds[1:]):  # the first fit of a process includes imports
        train = splits[0][0]
        _, seconds[0], walls[0] = _timed(make(model, table.task, seed, params, words), rows(train), y[train])
    found = {"seconds": seconds, "wall": walls}
    if not np.isfinite(guess).all() or (probable and not np.isfinite(chance).all()):
        raise FloatingPointError("a prediction is not finite")
    if not classes:
        spread = np.sum((table.truth - table.truth.mean()) ** 2)
        return found | {"r2": float(1 - np.sum((table.truth - guess) ** 2) / spread)}
    found["accuracy"] = float(np.mean(guess == y))
    return found | (_probabilities(chance, y) if probable else {})


def _timed(estimator, X, y):
    wall, begin = time.perf_counter(), time.process_time()
    estimator.fit(X, y)
    return estimator, time.process_time() - begin, time.perf_counter() - wall


def _probabilities(chance, y):
    """Return log loss, and the calibration error in ten bins of the highest probability."""
    assert np.allclose(chance.sum(axis=1), 1, atol=1e-4), "probabilities must add up to 1"
    own = np.clip(chance[np.arange(len(y)), y], LEAST, 1 - LEAST)
    top, hit = chance.max(axis=1), chance.argmax(axis=1) == y
    place = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = [abs(np.sum(top[place == k]) - np.sum(hit[place == k])) for k in range(BINS)]
    return {"loss": float(-np.log(own).mean()), "ece": float(sum(gaps) / len(y)), "confidence": float(top.mean())}


# --- cache ---------------------------------------------------------------------------------------------------------


@cache
def sources():
    """Return a checksum of the source of meshnn."""
    files = sorted(path for path in Path(meshnn.__file__).parent.rglob("*") if path.suffix in (".py", ".hpp", ".cpp"))
    return zlib.crc32(b"".join(path.read_bytes() for path in files))


def key(name, model, seed, params):
    """Return a key that depends on the folds, the numbers in the table and the versions of the libraries."""
    table = table_sets.load(name)
    X = pd.util.hash_pandas_object(table.X).to_numpy() if table.real else table.X
    numbers = zlib.crc32(table.truth.tobytes(), zlib.crc32(table.y.tobytes(), zlib.crc32(X.tobytes())))
    versions = f"sklearn {sklearn.__version__}, numpy {np.__version__}, scipy {scipy.__version__}"
    if model == "meshnn":
        versions = f"meshnn {sources():08x} {json.dumps(params, sort_keys=True)}"
    if model in BOOSTING:
        versions = f"{BOOSTING[model]} {version(BOOSTING[model])}"
    return f"{name} {table.size} {numbers:08x} | {model} | seed {seed} of {FOLDS} folds | {versions}"


def read_cache(path):
    return json.loads(path.read_text()) if path.exists() else {}


def write_cache(path, new):
    """Add results to the current file, which several runs may share."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(read_cache(path) | new, indent=0, sort_keys=True))
    beside.replace(path)


def run(names, models, seeds, jobs, params, cache_path):
    """Return figures by (table, model, seed); those of `models` are computed if they are not in the cache."""
    stored = read_cache(cache_path)
    found, wanted = {}, []
    for seed in seeds:
        for name in names:
            for model in MODELS:
                known = stored.get(key(name, model, seed, params))
                if known is not None:
                    found[name, model, seed] = known
                elif model in models:
                    wanted.append((name, model, seed))
    wanted.sort(key=_cost)
    new, begin = {}, time.perf_counter()
    for done, (what, result) in enumerate(_results(wanted, jobs, params), 1):
        found[what] = result
        if "error" not in result:
            new[key(*what, params)] = result
            write_cache(cache_path, new)
        _progress(done, len(wanted), begin, what, result)
    return found


def _cost(what):
    """Sort by seed, then small tables before large ones, with the widest table last."""
    size = table_sets.load(what[0]).X.size
    return size > 1_000_000, what[2], size


def _results(wanted, jobs, params):
    if jobs == 1:
        for what in wanted:
            yield what, measure(*what, params)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(measure, *what, params): what for what in wanted}
        for future in as_completed(running):
            yield running[future], future.result()


def _progress(done, total, begin, what, result):
    line = f"{done}/{total} {time.perf_counter() - begin:.0f} s: {what[0]}, {what[1]}, seed {what[2]}"
    if "error" in result:
        print(f"*** FAILED {line}: {result['error']}", file=sys.stderr)
    elif sys.stderr.isatty():
        print(f"\r{line:<90}", end="" if done < total else "\n", file=sys.stderr)
    elif done % 50 == 0 or done == total:
        print(line, file=sys.stderr)


# --- summary -------------------------------------------------------------------------------------------------------


def summary(found, names, seeds):
    """Return means over seeds by table and model. One failure counts; a model with a missing seed is omitted."""
    rows = {}
    for name in names:
        rows[name] = {}
        for model in MODELS:
            parts = [found[name, model, seed] for seed in seeds if (name, model, seed) in found]
            if len(parts) < len(seeds):
                continue
            error = next((part["error"] for part in parts if "error" in part), None)
            if error is not None:
                rows[name][model] = {"error": error}
                continue
            means = {k: float(np.mean([part[k] for part in parts])) for k in parts[0] if k not in ("seconds", "wall")}
            every = np.concatenate([part["seconds"] for part in parts])
            rows[name][model] = means | {"seconds": float(every.mean()), "most seconds": float(every.max())}
    return rows


#: Figure: whether more is better, and the value of a failure.
FIGURES = {"accuracy": (True, -np.inf), "loss": (False, np.inf), "r2": (True, -np.inf)}


def _figure(row, figure):
    """Return the figure, the worst value for a failure, None if it is missing."""
    return FIGURES[figure][1] if "error" in row else row.get(figure)


def ranks(rows, names, figure):
    """Return the mean rank by model over the tables, 1 is best, among the models that have the figure."""
    places = {model: [] for model in MODELS}
    for name in names:
        have = {m: v for m, row in rows[name].items() if (v := _figure(row, figure)) is not None}
        sign = -1 if FIGURES[figure][0] else 1
        order = rankdata([np.round(sign * v, 6) for v in have.values()])
        for model, place in zip(have, order, strict=True):
            places[model].append(float(place))
    return {model: (float(np.mean(p)), len(p)) for model, p in places.items() if p}


class Bars:
    """The bars and where they are missed."""

    def __init__(self, rows):
        self.rows = rows
        self.found = []

    def add(self, what, misses, judged):
        self.found.append({"bar": what, "met": not misses, "misses": misses, "judged": judged})

    def rank(self, names, figure):
        means = ranks(self.rows, names, figure)
        if "meshnn" not in means or len(means) < 3:
            return
        order = sorted(means, key=lambda model: means[model][0])
        place = order.index("meshnn") + 1
        listed = ", ".join(f"{model} {means[model][0]:.2f}" for model in order)
        self.add(f"mean rank of {figure} first or second of {len(order)}",
                 [] if place <= 2 else [f"place {place}: {listed}"], f"place {place}")  # fmt: skip

    def beside(self, names, figure, what, fails):
        """Compare with the better of MLP and linear."""
        more, misses, judged = FIGURES[figure][0], [], 0
        for name in names:
            values = {
                m: _figure(self.rows[name][m], figure) for m in ("meshnn", "MLP", "linear") if m in self.rows[name]
            }
            ours = values.pop("meshnn", None)
            if ours is None or not values:
                continue
            judged += 1
            better = (max if more else min)(values.values())
            if fails(ours, better):
                others = ", ".join(f"{m} {v:.4f}" for m, v in values.items())
                misses.append(f"{name} {table_sets.load(name).size}: {ours:.4f}, {others}")
        self.add(what, misses, f"{judged} tables")

    def limit(self, names, get, most, what):
        """Require that the figure `get` of meshnn is at most `most`."""
        rows = {name: self.rows[name]["meshnn"] for name in names if "meshnn" in self.rows[name]}
        values = {name: np.inf if "error" in row else get(row) for name, row in rows.items()}
        if values:
            highest = max(values.values())
            misses = [f"{name} {table_sets.load(name).size}: {v:.3f}" for name, v in values.items() if not v <= most]
            self.add(what, misses, f"highest {highest:.3f}")


def judge(rows, names):
    classes, figures = ([n for n in names if table_sets.load(n).task == task] for task in (CLASSIFY, REGRESS))
    bars = Bars(rows)
    slack = 1e-9
    if classes:
        bars.rank(classes, "accuracy")
        bars.rank(classes, "loss")
        bars.beside(classes, "accuracy", "accuracy at most 0.01 below the better of MLP and linear",
                    lambda ours, better: ours < better - 0.01 - slack)  # fmt: skip
        bars.beside(classes, "loss", "log loss at most 10% above the better of MLP and linear",
                    lambda ours, better: ours > 1.1 * better + slack)  # fmt: skip
        noise = [name for name in classes if name == "noise"]
        bars.limit(noise, lambda row: row["loss"], 0.72, "pure noise: log loss at most 0.72")
        bars.limit(noise, lambda row: row["confidence"], 0.6, "pure noise: mean confidence at most 0.6")
        errors = [np.inf if "error" in r else r["ece"] for n in classes if (r := rows[n].get("meshnn"))]
        if errors:
            mean = float(np.mean(errors))
            bars.add("mean calibration error at most 0.05", [] if mean <= 0.05 else [f"{mean:.4f}"], f"{mean:.4f}")
    if figures:
        bars.rank(figures, "r2")
        bars.beside(figures, "r2", "R2 at most 0.02 below the better of MLP and ridge",
                    lambda ours, better: ours < better - 0.02 - slack)  # fmt: skip
    small = [n for n in names if (X := table_sets.load(n).X).shape[0] <= 5000 and X.shape[1] <= 50]
    bars.limit(small, lambda row: row["seconds"], 2.0, "mean seconds per fit at most 2, tables up to 5000x50")
    wide = [name for name in names if name == "wide"]
    bars.limit(wide, lambda row: row["seconds"], 3.0, "wide 402x10000: mean seconds per fit at most 3")
    bars.limit(wide, lambda row: 1 - row["accuracy"], 0.2, "wide 402x10000: error rate at most 0.20 (accuracy 0.80)")
    return bars.found


# --- printing ------------------------------------------------------------------------------------------------------


def report(rows, names, seeds, markdown):
    for task, figures, title in (
        (CLASSIFY, ("accuracy", "loss"), "accuracy, log loss, seconds per fit"),
        (REGRESS, ("r2",), "R2, seconds per fit"),
    ):
        chosen = [name for name in names if table_sets.load(name).task == task]
        if not chosen:
            continue
        models = [m for m in MODELS if any(m in rows[name] for name in chosen)]
        body = [[name + (" (h)" if name in HELD_OUT else ""), table_sets.load(name).size,
                 *_cells(rows[name], models, figures)] for name in chosen]  # fmt: skip
        print(f"\n{title}; mean of {len(seeds)} x {FOLDS} folds; * best, (h) held out\n")
        _print_table(["table", "size", *models], body, markdown)
        print("\nmean ranks (1 is best) and means\n")
        _print_table(["", *models], list(_footer(rows, chosen, models, figures, task)), markdown)
    if any(table_sets.load(name).X.shape[0] * (FOLDS - 1) / FOLDS > SVM_ROWS for name in names):
        print(f"\nSVM is trained on a sample of {SVM_ROWS} rows of larger tables.")
    print(f"SVM has probabilities up to {PROBABLE_ROWS} rows only; ranks of log loss omit it on larger tables.")
    for name in names:
        for model, row in rows[name].items():
            if "error" in row:
                print(f"FAILED, counted as the worst: {model} on {name}: {row['error']}")


def _cells(row, models, figures):
    best = {}
    for figure in figures:
        values = [v for r in row.values() if (v := _figure(r, figure)) is not None]
        best[figure] = (max if FIGURES[figure][0] else min)(values) if values else None
    for model in models:
        if model not in row:
            yield "-"
        elif "error" in row[model]:
            yield "FAILED"
        else:
            shown = [_number(row[model].get(figure), best[figure]) for figure in figures]
            yield " ".join([*shown, f"{row[model]['seconds']:6.2f}"])


def _number(value, best):
    if value is None:
        return f"{'-':>6} "
    return f"{value:6.3f}{'*' if abs(value - best) < 5e-7 else ' '}"


def _footer(rows, names, models, figures, task):
    for figure in figures:
        means = ranks(rows, names, figure)
        yield [f"mean rank, {figure}", *(f"{means[m][0]:.2f} of {means[m][1]}" if m in means else "-" for m in models)]
    rest = ("accuracy", "loss", "ece", "confidence", "seconds") if task == CLASSIFY else ("r2", "seconds")
    for figure in (*rest, "most seconds"):
        cells = []
        for model in models:
            values = [v for name in names if (v := rows[name].get(model, {}).get(figure)) is not None]
            take = max if figure == "most seconds" else np.mean
            cells.append(f"{take(values):.3f} of {len(values)}" if values else "-")
        yield [("" if figure == "most seconds" else "mean ") + figure, *cells]


def _print_table(head, body, markdown):
    if markdown:
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
        for line in body:
            print("| " + " | ".join(" ".join(cell.split()) for cell in line) + " |")
        return
    widths = [max(len(line[k]) for line in [head, *body]) for k in range(len(head))]
    for line in [head, *body]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def report_bars(bars, markdown):
    print("\nbars\n")
    for bar in bars:
        mark = "pass" if bar["met"] else "MISS"
        count = f"; {len(bar['misses'])} missed" if bar["misses"] else ""
        print(f"{'- ' if markdown else ''}{mark}  {bar['bar']} ({bar['judged']}{count})")
        for miss in bar["misses"]:
            print(f"{'  - ' if markdown else '        '}{miss}")


def _arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of tables, separated by commas")
    parser.add_argument("--tasks", choices=(CLASSIFY, REGRESS))
    parser.add_argument(
        "--models", default=",".join(MODELS), help="models to run; all results come from the cache if it has them"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--params", type=json.loads, default={}, help="keyword arguments of meshnn's estimators, as JSON"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--held-out", action="store_true", help="only the held-out tables")
    which.add_argument("--tuning", action="store_true", help="only the other tables")
    parser.add_argument("--cache", type=Path, default=CACHE, help="cache of results")
    parser.add_argument("--json", type=Path, help="file of all figures, as JSON")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the tables and stop")
    return parser.parse_args(argv)


def main(argv=None):
    options = _arguments(argv)
    known = table_sets.names()
    names = table_sets.names(options.tasks)
    models = options.models.split(",")
    asked = options.only.split(",") if options.only else names
    if unknown := [n for n in asked if n not in known] + [m for m in models if m not in MODELS]:
        sys.exit(f"unknown: {', '.join(unknown)}; models are {', '.join(MODELS)}, tables {', '.join(known)}")
    names = [name for name in names if name in asked]
    if options.held_out or options.tuning:
        names = [name for name in names if (name in HELD_OUT) == options.held_out]
    complete = len(names)
    names = [name for name in names if table_sets.load(name) is not None]
    if options.list:
        for name in names:
            table = table_sets.load(name)
            print(f"{name:<22}{table.task:<10}{table.size:<12}{'held out' if name in HELD_OUT else ''}")
        return
    seeds = range(options.seeds)
    found = run(names, models, seeds, options.jobs, options.params, options.cache)
    rows = summary(found, names, seeds)
    bars = judge(rows, names)
    report(rows, names, seeds, options.markdown)
    report_bars(bars, options.markdown)
    if len(names) < complete:
        print(f"\n*** {complete - len(names)} TABLES SKIPPED: install the extra `bench`")
    if options.json:
        every = [{"table": n, "model": m, "seed": s} | row for (n, m, s), row in found.items()]
        out = {"params": options.params, "tables": rows, "bars": bars, "runs": every}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()

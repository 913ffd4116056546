"""Whole fits of the estimators: time compared with JAX and scikit-learn, accuracy compared with the paper.

Every row has a figure, its bar and whether it is met. All models use one thread and the same splits.
"""

import time
import warnings

import numpy as np
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import peer_jax
from meshnn import MeshClassifier, Topology
from meshnn.tables.synthetic import spirals
from meshnn.training import Adam
from nets import initial_weights
from timing import best_of

EPOCHS = 1000
#: Number of hidden neurons: accuracy in the paper, and the bar.
SPIRALS = {5: (0.75, 0.95), 7: (0.95, 0.985), 10: (0.94, 0.995), 15: (0.99, 0.995)}


def measure(quick=False):
    """Return rows (what, figure, bar, met, beside) and all measured values, by part."""
    parts = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the iterations of MLPClassifier are limited
        for name, part in (
            ("full batches", _full_batches),
            ("digits", _digits),
            ("spirals", _spirals),
            ("iris", _iris),
        ):
            parts[name] = part(quick)
    return parts


def _row(what, figure, beside="", least=None, most=None):
    met = (least is None or figure >= least) and (most is None or figure <= most)
    wanted = f">= {least:g}" if least is not None else f"<= {most:g}"
    return {"what": what, "figure": float(figure), "bar": wanted, "met": bool(met), "beside": beside}


def _split(X, y, seed):
    """Return training features and labels, then those of the test set."""
    a, b, c, d = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    return a, c, b, d


def _full_batches(quick):
    X, y, _, _ = _split(*spirals(1000, random_state=0), 0)
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    topology = Topology.mesh(2, 5, 2)
    weights = initial_weights(topology)
    options = {"hidden": 5, "ticks": 2, "activation": "relu", "solver": Adam(1e-3, "constant"), "batch_size": None,
               "tol": 0.0, "max_epochs": EPOCHS, "l2": 0.0, "n_jobs": 1, "random_state": 0}  # fmt: skip
    _check_same_training(options, topology, X, y, weights)
    ours = MeshClassifier(**options)
    inside = []

    def fit():
        inside.append(ours.fit(X, y).history_[-1].seconds)

    contestants = {"meshnn": fit}
    for way in peer_jax.WAYS:
        contestants[f"jax {way}"] = peer_jax.trainer(way, topology, 2, X, y, weights, EPOCHS)
    best = best_of(contestants, rounds=3 if quick else 10, calls=5)
    fastest = min((v, k) for k, v in best.items() if k != "meshnn")
    beside = (
        f"fit {best['meshnn'] * 1e3:.1f} ms, of which {min(inside) * 1e3:.1f} in epochs; "
        f"{fastest[1]} {fastest[0] * 1e3:.1f} ms"
    )
    what = f"fit over JAX, {EPOCHS} full-batch epochs of 3-5-2, 700 samples"
    return {
        "rows": [_row(what, best["meshnn"] / fastest[0], beside, most=0.5)],
        "seconds": best,
        "in epochs, s": min(inside),
    }


def _check_same_training(options, topology, X, y, weights):
    """Check that the estimator and JAX reach the same loss from the same weights."""
    plain = MeshClassifier(**options | {"standardize": False, "warm_start": True})
    plain.fit(X, y).mesh_.weights = weights
    got = plain.set_params(max_epochs=100).fit(X, y).history_[-1].loss
    want = float(peer_jax.trainer("masked", topology, 2, X, y, weights, 101)()[-1])  # the loss before the last step
    assert abs(got - want) < 1e-4 * want, f"the contestants do not train the same net: {got}, {want}"


def _digits(quick):
    """64-32-10, mini-batches of 32, 30 epochs; pixels divided by 16 for both."""
    X, y = load_digits(return_X_y=True)
    X, seeds = X / 16, range(2 if quick else 5)
    common = {"mesh": Topology.layered([64, 32, 10]), "activation": "relu", "batch_size": 32,
              "max_epochs": 30, "tol": 0.0, "l2": 1e-4, "standardize": False, "n_jobs": 1}  # fmt: skip
    ways = {
        "rate 0.001, constant": lambda seed: MeshClassifier(
            **common, solver=Adam(learning_rate=0.001, schedule="constant"), random_state=seed
        ),
        "default rate and schedule": lambda seed: MeshClassifier(**common, solver="adam", random_state=seed),
        "MLPClassifier": lambda seed: MLPClassifier(
            (32,), batch_size=32, max_iter=30, n_iter_no_change=31, tol=0.0, random_state=seed
        ),
    }
    accuracy = {name: [] for name in ways}
    seconds = dict.fromkeys(ways, float("inf"))
    for seed in seeds:
        train_X, train_y, test_X, test_y = _split(X, y, seed)
        models = {name: make(seed) for name, make in ways.items()}
        fits = {name: lambda model=model: model.fit(train_X, train_y) for name, model in models.items()}  # noqa: B023
        for name, took in best_of(fits, rounds=1 if quick else 3).items():
            seconds[name] = min(seconds[name], took)
            accuracy[name].append(models[name].score(test_X, test_y))
    mean = {name: float(np.mean(values)) for name, values in accuracy.items()}
    rows = []
    for name in list(ways)[:2]:
        peer = seconds["MLPClassifier"]
        beside = f"{seconds[name] * 1e3:.0f} ms, MLPClassifier {peer * 1e3:.0f} ms"
        rows.append(_row(f"digits in batches of 32, {name}: times faster", peer / seconds[name], beside, least=5))
        beside = f"{mean[name]:.4f}, MLPClassifier {mean['MLPClassifier']:.4f}, mean of {len(seeds)}"
        rows.append(
            _row(
                f"digits in batches of 32, {name}: accuracy gained", mean[name] - mean["MLPClassifier"], beside, least=0
            )
        )
    return {"rows": rows, "seconds": seconds, "accuracy": accuracy}


def _spirals(quick):
    """Measure the default estimator, with only `hidden` set, at 3 ticks."""
    rows, found, seeds = [], {}, range(3 if quick else 10)
    MeshClassifier(hidden=5, ticks=3, max_epochs=1).fit(*spirals(20, random_state=0))  # warm-up
    for hidden, (paper, least) in SPIRALS.items():
        accuracy, seconds = [], []
        for seed in seeds:
            train_X, train_y, test_X, test_y = _split(*spirals(1000, random_state=seed), seed)
            model = MeshClassifier(hidden=hidden, ticks=3, n_jobs=1, random_state=seed)
            start = time.perf_counter()
            model.fit(train_X, train_y)
            seconds.append(time.perf_counter() - start)
            accuracy.append(model.score(test_X, test_y))
        beside = f"paper {paper}; worst {min(accuracy):.4f}, mean of {len(seeds)}"
        rows.append(_row(f"spirals, {hidden} hidden: test accuracy", np.mean(accuracy), beside, least=least))
        rows.append(
            _row(f"spirals, {hidden} hidden: slowest fit, s", max(seconds), f"mean {np.mean(seconds):.2f}", most=3)
        )
        found[hidden] = {"accuracy": accuracy, "seconds": seconds}
    return {"rows": rows, "found": found}


def _iris(quick):
    """Measure 10 hidden neurons; peers use standardised features of the same splits."""
    X, y = load_iris(return_X_y=True)
    makers = {
        "meshnn": lambda seed: MeshClassifier(hidden=10, n_jobs=1, random_state=seed),
        "LogisticRegression": lambda seed: LogisticRegression(max_iter=1000),
        "LDA": lambda seed: LinearDiscriminantAnalysis(),
        "SVC": lambda seed: SVC(),
        "MLPClassifier": lambda seed: MLPClassifier((10,), max_iter=1000, random_state=seed),
    }
    # The difficulty of ten splits varies more than the methods differ: hence two sets of ten splits, and one of forty.
    sets = {
        "ten splits of StratifiedShuffleSplit": list(
            StratifiedShuffleSplit(10, test_size=0.3, random_state=0).split(X, y)
        ),
        "ten splits of train_test_split": [_rows_of_split(y, seed) for seed in range(10)],
    }
    if not quick:
        sets["forty splits of train_test_split"] = [_rows_of_split(y, seed) for seed in range(40)]
    rows, found = [], {}
    for what, splits in sets.items():
        accuracy = {name: [] for name in makers}
        for seed, (train, test) in enumerate(splits):
            for name, make in makers.items():
                model = make(seed) if name == "meshnn" else make_pipeline(StandardScaler(), make(seed))
                accuracy[name].append(model.fit(X[train], y[train]).score(X[test], y[test]))
        mean = {name: float(np.mean(values)) for name, values in accuracy.items()}
        beside = ", ".join(f"{name} {value:.4f}" for name, value in mean.items() if name != "meshnn")
        rows.append(_row(f"iris, 10 hidden, {what}: test accuracy", mean["meshnn"], beside, least=0.965))
        found[what] = accuracy
    return {"rows": rows, "accuracy": found}


def _rows_of_split(y, seed):
    return train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=seed)

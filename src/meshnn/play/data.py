"""The samples of `meshnn play`: the paper's five sets, iris, digits, a stream with drift, and tables."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import known, switch, whole_number
from meshnn.arrays import FloatArray
from meshnn.errors import DataError
from meshnn.estimators.scaling import Scaling
from meshnn.losses import loss_named
from meshnn.play.limits import LIMITS
from meshnn.tables import synthetic
from meshnn.tables.encoder import Encoder
from meshnn.tables.names import with_origin
from meshnn.tables.reader import read_table
from meshnn.tables.target import target_column

__all__ = ["SETS", "PlayData", "PlayTable", "built_in", "drift"]


@dataclass(frozen=True)
class BuiltInSet:
    """A built-in data set."""

    title: str
    hidden: int  # neurons of the first net
    make: Callable[..., Any]  # function of random_state
    paper: str = ""  # the accuracy in the paper, as text
    figure: float | None = None  # the accuracy in the paper
    features: tuple[str, ...] = ("x", "y")
    classes: tuple[str, ...] = ()


def _of_sklearn(name: str, random_state: int) -> Any:
    """Return the samples of a data set in scikit-learn."""
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)


def drift(n_samples: int, begin: int = 0, random_state: int = 0) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return samples `begin`, `begin + 1`, ... of a stream with two classes, whose border rotates.

    A turn takes 20,000 samples. A sample depends only on its number and the seed.

    >>> from meshnn.play.data import drift
    >>> bool((drift(10, 90)[0] == drift(100)[0][90:]).all())
    True
    """
    block, numbers = 100, np.arange(begin, begin + n_samples)
    parts = []
    for k in range(begin // block, (begin + max(n_samples, 1) - 1) // block + 1):
        parts.append(np.random.default_rng([random_state, 7, k]).uniform(-1.7, 1.7, (block, 2)))
    X = np.concatenate(parts)[begin % block :][:n_samples]
    angle = 2 * np.pi * numbers / 20_000
    side = X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle)
    return X, (side + 0.5 * np.sin(3 * (X[:, 1] * np.cos(angle) - X[:, 0] * np.sin(angle))) > 0).astype(np.int64)


SETS = {
    "moons": BuiltInSet("Moons", 5, synthetic.moons, "1.00 with 5 hidden neurons", 1.0),
    "circles": BuiltInSet("Circles", 5, synthetic.circles, "1.00 with 5 hidden neurons", 1.0),
    "spirals": BuiltInSet(
        "Spirals", 10, synthetic.spirals, "0.94 ± 0.04 with 10 hidden neurons, 0.75 ± 0.08 with 5", 0.94
    ),
    "blobs": BuiltInSet("Single blobs", 5, synthetic.blobs, "1.00 with 5 hidden neurons", 1.0),
    "double-blobs": BuiltInSet("Double blobs", 5, synthetic.double_blobs, "1.00 with 5 hidden neurons", 1.0),
    "iris": BuiltInSet(
        "Iris", 10, partial(_of_sklearn, "iris"), "0.97 ± 0.016 with 10 hidden neurons", 0.97,
        ("sepal length", "sepal width", "petal length", "petal width"), ("setosa", "versicolor", "virginica"),
    ),
    "digits": BuiltInSet(
        "Digits", 12, partial(_of_sklearn, "digits"), features=tuple(f"pixel {k // 8},{k % 8}" for k in range(64))
    ),
    "drift": BuiltInSet("Stream with drift", 6, partial(drift, 1000, 0)),
}  # fmt: skip


@dataclass(frozen=True)
class PlayData:
    """Samples after preprocessing, and their meaning."""

    name: str  # of a built-in set, or "table"
    title: str
    task: str  # classify or regress
    X: FloatArray
    y: NDArray[Any]
    test_X: FloatArray  # noqa: N815
    test_y: NDArray[Any]
    raw: FloatArray  # (n, n_features) training, then test samples before preprocessing
    scaling: Scaling
    features: tuple[str, ...]
    classes: tuple[Any, ...]  # empty for a regression
    hidden: int
    seed: int
    paper: str = ""
    figure: float | None = None
    notes: tuple[str, ...] = ()
    encoder: Encoder | None = None
    target: str = ""

    @property
    def loss(self) -> str:
        """The loss."""
        return "cross_entropy" if self.task == "classify" else "squared_error"

    @property
    def n_features(self) -> int:
        """The number of inputs of the net."""
        return len(self.features)

    @property
    def n_outputs(self) -> int:
        """The number of outputs of the net."""
        return len(self.classes) if self.task == "classify" else 1

    @property
    def streams(self) -> bool:
        """Whether the samples are an endless stream."""
        return self.name == "drift"


@dataclass
class PlayTable:
    """A table, read as by `meshnn fit`; its target can be changed."""

    name: str
    text: str | None  # the text if it is small enough for a link
    table: Any
    notes: list[str]
    target: str = ""
    impute: bool = False
    drop: list[str] = field(default_factory=list)
    from_file: bool = False  # from the command line, so that the page needs its text

    @classmethod
    def read(cls, path: Path) -> PlayTable:
        """Read a file."""
        loaded, text = read_table(path), None
        if path.suffix.lower() in (".csv", ".tsv") and path.stat().st_size <= LIMITS.kept_text:
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        return cls(path.name, text, loaded.table, list(loaded.notes), from_file=True)

    @classmethod
    def parse(cls, name: Any, text: Any) -> PlayTable:
        """Read the text of a .csv or .tsv file that the page has sent."""
        if not isinstance(name, str) or not isinstance(text, str):
            raise DataError("a table needs a name and text; choose a .csv file")
        short = PurePath(name.replace("\\", "/")).name[-80:] or "table.csv"
        if not short.lower().endswith((".csv", ".tsv")):
            raise DataError(f"{short} is not a .csv or .tsv file; save the table as one, or pass it to meshnn play")
        if len(text) > LIMITS.text:
            raise DataError(
                f"{short} has {len(text):,} characters, expected at most {LIMITS.text:,}; take fewer rows, or fit it "
                f"with meshnn fit {short}"
            )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / short
            file.write_bytes(text.encode())
            try:
                found = cls.read(file)
            except DataError as error:  # show the original file name
                raise DataError(str(error).replace(str(file), short)) from None
        notes = [note.replace(str(file), short) for note in found.notes]
        return replace(found, text=text, table=with_origin(found.table, short), notes=notes, from_file=False)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.table.column_names)

    def with_choices(self, given: Mapping[str, Any]) -> PlayTable:
        """Return the table with another target, other columns to drop, or filled gaps."""
        target, drop, impute = given.get("target", ""), given.get("drop", []), given.get("impute", False)
        if not isinstance(target, str) or not isinstance(drop, list) or not all(isinstance(c, str) for c in drop):
            raise DataError("target and drop must be names of columns")
        return replace(self, target=target, drop=drop, impute=switch("impute", impute), from_file=False)

    def samples(self, seed: int) -> PlayData:
        """Return the samples; the default target is the last column."""
        target = self.target or self.columns[-1]
        table, notes = self.table, list(self.notes)
        if table.num_rows > LIMITS.rows:
            rows = np.sort(np.random.default_rng(seed).choice(table.num_rows, LIMITS.rows, replace=False))
            notes.append(f"{self.name} has {table.num_rows:,} rows; {LIMITS.rows:,} of them, drawn at random, are used")
            table = table.take(rows)
        goal = target_column(table, target)
        encoder = Encoder.learn(goal.table, target, self.drop, self.impute)
        encoded = encoder.encode(goal.table)
        names = encoder.feature_names
        if len(names) > LIMITS.features:
            raise DataError(
                f"{self.name} has {len(names):,} features, expected at most {LIMITS.features}; drop columns, "
                f"or fit it with meshnn fit {self.name} --target {target}"
            )
        notes += [*goal.notes, *encoder.noted(), *encoded.notes]
        hidden = int(np.clip(400 // (len(names) + 8), 4, 10))
        look = BuiltInSet(self.name, hidden, drift, features=tuple(names))
        more = {"notes": tuple(notes), "encoder": encoder, "target": target}
        return _prepared("table", look, encoded.X, goal.values, goal.task, seed, **more)


def built_in(name: str, seed: int) -> PlayData:
    """Return a built-in data set."""
    chosen = SETS[known("data set", name, SETS)]
    seed = whole_number("seed", seed, least=0, most=2**32 - 1)
    X, y = chosen.make(random_state=seed)
    y = np.array(chosen.classes)[y] if chosen.classes else y
    return _prepared(name, chosen, np.asarray(X, np.float64), y, "classify", seed)


def _prepared(
    name: str, chosen: BuiltInSet, X: FloatArray, y: NDArray[Any], task: str, seed: int, **more: Any
) -> PlayData:
    """Split the rows into 70% for training and 30% for the test, and scale them."""
    from sklearn.model_selection import train_test_split

    title, classes, stratify = chosen.title, tuple[Any, ...](), None
    if task == "classify":
        found, y = np.unique(y, return_inverse=True)
        classes, y = tuple(found.tolist()), y.astype(np.int64)
        if len(classes) < 2:
            raise DataError(f"{title}: the target has only one class, {classes[0]!r}; choose another target")
        stratify = y if min(np.bincount(y)) >= 2 and len(y) * 0.3 >= len(classes) else None
    else:
        y = np.asarray(y, np.float64)[:, None]
    if len(y) < 5:
        raise DataError(f"{title} has {len(y)} rows, expected at least 5 for training and test; add rows")
    train_X, test_X, train_y, test_y = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=stratify)
    loss = loss_named("cross_entropy" if task == "classify" else "squared_error")
    scaling = Scaling.learn(train_X, train_y, None, True, loss)
    return PlayData(
        name, title, task, scaling.inputs(train_X), scaling.targets(train_y), scaling.inputs(test_X),
        scaling.targets(test_y), np.concatenate([train_X, test_X]), scaling, chosen.features, classes, chosen.hidden,
        seed, chosen.paper, chosen.figure, **more,
    )  # fmt: skip

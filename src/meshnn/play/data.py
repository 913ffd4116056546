"""What there is to learn: the paper's five sets, iris, digits, a stream with drift, and tables."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import known, real_number, whole_number
from meshnn.errors import DataError
from meshnn.estimators.scaling import Scaling
from meshnn.losses import loss_named
from meshnn.tables import synthetic
from meshnn.tables.encoder import Encoder
from meshnn.tables.names import SOURCE
from meshnn.tables.reader import read_table
from meshnn.tables.target import target_column

__all__ = ["MOST_TEXT", "SETS", "PlayData", "Table", "built_in", "drift"]

F64 = NDArray[np.float64]
#: Bytes of a table that comes through the page, rows that are looked at, and features a graph can be drawn of.
MOST_TEXT, MOST_ROWS, MOST_FEATURES = 5_000_000, 20_000, 300
#: Bytes of a table from the command line that the page is told whole, so that its links can hold it.
MOST_KEPT = 200_000
#: Samples after which the border of the drifting stream has turned once.
TURN = 20_000


@dataclass(frozen=True)
class Known:
    """A set by name."""

    title: str
    hidden: int  # neurons to begin with
    paper: str = ""  # what the paper reports
    figure: float | None = None  # the same as a number
    make: Callable[..., Any] | None = None


def _iris(random_state: int) -> Any:
    from sklearn.datasets import load_iris

    return load_iris(return_X_y=True)


def _digits(random_state: int) -> Any:
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def drift(n_samples: int, begin: int = 0, random_state: int = 0) -> tuple[F64, NDArray[np.int64]]:
    """Samples of a stream, from number `begin` on: two classes whose border turns slowly.

    A sample depends on its number and the seed alone, so that any piece of the stream can be made again.

    >>> from meshnn.play.data import drift
    >>> bool((drift(10, 90)[0] == drift(100)[0][90:]).all())
    True
    """
    block, numbers = 100, np.arange(begin, begin + n_samples)
    parts = []
    for k in range(begin // block, (begin + max(n_samples, 1) - 1) // block + 1):
        parts.append(np.random.default_rng([random_state, 7, k]).uniform(-1.7, 1.7, (block, 2)))
    X = np.concatenate(parts)[begin % block :][:n_samples]
    angle = 2 * np.pi * numbers / TURN
    side = X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle)
    return X, (side + 0.5 * np.sin(3 * (X[:, 1] * np.cos(angle) - X[:, 0] * np.sin(angle))) > 0).astype(np.int64)


def _drift(random_state: int) -> Any:
    return drift(1000, 0, random_state)


SETS = {
    "moons": Known("Moons", 5, "1.00 with 5 hidden neurons", 1.0, synthetic.moons),
    "circles": Known("Circles", 5, "1.00 with 5 hidden neurons", 1.0, synthetic.circles),
    "spirals": Known("Spirals", 10, "0.94 ± 0.04 with 10 hidden neurons, 0.75 ± 0.08 with 5", 0.94, synthetic.spirals),
    "blobs": Known("Single blobs", 5, "1.00 with 5 hidden neurons", 1.0, synthetic.blobs),
    "double-blobs": Known("Double blobs", 5, "1.00 with 5 hidden neurons", 1.0, synthetic.double_blobs),
    "iris": Known("Iris", 10, "0.97 ± 0.016 with 10 hidden neurons", 0.97, _iris),
    "digits": Known("Digits", 12, make=_digits),
    "drift": Known("Stream with drift", 6, make=_drift),
}


@dataclass(frozen=True)
class PlayData:
    """Samples as the net sees them, and what they mean."""

    name: str
    title: str
    task: str  # classify or regress
    X: F64
    y: NDArray[Any]
    test_X: F64  # noqa: N815
    test_y: NDArray[Any]
    raw: F64  # (n, n_features) of train, then test, as they were given
    scaling: Scaling
    features: tuple[str, ...]
    classes: tuple[Any, ...]  # of a classification
    hidden: int
    seed: int
    paper: str = ""
    figure: float | None = None
    notes: tuple[str, ...] = ()
    encoder: Encoder | None = None
    target: str = ""

    @property
    def loss(self) -> str:
        """What the net is judged by."""
        return "cross_entropy" if self.task == "classify" else "squared_error"

    @property
    def n_outputs(self) -> int:
        """Of the net."""
        return len(self.classes) if self.task == "classify" else 1

    @property
    def streams(self) -> bool:
        """Whether samples never end."""
        return self.name == "drift"


@dataclass
class Table:
    """A table that was handed in, read as `meshnn fit` reads one; what to predict may be changed."""

    name: str
    text: str | None  # if it is small enough to go into a link
    table: Any
    notes: list[str]
    target: str = ""
    impute: bool = False
    drop: list[str] = field(default_factory=list)
    told: bool = False  # whether the page is to be told the text, which it has not sent itself

    @classmethod
    def read(cls, path: Path) -> Table:
        """From a file."""
        loaded, text = read_table(path), None
        if path.suffix.lower() in (".csv", ".tsv") and path.stat().st_size <= MOST_KEPT:
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        return cls(path.name, text, loaded.table, list(loaded.notes), told=True)

    @classmethod
    def parse(cls, name: str, text: str) -> Table:
        """From what the page has sent; its name is told in messages and says what the file is."""
        short = PurePath(name.replace("\\", "/")).name[-80:] or "table.csv"
        if not short.lower().endswith((".csv", ".tsv")):
            raise DataError(f"{short} is not a .csv or .tsv file; save the table as one, or pass it to meshnn play")
        if len(text) > MOST_TEXT:
            raise DataError(
                f"{short} has {len(text):,} characters, expected at most {MOST_TEXT:,}; take fewer rows, or learn it "
                f"with meshnn fit {short}"
            )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"table{PurePath(short).suffix.lower()}"
            file.write_bytes(text.encode())
            try:
                loaded = read_table(file)
            except DataError as error:  # in the name that the user knows
                raise DataError(str(error).replace(str(file), short).replace(file.name, short)) from None
        table = loaded.table.replace_schema_metadata((loaded.table.schema.metadata or {}) | {SOURCE: short.encode()})
        notes = [note.replace(str(file), short).replace(file.name, short) for note in loaded.notes]
        return cls(short, text, table, notes)

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self.table.column_names)

    def chosen(self, seed: int) -> PlayData:
        """The samples, with the target that is set: the last column, unless another was asked for."""
        target = self.target or self.columns[-1]
        table, notes = self.table, list(self.notes)
        if table.num_rows > MOST_ROWS:
            rows = np.sort(np.random.default_rng(seed).choice(table.num_rows, MOST_ROWS, replace=False))
            notes.append(f"{self.name} has {table.num_rows:,} rows: {MOST_ROWS:,}, drawn at random, are looked at")
            table = table.take(rows)
        goal = target_column(table, target)
        encoder = Encoder.learn(goal.table, target, self.drop, self.impute)
        encoded = encoder.encode(goal.table)
        names = encoder.feature_names
        if len(names) > MOST_FEATURES:
            raise DataError(
                f"{self.name} has {len(names):,} features, expected at most {MOST_FEATURES} to be drawn; drop columns, "
                f"or learn it with meshnn fit {self.name} --target {target}"
            )
        notes += [*goal.notes, *encoder.noted(), *encoded.notes]
        hidden = int(np.clip(400 // (len(names) + 8), 4, 10))
        return _prepared(
            "table", self.name, encoded.X, goal.values, goal.task, tuple(names), hidden, seed, notes=tuple(notes),
            encoder=encoder, target=target,
        )  # fmt: skip


def built_in(name: str, seed: int) -> PlayData:
    """A set by its name."""
    item = SETS[known("data set", name, SETS)]
    seed = whole_number("seed", seed, least=0, most=2**32 - 1)
    assert item.make is not None
    X, y = item.make(random_state=seed)
    X = np.asarray(X, np.float64)
    if name == "iris":
        features: tuple[str, ...] = ("sepal length", "sepal width", "petal length", "petal width")
        classes: Any = np.array(["setosa", "versicolor", "virginica"])
        y = classes[y]
    elif name == "digits":
        features = tuple(f"pixel {k // 8},{k % 8}" for k in range(64))
    else:
        features = ("x", "y")
    return _prepared(name, item.title, X, y, "classify", features, item.hidden, seed, item.paper, item.figure)


def _prepared(
    name: str, title: str, X: F64, values: NDArray[Any], task: str, features: tuple[str, ...], hidden: int, seed: int,
    paper: str = "", figure: float | None = None, notes: tuple[str, ...] = (), encoder: Encoder | None = None,
    target: str = "",
) -> PlayData:  # fmt: skip
    """Split in two, seven rows of ten to learn from, and scaled."""
    from sklearn.model_selection import train_test_split

    classify = task == "classify"
    classes: tuple[Any, ...] = ()
    y: NDArray[Any] = np.asarray(values, np.float64)[:, None] if not classify else values
    if classify:
        found, y = np.unique(values, return_inverse=True)
        classes, y = tuple(found.tolist()), y.astype(np.int64)
        if len(classes) < 2:
            raise DataError(f"{title}: the target has one class only, {classes[0]!r}; choose another one")
    least = min(np.bincount(y)) if classify else 2
    fits = least >= 2 and len(y) * 0.3 >= max(len(classes), 1)
    if len(y) < 5:
        raise DataError(f"{title} has {len(y)} rows, expected at least 5 to learn from and to test on; add rows")
    train_X, test_X, train_y, test_y = train_test_split(
        X, y, test_size=0.3, random_state=seed, stratify=y if classify and fits else None
    )
    scaling = Scaling.learn(train_X, train_y, None, True, loss_named("cross_entropy" if classify else "squared_error"))
    return PlayData(
        name, title, task, scaling.inputs(train_X), scaling.targets(train_y), scaling.inputs(test_X),
        scaling.targets(test_y), np.concatenate([train_X, test_X]), scaling, features, classes, hidden, seed, paper,
        figure, notes, encoder, target,
    )  # fmt: skip


def as_number(name: str, value: Any, low: float, high: float) -> float:
    """A number between bounds, from the page."""
    return real_number(name, value, f"a number from {low:g} to {high:g}", lambda v: low <= v <= high)

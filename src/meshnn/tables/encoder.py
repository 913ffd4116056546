"""The encoder from the columns of a table to a matrix of features, learned from a training table.

This module needs pyarrow only when there is a table: a stored encoder is read and described without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import as_list, switch, whole_number
from meshnn.errors import DataError
from meshnn.memory import check_fits
from meshnn.tables.names import check_names, index_of, listed, plain, short_date, shown, source

__all__ = ["Column", "Encoded", "Encoder", "as_table", "date_parts"]


@dataclass(frozen=True)
class Column:
    """The encoding of one column."""

    name: str
    kind: str  # "numeric", "boolean", "categorical" or "date"
    categories: tuple[str, ...] = ()  # levels of a categorical column, sorted; parts of a date
    fill: float | bool | str | None = None  # replacement of missing values; None if they are an error
    other: bool = False  # whether a categorical column has one more feature for all other values
    origin: str = ""  # first day of a date column in ISO notation, from which the feature "days" counts

    @property
    def parts(self) -> str:
        """The features of a date column as text."""
        return ", ".join(self.categories).replace("days", f"days since {self.origin[:10]}")

    @property
    def filled(self) -> str:
        """The replacement of missing values as text; numbers have six digits."""
        if isinstance(self.fill, float) and not self.fill.is_integer():
            return plain(float(f"{self.fill:.6g}"))
        return short_date(str(self.fill)) if self.kind == "date" else plain("" if self.fill is None else self.fill)

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        if self.kind == "date":
            return [f"{self.name}.{part}" for part in self.categories]
        levels = [*self.categories, *["(other)"] * self.other]
        return [f"{self.name}={level}" for level in levels] or [self.name]


@dataclass(frozen=True)
class Encoded:
    """A matrix of features and notes for the user."""

    X: NDArray[np.float64]  # (n_rows, n_features)
    notes: list[str]


@dataclass(frozen=True)
class Encoder:
    """Converts the columns of a table into a matrix of floats, as learned from a training table.

    Numbers are kept, booleans become 0 and 1, text columns are one-hot encoded, and dates become year, month, weekday,
    hour and days since the earliest date, if these vary.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from meshnn.tables.encoder import Encoder
    >>> table = pa.table({"age": [31, 45], "city": ["Ulm", "Bonn"], "sold": [True, False]})
    >>> encoder = Encoder.learn(table, target="sold")
    >>> encoder.feature_names
    ['age', 'city=Bonn', 'city=Ulm']
    >>> encoder.encode(table).X.tolist()
    [[31.0, 0.0, 1.0], [45.0, 1.0, 0.0]]
    """

    columns: tuple[Column, ...]
    impute: bool  # whether missing values are filled, with the median or the most frequent value in training
    left_out: dict[str, str]  # unused columns with the reason
    notes: dict[str, str] = field(default_factory=dict, compare=False)  # notes per column; not stored

    @classmethod
    def learn(
        cls,
        table: Any,
        target: str | None = None,
        drop: Sequence[str] = (),
        impute: bool = False,
        max_categories: int = 100,
        keep_constant: bool = False,
    ) -> Encoder:
        """Learn the encoding of the columns of a table (or of its blocks), except for the target and those to drop.

        Missing values are filled with `impute`, otherwise they are an error. If a text column has more than
        `max_categories` values, the rarest share one feature. Constant columns are left out; `keep_constant` keeps
        those of numbers.
        """
        from meshnn.tables.learning import learn_columns

        drop, impute = as_list("drop", drop), switch("impute", impute)
        max_categories = whole_number("max_categories", max_categories, least=2)
        table = as_table(table)
        where, names = source(table), table.column_names
        check_names(names, drop if target is None else [target, *drop], where)
        if target in drop:
            message = f"{where}the target {shown(str(target))} is also to be dropped; choose one of the two"
            raise DataError(message, code="drop", field=target)
        out = dict.fromkeys(index_of(table), "is the index of pandas") | dict.fromkeys(drop, "dropped on request")
        used = [name for name in names if name not in out and name != target]
        learned = learn_columns(table, used, max_categories, keep_constant)
        columns = [found for found, _, _ in learned.values() if isinstance(found, Column)]
        _check_missing(table, {} if impute else {name: gaps for name, (_, gaps, _) in learned.items()})
        out |= {name: found for name, (found, _, _) in learned.items() if isinstance(found, str)}
        left_out = {name: out[name] for name in names if name in out and name != target}
        if not columns:
            reasons = [f"{shown(name)} {why}" for name, why in left_out.items()][:10] or ["there is none"]
            message = f"{where}no column is left to learn from ({', '.join(reasons)}); add columns that vary"
            raise DataError(message, code="columns")
        columns = [column if impute else replace(column, fill=None) for column in columns]
        notes = {name: note for name, (_, _, note) in learned.items() if note}
        return cls(tuple(columns), impute, left_out, notes)

    @property
    def text_columns(self) -> list[str]:
        """Columns to read as text, as in training (see `read_table`)."""
        return [column.name for column in self.columns if column.kind == "categorical"]

    @property
    def feature_names(self) -> list[str]:
        """Unique names of the columns of X."""
        names: dict[str, None] = {}
        for name in (name for column in self.columns for name in column.features):
            fresh, k = name, 1
            while fresh in names:  # a numeric column may have the name of a feature, such as city=Bonn
                k += 1
                fresh = f"{name} ({k})"
            names[fresh] = None
        return list(names)

    def encode(self, table: Any) -> Encoded:
        """Return the features of a table. Missing columns are an error; additional columns are ignored."""
        from meshnn.tables.learning import fill_features

        table = as_table(table)
        names = [column.name for column in self.columns]
        check_names(table.column_names, names, source(table), ", which the model was trained with")
        ends = np.cumsum([len(column.features) for column in self.columns]).tolist()
        check_fits(8.0 * table.num_rows * ends[-1], f"{table.num_rows:,} rows of features", "take fewer rows")
        encoded = Encoded(np.zeros((table.num_rows, ends[-1])), [])
        missing: dict[str, int] = {}
        for column, begin, end in zip(self.columns, [0, *ends], ends, strict=False):
            missing[column.name] = fill_features(encoded.X[:, begin:end], column, table, encoded.notes)
        _check_missing(table, {} if self.impute else missing)
        return encoded

    def describe(self) -> list[str]:
        """Return one line of text per column."""
        lines = []
        kinds = {"numeric": "number", "boolean": "true or false", "categorical": "one-hot of ", "date": "date as "}
        for column in self.columns:
            line = kinds[column.kind]
            if column.kind == "date":
                line += column.parts
            elif column.categories:
                line += f"{len(column.categories)} values ({listed(column.categories, most=3)})"
                line += " and all others" * column.other
            if column.fill is not None:
                line += f", {column.filled} where missing"
            lines.append(f"{shown(column.name)}: {line}")
        return lines + [f"{shown(name)}: left out ({why})" for name, why in self.left_out.items()]

    def noted(self, most: int = 3) -> list[str]:
        """Return the notes, with one line for many columns that are left out."""
        left = [name for name in self.notes if name in self.left_out]
        if len(left) <= most:
            return list(self.notes.values())
        where = self.notes[left[0]].partition("column ")[0]
        line = f"{where}{len(left):,} columns are constant or have no values: left out ({listed(left, most)})"
        return [line] + [note for name, note in self.notes.items() if name not in set(left)]

    def to_tree(self) -> dict[str, Any]:
        """Return the state of the encoder as plain values."""
        columns = [vars(column) | {"categories": list(column.categories)} for column in self.columns]
        return {"impute": self.impute, "columns": columns, "left_out": dict(self.left_out)}

    @classmethod
    def from_tree(cls, stored: Any) -> Encoder:
        """Return the encoder that `to_tree` stored; raise DataError if its values are inconsistent."""
        try:
            # raises an error for NaN, infinity and invalid characters
            json.dumps(stored, ensure_ascii=False, allow_nan=False).encode()
            columns = tuple(Column(**item | {"categories": tuple(item["categories"])}) for item in stored["columns"])
            encoder = cls(columns, stored["impute"], dict(stored["left_out"]))
            if encoder.to_tree() == stored and _is_valid(encoder):
                return encoder
        except (TypeError, ValueError, LookupError, RecursionError, AttributeError):
            pass
        raise DataError("the encoder stored in the model is damaged; save the model again", code="damaged")


def date_parts(dates: NDArray[Any], origin: str) -> dict[str, NDArray[np.float64]]:
    """Return the features of dates by name. Weekday 0 is Monday; hours and days have fractions."""
    days, months = dates.astype("datetime64[D]"), dates.astype("datetime64[M]").astype(np.int64)
    parts = {
        "year": 1970 + months // 12,
        "month": 1 + months % 12,
        "weekday": (days.astype(np.int64) + 3) % 7,
        "hour": (dates - days) / np.timedelta64(1, "h"),
        "days": (dates - np.datetime64(origin)) / np.timedelta64(1, "D"),
    }
    return {name: np.asarray(part, np.float64) for name, part in parts.items()}


def as_table(frame: Any, where: str = "") -> Any:
    """Convert a DataFrame of pandas or polars, a record batch, or blocks of a table to a pyarrow table."""
    import pyarrow as pa

    from meshnn.tables.cells import without_views

    try:
        if isinstance(frame, pa.RecordBatch):
            frame = pa.Table.from_batches([frame])
        elif hasattr(frame, "iloc"):
            frame = pa.Table.from_pandas(frame, preserve_index=False)
        elif not hasattr(frame, "columns") and isinstance(frame, Iterable):
            parts: list[Any] = [getattr(block, "table", block) for block in frame if block is not None]
            frame = pa.concat_tables(parts, promote_options="permissive")
            frame = frame.replace_schema_metadata(parts[0].schema.metadata)
        return without_views(frame if isinstance(frame, pa.Table) else pa.table(frame))  # pa.table imports pandas
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{where}cannot read the columns of the {type(frame).__name__}: {error}") from None


def _is_valid(encoder: Encoder) -> bool:
    """Return whether the values of an encoder are consistent."""
    names = [column.name for column in encoder.columns] + list(encoder.left_out)
    texts = [*names, *encoder.left_out.values(), *(text for column in encoder.columns for text in column.categories)]
    valid = len(encoder.columns) > 0 and type(encoder.impute) is bool and len(names) == len(set(names))
    valid = valid and all(type(text) is str for text in texts)
    return valid and all(_is_valid_column(column, encoder.impute) for column in encoder.columns)


def _is_valid_column(column: Column, impute: bool) -> bool:
    fill, levels, distinct = column.fill, column.categories, set(column.categories)
    filled = {"numeric": float, "boolean": bool, "categorical": str, "date": str}[column.kind] if impute else type(None)
    if not column.name or type(column.other) is not bool or type(fill) is not filled:
        return False
    if column.kind == "categorical":
        sound = levels == tuple(sorted(distinct)) and (fill is None or fill in distinct)
        return sound and len(levels) + column.other > 1 and column.origin == ""
    if column.kind != "date":
        return not levels and not column.other and column.origin == ""
    dates = np.array([column.origin, *[str(fill)] * (fill is not None)], "datetime64[us]")
    parts = date_parts(dates, column.origin)
    return 0 < len(levels) == len(distinct) and distinct <= set(parts) and not np.isnat(dates).any()


def _check_missing(table: Any, missing: dict[str, int]) -> None:
    if counted := {name: count for name, count in missing.items() if count}:
        parts = [f"{count:,} in {shown(name)}" for name, count in counted.items()][:20]
        noun = "missing values" if sum(counted.values()) > 1 else "missing value"
        parts[0] = parts[0].replace(" in ", f" {noun} in ", 1)
        raise DataError(f"{source(table)}{', '.join(parts)}", code="missing", field=next(iter(counted)))

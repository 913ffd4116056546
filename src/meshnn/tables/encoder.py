"""From the columns of a table to a matrix of features, as learned from a training table.

This module does not need pyarrow until there is a table: a stored encoder is read and described without it.
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
from meshnn.tables.names import INDEX, check_names, listed, plain, shown, source

__all__ = ["OTHER", "Column", "Encoded", "Encoder", "date_parts"]

#: Kinds of columns, and the types of what fills their gaps.
FILLS = {"numeric": float, "boolean": bool, "categorical": str, "date": str}
#: Features of dates.
DATE_PARTS = ("year", "month", "weekday", "hour", "days")
#: The level that stands for all rare ones, as the name of its feature shows it.
OTHER = "(other)"


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes features.

    Attributes
    ----------
    name : str
    kind : "numeric", "boolean", "categorical" or "date"
    categories : tuple of str
        Levels of a categorical column, sorted; parts of a date column, of `DATE_PARTS`.
    fill : float, bool, str or None
        Stands for missing values; None if they are refused.
    other : bool
        Whether a categorical column has one more feature, for all values that are not among its levels.
    origin : str
        Of a date column, in ISO notation: the day that the feature "days" counts from.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()
    fill: float | bool | str | None = None
    other: bool = False
    origin: str = ""

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        if self.kind == "date":
            return [f"{self.name}.{part}" for part in self.categories]
        levels = [*self.categories, *[OTHER] * self.other]
        return [f"{self.name}={level}" for level in levels] or [self.name]


@dataclass(frozen=True)
class Encoded:
    """A matrix of features, and remarks about it for the user."""

    X: NDArray[np.float64]  # (n_rows, n_features)
    notes: list[str]


@dataclass(frozen=True)
class Encoder:
    """Turns the columns of a table into a matrix of floats, as learned from a training table.

    Numbers stay as they are, booleans become 0 and 1, text columns are one-hot encoded, and dates become year, month,
    weekday, hour and days since the first, as far as these vary.

    Attributes
    ----------
    columns : tuple of Column
    impute : bool
        Whether missing values are filled (with the median or the most frequent value of the training table).
    left_out : dict
        Columns of the training table that are not used, and why.
    notes : dict
        Remarks from learning, by column. Not stored.

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
    impute: bool
    left_out: dict[str, str]
    notes: dict[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def learn(
        cls,
        table: Any,
        target: str | None = None,
        drop: Sequence[str] = (),
        impute: bool = False,
        max_categories: int = 100,
    ) -> Encoder:
        """Learn how to encode the columns of a table, all but the target and those to drop.

        Parameters
        ----------
        table : pyarrow.Table, or an iterable of them
            The training table, or its blocks.
        target : str, optional
        drop : list of str
        impute : bool
            Fill missing values; otherwise they are refused.
        max_categories : int
            Levels of a text column that have a feature of their own. If there are more, the rare ones share one.
        """
        from meshnn.tables.learning import learn_columns

        drop, impute = as_list("drop", drop), switch("impute", impute)
        max_categories = whole_number("max_categories", max_categories, least=2)
        table = _whole(table)
        where, names, dropped = source(table), table.column_names, set(drop)
        check_names(names, drop if target is None else [target, *drop], where)
        if target in dropped:
            message = f"{where}the target {shown(str(target))} is also to be dropped; choose one of the two"
            raise DataError(message, code="drop", field=target)
        encoder = cls((), impute, {})
        index = set(json.loads((table.schema.metadata or {}).get(INDEX, b"[]")))
        columns: list[Column] = []
        missing: dict[str, int] = {}
        used = [name for name in names if name not in dropped and name not in index and name != target]
        learned = learn_columns(table, used, max_categories)
        for name in names:
            if name in dropped:
                encoder.left_out[name] = "dropped on request"
            elif name in index and name != target:
                encoder.left_out[name] = "is the index of pandas"
            elif name != target:
                found, gaps, note = learned[name]
                if isinstance(found, Column):
                    columns.append(found if impute or found.fill is None else replace(found, fill=None))
                    missing[name] = gaps
                else:
                    encoder.left_out[name] = found
                if note:
                    encoder.notes[name] = note
        _check_missing(table, {} if impute else missing)
        if not columns:
            reasons = [f"{shown(name)} {why}" for name, why in encoder.left_out.items()][:10] or ["there is none"]
            message = f"{where}no column is left to learn from ({', '.join(reasons)}); add some that vary"
            raise DataError(message, code="columns")
        return replace(encoder, columns=tuple(columns))

    @property
    def text_columns(self) -> list[str]:
        """Columns to be read as text, as they were in training (see `read_table`)."""
        return [column.name for column in self.columns if column.kind == "categorical"]

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of X, all different."""
        names: dict[str, None] = {}
        for name in (name for column in self.columns for name in column.features):
            fresh, k = name, 1
            while fresh in names:  # a number called city=Bonn beside a city with Bonn in it
                k += 1
                fresh = f"{name} ({k})"
            names[fresh] = None
        return list(names)

    def encode(self, table: Any) -> Encoded:
        """Return the features of a table: columns are found by name, others are ignored, none may be missing."""
        from meshnn.tables.learning import fill_features, fill_numbers

        table = _whole(table)
        names = [column.name for column in self.columns]
        check_names(table.column_names, names, source(table), ", which the model was trained with")
        ends = np.cumsum([len(column.features) for column in self.columns]).tolist()
        check_fits(8.0 * table.num_rows * ends[-1], f"{table.num_rows:,} rows of features", "take fewer rows")
        encoded = Encoded(np.zeros((table.num_rows, ends[-1])), [])
        missing: dict[str, int] = {}
        fill_numbers(encoded.X, self.columns, [0, *ends], table, missing)
        for column, begin, end in zip(self.columns, [0, *ends], ends, strict=False):
            if column.name not in missing:
                missing[column.name] = fill_features(encoded.X[:, begin:end], column, table, encoded.notes)
        _check_missing(table, {} if self.impute else {name: missing[name] for name in names})
        return encoded

    def describe(self) -> list[str]:
        """Return one line per column for people."""
        lines = []
        kinds = {"numeric": "number", "boolean": "true or false", "categorical": "one-hot of ", "date": "date as "}
        for column in self.columns:
            line = kinds[column.kind]
            if column.kind == "date":
                line += ", ".join(column.categories).replace("days", f"days since {column.origin[:10]}")
            elif column.categories:
                line += f"{len(column.categories)} values ({listed(column.categories, most=3)})"
                line += " and all others" * column.other
            if column.fill is not None:
                line += f", {plain(column.fill)} where missing"
            lines.append(f"{shown(column.name)}: {line}")
        return lines + [f"{shown(name)}: left out ({why})" for name, why in self.left_out.items()]

    def noted(self, most: int = 3) -> list[str]:
        """Return the notes, one line for many columns that are left out."""
        left = [name for name in self.notes if name in self.left_out]
        if len(left) <= most:
            return list(self.notes.values())
        where = self.notes[left[0]].partition("column ")[0]
        line = f"{where}{len(left):,} columns are constant or have no values: left out ({listed(left, most)})"
        return [line] + [note for name, note in self.notes.items() if name not in set(left)]

    def to_tree(self) -> dict[str, Any]:
        """Return everything that `encode` needs, as plain values."""
        columns = [vars(column) | {"categories": list(column.categories)} for column in self.columns]
        return {"impute": self.impute, "columns": columns, "left_out": dict(self.left_out)}

    @classmethod
    def from_tree(cls, stored: Any) -> Encoder:
        """Return the encoder that `to_tree` stored; DataError if the values could not have been learned."""
        try:
            json.dumps(stored, ensure_ascii=False, allow_nan=False).encode()  # finite, and valid characters
            columns = tuple(Column(**item | {"categories": tuple(item["categories"])}) for item in stored["columns"])
            encoder = cls(columns, stored["impute"], dict(stored["left_out"]))
            # keys of defaults may be missing, all others are compared
            full = stored | {"columns": [vars(Column("", "")) | item for item in stored["columns"]]}
            if encoder.to_tree() == full and _is_valid(encoder):
                return encoder
        except (TypeError, ValueError, LookupError, RecursionError, AttributeError):
            pass
        raise DataError("the encoder stored in the model is damaged; save the model again", code="damaged")


def date_parts(dates: NDArray[Any], origin: str) -> dict[str, NDArray[np.float64]]:
    """Return the features of dates by name: weekday 0 is Monday, hours and days have fractions."""
    days, months = dates.astype("datetime64[D]"), dates.astype("datetime64[M]").astype(np.int64)
    parts = {
        "year": 1970 + months // 12,
        "month": 1 + months % 12,
        "weekday": (days.astype(np.int64) + 3) % 7,
        "hour": (dates - days) / np.timedelta64(1, "h"),
        "days": (dates - np.datetime64(origin)) / np.timedelta64(1, "D"),
    }
    return {name: np.asarray(part, np.float64) for name, part in parts.items()}


def _whole(table: Any) -> Any:
    """Return a table, or the concatenation of blocks."""
    if hasattr(table, "column_names") or not isinstance(table, Iterable):
        return table
    import pyarrow as pa

    parts: list[Any] = [getattr(block, "table", block) for block in table if block is not None]
    return pa.concat_tables(parts, promote_options="permissive").replace_schema_metadata(parts[0].schema.metadata)


def _is_valid(encoder: Encoder) -> bool:
    """Return whether an encoder could have been learned."""
    names = [column.name for column in encoder.columns] + list(encoder.left_out)
    texts = [*names, *encoder.left_out.values(), *(text for column in encoder.columns for text in column.categories)]
    valid = len(encoder.columns) > 0 and type(encoder.impute) is bool and len(names) == len(set(names))
    for column in encoder.columns:
        fill, levels = column.fill, column.categories
        valid &= column.name != "" and column.kind in FILLS and type(column.other) is bool
        valid &= type(fill) is FILLS[column.kind] if encoder.impute else fill is None
        if column.kind == "categorical":
            valid &= levels == tuple(sorted(set(levels))) and len(levels) + column.other > 1
            valid &= fill is None or fill in levels or column.other
        elif column.kind == "date":
            valid &= len(levels) > 0 and set(levels) <= set(DATE_PARTS) and len(set(levels)) == len(levels)
        else:
            valid &= not levels
        for text in (column.origin, *[str(fill)] * (fill is not None)) if column.kind == "date" else ():
            valid &= not np.isnat(np.datetime64(text))
        valid &= column.kind == "date" or column.origin == ""
        valid &= column.kind == "categorical" or not column.other
    return bool(valid) and all(type(text) is str for text in texts)


def _check_missing(table: Any, missing: dict[str, int]) -> None:
    if counted := {name: count for name, count in missing.items() if count}:
        parts = [f"{count:,} in {shown(name)}" for name, count in counted.items()][:20]
        noun = "missing values" if sum(counted.values()) > 1 else "missing value"
        parts[0] = parts[0].replace(" in ", f" {noun} in ", 1)
        raise DataError(f"{source(table)}{', '.join(parts)}", code="missing", field=next(iter(counted)))

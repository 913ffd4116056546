"""From the columns of a table to numbers: features by an `Encoder` learned on the training table, and the target."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import as_list, switch, whole_number
from meshnn.data.tables import shown, source
from meshnn.errors import DataError
from meshnn.memory import check_fits

__all__ = ["Column", "Encoded", "Encoder", "Target", "check_names", "plain", "target_column", "target_task"]

FILLS = {"numeric": float, "boolean": bool, "categorical": str}  # kinds of columns, and what fills their gaps
TASKS = ("auto", "classify", "regress")
MOST_CLASSES = 1000
MOST_LEFT_OUT = 3  # columns that are left out get a note each, if there are no more
FEW_CLASSES = 20  # so many different whole numbers may be classes


@dataclass(frozen=True)
class Column:
    """How one column of the table becomes features."""

    name: str
    kind: str  # numeric, boolean: one feature; categorical: one for each category
    categories: tuple[str, ...] = ()  # sorted; only of categorical columns
    fill: float | bool | str | None = None  # stands for missing values; None: they are refused


@dataclass(frozen=True)
class Encoded:
    """A matrix of features and what the user ought to be told about it."""

    X: NDArray[np.float64]  # (n_rows, n_features)
    notes: list[str]


@dataclass(frozen=True)
class Encoder:
    """Turns the columns of a table into a matrix of floats, in the way it learned from the training table.

    Numbers stay as they are, true and false become 1 and 0, texts become one feature for each value seen.

    Attributes
    ----------
    columns : tuple of Column
    impute : bool
        Whether missing values are filled (by the median or the most frequent value of the training table).
    left_out : dict
        Columns of the training table that are not used, and why.
    notes : dict
        What learning noticed, by column. Not stored.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from meshnn.data.encoding import Encoder
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
        target: str | None,
        drop: Sequence[str] = (),
        impute: bool = False,
        most_categories: int = 100,
        python: bool = False,
    ) -> Encoder:
        """Learn from the training table how to encode its columns, all but the target and those to drop.

        Advice is given in words of the command line, or of Python.
        """
        from meshnn.data.columns import cells_of, learned

        drop, impute = as_list("drop", drop), switch("impute", impute)
        most_categories = whole_number("most_categories", most_categories, least=2)
        where = source(table)
        _check_names(table, drop if target is None else [target, *drop])
        if target in drop:
            raise DataError(f"{where}the target {shown(str(target))} is also to be dropped; choose one of the two")
        encoder = cls((), impute, {})
        columns: dict[str, Column] = {}
        missing: dict[str, int] = {}
        for name in table.column_names:
            if name in drop:
                encoder.left_out[name] = "dropped on request"
            elif name != target:
                how = f"X.drop(columns={name!r})" if python else f"--drop {shown(name)}"
                cells = cells_of(table, name, f"or drop the column with {how}")
                found = learned(cells, most_categories, encoder.notes, f"drop it with {how}")
                if isinstance(found, Column):
                    columns[name] = found if impute else replace(found, fill=None)
                    missing[name] = cells.missing
                else:
                    encoder.left_out[name] = found
                    encoder.notes[name] = f"{cells.called} {found}: left out"
        advice = "pass --impute to fill them with the median or the most frequent value, or drop the columns"
        _check_missing(table, {} if impute else missing, advice)
        if not columns:
            reasons = [f"{shown(name)} {why}" for name, why in encoder.left_out.items()][:10] or ["there is none"]
            raise DataError(f"{where}no column is left to learn from ({', '.join(reasons)}); add some that vary")
        return replace(encoder, columns=tuple(columns.values()))

    @property
    def text_columns(self) -> list[str]:
        """Columns to be read as text, as they were in training (see `read_table`)."""
        return [column.name for column in self.columns if column.kind == "categorical"]

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of X, all different."""
        names: dict[str, None] = {}
        for column in self.columns:
            for name in [f"{column.name}={value}" for value in column.categories] or [column.name]:
                fresh, k = name, 1
                while fresh in names:  # a number called city=Bonn beside a city with Bonn in it
                    k += 1
                    fresh = f"{name} ({k})"
                names[fresh] = None
        return list(names)

    def encode(self, table: Any) -> Encoded:
        """Features of a table: its columns are found by name, others are ignored, no column may be missing."""
        from meshnn.data.columns import fill_in

        _check_names(table, [column.name for column in self.columns], ", which the model was trained with")
        widths = [max(1, len(column.categories)) for column in self.columns]
        rows, width = table.num_rows, sum(widths)
        check_fits(8.0 * rows * width, f"{rows:,} rows of features", "take fewer rows")
        encoded = Encoded(np.zeros((rows, width)), [])
        parts = zip(self.columns, np.split(encoded.X, np.cumsum(widths)[:-1], axis=1), strict=True)
        missing = {column.name: fill_in(part, column, table, encoded.notes) for column, part in parts}
        _check_missing(table, {} if self.impute else missing, "fill them, or train the model with --impute")
        return encoded

    def describe(self) -> list[str]:
        """One line for each column, for people."""
        lines = []
        for column in self.columns:
            line = {"numeric": "number", "boolean": "true or false", "categorical": "one-hot of "}[column.kind]
            if column.categories:
                line += f"{len(column.categories)} values ({_listed(column.categories, most=3)})"
            if column.fill is not None:
                line += f", {plain(column.fill)} where missing"
            lines.append(f"{shown(column.name)}: {line}")
        return lines + [f"{shown(name)}: left out ({why})" for name, why in self.left_out.items()]

    def noted(self, training: Encoder | None = None) -> list[str]:
        """The notes, with those of many columns left out in one line; also what `training` rows alone leave out."""
        notes = dict(self.notes)
        if training is not None:
            notes |= {name: training.notes[name] for name in training.left_out if name in training.notes} | notes
        left = [name for name in notes if name in self.left_out or (training and name in training.left_out)]
        if len(left) <= MOST_LEFT_OUT:
            return list(notes.values())
        where = notes[left[0]].partition("column ")[0]
        line = f"{where}{len(left):,} columns are constant or have no values: left out ({_listed(left, MOST_LEFT_OUT)})"
        return [line] + [note for name, note in notes.items() if name not in set(left)]

    def to_dict(self) -> dict[str, Any]:
        """Everything that `encode` needs, fit for JSON."""
        columns = [vars(column) | {"categories": list(column.categories)} for column in self.columns]
        return {"impute": self.impute, "columns": columns, "left_out": dict(self.left_out)}

    @classmethod
    def from_dict(cls, stored: Any) -> Encoder:
        """The encoder that `to_dict` stored. Nothing is believed, since files come from anywhere."""
        try:
            json.dumps(stored, ensure_ascii=False, allow_nan=False).encode()  # finite, and no halves of characters
            columns = tuple(Column(**item | {"categories": tuple(item["categories"])}) for item in stored["columns"])
            encoder = cls(columns, stored["impute"], dict(stored["left_out"]))
            if encoder.to_dict() == stored and _is_sound(encoder):
                return encoder
        except (TypeError, ValueError, LookupError, RecursionError):
            pass
        raise DataError("the encoder stored in the model is damaged: it makes no sense; save the model again")


def _is_sound(encoder: Encoder) -> bool:
    """Whether it could have been learned."""
    names = [column.name for column in encoder.columns] + list(encoder.left_out)
    texts = [*names, *encoder.left_out.values(), *(text for column in encoder.columns for text in column.categories)]
    sound = len(encoder.columns) > 0 and type(encoder.impute) is bool and len(names) == len(set(names))
    for column in encoder.columns:
        fill, categories, several = column.fill, column.categories, column.kind == "categorical"
        sound &= column.name != "" and categories == tuple(sorted(set(categories)))
        sound &= len(categories) > 1 if several else column.kind in FILLS and not categories
        sound &= type(fill) is FILLS[column.kind] if encoder.impute else fill is None
        sound &= not several or fill is None or fill in categories
    return sound and all(type(text) is str for text in texts)


def _check_names(table: Any, names: Sequence[Any], why: str = "") -> None:
    check_names(table.column_names, names, source(table), why)


def check_names(known: Sequence[str], names: Sequence[Any], where: str = "", why: str = "") -> None:
    """Refuse names of columns that are not there, with what may have been meant."""
    if lost := [str(name) for name in names if name not in known]:
        lowered = {other.lower(): other for other in known}
        close = difflib.get_close_matches(lost[0].lower(), lowered, n=1)
        meant = f" (did you mean {shown(lowered[close[0]])}?)" if close else ""
        what = f"there is no column {_listed(lost)}{why}{meant}"
        raise DataError(f"{where}{what}; the columns are {_listed(known)}")


def _check_missing(table: Any, missing: dict[str, int], advice: str) -> None:
    if counted := [f"{count:,} in {shown(name)}" for name, count in missing.items() if count]:
        noun = "missing values" if sum(missing.values()) > 1 else "missing value"
        counted[0] = counted[0].replace(" in ", f" {noun} in ", 1)
        raise DataError(f"{source(table)}{', '.join(counted)}; {advice}")


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join([*map(shown, names[:most]), *["..."] * (len(names) > most)])


def plain(value: float | bool | str) -> str:
    """A number without the .0 of whole ones, a truth value in small letters, a text as it is.

    >>> plain(3.0), plain(0.1), plain(True), plain("x")
    ('3', '0.1', 'true', 'x')
    """
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


@dataclass(frozen=True)
class Target:
    """What is to be predicted, what kind of task that is, and how this was decided."""

    values: NDArray[Any]  # (n_rows,): float64 to regress; str, int64 or bool to classify
    task: str  # classify or regress
    notes: list[str]


def target_column(table: Any, target: str, task: str = "auto") -> Target:
    """The column to predict.

    With task auto, texts and truth values are classes, numbers with fractions are not. Whole numbers are classes if
    there are at most 20 different ones, each two times or more on average (or just two different ones).

    Examples
    --------
    >>> import pyarrow as pa
    >>> from meshnn.data.encoding import target_column
    >>> target_column(pa.table({"y": [0.5, 1.5]}), "y").task
    'regress'
    """
    from meshnn.data.columns import cells_of, first

    if task not in TASKS:
        raise DataError(f"unknown task {task!r}; expected one of {', '.join(TASKS)}")
    _check_names(table, [target])
    name, rows = f"{source(table)}target {shown(target)}", table.num_rows
    if rows < 2:
        raise DataError(f"{name} has {rows} row{'s' * (rows != 1)}, expected at least 2 rows to learn from; add rows")
    cells = cells_of(table, target, "or choose another target")
    if cells.missing:
        words = (
            f"{cells.missing:,} missing value{'s' * (cells.missing > 1)}, the first in row {first(cells.gaps) + 1:,}"
        )
        raise DataError(f"{name} has {words}; fill them or remove these rows")
    notes: list[str] = []
    if task == "auto":
        task, reason = _decided(cells)
        notes.append(f"{name}: {reason}")
    return Target(_labels(name, cells) if task == "classify" else _amounts(name, cells), task, notes)


def target_task(table: Any, target: str, task: str = "auto") -> tuple[str, list[str]]:
    """Classes or numbers, as `target_column` decides it, from some rows of a table that is too large; and why."""
    from meshnn.data.columns import cells_of

    advice = "or choose another target"
    cells = cells_of(table, target, advice)
    if cells.gaps.any():  # whoever reads all rows names the first of them
        cells = cells_of(table.filter(~cells.gaps), target, advice)
    name, rows, notes = f"{source(table)}target {shown(target)}", len(cells.values), list[str]()
    if task == "auto":
        task, reason = _decided(cells) if rows else ("regress", "there are no values")
        notes.append(f"{name}: in {rows:,} rows that were looked at, {reason}")
    if task == "regress" and cells.kind == "categorical":
        raise DataError(f"{name} is text, expected numbers; pass --task classify")
    if task == "classify":
        found = len(cells.values.unique())
        if found > MOST_CLASSES or (rows > 20 and found > rows / 2):
            what = f"{found:,} classes in {rows:,} rows that were looked at: it looks like an identifier or a number"
            advice = "choose another target" if cells.kind == "categorical" else "pass --task regress"
            raise DataError(f"{name} has {what}; {advice}")
    return task, notes


def _decided(cells: Any) -> tuple[str, str]:
    """The task, and why."""
    if cells.packed or cells.kind != "numeric":
        return "classify", f"its {len(cells.values.unique()):,} different values are taken as classes"
    if np.any(cells.numbers % 1):
        return "regress", "numbers with fractions, taken as amounts (for classes, write them as text or whole numbers)"
    different = len(np.unique(cells.numbers))
    what = f"{different:,} different whole numbers"
    if different <= FEW_CLASSES and (different <= 2 or different <= len(cells.numbers) / 2):
        return "classify", f"{what}, taken as classes; --task regress takes them as amounts"
    return "regress", f"{what}, taken as amounts; --task classify takes them as classes"


def _amounts(name: str, cells: Any) -> NDArray[Any]:
    from meshnn.data.columns import quoted

    if cells.kind == "categorical":
        raise DataError(f"{name} is text ({quoted(cells.values[0])} in row 1), expected numbers; pass --task classify")
    if cells.numbers.min() == cells.numbers.max():
        raise DataError(f"{name} is {plain(float(cells.numbers[0]))} in every row: nothing to learn; choose another")
    return np.array(cells.numbers)


def _labels(name: str, cells: Any) -> NDArray[Any]:
    from meshnn.data.columns import first

    values, rows = cells.values, len(cells.values)
    if cells.kind == "numeric":
        if (at := first((cells.numbers % 1 != 0) | (np.abs(cells.numbers) >= 2.0**63))) >= 0:
            expected = "expected text or whole numbers of at most 18 digits as classes"
            raise DataError(f"{name} holds {cells.numbers[at]} in row {at + 1:,}, {expected}; pass --task regress")
        values = values.cast("int64")  # not by way of floats: they merge integers beyond 2**53
    elif cells.kind == "categorical":
        size = 4.0 * rows * max(map(len, values.unique().to_pylist()))
        check_fits(size, f"{name}: {rows:,} texts", "shorten the texts of the classes")
    labels = np.array(values.to_numpy(), dtype=str if cells.kind == "categorical" else None)
    classes = np.unique(labels)
    if len(classes) == 1:
        raise DataError(f"{name} has the one class {classes[0].item()!r}, expected at least 2; choose another target")
    if len(classes) > MOST_CLASSES or (rows > 20 and len(classes) > rows / 2):
        what = f"{len(classes):,} classes in {rows:,} rows: it looks like an identifier or a number"
        advice = "pass --task regress or choose another target" if cells.kind == "numeric" else "choose another target"
        raise DataError(f"{name} has {what}; {advice}")
    return labels

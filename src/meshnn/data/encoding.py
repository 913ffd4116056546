"""From the columns of a table to numbers: features by an `Encoder` learned on the training table, and the target."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import as_list, switch, whole_number
from meshnn.data.tables import shown, source
from meshnn.errors import DataError
from meshnn.memory import check_fits

__all__ = ["Column", "Encoded", "Encoder", "Target", "target_column"]

Floats = NDArray[np.float64]
KINDS = ("numeric", "boolean", "categorical")
TASKS = ("auto", "classify", "regress")
NUMBER = r"^ *[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)? *$"
WORDS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))
MOST_CLASSES = 1000
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

    X: Floats  # (n_rows, n_features)
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
    notes : list of str
        What learning noticed. Not stored.

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
    notes: list[str] = field(default_factory=list, compare=False)

    @classmethod
    def learn(
        cls,
        table: Any,
        target: str | None,
        drop: Sequence[str] = (),
        impute: bool = False,
        most_categories: int = 100,
    ) -> Encoder:
        """Learn from the training table how to encode its columns, all but the target and those to drop."""
        drop, impute = as_list("drop", drop), switch("impute", impute)
        most_categories = whole_number("most_categories", most_categories, least=2)
        where = source(table)
        _check_names(table, drop if target is None else [target, *drop])
        if target in drop:
            raise DataError(f"{where}the target {shown(str(target))} is also to be dropped; choose one of the two")
        columns: list[Column] = []
        left_out: dict[str, str] = {}
        notes: list[str] = []
        missing: dict[str, int] = {}
        for name in table.column_names:
            if name == target:
                continue
            if name in drop:
                left_out[name] = "dropped on request"
                continue
            values, kind, packed = _unpacked(table, name, f"or drop the column with --drop {shown(name)}")
            if packed or kind == "categorical":
                texts = _texts(values)
                count = texts.null_count
                found = _learn_texts(where, name, texts, impute, most_categories, notes)
            else:
                numbers = _numbers(where, name, values)
                gaps = np.isnan(numbers)
                count = int(gaps.sum())
                found = _learn_numbers(name, kind, numbers[~gaps], impute)
            if isinstance(found, str):
                left_out[name] = found
                notes.append(f"{where}column {shown(name)} {found}: left out")
                continue
            columns.append(found)
            if count:
                missing[name] = count
        if missing and not impute:
            advice = "pass --impute to fill them with the median or the most frequent value, or drop the columns"
            raise DataError(f"{where}{_counted(missing)}; {advice}")
        if not columns:
            reasons = ", ".join(f"{shown(name)} {why}" for name, why in list(left_out.items())[:10]) or "there is none"
            raise DataError(f"{where}no column is left to learn from ({reasons}); add some that vary")
        return cls(tuple(columns), impute, left_out, notes)

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
        where = source(table)
        there = set(table.column_names)
        lost = [column.name for column in self.columns if column.name not in there]
        if lost:
            raise DataError(
                f"{where}there is no column {_listed(lost)}, which the model was trained with"
                f"{_meant(lost[0], table.column_names)}; the columns are {_listed(table.column_names)}"
            )
        widths = [max(1, len(column.categories)) for column in self.columns]
        check_fits(8.0 * table.num_rows * sum(widths), f"{table.num_rows:,} rows of features", "take fewer rows")
        X = np.zeros((table.num_rows, sum(widths)))
        notes: list[str] = []
        missing: dict[str, int] = {}
        start = 0
        for column, width in zip(self.columns, widths, strict=True):
            part = X[:, start : start + width]
            fill_in = _fill_texts if column.kind == "categorical" else _fill_numbers
            count = fill_in(part, where, column, table, notes)
            if count:
                missing[column.name] = count
            start += width
        if missing and not self.impute:
            advice = "fill them, or train the model with --impute"
            raise DataError(f"{where}{_counted(missing)}; {advice}")
        return Encoded(X, notes)

    def describe(self) -> list[str]:
        """One line for each column, for people."""
        lines = []
        for column in self.columns:
            line = {"numeric": "number", "boolean": "true or false"}.get(column.kind, "")
            if column.kind == "categorical":
                line = f"one-hot of {len(column.categories)} values ({_listed(column.categories, most=3)})"
            if column.fill is not None:
                line += f", {_plain(column.fill)} where missing"
            lines.append(f"{shown(column.name)}: {line}")
        return lines + [f"{shown(name)}: left out ({why})" for name, why in self.left_out.items()]

    def to_dict(self) -> dict[str, Any]:
        """Everything that `encode` needs, fit for JSON."""
        columns = [
            {"name": c.name, "kind": c.kind, "categories": list(c.categories), "fill": c.fill} for c in self.columns
        ]
        return {"impute": self.impute, "columns": columns, "left_out": dict(self.left_out)}

    @classmethod
    def from_dict(cls, stored: Any) -> Encoder:
        """The encoder that `to_dict` stored. Nothing is believed, since files come from anywhere."""
        _demand(isinstance(stored, dict) and stored.keys() == {"impute", "columns", "left_out"}, "its parts")
        impute, columns, left_out = stored["impute"], stored["columns"], stored["left_out"]
        _demand(isinstance(impute, bool), "impute")
        _demand(isinstance(columns, list) and len(columns) > 0, "columns")
        found = tuple(_stored_column(item, impute) for item in columns)
        _demand(isinstance(left_out, dict), "left_out")
        names = [column.name for column in found] + list(left_out)
        _demand(all(_is_text(text) for item in left_out.items() for text in item), "left_out")
        _demand(len(set(names)) == len(names), "names of columns, which occur twice")
        return cls(found, impute, dict(left_out))


def _stored_column(item: Any, impute: bool) -> Column:
    _demand(isinstance(item, dict) and item.keys() == {"name", "kind", "categories", "fill"}, "the parts of a column")
    name, kind, categories, fill = item["name"], item["kind"], item["categories"], item["fill"]
    _demand(_is_text(name) and name != "", "the name of a column")
    what = f"column {shown(name)}"
    _demand(isinstance(kind, str) and kind in KINDS, f"the kind of {what}")
    _demand(isinstance(categories, list) and all(map(_is_text, categories)), f"the categories of {what}")
    in_order = all(a < b for a, b in pairwise(categories))
    _demand(in_order and (len(categories) > 1) == (kind == "categorical"), f"the categories of {what}")
    _demand(kind == "categorical" or not categories, f"the categories of {what}")
    fits = {
        "numeric": type(fill) is float and math.isfinite(fill),
        "boolean": type(fill) is bool,
        "categorical": type(fill) is str and fill in categories,
    }
    _demand(fits[kind] if impute else fill is None, f"what fills {what}")
    return Column(name, kind, tuple(categories), fill)


def _demand(right: bool, what: str) -> None:
    if not right:
        raise DataError(f"the encoder stored in the model is damaged: cannot use {what}; save the model again")


def _is_text(value: Any) -> bool:
    """Whether it is a string that can be written as UTF-8: JSON can spell others."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unpacked(table: Any, name: str, advice: str) -> tuple[Any, str, bool]:
    """Values of a column, of which kind they are (`missing`: there are none), and whether they were a dictionary."""
    from pyarrow import types

    values = table.column(name)
    packed = types.is_dictionary(values.type)
    if packed:
        values = values.cast(values.type.value_type)
    held = values.type
    if types.is_null(held):
        return values, "missing", False
    if types.is_boolean(held):
        return values, "boolean", packed
    if types.is_integer(held) or types.is_floating(held) or types.is_decimal(held):
        return values, "numeric", packed
    if types.is_string(held) or types.is_large_string(held) or types.is_string_view(held):
        return values, "categorical", packed
    column = f"{source(table)}column {shown(name)}"
    if types.is_temporal(held):
        raise DataError(f"{column} holds dates or times ({held}); turn it into numbers, {advice}")
    raise DataError(f"{column} holds {shown(str(held))}, expected numbers, text or truth values; convert it, {advice}")


def _numbers(where: str, name: str, values: Any) -> Floats:
    """As floats, NaN where missing; infinite ones are refused."""
    import pyarrow as pa

    whole = values.cast(pa.float64(), safe=False).combine_chunks()
    # to_numpy() imports pandas, if it is installed, which takes longer than to predict a small table
    numbers = np.asarray(whole.to_numpy(zero_copy_only=False) if whole.null_count else np.from_dlpack(whole), float)
    if (at := _first(np.isinf(numbers))) >= 0:
        raise DataError(
            f"{where}column {shown(name)} holds {numbers[at]} in row {at + 1:,}, expected finite numbers; mend the cell"
        )
    return numbers


def _texts(values: Any, spellings: Collection[str] = ()) -> Any:
    """As text. Numbers and truth values are spelled as in `spellings` if they can be, else as 12, 1.5, true."""
    import pyarrow as pa
    from pyarrow import compute, types

    if types.is_boolean(values.type):
        yes, no = next((pair for pair in WORDS if not set(pair).isdisjoint(spellings)), WORDS[0])
        values = compute.if_else(values, yes, no)
    elif types.is_floating(values.type) or types.is_decimal(values.type):
        known = set(spellings)
        numbers = values.cast(pa.float64(), safe=False).to_numpy()
        spelled = (repr(x) if repr(x) in known else _plain(x) for x in numbers.tolist())
        values = pa.chunked_array([pa.array([None if x == "nan" else x for x in spelled], pa.large_string())])
    return values.cast(pa.large_string())


def _learn_numbers(name: str, kind: str, numbers: Floats, impute: bool) -> Column | str:
    if len(numbers) == 0:
        return "has no values"
    ordered = np.sort(numbers)
    if ordered[0] == ordered[-1]:
        value = float(ordered[0])
        return f"is constant ({_plain(bool(value) if kind == 'boolean' else value)})"
    fill: float | bool | None = None
    if impute and kind == "boolean":
        fill = bool(2 * ordered.sum() > len(ordered))
    elif impute:  # halved first: the sum of two large numbers may be infinite
        fill = float(ordered[(len(ordered) - 1) // 2] / 2 + ordered[len(ordered) // 2] / 2)
    return Column(name, kind, fill=fill)


def _learn_texts(
    where: str, name: str, texts: Any, impute: bool, most_categories: int, notes: list[str]
) -> Column | str:
    from pyarrow import compute

    counts = texts.drop_null().value_counts()
    values = counts.field("values")
    if len(values) == 0:
        return "has no values"
    if len(values) == 1:
        return f"is constant ({shown(values[0].as_py())})"
    digits = compute.sum(compute.match_substring_regex(values, NUMBER)).as_py()
    hint = ""
    if len(values) / 2 <= digits < len(values):  # a column of numbers with a slip in it
        at = compute.index(compute.match_substring_regex(texts, NUMBER), False).as_py()
        hint = f"{digits:,} of its {len(values):,} values are numbers, but row {at + 1:,} holds {_value(texts[at])}"
    if len(values) > most_categories:
        column, advice = f"{where}column {shown(name)}", f"drop it with --drop {shown(name)}"
        if hint:
            raise DataError(f"{column} is text: {hint}; mend or empty that cell, or {advice}")
        raise DataError(
            f"{column} has {len(values):,} different texts, expected at most {most_categories:,}: it looks like an "
            f"identifier or free text; {advice}"
        )
    if hint:
        notes.append(f"{where}column {shown(name)} is taken as text: {hint}; mend or empty that cell for numbers")
    frequency = dict(zip(values.to_pylist(), counts.field("counts").to_pylist(), strict=True))
    categories = sorted(frequency)
    fill = max(categories, key=frequency.__getitem__) if impute else None  # of several, the first in order
    return Column(name, "categorical", tuple(categories), fill)


def _fill_numbers(part: Floats, where: str, column: Column, table: Any, notes: list[str]) -> int:
    """Write the feature of a numeric or boolean column; return how many values are missing."""
    wanted = "a number" if column.kind == "numeric" else "true or false"
    values, kind, _ = _unpacked(table, column.name, f"since the model was trained with {wanted} in each row")
    if kind == "categorical":
        _refuse_texts(where, column, _texts(values), wanted)
    numbers = _numbers(where, column.name, values)
    gaps = np.isnan(numbers)
    odd = np.zeros(0, dtype=bool) if column.kind == "numeric" else ~gaps & (numbers != 0) & (numbers != 1)
    if (at := _first(odd)) >= 0:
        _refuse_value(where, column.name, at, _plain(float(numbers[at])), wanted)
    part[:, 0] = numbers if column.fill is None else np.where(gaps, float(column.fill), numbers)
    return int(gaps.sum())


def _refuse_texts(where: str, column: Column, texts: Any, wanted: str) -> None:
    """Refuse text in place of numbers, at the first cell that is to blame; a column without any text passes."""
    from pyarrow import compute

    pattern = NUMBER if column.kind == "numeric" else f"^({'|'.join(w for pair in WORDS for w in pair)}|0|1)$"
    at = compute.index(compute.match_substring_regex(texts, pattern), False).as_py()
    at = compute.index(texts.is_valid(), True).as_py() if at < 0 else at
    if at >= 0:
        _refuse_value(where, column.name, at, f"the text {_value(texts[at])}", wanted)


def _refuse_value(where: str, name: str, at: int, value: str, wanted: str) -> None:
    raise DataError(
        f"{where}column {shown(name)} holds {value} in row {at + 1:,}, expected {wanted} as in training; mend the cell"
    )


def _fill_texts(part: Floats, where: str, column: Column, table: Any, notes: list[str]) -> int:
    """Write the features of a categorical column; return how many values are missing."""
    import pyarrow as pa
    from pyarrow import compute

    values, _, _ = _unpacked(table, column.name, "since the model was trained with text")
    texts = _texts(values, column.categories)
    at = compute.index_in(texts, pa.array(column.categories, pa.large_string())).fill_null(-1).to_numpy().copy()
    gaps = texts.is_null().to_numpy()
    new = (at < 0) & ~gaps
    if new.any():
        count = int(new.sum())
        notes.append(
            f"{where}{count:,} {'row has a value' if count == 1 else 'rows have values'} of {shown(column.name)} never "
            f"seen in training, e.g. {_value(texts[_first(new)])}: all its features are 0 there"
        )
    if column.fill is not None:
        at[gaps] = column.categories.index(str(column.fill))
    rows = np.flatnonzero(at >= 0)
    part[rows, at[rows]] = 1.0
    return int(gaps.sum())


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
    if task not in TASKS:
        raise DataError(f"unknown task {task!r}; expected one of {', '.join(TASKS)}")
    _check_names(table, [target])
    name, rows = f"{source(table)}target {shown(target)}", table.num_rows
    if rows < 2:
        raise DataError(f"{name} has {rows} row{'s' * (rows != 1)}, expected at least 2 rows to learn from; add rows")
    values, kind, packed = _unpacked(table, target, "or choose another target")
    numbers = np.zeros(0) if kind == "categorical" else _numbers(source(table), target, values)
    gaps = values.is_null().to_numpy() if kind == "categorical" else np.isnan(numbers)
    if gaps.any():
        count, at = int(gaps.sum()), _first(gaps)
        words = f"{count:,} missing value{'s' * (count > 1)}, the first in row {at + 1:,}"
        raise DataError(f"{name} has {words}; fill them or remove these rows")
    notes: list[str] = []
    if task == "auto":
        task, reason = _decided(kind, packed, values, numbers)
        notes.append(f"{name}: {reason}")
    if task == "regress":
        if kind == "categorical":
            raise DataError(f"{name} is text ({_value(values[0])} in row 1), expected numbers; pass --task classify")
        if numbers.min() == numbers.max():
            raise DataError(f"{name} is {_plain(float(numbers[0]))} in every row: nothing to learn; choose another")
        return Target(numbers.copy(), task, notes)
    return Target(_labels(name, kind, values, numbers), task, notes)


def _decided(kind: str, packed: bool, values: Any, numbers: Floats) -> tuple[str, str]:
    """The task, and why."""
    if kind == "categorical" or kind == "boolean" or packed:
        return "classify", f"its {len(values.unique()):,} different values are taken as classes"
    if not _whole(numbers):
        return "regress", "numbers with fractions, taken as amounts (for classes, write them as text or whole numbers)"
    different = len(np.unique(numbers))
    what = f"{different:,} different whole numbers"
    if different <= FEW_CLASSES and (different <= 2 or different <= len(numbers) / 2):
        return "classify", f"{what}, taken as classes; --task regress takes them as amounts"
    return "regress", f"{what}, taken as amounts; --task classify takes them as classes"


def _labels(name: str, kind: str, values: Any, numbers: Floats) -> NDArray[Any]:
    import pyarrow as pa
    from pyarrow import compute, types

    if kind == "categorical":
        widest = compute.max(compute.utf8_length(_texts(values))).as_py()
        check_fits(4.0 * len(values) * widest, f"{name}: {len(values):,} texts", "shorten the texts of the classes")
        labels = np.array(values.to_pylist(), dtype=str)
    elif kind == "boolean":
        labels = numbers.astype(bool)
    elif not _whole(numbers):
        at = _first(numbers != np.floor(numbers))
        raise DataError(
            f"{name} holds {numbers[at]} in row {at + 1:,}, expected text or whole numbers as classes; pass --task "
            "regress"
        )
    elif (at := _first(np.abs(numbers) >= 2.0**63)) >= 0:
        raise DataError(f"{name} holds {numbers[at]} in row {at + 1:,}, too large for a class; write it as text")
    else:  # not by way of floats where there is another: they merge integers beyond 2**53
        labels = values.cast(pa.int64()).to_numpy() if types.is_integer(values.type) else numbers.astype(np.int64)
    classes = np.unique(labels)
    if len(classes) == 1:
        raise DataError(f"{name} has the one class {_value(classes[0])}, expected at least 2; choose another target")
    if len(classes) > MOST_CLASSES or (len(labels) > 20 and len(classes) > len(labels) / 2):
        advice = "choose another target" if kind == "categorical" else "pass --task regress or choose another target"
        raise DataError(
            f"{name} has {len(classes):,} classes in {len(labels):,} rows: it looks like an identifier or a number; "
            f"{advice}"
        )
    return labels.copy()


def _whole(numbers: Floats) -> bool:
    return bool(np.all(numbers == np.floor(numbers)))


def _check_names(table: Any, names: Sequence[Any]) -> None:
    known = table.column_names
    for name in names:
        if name not in known:
            raise DataError(
                f"{source(table)}there is no column {shown(str(name))}{_meant(str(name), known)}; the columns are "
                f"{_listed(known)}"
            )


def _meant(name: str, known: Sequence[str]) -> str:
    lowered = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f" (did you mean {shown(lowered[close[0]])}?)" if close else ""


def _listed(names: Sequence[str], most: int = 20) -> str:
    some = ", ".join(map(shown, names[:most]))
    return some if len(names) <= most else f"{some}, ..."


def _counted(missing: dict[str, int]) -> str:
    first, *others = [f"{count:,} in {shown(name)}" for name, count in missing.items()]
    noun = "missing values" if sum(missing.values()) > 1 else "missing value"
    return ", ".join([first.replace(" in ", f" {noun} in ", 1), *others])


def _plain(value: float | bool | str) -> str:
    """A number without the .0 of whole ones, a truth value in small letters, a text as it is.

    >>> _plain(3.0), _plain(0.1), _plain(True), _plain("x")
    ('3', '0.1', 'true', 'x')
    """
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, bool):
        return WORDS[0][not value]
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


def _value(cell: Any) -> str:
    """A cell as it goes into a message: quoted if it is text, and not too long."""
    value = cell.as_py() if hasattr(cell, "as_py") else cell.item()
    return repr(value if len(value) <= 60 else value[:57] + "...") if isinstance(value, str) else str(value)


def _first(mask: NDArray[np.bool_]) -> int:
    """Where the first True is, -1 if nowhere."""
    return int(mask.argmax()) if mask.any() else -1

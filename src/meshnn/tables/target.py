"""The column to predict: whether it holds classes or numbers, and its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError
from meshnn.memory import check_fits
from meshnn.tables.cells import Cells, cells_of
from meshnn.tables.names import check_names, plain, quoted, shown, source, take_rows

__all__ = ["MAX_CLASSES", "Target", "choose_task", "target_column", "target_task"]

#: Maximum number of classes.
MAX_CLASSES = 1000


@dataclass(frozen=True)
class Target:
    """The values to predict and the task."""

    values: NDArray[Any]  # (n,) float64 to regress; str, int64 or bool to classify
    task: str  # "classify" or "regress"
    notes: list[str]  # how the task was chosen, and whether rows were skipped
    table: Any  # the rows that have a target
    skipped: int = 0  # rows without a target


def target_column(table: Any, target: str, task: str = "auto") -> Target:
    """Return the column to predict; rows where it is missing are skipped.

    With task "auto", text and booleans are classes, numbers with fractions are a regression target. Integers are
    classes if there are at most 20 different ones, each twice or more on average (or just two different ones).

    Examples
    --------
    >>> import pyarrow as pa
    >>> from meshnn.tables.target import target_column
    >>> target_column(pa.table({"y": [0.5, 1.5, None]}), "y").task
    'regress'
    """
    cells, name, notes = _cells(table, target, task)
    skipped = cells.missing
    if skipped:
        table = take_rows(table, np.flatnonzero(~cells.gaps))
        cells = _cells(table, target, task)[0]
        notes.append(f"{name}: {skipped:,} row{'s' * (skipped > 1)} without a value skipped")
    if (rows := table.num_rows) < 2:
        what = f"{rows} row{'s' * (rows != 1)}" + " with a value" * bool(skipped)
        raise DataError(f"{name} has {what}, expected at least 2 rows to learn from", code="rows", field=target)
    if task == "auto":
        task, reason = choose_task(cells)
        notes.append(f"{name}: {reason}")
    values = _labels(name, cells) if task == "classify" else _numbers(name, cells)
    return Target(values, task, notes, table, skipped)


def target_task(table: Any, target: str, task: str = "auto") -> tuple[str, list[str]]:
    """Return the task as `target_column` chooses it, from some rows of a table that is too large; and remarks."""
    cells, name, notes = _cells(table, target, task)
    if cells.missing:
        cells = _cells(table.filter(~cells.gaps), target, task)[0]
    rows = len(cells.values)
    if task == "auto":
        task, reason = choose_task(cells) if rows else ("regress", "there are no values")
        notes.append(f"{name}: in {rows:,} rows that were looked at, {reason}")
    if task == "regress" and cells.kind == "categorical":
        raise DataError(f"{name} is text, expected numbers", code="text target", field=target)
    if task == "classify":
        _check_classes(name, cells, len(cells.values.unique()), " that were looked at")
    return task, notes


def _cells(table: Any, target: str, task: str) -> tuple[Cells, str, list[str]]:
    if task not in ("auto", "classify", "regress"):
        raise DataError(f"unknown task {task!r}; expected one of auto, classify, regress", code="task")
    check_names(table.column_names, [target], source(table))
    cells = cells_of(table, target)
    if cells.kind == "date":
        raise DataError(f"{cells.called} holds dates ({cells.values.type}), expected numbers, text or booleans",
                        code="target type", field=target, value=str(cells.values.type))  # fmt: skip
    return cells, f"{source(table)}target {shown(target)}", []


def choose_task(cells: Cells, few: int = 20) -> tuple[str, str]:
    """Return "classify" or "regress" for cells without gaps, and why; at most `few` different integers are classes."""
    if cells.packed or cells.kind != "numeric":
        return "classify", f"its {len(cells.values.unique()):,} different values are taken as classes"
    if np.any(cells.numbers % 1):
        return "regress", "numbers with fractions, taken as amounts (for classes, write them as text or integers)"
    different = len(np.unique(cells.numbers))
    what = f"{different:,} different integers in {len(cells.numbers):,} rows"
    if different <= few and (different <= 2 or different <= len(cells.numbers) / 2):
        return "classify", f"{what}, taken as classes"
    return "regress", f"{what}, taken as amounts"


def _numbers(name: str, cells: Cells) -> NDArray[Any]:
    found = cells.as_numbers(code="text target")
    if cells.numbers.min() == cells.numbers.max():
        message = f"{name} is {plain(float(cells.numbers[0]))} in every row: nothing to learn; choose another"
        raise DataError(message, code="constant", field=cells.name)
    return np.array(found)


def _labels(name: str, cells: Cells) -> NDArray[Any]:
    values, rows = cells.values, len(cells.values)
    if cells.kind == "numeric":
        wrong = (cells.numbers % 1 != 0) | (np.abs(cells.numbers) >= 2.0**63)
        if wrong.any():
            cells.refuse(int(wrong.argmax()), str(cells.numbers[wrong.argmax()]),
                         "text or integers of at most 18 digits as classes", "number target")  # fmt: skip
        values = values.cast("int64")  # not by way of floats: they merge integers beyond 2**53
    elif cells.kind == "categorical":
        size = 4.0 * rows * max(map(len, values.unique().to_pylist()))
        check_fits(size, f"{name}: {rows:,} texts", "shorten the texts of the classes")
    labels = np.array(values.to_pylist(), dtype=str if cells.kind == "categorical" else None)
    classes = np.unique(labels)
    if len(classes) == 1:
        message = f"{name} has the one class {classes[0].item()!r}, expected at least 2; choose another target"
        raise DataError(message, code="constant", field=cells.name)
    _check_classes(name, cells, len(classes))
    return labels


def _check_classes(name: str, cells: Cells, found: int, which: str = "") -> None:
    rows = len(cells.values)
    if found > MAX_CLASSES or (rows > 20 and found > rows / 2):
        what = f"{found:,} classes in {rows:,} rows{which}: it looks like an identifier or a number"
        code = "many classes" if cells.kind == "categorical" else "number target"
        raise DataError(f"{name} has {what}; choose another target", code=code, field=cells.name, value=str(found))

"""The target column: classes or numbers, and its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError
from meshnn.memory import check_fits
from meshnn.tables.cells import Cells, cells_of, first
from meshnn.tables.names import check_names, shown, source, take_rows

__all__ = ["MAX_CLASSES", "Target", "choose_task", "target_column", "target_task"]

#: Maximum number of classes.
MAX_CLASSES = 1000


@dataclass(frozen=True)
class Target:
    """The target values and the task."""

    values: NDArray[Any]  # (n,) float64 to regress; str, int64 or bool to classify
    task: str  # "classify" or "regress"
    notes: list[str]  # the reason for the task, and the number of skipped rows
    table: Any  # the rows with a target
    skipped: int = 0  # rows without a target


def target_column(table: Any, target: str, task: str = "auto") -> Target:
    """Return the target column; rows with a missing target are skipped.

    With task "auto", text and booleans are classes, and numbers with fractions are a regression target. Integers are
    classes if there are at most 20 distinct ones and each occurs at least twice on average, or if there are only two.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from meshnn.tables.target import target_column
    >>> target_column(pa.table({"y": [0.5, 1.5, None]}), "y").task
    'regress'
    """
    table, cells, skipped = _given(table, target, task)
    name, rows, notes = _called(cells), table.num_rows, list[str]()
    if skipped:
        notes.append(f"{name}: {skipped:,} row{'s' * (skipped > 1)} without a value skipped")
    if rows < 2:
        what = f"{rows} row{'s' * (rows != 1)}" + " with a value" * bool(skipped)
        raise DataError(f"{name} has {what}, expected at least 2 rows to learn from", code="rows", field=target)
    if task == "auto":
        task, reason = choose_task(cells)
        notes.append(f"{name}: {reason}")
    values = _labels(cells) if task == "classify" else cells.as_numbers(code="text target").copy()
    if (values == values[0]).all():
        message = f"{name} has the one value {values[0].item()!r}: nothing to learn; choose another"
        raise DataError(message, code="constant", field=target)
    if task == "classify":
        _check_classes(cells, len(np.unique(values)))
    return Target(values, task, notes, table, skipped)


def target_task(table: Any, target: str, task: str = "auto") -> tuple[str, list[str]]:
    """Return the task by the rule of `target_column`, from a sample of the rows of a large table, and notes."""
    table, cells, _ = _given(table, target, task)
    notes = []
    if task == "auto":
        task, reason = choose_task(cells) if table.num_rows else ("regress", "there are no values")
        notes.append(f"{_called(cells)}: in {table.num_rows:,} sampled rows, {reason}")
    if task == "classify":
        _check_classes(cells, len(cells.values.unique()), " of the sample")
    elif cells.kind == "categorical":
        raise DataError(f"{_called(cells)} is text, expected numbers", code="text target", field=target)
    return task, notes


def _given(table: Any, target: str, task: str) -> tuple[Any, Cells, int]:
    """Return the rows with a target, their targets, and the number of other rows."""
    if task not in ("auto", "classify", "regress"):
        raise DataError(f"unknown task {task!r}; expected one of auto, classify, regress", code="task")
    check_names(table.column_names, [target], source(table))
    cells = cells_of(table, target)
    if cells.kind == "date":
        raise DataError(f"{cells.called} holds dates ({cells.values.type}), expected numbers, text or booleans",
                        code="target type", field=target, value=str(cells.values.type))  # fmt: skip
    if not (skipped := cells.missing):
        return table, cells, 0
    table = take_rows(table, np.flatnonzero(~cells.gaps))
    return table, cells_of(table, target), skipped


def _called(cells: Cells) -> str:
    return f"{source(cells.table)}target {shown(cells.name)}"


def choose_task(cells: Cells, few: int = 20) -> tuple[str, str]:
    """Return "classify" or "regress" and the reason. Integers are classes up to `few` distinct ones."""
    if cells.packed or cells.kind != "numeric":
        return "classify", f"its {len(cells.values.unique()):,} different values are taken as classes"
    if np.any(cells.numbers % 1):
        return "regress", "numbers with fractions, taken as a regression target (write classes as text or integers)"
    different = len(np.unique(cells.numbers))
    what = f"{different:,} different integers in {len(cells.numbers):,} rows"
    if different <= few and (different <= 2 or different <= len(cells.numbers) / 2):
        return "classify", f"{what}, taken as classes"
    return "regress", f"{what}, taken as a regression target"


def _labels(cells: Cells) -> NDArray[Any]:
    values, rows = cells.values, len(cells.values)
    if cells.kind == "numeric":
        wrong = (cells.numbers % 1 != 0) | (np.abs(cells.numbers) >= 2.0**63)
        if (at := first(wrong)) >= 0:
            expected = "text or integers of at most 18 digits as classes"
            cells.refuse(at, str(cells.numbers[at]), expected, "number target")
        values = values.cast("int64")  # not through floats, which cannot represent all integers beyond 2**53
    elif cells.kind == "categorical":
        size = 4.0 * rows * max(map(len, values.unique().to_pylist()))
        check_fits(size, f"{_called(cells)}: {rows:,} texts", "shorten the texts of the classes")
    return np.array(values.to_pylist(), dtype=str if cells.kind == "categorical" else None)


def _check_classes(cells: Cells, found: int, which: str = "") -> None:
    rows = len(cells.values)
    if found > MAX_CLASSES or (rows > 20 and found > rows / 2):
        what = f"{found:,} classes in {rows:,} rows{which}: it looks like an identifier or a number"
        code = "many classes" if cells.kind == "categorical" else "number target"
        message = f"{_called(cells)} has {what}; choose another target"
        raise DataError(message, code=code, field=cells.name, value=str(found))

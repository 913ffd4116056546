"""Prediction and learning of the rows of a table with a stream model.

Runs of rows without new features or classes are processed by compiled code, all other rows one by one. The results are
bitwise identical to those of `predict_one` and `learn_one` for each row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array, BoolArray, FloatArray, IntArray
from meshnn.errors import DataError
from meshnn.online._base import StreamModel
from meshnn.tables.blocks import Block
from meshnn.tables.names import shown
from meshnn.tables.streams import Labels, Parsed, StreamSchema, decimal_comma, parse_column, parse_labels, parse_times
from meshnn.tables.target import MAX_CLASSES

__all__ = ["Piece", "Rows", "TableRunner", "model_classes", "model_values", "outputs_of"]


@dataclass
class Rows:
    """The parsed rows of a block."""

    columns: dict[str, Parsed]  # features
    labels: Labels | None  # targets of a classifier
    targets: Any  # targets of a regressor, NaN where missing; None for a classifier
    times: tuple[str, Any] | None  # kind and values of the column that orders the rows
    count: int  # number of usable rows
    fault: DataError | None  # the error in the row after them

    @property
    def learned(self) -> BoolArray:
        """Rows that have a target."""
        return np.asarray(self.labels.codes >= 0 if self.labels is not None else self.targets == self.targets)

    def stop(self, block: Block, at: int, code: str, column: str, called: str, what: str) -> None:
        """End the usable rows before row `at` and record its error; `what` is a template with {cell} and {row}."""
        cell, row = _cell(block, column, at)
        message = f"{called} {what.format(cell=cell, row=row)}"
        self.count, self.fault = at, DataError(message, code=code, field=column, value=cell)


@dataclass
class Piece:
    """Predictions for consecutive rows, made before their targets were learned."""

    first: int  # first row, within the block
    last: int  # the row after the last one
    truth: Any  # class indices, -1 where missing; or target values, NaN where missing
    predicted: Any  # class indices or values, in the same form
    right: FloatArray | None = None  # the probability of the true class; NaN where there is none
    chosen: FloatArray | None = None  # the probability of the predicted class


class TableRunner:
    """Predicts and then learns the rows of a table; new category levels are added to the schema.

    In text files with another `separator` than a comma, numbers with decimal commas are an error.
    """

    def __init__(self, model: StreamModel, schema: StreamSchema, separator: str = ",") -> None:
        self.model, self.schema, self.separator = model, schema, separator
        self.notes: dict[tuple[str, str], str] = {}  # one per code and column
        self.latest: tuple[str, float | int] | None = None  # kind and value of the last time

    # -- parsing ----------------------------------------------------------------------------------------------

    def rows(self, block: Block, name: str) -> Rows:
        """Return the parsed rows of a block; an error in a row is recorded and raised when that row is reached."""
        schema, table = self.schema, block.table
        for column, what in ((schema.target, "is the target"), (schema.by, "orders the rows")):
            if column is not None and column not in table.column_names:
                what = f"{name} has no column {shown(column)}, which {what}"
                raise DataError(what, code="column", field=column)
        columns: dict[str, Parsed] = {}
        rows = Rows(columns, None, None, None, len(block), block.fault)
        for column in schema.features:
            if column not in table.column_names:
                continue
            columns[column] = parsed = parse_column(table.column(column), column in schema.text)
            if parsed.infinite >= 0:
                _, row = _cell(block, column, parsed.infinite)
                self._note("infinite", column, f"column {shown(column)} is infinite in row {row}: treated as missing")
            if self.separator not in ("", ",") and 0 <= (at := decimal_comma(parsed)) < rows.count:
                what = "has decimal commas ({cell!r} in row {row}), expected decimal points"
                rows.stop(block, at, "decimal", column, f"{name}: column {shown(column)}", what)
        self._read_target(rows, block, name)
        if schema.by is not None:
            self._check_order(rows, block, name, schema.by)
        return rows

    def _read_target(self, rows: Rows, block: Block, name: str) -> None:
        schema = self.schema
        cells = block.table.column(schema.target)
        if schema.task == "classify":
            rows.labels = parse_labels(cells, schema.labels)
            return
        parsed = parse_column(cells)
        rows.targets = parsed.numbers
        wrong = [int((parsed.codes >= 0).argmax())] if parsed.texts else []
        wrong += [parsed.infinite] if parsed.infinite >= 0 else []
        if wrong and min(wrong) < rows.count:
            what = "holds {cell!r} in row {row}, expected a finite number; fix or empty the cell"
            rows.stop(block, min(wrong), "text target", schema.target, f"{name}: target {shown(schema.target)}", what)

    def _check_order(self, rows: Rows, block: Block, name: str, by: str) -> None:
        kind, times, good = parse_times(block.table.column(by), None if self.latest is None else self.latest[0])
        called = f"{name}: column {shown(by)}, which orders the rows:"
        if good < rows.count:
            wanted = "a number" if kind == "number" else "a number, or a time like 2026-08-01 12:30:00 or 2026-08"
            rows.stop(
                block, good, "order", by, called, f"row {{row}} holds {{cell!r}}, expected {wanted}; fix the cell"
            )
        rows.times = kind, times
        at = np.flatnonzero(_there(kind, times[: rows.count]))
        before = [] if self.latest is None else [self.latest[1]]
        ordered = np.concatenate([np.array(before, times.dtype), times[at]])
        steps = np.flatnonzero(ordered[1:] < ordered[:-1])
        if len(steps):
            what = "row {row} ({cell}) comes before the row above it; sort the table by that column"
            rows.stop(block, int(at[steps[0] + 1 - len(before)]), "order", by, called, what)

    def _note(self, code: str, column: str, text: str) -> None:
        self.notes.setdefault((code, column), text)

    # -- running --------------------------------------------------------------------------------------------------

    def walk(self, rows: Rows, first: int, last: int) -> Iterator[Piece]:
        """Predict and learn the rows from first to last; yields pieces, after each of which the caller may stop."""
        at = first
        for row in self._events(rows, first, last):
            if at < row:
                yield self._run(rows, at, row)
            yield self._single(rows, row)
            at = row + 1
        if at < last:
            yield self._run(rows, at, last)

    def _events(self, rows: Rows, first: int, last: int) -> Iterator[int]:
        """Yield the rows in which a feature or a class appears for the first time."""
        model, at = self.model, first
        while model.stream_ is None and at < last:  # the network is built from the first row that has features
            yield at
            at += 1
        learned = rows.learned[at:last]
        wanted: set[int] = set()
        for name, parsed in rows.columns.items():
            numbers = parsed.numbers[at:last]
            if name not in model.features_._place:
                wanted |= _first(learned & (numbers == numbers))
            if parsed.texts:
                wanted |= self._new_levels(name, parsed, learned, at, last)
        if rows.labels is not None:
            for code, label in enumerate(rows.labels.values):
                if label not in model._number:
                    wanted |= _first(rows.labels.codes[at:last] == code)
        yield from sorted(at + row for row in wanted)

    def _new_levels(self, name: str, parsed: Parsed, learned: BoolArray, at: int, last: int) -> set[int]:
        """Return the rows in which a new category level appears that becomes a feature."""
        known = set(self.schema.levels.get(name, ()))
        new = np.array([*(text not in known for text in parsed.texts), False])
        codes = parsed.codes[at:last]
        rows = np.flatnonzero(learned & new[codes])
        different, firsts = np.unique(codes[rows], return_index=True)
        room = self.schema.most - len(known)
        if len(different) > room:
            text = parsed.texts[different[np.argsort(firsts)[room]]]
            most = f"column {shown(name)} has more than {self.schema.most:,} different texts"
            self._note("levels", name, f"{most}: further ones (such as {text[:40]!r}) are encoded as all zeros")
        return set(rows[np.sort(firsts)[:room]].tolist())

    def _dictionary(self, rows: Rows, row: int, learn: bool) -> dict[Any, float]:
        """Return the features of a row by name; with `learn`, new texts become levels up to the limit."""
        x: dict[Any, float] = {}
        schema = self.schema
        for name, parsed in rows.columns.items():
            number, code = float(parsed.numbers[row]), int(parsed.codes[row])
            if number == number:
                x[name] = number
            elif code < 0:
                continue
            levels = schema.levels.get(name, [])
            text = parsed.texts[code] if code >= 0 else None
            if learn and text is not None and text not in levels and len(levels) < schema.most:
                levels = schema.levels.setdefault(name, levels)
                levels.append(text)
            for level in levels:
                x[schema.feature(name, level)] = float(level == text)
        return x

    def _single(self, rows: Rows, row: int) -> Piece:
        """Predict and learn one row with `predict_one` and `learn_one`, which let the network grow."""
        model, learn = self.model, bool(rows.learned[row])
        target = None
        if learn:
            target = rows.targets[row] if rows.labels is None else rows.labels.values[rows.labels.codes[row]]
            if rows.labels is not None and target not in model._number and len(model.classes_) >= MAX_CLASSES:
                raise DataError(
                    f"target {shown(self.schema.target)} has more than {MAX_CLASSES:,} classes and looks like an "
                    "identifier or a number; choose another target", code="number target", field=self.schema.target,
                )  # fmt: skip
        x = self._dictionary(rows, row, learn)
        out = model._outputs_of(x)
        piece = self._piece(rows, row, row + 1, None if out is None else out[None].copy())
        if learn and (x or model.stream_ is not None):
            model.learn_one(x, target)
            if rows.labels is not None:
                piece.truth = self._numbers(rows, row, row + 1)  # the class may be new
        elif model.stream_ is not None:
            model.stream_.step(model.features_.fill(x)[0, 0])
        return piece

    def _run(self, rows: Rows, first: int, last: int) -> Piece:
        """Predict and learn rows without new features or classes, in compiled code."""
        model = self.model
        if rows.labels is None:
            targets = rows.targets[first:last]
        else:  # as in `learn_one`, two classes share one output
            number = self._numbers(rows, first, last)
            targets = np.where(number < 0, np.nan, 1 - number if len(model.classes_) <= 2 else number)
        out = model._net[1].run(self.matrix(rows, first, last), targets)
        model.n_samples_ += int(rows.learned[first:last].sum())
        return self._piece(rows, first, last, out)

    def matrix(self, rows: Rows, first: int, last: int) -> FloatArray:
        """Return rows of features in the order of the current inputs; NaN where missing."""
        place, schema = self.model.features_._place, self.schema
        X = np.full((last - first, len(place)), np.nan)
        for name, parsed in rows.columns.items():
            if name in place:
                X[:, place[name]] = parsed.numbers[first:last]
            places = {level: place.get(schema.feature(name, level), -1) for level in schema.levels.get(name, ())}
            used = [at for at in places.values() if at >= 0]
            if used:
                X[np.flatnonzero(parsed.given[first:last])[:, None], used] = 0.0
                ones = np.array([*(places.get(text, -1) for text in parsed.texts), -1], np.int64)
                ones = ones[parsed.codes[first:last]]
                X[np.flatnonzero(ones >= 0), ones[ones >= 0]] = 1.0
        return X

    def _numbers(self, rows: Rows, first: int, last: int) -> IntArray:
        """Return the class index of each row; -1 for missing and unknown classes."""
        assert rows.labels is not None
        number = self.model._number
        known = np.array([*(number.get(label, -1) for label in rows.labels.values), -1], np.int64)
        return np.asarray(known[rows.labels.codes[first:last]])

    def _piece(self, rows: Rows, first: int, last: int, out: Array | None) -> Piece:
        """Return the predictions for rows, and record the time of the last one."""
        n, model = last - first, self.model
        if rows.times is not None:
            kind, times = rows.times[0], rows.times[1][first:last]
            if (there := _there(kind, times)).any():
                self.latest = kind, times[there][-1].item()
        nothing = np.full(n, np.nan)
        if rows.labels is None:
            return Piece(first, last, rows.targets[first:last], nothing if out is None else model_values(model, out))
        truth, at = self._numbers(rows, first, last), np.arange(n)
        if out is None or not model.classes_:
            return Piece(first, last, truth, np.full(n, -1, np.int64), nothing, nothing.copy())
        predicted, P = model_classes(model, out)
        right = np.where(truth >= 0, P[at, np.maximum(truth, 0)], np.nan)
        return Piece(first, last, truth, predicted, right, P[at, predicted])


def _cell(block: Block, column: str, at: int) -> tuple[str, str]:
    """Return the text of a cell and the number of its row in the table, for messages."""
    return str(block.table.column(column)[at].as_py())[:60], f"{block.first + at + 1:,}"


def _there(kind: str, times: Any) -> BoolArray:
    """Return a mask of the times that are not missing."""
    return np.asarray(times == times if kind == "number" else times > np.iinfo(np.int64).min)


def _first(mask: BoolArray) -> set[int]:
    return {int(mask.argmax())} if mask.any() else set()


def model_classes(model: Any, out: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the predicted class indices, as by `predict_one`, and the probabilities for rows of outputs."""
    P: FloatArray = np.array([model._probabilities(row) for row in out]).reshape(len(out), len(model.classes_))
    if out.shape[1] == 1:
        found = (out[:, 0] < 0).astype(np.int64) if len(model.classes_) > 1 else np.zeros(len(out), np.int64)
        return found, P
    return out.argmax(axis=1).astype(np.int64), P


def model_values(model: Any, out: FloatArray) -> FloatArray:
    """Return the predicted values, as by `predict_one`, for rows of outputs."""
    found = out[:, 0]
    if model.loss == "poisson":
        return np.array([math.exp(min(value, 700.0)) for value in found.tolist()])
    return found.copy()


def outputs_of(model: StreamModel, X: FloatArray) -> FloatArray:
    """Return outputs for rows of features without learning; with memory="carry" the state carries over between rows."""
    stream = model._net[1]
    return stream.run(X) if model.memory == "carry" else stream.peek_rows(X[:, None])

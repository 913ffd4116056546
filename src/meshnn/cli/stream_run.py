"""The loop of `meshnn stream`: read rows, write predictions, and save the model at intervals and at the end."""

from __future__ import annotations

import csv
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.cli.output import hint, say_notes
from meshnn.cli.stream_state import StreamState
from meshnn.errors import DataError, FileError, MeshError
from meshnn.files import explained
from meshnn.online.blocks import Piece, Rows, TableRunner
from meshnn.online.scores import ClassScores, ValueScores
from meshnn.tables.blocks import Block, Position, Reader
from meshnn.tables.names import shown
from meshnn.tables.streams import StreamSchema, check_decimal_points, check_no_dates, decided


def save_interval(text: str) -> tuple[int | None, float]:
    """Return the interval between saves: a number of rows, or None and a number of seconds.

    >>> save_interval("5000"), save_interval("30s"), save_interval("2m")
    ((5000, 0.0), (None, 30.0), (None, 120.0))
    """
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*(s|m|h)?\s*", text)
    number = float(match[1]) if match else 0.0
    if match is None or number <= 0 or (match[2] is None and number % 1):
        raise MeshError(f"--every must be a number of rows such as 5000, or a time such as 30s, 5m or 1h, got {text!r}")
    return int(number) if match[2] is None else None, number * {"s": 1, "m": 60, "h": 3600}.get(match[2], 0)


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Yield a list that receives the exit code of SIGINT or SIGTERM. A second Ctrl-C interrupts at once."""
    codes: list[int] = []

    def request_stop(number: int, frame: Any) -> None:
        if codes and number == signal.SIGINT:
            raise KeyboardInterrupt
        codes.append(128 + number)

    in_main = threading.current_thread() is threading.main_thread()  # other threads cannot set handlers
    before = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM) if in_main}
    try:
        yield codes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class PredictionFile:
    """A .csv file with one line per row. A resumed run continues it after its first `begin` bytes."""

    def __init__(self, path: Path, schema: StreamSchema, begin: int | None = None) -> None:
        self._path, self._classes = path, schema.task == "classify"
        self._columns = [name for name in (schema.by, schema.target) if name is not None]
        with explained("write", str(path)):
            self._file = path.open("w" if begin is None else "r+", encoding="utf-8", newline="")
        self._lines = csv.writer(self._file, lineterminator="\n")
        if begin is None:
            self._lines.writerow(["row", *self._columns, "prediction", *["probability"] * self._classes])
        elif path.stat().st_size < begin:
            raise MeshError(
                f"--predictions: {path} is shorter than at the last save; choose another file for the next rows"
            )
        else:
            self._file.truncate(self._file.seek(begin))

    def add(self, block: Block, piece: Piece, base: int, classes: list[Any]) -> None:
        """Write the rows of a piece."""
        first = base + block.first + 1
        columns: list[Any] = [range(first + piece.first, first + piece.last)]
        columns += [block.table.column(name)[piece.first : piece.last].to_pylist() for name in self._columns]
        if self._classes:
            columns.append([classes[k] if k >= 0 else None for k in piece.predicted.tolist()])
        numbers: Any = piece.chosen if self._classes else piece.predicted
        columns.append([value if value == value else None for value in numbers.tolist()])
        self._lines.writerows(zip(*columns, strict=True))
        self._file.flush()

    def sync(self) -> dict[str, Any]:
        """Write the file to the disk; return its path and size."""
        with suppress(OSError):
            os.fsync(self._file.fileno())
        return {"path": str(self._path.absolute()), "bytes": os.fstat(self._file.fileno()).st_size}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass
class Run:
    """One run over a table, from its first row or from the end of a saved run."""

    source: Reader
    state: StreamState  # stored with the model
    model: Any  # None before the first rows
    parameters: dict[str, Any]  # of a new model
    task: str
    window: int  # of the scores of a new model
    out: Path
    every: tuple[int | None, float]  # rows, or else seconds, between two saves
    predictions_path: Path | None
    tell: Callable[[float, float | None, str], None]  # shows the progress

    def __post_init__(self) -> None:
        self.rows = 0  # of this run
        self.codes: list[int] = []  # exit codes of interruptions
        self._runner: TableRunner | None = None
        self._predictions: PredictionFile | None = None
        self._noted: set[Any] = set()
        self._position: Callable[[], Position]  # after the last row that was learned
        self._began = self._saved_at = time.monotonic()
        self._saved_rows, self._saving = 0, 0.0
        self._most = 64  # rows per piece: about 0.1 s, so that signals are handled

    def go(self) -> None:
        """Run until the table ends or a signal arrives. At an invalid row, save the model and raise the error."""
        with stop_requests() as self.codes:
            try:
                self._loop()
            except DataError:
                if self._runner is not None and self.rows:
                    self._save()
                    say_notes([f"the model trained on the first {self.state.rows:,} rows is saved in {self.out}"])
                raise
            if self._runner is not None:
                self._save(finished=not self.codes)

    def _loop(self) -> None:
        pending: list[Block] = []
        for block in self.source.blocks():
            if self.codes:
                return
            if block is None:
                self._tick()
                continue
            pending.append(block)
            if self._runner is not None or self._begin(pending, last=False):
                self._take_all(pending)
        if pending and not self.codes and self._begin(pending, last=True):
            self._take_all(pending)

    def _take_all(self, pending: list[Block]) -> None:
        while pending:
            self._take(pending.pop(0))

    def _begin(self, pending: list[Block], last: bool) -> bool:
        """Make the model, if there are enough rows, and open the file of predictions. Return whether this was done."""
        if self.model is None and not self._make_model(pending, last):
            return False
        self._runner = TableRunner(self.model, self.state.schema, self.source.separator)
        self._runner.latest = self.state.latest
        before = self.state.predictions
        path = self.predictions_path or (Path(before["path"]) if before else None)
        same = path is not None and before and str(path.absolute()) == before["path"] and path.exists()
        if path is not None and (same or self.predictions_path is not None):
            self._predictions = PredictionFile(path, self.state.schema, int(before["bytes"]) if same else None)
        elif path is not None:
            say_notes([f"the file of predictions {path} no longer exists; pass --predictions to write a new one"])
        return True

    def _make_model(self, pending: list[Block], last: bool) -> bool:
        """Choose the task and make the model, if there are enough rows. Return whether this was done."""
        from meshnn.online import MeshStreamClassifier, MeshStreamRegressor

        schema, most = self.state.schema, 100 if self.source.live else 1000
        rows = sum(map(len, pending))
        enough = last or rows >= most or bool(pending[-1].fault)
        if not enough and not self.source.live:
            return False
        targets = [block.table.column(schema.target) for block in pending]
        targets[-1] = targets[-1].slice(0, max(len(targets[-1]) - max(rows - most, 0), 0))
        found = decided(targets, self.task, enough)
        if found is None:
            return False
        for column in (schema.target, *schema.features) if self.source.separator not in ("", ",") else ():
            for block in pending if column not in schema.text else ():
                check_decimal_points(self.source.name, column, block.table.column(column), block.first + 1)
        schema.task, schema.labels, why = found
        if why:
            self._note("task", f"target {shown(schema.target)}: {why}")
        for column in schema.features:
            if column not in schema.text:
                check_no_dates(self.source.name, column, pending[0].table.column(column), pending[0].first + 1)
        classify = schema.task == "classify"
        self.model = (MeshStreamClassifier if classify else MeshStreamRegressor)(**self.parameters)
        self.state.scores = (ClassScores if classify else ValueScores)(self.window)
        return True

    def _take(self, block: Block) -> None:
        """Predict and learn the rows of a block in pieces. Between pieces, handle signals and save the model if due."""
        assert self._runner is not None
        rows, at, every = self._runner.rows(block, self.source.name), 0, self.every[0]
        self._position = lambda: block.position(0)
        while at < rows.count and not self.codes:
            began, first, most = time.monotonic(), at, self._most
            if every is not None:  # a piece ends at the row of the next save
                most = min(most, every - (self.rows - self._saved_rows) % every)
            for piece in self._runner.walk(rows, at, min(at + most, rows.count)):
                self._record(block, rows, piece)
                at = piece.last
                if self.codes:
                    break
            for (code, column), text in self._runner.notes.items():
                self._note((code, column), f"{self.source.name}: {text}{hint(code, column, 'stream')}")
            seconds = max(time.monotonic() - began, 1e-6)
            self._most = int(min(max(0.1 * (at - first) / seconds, 1), 8192))
            self._tick()
        if rows.fault is not None and not self.codes:
            raise rows.fault

    def _record(self, block: Block, rows: Rows, piece: Piece) -> None:
        """Score and write the predictions of a piece, and count its rows as consumed."""
        known = rows.learned[piece.first : piece.last]
        if piece.right is not None:
            known &= piece.truth >= 0  # a row without features was not learned
        right = [] if piece.right is None else [piece.right[known]]
        where = self.state.base + block.first + np.arange(piece.first, piece.last)[known] + 1
        self.state.scores.add(piece.truth[known], piece.predicted[known], *right, where)
        if self._predictions is not None:
            self._predictions.add(block, piece, self.state.base, getattr(self.model, "classes_", []))
        self.rows += piece.last - piece.first
        self._position = lambda: block.position(piece.last)

    def _note(self, key: Any, text: str) -> None:
        if key not in self._noted:
            self._noted.add(key)
            say_notes([text])

    def _tick(self) -> None:
        """Show the progress, and save the model if it is due."""
        rate = f"{self.rows / max(time.monotonic() - self._began, 1e-6):,.0f}/s" if self.rows else "waiting for rows"
        share, text = self.source.done(), "  ".join([f"{self.rows:,} rows", rate, *score_lines(self.state.scores)[:1]])
        self.tell(share or 0.0, None if share is None else 1.0, text)
        if self._runner is None or self.rows == self._saved_rows:
            return
        every, seconds = self.every
        if every is not None:
            due = self.rows - self._saved_rows >= every
        else:  # save at the first rows; later, spend at most 5% of the time on saving
            due = self._saved_rows == 0 or time.monotonic() - self._saved_at >= max(seconds, 20.0 * self._saving)
        if not due:
            return
        try:
            self._save()
        except (FileError, OSError) as error:
            if self._saved_rows == 0:  # fail early, while little work is lost
                raise
            self._note("save", f"the model could not be saved: {error}; training continues, and saving is tried again")
            self._saved_at = time.monotonic()

    def _save(self, finished: bool = False) -> None:
        """Write the model with the state that --resume needs."""
        assert self._runner is not None
        began, state = time.monotonic(), self.state
        state.position, state.latest, state.finished = self._position(), self._runner.latest, finished
        state.rows = state.base + state.position.rows
        state.predictions = {} if self._predictions is None else self._predictions.sync()
        self.model.table_ = state.to_tree()
        self.model.save(self.out)
        self._saved_at, self._saved_rows = time.monotonic(), self.rows
        self._saving = self._saved_at - began

    def close(self) -> None:
        """Close the file of predictions."""
        if self._predictions is not None:
            self._predictions.close()


def score_lines(scores: Any) -> list[str]:
    """Return the scores of the model and of the baselines: one line for all rows, one for the last rows."""
    if scores is None or scores.rows == 0:
        return []
    lines = [", ".join(f"{name} {value:.4g}" for name, value in scores.summary(last).items()) for last in (False, True)]
    return [lines[0], f"last {min(scores.window, scores.rows):,} rows: {lines[1]}"]

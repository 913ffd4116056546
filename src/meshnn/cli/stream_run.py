"""The loop of `meshnn stream`: rows in, predictions out, the model kept on the way, whatever ends it."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from meshnn.cli.output import save_somewhere, say_notes
from meshnn.cli.stream_live import Live
from meshnn.errors import DataError, FileError, MeshError
from meshnn.online.blocks import Piece, Rows, TableRunner
from meshnn.online.scores import ClassScores, ValueScores
from meshnn.tables.blocks import Block, Position
from meshnn.tables.names import shown
from meshnn.tables.streams import StreamSchema, check_no_dates, decided

__all__ = ["Every", "Predictions", "Run", "Stopping"]

#: Rows from which it is told whether the target is classes: of a file, and of what comes in live.
LOOKED_AT, LOOKED_AT_LIVE = 1000, 100
#: Seconds that a piece of work should take, so that signals are seen and lines are shown.
PIECE = 0.1
#: A checkpoint is not written more often than so many times as long as it takes.
PATIENCE = 20.0


class Every:
    """How often the model is saved: every so many rows, or seconds.

    >>> Every("5000").rows, Every("30s").seconds, Every("2m").seconds
    (5000, 30.0, 120.0)
    """

    def __init__(self, text: str) -> None:
        match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*(s|m|h)?\s*", text)
        number = float(match[1]) if match else 0.0
        if match is None or number <= 0 or (match[2] is None and number % 1):
            raise MeshError(f"--every must be a number of rows like 5000, or a time like 30s, 5m or 1h, got {text!r}")
        self.rows = int(number) if match[2] is None else None
        self.seconds = None if match[2] is None else number * {"s": 1, "m": 60, "h": 3600}[match[2]]


class Stopping:
    """SIGINT and SIGTERM ask for an end, which comes between two rows; a second Ctrl-C ends at once."""

    def __init__(self) -> None:
        self.code = 0  # exit code, if asked

    def asked(self) -> bool:
        """Whether it is to end."""
        return self.code != 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the block runs."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: Any) -> None:
            if self.code and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.code = self.code or 128 + number

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Predictions:
    """The file of predictions: a line for each row, written as it goes.

    Parameters
    ----------
    path : Path
    recipe : StreamSchema
    begin : int, optional
        Bytes to go on after; what follows them is of rows that are learned again.
    """

    def __init__(self, path: Path, recipe: StreamSchema, begin: int | None = None) -> None:
        self.path, self._recipe = path, recipe
        self._classes = recipe.task == "classify"
        self._file: IO[bytes]
        try:
            if begin is None:
                self._file = path.open("wb")
                more = ["probability"] if self._classes else []
                by = [recipe.by] if recipe.by is not None else []
                self._write([["row", *by, recipe.target, "prediction", *more]])
                return
            self._file = path.open("r+b")
            if self._file.seek(0, os.SEEK_END) < begin:
                raise MeshError(f"--predictions: {path} is shorter than it was; name another file for what follows")
            self._file.truncate(begin)
            self._file.seek(begin)
        except OSError as error:
            raise FileError(f"--predictions: cannot write {path}: {error.strerror}") from None

    def add(self, block: Block, piece: Piece, base: int, classes: list[Any]) -> None:
        """The rows of a piece."""
        part = slice(piece.first, piece.last)
        columns: list[Any] = [range(base + block.first + piece.first + 1, base + block.first + piece.last + 1)]
        if self._recipe.by is not None:
            columns.append(block.table.column(self._recipe.by)[part].to_pylist())
        columns.append(block.table.column(self._recipe.target)[part].to_pylist())
        if self._classes:
            columns.append([classes[k] if k >= 0 else None for k in piece.predicted.tolist()])
            assert piece.chosen is not None
            columns.append([p if p == p else None for p in piece.chosen.tolist()])
        else:
            columns.append([v if v == v else None for v in piece.predicted.tolist()])
        self._write(zip(*columns, strict=True))

    def _write(self, lines: Any) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        self._file.write(text.getvalue().encode())
        self._file.flush()

    def keep(self) -> dict[str, Any]:
        """Where it is, once it is on the disk."""
        with suppress(OSError):
            os.fsync(self._file.fileno())
        return {"path": str(self.path.absolute()), "bytes": self._file.tell()}

    def close(self) -> None:
        """No more of them."""
        self._file.close()


class Run:
    """One run over a table.

    Parameters
    ----------
    source : TextBlocks or ParquetBlocks
    recipe : StreamSchema
    make : callable (task) -> model
        Makes the model, once it is known what the target is.
    task : "auto", "classify" or "regress"
    out : Path
    every : Every
    live : Live
    window : int
    predictions : callable () -> Predictions, optional
        Opened when it is known what the target is.
    """

    def __init__(
        self, source: Any, recipe: StreamSchema, make: Any, task: str, out: Path, every: Every, live: Live, window: int,
        predictions: Any = None,
    ) -> None:  # fmt: skip
        self.source, self.recipe, self.out = source, recipe, out
        self.model: Any = None
        self.scores: Any = None
        self.rows = self.base = 0  # of this run, and of tables before
        self.finished = False
        self.failure: Exception | None = None  # why the model is not where it should be
        self.stopping = Stopping()
        self._make, self._task, self._every, self._live, self._window = make, task, every, live, window
        self._open_predictions = predictions
        self._predictions: Predictions | None = None
        self._walk: TableRunner | None = None
        self._said: set[str] = set()
        self._at: tuple[Block, int] | None = None
        self._start = source.start()
        self._saved_at, self._saved_rows, self._saving, self._warned = time.monotonic(), 0, 0.0, False
        self._most = 64
        self._latest: Any = None

    def resume(self, model: Any, scores: Any, base: int, latest: Any, predictions: Any) -> None:
        """Go on with a model; the source is where it is to go on."""
        self.model, self.scores, self.base, self._latest = model, scores, base, latest
        self._open_predictions = predictions
        self._start = self.source.start()

    # -- the loop --------------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Until the table or somebody's patience ends; what cannot be read is an error, after the model is saved."""
        try:
            with self.stopping.watching():
                try:
                    self._loop()
                except DataError as error:
                    if self._walk is None or self.rows == 0:
                        raise
                    self.save()
                    rows = f"the {self.base + self.position.rows:,} rows before"
                    error.args = (f"{error}; the model of {rows} is in {self.out}",)
                    raise
                if self._walk is not None:
                    self.finished = not self.stopping.asked()
                    self.model.table_ = self.state()
                    self.out, self.failure = save_somewhere(self.model, self.out)
        finally:
            self._live.close()

    def _loop(self) -> None:
        pending: list[Block] = []
        for block in self.source.blocks():
            if self.stopping.asked():
                break
            if block is None:
                if pending:
                    most = f"{LOOKED_AT_LIVE} rows are looked at to tell classes from amounts"
                    self._say("wait", f"{self.source.name}: the first {most}; --task decides at once")
                self._tell()
                self._save_if_due()
                continue
            if self._walk is None:
                pending.append(block)
                if not self._begin(pending, last=False):
                    continue
                ready, pending = pending, []
            else:
                ready = [block]
            for part in ready:
                self._take(part)
        if pending and not self.stopping.asked() and self._begin(pending, last=True):
            for part in pending:
                self._take(part)

    def _begin(self, pending: list[Block], last: bool) -> bool:
        """Decide what the target is and make the model, if enough rows are there."""
        if self.model is None:
            most = LOOKED_AT_LIVE if self.source.live else LOOKED_AT
            targets = [block.table.column(self.recipe.target) for block in pending]
            rows = sum(map(len, pending))
            enough = last or rows >= most or bool(pending[-1].fault)
            if not last and not self.source.live and not enough:
                return False
            over = max(rows - most, 0)
            targets[-1] = targets[-1].slice(0, len(targets[-1]) - min(over, len(targets[-1])))
            found = decided(targets, self._task, enough)
            if found is None:
                return False
            self.recipe.task, self.recipe.labels, why = found
            if why:
                self._say("task", f"target {shown(self.recipe.target)}: {why}")
            self._refuse_dates(pending[0])
            self.model = self._make(self.recipe.task)
            self.scores = (ClassScores if self.recipe.task == "classify" else ValueScores)(self._window)
        self._walk = TableRunner(self.model, self.recipe, self.source.separator)
        self._walk.latest = self._latest
        if self._open_predictions is not None:
            self._predictions = self._open_predictions()
        return True

    def _refuse_dates(self, block: Block) -> None:
        for column in self.recipe.features:
            if column not in self.recipe.text:
                check_no_dates(self.source.name, column, block.table.column(column), block.first + 1)

    def _take(self, block: Block) -> None:
        assert self._walk is not None
        rows = self._walk.rows(block, self.source.name)
        self._at = block, 0
        at = 0
        while at < rows.count and not self.stopping.asked():
            began = time.monotonic()
            last = min(at + self._piece_rows(), rows.count)
            for piece in self._walk.walk(rows, at, last):
                self._note(block, rows, piece)
                if self.stopping.asked():
                    break
            done, at = self._at[1] - at, self._at[1]
            self._say_all(self._walk.notes)
            seconds = max(time.monotonic() - began, 1e-6)
            self._most = int(min(max(PIECE * done / seconds, 1), 8192))
            self._tell()
            self._save_if_due()
        if rows.fault is not None and not self.stopping.asked():
            raise rows.fault

    def _piece_rows(self) -> int:
        """So many that they do not take long, and end where the model is to be saved."""
        if self._every.rows is None:
            return self._most
        return min(self._most, self._every.rows - (self.rows - self._saved_rows) % self._every.rows)

    def _note(self, block: Block, rows: Rows, piece: Piece) -> None:
        """Score and write what was predicted; then the rows count as consumed."""
        known = rows.learned[piece.first : piece.last]
        if self.recipe.task == "classify":
            known &= piece.truth >= 0  # else there was no feature, so nothing was learned
        where = self.base + block.first + np.arange(piece.first, piece.last)[known] + 1
        if self.recipe.task == "classify":
            assert piece.right is not None
            self.scores.add(piece.truth[known], piece.predicted[known], piece.right[known], where)
        else:
            self.scores.add(piece.truth[known], piece.predicted[known], where)
        if self._predictions is not None:
            self._predictions.add(block, piece, self.base, getattr(self.model, "classes_", []))
        self.rows += piece.last - piece.first
        self._at = block, piece.last

    # -- what is seen and kept -------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._live.update(self.rows, self.scores, self.source.done())

    def _say(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            say_notes([text])

    def _say_all(self, notes: dict[str, str]) -> None:
        for key, text in notes.items():
            self._say(key, f"{self.source.name}: {text}")

    @property
    def position(self) -> Position:
        """After the last row that was consumed."""
        if self._at is None:
            found: Position = self._start
            return found
        block, rows = self._at
        return block.position(rows)

    def _save_if_due(self) -> None:
        if self._walk is None or self.rows == self._saved_rows:
            return
        since = time.monotonic() - self._saved_at
        if self._every.rows is not None:
            due = self.rows - self._saved_rows >= self._every.rows
        else:
            assert self._every.seconds is not None
            due = since >= max(self._every.seconds, PATIENCE * self._saving) or self._saved_rows == 0
        if due:
            try:
                self.save()
            except (FileError, OSError) as error:
                if self._saved_rows == 0:  # nothing is lost yet
                    raise
                self._say("save", f"the model is not up to date: {error}; the stream goes on and tries again")
                self._saved_at = time.monotonic()

    def save(self) -> None:
        """Write the model, with all that is needed to go on."""
        began = time.monotonic()
        self.model.table_ = self.state()
        self.model.save(self.out)
        self._saved_at, self._saved_rows = time.monotonic(), self.rows
        self._saving = self._saved_at - began

    def state(self) -> dict[str, Any]:
        """What is kept beside the model."""
        position, latest = self.position, None if self._walk is None else self._walk.latest
        return {
            "recipe": self.recipe.to_dict(),
            "source": self.source.name,
            "position": asdict(position),
            "rows": self.base + position.rows,
            "base": self.base,
            "latest": None if latest is None else list(latest),
            "scores": self.scores.to_tree(),
            "predictions": None if self._predictions is None else self._predictions.keep(),
            "finished": self.finished,
        }

    def close(self) -> None:
        """Take the line away and let the file go."""
        self._live.close()
        if self._predictions is not None:
            self._predictions.close()

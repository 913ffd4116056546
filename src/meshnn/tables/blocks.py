"""Blocks of rows, positions in a table at which a reader can resume, and the base classes of readers."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from meshnn.errors import DataError

__all__ = ["Block", "CountedReader", "Position", "Reader"]


@dataclass(frozen=True)
class Position:
    """A place between two rows of a table, with a checksum that identifies the table up to there."""

    offset: int  # bytes of a text file, rows of a binary file
    rows: int  # rows before it
    stamp: str


@dataclass
class Block:
    """Consecutive rows of a table."""

    table: Any  # pyarrow.Table
    first: int  # rows of the table before this block
    fault: DataError | None  # the error in the row after this block, if it cannot be read
    position: Callable[[int], Position]  # after the given number of rows of this block

    def __len__(self) -> int:
        return int(self.table.num_rows)


class Reader(ABC):
    """A table that is read block by block. The block borders have no meaning."""

    name: str  # the name of the file in messages
    names: list[str]  # the columns
    first_line: list[str]  # the cells of the first line of a text file; otherwise the columns
    separator = ""  # of a text file
    live = False  # whether rows arrive while they are read (standard input)
    skipped = 0  # rows with a wrong number of values that were left out
    index: tuple[str, ...] = ()  # columns that are the index of a pandas DataFrame

    def __init__(self) -> None:
        self.notes: list[str] = []  # remarks for the user

    @abstractmethod
    def blocks(self) -> Iterator[Block | None]:
        """Yield the rows after the position; None while no row is available yet."""

    @abstractmethod
    def start(self) -> Position:
        """Return the position before the first row."""

    @abstractmethod
    def go_to(self, position: Position) -> None:
        """Continue after a position; raise DataError if it is a position of another table."""

    @abstractmethod
    def done(self) -> float | None:
        """Return the fraction of the table that was read; None if its size is unknown."""

    def close(self) -> None:  # noqa: B027
        """Close the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_reached(self, position: Position, reached: Position | None) -> None:
        """Compare a position with the one found in this table, which is None if the table ends earlier."""
        rows, learned = position.rows, "the table that the model was trained on"
        if reached is None:
            message = f"{self.name} is shorter than {learned}, which had {rows:,} rows"
        elif reached.stamp != position.stamp:
            message = f"{self.name} is not {learned}: it differs within its first {rows:,} rows"
        else:
            return
        raise DataError(message, code="other table", row=rows)


class CountedReader(Reader):
    """A reader that knows its number of rows: a position is a row number."""

    total: int
    _rows = 0  # number of rows read

    @abstractmethod
    def _identity(self, rows: int) -> Any:
        """Return what identifies the table up to a row."""

    def _position(self, rows: int) -> Position:
        return Position(rows, rows, f"{zlib.crc32(repr(self._identity(rows)).encode()):08x}")

    def start(self) -> Position:
        """Return the position before the first row."""
        return self._position(0)

    def go_to(self, position: Position) -> None:
        """Continue after a position; raise DataError if it is a position of another table."""
        self._check_reached(position, self._position(position.rows) if position.rows <= self.total else None)
        self._rows = position.rows

    def done(self) -> float | None:
        """Return the fraction of the table that was read."""
        return self._rows / self.total if self.total else 1.0

    def _block(self, table: Any, first: int) -> Block:
        self._rows = first + table.num_rows
        return Block(table, first, None, lambda rows: self._position(first + rows))

"""Blocks of rows, positions in a table at which a reader can resume, and what all readers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from meshnn.errors import DataError

__all__ = ["Block", "Position", "Reader"]


@dataclass(frozen=True)
class Position:
    """A place between two rows of a table, with a checksum that identifies the table up to there."""

    offset: int  # bytes of a text, rows of a binary file
    rows: int  # rows before it
    stamp: str


@dataclass
class Block:
    """Consecutive rows of a table."""

    table: Any  # pyarrow.Table
    first: int  # rows of the table before this block
    fault: DataError | None  # why the row after this block cannot be read
    position: Callable[[int], Position]  # after the given number of rows of this block

    def __len__(self) -> int:
        return int(self.table.num_rows)


class Reader(ABC):
    """A table that is read block by block; where a block ends carries no meaning.

    Attributes
    ----------
    name : str
        The file, as messages call it.
    names : list of str
        The columns.
    first_line : list of str
        The cells of the first line of a text file; otherwise the columns.
    separator : str
        Of a text file; otherwise empty.
    live : bool
        Whether rows arrive while they are read (standard input).
    skipped : int
        Rows with a wrong number of values that were left out.
    notes : list of str
        Remarks for the user.
    """

    name: str
    names: list[str]
    first_line: list[str]
    separator = ""
    live = False
    skipped = 0
    index: tuple[str, ...] = ()  # columns that are the index of a pandas DataFrame

    def __init__(self) -> None:
        self.notes: list[str] = []

    @abstractmethod
    def blocks(self) -> Iterator[Block | None]:
        """Yield the rows after the position; None while no row is available yet."""

    @abstractmethod
    def start(self) -> Position:
        """Return the position before the first row."""

    @abstractmethod
    def go_to(self, position: Position) -> None:
        """Continue after a position; DataError if this is not the table that the position is of."""

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
        """Compare a position with the one that was found in this table; None if the table ends before it."""
        rows, learned = position.rows, "the table that the model was learned from"
        if reached is None:
            message = f"{self.name} is shorter than {learned}, which had {rows:,} rows"
        elif reached.stamp != position.stamp:
            message = f"{self.name} is not {learned}: it differs within its first {rows:,} rows"
        else:
            return
        raise DataError(message, code="other table", row=rows)

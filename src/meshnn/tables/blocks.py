"""Blocks of rows, positions in a table at which a reader can resume, what all readers share; columns of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from meshnn.errors import DataError

__all__ = ["Block", "Position", "Reader", "StreamSchema"]


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
    """A table that is read block by block; where a block ends carries no meaning."""

    name: str  # the file, as messages call it
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


@dataclass
class StreamSchema:
    """What the columns of a table are; stored with the model."""

    target: str  # the column to predict
    by: str | None = None  # the column that orders the rows
    drop: list[str] = field(default_factory=list)  # columns that are left out
    text: list[str] = field(default_factory=list)  # columns that are text whatever they look like
    task: str = "classify"  # or "regress"
    labels: str = "text"  # type of the classes: "whole", "truth" or "text"
    levels: dict[str, list[str]] = field(default_factory=dict)  # of each column, in the order of first appearance
    most: int = 50  # maximum number of levels of a column
    columns: list[str] = field(default_factory=list)  # all columns of the table

    @property
    def features(self) -> list[str]:
        """Columns that are learned from."""
        others = {self.target, self.by, *self.drop}
        return [name for name in self.columns if name not in others]

    def feature(self, column: str, text: str) -> str:
        """Return the name of the feature of a level."""
        name = f"{column}={text}"
        return f"{name} (2)" if name in self.columns else name

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Any) -> StreamSchema:
        """Return the schema that `to_dict` stored; ValueError or TypeError if it is damaged."""
        schema = cls(**stored)
        lists = [schema.drop, schema.text, schema.columns, *schema.levels.values()]
        texts = [schema.target, *(name for names in lists for name in names)]
        sound = all(isinstance(names, list) for names in lists) and all(isinstance(text, str) for text in texts)
        sound = sound and schema.task in ("classify", "regress") and schema.labels in ("whole", "truth", "text")
        if not sound or not isinstance(schema.most, int) or not isinstance(schema.by, (str, type(None))):
            raise ValueError("its schema is damaged")
        return schema

"""`HistoryRow` and `History`: how a training run went, row by row."""

from __future__ import annotations

from collections import UserList
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import MeshError


class HistoryRow(NamedTuple):
    """Where training stands after an epoch (of `lm`: an iteration).

    Loss and accuracy are those at its end; of mini-batches, those met on the way through the epoch.
    """

    epoch: int  # epochs done, in this restart
    loss: float  # training loss with its penalties: what is minimised
    validation: float  # loss of the held-out samples, or their score if that is asked for; NaN if there are none
    accuracy: float  # of the held-out samples if there are any, else of the training samples; NaN in regression
    gradient_norm: float
    learning_rate: float  # of `lm`: the damping
    seconds: float  # spent so far, all restarts together
    edges: int
    restart: int  # which start this is, from 0
    note: str = ""  # why it stopped, or what was mended


class History(UserList[HistoryRow]):
    """A table of rows: `history[-1].loss` is a row's entry, `history["loss"]` a column.

    Examples
    --------
    >>> from meshnn.training import History, HistoryRow
    >>> h = History([HistoryRow(1, 0.7, float("nan"), 0.5, 1.0, 0.01, 0.001, 61, 0)])
    >>> len(h), h[0].loss, h["accuracy"].tolist()
    (1, 0.7, [0.5])
    """

    @overload
    def __getitem__(self, key: SupportsIndex) -> HistoryRow: ...
    @overload
    def __getitem__(self, key: slice) -> History: ...
    @overload
    def __getitem__(self, key: str) -> Array: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> HistoryRow | History | Array:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in HistoryRow._fields:
            raise MeshError(f"a history has no column {key!r}; it has {', '.join(HistoryRow._fields)}")
        return np.array([getattr(row, key) for row in self.data])

    def __eq__(self, other: object) -> bool:
        """Equal rows, whatever time they took."""
        if not isinstance(other, History):
            return NotImplemented
        numbers = [name for name in HistoryRow._fields[:-1] if name != "seconds"]
        same = (np.array_equal(self[name], other[name], equal_nan=True) for name in numbers)
        return self["note"].tolist() == other["note"].tolist() and all(same)

    @property
    def notes(self) -> list[str]:
        """The notes, each with its epoch."""
        return [f"epoch {row.epoch}: {row.note}" for row in self.data if row.note]

    def to_tree(self) -> dict[str, Any]:
        """Columns that a file can hold: arrays of numbers, and the notes."""
        numbers = {name: self[name].astype(np.float64) for name in HistoryRow._fields[:-1]}
        return numbers | {"note": [row.note for row in self.data]}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> History:
        """The inverse, for a tree that may come from anywhere."""
        notes, columns = tree["note"], [tree[name] for name in HistoryRow._fields[:-1]]
        if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
            raise MeshError("the notes of the history are not texts")
        if any(column.shape != (len(notes),) for column in columns):
            raise MeshError(f"the columns of the history do not have {len(notes)} rows, as many as it has notes")
        whole = ("epoch", "edges", "restart")
        kinds = [int if name in whole else float for name in HistoryRow._fields[:-1]]
        plain = [list(map(kind, column)) for kind, column in zip(kinds, columns, strict=True)]
        return cls(HistoryRow(*row) for row in zip(*plain, notes, strict=True))

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name, for `pandas.DataFrame(history.to_dict())`."""
        return {name: [getattr(row, name) for row in self.data] for name in HistoryRow._fields}

    def __repr__(self) -> str:
        return f"History({len(self)} rows)"

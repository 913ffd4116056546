"""`HistoryRow` and `History`: the record of a training run."""

from __future__ import annotations

from collections import UserList
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import MeshError


class HistoryRow(NamedTuple):
    """The state of training after an epoch, or after an iteration of `lm`.

    Loss and accuracy are evaluated at the end of the epoch; with mini-batches they are averages over the epoch.
    """

    epoch: int  # epochs done in this restart
    loss: float  # training loss including penalties, the objective
    validation: float  # loss of the hold-out set, or its score with `scoring`; NaN without a hold-out set
    accuracy: float  # on the hold-out set if there is one, else on the training samples; NaN in regression
    gradient_norm: float
    learning_rate: float  # the damping in `lm`
    seconds: float  # training time so far, summed over all restarts
    edges: int
    restart: int  # number of the start, from 0
    note: str = ""  # the reason for stopping, or an event such as a reduced learning rate


class History(UserList[HistoryRow]):
    """A table of history rows: `history[-1].loss` is one entry, `history["loss"]` a column.

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
        """Return whether all columns but `seconds` are equal."""
        if not isinstance(other, History):
            return NotImplemented
        numbers = [name for name in HistoryRow._fields[:-1] if name != "seconds"]
        same = (np.array_equal(self[name], other[name], equal_nan=True) for name in numbers)
        return self["note"].tolist() == other["note"].tolist() and all(same)

    @property
    def notes(self) -> list[str]:
        """The notes, with their epochs."""
        return [f"epoch {row.epoch}: {row.note}" for row in self.data if row.note]

    def to_tree(self) -> dict[str, Any]:
        """Return the columns as arrays of numbers and a list of notes, for a file."""
        numbers = {name: self[name].astype(np.float64) for name in HistoryRow._fields[:-1]}
        return numbers | {"note": [row.note for row in self.data]}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> History:
        """Return a history from a tree of `to_tree`; the tree is not trusted and is validated."""
        notes, columns = tree["note"], [tree[name] for name in HistoryRow._fields[:-1]]
        if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
            raise MeshError("the notes of the history must be a list of strings")
        if any(column.shape != (len(notes),) for column in columns):
            raise MeshError(f"the columns of the history must have one row per note ({len(notes)})")
        whole = ("epoch", "edges", "restart")
        kinds = [int if name in whole else float for name in HistoryRow._fields[:-1]]
        plain = [list(map(kind, column)) for kind, column in zip(kinds, columns, strict=True)]
        return cls(HistoryRow(*row) for row in zip(*plain, notes, strict=True))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, for `pandas.DataFrame(history.to_dict())`."""
        return {name: [getattr(row, name) for row in self.data] for name in HistoryRow._fields}

    def __repr__(self) -> str:
        return f"History({len(self)} rows)"

"""`HeldBack`: a source without some rows, drawn at random, which are kept in memory to test on.

Rows are drawn by their numbers in the table, so that neither files nor blocks have a say in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array
from meshnn.data.large import Rows, Source
from meshnn.errors import DataError

__all__ = ["HeldBack", "HoldoutSplit", "as_targets", "joined_rows"]

#: Rows that are tested on at most, rows that are learned from and looked at again, and bytes of all of them.
MOST_TESTED, MOST_LOOKED, MOST_BYTES = 100_000, 20_000, 2**29


class HoldoutSplit:
    """Which rows of a table are tested on, and on which of the others it is shown how well they were learned.

    Parameters
    ----------
    rows : int
        Of the table.
    share : float
        Of them, to test on; never more than 100,000 rows.
    seed : int
    width : int
        Numbers in a row, which must have room in memory.

    Examples
    --------
    >>> from meshnn.data.held_back import HoldoutSplit
    >>> draw = HoldoutSplit(1000, 0.3, seed=0, width=5)
    >>> len(draw.tested), len(draw.looked)
    (300, 700)
    """

    def __init__(self, rows: int, share: float, seed: int, width: int) -> None:
        room = max(1, MOST_BYTES // (8 * max(width, 1)))
        tested = min(math.ceil(share * rows), MOST_TESTED, room) if share else 0
        if rows < 2:
            raise DataError(f"the table has {rows} row{'s' * (rows != 1)}, expected at least 2 to learn from; add rows")
        if tested >= rows - 1:
            raise DataError(f"--test {share:g} leaves {rows - tested} of {rows} rows to learn from; lower it")
        looked = min(rows - tested, MOST_LOOKED, room)
        drawn = np.random.default_rng([seed, 3]).choice(rows, tested + looked, replace=False)
        self.rows, self.tested, self.looked = rows, np.sort(drawn[:tested]), np.sort(drawn[tested:])

    def between(self, first: int, last: int) -> Part:
        """What it says about the rows from first to last."""
        found = []
        for numbers in (self.tested, self.looked):
            begin, end = np.searchsorted(numbers, [first, last])
            found.append(numbers[begin:end] - first)
        return Part(*found)


class Part:
    """What is drawn of some rows that follow each other; small enough to be sent around."""

    def __init__(self, tested: NDArray[np.int64], looked: NDArray[np.int64]) -> None:
        self.tested, self.looked = tested, looked

    def split(self, rows: Rows) -> tuple[Rows, Rows, Rows]:
        """Those to learn from, those to test on, and those that are looked at again."""
        kept = np.ones(len(rows.X), np.bool_)
        kept[self.tested] = False
        rest = rows if len(self.tested) == 0 else _taken(rows, kept)
        return rest, _taken(rows, self.tested), _taken(rows, self.looked)


def _taken(rows: Rows, which: Any) -> Rows:
    return Rows(rows.X[which], rows.y[which], None if rows.weight is None else rows.weight[which])


def joined_rows(parts: list[Rows]) -> Rows:
    """Rows one after the other."""
    weights = [part.weight for part in parts if part.weight is not None]
    X, y = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    return Rows(X, y, np.concatenate(weights) if weights else None)


def as_targets(y: Array, classes: bool, where: str, first: int) -> Array:
    """Targets (n,) of one kind: whole numbers, texts or truth values as classes, else numbers."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{where}: a row has {y.shape[1]} targets; meshnn fit takes one, MeshRegressor in Python more")
    if not classes:
        if y.dtype.kind not in "fiub":
            raise DataError(f"{where}: the target is text ({str(y[0])[:60]!r} in row {first + 1:,}), expected numbers; "
                            "pass --task classify")  # fmt: skip
        return y
    if y.dtype.kind != "f":
        return y
    wrong = (y % 1 != 0) | (np.abs(y) >= 2.0**63)
    if wrong.any():
        at = int(wrong.argmax())
        raise DataError(
            f"{where}: the target is {y[at]} in row {first + at + 1:,}, expected text or whole numbers of at most 18 "
            "digits as classes; pass --task regress"
        )
    return y.astype(np.int64)


class HeldBack(Source):
    """A source without the rows that are drawn to be tested on.

    Parameters
    ----------
    source : Source
    draw : Draw
    classes : bool
        Whether targets are labels.

    Attributes
    ----------
    tested, looked : Rows
        In memory, once all blocks have been read.
    """

    def __init__(self, source: Source, draw: HoldoutSplit, classes: bool) -> None:
        self._source, self._draw, self._classes = source, draw, classes
        self.name, self.names, self.weighted = source.name, source.names, source.weighted
        self.expected = draw.rows - len(draw.tested)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the source."""
        return self._source.dtype

    def blocks(self) -> Iterator[Rows]:
        """All rows that are learned from."""
        before, tested, looked, low, high = 0, list[Rows](), list[Rows](), math.inf, -math.inf
        for rows in self._source.blocks():
            y = as_targets(rows.y, self._classes, self.name, before)
            if not self._classes:
                low, high = min(low, float(y.min())), max(high, float(y.max()))
            last = before + len(rows.X)
            kept, some, seen = self._draw.between(before, last).split(rows._replace(y=y))
            tested.append(some)
            looked.append(seen)
            before = last
            if len(kept.X):
                yield kept
        if before != self._draw.rows:
            raise DataError(f"{self.name} has {before:,} rows, but had {self._draw.rows:,}; begin again")
        if low == high:
            raise DataError(f"{self.name}: the target is {low:g} in every row: nothing to learn; choose another")
        self.tested, self.looked = joined_rows(tested), joined_rows(looked)

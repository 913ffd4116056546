"""`HoldoutSplit`: splits of rows into training rows and held-out rows. A split depends only on the seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.tables.sources import RowBlock, Source

__all__ = ["HoldoutSource", "HoldoutSplit", "as_one_target"]


class HoldoutSplit(NamedTuple):
    """The indices of n rows (or pages of rows) that are held out.

    Examples
    --------
    >>> from meshnn.tables.holdout import HoldoutSplit
    >>> split = HoldoutSplit.random(10, 3, seed=0)
    >>> len(split.held), len(split.kept)
    (3, 7)
    """

    n: int
    held: NDArray[np.int64]  # ascending
    sample: NDArray[np.int64] = np.arange(0)  # some of the other rows, for the training error

    @property
    def kept(self) -> NDArray[np.int64]:
        """The rows for training, ascending."""
        return np.setdiff1d(np.arange(self.n), self.held)

    @classmethod
    def random(cls, n: int, size: int, seed: Any) -> HoldoutSplit:
        """Hold out `size` of n rows."""
        return cls(n, np.sort(np.random.default_rng(seed).choice(n, size, replace=False)))

    @classmethod
    def stratified(cls, n: int, size: int, seed: int, labels: Array | None = None) -> HoldoutSplit:
        """Hold out up to `size` of n rows, stratified by class if there are enough rows of each class.

        At least one row per class is kept for every seed, so that a class with one row is never held out.
        """
        from sklearn.model_selection import train_test_split

        if labels is None:
            return cls(n, np.sort(train_test_split(np.arange(n), test_size=size, random_state=seed)[1]))
        _, number, counts = np.unique(labels, return_inverse=True, return_counts=True)
        several, classes = np.flatnonzero(counts[number] >= 2), int((counts >= 2).sum())
        size = min(size, len(several) - classes)
        if size <= 0:
            return cls(n, np.arange(0))
        kept = held = several
        if min(size, len(several) - size) >= classes:
            kept, held = train_test_split(several, test_size=size, random_state=seed, stratify=number[several])
        if len(held) == len(several) or len(np.unique(number[kept])) < classes:
            order = np.random.default_rng(seed).permutation(several)
            firsts = np.unique(number[order], return_index=True)[1]  # one row of each class is kept
            held = np.delete(order, firsts)[:size]
        return cls(n, np.sort(held))

    @classmethod
    def for_report(cls, n: int, fraction: float, seed: int, width: int) -> HoldoutSplit:
        """Hold out a fraction for a test, at most 100,000 rows; up to 20,000 others are for the training error.

        Each of the two sets takes at most 512 MiB of memory with `width` numbers per row.
        """
        fitting = max(1, 2**29 // (8 * max(width, 1)))
        size = min(math.ceil(fraction * n), 100_000, fitting) if fraction else 0
        if n < 2:
            raise DataError(f"the table has {n} row{'s' * (n != 1)}, expected at least 2 to learn from; add rows")
        if size >= n - 1:
            raise DataError(f"holding out {fraction:g} leaves {n - size} of {n} rows to learn from; lower it")
        drawn = np.random.default_rng([seed, 3]).choice(n, size + min(n - size, 20_000, fitting), replace=False)
        return cls(n, np.sort(drawn[:size]), np.sort(drawn[size:]))

    def between(self, first: int, last: int) -> HoldoutSplit:
        """Return the part of the split for the rows from `first` to `last` (exclusive)."""
        parts = [np.searchsorted(numbers, [first, last]) for numbers in (self.held, self.sample)]
        (a, b), (c, d) = parts
        return HoldoutSplit(last - first, self.held[a:b] - first, self.sample[c:d] - first)

    def split(self, rows: RowBlock) -> tuple[RowBlock, RowBlock, RowBlock]:
        """Return the rows for training, the held-out rows and the sample of training rows."""
        return rows.take(self.kept) if len(self.held) else rows, rows.take(self.held), rows.take(self.sample)


def as_one_target(y: Array, classes: bool, where: str, before: int) -> Array:
    """Return targets (n,) of one kind: integers, text or booleans as classes, else numbers."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{where}: there are {y.shape[1]} targets per row, expected one")
    if not classes and y.dtype.kind not in "fiub":
        raise DataError(f"{where}: the target is text ({str(y[0])[:60]!r} in row {before + 1:,}), expected numbers")
    if not classes or y.dtype.kind != "f":
        return y
    wrong = (y % 1 != 0) | (np.abs(y) >= 2.0**63)
    if wrong.any():
        at = int(wrong.argmax())
        raise DataError(f"{where}: the target is {y[at]} in row {before + at + 1:,}, expected text or whole numbers of "
                        "at most 18 digits as classes")  # fmt: skip
    return y.astype(np.int64)


class HoldoutSource(Source):
    """A source without the held-out rows, which are in `held` and `sample` after all blocks were read."""

    def __init__(self, source: Source, split: HoldoutSplit, classes: bool) -> None:
        self._source, self._split, self._classes = source, split, classes
        self.name, self.columns, self.n_rows = source.name, source.columns, split.n - len(split.held)

    def _read(self) -> Iterator[tuple[Any, str, int]]:
        return self._source._read()

    def blocks(self) -> Iterator[RowBlock]:
        """Yield all rows for training."""
        before, held, sample, low, high = 0, list[RowBlock](), list[RowBlock](), math.inf, -math.inf
        for rows in self._source.blocks():
            y = as_one_target(rows.y, self._classes, self.name, before)
            if not self._classes:
                low, high = min(low, float(y.min())), max(high, float(y.max()))
            last = before + len(rows.X)
            kept, some, shown = self._split.between(before, last).split(rows._replace(y=y))
            held.append(some)
            sample.append(shown)
            before = last
            if len(kept.X):
                yield kept
        if before != self._split.n:
            raise DataError(f"{self.name} has {before:,} rows, but had {self._split.n:,} before; fit again")
        if low == high:
            raise DataError(f"{self.name}: the target is {low:g} in every row; choose another column")
        self.held, self.sample = RowBlock.join(held), RowBlock.join(sample)

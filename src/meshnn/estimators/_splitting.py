"""`hold_out`: samples to learn from and samples to judge by."""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array

__all__ = ["hold_out"]


def hold_out(n: int, size: int, seed: int, labels: Array | None = None) -> tuple[Array, Array]:
    """Rows to keep and, at random, up to `size` rows to hold out, both in order.

    Classes are held out in proportion if there are enough rows for all of them. In any case one row of every class is
    kept, whatever the seed: a class with one row is never held out.
    """
    from sklearn.model_selection import train_test_split

    rows = np.arange(n)
    if labels is None:
        kept, held = train_test_split(rows, test_size=size, random_state=seed)
        return np.sort(kept), np.sort(held)
    _, number, counts = np.unique(labels, return_inverse=True, return_counts=True)
    several = np.flatnonzero(counts[number] >= 2)
    size = min(size, len(several) - int((counts >= 2).sum()))
    if size <= 0:
        return rows, rows[:0]
    kept = held = several
    if min(size, len(several) - size) >= (counts >= 2).sum():
        kept, held = train_test_split(several, test_size=size, random_state=seed, stratify=number[several])
    if len(held) == len(several) or len(np.unique(number[kept])) < (counts >= 2).sum():
        order = np.random.default_rng(seed).permutation(several)
        firsts = np.unique(number[order], return_index=True)[1]  # one of each class stays
        held = np.delete(order, firsts)[:size]
    held = np.sort(held)
    return np.setdiff1d(rows, held), held

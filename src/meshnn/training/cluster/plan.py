"""`ShardPlan`: how rows are divided among workers, and sums that do not depend on the number of workers.

The rows are cut into consecutive *shards*; every batch takes as many rows from each. Consecutive shards form a
*bucket*: a bucket lies with one worker, which computes the bucket's part of a sum, and these are added in a fixed tree,

    ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))

A worker with the buckets 0 to 5 sends the sums (0 + 1 + 2 + 3) and (4 + 5): wherever numbers are added, the order is
the same. Shards, buckets and the order of the rows follow from the number of rows, the batch size and the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import FloatArray
from meshnn.training.dataset import LIMITS

#: A node of the tree: (level, number); its leaves are the `1 << level` buckets from `number << level` on.
Node = tuple[int, int]


class ShardPlan(NamedTuple):
    """How rows are divided."""

    sizes: tuple[int, ...]  # rows of each shard; a power of 2 of them
    buckets: int
    step: int  # rows that a batch takes from a shard

    @classmethod
    def of(cls, rows: int, size: int) -> ShardPlan:
        """Plan batches of about `size` rows, never fewer."""
        shards = 1 << (min(LIMITS.shards, size, rows).bit_length() - 1)
        buckets = 1 << (max(1, min(shards, size // LIMITS.bucket_rows)).bit_length() - 1)
        sizes = tuple((k + 1) * rows // shards - k * rows // shards for k in range(shards))
        return cls(sizes, buckets, -(-min(size, rows) // shards))

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.sizes)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.sizes)

    @property
    def batch_size(self) -> int:
        """Rows of a full batch."""
        return self.shards * self.step

    @property
    def batches(self) -> int:
        """Batches per epoch."""
        return -(-max(self.sizes) // self.step)

    @property
    def root(self) -> Node:
        """The node of the total."""
        return self.buckets.bit_length() - 1, 0

    def count(self, batch: int) -> int:
        """Return the number of samples of a batch."""
        return int(np.clip(np.array(self.sizes) - batch * self.step, 0, self.step).sum())

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return the first row of a shard, and the one after its last."""
        first = sum(self.sizes[:shard])
        return first, first + self.sizes[shard]

    def shards_of(self, bucket: int) -> range:
        """Return the shards of a bucket."""
        per = self.shards // self.buckets
        return range(bucket * per, (bucket + 1) * per)

    def by_shard(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """Group ascending rows by shard, as numbers in it."""
        return _grouped(rows, self.sizes)

    def by_bucket(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """Group ascending rows by bucket, as numbers in it."""
        return _grouped(rows, [sum(self.sizes[k] for k in self.shards_of(bucket)) for bucket in range(self.buckets)])

    def assignment(self, workers: int) -> list[range]:
        """Return the buckets of each worker."""
        return [range(a, b) for a, b in pairwise(self.buckets * k // workers for k in range(workers + 1))]

    def batch_rows(self, bucket: int, seed: int, batch: int) -> NDArray[np.int64]:
        """Return the rows of a bucket that a batch of the epoch with this seed takes, as numbers in the bucket."""
        found = _epoch_order(self, bucket, seed)[:, batch * self.step : (batch + 1) * self.step].ravel()
        return found if batch + 1 < self.batches else found[found >= 0]


def _grouped(rows: NDArray[np.int64], sizes: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    starts = np.cumsum([0, *sizes[:-1]])
    group = np.searchsorted(starts, rows, side="right") - 1
    return {int(k): rows[group == k] - starts[k] for k in np.unique(group)}


@lru_cache(128)
def _epoch_order(plan: ShardPlan, bucket: int, seed: int) -> NDArray[np.int64]:
    """Return the shuffled rows of each shard of a bucket (shards, rows); -1 fills up short ones."""
    shards, first = plan.shards_of(bucket), 0
    found = np.full((len(shards), plan.batches * plan.step), -1, np.int64)
    for k, shard in enumerate(shards):
        size = plan.sizes[shard]
        found[k, :size] = first + np.random.default_rng([seed, shard]).permutation(size)
        first += size
    return found


def covering_nodes(buckets: range) -> list[Node]:
    """Return the fewest nodes of the tree whose leaves are these buckets, in order.

    >>> covering_nodes(range(0, 6)), covering_nodes(range(3, 8))
    ([(2, 0), (1, 2)], [(0, 3), (2, 1)])
    """
    found, at = [], buckets.start
    while at < buckets.stop:
        level = 0
        while at % (2 << level) == 0 and at + (2 << level) <= buckets.stop:
            level += 1
        found.append((level, at >> level))
        at += 1 << level
    return found


def tree_sum(sums: dict[Node, FloatArray], node: Node) -> FloatArray:
    """Return the sum at a node from sums at nodes that cover it.

    >>> leaves = {(0, k): np.array([10.0**k]) for k in range(4)}
    >>> tree_sum(leaves, (2, 0))
    array([1111.])
    """
    if node in sums:
        return sums[node]
    level, number = node
    found: FloatArray = tree_sum(sums, (level - 1, 2 * number)) + tree_sum(sums, (level - 1, 2 * number + 1))
    return found

"""`Shards`: rows that are stored on Dask workers."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError, MeshError
from meshnn.integrations.dask.group import ShardedSamples, WorkerGroup, living_workers
from meshnn.integrations.dask.tasks import Inbox, as_data, as_shard, describe, read_file, taken
from meshnn.tables.holdout import HoldoutSplit
from meshnn.tables.sources import ParquetSource, RowBlock
from meshnn.training.cluster import ShardPlan
from meshnn.training.dataset import LIMITS, Dataset, Moments, Summary, evenly_spaced, sums_per_label
from meshnn.training.samples import RowTransform, check_total
from meshnn.training.settings import Settings

__all__ = ["Shards", "read_parquet"]


class Shards(Dataset):
    """The partitions of a cluster (futures of `RowBlock`), divided into shards."""

    def __init__(
        self, client: Any, partitions: list[Any], columns: list[str] | None, classes: bool, settings: Settings
    ) -> None:
        client.register_plugin(Inbox())
        infos = client.gather(client.map(describe, partitions, classes=classes, pure=False))
        counts, labels, dtypes, targets = zip(*infos, strict=True)
        if not sum(counts):
            raise DataError("there are no rows in X")
        self.client, self.columns, self.n_rows = client, columns, sum(counts)
        self.labels = sorted({label for some in labels for label in some})
        self.n_targets, self.matrix_targets = max(targets), max(targets) > 1
        self.plan = ShardPlan.of(self.n_rows, _batch_size(self.n_rows, settings))
        self.batch_size = self.plan.batch_size
        dtype = str(np.result_type(*{np.dtype(kind) for kind, count in zip(dtypes, counts, strict=True) if count}))
        self._rows = self._divided(partitions, counts, dtype)
        sums = client.map(sums_per_label, self._rows, [len(self.labels)] * self.plan.shards, pure=False)
        found = client.gather(client.map(Summary.of, self._rows, pure=False))
        self.moments = Moments(len(found[0].moments.mean))
        for summary in found:
            self.moments.merge(summary.moments)
        self.moments.check()
        self.n_features, self.label_sums = len(self.moments.mean), np.sum(client.gather(sums), axis=0)
        self.y_min = None if classes else np.min([summary.y_min for summary in found], axis=0)
        text = "".join(summary.fingerprint for summary in found) + repr(self.plan)
        self.fingerprint = hashlib.blake2b(text.encode(), digest_size=32).hexdigest()

    def _divided(self, partitions: list[Any], counts: Sequence[int], dtype: str) -> list[Any]:
        """Return futures of shards: pieces of partitions, cut on their own worker and joined on that of the shard."""
        ends = np.cumsum(counts)
        starts, owners, shards = ends - counts, self._owners(), []
        for shard in range(self.plan.shards):
            first, last = self.plan.bounds(shard)
            pieces = []
            for k in np.flatnonzero((starts < last) & (ends > first)).tolist():
                part = slice(int(max(first - starts[k], 0)), int(min(last - starts[k], counts[k])))
                pieces.append(self.client.submit(taken, partitions[k], part, pure=False))
            shards.append(self.client.submit(as_shard, self.labels, dtype, *pieces, workers=[owners[shard]],
                                             pure=False, allow_other_workers=True))  # fmt: skip
        return shards

    def _owners(self) -> list[str]:
        """Return the worker of each shard, which changes only if workers start or stop."""
        addresses = sorted(living_workers(self.client))[: self.plan.buckets]
        if not addresses:
            raise MeshError("the cluster has no workers; start workers and fit again")
        assigned = zip(addresses, self.plan.assignment(len(addresses)), strict=True)
        return [address for address, buckets in assigned for k in buckets for _ in self.plan.shards_of(k)]

    def _taken(self, numbers: dict[int, NDArray[np.int64]]) -> list[Any]:
        return [self.client.submit(taken, self._rows[k], some, pure=False) for k, some in numbers.items()]

    def few(self, n: int) -> RowBlock:
        """Load up to n rows, evenly spaced."""
        futures = self._taken(self.plan.by_shard(evenly_spaced(n, self.n_rows)))
        return RowBlock.join(self.client.gather(futures))

    def hold_out(self, fraction: float, seed: int) -> tuple[Shards, RowBlock]:
        """Hold out random rows of each shard."""
        most = LIMITS.holdout_rows // self.plan.shards
        sizes = dict(enumerate(self.plan.sizes))
        splits = {k: HoldoutSplit.random(n, min(round(fraction * n), most), [seed, 2, k]) for k, n in sizes.items()}
        if not any(len(split.held) for split in splits.values()):
            raise DataError("early_stopping would hold out less than one row of every shard; pass X_val and y_val")
        held = RowBlock.join(self.client.gather(self._taken({k: split.held for k, split in splits.items()})))
        training = copy.copy(self)
        training._rows = self._taken({k: split.kept for k, split in splits.items()})
        training.plan = self.plan._replace(sizes=tuple(n - len(splits[k].held) for k, n in sizes.items()))
        training.n_rows = training.plan.rows
        return training, held

    def prepared(self, preprocessing: RowTransform) -> ShardedSamples:
        """Return the rows after preprocessing."""
        plan, owners = self.plan, self._owners()
        weights = self.client.map(preprocessing.total_weight, self._rows, pure=False)
        total = check_total(float(sum(self.client.gather(weights))))
        data = []
        for bucket in range(plan.buckets):
            shards = plan.shards_of(bucket)
            data.append(self.client.submit(as_data, preprocessing, total,
                                           *(self._rows[k] for k in shards), workers=[owners[shards[0]]],
                                           pure=False, allow_other_workers=True))  # fmt: skip
        return ShardedSamples(WorkerGroup(self.client, plan, preprocessing, data), total)

    def release(self) -> None:
        """Release the rows on the workers."""
        self._rows = []


def _batch_size(n_rows: int, settings: Settings) -> int:
    """Return the requested batch size, else a large one, because each step sends messages."""
    if settings.asked == "lm":
        return n_rows
    if settings.batch_size != "auto":
        return settings.batch_of(n_rows)
    return int(min(max(2048, n_rows // 64), 8192, n_rows))


def read_parquet(
    client: Any, source: ParquetSource, classes: bool, settings: Settings, split: HoldoutSplit | None = None,
    report: Callable[[int], None] | None = None,
) -> tuple[Shards, RowBlock, RowBlock]:  # fmt: skip
    """Read Parquet files on the workers, one file at a time per worker; all workers need the files at the same path.

    Return the rows for training, the held-out rows of `split` and those of its sample. A split requires one target.
    """
    from distributed import as_completed

    assert source.targets is not None
    table, keep = source.table, {*source.columns, *source.targets, source.weight}
    dropped = tuple(name for name in source.table.names if name not in keep)
    known = (str(source.path.absolute()), tuple(source.targets), source.weight, dropped)
    whole, kind = split or HoldoutSplit(table.total, np.arange(0)), None if split is None else classes
    before, counts = 0, dict[Any, int]()
    for k, count in enumerate(table.counts):
        part = whole.between(before, before + count)
        counts[client.submit(read_file, known, k, part, before, kind, pure=False)] = count - len(part.held)
        before += count
    done = 0
    for future in as_completed(list(counts)):
        if future.status == "error":
            raise future.exception()
        done += counts[future]
        if report is not None:
            report(done)
    table.check_unchanged()
    kept, held, sample = (client.map(itemgetter(k), list(counts), pure=False) for k in range(3))
    shards = Shards(client, kept, source.columns, classes, settings)
    few = [[part for part in client.gather(parts) if len(part.X)] for parts in (held, sample)]
    none = RowBlock(np.empty((0, shards.n_features)), np.empty(0))
    return shards, *(RowBlock.join(parts) if parts else none for parts in few)  # type: ignore[return-value]

"""What one worker does: sums over its buckets, an exchange with the others, and the same step as all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.engine import Engine, Optimizer, cores
from meshnn.losses import Targets
from meshnn.mesh import Mesh
from meshnn.tables.sources import RowBlock
from meshnn.training.cluster.plan import Node, ShardPlan, covering_nodes, tree_sum
from meshnn.training.dataset import LIMITS
from meshnn.training.row_transform import RowTransform
from meshnn.training.samples import Epoch, InMemorySamples


class Transport(ABC):
    """Sums over all workers, added in the order of the tree.

    Every worker gets the sums of all others; of large sums each adds up one slice, which all others then get.
    """

    def __init__(self, plan: ShardPlan, workers: int, rank: int) -> None:
        self.root, self.rank = plan.root, rank
        self.nodes = [covering_nodes(buckets) for buckets in plan.assignment(workers)]

    @abstractmethod
    def exchange(self, messages: list[FloatArray]) -> list[FloatArray]:
        """Send a message to each worker; return the one that came from each, flat."""

    def __call__(self, sums: dict[Node, FloatArray]) -> FloatArray:
        """Return the total, from the sums at the nodes of this worker."""
        count = len(self.nodes)
        if count == 1:
            return tree_sum(sums, self.root)
        mine = np.stack([sums[node] for node in self.nodes[self.rank]])
        width = mine.shape[1]
        if 8 * width <= LIMITS.sliced_bytes:
            return self._total(self.exchange([mine] * count), width)
        cuts = [width * k // count for k in range(count + 1)]
        received = self.exchange([np.ascontiguousarray(mine[:, a:b]) for a, b in pairwise(cuts)])
        slice_ = self._total(received, cuts[self.rank + 1] - cuts[self.rank])
        return np.concatenate(self.exchange([slice_] * count))

    def _total(self, received: list[FloatArray], width: int) -> FloatArray:
        sums: dict[Node, FloatArray] = {}
        for nodes, message in zip(self.nodes, received, strict=True):
            sums.update(zip(nodes, message.reshape(len(nodes), width), strict=True))
        return tree_sum(sums, self.root)


class ShardData(NamedTuple):
    """The rows of a bucket as a net takes them, shard after shard."""

    X: Array  # (n, n_inputs)
    targets: Array  # (n, m)
    weight: Array  # (n, 1), 1 on average over all buckets

    @classmethod
    def of(cls, rows: RowBlock, preprocessing: RowTransform, mean_weight: float) -> ShardData:
        """Prepare rows; `mean_weight` is that of all rows of the data set."""
        weights = preprocessing.weights(rows)
        each = np.ones(len(rows.X)) if weights is None else weights / mean_weight
        weight = each.astype(preprocessing.dtype)[:, None]
        return cls(preprocessing.inputs(rows.X), preprocessing.targets(rows.y), weight)

    def take(self, rows: Array) -> ShardData:
        """Select rows by their numbers."""
        return ShardData(*(array.take(rows, axis=0) for array in self))

    @staticmethod
    def join(parts: Sequence[ShardData]) -> ShardData:
        """Concatenate the rows of several buckets."""
        return ShardData(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def samples(self, preprocessing: RowTransform, n_rows: int, total_weight: float) -> InMemorySamples:
        """Return them as samples of a data set of `n_rows` rows and this weight."""
        share = self.weight * self.weight.dtype.type(1.0 / n_rows)
        weight = total_weight * float(share.sum(dtype=np.float64))
        return InMemorySamples(self.X[None], Targets(preprocessing.loss, self.targets, share), weight)


@dataclass
class WorkerState:
    """The buckets of one worker; sums are returned by node of the tree."""

    plan: ShardPlan
    data: dict[int, ShardData]  # by bucket, consecutive
    preprocessing: RowTransform
    n_jobs: int | None = None

    def _sums(self, task: Callable[[int], FloatArray]) -> dict[Node, FloatArray]:
        """Run a task for each bucket and add up what it returns."""
        mine = list(self.data)
        threads = min(self.n_jobs if self.n_jobs is not None else cores(), max(len(mine), 1))
        with ThreadPoolExecutor(threads) as pool:
            leaves = {(0, bucket): found for bucket, found in zip(mine, pool.map(task, mine), strict=True)}
        buckets = range(mine[0], mine[-1] + 1) if mine else range(0)
        return {node: tree_sum(leaves, node) for node in covering_nodes(buckets)}

    def gradient(self, engine: Engine, values: Array, seed: int, batch: int) -> dict[Node, FloatArray]:
        """Sum gradient, loss and correct samples of one batch, each times the number of samples."""

        def task(bucket: int) -> FloatArray:
            X, y, weight = self.data[bucket].take(self.plan.batch_rows(bucket, seed, batch))
            if len(X) == 0:
                return np.zeros(len(values) + 2)
            found = engine.gradient(values, X[None], Targets(self.preprocessing.loss, y, weight), 1)
            return np.append(found.grad, (found.loss, found.correct))

        return self._sums(task)

    def _samples(self, bucket: int) -> InMemorySamples:
        return self.data[bucket].samples(self.preprocessing, self.plan.rows, 1.0)

    def evaluate(self, mesh: Mesh) -> dict[Node, FloatArray]:
        """Sum loss and correct samples of all rows."""
        return self._sums(lambda bucket: np.array(self._samples(bucket).evaluate(mesh, 1)))

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any]) -> dict[Node, FloatArray]:
        """Sum loss, correct samples, gradient and Gauss-Newton matrix of all rows, concatenated."""
        from threadpoolctl import threadpool_limits

        engine = mesh.engine("curvature", method, LIMITS.bucket_rows)

        def task(bucket: int) -> FloatArray:
            samples = self._samples(bucket)
            model = engine.curvature(mesh.values, samples.X, samples.targets, live, 1)
            return np.concatenate([[model.loss, model.correct], model.grad, model.matrix.ravel()])

        with threadpool_limits(1, "blas"):
            return self._sums(task)


class EpochPart(NamedTuple):
    """Some batches of an epoch."""

    seed: int
    rates: Array  # of all batches
    begun: Epoch  # pieces are batches
    last: int  # the batch after the last one


def run_steps(
    state: WorkerState, total: Callable[[dict[Node, FloatArray]], FloatArray], engine: Engine, values: Array,
    optimizer: Optimizer, part: EpochPart,
) -> Epoch:  # fmt: skip
    """Take the steps of a part of an epoch in place, the same on all workers; stop after a loss that is not finite."""
    plan, learned, now = state.plan, len(optimizer.first), part.begun
    for batch in range(now.piece, part.last):
        count = plan.count(batch)
        found = total(state.gradient(engine, values, part.seed, batch)) / count
        norm = optimizer.step(values[:learned], found[:learned].astype(values.dtype), float(part.rates[batch]))
        now = now.plus((found[-2], found[-1], norm), count / plan.rows)
        if not np.isfinite(now.sums[0]):
            break
    return now

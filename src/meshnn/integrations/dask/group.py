"""`WorkerGroup`: joint work of all Dask workers, repeated if a worker is lost. `ShardedSamples`: their samples."""

from __future__ import annotations

import math
import pickle
import time
import uuid
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.engine import Curvature, Engine, Optimizer
from meshnn.errors import MeshError
from meshnn.integrations.dask.tasks import SessionEndedError, WorkOrder, inbox_of, taken, work
from meshnn.mesh import Mesh
from meshnn.training.cluster import EpochPart, Node, ShardPlan, tree_sum
from meshnn.training.samples import Epoch, InMemorySamples, PiecewiseSteps, RowTransform, Samples

__all__ = ["ShardedSamples", "WorkerGroup", "living_workers"]


class WorkerLostError(Exception):
    """Raised when a worker is lost during joint work."""


def living_workers(client: Any) -> dict[str, float]:
    """Return the running workers and the seconds since the last heartbeat of each."""
    now = time.time()
    info = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return {address: now - facts["last_seen"] for address, facts in info.items() if facts["status"] == "running"}


@dataclass
class WorkerGroup:
    """All current workers of a cluster."""

    patience: ClassVar[float] = 30.0  # seconds without a heartbeat after which a worker counts as hanging
    client: Any
    plan: ShardPlan
    preprocessing: RowTransform
    data: list[Any]  # futures of `InMemorySamples`, one per bucket
    fit: str = field(default_factory=lambda: uuid.uuid4().hex)
    _sessions: int = 0
    _pickled: tuple[bytes, bytes] = (b"", b"")  # digest of a graph, and the pickled mesh with it

    def run(self, method: str, mesh: Mesh, *arguments: Any) -> list[Any]:
        """Return the results of `work` of all workers; repeat it if a worker is lost."""
        if self._pickled[0] != mesh.topology._digest:
            self._pickled = (mesh.topology._digest, pickle.dumps(mesh))
        while True:
            addresses = self._addresses()
            self._sessions += 1
            order = WorkOrder(self.fit, f"{self.fit}-{self._sessions}", addresses, self.plan,
                              self._pickled[1], method, mesh.values.copy(), arguments)  # fmt: skip
            assigned = [[self.data[k] for k in buckets] for buckets in self.plan.assignment(len(addresses))]
            futures = [
                self.client.submit(work, order, rank, *data, workers=[address], pure=False, retries=0,
                                   allow_other_workers=False)
                for rank, (address, data) in enumerate(zip(addresses, assigned, strict=True))
            ]  # fmt: skip
            try:
                return self._results(futures, addresses)
            except WorkerLostError as lost:
                warnings.warn(f"{lost}; another worker reads its rows again, and the fit continues", stacklevel=2)
            finally:
                if any(not future.done() or future.status != "finished" for future in futures):
                    self._end(order.session)
                    self.client.cancel(futures, force=True)

    def total(self, method: str, mesh: Mesh, *arguments: Any) -> FloatArray:
        """Return the sum over all workers."""
        sums: dict[Node, FloatArray] = {}
        for nodes in self.run(method, mesh, *arguments):
            sums.update(nodes)
        return tree_sum(sums, self.plan.root)

    def _addresses(self) -> list[str]:
        """Return the addresses of the workers; wait up to a minute for the first one."""
        until = time.monotonic() + 60
        while not (found := sorted(living_workers(self.client))):
            if time.monotonic() > until:
                raise MeshError("the cluster has had no worker for 60 s; start workers, and fit again")
            time.sleep(0.2)
        return found[: self.plan.buckets]

    def _results(self, futures: list[Any], addresses: list[str]) -> list[Any]:
        from distributed import wait

        left = set(futures)
        while left:
            try:
                wait(list(left), timeout=0.5, return_when="FIRST_COMPLETED")
            except TimeoutError:
                pass
            except CancelledError:
                raise WorkerLostError("rows were lost with a worker") from None
            for future in [future for future in left if future.done()]:
                if future.status == "error":
                    error = future.exception()
                    if not isinstance(error, SessionEndedError):
                        self._check_all_alive(addresses)  # the error may be a consequence of a lost worker
                        raise error
                if future.status != "finished":
                    raise WorkerLostError("a worker was lost")
                left.discard(future)
            if left:
                self._check_all_alive(addresses)
        return list(self.client.gather(futures))

    def _check_all_alive(self, addresses: list[str]) -> None:
        living = living_workers(self.client)
        for address in addresses:
            if address not in living:
                raise WorkerLostError(f"the worker {address} is gone")
            if living[address] > self.patience:
                raise MeshError(f"the worker {address} has sent no heartbeat for {living[address]:.0f} s; end it, "
                                "and fit again (a checkpoint resumes the fit)")  # fmt: skip

    def _end(self, session: str) -> None:
        """Stop workers that wait for others."""
        awake = [address for address, silent in living_workers(self.client).items() if silent < self.patience / 2]
        if awake:
            self.client.run(_end_session, session, workers=awake, wait=False, on_error="ignore")


async def _end_session(session: str, dask_worker: Any = None) -> None:  # wait=False needs a coroutine
    inbox_of(dask_worker).end(session)


class ShardedSamples(Samples):
    """All samples of a group of workers."""

    def __init__(self, group: WorkerGroup, total_weight: float) -> None:
        self.group, self.total_weight, self.loss = group, total_weight, group.preprocessing.loss

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of samples."""
        return self.group.plan.rows

    def steps(self, mesh: Mesh, method: str, size: int, n_jobs: int | None) -> ShardedSteps:
        """Return the steps, in batches of the size in the shard plan."""
        return ShardedSteps(self.group, mesh, mesh.engine("epochs", method, size))

    def evaluate(self, mesh: Mesh, n_jobs: int | None) -> tuple[float, float]:
        """Return the loss and the fraction of correct samples."""
        loss, correct = self.group.total("evaluate", mesh).tolist()
        return loss, correct

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any], n_jobs: int | None) -> Curvature:
        """Return loss, gradient and Gauss-Newton matrix by the parameters `live`."""
        n, found = len(live), self.group.total("curvature", mesh, method, live)
        return Curvature(float(found[0]), float(found[1]), found[2 : 2 + n].copy(), found[2 + n :].reshape(n, n).copy())

    def take(self, rows: Any) -> InMemorySamples:
        """Load the samples of the given indices, in ascending order."""
        group = self.group
        wanted = group.plan.by_bucket(np.asarray(rows, np.int64))
        futures = [group.client.submit(taken, group.data[k], some, pure=False) for k, some in wanted.items()]
        return InMemorySamples.join(group.client.gather(futures), self.total_weight)


class ShardedSteps(PiecewiseSteps):
    """Steps that all workers perform together."""

    def __init__(self, group: WorkerGroup, mesh: Mesh, engine: Engine) -> None:
        self.group, self.mesh, self.engine = group, mesh, engine
        self.n, self.batches = group.plan.rows, group.plan.batches
        self._seconds = math.nan  # per batch

    def epoch(
        self, values: Array, optimizer: Optimizer, order: Array, rates: Array, begun: Epoch,
        report: Callable[[Epoch, int], None],
    ) -> Epoch:  # fmt: skip
        """Train in pieces of about two seconds; their length has no effect on the result."""
        now, plan = begun, self.group.plan
        while now.piece < self.batches and np.isfinite(now.sums[0]):
            some = 1 if math.isnan(self._seconds) else max(1, int(2.0 / max(self._seconds, 1e-9)))
            start, first = time.perf_counter(), now.piece
            now = self._run(optimizer, EpochPart(int(order[0]), rates, now, min(first + some, self.batches)))
            self._seconds = (time.perf_counter() - start) / max(now.piece - first, 1)
            if np.isfinite(now.sums[0]):
                report(now, min(now.piece * plan.batch_size, plan.rows))
        return now

    def _run(self, optimizer: Optimizer, part: EpochPart) -> Epoch:
        """Perform steps on the workers and copy the changed state."""
        found = self.group.run("steps", self.mesh, optimizer, self.engine.plan.method.name, part)
        if len({agreed for _, agreed, _ in found}) > 1:
            raise MeshError("the workers have different weights: install the same versions on processors of one "
                            "kind")  # fmt: skip
        now, _, (values, moved) = found[0]
        self.mesh.values[:] = values
        optimizer.first[:], optimizer.second[:], optimizer.done = moved.first, moved.second, moved.done
        result: Epoch = now
        return result

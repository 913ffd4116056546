"""Tasks of Dask workers: partitions become rows, rows become shards and buckets, and all workers step together."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import pickle
import socket
import threading
import time
from contextlib import suppress
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.errors import DataError, MeshError
from meshnn.mesh import Mesh
from meshnn.tables.holdout import HoldoutSplit, as_one_target
from meshnn.tables.sources import ParquetSource, RowBlock, as_features, as_target_values, check_rows
from meshnn.training.cluster import ShardPlan, Transport, WorkerState, run_steps
from meshnn.training.dataset import coded
from meshnn.training.samples import InMemorySamples, RowTransform

try:
    from distributed import WorkerPlugin
except ImportError as error:  # an optional dependency
    raise ImportError("Dask is not installed; install it with pip install 'meshnn[dask]'") from error

__all__ = ["Inbox", "ParquetTable", "SessionEndedError", "WorkOrder", "as_data", "as_rows", "as_shard", "describe",
           "inbox_of", "read_file", "taken", "work"]  # fmt: skip


def as_rows(number: int, names: list[str] | None, X: Any, y: Any, weight: Any = None) -> RowBlock:
    """Convert a partition to arrays and check them."""
    where = f"partition {number}"
    values, targets = as_features(X, f"{where}: X"), as_target_values(np.asarray(y), where, 0)
    if len(targets) != len(values):
        raise DataError(f"{where}: X has {len(values)} rows, y {len(targets)}; give both the same partitions")
    rows = RowBlock(np.ascontiguousarray(values), targets, None if weight is None else np.asarray(weight, np.float64))
    check_rows(rows, names, where, 0)
    return rows


#: Arguments of `ParquetSource` on a worker: path, targets, weight and columns to drop.
ParquetTable = tuple[str, tuple[str, ...], str | None, tuple[str, ...]]


@lru_cache(maxsize=4)
def _opened(path: str, targets: tuple[str, ...], weight: str | None, drop: tuple[str, ...]) -> ParquetSource:
    return ParquetSource(Path(path), list(targets), weight, drop)


def read_file(
    table: ParquetTable, k: int, split: HoldoutSplit, before: int, classes: bool | None
) -> tuple[RowBlock, ...]:
    """Read a file: rows for training, held-out rows and the sample; see `HoldoutSplit.split`.

    `classes` states whether the single target is a class; None leaves targets unchanged.
    """
    where = f"a worker on {socket.gethostname()}"
    try:
        source = _opened(*table)
    except MeshError as error:
        raise DataError(f"{where}: {error}; all workers need the files at the same path") from None
    if source.table.counts[k : k + 1] != [split.n]:
        raise DataError(f"{where} has other files in {table[0]}; all workers need the same files")
    weight = None if source.weight is None else np.empty(0)
    blocks = list(source.blocks_of(k)) or [
        RowBlock(np.empty((0, len(source.columns)), np.float32), np.empty(0), weight)
    ]
    rows = RowBlock.join(blocks)
    if classes is not None and len(rows.X):
        rows = rows._replace(y=as_one_target(rows.y, classes, source.name, before))
    return split.split(rows)


def describe(rows: RowBlock, classes: bool) -> tuple[int, list[Any], str, int]:
    """Return the number of rows, the labels, the dtype and the number of targets of a partition."""
    y, columns = rows.y, rows.y.shape[1] if rows.y.ndim == 2 else 1
    if classes and columns > 1:
        raise DataError("y has several columns; fit multilabel targets in memory")
    if not classes and y.dtype.kind not in "fiub":
        raise DataError(f"y holds {y.dtype}, expected numbers; for labels use MeshClassifier")
    return len(rows.X), np.unique(y).tolist() if classes else [], rows.X.dtype.str, columns


def as_shard(labels: list[Any], dtype: str, *pieces: RowBlock) -> RowBlock:
    """Join the pieces of a shard; labels become class numbers."""
    rows = RowBlock.join(pieces)
    return RowBlock(rows.X.astype(dtype, copy=False), coded(rows.y, labels), rows.weight)


def as_data(preprocessing: RowTransform, total_weight: float, *shards: RowBlock) -> InMemorySamples:
    """Prepare a bucket from its shards; `total_weight` is the weight of all rows."""
    return preprocessing.samples(RowBlock.join(shards), total_weight)


def taken(rows: Any, which: Any) -> Any:
    """Copy rows of a `RowBlock` or of samples."""
    return deepcopy(rows.take(which))


# -- messages between workers during a task, over their existing connections ----------------------------------------


class SessionEndedError(Exception):
    """Raised when the group of workers has changed, to stop waiting for messages."""


class Inbox(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """The messages received by one worker, by session, round and sender. The plugin is installed on all workers."""

    name = "meshnn-inbox"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Initialise the inbox when a worker starts or the plugin is registered."""
        self.worker = worker
        self._messages: dict[tuple[str, int, int], bytes] = {}
        self._ended: dict[str, float] = {}  # end time of each ended session
        self._guard = threading.Condition()
        worker.handlers["meshnn_message"] = self._receive

    def _receive(self, session: str, round_: int, sender: int, data: bytes) -> str:
        with self._guard:
            if session not in self._ended:
                self._messages[session, round_, sender] = data
                self._guard.notify_all()
        return "OK"

    def get(self, session: str, round_: int, sender: int) -> bytes:
        """Wait for a message until the session ends."""
        key = (session, round_, sender)
        with self._guard:
            while key not in self._messages:
                if session in self._ended:
                    raise SessionEndedError("the group of workers has changed")
                self._guard.wait(1.0)
            return self._messages.pop(key)

    def send(self, address: str, **message: Any) -> None:
        """Start to send a message; the driver detects a lost receiver."""

        async def post() -> None:
            await self.worker.rpc(address).meshnn_message(**message)

        asyncio.run_coroutine_threadsafe(post(), self.worker.loop.asyncio_loop)

    def end(self, session: str) -> None:
        """End a session: drop its messages, also future ones, and wake up waiting tasks."""
        now = time.monotonic()
        with self._guard:
            self._ended = {name: at for name, at in self._ended.items() if now - at < 3600} | {session: now}
            self._messages = {key: data for key, data in self._messages.items() if key[0] != session}
            self._guard.notify_all()


def inbox_of(worker: Any) -> Inbox:
    """Return the inbox of a worker."""
    found: Inbox = worker.plugins[Inbox.name]
    return found


class DaskTransport(Transport):
    """Computes sums over all workers of a session."""

    def __init__(self, inbox: Inbox, session: str, addresses: list[str], plan: ShardPlan, rank: int) -> None:
        super().__init__(plan, len(addresses), rank)
        self.inbox, self.session, self.addresses, self.round = inbox, session, addresses, 0

    def exchange(self, messages: list[FloatArray]) -> list[FloatArray]:
        """Send one message to each other worker; return the messages received from them."""
        sent = [message.tobytes() for message in messages]
        for k, address in enumerate(self.addresses):
            if k != self.rank:
                self.inbox.send(address, session=self.session, round_=self.round, sender=self.rank, data=sent[k])
        received = [
            data if k == self.rank else self.inbox.get(self.session, self.round, k) for k, data in enumerate(sent)
        ]
        self.round += 1
        return [np.frombuffer(data) for data in received]


# -- joint steps -----------------------------------------------------------------------------------------------------


class WorkOrder(NamedTuple):
    """The order that all workers of a group receive."""

    fit: str
    session: str
    addresses: list[str]
    plan: ShardPlan
    mesh: bytes
    method: str  # a method of `WorkerState`, or "steps"
    values: Array  # initial parameters
    arguments: tuple[Any, ...]


@lru_cache(maxsize=32)
def _mesh_of(worker: str, fit: str, pickled: bytes) -> tuple[Mesh, threading.Lock]:
    """Return the net of a fit on a worker and a lock; its engines are kept between tasks."""
    return pickle.loads(pickled), threading.Lock()


@cache
def _keep_heap() -> None:
    """Keep freed memory in the process (glibc).

    Dask sets MALLOC_TRIM_THRESHOLD_, so that workers return memory to the system immediately. The system then clears
    every page that a step allocates, which takes about a quarter of the time of a step.
    """
    trim_threshold = -1
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(trim_threshold, 2**26)


def work(order: WorkOrder, rank: int, *data: InMemorySamples) -> Any:
    """Do the work of one worker: return sums by node, or progress, agreement and, on rank 0, the new state."""
    from distributed import get_worker, secede

    secede()  # run other tasks while this one waits for the other workers
    worker = get_worker()
    inbox, buckets = inbox_of(worker), order.plan.assignment(len(order.addresses))[rank]
    state = WorkerState(order.plan, dict(zip(buckets, data, strict=True)), worker.state.nthreads)
    mesh, lock = _mesh_of(worker.address, order.fit, order.mesh)
    _keep_heap()
    try:
        with lock:
            mesh.values[:] = order.values
            if order.method != "steps":
                return getattr(state, order.method)(mesh, *order.arguments)
            optimizer, method, part = order.arguments
            optimizer = pickle.loads(pickle.dumps(optimizer))  # received arrays may be read-only
            total = DaskTransport(inbox, order.session, order.addresses, order.plan, rank)
            now = run_steps(state, total, mesh.engine("epochs", method, again=True), mesh.values, optimizer, part)
            agreed = hashlib.blake2b(mesh.values.tobytes() + mesh.topology._digest, digest_size=16).hexdigest()
            return now, agreed, (mesh.values.copy(), optimizer) if rank == 0 else None
    finally:
        inbox.end(order.session)

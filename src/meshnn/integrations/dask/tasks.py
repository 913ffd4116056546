"""Tasks of Dask workers: partitions become rows, rows shards and buckets, and all workers take steps together."""

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
except ImportError as error:  # an optional dependency: say how to get it
    raise ImportError("Dask is not installed; pip install 'meshnn[dask]' brings it") from error

__all__ = ["Inbox", "ParquetTable", "SessionEndedError", "WorkOrder", "as_data", "as_rows", "as_shard", "describe",
           "inbox_of", "read_file", "taken", "work"]  # fmt: skip


def as_rows(number: int, names: list[str] | None, X: Any, y: Any, weight: Any = None) -> RowBlock:
    """Convert a partition to arrays and check them."""
    where = f"partition {number}"
    values, targets = as_features(X, f"{where}: X"), as_target_values(np.asarray(y), where, 0)
    if len(targets) != len(values):
        raise DataError(f"{where}: X has {len(values)} rows, y {len(targets)}; divide both alike")
    rows = RowBlock(np.ascontiguousarray(values), targets, None if weight is None else np.asarray(weight, np.float64))
    check_rows(rows, names, where, 0)
    return rows


#: How workers open a table themselves: path, targets, weight and columns to drop, of `ParquetSource`.
ParquetTable = tuple[str, tuple[str, ...], str | None, tuple[str, ...]]


@lru_cache(maxsize=4)
def _opened(path: str, targets: tuple[str, ...], weight: str | None, drop: tuple[str, ...]) -> ParquetSource:
    return ParquetSource(Path(path), list(targets), weight, drop)


def read_file(
    table: ParquetTable, k: int, split: HoldoutSplit, before: int, classes: bool | None
) -> tuple[RowBlock, ...]:
    """Read a file: rows to learn from, those held out and those of the sample; see `HoldoutSplit.split`.

    `classes` says what the one target must be; None leaves targets as they are.
    """
    where = f"a worker on {socket.gethostname()}"
    try:
        source = _opened(*table)
    except MeshError as error:
        raise DataError(f"{where}: {error}; all workers must see the files at the same place") from None
    if source.table.counts[k : k + 1] != [split.n]:
        raise DataError(f"{where} sees other files in {table[0]}; all must see the same")
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
        raise DataError("y has several columns; labels in columns are learned from memory only")
    if not classes and y.dtype.kind not in "fiub":
        raise DataError(f"y holds {y.dtype}, expected numbers; for labels take MeshClassifier")
    return len(rows.X), np.unique(y).tolist() if classes else [], rows.X.dtype.str, columns


def as_shard(labels: list[Any], dtype: str, *pieces: RowBlock) -> RowBlock:
    """Join the pieces of a shard; labels become codes."""
    rows = RowBlock.join(pieces)
    return RowBlock(rows.X.astype(dtype, copy=False), coded(rows.y, labels), rows.weight)


def as_data(preprocessing: RowTransform, total_weight: float, *shards: RowBlock) -> InMemorySamples:
    """Prepare a bucket from its shards; `total_weight` is that of all rows."""
    return preprocessing.samples(RowBlock.join(shards), total_weight)


def taken(rows: Any, which: Any) -> Any:
    """Copy some rows of a `RowBlock` or of samples."""
    return deepcopy(rows.take(which))


# -- messages between workers in the middle of a task, over the connections that they have anyway ------------------


class SessionEndedError(Exception):
    """The group of workers has changed; stop waiting for messages."""


class Inbox(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """The messages that have arrived at one worker, by session, round and sender; workers that join later get one."""

    name = "meshnn-inbox"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Run when a worker starts, or when the plugin is registered."""
        self.worker = worker
        self._messages: dict[tuple[str, int, int], bytes] = {}
        self._ended: dict[str, float] = {}  # sessions, and when they ended
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
        """Begin to send; the driver notices if the receiver is gone."""

        async def post() -> None:
            await self.worker.rpc(address).meshnn_message(**message)

        asyncio.run_coroutine_threadsafe(post(), self.worker.loop.asyncio_loop)

    def end(self, session: str) -> None:
        """End a session: drop its messages, now and later, and wake up those who wait."""
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
    """Sums over all workers of a session."""

    def __init__(self, inbox: Inbox, session: str, addresses: list[str], plan: ShardPlan, rank: int) -> None:
        super().__init__(plan, len(addresses), rank)
        self.inbox, self.session, self.addresses, self.round = inbox, session, addresses, 0

    def exchange(self, messages: list[FloatArray]) -> list[FloatArray]:
        """Send one message to each of the others; return the one that came from each."""
        sent = [message.tobytes() for message in messages]
        for k, address in enumerate(self.addresses):
            if k != self.rank:
                self.inbox.send(address, session=self.session, round_=self.round, sender=self.rank, data=sent[k])
        received = [
            data if k == self.rank else self.inbox.get(self.session, self.round, k) for k, data in enumerate(sent)
        ]
        self.round += 1
        return [np.frombuffer(data) for data in received]


# -- steps that all take together ----------------------------------------------------------------------------------


class WorkOrder(NamedTuple):
    """The order that all workers of a group receive."""

    fit: str
    session: str
    addresses: list[str]
    plan: ShardPlan
    mesh: bytes
    method: str  # of `WorkerState`, or "steps"
    values: Array  # parameters to begin with
    arguments: tuple[Any, ...]


@lru_cache(maxsize=32)
def _mesh_of(worker: str, fit: str, pickled: bytes) -> tuple[Mesh, threading.Lock]:
    """Return the net of a fit on a worker, of which a process may have several; its engines are kept between tasks."""
    return pickle.loads(pickled), threading.Lock()


@cache
def _keep_heap() -> None:
    """Keep freed memory in the process (glibc).

    Dask makes workers return it to the system at once (MALLOC_TRIM_THRESHOLD_), which then clears every page that a
    step asks for: 2.2 of 9.4 ms per step.
    """
    trim_threshold = -1
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(trim_threshold, 2**26)


def work(order: WorkOrder, rank: int, *data: InMemorySamples) -> Any:
    """Do the part of one worker: return sums by node, or progress, agreement, and from the first the new state."""
    from distributed import get_worker, secede

    secede()  # other tasks may run while this one waits for the other workers
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

"""Tasks of Dask workers: partitions become rows, rows shards and buckets, and all workers take steps together."""

from __future__ import annotations

import ctypes
import hashlib
import pickle
import socket
import threading
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.integrations.dask.transport import DaskTransport, inbox_of
from meshnn.mesh import Mesh
from meshnn.tables.holdout import HoldoutSplit, as_one_target
from meshnn.tables.sources import ParquetSource, RowBlock, as_numbers, as_target_values, check_rows
from meshnn.training.cluster.plan import ShardPlan
from meshnn.training.cluster.worker import ShardData, WorkerState, run_steps
from meshnn.training.dataset import coded
from meshnn.training.row_transform import RowTransform

__all__ = ["ParquetFiles", "WorkOrder", "as_data", "as_rows", "as_shard", "describe", "read_file", "taken", "work"]


def as_rows(number: int, names: list[str] | None, X: Any, y: Any, weight: Any = None) -> RowBlock:
    """Convert a partition to arrays and check them."""
    where = f"partition {number}"
    values, targets = as_numbers(X, f"{where}: X"), as_target_values(np.asarray(y), where, 0)
    if len(targets) != len(values):
        raise DataError(f"{where}: X has {len(values)} rows, y {len(targets)}; divide both alike")
    rows = RowBlock(np.ascontiguousarray(values), targets, None if weight is None else np.asarray(weight, np.float64))
    check_rows(rows, names, where, 0)
    return rows


class ParquetFiles(NamedTuple):
    """A table that every worker opens itself."""

    path: str
    targets: tuple[str, ...]
    weight: str | None
    drop: tuple[str, ...]
    sizes: tuple[int, ...]  # of the files in bytes


@lru_cache(maxsize=4)
def _opened(table: ParquetFiles) -> ParquetSource:
    where = f"a worker on {socket.gethostname()}"
    try:
        source = ParquetSource(Path(table.path), list(table.targets), table.weight, table.drop)
    except MeshError as error:
        raise DataError(f"{where}: {error}; all workers must see the files at the same place") from None
    if tuple(size for size, _ in source.table.stamp.values()) != table.sizes:
        raise DataError(f"{where} sees other files in {table.path}; all must see the same")
    return source


def read_file(
    table: ParquetFiles, k: int, split: HoldoutSplit, before: int, classes: bool | None
) -> tuple[RowBlock, ...]:
    """Read a file: rows to learn from, those held out and those of the sample; see `HoldoutSplit.split`.

    `classes` says what the one target must be; None leaves targets as they are.
    """
    source = _opened(table)
    weight = None if table.weight is None else np.empty(0)
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


def as_data(preprocessing: RowTransform, mean_weight: float, *shards: RowBlock) -> ShardData:
    """Prepare a bucket from its shards."""
    return ShardData.of(RowBlock.join(shards), preprocessing, mean_weight)


def taken(rows: Any, which: Any) -> Any:
    """Copy some rows of a `RowBlock` or `ShardData`."""
    found = rows.take(which)
    return type(rows)(*(None if array is None else np.array(array) for array in found))


class WorkOrder(NamedTuple):
    """What all workers of a group are told."""

    fit: str
    session: str
    addresses: list[str]
    plan: ShardPlan
    preprocessing: RowTransform
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


def work(order: WorkOrder, rank: int, *data: ShardData) -> Any:
    """Do the part of one worker: return sums by node, or progress, agreement, and from the first the new state."""
    from distributed import get_worker, secede

    secede()  # other tasks may run while this one waits for the other workers
    worker = get_worker()
    inbox, buckets = inbox_of(worker), order.plan.assignment(len(order.addresses))[rank]
    state = WorkerState(order.plan, dict(zip(buckets, data, strict=True)), order.preprocessing, worker.state.nthreads)
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

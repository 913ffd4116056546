"""Tasks of Dask workers: partitions become rows, rows shards and buckets, and all workers take steps together."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.errors import DataError, MeshError
from meshnn.integrations.dask.transport import DaskTransport, inbox_of
from meshnn.mesh import Mesh
from meshnn.tables.holdout import HoldoutSplit, as_one_target
from meshnn.tables.sources import ParquetSource, RowBlock, as_numbers, as_target_values, check_rows
from meshnn.training.cluster.plan import ShardPlan
from meshnn.training.cluster.worker import ShardData, WorkerState, run_steps
from meshnn.training.dataset import Summary, coded, sums_per_label
from meshnn.training.row_transform import RowTransform

__all__ = ["Parquet", "PartitionInfo", "WorkOrder", "as_rows", "as_shard", "describe", "read_file", "summarise", "work"]


def as_rows(number: int, names: list[str] | None, X: Any, y: Any, weight: Any = None) -> RowBlock:
    """Convert a partition to arrays and check them."""
    where = f"partition {number}"
    values, targets = as_numbers(X, f"{where}: X"), as_target_values(np.asarray(y), where, 0)
    if len(targets) != len(values):
        raise DataError(f"{where}: X has {len(values)} rows, y {len(targets)}; divide both alike")
    rows = RowBlock(np.ascontiguousarray(values), targets, None if weight is None else np.asarray(weight, np.float64))
    check_rows(rows, names, where, 0)
    return rows


class Parquet(NamedTuple):
    """A table that every worker opens itself."""

    path: str
    targets: tuple[str, ...]
    weight: str | None
    drop: tuple[str, ...]
    sizes: tuple[int, ...]  # of the files in bytes


@lru_cache(maxsize=4)
def _opened(table: Parquet) -> ParquetSource:
    try:
        source = ParquetSource(Path(table.path), list(table.targets), table.weight, table.drop)
    except MeshError as error:
        advice = "all workers must see the files at the same place"
        raise DataError(f"a worker on {socket.gethostname()}: {error}; {advice}") from None
    if tuple(size for size, _ in source.table.stamp.values()) != table.sizes:
        raise DataError(f"a worker on {socket.gethostname()} sees other files in {table.path}; let all see the same")
    return source


def read_file(table: Parquet, k: int, split: HoldoutSplit, before: int, classes: bool | None) -> tuple[RowBlock, ...]:
    """Read a file: rows to learn from, those held out and those of the sample; see `HoldoutSplit.split`.

    `classes` says what the one target must be; None leaves targets as they are.
    """
    source = _opened(table)
    blocks = list(source.blocks_of(k))
    if not blocks:
        weight = None if table.weight is None else np.empty(0)
        blocks = [RowBlock(np.empty((0, len(source.columns)), np.float32), np.empty(0), weight)]
    rows = RowBlock.join(blocks)
    if classes is not None and len(rows.X):
        rows = rows._replace(y=as_one_target(rows.y, classes, source.name, before))
    return split.split(rows)


class PartitionInfo(NamedTuple):
    """What decides about the shards of all partitions."""

    n_rows: int
    labels: list[Any]
    dtype: str
    n_targets: int
    matrix_targets: bool


def describe(rows: RowBlock, classes: bool) -> PartitionInfo:
    """Count rows and labels of a partition."""
    y, columns = rows.y, rows.y.shape[1] if rows.y.ndim == 2 else 1
    if classes and columns > 1:
        raise DataError("y has several columns; labels in columns are learned from memory only")
    if not classes and y.dtype.kind not in "fiub":
        raise DataError(f"y holds {y.dtype}, expected numbers; for labels take MeshClassifier")
    return PartitionInfo(len(rows.X), np.unique(y).tolist() if classes else [], rows.X.dtype.str, columns, columns > 1)


def as_shard(labels: list[Any], dtype: str, *pieces: RowBlock) -> RowBlock:
    """Join the pieces of a shard; labels become codes."""
    rows = RowBlock.join(pieces)
    return RowBlock(rows.X.astype(dtype, copy=False), coded(rows.y, labels), rows.weight)


def summarise(rows: RowBlock, n_labels: int) -> tuple[Summary, FloatArray]:
    """Return the summary of a shard and its sums per label."""
    return Summary.of(rows), sums_per_label(rows, n_labels)


def as_shard_data(preprocessing: RowTransform, mean_weight: float, *shards: RowBlock) -> ShardData:
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


_meshes: OrderedDict[tuple[str, str, bytes], tuple[Mesh, threading.Lock]] = OrderedDict()
_guard = threading.Lock()


def _mesh_of(order: WorkOrder, worker: str) -> tuple[Mesh, threading.Lock]:
    """Return the net of a fit on a worker, of which a process may have several; its engines are kept between tasks."""
    key = (worker, order.fit, hashlib.blake2b(order.mesh, digest_size=16).digest())
    with _guard:
        if key not in _meshes:
            _meshes[key] = (pickle.loads(order.mesh), threading.Lock())
            while len(_meshes) > 32:
                _meshes.popitem(last=False)
        _meshes.move_to_end(key)
        return _meshes[key]


@contextmanager
def kept_heap() -> Iterator[None]:
    """Keep freed memory in the process (glibc).

    Dask makes workers return it to the system at once (MALLOC_TRIM_THRESHOLD_), which then clears every page that a
    step asks for: 2.2 of 9.4 ms per step.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        yield
        return
    trim_threshold, default = -1, os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    set_option(trim_threshold, 2**26)
    try:
        yield
    finally:
        set_option(trim_threshold, int(default) if default.isdigit() else 2**17)


def work(order: WorkOrder, rank: int, *data: ShardData) -> Any:
    """Do the part of one worker: return sums by node, or progress, agreement, and from the first the new state."""
    from distributed import get_worker, secede

    secede()  # other tasks may run while this one waits for the other workers
    worker = get_worker()
    inbox, buckets = inbox_of(worker), order.plan.assignment(len(order.addresses))[rank]
    state = WorkerState(order.plan, dict(zip(buckets, data, strict=True)), order.preprocessing, worker.state.nthreads)
    mesh, lock = _mesh_of(order, worker.address)
    try:
        with lock, kept_heap():
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

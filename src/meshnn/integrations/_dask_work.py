"""What workers of Dask do: partitions become rows, rows lots and parts, and all take steps together."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.data.large import ParquetSource, Rows
from meshnn.errors import DataError
from meshnn.integrations._mailbox import Mailboxes, mailboxes
from meshnn.mesh import Mesh
from meshnn.training.crew import coded, joined
from meshnn.training.far import Look, Raw
from meshnn.training.lots import Key, Parts, ShardData, ShardPlan, Transport, WorkerState, agreement, run_steps

__all__ = [
    "Letters",
    "Order",
    "as_lot",
    "as_rows",
    "held_rows",
    "kept_heap",
    "read_file",
    "rows_and_labels",
    "rows_at",
    "seen",
    "some_rows",
    "weight_of",
    "work",
]


def as_rows(X: Any, y: Any, weight: Any, names: list[str] | None, number: int) -> Raw:
    """A partition as arrays, checked."""
    from meshnn.data.large import _check_finite, _check_weights

    where = f"partition {number}"
    try:
        values = np.asarray(X)
        features = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: X holds what is not a number ({error}); encode it before") from None
    _check_finite(features, names, where, 0)
    targets = np.asarray(y)
    targets = targets.astype(str) if targets.dtype == object else targets
    if targets.dtype.kind == "f":
        _check_finite(targets.reshape(len(targets), -1), None, f"y of {where}", 0)
    if len(targets) != len(features):
        raise DataError(f"{where}: X has {len(features)} rows, y {len(targets)}; divide both alike")
    weights = None if weight is None else np.asarray(weight, np.float64)
    if weights is not None:
        _check_weights(weights, where, 0)
    return np.ascontiguousarray(features), targets, weights


def read_file(
    file: str, folder: str, y: list[str], sample_weight: str | None, names: list[str] | None, dtype: str
) -> Raw:
    """A Parquet file as arrays, checked."""
    from pathlib import Path

    source = ParquetSource(Path(file), y, sample_weight)
    if source.names != names:
        raise DataError(f"{file} has other columns than the first file of {folder}; write all files alike")
    blocks: list[Rows] = list(source.blocks())
    if not blocks:
        empty = np.empty((0, len(names or [])), dtype)
        return empty, np.empty(0), None if sample_weight is None else np.empty(0)
    X, targets, weight = joined([(block.X, block.y, block.weight) for block in blocks])
    return X.astype(dtype, copy=False), targets, weight


def rows_and_labels(raw: Raw, classes: bool) -> tuple[int, list[Any], str, int, bool]:
    """How many rows, which labels, of what kind, how many targets, and whether there are weights."""
    X, y, weight = raw
    if classes and y.ndim == 2 and y.shape[1] > 1:
        raise DataError("y has several columns; labels in columns are learned from memory only")
    if not classes and y.dtype.kind not in "fiub":
        raise DataError(f"y holds {y.dtype}, expected numbers; for labels take MeshClassifier")
    labels = np.unique(y).tolist() if classes else []
    return len(X), labels, X.dtype.str, y.shape[1] if y.ndim == 2 else 1, weight is not None


def some_rows(raw: Raw, first: int, last: int) -> Raw:
    """Some of the rows of a partition."""
    return tuple(None if array is None else array[first:last].copy() for array in raw)  # type: ignore[return-value]


def as_lot(labels: list[Any], dtype: str, *pieces: Raw) -> Raw:
    """A lot from its pieces, targets coded."""
    X, y, weight = joined(list(pieces))
    flat = y[:, 0] if labels and y.ndim == 2 else y
    return X.astype(dtype, copy=False), coded(flat, labels), weight


def rows_at(raw: Raw, numbers: Array) -> Raw:
    """Some rows of a lot."""
    return tuple(None if array is None else array[numbers] for array in raw)  # type: ignore[return-value]


def weight_of(raw: Raw, look: Look) -> float:
    """The weight of a lot."""
    weights = look.weights(raw[1], raw[2])
    return float(len(raw[0]) if weights is None else weights.sum())


def seen(look: Look, mean: float, *lots: Raw) -> ShardData:
    """A part as a net sees it, from its lots."""
    return ShardData.of(joined(list(lots)), look, mean)


def held_rows(held: ShardData, rows: Array) -> ShardData:
    """Some rows of it."""
    return held.at(rows)


class Order(NamedTuple):
    """What everybody in a crew is told."""

    fit: str
    session: str
    addresses: list[str]
    cut: ShardPlan
    look: Look
    mass: float
    mesh: bytes
    what: str
    arguments: tuple[Any, ...]

    @property
    def dealt(self) -> list[range]:
        """The parts of each."""
        return self.cut.dealt(len(self.addresses))


_meshes: OrderedDict[tuple[str, str, bytes], tuple[Mesh, threading.Lock]] = OrderedDict()
_guard = threading.Lock()


def _mesh_of(order: Order, worker: str) -> tuple[Mesh, threading.Lock]:
    """The net of a fit at a worker (there may be several in a process), with what was compiled for it before."""
    key = (worker, order.fit, hashlib.blake2b(order.mesh, digest_size=16).digest())
    with _guard:
        if key not in _meshes:
            _meshes[key] = (pickle.loads(order.mesh), threading.Lock())
            while len(_meshes) > 32:
                _meshes.popitem(last=False)
        _meshes.move_to_end(key)
        return _meshes[key]


#: Of glibc: the name of the threshold, and a heap that is kept, in bytes.
M_TRIM_THRESHOLD, KEPT = -1, 2**26


@contextmanager
def kept_heap() -> Iterator[None]:
    """Have memory that is freed stay with the process.

    Dask tells workers to give it back at once (MALLOC_TRIM_THRESHOLD_). A step takes and frees many times what it
    needs, and pages that come from the system are made zero every time: that took 2.2 of 9.4 ms.
    """
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        yield
        return
    usual = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    tell(M_TRIM_THRESHOLD, KEPT)
    try:
        yield
    finally:
        tell(M_TRIM_THRESHOLD, int(usual) if usual.isdigit() else 2**17)


def work(order: Order, rank: int, *held: ShardData) -> Any:
    """What one of a crew does."""
    from distributed import get_worker, secede

    secede()  # others may have their turn while this waits for the rest of the crew
    worker = get_worker()
    mail = mailboxes(worker)
    parts = Parts(order.cut, order.dealt[rank])
    desk = WorkerState(parts, dict(zip(parts.mine, held, strict=True)), order.look, worker.state.nthreads)
    mesh, lock = _mesh_of(order, worker.address)
    try:
        with lock, kept_heap():
            if order.what == "steps":
                return _steps(order, rank, desk, mesh, mail)
            values, *more = order.arguments
            mesh.values[:] = values
            found: dict[Key, FloatArray] = getattr(desk, order.what)(mesh, *more)
            return found
    finally:
        mail.end(order.session)


def _steps(order: Order, rank: int, desk: WorkerState, mesh: Mesh, mail: Mailboxes) -> Any:
    values, optimizer, method, seed, rates, begun, last = order.arguments
    mesh.values[:] = values
    optimizer = pickle.loads(pickle.dumps(optimizer))  # arrays that come over a wire may be read-only
    engine = mesh.engine("epochs", method, again=True)
    total = Letters(mail, order, rank)
    now = run_steps(desk, total, engine, mesh.values, optimizer, seed, rates, begun, last)
    return now, agreement(mesh), (mesh.values.copy(), optimizer) if rank == 0 else None


class Letters(Transport):
    """Sums over a crew, by letters from worker to worker."""

    def __init__(self, mail: Mailboxes, order: Order, rank: int) -> None:
        super().__init__(order.cut, order.dealt, rank)
        self.mail, self.order, self.round = mail, order, 0

    def swap(self, letters: list[FloatArray]) -> list[FloatArray]:
        """Send one to each of the others; what came from each."""
        sent = [letter.tobytes() for letter in letters]
        for k, address in enumerate(self.order.addresses):
            if k != self.rank:
                self.mail.send(address, self.order.session, self.round, self.rank, sent[k])
        came = [
            sent[k] if k == self.rank else self.mail.get(self.order.session, self.round, k)
            for k in range(len(self.order.addresses))
        ]
        self.round += 1
        return [np.frombuffer(letter) for letter in came]

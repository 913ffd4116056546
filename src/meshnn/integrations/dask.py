"""Fits on a cluster of Dask: workers keep their partitions, and the result is the same whatever the cluster is.

Rows become lots (`meshnn.training.lots`): futures that Dask makes again elsewhere if a worker is lost. Steps are taken
by one task on every worker, about a second at a time; meanwhile they send each other sums. What is not finished when a
worker goes is begun again by those who are left, from the same weights.
"""

from __future__ import annotations

import pickle
import time
import uuid
import warnings
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.data.large import ParquetSource
from meshnn.engine import Optimizer
from meshnn.errors import DataError, MeshError
from meshnn.integrations._dask_work import (
    Order,
    as_lot,
    as_rows,
    held_rows,
    read_file,
    rows_and_labels,
    rows_at,
    seen,
    some_rows,
    weight_of,
    work,
)
from meshnn.integrations._mailbox import AbortedError, Mailing, mailboxes
from meshnn.mesh import Mesh
from meshnn.training.board import this_machine
from meshnn.training.crew import (
    CrewSamples,
    Facts,
    LotRows,
    WorkerGroup,
    cluster_batch,
    joined,
)
from meshnn.training.far import Look, Raw
from meshnn.training.lots import Key, Parts, ShardPlan, joined_held, root
from meshnn.training.samples import Epoch, InMemoryDataset
from meshnn.training.settings import Settings

__all__ = ["fit", "open_parquet", "open_rows", "predict"]

#: Seconds without a sign of life after which a worker counts as hanging, and is named.
PATIENCE = 30.0
#: Seconds that are waited for a worker when none is left.
NOBODY = 60.0


def fit(client: Any, estimator: Any, X: Any, y: Any, sample_weight: Any = None, **options: Any) -> Any:
    """Fit an estimator on a cluster.

    Parameters
    ----------
    client : distributed.Client
    estimator : MeshClassifier or MeshRegressor
    X : dask DataFrame or Array, or a path
        The path of a Parquet file, or of a folder of them, that all workers can read.
    y : dask Series or Array, or str
        Or the name of a column.
    sample_weight : dask Series or Array, or str, optional

    Returns
    -------
    estimator
    """
    settings, classes = estimator._settings(), estimator._loss.classifies
    if isinstance(X, (str, bytes)) or hasattr(X, "__fspath__"):
        rows = open_parquet(X, y, sample_weight, classes, settings, client)
    else:
        rows = open_rows(X, y, sample_weight, classes, settings, client)
    try:
        return estimator.fit(rows, **options)
    finally:
        rows.release()


def predict(estimator: Any, X: Any, method: str = "predict") -> Any:
    """What `estimator.predict` (or another method) says to every partition of X, as a collection of Dask."""
    if hasattr(X, "map_partitions"):
        few = getattr(estimator, method)(_example(X))
        if few.ndim == 1:
            import pandas as pd

            meta = pd.Series(few[:0], name=method)
            return X.map_partitions(_answers, estimator, method, meta=meta)
        import pandas as pd

        columns = getattr(estimator, "classes_", range(few.shape[1]))
        return X.map_partitions(_answers, estimator, method, meta=pd.DataFrame(few[:0], columns=columns))
    X = X.rechunk({1: X.shape[1]})
    few = getattr(estimator, method)(np.zeros((1, X.shape[1])))
    more: dict[str, Any] = {"drop_axis": 1} if few.ndim == 1 else {"chunks": (X.chunks[0], (few.shape[1],))}
    return X.map_blocks(_block_answers, estimator, method, dtype=few.dtype, **more)


def _example(X: Any) -> Any:
    frame = X._meta_nonempty.iloc[:1]
    return frame.astype(np.float64) * 0.0


def _answers(frame: Any, estimator: Any, method: str) -> Any:
    import pandas as pd

    if len(frame) == 0:
        found = getattr(estimator, method)(np.zeros((1, frame.shape[1])))[:0]
    else:
        found = getattr(estimator, method)(frame)
    if found.ndim == 1:
        return pd.Series(found, index=frame.index, name=method)
    return pd.DataFrame(found, index=frame.index, columns=getattr(estimator, "classes_", None))


def _block_answers(block: Array, estimator: Any, method: str) -> Array:
    found: Array = getattr(estimator, method)(block)
    return found


# -- rows in -----------------------------------------------------------------------------------------------------------


def open_rows(X: Any, y: Any, sample_weight: Any, classes: bool, settings: Settings, client: Any = None) -> DaskRows:
    """Rows of collections of Dask."""
    client = _client(client)
    if y is None:
        raise DataError("fit needs y, a Series or an array of Dask, or the name of a column of X")
    names = None
    if hasattr(X, "columns"):
        X, y, sample_weight = _columns_of(X, y, sample_weight)
        names = [str(name) for name in X.columns]
    elif getattr(X, "ndim", 0) != 2:
        raise DataError(f"X is {type(X).__name__}, expected a DataFrame or a matrix of Dask")
    parts = _delayed(X)
    others = [_delayed(array) if array is not None else [None] * len(parts) for array in (y, sample_weight)]
    for what, found in zip(("y", "sample_weight"), others, strict=True):
        if len(found) != len(parts):
            raise DataError(f"{what} has {len(found)} partitions, X has {len(parts)}; repartition one like the other")
    held = client.persist([part for kind in (parts, *others) for part in kind if part is not None])
    futures = iter(_futures(held))
    columns = [[next(futures) if part is not None else None for part in kind] for kind in (parts, *others)]
    raw = [client.submit(as_rows, *triple, names, k, pure=False) for k, triple in enumerate(zip(*columns, strict=True))]
    return DaskRows(client, raw, names, classes, settings)


def open_parquet(
    path: Any, y: Any, sample_weight: Any, classes: bool, settings: Settings, client: Any = None
) -> DaskRows:
    """Rows of Parquet files, which workers read themselves, one file each at a time."""
    from pathlib import Path

    client = _client(client)
    source = ParquetSource(Path(path).absolute(), y, sample_weight)
    targets = y if isinstance(y, list) else [y]
    raw = [
        client.submit(read_file, str(file), str(source.path), targets, sample_weight, source.names, str(source.dtype),
                      pure=False)
        for file in source.files
    ]  # fmt: skip
    return DaskRows(client, raw, source.names, classes, settings)


def _client(client: Any) -> Any:
    if client is not None:
        return client
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        raise MeshError(
            "X is a collection of Dask, but there is no client; begin with client = distributed.Client()"
        ) from None


def _futures(held: Any) -> list[Any]:
    from distributed import futures_of

    return list(futures_of(held))


def _columns_of(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Features, targets and weights of a DataFrame; the latter two may be names of its columns."""
    drop: list[str] = []
    for given in (y, sample_weight):
        names = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        for name in names:
            if name not in X.columns:
                raise DataError(f"the DataFrame has no column {name!r}; it has {', '.join(map(str, X.columns[:20]))}")
        drop += names
    y = X[y] if isinstance(y, (str, list)) else y
    weight = X[sample_weight] if isinstance(sample_weight, str) else sample_weight
    return X.drop(columns=drop) if drop else X, y, weight


def _delayed(array: Any) -> list[Any]:
    if not hasattr(array, "to_delayed"):
        raise DataError(f"{type(array).__name__} is no collection of Dask, but X is; make it one, or pass a column")
    if getattr(array, "ndim", 1) == 2 and hasattr(array, "rechunk"):
        array = array.rechunk({1: array.shape[1]})
    return list(np.ravel(array.to_delayed()))


# -- the driver --------------------------------------------------------------------------------------------------------


class LostError(Exception):
    """A worker went in the middle of something."""


@dataclass
class DaskCrew(WorkerGroup):
    """The workers of a cluster, those who are there."""

    client: Any
    cut: ShardPlan
    look: Look
    mass: float
    held: list[Any]  # futures of `ShardData`, one for each part
    fit: str = field(default_factory=lambda: uuid.uuid4().hex)
    _sessions: int = 0
    _graph: tuple[bytes, bytes] = (b"", b"")
    _asked: tuple[list[str], bool] = ([], False)

    def evaluate(self, mesh: Mesh) -> FloatArray:
        """Loss and correct."""
        return self._sum("evaluate", mesh, mesh.values)

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any]) -> FloatArray:
        """Loss, correct, gradient and Gauss-Newton matrix, one after the other."""
        return self._sum("curvature", mesh, mesh.values, method, live)

    def _sum(self, what: str, mesh: Mesh, *arguments: Any) -> FloatArray:
        known: dict[Key, FloatArray] = {}
        for nodes in self._together(what, mesh, arguments):
            known.update(nodes)
        return root(known, Parts(self.cut, range(0)).top)

    def steps(
        self, mesh: Mesh, method: str, optimizer: Optimizer, seed: int, rates: Array, begun: Epoch, last: int
    ) -> Epoch:
        """Steps of an epoch; see `WorkerGroup.steps`."""
        arguments = (mesh.values.copy(), optimizer, method, seed, rates, begun, last)
        found = self._together("steps", mesh, arguments)
        stamps = {stamp for _, stamp, _ in found}
        if len(stamps) > 1:
            raise MeshError(
                "the workers do not agree on graph and weights any more: they must run the same versions on "
                "processors of one kind"
            )
        now, _, (values, moved) = found[0]
        mesh.values[:] = values
        optimizer.first[:], optimizer.second[:], optimizer.done = moved.first, moved.second, moved.done
        result: Epoch = now
        return result

    def take(self, rows: NDArray[np.int64]) -> InMemoryDataset:
        """Some samples, in memory."""
        wanted = self.cut.by_part(rows)
        found = self.client.gather([
            self.client.submit(held_rows, self.held[part], some, pure=False) for part, some in wanted.items()
        ])  # fmt: skip
        return joined_held(found).samples(self.look, self.cut.rows, self.mass)

    # -- getting things done -----------------------------------------------------------------------------------------

    def _together(self, what: str, mesh: Mesh, arguments: tuple[Any, ...]) -> list[Any]:
        """What all of the crew return; begun again if somebody goes meanwhile."""
        if self._graph[0] != mesh.topology._digest:
            self._graph = (mesh.topology._digest, pickle.dumps(mesh))
        while True:
            addresses = self._workers()
            self._sessions += 1
            order = Order(self.fit, f"{self.fit}-{self._sessions}", addresses, self.cut, self.look, self.mass,
                          self._graph[1], what, arguments, self._on_one_machine(addresses))  # fmt: skip
            futures = []
            for rank, (address, mine) in enumerate(zip(addresses, order.dealt, strict=True)):
                held = [self.held[part] for part in mine]
                futures.append(self.client.submit(work, order, rank, *held, workers=[address], pure=False,
                                                  allow_other_workers=False, retries=0))  # fmt: skip
            try:
                return self._results(futures, addresses)
            except LostError as lost:
                warnings.warn(f"{lost}; its rows are read again elsewhere, and the work goes on", stacklevel=2)
            finally:
                if any(not future.done() or future.status != "finished" for future in futures):
                    self._send_home(order.session)
                    self.client.cancel(futures, force=True)

    def _on_one_machine(self, addresses: list[str]) -> bool:
        """Whether workers share memory; they are asked when somebody has come or gone."""
        if self._asked[0] != addresses:
            words = self.client.run(this_machine, workers=addresses, on_error="return")
            known = {word if isinstance(word, str) else "" for word in words.values()}
            self._asked = addresses, len(words) == len(addresses) and len(known) == 1 and "" not in known
        return self._asked[1]

    def _workers(self) -> list[str]:
        """Addresses of those who take part; waits a while for the first."""
        until = time.monotonic() + NOBODY
        while True:
            found = sorted(_living(self.client))
            if found:
                return found[: self.cut.parts]
            if time.monotonic() > until:
                raise MeshError(f"the cluster has had no worker for {NOBODY:g} s; start some, and fit again")
            time.sleep(0.2)

    def _results(self, futures: list[Any], addresses: list[str]) -> list[Any]:
        from distributed import wait

        left = set(futures)
        while left:
            try:
                wait(list(left), timeout=0.5, return_when="FIRST_COMPLETED")
            except TimeoutError:
                pass
            except CancelledError:
                raise LostError("rows were lost with a worker") from None
            for future in [future for future in left if future.done()]:
                if future.status == "error":
                    error = future.exception()
                    if isinstance(error, AbortedError):
                        raise LostError("a worker went away")
                    self._check_all_there(addresses)  # what went wrong may follow from that
                    raise error
                if future.status in ("cancelled", "lost"):
                    raise LostError("a worker went away")
                left.discard(future)
            if left:
                self._check_all_there(addresses)
        return list(self.client.gather(futures))

    def _check_all_there(self, addresses: list[str]) -> None:
        living = _living(self.client)
        for address in addresses:
            if address not in living:
                raise LostError(f"the worker {address} is gone")
            if living[address] > PATIENCE:
                raise MeshError(
                    f"the worker {address} has given no sign of life for {living[address]:.0f} s; end it, and fit "
                    "again (with a checkpoint it goes on where it stood)"
                )

    def _send_home(self, session: str) -> None:
        """Have those who wait for others stop."""
        awake = [address for address, silent in _living(self.client).items() if silent < PATIENCE / 2]
        if awake:
            self.client.run(_end_session, session, workers=awake, wait=False, on_error="ignore")


async def _end_session(session: str, dask_worker: Any = None) -> None:  # only what is awaited need not be waited for
    mailboxes(dask_worker).end(session)


def _living(client: Any) -> dict[str, float]:
    """Workers that are there, and for how many seconds each has been silent."""
    now = time.time()
    info = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return {address: now - facts["last_seen"] for address, facts in info.items() if facts["status"] == "running"}


class DaskRows(LotRows):
    """Partitions of a cluster as lots.

    Parameters
    ----------
    client : distributed.Client
    partitions : list of futures
        Of raw rows.
    names : list of str, optional
    classes : bool
    settings : Settings
        Says how large batches are.
    """

    def __init__(
        self, client: Any, partitions: list[Any], names: list[str] | None, classes: bool, settings: Settings
    ) -> None:
        self.client = client
        client.register_plugin(Mailing())
        found = client.gather(client.map(rows_and_labels, partitions, classes=classes, pure=False))
        counts = [count for count, *_ in found]
        if not sum(counts):
            raise DataError("there are no rows in X")
        labels = sorted({label for _, some, *_ in found for label in some}) if classes else []
        self._dtype = str(np.result_type(*{np.dtype(kind) for count, _, kind, *_ in found if count}))
        self.weighted = found[0][-1]
        self.cut = ShardPlan.of(sum(counts), cluster_batch(sum(counts), settings))
        self._raw = self._lots(self.cut, partitions, counts, labels)
        facts = client.gather(client.map(Facts.of, self._raw, n_labels=len(labels), pure=False))
        self._know(facts, labels, names, max(columns for *_, columns, _ in found))

    def _lots(self, cut: ShardPlan, partitions: list[Any], counts: list[int], labels: list[Any]) -> list[Any]:
        """Futures of lots: pieces of partitions, cut where these are, and joined where the lot is to be."""
        ends = np.cumsum(counts)
        starts = ends - counts
        owners = self._owners(cut)
        lots = []
        for lot in range(cut.lots):
            first, last = cut.bounds(lot)
            pieces = []
            for k in np.flatnonzero((starts < last) & (ends > first)).tolist():
                begin, end = max(first - starts[k], 0), min(last - starts[k], counts[k])
                pieces.append(self.client.submit(some_rows, partitions[k], int(begin), int(end), pure=False))
            lots.append(self.client.submit(as_lot, labels, self._dtype, *pieces, workers=[owners[lot]], pure=False,
                                           allow_other_workers=True))  # fmt: skip
        return lots

    def _owners(self, cut: ShardPlan) -> list[str]:
        """Where each lot is to be, unless somebody comes or goes."""
        addresses = sorted(_living(self.client))[: cut.parts]
        if not addresses:
            raise MeshError("the cluster has no worker; start some, and fit again")
        found = [""] * cut.lots
        for address, parts in zip(addresses, cut.dealt(len(addresses)), strict=True):
            for part in parts:
                for lot in cut.of_part(part):
                    found[lot] = address
        return found

    def few(self, count: int) -> Raw:
        """So many rows, evenly spaced."""
        count = min(count, self.cut.rows)
        wanted = self.cut.by_lot(np.arange(count) * self.cut.rows // count)
        tasks = [self.client.submit(rows_at, self._raw[lot], some, pure=False) for lot, some in wanted.items()]
        return joined(list(self.client.gather(tasks)))

    def _at(self, chosen: dict[int, NDArray[np.int64]]) -> list[Any]:
        """Futures of some rows of every lot."""
        if self._held is None:
            return self._raw
        return [self.client.submit(rows_at, self._raw[lot], rows, pure=False) for lot, rows in chosen.items()]

    def samples(self, look: Look) -> CrewSamples:
        """All rows that are not held out."""
        raw, cut = self._at(self.chosen(held=False)), self.cut_of_kept()
        mass = float(sum(self.client.gather(self.client.map(weight_of, raw, look=look, pure=False))))
        if mass <= 0:
            raise DataError("all samples have the weight 0; give some of them a weight")
        owners = self._owners(cut)
        held = []
        for part in range(cut.parts):
            lots = cut.of_part(part)
            held.append(self.client.submit(seen, look, mass / cut.rows, *(raw[lot] for lot in lots), pure=False,
                                           workers=[owners[lots[0]]], allow_other_workers=True))  # fmt: skip
        return CrewSamples(DaskCrew(self.client, cut, look, mass, held), look, mass)

    def held_out(self, look: Look) -> InMemoryDataset:
        """Those that are."""
        raw = joined(list(self.client.gather(self._at(self.chosen(held=True)))))
        return look.samples(raw, weight_of(raw, look))

    def release(self) -> None:
        """Let the workers forget them."""
        self._raw = []

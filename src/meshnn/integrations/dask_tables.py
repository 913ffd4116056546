"""Parquet files on a cluster of Dask, for the command line: a cluster to begin with, rows that are held back."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.data.held_back import HoldoutSplit, Part, as_targets, joined_rows
from meshnn.data.large import ParquetSource, Rows
from meshnn.errors import DataError, MeshError
from meshnn.training.settings import Settings

__all__ = ["cluster", "parquet_rows"]

#: Seconds that a scheduler has to answer.
CONNECT = 10.0


@contextmanager
def cluster(processes: int, address: str | None, scratch: Path | None = None) -> Iterator[Any]:
    """A client of a cluster of so many processes here, which ends with the block, or of one that is there already."""
    if find_spec("distributed") is None:
        raise MeshError("--on dask needs Dask, which is not installed: pip install 'meshnn[dask]'")
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong is raised, and said in one line
    if address is None:
        folder = None if scratch is None else str(scratch)
        with _deaf_to_interrupts():
            local = LocalCluster(
                n_workers=processes, threads_per_worker=1, processes=True, local_directory=folder,
                dashboard_address=":0", scheduler_kwargs={"dashboard": False}, silence_logs=logging.CRITICAL,
            )  # fmt: skip
        with local, Client(local) as client:
            yield client
        return
    try:
        found = Client(address, timeout=CONNECT)
    except (OSError, TimeoutError) as error:
        why = str(error).partition("\n")[0][:120] or type(error).__name__
        raise MeshError(
            f"--on: no scheduler of Dask answers at {address} within {CONNECT:.0f} s ({why}); start one with "
            "`dask scheduler`, or check host and port"
        ) from None
    with found as client:
        if not client.scheduler_info(n_workers=-1)["workers"]:
            raise MeshError(f"--on: the cluster at {address} has no worker; start some with `dask worker {address}`")
        yield client


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Threads and processes that begin in the block never see a Ctrl-C, which a terminal sends to all of them.

    The one here does, when the block has ended, and tells them to go.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would hear of interrupts again once it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def parquet_rows(
    client: Any,
    source: ParquetSource,
    draw: HoldoutSplit,
    classes: bool,
    settings: Settings,
    told: Callable[[int], None],
) -> tuple[Any, Rows, Rows]:
    """Rows that workers read themselves, one file each at a time; those to test on, and some of the others.

    All workers must see the files at the same place.
    """
    from distributed import as_completed

    from meshnn.integrations.dask import DaskRows

    table = source.table
    path, first, counts = str(source.path.absolute()), 0, dict[Any, int]()
    dropped = tuple(name for name in source.schema.names if name not in {*source.names, *source.targets})
    known = (path, tuple(source.targets), dropped, repr([size for size, _ in table.stamp.values()]))
    for k, count in enumerate(table.counts):
        drawn = draw.between(first, first + count)
        counts[client.submit(read_part, known, k, drawn, first, classes, pure=False)] = count - len(drawn.tested)
        first += count
    done, parts = 0, list(counts)
    for part in as_completed(parts):
        if part.status == "error":
            raise part.exception()
        done += counts[part]
        told(done)
    table.check_unchanged()
    few = client.gather([client.submit(_seen, part, pure=False) for part in parts])
    tested, looked = (joined_rows([some[k] for some in few if len(some[k].X)] or [few[0][k]]) for k in (0, 1))
    kept = [client.submit(_kept, part, pure=False) for part in parts]
    return DaskRows(client, kept, source.names, classes, settings), tested, looked


@lru_cache(maxsize=4)
def _opened(path: str, targets: tuple[str, ...], dropped: tuple[str, ...], sizes: str) -> ParquetSource:
    """The table at a worker; looked at once, however many files it has."""
    import socket

    try:
        source = ParquetSource(Path(path), list(targets), drop=dropped)
    except MeshError as error:
        advice = "all workers must see the files at the same place"
        raise DataError(f"a worker on {socket.gethostname()}: {error}; {advice}") from None
    if repr([size for size, _ in source.table.stamp.values()]) != sizes:
        raise DataError(f"a worker on {socket.gethostname()} sees other files in {path}; let all see the same")
    return source


def read_part(known: Any, k: int, part: Part, first: int, classes: bool) -> tuple[Any, Rows, Rows]:
    """A file as arrays: rows to learn from, rows to test on, and some of the former."""
    source = _opened(*known)
    blocks = list(source.blocks_of(k))
    if blocks:
        rows = joined_rows(blocks)
        rows = rows._replace(y=as_targets(rows.y, classes, source.name, first))
    else:
        rows = Rows(np.empty((0, len(source.names)), source.dtype), np.empty(0), None)
    kept, tested, looked = part.split(rows)
    return tuple(kept), tested, looked


def _kept(parts: Any) -> Any:
    return parts[0]


def _seen(parts: Any) -> Any:
    return parts[1:]

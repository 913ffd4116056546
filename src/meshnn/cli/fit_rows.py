"""Where the rows of `meshnn fit` are that are not in memory: (data, target, options) to what estimators fit on.

Another place than the disk here or a cluster is another branch of `rows_to_fit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshnn.arguments import whole_number
from meshnn.errors import DataError, MeshError
from meshnn.tables.files import ENDINGS
from meshnn.tables.holdout import HoldoutSource, HoldoutSplit
from meshnn.tables.sources import NpySource, ParquetSource, RowBlock, Source

__all__ = ["Place", "Seen", "open_table", "place_of", "rows_to_fit", "workers_of"]

#: Processes that a cluster here may have.
MOST_PROCESSES = 256


@dataclass(frozen=True)
class Place:
    """Who learns, and where there is room for the rows."""

    processes: int = 0  # of a cluster here
    address: str | None = None  # of a cluster elsewhere
    scratch: Path | None = None

    @property
    def is_cluster(self) -> bool:
        """Whether it is one."""
        return self.processes > 0 or self.address is not None


@dataclass
class Seen:
    """Rows in memory that a report is made of."""

    held: RowBlock | None = None
    sample: RowBlock | None = None


def place_of(on: str | None, scratch: Path | None) -> Place:
    """What --on and --scratch say.

    >>> place_of("dask://host:8786", None).address
    'tcp://host:8786'
    """
    if scratch is not None and not scratch.is_dir():
        raise MeshError(f"--scratch: {scratch} is no folder; name one that is there")
    if on is None:
        return Place(scratch=scratch)
    here = re.fullmatch(r"dask:(-?\d{1,9})", on)
    there = re.fullmatch(r"dask://([^\s/:]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?", on)
    if here is None and there is None:
        raise MeshError(
            f"--on must be dask:2, for so many processes here, or dask://host:8786, for a scheduler, got {on!r}"
        )
    if here is not None:
        return Place(whole_number("--on dask", int(here[1]), most=MOST_PROCESSES), None, scratch)
    assert there is not None
    if scratch is not None:
        raise MeshError("--scratch: the workers of a cluster elsewhere have their own; leave it out")
    return Place(0, f"tcp://{there[1]}:{there[2]}")


def open_table(data: Path, target: str, drop: list[str], place: Place) -> Source:
    """A table that is read block by block, in the words of the command line."""
    if data.suffix.lower() == ".npy" and not data.is_dir():
        if place.is_cluster:
            raise MeshError(f"--on: a cluster learns from Parquet files, and {data} is none; leave it out")
        if drop:
            raise MeshError(f"--drop: the columns of {data} have no names; write a matrix without them")
        if not target.lower().endswith(".npy"):
            raise DataError(
                f"--target: {data} has features only; name a .npy file with as many targets, got {target!r}"
            )
        return NpySource(data, Path(target))
    if not data.is_dir() and data.suffix.lower() not in ENDINGS:
        raise MeshError(f"--on: a cluster learns from Parquet files or a folder of them, and {data} is none")
    return ParquetSource(data, target, drop=drop)


@contextmanager
def workers_of(place: Place) -> Iterator[Any]:
    """A client of the cluster that trains; None without a cluster."""
    if not place.is_cluster:
        yield None
        return
    from meshnn.integrations.dask.local import cluster

    with cluster(place.processes, place.address, place.scratch) as client:
        yield client


@contextmanager
def rows_to_fit(
    source: Source,
    split: HoldoutSplit,
    model: Any,
    place: Place,
    client: Any,
    report: Callable[[int], None],
    seen: Seen,
) -> Iterator[Any]:
    """What is passed to `model.fit`, as long as it is needed; rows for the report go into `seen`.

    Parameters
    ----------
    source : Source
    split : HoldoutSplit
    model : MeshClassifier or MeshRegressor
    place : Place
    client : that of `workers_of`
    report : callable
        Called with the number of rows read.
    seen : Seen
    """
    classes = model._loss.classifies
    if client is not None:
        from meshnn.integrations.dask.shards import read_parquet

        assert isinstance(source, ParquetSource)
        rows, seen.held, seen.sample = read_parquet(client, source, classes, model._settings(), split, report)
        try:
            yield rows
        finally:
            rows.release()
        return
    from meshnn.training.out_of_core import RowStore

    kept = HoldoutSource(source, split, classes)
    store = RowStore(kept, classes, place.scratch, report)
    try:
        seen.held, seen.sample = kept.held, kept.sample
        yield store
    finally:
        store.release()

"""The rows that `meshnn fit` learns from and tests on: in memory, on a disk here, or on the workers of a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.arguments import whole_number
from meshnn.cli.output import counted
from meshnn.cli.tables import column_list
from meshnn.errors import DataError, MeshError
from meshnn.tables.encoder import Encoder
from meshnn.tables.holdout import HoldoutSource, HoldoutSplit
from meshnn.tables.names import check_names
from meshnn.tables.reader import in_blocks, read_table
from meshnn.tables.sources import NpySource, ParquetSource, RowBlock
from meshnn.tables.target import target_column, target_task

__all__ = ["Backend", "BlockRows", "FitRequest", "TableRows", "open_rows", "place_of"]

#: Text columns that are listed with their values before training.
MOST_LISTED = 8


class Backend(NamedTuple):
    """Who learns, and where there is room for the rows."""

    processes: int = 0  # of a cluster here
    address: str | None = None  # of a cluster elsewhere
    scratch: Path | None = None

    @property
    def is_cluster(self) -> bool:
        """Whether it is one."""
        return self.processes > 0 or self.address is not None


def place_of(on: str | None, scratch: Path | None) -> Backend:
    """What --on and --scratch say.

    >>> place_of("dask://host:8786", None).address
    'tcp://host:8786'
    """
    if scratch is not None and not scratch.is_dir():
        raise MeshError(f"--scratch: {scratch} is no folder; name one that is there")
    if on is None:
        return Backend(scratch=scratch)
    if here := re.fullmatch(r"dask:(-?\d{1,9})", on):
        return Backend(whole_number("--on dask", int(here[1]), most=256), None, scratch)
    there = re.fullmatch(r"dask://([^\s/:]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?", on)
    if there is None:
        raise MeshError(
            f"--on must be dask:2, for so many processes here, or dask://host:8786, for a scheduler, got {on!r}"
        )
    if scratch is not None:
        raise MeshError("--scratch: the workers of a cluster elsewhere have their own; leave it out")
    return Backend(0, f"tcp://{there[1]}:{there[2]}")


@dataclass(frozen=True)
class FitRequest:
    """What is asked for, besides what estimators know."""

    data: Path
    target: str
    task: str
    drop: list[str] | None
    share: float  # of the rows to test on
    seed: int
    read: Any  # ReadOptions
    place: Backend
    shown: bool  # whether progress is shown
    max_categories: int = 100


def open_rows(wanted: FitRequest) -> TableRows | BlockRows:
    """The rows of a table, wherever they are to be learned from."""
    data = wanted.data
    apart = wanted.place.is_cluster or (data.suffix.lower() == ".npy" and data.exists()) or in_blocks(data)
    return BlockRows(wanted) if apart else TableRows(wanted)


class TableRows:
    """Rows in memory; the estimator encodes them."""

    def __init__(self, wanted: FitRequest) -> None:
        loaded = read_table(wanted.data, options=wanted.read)
        names = loaded.table.column_names
        drop = column_list(wanted.drop, names)
        check_names(names, [wanted.target, *drop], f"{wanted.data}: ")
        if wanted.target in drop:
            raise MeshError(f"--drop: {wanted.target} is the target; choose one of the two")
        goal = target_column(loaded.table, wanted.target, wanted.task)
        self.task, self._y, self._table = goal.task, goal.values, goal.table.drop_columns([wanted.target, *drop])
        self.notes = [*loaded.notes, *goal.notes]
        self._split = self._split_rows(wanted)
        self.name = "standard input" if str(wanted.data) == "-" else wanted.data.name
        # the whole table is looked at for what must be refused or said, by its own row numbers
        self.notes += Encoder.learn(self._table, None, (), True, wanted.max_categories).noted()
        self._find_gaps()

    def _split_rows(self, wanted: FitRequest) -> HoldoutSplit:
        """Every class in both parts if there is enough of each."""
        y, n, share = self._y, len(self._y), wanted.share
        size = int(np.ceil(share * n))
        if size >= n - 1:
            raise DataError(f"--test {share:g} leaves {n - size} of {n} rows to learn from; lower it")
        if size == 0:
            return HoldoutSplit(n, np.arange(0))
        split = HoldoutSplit.stratified(n, size, wanted.seed, y if self.task == "classify" else None)
        if len(split.held) == 0:
            raise DataError("every class has one row: there is nothing to test on; add rows, or pass --test 0")
        missing = [str(label) for label in np.setdiff1d(y, y[split.held])] if self.task == "classify" else []
        if missing:
            named = ", ".join(missing[:5]) + ", ..." * (len(missing) > 5)
            self.notes.append(f"too few rows to test all classes: {named} can only be learned")
        return split

    def _find_gaps(self) -> None:
        """Note missing values, which the estimator fills in."""
        from meshnn.tables.cells import cells_of
        from meshnn.tables.names import listed

        gaps = {name: cells_of(self._table, name).missing for name in self._table.column_names}
        gaps = {name: count for name, count in gaps.items() if 0 < count < self._table.num_rows}
        if gaps:
            columns = f"{len(gaps):,} columns ({listed(list(gaps), 3)})" if len(gaps) > 1 else next(iter(gaps))
            filled = "filled with the median or the most frequent value"
            self.notes.append(f"{counted(sum(gaps.values()), 'missing value')} in {columns}: {filled}")

    def introduction(self) -> str:
        """What is going to be learned, in a line."""
        what = f"{len(np.unique(self._y))} classes" if self.task == "classify" else "a number"
        train, held = len(self._split.kept), len(self._split.held)
        return (
            f"{self.name}: {counted(train + held, 'row')}, {counted(self._table.num_columns, 'column')}, to predict "
            f"{what}; {counted(train, 'row')} to learn from, {held:,} to test on"
        )

    @contextmanager
    def opened(self, model: Any) -> Iterator[tuple[Any, ...]]:
        """What is passed to `model.fit`."""
        kept = self._split.kept
        yield self._table.take(kept), self._y[kept]

    def features(self, model: Any) -> list[str]:
        """Names of the features of a fitted model."""
        return list(model.preprocessing_.feature_names)

    def parts(self) -> tuple[tuple[Any, Any] | None, tuple[Any, Any]]:
        """(X, y) of the rows to test on, if there are any, and of those that were learned from."""
        held, kept = self._split.held, self._split.kept
        test = (self._table.take(held), self._y[held]) if len(held) else None
        return test, (self._table.take(kept), self._y[kept])


class BlockRows:
    """Rows that are read block by block, once, and learned from a disk or by a cluster."""

    def __init__(self, wanted: FitRequest) -> None:
        self._wanted = wanted
        self._source = _open_source(wanted)
        self.name = os.path.basename(os.path.normpath(self._source.name))
        self._held: RowBlock | None = None
        self._sample: RowBlock | None = None
        self.task, self.notes = self._find_task()
        source: Any = self._source
        width = source.n_features if isinstance(source, NpySource) else len(source.columns)
        self._width, self._split = width, HoldoutSplit.for_report(source.n_rows, wanted.share, wanted.seed, width)

    def _find_task(self) -> tuple[str, list[str]]:
        source, target = self._source, self._wanted.target
        if isinstance(source, ParquetSource):
            few = source.table.few(target, 100_000)
        else:
            import pyarrow as pa

            few = pa.table({target: source.few_targets(100_000)})
        return target_task(few, target, self._wanted.task)

    def introduction(self) -> str:
        """What is going to be learned, in a line."""
        files = f" in {self._source.table}" if isinstance(self._source, ParquetSource) else ""
        what, held = "classes" if self.task == "classify" else "a number", len(self._split.held)
        return (
            f"{self.name}: {counted(self._split.n, 'row')}{files}, {counted(self._width, 'feature')}, to predict "
            f"{what}, read block by block; {counted(self._split.n - held, 'row')} to learn from, {held:,} to test on"
        )

    @contextmanager
    def opened(self, model: Any) -> Iterator[tuple[Any, ...]]:
        """What is passed to `model.fit`, as long as it is needed."""
        from meshnn.progress import reading
        from meshnn.training.out_of_core import RowStore

        wanted, classes = self._wanted, self.task == "classify"
        with _workers(wanted.place) as client, reading(int(wanted.shown), self._split.n) as told:
            rows: Any
            if client is not None:
                from meshnn.integrations.dask.shards import read_parquet

                assert isinstance(self._source, ParquetSource)
                found = read_parquet(client, self._source, classes, model._settings(), self._split, told)
                rows, self._held, self._sample = found
            else:
                kept = HoldoutSource(self._source, self._split, classes)
                rows = RowStore(kept, classes, wanted.place.scratch, told)
                self._held, self._sample = kept.held, kept.sample
            told.close()
            try:
                yield (rows,)
            finally:
                rows.release()

    def features(self, model: Any) -> list[str] | None:
        """Names of the features, if the columns have names."""
        return None if self._source.columns is None else list(self._source.columns)

    def parts(self) -> tuple[tuple[Any, Any] | None, tuple[Any, Any]]:
        """(X, y) of the rows to test on, if there are any, and of some of those that were learned from."""
        held, sample = self._held, self._sample
        assert sample is not None
        test = None if held is None or not len(held.X) else (self._table(held), held.y)
        return test, (self._table(sample), sample.y)

    def _table(self, rows: RowBlock) -> Any:
        """Features with the names of their columns, if they have any."""
        if self._source.columns is None:
            return rows.X
        import pyarrow as pa

        return pa.table(dict(zip(self._source.columns, rows.X.T, strict=True)))


def _open_source(wanted: FitRequest) -> ParquetSource | NpySource:
    data, target = wanted.data, wanted.target
    if data.suffix.lower() == ".npy" and not data.is_dir():
        if wanted.place.is_cluster:
            raise MeshError(f"--on: a cluster learns from Parquet files, and {data} is none; leave it out")
        if wanted.drop:
            raise MeshError(f"--drop: the columns of {data} have no names; write a matrix without them")
        if not target.lower().endswith(".npy"):
            raise DataError(
                f"--target: {data} has features only; name a .npy file with as many targets, got {target!r}"
            )
        return NpySource(data, Path(target))
    from meshnn.tables.files import ENDINGS, ArrowFiles

    if not data.is_dir() and data.suffix.lower() not in ENDINGS:
        raise MeshError(f"--on: a cluster learns from Parquet files or a folder of them, and {data} is none")
    names = ArrowFiles(data).schema.names
    drop = column_list(wanted.drop, names)
    check_names(names, [target, *drop], f"{data}: ")
    return ParquetSource(data, target, drop=drop)


@contextmanager
def _workers(place: Backend) -> Iterator[Any]:
    """A client of the cluster that trains; None without a cluster."""
    if not place.is_cluster:
        yield None
        return
    from meshnn.integrations.dask.local import cluster

    with cluster(place.processes, place.address, place.scratch) as client:
        yield client

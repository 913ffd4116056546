"""The rows that `meshnn fit` trains and tests on: in memory, on a disk here, or on the workers of a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.arguments import whole_number
from meshnn.cli.options import column_list
from meshnn.cli.output import counted
from meshnn.errors import DataError, MeshError
from meshnn.tables.cells import cells_of
from meshnn.tables.encoder import Encoder
from meshnn.tables.files import ENDINGS, ArrowFiles
from meshnn.tables.holdout import HoldoutSource, HoldoutSplit
from meshnn.tables.names import check_names, listed
from meshnn.tables.reader import in_blocks, read_table
from meshnn.tables.sources import NpySource, ParquetSource, RowBlock
from meshnn.tables.target import target_column, target_task


def workers(on: str | None, scratch: Path | None) -> AbstractContextManager[Any]:
    """Return a context manager for the client of the cluster of --on; for None without one."""
    if scratch is not None and not scratch.is_dir():
        raise MeshError(f"--scratch: {scratch} is no folder; name one that is there")
    if on is None:
        return nullcontext()
    from meshnn.integrations.dask.local import cluster

    if here := re.fullmatch(r"dask:(-?\d{1,9})", on):
        return cluster(whole_number("--on dask", int(here[1]), most=256), None, scratch)
    there = re.fullmatch(r"dask://([^\s/:]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?", on)
    if there is None:
        raise MeshError(f"--on must be dask:2 (processes here) or dask://host:8786 (a scheduler), got {on!r}")
    if scratch is not None:
        raise MeshError("--scratch: the workers of a cluster elsewhere have their own; leave it out")
    return cluster(0, f"tcp://{there[1]}:{there[2]}")


@dataclass(frozen=True)
class FitRequest:
    """The options of `meshnn fit` that concern its rows."""

    data: Path
    target: str
    task: str
    drop: list[str] | None
    share: float  # of the rows to test on
    seed: int
    read: Any  # ReadOptions
    max_categories: int
    on_cluster: bool
    workers: AbstractContextManager[Any]
    scratch: Path | None
    shown: bool  # whether progress is shown

    def in_blocks(self) -> bool:
        """Return whether the rows are read block by block."""
        return self.on_cluster or (self.data.suffix.lower() == ".npy" and self.data.exists()) or in_blocks(self.data)

    def dropped(self, names: list[str]) -> list[str]:
        """Return the columns to drop; refuse names that the table does not have."""
        drop = column_list(self.drop, names)
        check_names(names, [self.target, *drop], f"{self.data}: ")
        if self.target in drop:
            raise MeshError(f"--drop: {self.target} is the target; choose one of the two")
        return drop


class TableRows:
    """Rows in memory; the estimator encodes them."""

    def __init__(self, request: FitRequest) -> None:
        loaded = read_table(request.data, options=request.read)
        drop = request.dropped(loaded.table.column_names)
        goal = target_column(loaded.table, request.target, request.task)
        self.task, self._y, self._table = goal.task, goal.values, goal.table.drop_columns([request.target, *drop])
        self.notes = [*loaded.notes, *goal.notes]
        self._split = self._split_rows(request)
        self._name = "standard input" if str(request.data) == "-" else request.data.name
        # the whole table is encoded for its errors and remarks, which name its own row numbers
        self.notes += Encoder.learn(self._table, None, (), True, request.max_categories).noted()
        gaps = {name: cells_of(self._table, name).missing for name in self._table.column_names}
        if gaps := {name: count for name, count in gaps.items() if 0 < count < self._table.num_rows}:
            columns = f"{len(gaps):,} columns ({listed(list(gaps), 3)})" if len(gaps) > 1 else next(iter(gaps))
            filled = "filled with the median or the most frequent value"
            self.notes.append(f"{counted(sum(gaps.values()), 'missing value')} in {columns}: {filled}")

    def _split_rows(self, request: FitRequest) -> HoldoutSplit:
        """Hold rows out, of every class if there are enough."""
        y, n, share = self._y, len(self._y), request.share
        size = int(np.ceil(share * n))
        if size >= n - 1:
            raise DataError(f"--test {share:g} leaves {n - size} of {n} rows to learn from; lower it")
        if size == 0:
            return HoldoutSplit(n, np.arange(0))
        split = HoldoutSplit.stratified(n, size, request.seed, y if self.task == "classify" else None)
        if len(split.held) == 0:
            raise DataError("every class has one row: there is nothing to test on; add rows, or pass --test 0")
        missing = [str(label) for label in np.setdiff1d(y, y[split.held])] if self.task == "classify" else []
        if missing:
            self.notes.append(f"too few rows to test all classes: {listed(missing, 5)} can only be learned")
        return split

    def introduction(self) -> str:
        """Return what is going to be learned, in a line."""
        what = f"{len(np.unique(self._y))} classes" if self.task == "classify" else "a number"
        return _introduction(self._name, self._split, "", counted(self._table.num_columns, "column"), what)

    @contextmanager
    def opened(self, model: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the arguments of `model.fit`."""
        yield self._part(self._split.kept)

    def features(self, model: Any) -> list[str]:
        """Return the names of the features of a fitted model."""
        return list(model.preprocessing_.feature_names)

    def parts(self) -> tuple[tuple[Any, Any] | None, tuple[Any, Any]]:
        """Return (X, y) of the rows to test on, if there are any, and of the training rows."""
        held = self._split.held
        return self._part(held) if len(held) else None, self._part(self._split.kept)

    def _part(self, rows: Any) -> tuple[Any, Any]:
        return self._table.take(rows), self._y[rows]


class BlockRows:
    """Rows that are read block by block, once, and learned from a disk or by a cluster."""

    def __init__(self, request: FitRequest) -> None:
        self._request, self._source = request, _open_source(request)
        self._held: RowBlock | None = None
        self._sample: RowBlock | None = None
        source: Any = self._source
        if isinstance(source, ParquetSource):
            few, self._width = source.table.few(request.target, 100_000), len(source.columns or ())
        else:
            import pyarrow as pa

            few, self._width = pa.table({request.target: source.few_targets(100_000)}), source.n_features
        self.task, self.notes = target_task(few, request.target, request.task)
        self._split = HoldoutSplit.for_report(source.n_rows, request.share, request.seed, self._width)

    def introduction(self) -> str:
        """Return what is going to be learned, in a line."""
        files = f" in {self._source.table}" if isinstance(self._source, ParquetSource) else ""
        what = f"{'classes' if self.task == 'classify' else 'a number'}, read block by block"
        name = os.path.basename(os.path.normpath(self._source.name))
        return _introduction(name, self._split, files, counted(self._width, "feature"), what)

    @contextmanager
    def opened(self, model: Any) -> Iterator[tuple[Any]]:
        """Yield the arguments of `model.fit`, which are released afterwards."""
        from meshnn.progress import reading
        from meshnn.training.out_of_core import RowStore

        request, classes = self._request, self.task == "classify"
        with request.workers as client, reading(int(request.shown), self._split.n) as told:
            rows: Any
            if client is not None:
                from meshnn.integrations.dask.shards import read_parquet

                assert isinstance(self._source, ParquetSource)
                found = read_parquet(client, self._source, classes, model._settings(), self._split, told)
                rows, self._held, self._sample = found
            else:
                kept = HoldoutSource(self._source, self._split, classes)
                rows = RowStore(kept, classes, request.scratch, told)
                self._held, self._sample = kept.held, kept.sample
            told.close()
            try:
                yield (rows,)
            finally:
                rows.release()

    def features(self, model: Any) -> list[str] | None:
        """Return the names of the features, if the columns have names."""
        return None if self._source.columns is None else list(self._source.columns)

    def parts(self) -> tuple[tuple[Any, Any] | None, tuple[Any, Any]]:
        """Return (X, y) of the rows to test on, if there are any, and of some of the training rows."""
        held, sample = self._held, self._sample
        assert sample is not None
        test = None if held is None or not len(held.X) else (self._table(held), held.y)
        return test, (self._table(sample), sample.y)

    def _table(self, rows: RowBlock) -> Any:
        """Return features with the names of their columns, if they have any."""
        if self._source.columns is None:
            return rows.X
        import pyarrow as pa

        return pa.table(dict(zip(self._source.columns, rows.X.T, strict=True)))


def _introduction(name: str, split: HoldoutSplit, files: str, width: str, what: str) -> str:
    held = len(split.held)
    sizes = f"{counted(split.n - held, 'row')} to learn from, {held:,} to test on"
    return f"{name}: {counted(split.n, 'row')}{files}, {width}, to predict {what}; {sizes}"


def _open_source(request: FitRequest) -> ParquetSource | NpySource:
    data, target = request.data, request.target
    if data.suffix.lower() == ".npy" and not data.is_dir():
        if request.on_cluster:
            raise MeshError(f"--on: a cluster learns from Parquet files, and {data} is none; leave it out")
        if request.drop:
            raise MeshError(f"--drop: the columns of {data} have no names; write a matrix without them")
        if not target.lower().endswith(".npy"):
            what = f"{data} has features only; name a .npy file with as many targets, got {target!r}"
            raise DataError(f"--target: {what}")
        return NpySource(data, Path(target))
    if not data.is_dir() and data.suffix.lower() not in ENDINGS:
        raise MeshError(f"--on: a cluster learns from Parquet files or a folder of them, and {data} is none")
    return ParquetSource(data, target, drop=request.dropped(ArrowFiles(data).schema.names))

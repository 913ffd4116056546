"""Training and test rows of `meshnn fit`: in memory, on the local disk or on the workers of a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.cli.options import column_list
from meshnn.cli.output import counted, refuse
from meshnn.errors import DataError, MeshError
from meshnn.progress import progress
from meshnn.tables.cells import cells_of
from meshnn.tables.encoder import Encoder
from meshnn.tables.files import ENDINGS, ArrowReader
from meshnn.tables.holdout import HoldoutSource, HoldoutSplit
from meshnn.tables.names import check_names, listed
from meshnn.tables.reader import in_blocks, read_table
from meshnn.tables.sources import NpySource, ParquetSource
from meshnn.tables.target import target_column, target_task


def workers(on: str, scratch: Path | None) -> AbstractContextManager[Any]:
    """Return a context manager for the client of the cluster that --on names."""
    from meshnn.integrations.dask.local import cluster

    match = re.fullmatch(r"dask:(?:([1-9]\d{0,2})|//([^\s/]+:\d{1,5})/?)", on)
    if match is None:
        raise MeshError(f"--on must be dask:N (N local processes) or dask://host:port (a scheduler), got {on!r}")
    if match[1]:
        return cluster(int(match[1]), None, scratch)
    refuse(
        {"--scratch does not apply to a running cluster, whose workers use their own folders; leave it out": scratch}
    )
    return cluster(0, f"tcp://{match[2]}")


@dataclass(frozen=True)
class FitRequest:
    """The options of `meshnn fit` that concern its rows."""

    data: Path
    target: str
    task: str
    drop: list[str] | None
    share: float  # fraction of the rows to test on
    seed: int
    read: Any  # ReadOptions
    max_categories: int
    workers: AbstractContextManager[Any] | None
    scratch: Path | None
    shown: bool  # whether progress is shown

    def rows(self) -> FitRows:
        """Open the table."""
        npy = self.data.suffix.lower() == ".npy" and self.data.exists()
        return BlockRows(self) if npy or self.workers is not None or in_blocks(self.data) else TableRows(self)

    def dropped(self, names: list[str]) -> list[str]:
        """Return the columns to drop; raise an error for a name that is not in the table."""
        drop = column_list(self.drop, names)
        check_names(names, [self.target, *drop], f"{self.data}: ")
        refuse({f"--drop: {self.target} is the target; choose one of the two": self.target in drop})
        return drop


class FitRows:
    """The training rows and the test rows."""

    task: str
    notes: list[str]
    held: tuple[Any, Any] | None  # X and y of the rows to test on
    sample: tuple[Any, Any]  # X and y of the training rows, or of a sample of them

    def _introduce(self, name: str, split: HoldoutSplit, sizes: str) -> None:
        """Set the line that is shown before training."""
        held = len(split.held)
        rows = f"{counted(split.n - held, 'row')} for training, {held:,} for the test"
        self.introduction = f"{name}: {counted(split.n, 'row')}{sizes}; {rows}"

    @contextmanager
    def opened(self, model: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of `model.fit`, and release them afterwards."""
        yield self.sample


class TableRows(FitRows):
    """Rows in memory, which the estimator encodes."""

    def __init__(self, request: FitRequest) -> None:
        loaded = read_table(request.data, options=request.read)
        drop = request.dropped(loaded.table.column_names)
        goal = target_column(loaded.table, request.target, request.task)
        self.task, y, table = goal.task, goal.values, goal.table.drop_columns([request.target, *drop])
        self.notes = [*loaded.notes, *goal.notes]
        split = self._split_rows(request, y)
        # encode the whole table once: its errors and notes then have the row numbers of the file
        self.notes += Encoder.learn(table, None, (), True, request.max_categories).noted()
        gaps = {name: cells_of(table, name).missing for name in table.column_names}
        if gaps := {name: count for name, count in gaps.items() if 0 < count < table.num_rows}:
            values = counted(sum(gaps.values()), "missing value")
            self.notes.append(f"{values} in {listed(list(gaps), 3)}: filled with the median or the most frequent value")
        self.held = (table.take(split.held), y[split.held]) if len(split.held) else None
        self.sample = table.take(split.kept), y[split.kept]
        what = f"{len(np.unique(y))} classes" if self.task == "classify" else "numeric"
        name = "standard input" if str(request.data) == "-" else request.data.name
        self._introduce(name, split, f", {counted(table.num_columns, 'column')}, target: {what}")

    def _split_rows(self, request: FitRequest, y: Any) -> HoldoutSplit:
        """Hold out test rows, stratified by class if there are enough rows."""
        n, share = len(y), request.share
        size = int(np.ceil(share * n))
        if size >= n - 1:
            raise DataError(f"--test {share:g} leaves {n - size} of {n} rows for training; lower it")
        if size == 0:
            return HoldoutSplit(n, np.arange(0))
        split = HoldoutSplit.stratified(n, size, request.seed, y if self.task == "classify" else None)
        if len(split.held) == 0:
            raise DataError("every class has one row, so none can be held out for the test; add rows, or pass --test 0")
        missing = [str(label) for label in np.setdiff1d(y, y[split.held])] if self.task == "classify" else []
        if missing:
            self.notes.append(f"too few rows to test all classes: no test row of {listed(missing, 5)}")
        return split


class BlockRows(FitRows):
    """Rows that are read once, block by block, for training from disk or on a cluster."""

    def __init__(self, request: FitRequest) -> None:
        self._request, self._source, files = request, _open_source(request), ""
        if isinstance(self._source, ParquetSource):
            few, width = self._source.table.few(request.target, 100_000), len(self._source.columns or ())
            files = f" in {self._source.table}"
        else:
            import pyarrow as pa

            few, width = pa.table({request.target: self._source.few_targets(100_000)}), self._source.n_features
        self.task, self.notes = target_task(few, request.target, request.task)
        assert self._source.n_rows is not None
        self._split = HoldoutSplit.for_report(self._source.n_rows, request.share, request.seed, width)
        what = f"{'classes' if self.task == 'classify' else 'numeric'}, read block by block"
        name = os.path.basename(os.path.normpath(self._source.name))
        self._introduce(name, self._split, f"{files}, {counted(width, 'feature')}, target: {what}")

    @contextmanager
    def opened(self, model: Any) -> Iterator[tuple[Any, ...]]:  # noqa: D102
        from meshnn.training.out_of_core import RowStore

        request, classes = self._request, self.task == "classify"
        rows: Any
        with request.workers or nullcontext() as client:
            with progress("reading", self._split.n, quiet=not request.shown) as tell:
                if client is not None:
                    from meshnn.integrations.dask.shards import read_parquet

                    assert isinstance(self._source, ParquetSource)
                    found = read_parquet(client, self._source, classes, model._settings(), self._split, tell)
                    rows, held, sample = found
                else:
                    kept = HoldoutSource(self._source, self._split, classes)
                    rows = RowStore(kept, classes, request.scratch, tell)
                    held, sample = kept.held, kept.sample
            assert sample is not None
            self.held = None if held is None or not len(held.X) else (self._named(held.X), held.y)
            self.sample = self._named(sample.X), sample.y
            try:
                yield (rows,)
            finally:
                rows.release()

    def _named(self, X: Any) -> Any:
        """Return the features as a table, if their columns have names."""
        import pyarrow as pa

        columns = self._source.columns
        return X if columns is None else pa.table(dict(zip(columns, X.T, strict=True)))


def _open_source(request: FitRequest) -> ParquetSource | NpySource:
    data, target = request.data, request.target
    if data.suffix.lower() == ".npy" and not data.is_dir():
        refuse({
            f"--on needs Parquet files, got {data}; convert it, or leave --on out": request.workers,
            f"--drop: the columns of {data} have no names; save a matrix without these columns": request.drop,
            f"--target must be a .npy file with the targets, since {data} has features only; got {target!r}":
            not target.lower().endswith(".npy"),
        })  # fmt: skip
        return NpySource(data, Path(target))
    if not data.is_dir() and data.suffix.lower() not in ENDINGS:
        raise MeshError(f"--on needs a Parquet file or a folder of them, got {data}; convert it, or leave --on out")
    return ParquetSource(data, target, drop=request.dropped(ArrowReader(data).names))

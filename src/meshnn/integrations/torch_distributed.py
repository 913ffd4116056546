"""Fits by processes that torch.distributed has brought together: `torchrun -m meshnn fit ...`.

Every process runs the same fit on its own lots of the rows; sums over all are exchanged at every step, in the order of
`meshnn.training.lots`, so that any number of processes ends with the same bits. The first one writes files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.data.large import NpySource, ParquetSource, Source, open_source
from meshnn.engine import Optimizer
from meshnn.errors import DataError, MeshError
from meshnn.mesh import Mesh
from meshnn.training.board import is_alive, this_machine
from meshnn.training.crew import CrewSamples, Facts, LotRows, WorkerGroup, cluster_batch, coded, joined
from meshnn.training.far import Look, Raw
from meshnn.training.lots import (
    PART_ROWS,
    Parts,
    ShardData,
    ShardPlan,
    Transport,
    WorkerState,
    agreement,
    joined_held,
    run_steps,
)
from meshnn.training.samples import Epoch, InMemoryDataset
from meshnn.training.settings import Settings

__all__ = ["fit", "is_launched", "open_rows", "together"]

#: Seconds that a process waits for the others; those who hang are named then.
PATIENCE = 30.0
_patience = PATIENCE


def is_launched() -> bool:
    """Whether this process was started by torchrun, or beside others by something that sets the same variables."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1 or "TORCHELASTIC_RUN_ID" in os.environ
    return several and "RANK" in os.environ and "MASTER_ADDR" in os.environ


@contextmanager
def together(seconds: float = PATIENCE) -> Iterator[int]:
    """Join the others as torchrun has it; the number of this process among them.

    The backend is gloo, or what MESHNN_BACKEND says.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        yield dist.get_rank()
        return
    global _patience
    _patience = seconds
    dist.init_process_group(os.environ.get("MESHNN_BACKEND", "gloo"), timeout=timedelta(seconds=seconds))
    try:
        yield dist.get_rank()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def fit(estimator: Any, X: Any, y: Any, sample_weight: Any = None, **options: Any) -> Any:
    """Fit an estimator, in every process of a group that has been initialised.

    Parameters
    ----------
    estimator : MeshClassifier or MeshRegressor
        The same in all processes.
    X, y, sample_weight
        A path, and columns, as for `fit`: each process reads the rows that it needs.

    Returns
    -------
    estimator
        Fitted, the same in all processes.
    """
    rows = open_rows(open_source(X, y, sample_weight), estimator._loss.classifies, estimator._settings())
    return estimator.fit(rows, **options)


class Group:
    """The processes: arrays and objects from each to all."""

    def __init__(self) -> None:
        import torch.distributed as dist

        if not dist.is_initialized():
            raise MeshError("torch.distributed is not initialised; call init_process_group, or start with torchrun")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.patience = _patience
        self.device = "cuda" if dist.get_backend() == "nccl" else "cpu"

    @contextmanager
    def _named(self, others: str = "the others") -> Iterator[None]:
        """Who is missing, in words."""
        import torch.distributed as dist

        try:
            yield
        except (RuntimeError, dist.DistError) as error:
            raise self.lost(others, " ".join(str(error).split())[-160:]) from None

    def lost(self, others: str, why: str) -> MeshError:
        """What there is to say when somebody is gone."""
        return MeshError(
            f"process {self.rank} of {self.size} has lost {others} ({why}); end those that are left and start all "
            "again: with a checkpoint the fit goes on where it stood"
        )

    def objects(self, mine: Any) -> list[Any]:
        """An object of each."""
        import torch.distributed as dist

        found: list[Any] = [None] * self.size
        with self._named():
            dist.all_gather_object(found, mine)
        return found

    def first(self, make: Callable[[], Any]) -> Any:
        """What the first process has made; what it raised is raised by all."""
        import torch.distributed as dist

        held: list[Any] = [None]
        if self.rank == 0:
            try:
                held = [(make(), None)]
            except Exception as error:
                held = [(None, error)]
        with self._named():
            dist.broadcast_object_list(held, src=0)
        made, failure = held[0]
        if failure is not None:
            raise failure
        return made

    def all_or_none(self, make: Callable[[], Any]) -> Any:
        """What this process has made, if nobody failed."""
        made, error = None, None
        try:
            made = make()
        except Exception as caught:
            error = caught
        for other in self.objects(None if error is None else (type(error), str(error))):
            if other is not None:
                kind, words = other
                raise kind(words) if error is None else error
        return made

    def arrays(self, letters: list[FloatArray], counts: list[int]) -> list[FloatArray]:
        """One array to each; what came from each, so many numbers."""
        import torch
        import torch.distributed as dist

        came = [torch.empty(count, dtype=torch.float64, device=self.device) for count in counts]
        sent = [torch.from_numpy(np.ravel(letter)).to(self.device) for letter in letters]
        waiting = []
        for other in range(self.size):
            if other != self.rank:
                with self._named(f"process {other}"):
                    waiting += [(other, dist.irecv(came[other], other)), (other, dist.isend(sent[other], other))]
        came[self.rank] = sent[self.rank]
        for other, request in waiting:
            if request is not None:
                with self._named(f"process {other}"):
                    request.wait()
        return [array.cpu().numpy() for array in came]


class GroupExchange(Transport):
    """Sums over a group."""

    def __init__(self, group: Group, cut: ShardPlan, dealt: list[range], rank: int) -> None:
        super().__init__(cut, dealt, rank)
        self.group, self._width = group, 0
        words = group.objects((this_machine(), os.getpid()))
        self.pids = [pid for _, pid in words]
        if len({word for word, _ in words}) == 1 and words[0][0]:
            self.session = group.first(lambda: uuid.uuid4().hex)

    def give_up(self, other: int, waited: float) -> None:
        """If the other is dead, or silent for too long."""
        if not is_alive(self.pids[other]):
            raise self.group.lost(f"process {other}", "it is not there any more")
        if waited > self.group.patience:
            raise self.group.lost(f"process {other}", f"no sign of life for {waited:.0f} s")

    def swap(self, letters: list[FloatArray]) -> list[FloatArray]:
        """One to each; see `Transport.swap`. How long an answer is follows from who has how many nodes."""
        own = letters[self.rank]
        if own.ndim == 1:  # slices that were added up: what each has, all get
            total = self._width
            cuts = [total * k // len(self.dealt) for k in range(len(self.dealt) + 1)]
            counts = [cuts[k + 1] - cuts[k] for k in range(len(self.dealt))]
        else:
            counts = [len(keys) * own.shape[1] for keys in self.keys]
            self._width = sum(letter.shape[1] for letter in letters)
        return self.group.arrays(letters, counts)


@dataclass
class GroupCrew(WorkerGroup):
    """The processes of a group, each with its desk."""

    group: Group
    cut: ShardPlan
    desk: WorkerState
    look: Look
    mass: float

    def __post_init__(self) -> None:
        dealt = self.cut.dealt(self.group.size)
        self._exchange = GroupExchange(self.group, self.cut, dealt, self.group.rank)

    def evaluate(self, mesh: Mesh) -> FloatArray:
        """Loss and correct."""
        return self._exchange(self.desk.evaluate(mesh))

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any]) -> FloatArray:
        """Loss, correct, gradient and Gauss-Newton matrix, one after the other."""
        return self._exchange(self.desk.curvature(mesh, method, live))

    def steps(
        self, mesh: Mesh, method: str, optimizer: Optimizer, seed: int, rates: Array, begun: Epoch, last: int
    ) -> Epoch:
        """Steps of an epoch; see `WorkerGroup.steps`."""
        engine = mesh.engine("epochs", method, again=True)
        now = run_steps(self.desk, self._exchange, engine, mesh.values, optimizer, seed, rates, begun, last)
        if len(set(self.group.objects(agreement(mesh)))) > 1:
            raise MeshError(
                "the processes do not agree on graph and weights any more: they must run the same versions on "
                "processors of one kind"
            )
        return now

    def take(self, rows: NDArray[np.int64]) -> InMemoryDataset:
        """Some samples, in memory, at every process."""
        wanted = self.cut.by_part(rows)
        mine = {part: self.desk.held[part].at(some) for part, some in wanted.items() if part in self.desk.held}
        found: dict[int, Any] = {}
        for some in self.group.objects(mine):
            found |= some
        return joined_held([found[part] for part in wanted]).samples(self.look, self.cut.rows, self.mass)

    def agree(self, seconds: float) -> float:
        """As the first process measured it."""
        return float(self.group.first(lambda: seconds))


def open_rows(source: Source, classes: bool, settings: Settings) -> GroupRows:
    """The rows of a source, each process those of its lots."""
    return GroupRows(Group(), source, classes, settings)


class GroupRows(LotRows):
    """Lots at the processes of a group."""

    def __init__(self, group: Group, source: Source, classes: bool, settings: Settings) -> None:
        self.group, self.leads = group, group.rank == 0
        if source.expected is None:
            raise DataError(f"{source.name} does not say how many rows it has; write it to a Parquet or .npy file")
        if source.expected == 0:
            raise DataError(f"{source.name} has no rows")
        self.cut = ShardPlan.of(source.expected, cluster_batch(source.expected, settings))
        self._group_fits(self.cut)
        raw = group.all_or_none(lambda: self._read(source, classes))
        labels: list[Any] = []
        if classes:
            found = group.objects(np.unique(raw[1]).tolist())
            labels = sorted({label for some in found for label in some})
        self.weighted = raw[2] is not None
        targets = coded(raw[1][:, 0] if classes and raw[1].ndim == 2 else raw[1], labels)
        first = self.cut.bounds(self._lots_of(self.cut)[0])[0]
        self._raw: dict[int, Raw] = {}
        for lot in self._lots_of(self.cut):
            begin, end = (bound - first for bound in self.cut.bounds(lot))
            weight = None if raw[2] is None else raw[2][begin:end]
            self._raw[lot] = (raw[0][begin:end], targets[begin:end], weight)
        mine = {lot: Facts.of(rows, len(labels)) for lot, rows in self._raw.items()}
        facts = {lot: fact for some in group.objects(mine) for lot, fact in some.items()}
        self._know([facts[lot] for lot in range(self.cut.lots)], labels, source.names, targets.shape[1])

    def _group_fits(self, cut: ShardPlan) -> None:
        if cut.parts < self.group.size:
            raise MeshError(
                f"a batch of {cut.lots * cut.each:,} rows has {cut.parts} parts, too few for {self.group.size} "
                f"processes; take batch_size={PART_ROWS * self.group.size} or more, or fewer processes"
            )

    def _lots_of(self, cut: ShardPlan) -> list[int]:
        """Those of this process."""
        return [lot for part in cut.dealt(self.group.size)[self.group.rank] for lot in cut.of_part(part)]

    def _read(self, source: Source, classes: bool) -> Raw:
        """The rows of this process, of several files those only that have any."""
        lots = self._lots_of(self.cut)
        first, last = self.cut.bounds(lots[0])[0], self.cut.bounds(lots[-1])[1]
        pieces, at = [], 0
        for rows in _from(source, first):
            at = rows[0]
            begin, end = max(first - at, 0), min(last - at, len(rows[1].X))
            if begin < end:
                X, y, weight = rows[1]
                if classes and y.ndim == 2 and y.shape[1] > 1:
                    raise DataError("y has several columns; labels in columns are learned from memory only")
                pieces.append((X[begin:end], y[begin:end], None if weight is None else weight[begin:end]))
            if at + len(rows[1].X) >= last and isinstance(source, (ParquetSource, NpySource)):
                break  # others want to be read to their end
        return joined(pieces)

    def few(self, count: int) -> Raw:
        """So many rows, evenly spaced, at every process."""
        count = min(count, self.cut.rows)
        return self._gathered(self.cut.by_lot(np.arange(count) * self.cut.rows // count))

    def _gathered(self, wanted: dict[int, NDArray[np.int64]]) -> Raw:
        mine = {lot: _at(self._raw[lot], some) for lot, some in wanted.items() if lot in self._raw}
        found: dict[int, Any] = {}
        for part in self.group.objects(mine):
            found |= part
        return joined([found[lot] for lot in wanted])

    def samples(self, look: Look) -> CrewSamples:
        """All rows that are not held out."""
        cut, kept, raw = self.cut_of_kept(), self.chosen(held=False), self._raw
        if self._held is not None:
            raw = {lot: _at(rows, kept[lot]) for lot, rows in raw.items()}
        masses = {lot: _mass(rows, look) for lot, rows in raw.items()}
        known = {lot: mass for some in self.group.objects(masses) for lot, mass in some.items()}
        mass = float(sum(known[lot] for lot in range(cut.lots)))
        if mass <= 0:
            raise DataError("all samples have the weight 0; give some of them a weight")
        parts = Parts(cut, cut.dealt(self.group.size)[self.group.rank])
        held = {part: ShardData.of(joined([raw[lot] for lot in cut.of_part(part)]), look, mass / cut.rows)
                for part in parts.mine}  # fmt: skip
        desk = WorkerState(parts, held, look, 1)
        return CrewSamples(GroupCrew(self.group, cut, desk, look, mass), look, mass)

    def held_out(self, look: Look) -> InMemoryDataset:
        """Those that are, at every process."""
        raw = self._gathered({lot: rows for lot, rows in self.chosen(held=True).items() if len(rows)})
        return look.samples(raw, _mass(raw, look))

    def told(self, make: Callable[[], Any]) -> Any:
        """What the first process has made."""
        return self.group.first(make)

    def release(self) -> None:
        """Nothing is left behind."""


def _at(raw: Raw, rows: Array) -> Raw:
    X, y, weight = raw
    return X[rows], y[rows], None if weight is None else weight[rows]


def _mass(raw: Raw, look: Look) -> float:
    weights = look.weights(raw[1], raw[2])
    return float(len(raw[0]) if weights is None else weights.sum())


def _from(source: Source, first: int) -> Iterator[tuple[int, Any]]:
    """Blocks of a source with the number of their first row, from that of a row on at the latest."""
    at = 0
    if isinstance(source, ParquetSource):
        for k, count in enumerate(source.table.counts):
            if at + count > first:
                for rows in source.blocks_of(k):
                    yield at, rows
                    at += len(rows.X)
            else:
                at += count
        return
    for rows in source.blocks():
        yield at, rows
        at += len(rows.X)

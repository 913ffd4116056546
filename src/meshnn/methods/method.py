"""What a gradient method is: its facts, one walk over a schedule that counts or emits, its buffers and its kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshnn.methods.prices import DEFAULT, Prices, Work
from meshnn.schedule import ROW_BYTES, ListBuilder, ListCounter, Schedule

__all__ = ["Cost", "Draft", "Method", "Plan"]

I64 = NDArray[np.int64]
#: A count looks at all tangents or blocks if there are this few, else at a random sample of so many ...
SAMPLE = 1000
#: ... or fewer, once it has walked over so many edges.
WALK = 3_000_000


@dataclass(frozen=True)
class Cost:
    """Predicted cost of one method."""

    method: str
    forward_only: bool
    work: Work  # for a row of samples
    lanes: int  # samples in a row; 1 where they go one by one
    bytes: float  # working memory: index arrays and the buffers of all workers, without data and results
    estimated: bool  # scaled up from a sample of the graph

    @property
    def multiply_adds(self) -> float:
        """Of a sample."""
        return self.work.multiply_adds

    @property
    def predicted(self) -> float:
        """Time of a sample in units of one multiply-add in float32, by fixed prices; without what a call costs."""
        return DEFAULT.chunk(self.work) / DEFAULT.pulled * (ROW_BYTES // 4) / self.lanes

    def seconds(self, batch: int, prices: Prices = DEFAULT) -> float:
        """Time of a gradient of so many samples on one thread."""
        return prices.seconds(self.work, -(-batch // self.lanes))


class Draft:
    """A plan in the making: what all methods need is laid down, or only counted; a method adds its own.

    Parameters
    ----------
    schedule : Schedule
    jacobian : bool
        Whether the derivative of each output is wanted rather than that of a loss.
    number : int array (n_edges,)
        Of each edge, the number (parameter) it takes its weight from.
    n_numbers : int
    dear : bool array (n_neurons,)
        Whose activation takes more than an instruction or two.
    emits : bool
        Whether lists are kept; else things are counted, on large graphs for a sample of them.
    limit : int, optional
        Bytes of lists at which to give up with `PlanTooLargeError`.
    """

    def __init__(
        self,
        schedule: Schedule,
        jacobian: bool,
        number: I64,
        n_numbers: int,
        dear: NDArray[np.bool_],
        emits: bool,
        limit: int | None = None,
    ) -> None:
        self.schedule, self.jacobian, self.number, self.n_numbers = schedule, jacobian, number, n_numbers
        self.emits, self.limit = emits, limit
        t, self.ticks = schedule.topology, schedule.ticks
        self.src, self.dst = t.src, t.dst  # edges that get a gradient
        self.lists = self.gradient_lists = self.new_lists()
        self.forward, self.pulled = schedule.pulls(self.lists, t.src, t.dst)
        self.gradient, self.correlated, self.entries = self.forward, self.pulled, self.lists.entries
        self.n_gradient = n_numbers
        if schedule.candidates is not None:
            self.order = np.lexsort((schedule.candidates[0], schedule.candidates[1]))
            self.src, self.dst = (ends[self.order] for ends in schedule.candidates)
            self.gradient_lists = self.new_lists()
            self.gradient, self.correlated = schedule.pulls(self.gradient_lists, self.src, self.dst)
            self.entries, self.n_gradient = self.gradient_lists.entries, len(self.src)
        self.back, self.hops_back = np.zeros(self.ticks + 1, dtype=np.int64), 0
        self.last = self.ticks if jacobian else self.ticks - 1  # tick that influences are carried to
        rows, costly = float(schedule.rows.sum()), float((schedule.rows & dear).sum())
        inputs = float(self.ticks * t.n_inputs)
        self.work = Work(pulled=float(self.pulled.sum()), rows=rows, cheap=rows - costly, dear=costly)
        self.work.inputs, self.work.outputs = inputs, 0.0 if jacobian else float(t.n_outputs)
        widest = float(schedule.rows.sum(axis=1).max(initial=0)) + t.n_clamped
        self.work.near = 2.0 * ROW_BYTES * widest
        self.work.room = ROW_BYTES * (rows + costly + inputs)
        self.extra_bytes = 0.0  # of index arrays, besides lists
        self.estimated = False

    def new_lists(self) -> ListCounter:
        """A table more."""
        return ListBuilder(self.limit) if self.emits else ListCounter()

    def pull_back(self, hops: int, times: int = 1) -> float:
        """Lay down the transposed lists of the last so many hops; multiply-adds of each of so many passes."""
        self.back, pushed = self.schedule.pushes(self.lists, hops)
        self.hops_back = hops
        self.work.pulled += times * float(pushed.sum())
        return float(pushed.sum())

    def sample(self, count: int) -> I64:
        """Which of so many things to walk: all in turn if they are few or kept, else a fixed random sample."""
        if self.emits or count <= SAMPLE:
            return np.arange(count)
        return np.random.default_rng(0).choice(count, SAMPLE, replace=False)

    def enough(self, walked: int, done: int) -> bool:
        """Whether a count has seen enough to be scaled up."""
        return not self.emits and walked > WALK and done >= 4

    def scaled(self, done: int, count: int, lists: ListCounter, before: float) -> float:
        """What to multiply counts by, of which so many were walked; the lists met since are scaled up here."""
        scale = count / max(done, 1)
        self.extra_bytes += (scale - 1.0) * (lists.nbytes - before)
        self.estimated = self.estimated or done < count
        return scale


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph compiled for a method: what a program runs on."""

    method: Method
    ticks: int
    n: int
    n_inputs: int
    n_clamped: int
    n_outputs: int
    n_numbers: int  # values that weights are taken from
    n_gradient: int  # length of the gradient
    course: Any  # see kernels.tuples
    reads: I64  # the value that each of the kernels' weights is
    gives: I64  # the place in the gradient that each entry of the kernels' gradient adds to
    rows: dict[str, tuple[int, ...]]  # shapes of the buffers of a worker, in rows of samples
    cost: Cost


class Method:
    """A way to a gradient. A new one: its file, and a line in `methods/__init__.py`."""

    name: ClassVar[str]
    #: Whether nothing runs back through time.
    forward_only: ClassVar[bool] = True
    #: Whether `auto` may take it.
    automatic: ClassVar[bool] = True
    #: Whether compiled epochs run on its course.
    compiled: ClassVar[bool] = False
    #: Whether it gives the Jacobian of a chunk, which curvature is made of.
    curvature: ClassVar[bool] = False

    def draw(self, draft: Draft) -> Any:
        """The walk: lay down, or count, what the method needs; the result is handed to `course`."""
        raise NotImplementedError

    def course(self, draft: Draft, drawn: Any) -> tuple[Any, I64, I64]:
        """What the kernels run on, where weights are read from, and where gradients go."""
        raise NotImplementedError

    def rows(self, draft: Draft, drawn: Any) -> dict[str, tuple[int, ...]]:
        """Shapes of the buffers of a worker that are more than one row."""
        raise NotImplementedError

    def gradient_kernel(self) -> Any:
        """Of `(course, net, batch, room, first, last, g)`; returns the loss."""
        raise NotImplementedError

    def jacobian_kernel(self) -> Any:
        """Of `(course, net, batch, room, first, last, J)`."""
        raise NotImplementedError

    # -- the same for all ------------------------------------------------------------------------------------------

    def cost(self, draft: Draft, workers: int = 1, itemsize: int = 4) -> Cost:
        """What it would cost, from a draft that counts."""
        drawn = self.draw(draft)
        return self._cost(draft, self._rows(draft, drawn), workers, itemsize)

    def plan(self, draft: Draft, itemsize: int = 4) -> Plan:
        """The plan, from a draft that emits."""
        drawn = self.draw(draft)
        t, rows = draft.schedule.topology, self._rows(draft, drawn)
        cost = self._cost(draft, rows, 1, itemsize)
        sizes = (draft.ticks, t.n_neurons, t.n_inputs, t.n_clamped, t.n_outputs, draft.n_numbers, draft.n_gradient)
        return Plan(self, *sizes, *self.course(draft, drawn), rows, cost)

    def _rows(self, draft: Draft, drawn: Any) -> dict[str, tuple[int, ...]]:
        n, n_outputs = draft.schedule.topology.n_neurons, draft.schedule.topology.n_outputs
        states = (draft.ticks + 1, n)
        shared = {"S": states, "D": states, "G": (n_outputs,), "P": (n_outputs,), "scratch": (2,)}
        unused = {"V": (1, 1), "T": (1, 1), "store": (1,), "C": (1,)}
        return unused | shared | self.rows(draft, drawn)

    def _cost(self, draft: Draft, rows: dict[str, tuple[int, ...]], workers: int, itemsize: int) -> Cost:
        index = draft.lists.nbytes + draft.extra_bytes
        if draft.gradient_lists is not draft.lists:
            index += draft.gradient_lists.nbytes
        room = sum(float(np.prod(shape, dtype=np.float64)) for shape in rows.values()) * ROW_BYTES
        needed = index + workers * (room + 2.0 * draft.n_gradient * itemsize)
        work, lanes = draft.work, 1 if draft.work.samples else ROW_BYTES // itemsize
        work.lists = index
        # a table of its own, that of blocks, is gathered too; all of them are if nothing says otherwise
        work.reads = work.reads or float(draft.lists.entries)
        work.gives = work.gives or float(draft.entries)
        return Cost(self.name, self.forward_only, work, lanes, needed, draft.estimated)

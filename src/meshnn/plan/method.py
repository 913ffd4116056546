"""What a gradient method is: its facts, one walk over a schedule that counts or emits, its buffers and its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.plan.cost import Cost
from meshnn.plan.footprint import SET, footprint
from meshnn.plan.lists import ListBuilder, ListCounter, Lists, runs_of
from meshnn.plan.schedule import Schedule, Timing
from meshnn.plan.walk import Walk
from meshnn.progress import watched
from meshnn.topology.reach import counted

__all__ = ["CompiledPlan", "Draft", "Method", "Plan", "Tangents"]

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
#: Number of tangents up to which a count looks at all of them; of more, it looks at a random sample of this size ...
SAMPLE = 1000
#: ... or fewer, once it has walked over so many edges; at so many, it stops where it is.
WALK, MOST = 3_000_000, 8_000_000


#: Columns by which a panel is filled up, at most: those of a vector.
PANEL = 16
#: Products with clamped neurons that must be saved, a row, before it pays to keep them apart.
DRIVE = 2.0


def _one(number: int, entries: int, tiled: int) -> tuple[I64, I64]:
    """The list of the one pass of a sweep, and its entries, as if it were a tick."""
    return np.array([0, number]), np.array([[0, entries], [0, tiled]])


class Draft:
    """A plan in the making: what all methods need is laid down, or only counted; a method adds its own.

    Parameters
    ----------
    schedule : Schedule
    jacobian : bool
        Whether the derivative of each output is wanted rather than that of a loss.
    number : int array (n_edges,), optional
        Of each edge, the number (parameter) it takes its weight from, if not its own.
    n_numbers : int
    expensive : bool array (n_neurons,)
        Whose activation takes more than an instruction or two.
    emits : bool
        Whether lists are kept; else things are counted, on large graphs for a sample of them.
    limit : int, optional
        Bytes of lists at which to give up with `PlanTooLargeError`.
    driven, sweeps : bool
        Whether the method can make use of inputs that are held: with what clamped neurons give computed once, and with
        one pass over the neurons of a graph that settles.
    """

    def __init__(
        self,
        schedule: Schedule,
        jacobian: bool,
        number: I64 | None,
        n_numbers: int,
        expensive: NDArray[np.bool_],
        emits: bool,
        limit: int | None = None,
        driven: bool = False,
        sweeps: bool = False,
    ) -> None:
        self.schedule, self.jacobian, self.number, self.n_numbers = schedule, jacobian, number, n_numbers
        self.emits, self.limit = emits, limit
        t, self.ticks = schedule.topology, schedule.ticks
        self.src, self.dst = t.src, t.dst  # edges that get a gradient
        self.lists = self.gradient_lists = self.new_lists()
        self.input_projection, self.order, rows = -1, None, schedule.rows
        plain = schedule.candidates is None and not jacobian
        if sweeps and plain and schedule.held:
            self.order = schedule.sweep()
        if self.order is not None:
            self.forward, self.pulled = _one(*schedule.sweep_lists(self.lists, self.order, back=False))
            rows = np.any(rows, axis=0, keepdims=True)
        else:
            fixed = [0, 0]
            if driven and plain and schedule.held and schedule.saved_by_drive() > DRIVE * rows.sum():
                self.input_projection, *fixed = schedule.drive(self.lists)
            self.forward, self.pulled = schedule.pulls(self.lists, t.src, t.dst, moving=self.input_projection >= 0)
            self.pulled[:, 0] = fixed
        self.gradient, self.correlated, self.entries = self.forward, self.pulled, self.lists.entries
        self.n_gradient = n_numbers
        if schedule.candidates is not None:
            self.asked = np.lexsort((schedule.candidates[0], schedule.candidates[1]))
            self.src, self.dst = (ends[self.asked] for ends in schedule.candidates)
            self.gradient_lists = self.new_lists()
            self.gradient, self.correlated = schedule.pulls(self.gradient_lists, self.src, self.dst)
            self.entries, self.n_gradient = self.gradient_lists.entries, len(self.src)
        self.back, self.hops_back = np.zeros(len(self.forward), dtype=np.int64), 0
        self.timed = schedule.timing is not None
        self.last = self.ticks if jacobian or self.timed else self.ticks - 1  # tick that influences are carried to
        self.activations = float((rows & expensive).sum())
        self.states = float(rows.sum() + self.clamps.sum() * t.n_inputs)
        self.multiply_adds = self.tiled = 0.0  # per sample, and those of them that tiles do
        self.count(self.pulled)
        self.extra_bytes = 0.0  # of index arrays, besides lists
        self.n_summed = self.entries  # entries of the gradient that the core sums
        self.sets = 0.0  # that a walk makes lists of
        self.remembered = 0.0  # bytes that a walk keeps while it is planned
        self.estimated = False

    def new_lists(self) -> ListCounter:
        """A table more."""
        # a Jacobian has a place for each edge, and none for padding
        fill = not self.jacobian
        return ListBuilder(self.limit, fill) if self.emits else ListCounter(fill)

    def pull_back(self, hops: int, times: int = 1) -> None:
        """Lay down the transposed lists of the last so many hops, and count as many passes over them."""
        if self.order is not None:
            self.back, pushed = _one(*self.schedule.sweep_lists(self.lists, self.order, back=True))
        else:
            self.back, pushed = self.schedule.pushes(self.lists, hops)
            self.hops_back = hops
        self.count(times * pushed)

    def count(self, entries: I64) -> None:
        """Add the entries of lists `[all, those in tiles]` to the multiply-adds."""
        every, tiled = entries.sum(axis=1).tolist()
        self.multiply_adds += every
        self.tiled += tiled

    def correlate(self, times: int = 1, ticks: slice = slice(None)) -> None:
        """Count the scalar products of some ticks, each so many times."""
        every, tiled = (times * self.correlated[:, ticks].sum(axis=1)).tolist()
        self.multiply_adds += every
        self.tiled += 0 if self.jacobian else tiled  # whose entries have a place each

    @property
    def clamps(self) -> I64:
        """1 for every tick whose lists read inputs; all, if all states are asked for."""
        s, found = self.schedule, np.zeros(len(self.forward), dtype=np.int64)
        if self.input_projection >= 0 or self.order is not None:
            found[0 if self.input_projection >= 0 else 1] = 1
            return found
        t = s.topology
        fed = np.zeros(t.n_neurons, dtype=np.bool_)
        for src, dst in ((t.src, t.dst), (self.src, self.dst))[: 1 + (self.src is not t.src)]:
            fed |= counted(t.n_neurons, dst[src < t.n_inputs]) > 0
        found[:] = s.rows[:, fed].any(axis=1) | s.all_needed
        return found

    def sample(self, count: int) -> I64:
        """Which of so many things to walk: all in turn if they are few or kept, else a fixed random sample."""
        if self.emits or count <= SAMPLE:
            return np.arange(count)
        return np.random.default_rng(0).choice(count, SAMPLE, replace=False)

    def enough(self, walked: int, done: int) -> bool:
        """Whether a count has seen enough to be scaled up."""
        return not self.emits and ((walked > WALK and done >= 4) or walked > MOST)

    def exhausted(self, walked: int) -> bool:
        """Whether a count must end in the middle of a thing, which is too long to be walked."""
        self.estimated = self.estimated or (not self.emits and walked > MOST)
        return not self.emits and walked > MOST

    def watched(self, numbers: I64, what: str) -> Iterator[int]:
        """The numbers one by one; what is kept may take long, and is shown."""
        numbered = numbers.tolist()
        return watched(numbered, len(numbered), f"planning {what}") if self.emits else iter(numbered)

    def scaled(self, done: int, count: int, walk: Walk, before: float, unseen: float) -> float:
        """What to multiply counts by, of which so many were walked; lists since, and bytes left out, are scaled up."""
        scale = count / max(done, 1)
        new = walk.lists.nbytes - before
        self.extra_bytes += (scale - 1.0) * new + scale * unseen
        self.remembered += scale * (SET * walk.made + 4.0 * walk.held)
        self.sets += scale * walk.made
        self.estimated = self.estimated or done < count
        return scale


def _counts_up(numbers: U32, step: int = 1 << 20) -> bool:
    """Whether they are 0, 1, 2, ..."""
    ends = [(first, min(first + step, len(numbers))) for first in range(0, len(numbers), step)]
    return all(bool((numbers[first:last] == np.arange(first, last)).all()) for first, last in ends)


class Tangents(NamedTuple):
    """Influences F[m, .][j, .] to push forward, one per (tick m, neuron j)."""

    tick: I64  # (T,) m
    neuron: I64  # (T,) j
    row: I64  # (T,) the row of j in the gradient list of tick m
    ptr: I64  # (T + 1,) into chain
    chain: U32  # lists to apply at ticks m + 1, m + 2, ...


class CompiledPlan(NamedTuple):
    """The lists that the core runs on; `_core/core.hpp` and `_core/backward.hpp` say how."""

    lists: Lists
    forward: I64  # (ticks + 1,) list that computes the states of tick k
    back: I64  # (ticks + 1,) list that pulls the adjoint from tick k + 1 to k
    hops_back: int  # up to 2: readout and one hop more (forward-only); ticks - 1: all the way (backprop)
    grad_lists: Lists  # the same table, unless other edges than the graph's are asked for
    gradient: I64  # (ticks + 1,) list whose entries get a gradient at tick k
    tangents: Tangents
    input_projection: int  # list of what the clamped neurons give at every tick, if the others leave them out; else -1
    topological_pass: bool  # one list computes all neurons in topological order: `forward` has one tick
    clamps: I64  # (ticks + 1,) 1 where a list of tick k reads inputs


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph compiled for a method: what an engine runs on."""

    method: Method
    ticks: int
    n: int
    n_inputs: int
    n_clamped: int
    n_outputs: int
    n_values: int  # values that weights are taken from
    n_gradient: int  # length of the gradient
    course: CompiledPlan
    weight_index: U32  # the value that each of the core's weights is
    grad_index: U32  # the place in the gradient that each entry of the core's gradient adds to
    rows: dict[str, tuple[int, ...]]  # shapes of the buffers of a worker, in rows of samples
    cost: Cost
    held: bool  # whether inputs must be the same at every tick
    timing: Timing | None = None  # what is asked of a run in time

    def fields(self) -> dict[str, Any]:
        """Return the arrays and sizes of the struct `Plan` of the core, without activations and edges of inputs."""
        c, t = self.course, self.course.tangents
        lists = c.lists._asdict() | {f"grad_{name}": array for name, array in c.grad_lists._asdict().items()}
        tangents = {f"tangent_{name}": array for name, array in t._asdict().items()}
        return {
            **lists, **tangents, "forward": c.forward, "back": c.back, "gradient": c.gradient, "clamps": c.clamps,
            "hops_back": c.hops_back, "input_projection": c.input_projection,
            "topological_pass": int(c.topological_pass), "timed": int(self.timing is not None),
            "weight_index": self.weight_index, "weight_runs": runs_of(self.weight_index),
            "grad_index": self.grad_index, "grad_runs": runs_of(self.grad_index),
            "ticks": self.ticks, "n": self.n, "n_inputs": self.n_inputs, "n_clamped": self.n_clamped,
            "n_outputs": self.n_outputs, "n_values": self.n_values, "n_gradient": self.n_gradient,
            "kept_ticks": self.rows["S"][0], "panel_rows": self.rows["panel"][0],
            "jacobian": int("C" in self.rows), "adjoint": int(self.rows["V"] != (1, 1)),
            "straight": int(self._straight()),
        }  # fmt: skip

    def _straight(self) -> bool:
        """Whether the gradient is what the core sums, entry by entry."""
        return len(self.grad_index) == self.n_gradient and _counts_up(self.grad_index)


class Method:
    """A way to compute a gradient. A new one needs its file and an entry in `plan/__init__.py`."""

    name: ClassVar[str]
    #: Time of a multiply-add relative to one on rows of samples.
    slowdown: ClassVar[float] = 1.0
    #: Whether nothing runs back through time.
    forward_only: ClassVar[bool] = True
    #: Whether `auto` may take it.
    automatic: ClassVar[bool] = True
    #: Whether compiled epochs run on its course.
    compiled: ClassVar[bool] = False
    #: Whether it gives the Jacobian of a chunk, which curvature is made of.
    curvature: ClassVar[bool] = False

    #: Whether what clamped neurons give, and a graph that settles, can be computed once while inputs are held.
    driven: ClassVar[bool] = False
    sweeps: ClassVar[bool] = False

    def draw(self, draft: Draft) -> Any:
        """The walk: lay down, or count, what the method needs; the result is handed to `course`."""
        raise NotImplementedError

    def course(self, draft: Draft, drawn: Any) -> tuple[CompiledPlan, U32, U32]:
        """What the core runs on, where weights are taken from, and where gradients go."""
        raise NotImplementedError

    def rows(self, draft: Draft, drawn: Any) -> dict[str, tuple[int, ...]]:
        """Shapes of the buffers of a worker that are more than one row."""
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
        held = draft.input_projection >= 0 or draft.order is not None
        return Plan(self, *sizes, *self.course(draft, drawn), rows, cost, held, draft.schedule.timing)

    def _rows(self, draft: Draft, drawn: Any) -> dict[str, tuple[int, ...]]:
        n, n_outputs = draft.schedule.topology.n_neurons, draft.schedule.topology.n_outputs
        states = (1 if draft.order is not None else draft.ticks + 1, n)
        shared: dict[str, tuple[int, ...]] = {
            "S": states, "D": states, "O": (2 * n_outputs,), "P": (4 * n_outputs,), "x": (n_outputs + 3,)
        }  # fmt: skip
        if draft.timed:
            shared["O"] = ((draft.ticks + 1) * n_outputs,)
            shared["x"] = (draft.ticks * (n_outputs + 2) + 1,)
        unused = {"V": (1, 1), "W": (1,), "U": (1,), "T": (1, 1), "panel": (1,)}
        if draft.input_projection >= 0:
            shared |= {"U": (n,), "W": (n,)}
        found = unused | shared | self.rows(draft, drawn)
        widest = max(draft.lists.widest, draft.gradient_lists.widest)
        return found | {"panel": (widest + PANEL,)} if found["V"] != (1, 1) and widest else found

    def _cost(self, draft: Draft, rows: dict[str, tuple[int, ...]], workers: int, itemsize: int) -> Cost:
        return Cost(
            self.name,
            self.forward_only,
            draft.multiply_adds,
            draft.tiled / max(draft.multiply_adds, 1.0),
            draft.activations,
            draft.states,
            self.slowdown * itemsize / 4,
            footprint(draft, rows, workers, itemsize),
            draft.estimated or draft.lists.estimated,
            draft.sets,
        )

"""`Draft`: a plan under construction. `Plan`: the flat arrays that an engine runs on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshnn.arrays import BoolArray, IntArray
from meshnn.plan.cost import Cost
from meshnn.plan.limits import LIMITS
from meshnn.plan.lists import ROW_BYTES, ListBuilder, ListCounter, Lists, runs_of
from meshnn.plan.schedule import Schedule, Timing
from meshnn.plan.tiles import UIntArray
from meshnn.plan.walk import Walk
from meshnn.progress import watched
from meshnn.topology.reach import counted

if TYPE_CHECKING:
    from meshnn.plan.methods import Method


class Draft:
    """A plan under construction: the lists that all methods need, to which a method adds its own.

    With `jacobian`, derivatives are computed per output, else for the loss. `number` (n_edges,) is the index of the
    parameter that each edge takes its weight from, by default its own. `expensive` marks neurons whose activation takes
    more than one or two instructions. A draft that `emits` keeps its lists, up to `limit` bytes; otherwise lists are
    only counted, on large graphs from a random sample. With `projects`, the products with clamped neurons are computed
    once while the inputs are held. With `topological`, a graph that settles is computed in one topological pass.
    """

    def __init__(
        self, schedule: Schedule, jacobian: bool, number: IntArray | None, n_numbers: int, expensive: BoolArray,
        emits: bool, limit: int | None = None, projects: bool = False, topological: bool = False,
    ) -> None:  # fmt: skip
        self.schedule, self.jacobian, self.number, self.n_numbers = schedule, jacobian, number, n_numbers
        self.emits, self.limit = emits, limit
        t, self.ticks = schedule.topology, schedule.ticks
        self.src, self.dst = t.src, t.dst  # edges that get a gradient
        self.lists = self.gradient_lists = self._new_lists()
        self.input_projection, self.order, rows = -1, None, schedule.rows
        plain = schedule.candidates is None and not jacobian and schedule.held
        if topological and plain:
            self.order = schedule.topological_order()
        if self.order is not None:
            self.forward, self.pulled = _one(*schedule.topological_lists(self.lists, self.order, back=False))
            rows = np.any(rows, axis=0, keepdims=True)
        else:
            fixed = [0, 0]
            # a separate list of the products with clamped neurons is faster if it saves more than two products per row
            if projects and plain and schedule.saved_by_projection() > 2.0 * rows.sum():
                self.input_projection, *fixed = schedule.projection_list(self.lists)
            self.forward, self.pulled = schedule.pulls(self.lists, t.src, t.dst, moving=self.input_projection >= 0)
            self.pulled[:, 0] = fixed
        self.gradient, self.correlated, self.entries = self.forward, self.pulled, self.lists.entries
        self.n_gradient = n_numbers
        if schedule.candidates is not None:
            self.asked = np.lexsort((schedule.candidates[0], schedule.candidates[1]))
            self.src, self.dst = (ends[self.asked] for ends in schedule.candidates)
            self.gradient_lists = self._new_lists()
            self.gradient, self.correlated = schedule.pulls(self.gradient_lists, self.src, self.dst)
            self.entries, self.n_gradient = self.gradient_lists.entries, len(self.src)
        self.back, self.hops_back = np.zeros(len(self.forward), dtype=np.int64), 0
        self.timed = schedule.timing is not None
        # last tick that influences are carried to
        self.last = self.ticks if jacobian or self.timed else self.ticks - 1
        self.activations = float((rows & expensive).sum())
        self.states = float(rows.sum() + self.clamps.sum() * t.n_inputs)
        self.multiply_adds = self.tiled = 0.0  # per sample; `tiled` is the part of them that runs in tiles
        self.count(self.pulled)
        self.extra_bytes = 0.0  # bytes of index arrays other than lists
        self.n_summed = self.entries  # entries of the gradient that the core sums
        self.sets = 0.0  # number of sets of neurons that the walk makes lists of
        self.remembered = 0.0  # bytes that the walk needs while it is planned
        self.estimated = False

    def _new_lists(self) -> ListCounter:
        fill = not self.jacobian  # a Jacobian has no entry for padding
        return ListBuilder(self.limit, fill) if self.emits else ListCounter(fill)

    def pull_back(self, hops: int, times: int = 1) -> None:
        """Make the transposed lists of the last `hops` hops, and count `times` passes over them."""
        if self.order is not None:
            self.back, pushed = _one(*self.schedule.topological_lists(self.lists, self.order, back=True))
        else:
            self.back, pushed = self.schedule.pushes(self.lists, hops)
            self.hops_back = hops
        self.count(times * pushed)

    def count(self, entries: IntArray) -> None:
        """Add the entries of lists, `[all, in tiles]` per tick, to the multiply-adds."""
        every, tiled = entries.sum(axis=1).tolist()
        self.multiply_adds += every
        self.tiled += tiled

    def correlate(self, times: int = 1, ticks: slice = slice(None)) -> None:
        """Count the scalar products of the given ticks, each `times` times."""
        every, tiled = (times * self.correlated[:, ticks].sum(axis=1)).tolist()
        self.multiply_adds += every
        self.tiled += 0 if self.jacobian else tiled  # a Jacobian is not accumulated in tiles

    @property
    def clamps(self) -> IntArray:
        """1 for every tick whose lists read inputs; 1 for all ticks if the states of all neurons are requested."""
        s, found = self.schedule, np.zeros(len(self.forward), dtype=np.int64)
        if self.input_projection >= 0 or self.order is not None:
            found[0 if self.input_projection >= 0 else 1] = 1
            return found
        t = s.topology
        fed = counted(t.n_neurons, t.dst[t.src < t.n_inputs]) > 0
        if self.src is not t.src:
            fed |= counted(t.n_neurons, self.dst[self.src < t.n_inputs]) > 0
        found[:] = s.rows[:, fed].any(axis=1) | s.all_needed
        return found

    # -- walks -----------------------------------------------------------------------------------------------------

    def sample(self, count: int) -> IntArray:
        """Return the indices of the items to walk: all if they are few or kept, else a fixed random sample."""
        if self.emits or count <= LIMITS.sample:
            return np.arange(count)
        return np.random.default_rng(0).choice(count, LIMITS.sample, replace=False)

    def enough(self, walked: int, done: int) -> bool:
        """Return whether a count has covered enough items to be scaled up."""
        return not self.emits and ((walked > LIMITS.walk and done >= 4) or walked > LIMITS.most)

    def exhausted(self, walked: int) -> bool:
        """Return whether a count must stop in the middle of an item that is too long."""
        self.estimated = self.estimated or (not self.emits and walked > LIMITS.most)
        return not self.emits and walked > LIMITS.most

    def watched(self, numbers: IntArray, what: str) -> Iterator[int]:
        """Yield the numbers one by one and show the progress, because planning may take long."""
        numbered = numbers.tolist()
        return watched(numbered, len(numbered), f"planning {what}") if self.emits else iter(numbered)

    def scaled(self, done: int, count: int, walk: Walk, before: float, unseen: float) -> float:
        """Return the factor that scales the counts of a sampled walk up to the whole graph; scale up its bytes."""
        scale = count / max(done, 1)
        self.extra_bytes += (scale - 1.0) * (walk.lists.nbytes - before) + scale * unseen
        self.remembered += scale * (500.0 * walk.made + 4.0 * walk.held)  # 500 bytes per set that a walk stores
        self.sets += scale * walk.made
        self.estimated = self.estimated or done < count
        return scale

    # -- results ---------------------------------------------------------------------------------------------------

    def footprint(self, rows: dict[str, tuple[int, ...]], workers: int, itemsize: int) -> float:
        """Return the bytes at the highest point of planning and running, without data and results."""
        index = self.lists.nbytes + self.extra_bytes
        if self.gradient_lists is not self.lists:
            index += self.gradient_lists.nbytes
        room = sum(float(np.prod(shape, dtype=np.float64)) for shape in rows.values()) * ROW_BYTES
        # weights and gradient in the order of entries; the gradient also by parameter, in float64 and the result dtype
        gathered, summed, numbers = float(self.lists.entries), float(self.n_summed), float(self.n_gradient)
        flow = itemsize * (gathered + workers * summed) + 8.0 * summed + (8.0 + itemsize) * numbers
        # while planning: an order per edge, 64-bit copies of the largest list, 1/8 of spare capacity in growing tables
        largest = float(max(self.pulled[0].max(initial=0), self.correlated[0].max(initial=0)))
        edges, masks = self.schedule.topology.n_edges, self.schedule.rows.size
        planning = 12.0 * edges + 32.0 * largest + self.remembered + 2.0 * masks
        return max(1.125 * index + planning, index + workers * room + flow)

    def compiled(self, tangents: Tangents) -> tuple[CompiledPlan, UIntArray, UIntArray]:
        """Return the lists, the value index of each weight, and the gradient index of each entry."""
        assert isinstance(self.lists, ListBuilder)
        assert isinstance(self.gradient_lists, ListBuilder)
        lists = grad_lists = self.lists.build(self.number)
        if self.gradient_lists is not self.lists:
            grad_lists = self.gradient_lists.build(self.asked)
        compiled = CompiledPlan(
            lists, self.forward, self.back, self.hops_back, grad_lists, self.gradient, tangents,
            self.input_projection, self.order is not None, self.clamps,
        )  # fmt: skip
        return compiled, lists.number, grad_lists.number[: self.entries]


def _one(number: int, entries: int, tiled: int) -> tuple[IntArray, IntArray]:
    """Return the list of the topological pass and its entries, in the format of a run with one tick."""
    return np.array([0, number]), np.array([[0, entries], [0, tiled]])


class Tangents(NamedTuple):
    """Influences F[m, .][j, .] to push forward, one per (tick m, neuron j)."""

    tick: IntArray = np.empty(0, np.int64)  # (T,) m
    neuron: IntArray = np.empty(0, np.int64)  # (T,) j
    row: IntArray = np.empty(0, np.int64)  # (T,) the row of j in the gradient list of tick m
    ptr: IntArray = np.zeros(1, np.int64)  # (T + 1,) into chain
    chain: UIntArray = np.empty(0, np.uint32)  # lists to apply at ticks m + 1, m + 2, ...


class CompiledPlan(NamedTuple):
    """The lists that the core runs on. `_core/core.hpp` and `_core/backward.hpp` describe the fields."""

    lists: Lists
    forward: IntArray  # (ticks + 1,) list that computes the states of tick k
    back: IntArray  # (ticks + 1,) list that pulls the adjoint from tick k + 1 to k
    hops_back: int  # 1 or 2: readout and one more hop (forward-only); ticks - 1: all ticks (backprop)
    grad_lists: Lists  # the same table as `lists`, unless gradients of candidate edges are requested
    gradient: IntArray  # (ticks + 1,) list whose entries get a gradient at tick k
    tangents: Tangents
    input_projection: int  # list of the products with clamped neurons if the other lists omit them, else -1
    topological_pass: bool  # one list computes all neurons in topological order: `forward` has one tick
    clamps: IntArray  # (ticks + 1,) 1 where a list of tick k reads inputs


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph compiled for a gradient method: the input of an engine."""

    method: Method
    ticks: int
    n: int
    n_inputs: int
    n_clamped: int
    n_outputs: int
    n_values: int  # number of values that weights are taken from
    n_gradient: int  # length of the gradient
    course: CompiledPlan
    weight_index: UIntArray  # the value index of each weight of the core
    grad_index: UIntArray  # the gradient index that each entry of the core's gradient is added to
    rows: dict[str, tuple[int, ...]]  # shapes of the buffers of a worker, in rows of samples
    cost: Cost
    held: bool  # whether inputs must be the same at every tick
    timing: Timing | None = None  # options of a run in time

    def fields(self) -> dict[str, Any]:
        """Return the arrays and sizes of the core's struct `Plan`, except activations and edges into inputs."""
        given = self.course._asdict()
        tables = {"": given.pop("lists"), "grad_": given.pop("grad_lists"), "tangent_": given.pop("tangents")}
        for prefix, table in tables.items():
            given |= {prefix + name: array for name, array in table._asdict().items()}
        sizes = ("ticks", "n", "n_inputs", "n_clamped", "n_outputs", "n_values", "n_gradient")
        given |= {name: getattr(self, name) for name in (*sizes, "weight_index", "grad_index")}
        # whether the core sums the gradient in its final order
        straight = np.array_equal(self.grad_index, np.arange(self.n_gradient, dtype=np.uint32))
        return given | {
            "topological_pass": int(self.course.topological_pass), "timed": int(self.timing is not None),
            "weight_runs": runs_of(self.weight_index), "grad_runs": runs_of(self.grad_index),
            "kept_ticks": self.rows["S"][0], "panel_rows": self.rows["panel"][0],
            "jacobian": int("C" in self.rows), "adjoint": int(self.rows["V"] != (1, 1)), "straight": int(straight),
        }  # fmt: skip

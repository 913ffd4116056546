"""`Engines`: which method a mesh runs, and the engines it runs on."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn import _core
from meshnn.arguments import known
from meshnn.arrays import IntArray
from meshnn.codes import ACTIVATIONS, NONZERO_AT_ZERO
from meshnn.engine.engine import Engine
from meshnn.engine.threads import BUCKETS, cores
from meshnn.errors import MemoryLimitError, MeshError
from meshnn.memory import available_memory, check_fits, format_bytes
from meshnn.plan import (
    FORWARD_PASS,
    METHODS,
    ROW_BYTES,
    STATES,
    Cost,
    Decision,
    Draft,
    Method,
    PlanTooLargeError,
    Schedule,
    Timing,
    decide,
)  # fmt: skip
from meshnn.plan.limits import LIMITS
from meshnn.topology import Topology
from meshnn.topology.reach import edges_by_source

__all__ = ["Engines"]


def _make_room(kept: dict[tuple[Any, ...], Any], timing: Timing | None, most: int = 16) -> None:
    """Forget the oldest of those for runs in time, if another is to come: every mask of ticks is another one."""
    timed = [] if timing is None else [key for key in tuple(kept) if key[-1] is not None]
    if len(timed) >= most:
        kept.pop(timed[0], None)


class Engines:
    """Decides and compiles once per number of ticks, for one graph with its activations `codes` (n_neurons,).

    `number` is the number that each edge takes its weight from, by default its own.
    """

    def __init__(
        self, topology: Topology, codes: IntArray, dtype: np.dtype[Any], number: IntArray | None, n_numbers: int
    ) -> None:
        self.topology, self.codes, self.dtype, self.number, self.n_numbers = topology, codes, dtype, number, n_numbers
        self.awake = np.isin(codes, list(NONZERO_AT_ZERO))
        self.awake[: topology.n_clamped] = False
        self._expensive = ~np.isin(codes, (ACTIVATIONS["identity"], ACTIVATIONS["relu"]))
        self._made: dict[tuple[Any, ...], Engine] = {}
        self._costs: dict[tuple[Any, ...], tuple[Cost, ...]] = {}
        self._resolved: dict[tuple[Any, ...], Method] = {}
        self._found: dict[Any, Engine] = {}  # the last answers of `find`

    # -- what it would cost ----------------------------------------------------------------------------------------

    def costs(
        self, ticks: int, workers: int = 1, jacobian: bool = False, timing: Timing | None = None
    ) -> tuple[Cost, ...]:
        """That of every method."""
        key = (ticks, workers, jacobian, timing)
        if key not in self._costs:
            _make_room(self._costs, timing)
            schedule = Schedule(self.topology, ticks, self.awake, held=timing is None, timing=timing)
            self._costs[key] = tuple(
                method.cost(self._draft(method, schedule, jacobian, emits=False), workers, self.dtype.itemsize)
                for method in METHODS.values()
            )
        return self._costs[key]

    def _draft(
        self, method: Method, schedule: Schedule, jacobian: bool, emits: bool, limit: int | None = None
    ) -> Draft:
        edges = (self.number, self.n_numbers, self._expensive)
        return Draft(schedule, jacobian, *edges, emits, limit, method.projects, method.topological)

    def _workers(self, batch: int, n_jobs: int | None) -> int:
        buckets = min(max(self._chunks(batch) // 2, 1), BUCKETS)
        return min(cores() if n_jobs is None else n_jobs, buckets)

    def _chunks(self, batch: int) -> int:
        """Return the number of rows of samples that a batch fills."""
        return -(-batch * self.dtype.itemsize // ROW_BYTES)

    def decide(self, ticks: int, batch: int, n_jobs: int | None = None, jacobian: bool = False) -> Decision:
        """Cost of every method and the choice of `auto`."""
        return decide(self.costs(ticks, self._workers(batch, n_jobs), jacobian), tuple(METHODS), available_memory())

    def resolve(
        self, need: str, method: str, ticks: int, batch: int, n_jobs: int | None = None,
        timing: Timing | None = None,
    ) -> Method:  # fmt: skip
        """The method to run, once it is known to fit in memory."""
        workers = self._workers(batch, n_jobs)
        key = (need, method, ticks, self._chunks(batch), workers, timing)
        if key not in self._resolved:  # else its buffers are there
            _make_room(self._resolved, timing)
            costs = self.costs(ticks, workers, need in ("jacobian", "curvature"), timing)
            memory = available_memory()
            named = METHODS.get(known("gradient", method, ("auto", "forward", *METHODS)))
            able = [name for name, m in METHODS.items() if m.compiled or need not in ("epochs", "curvature")]
            if named is not None and (named.name in able or need != "curvature"):
                decision = Decision(costs, named.name, "as asked for")
            else:  # a method that cannot do it stands for its kind
                backprop = method == "auto" or (named is not None and not named.forward_only)
                decision = decide(costs, able, memory, backprop)
            needed = decision.cost(decision.chosen).bytes
            if needed > memory:
                others = [c.method for c in costs if c.bytes <= memory]
                advice = f'use gradient="{others[-1]}"' if others else "take fewer ticks, or a smaller graph"
                check_fits(needed, f'gradient="{decision.chosen}" at {ticks} ticks', advice, memory)
            sets = decision.cost(decision.chosen).sets
            if sets > LIMITS.sets:
                others = [c.method for c in costs if c.sets <= LIMITS.sets]
                raise MeshError(
                    f'planning gradient="{decision.chosen}" at {ticks} ticks would follow about {sets:,.0f} sets '
                    f'and take too long; use gradient="{others[-1]}" or fewer ticks'
                )
            self._resolved[key] = METHODS[decision.chosen]
        return self._resolved[key]

    # -- programs --------------------------------------------------------------------------------------------------

    def outputs(self, ticks: int) -> Engine:
        """The engine that gives the outputs alone."""
        found = self._found.get(ticks)
        if found is None:
            found = self._found[ticks] = self._compiled(FORWARD_PASS, ticks)
        return found

    def find(
        self, need: str, method: str, ticks: int, batch: int, n_jobs: int | None = None, again: bool = False,
        timing: Timing | None = None,
    ) -> Engine:  # fmt: skip
        """Return the engine for a need, see `Mesh.engine`; `again` after a small change of the graph, without costs."""
        key = (need, method, ticks, batch, n_jobs, timing)
        found = None if again else self._found.get(key)
        if found is None:
            chosen = METHODS[method] if again else self.resolve(need, method, ticks, batch, n_jobs, timing)
            found = self._compiled(chosen, ticks, need in ("jacobian", "curvature"), timing=timing)
            if len(self._found) >= 16:
                self._found.clear()
            self._found[key] = found
        return found

    def follow(self, ticks: int, timing: Timing | None, whole: bool) -> Engine:
        """Return the engine of a run, in time if there is a timing: for outputs, or for the states of all neurons."""
        return self._compiled(STATES if whole else FORWARD_PASS, ticks, timing=timing)

    def candidates(
        self, method: str, ticks: int, pairs: tuple[IntArray, IntArray], batch: int, n_jobs: int | None,
        timing: Timing | None = None,
    ) -> Engine:  # fmt: skip
        """A engine that gives the gradient of other edges than the graph's own; not kept."""
        # a method that is named needs no price, and its plan is refused if it does not fit
        chosen = METHODS.get(method) or self.resolve("gradient", method, ticks, batch, n_jobs, timing)
        if chosen is METHODS["influence"]:  # which knows the edges of the graph only
            chosen = METHODS["factored"]
        schedule = Schedule(self.topology, ticks, self.awake, candidates=pairs, timing=timing)
        engine = self._compile(chosen, schedule, False)
        advice = 'ask for fewer edges at a time, or use gradient="adjoint"'
        check_fits(
            engine.plan.cost.bytes, f'gradient="{chosen.name}" for {len(pairs[0])} edges', advice, available_memory()
        )
        return engine

    def _compiled(
        self, method: Method, ticks: int, jacobian: bool = False, held: bool = True, timing: Timing | None = None
    ) -> Engine:
        held = held and timing is None
        if timing is not None and jacobian:
            method = METHODS["adjoint"]  # the only one that has the curvature of looks at several ticks
        key = (method.name, ticks, jacobian, held, timing)
        if key not in self._made:
            _make_room(self._made, timing)
            schedule = Schedule(self.topology, ticks, self.awake, method is STATES, held=held, timing=timing)
            engine = self._made[key] = self._compile(method, schedule, jacobian)
            if timing is None:
                engine.in_time = lambda timing: self._compiled(method, ticks, jacobian, timing=timing)
            if engine.plan.held:
                engine.for_sequences = lambda: self._compiled(method, ticks, jacobian, held=False)
        return self._made[key]

    def layer(self, ticks: int) -> Engine:
        """Return the engine of a layer: backprop, with derivatives by the inputs."""
        method = METHODS["adjoint"]  # of a product with one gradient of the outputs it is the cheapest on every graph
        self.resolve("gradient", method.name, ticks, 1)  # refuses what does not fit
        return self._compile(method, Schedule(self.topology, ticks, self.awake, held=True), False, with_inputs=True)

    def _compile(self, method: Method, schedule: Schedule, jacobian: bool, with_inputs: bool = False) -> Engine:
        limit = available_memory() // 2
        try:
            plan = method.plan(self._draft(method, schedule, jacobian, emits=True, limit=limit), self.dtype.itemsize)
        except PlanTooLargeError:
            raise MemoryLimitError(
                f'the plan of gradient="{method.name}" at {schedule.ticks} ticks needs more than {format_bytes(limit)} '
                'of index arrays; use gradient="adjoint" or fewer ticks'
            ) from None
        influence = self._influence(schedule) if method is METHODS["influence"] else None
        return Engine(plan, self.dtype, self.codes, self._out_edges() if with_inputs else None, influence)

    def _influence(self, schedule: Schedule) -> Any:
        """Return the lists that carry the derivatives by all values from tick to tick."""
        from meshnn.plan.influence import plan_influence

        timed, number = schedule.timing is not None, self.number
        number = np.arange(self.topology.n_edges) if number is None else number
        plan = plan_influence(
            self.topology, number, self.n_numbers, self.codes, self.awake, schedule.ticks, timed, None,
            self.dtype.itemsize,
        )  # fmt: skip
        return _core.Struct("StreamPlan", vars(plan.course), self.dtype.char)

    def _out_edges(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return where the edges that leave each input begin, their destinations and the values of their weights."""
        t = self.topology
        ptr, order = edges_by_source(t.n_neurons, t.src)
        ptr = ptr[: t.n_inputs + 1].astype(np.int64)
        leaving = order[: ptr[-1]].astype(np.int64)  # edges into inputs lead nowhere: these are clamped
        number = leaving if self.number is None else self.number[leaving]
        return ptr, t.dst[leaving].astype(np.int64), np.ascontiguousarray(number, np.int64)

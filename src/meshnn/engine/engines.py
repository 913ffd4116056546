"""`Engines`: the choice of the gradient method of a mesh, and its compiled engines."""

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


def _evict_oldest(cache: dict[tuple[Any, ...], Any], timing: Timing | None, most: int = 16) -> None:
    """Before an entry with a timing is added, remove the oldest one: every mask of ticks needs an entry of its own."""
    timed = [] if timing is None else [key for key in tuple(cache) if key[-1] is not None]
    if len(timed) >= most:
        cache.pop(timed[0], None)


class Engines:
    """A cache of methods and compiled engines per number of ticks, for one graph with activations `codes` (n_neurons,).

    `number` is the index of the value that each edge takes its weight from, by default the number of the edge.
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
        self._found: dict[Any, Engine] = {}  # recent results of `find`

    # -- costs -----------------------------------------------------------------------------------------------------

    def costs(
        self, ticks: int, workers: int = 1, jacobian: bool = False, timing: Timing | None = None
    ) -> tuple[Cost, ...]:
        """Return the cost of every method."""
        key = (ticks, workers, jacobian, timing)
        if key not in self._costs:
            _evict_oldest(self._costs, timing)
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
        """Return the number of chunks that a batch is split into."""
        return -(-batch * self.dtype.itemsize // ROW_BYTES)

    def decide(self, ticks: int, batch: int, n_jobs: int | None = None, jacobian: bool = False) -> Decision:
        """Return the cost of every method and the choice of "auto"."""
        return decide(self.costs(ticks, self._workers(batch, n_jobs), jacobian), tuple(METHODS), available_memory())

    def resolve(
        self, need: str, method: str, ticks: int, batch: int, n_jobs: int | None = None,
        timing: Timing | None = None,
    ) -> Method:  # fmt: skip
        """Return the method to run; raise an error if it does not fit into memory or its plan would take too long."""
        workers = self._workers(batch, n_jobs)
        key = (need, method, ticks, self._chunks(batch), workers, timing)
        if key not in self._resolved:  # else its buffers are already allocated
            _evict_oldest(self._resolved, timing)
            costs = self.costs(ticks, workers, need in ("jacobian", "curvature"), timing)
            memory = available_memory()
            named = METHODS.get(known("gradient", method, ("auto", "forward", *METHODS)))
            able = [name for name, m in METHODS.items() if m.compiled or need not in ("epochs", "curvature")]
            if named is not None and (named.name in able or need != "curvature"):
                decision = Decision(costs, named.name, "as asked for")
            else:  # a named method without support for the need is replaced by one of its kind
                backprop = method == "auto" or (named is not None and not named.forward_only)
                decision = decide(costs, able, memory, backprop)
            needed = decision.cost(decision.chosen).bytes
            if needed > memory:
                others = [c.method for c in costs if c.bytes <= memory]
                advice = f'use gradient="{others[-1]}"' if others else "use fewer ticks or a smaller graph"
                check_fits(needed, f'gradient="{decision.chosen}" at {ticks} ticks', advice, memory)
            sets = decision.cost(decision.chosen).sets
            if sets > LIMITS.sets:
                others = [c.method for c in costs if c.sets <= LIMITS.sets]
                raise MeshError(
                    f'planning gradient="{decision.chosen}" at {ticks} ticks would need about {sets:,.0f} sets '
                    f'of neurons and take too long; use gradient="{others[-1]}" or fewer ticks'
                )
            self._resolved[key] = METHODS[decision.chosen]
        return self._resolved[key]

    # -- engines ---------------------------------------------------------------------------------------------------

    def outputs(self, ticks: int) -> Engine:
        """Return the engine that computes only the outputs."""
        found = self._found.get(ticks)
        if found is None:
            found = self._found[ticks] = self._compiled(FORWARD_PASS, ticks)
        return found

    def find(
        self, need: str, method: str, ticks: int, batch: int, n_jobs: int | None = None, again: bool = False,
        timing: Timing | None = None,
    ) -> Engine:  # fmt: skip
        """Return the engine for a need, see `Mesh.engine`; `again` reuses `method` after a change of the graph."""
        key = (need, method, ticks, batch, n_jobs, timing)
        found = None if again else self._found.get(key)
        if found is None:
            chosen = METHODS[method] if again else self.resolve(need, method, ticks, batch, n_jobs, timing)
            found = self._compiled(chosen, ticks, need in ("jacobian", "curvature"), timing=timing)
            if len(self._found) >= 16:
                self._found.clear()
            self._found[key] = found
        return found

    def forward_engine(self, ticks: int, timing: Timing | None, whole: bool) -> Engine:
        """Return the engine of a forward pass: for outputs, or for the states of all neurons if `whole`."""
        return self._compiled(STATES if whole else FORWARD_PASS, ticks, timing=timing)

    def candidates(
        self, method: str, ticks: int, pairs: tuple[IntArray, IntArray], batch: int, n_jobs: int | None,
        timing: Timing | None = None,
    ) -> Engine:  # fmt: skip
        """Return an engine for the gradient of edges that the graph does not have; it is not cached."""
        # a named method needs no estimate of its cost: its plan is refused if it does not fit
        chosen = METHODS.get(method) or self.resolve("gradient", method, ticks, batch, n_jobs, timing)
        if chosen is METHODS["influence"]:  # supports only the edges of the graph
            chosen = METHODS["factored"]
        schedule = Schedule(self.topology, ticks, self.awake, candidates=pairs, timing=timing)
        engine = self._compile(chosen, schedule, False)
        advice = 'request fewer edges at a time, or use gradient="adjoint"'
        check_fits(
            engine.plan.cost.bytes, f'gradient="{chosen.name}" for {len(pairs[0])} edges', advice, available_memory()
        )
        return engine

    def _compiled(
        self, method: Method, ticks: int, jacobian: bool = False, held: bool = True, timing: Timing | None = None
    ) -> Engine:
        held = held and timing is None
        if timing is not None and jacobian:
            method = METHODS["adjoint"]  # the only method with the curvature of a loss at several ticks
        key = (method.name, ticks, jacobian, held, timing)
        if key not in self._made:
            _evict_oldest(self._made, timing)
            schedule = Schedule(self.topology, ticks, self.awake, method is STATES, held=held, timing=timing)
            engine = self._made[key] = self._compile(method, schedule, jacobian)
            if timing is None:
                engine.in_time = lambda timing: self._compiled(method, ticks, jacobian, timing=timing)
            if engine.plan.held:
                engine.for_sequences = lambda: self._compiled(method, ticks, jacobian, held=False)
        return self._made[key]

    def layer(self, ticks: int) -> Engine:
        """Return the engine of a layer: backprop, with derivatives with respect to the inputs."""
        method = METHODS["adjoint"]  # the cheapest method for a vector-Jacobian product, on every graph
        self.resolve("gradient", method.name, ticks, 1)  # refuses a plan that does not fit into memory
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
        """Return the plan that carries the derivatives with respect to all values from tick to tick."""
        from meshnn.plan.influence import plan_influence

        timed, number = schedule.timing is not None, self.number
        number = np.arange(self.topology.n_edges) if number is None else number
        plan = plan_influence(
            self.topology, number, self.n_numbers, self.codes, self.awake, schedule.ticks, timed, None,
            self.dtype.itemsize,
        )  # fmt: skip
        return _core.Struct("StreamPlan", vars(plan.course), self.dtype.char)

    def _out_edges(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the edges that leave inputs: pointers per input, targets, and indices of their values."""
        t = self.topology
        ptr, order = edges_by_source(t.n_neurons, t.src)
        ptr = ptr[: t.n_inputs + 1].astype(np.int64)
        leaving = order[: ptr[-1]].astype(np.int64)  # edges into inputs have no effect
        number = leaving if self.number is None else self.number[leaving]
        return ptr, t.dst[leaving].astype(np.int64), np.ascontiguousarray(number, np.int64)

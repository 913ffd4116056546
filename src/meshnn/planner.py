"""`Planner`: which method a mesh runs, and the compiled programs it runs on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.engine import Program, cores, parts_of
from meshnn.errors import MemoryLimitError
from meshnn.kernels.codes import IDENTITY, NONZERO_AT_ZERO, RELU
from meshnn.memory import available_memory, check_fits, format_bytes
from meshnn.plan import Cost, Decision, Plan, compile_plan, decide, price
from meshnn.plan.compile import PlanTooLargeError
from meshnn.plan.plan import ROW_BYTES
from meshnn.topology import Topology

__all__ = ["Planner"]


def _too_large(method: str, ticks: int, limit: int) -> MemoryLimitError:
    return MemoryLimitError(
        f'the plan of method="{method}" at {ticks} ticks needs more than {format_bytes(limit)} of index arrays; '
        'use method="adjoint" or fewer ticks'
    )


def _entries(plan: Plan) -> float:
    """Multiply-adds of the forward pass, a sample."""
    entries = plan.ops.ptr[plan.ops.start].astype(np.int64)
    return float(np.diff(entries)[plan.forward[1:]].sum())


class Planner:
    """Decides and compiles once per number of ticks, for one graph with its activations."""

    def __init__(self, topology: Topology, codes: NDArray[np.int64], dtype: np.dtype[Any]) -> None:
        self.topology = topology
        self.codes = codes
        self.dtype = dtype
        self.awake = np.isin(codes, list(NONZERO_AT_ZERO))
        self.awake[: topology.n_clamped] = False
        self._activation_cost = np.where(np.isin(codes, (IDENTITY, RELU)), 1.0, 25.0)  # measured, benchmarks/ticks.py
        self._programs: dict[tuple[Any, ...], Program] = {}
        self._costs: dict[tuple[Any, ...], tuple[Cost, ...]] = {}
        self._resolved: dict[tuple[Any, ...], str] = {}

    def _workers(self, batch: int, n_threads: int | None) -> int:
        return min(cores() if n_threads is None else n_threads, len(parts_of(batch, self.dtype)))

    def _price(self, ticks: int, workers: int = 1, jacobian: bool = False) -> tuple[Cost, ...]:
        key = (ticks, workers, jacobian)
        if key not in self._costs:
            self._costs[key] = price(
                self.topology,
                ticks,
                self.awake,
                itemsize=self.dtype.itemsize,
                workers=workers,
                jacobian=jacobian,
                activation_cost=self._activation_cost,
            )
        return self._costs[key]

    def decide(
        self, ticks: int, batch: int, n_threads: int | None, jacobian: bool = False, way_out: bool = True
    ) -> Decision:
        """Cost of every method; the choice of `auto`, or of `forward` if there is no way out."""
        return decide(self._price(ticks, self._workers(batch, n_threads), jacobian), available_memory(), way_out)

    def resolve(self, method: str, ticks: int, batch: int, n_threads: int | None, jacobian: bool = False) -> str:
        """The method to run, once it is known to fit in memory."""
        key = (method, ticks, self._workers(batch, n_threads), jacobian)
        if key in self._resolved:  # its buffers are there
            return self._resolved[key]
        decision = self.decide(ticks, batch, n_threads, jacobian, way_out=method != "forward")
        chosen = decision.chosen if method in ("auto", "forward") else method
        needed, memory = decision.cost(chosen).bytes, available_memory()
        if needed > memory:
            others = [c.method for c in decision.costs if c.bytes <= memory and c.method != "tensor"]
            advice = f'use method="{others[-1]}"' if others else self._fewer_ticks(ticks, memory)
            check_fits(needed, f'method="{chosen}" at {ticks} ticks', advice, memory)
        self._resolved[key] = chosen
        return chosen

    def _fewer_ticks(self, ticks: int, memory: int) -> str:
        """Advice: the most ticks at which some method fits, by bisection."""

        def fits(ticks: int) -> bool:
            return min(c.bytes for c in self._price(ticks) if c.method != "tensor") <= memory

        least, most = 0, ticks  # fits at least (or nowhere), does not fit at most
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if fits(middle) else (least, middle)
        if least == 0:
            return "no method fits at any number of ticks: the graph needs a larger machine"
        return f"{least} ticks would fit"

    def program(self, method: str, ticks: int, jacobian: bool = False) -> Program:
        """The compiled plan of a method; of `forward_pass` (outputs only) and `states` too."""
        key = (method, ticks, jacobian)
        if key not in self._programs:
            limit = available_memory() // 2
            try:
                plan = compile_plan(self.topology, ticks, self.awake, method, jacobian=jacobian, limit=limit)
            except PlanTooLargeError:
                raise _too_large(method, ticks, limit) from None
            self._programs[key] = Program(plan, self.dtype, self.codes, self._work(plan, jacobian))
        return self._programs[key]

    def _work(self, plan: Plan, jacobian: bool) -> float:
        """Multiply-adds a sample, to tell whether threads pay."""
        priced = [c for c in self._price(plan.ticks, jacobian=jacobian) if c.method == plan.method]
        if priced:
            return priced[0].predicted
        return _entries(plan)

    def program_for(self, ticks: int, method: str, candidates: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Program:
        """A program that gives the gradient of other edges than the graph's own; not kept."""
        limit = available_memory() // 2
        try:
            plan = compile_plan(self.topology, ticks, self.awake, method, candidates=candidates, limit=limit)
        except PlanTooLargeError:
            raise _too_large(method, ticks, limit) from None
        store = plan.blocks.store_rows * ROW_BYTES if plan.blocks is not None else 0
        advice = 'ask for fewer edges at a time, or use method="adjoint"'
        needed = plan.nbytes + store
        check_fits(needed, f'method="{method}" for {len(candidates[0])} edges', advice, available_memory())
        return Program(plan, self.dtype, self.codes, _entries(plan) + plan.gradient_entries)

    def recompiled(self, ticks: int, method: str) -> Program:
        """The program of a method that is known to do, for a graph that has changed a little: nothing is priced."""
        key = (method, ticks, False)
        if key not in self._programs:
            limit = available_memory() // 2
            try:
                plan = compile_plan(self.topology, ticks, self.awake, method, limit=limit)
            except PlanTooLargeError:
                raise _too_large(method, ticks, limit) from None
            self._programs[key] = Program(plan, self.dtype, self.codes, _entries(plan) + plan.gradient_entries)
        return self._programs[key]

    def training_program(self, ticks: int, batch: int, method: str = "auto", jacobian: bool = False) -> Program:
        """The program that training runs on: as asked for, but among the two methods the training kernels know."""
        chosen = {"forward": "factored", "blocks": "factored"}.get(method, method)
        if chosen == "auto":
            costs = tuple(c for c in self._price(ticks, jacobian=jacobian) if c.method != "blocks")
            chosen = decide(costs, available_memory()).chosen
        self.resolve(chosen, ticks, batch, 1, jacobian)
        return self.program(chosen, ticks, jacobian)

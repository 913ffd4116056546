"""`Planner`: which method a mesh runs, and the compiled programs it runs on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.engine import Program, cores, parts_of
from meshnn.errors import MemoryLimitError
from meshnn.kernels.codes import IDENTITY, NONZERO_AT_ZERO, RELU
from meshnn.plan import Decision, compile_plan, decide
from meshnn.plan.compile import PlanTooLargeError
from meshnn.plan.memory import available_memory, format_bytes
from meshnn.topology import Topology

__all__ = ["Planner", "check_fits"]


def check_fits(needed: float, what: str, advice: str) -> None:
    """Raise if something would need more memory than the machine has."""
    memory = available_memory()
    if needed > memory:
        raise MemoryLimitError(
            f"{what} would need {format_bytes(needed)}, the machine has {format_bytes(memory)}; {advice}"
        )


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
        self._decisions: dict[tuple[Any, ...], Decision] = {}
        self._resolved: dict[tuple[Any, ...], str] = {}

    def _workers(self, batch: int, n_threads: int | None) -> int:
        return min(cores() if n_threads is None else n_threads, len(parts_of(batch, self.dtype)))

    def decide(
        self, ticks: int, batch: int, n_threads: int | None, jacobian: bool = False, way_out: bool = True
    ) -> Decision:
        """Cost of every method; the choice of `auto`, or of `forward` if there is no way out."""
        workers = self._workers(batch, n_threads)
        key = (ticks, workers, jacobian, way_out)
        if key not in self._decisions:
            self._decisions[key] = decide(
                self.topology,
                ticks,
                self.awake,
                memory=available_memory(),
                itemsize=self.dtype.itemsize,
                workers=workers,
                jacobian=jacobian,
                way_out=way_out,
                activation_cost=self._activation_cost,
            )
        return self._decisions[key]

    def resolve(self, method: str, ticks: int, batch: int, n_threads: int | None, jacobian: bool = False) -> str:
        """The method to run, once it is known to fit in memory."""
        key = (method, ticks, self._workers(batch, n_threads), jacobian)
        if key in self._resolved:  # it ran before, so it fits
            return self._resolved[key]
        decision = self.decide(ticks, batch, n_threads, jacobian, way_out=method != "forward")
        chosen = decision.chosen if method in ("auto", "forward") else method
        needed, memory = decision.cost(chosen).bytes, available_memory()
        if needed > memory:
            others = [c.method for c in decision.costs if c.bytes <= memory and c.method != "tensor"]
            advice = f'use method="{others[-1]}"' if others else self._fewer_ticks(ticks, memory)
            check_fits(needed, f'method="{chosen}" at {ticks} ticks', advice)
        self._resolved[key] = chosen
        return chosen

    def _fewer_ticks(self, ticks: int, memory: int) -> str:
        for fewer in range(ticks - 1, 0, -1):
            costs = decide(self.topology, fewer, self.awake, memory=memory, itemsize=self.dtype.itemsize).costs
            if min(c.bytes for c in costs) <= memory:
                return f"{fewer} ticks would fit"
        return "no method fits at any number of ticks: the graph needs a larger machine"

    def program(self, method: str, ticks: int, jacobian: bool = False) -> Program:
        """The compiled plan of a method; of `forward_pass` (outputs only) and `states` too."""
        key = (method, ticks, jacobian)
        if key not in self._programs:
            limit = available_memory() // 2
            try:
                plan = compile_plan(self.topology, ticks, self.awake, method, jacobian=jacobian, limit=limit)
            except PlanTooLargeError:
                raise MemoryLimitError(
                    f'the plan of method="{method}" at {ticks} ticks needs more than {format_bytes(limit)} of '
                    f'index arrays; use method="adjoint" or fewer ticks'
                ) from None
            costs = [c for (k, *_), d in self._decisions.items() if k == ticks for c in d.costs if c.method == method]
            work = costs[0].predicted if costs else float(len(plan.ops.col))
            self._programs[key] = Program(plan, self.dtype, self.codes, work)
        return self._programs[key]

    def program_for(self, ticks: int, method: str, candidates: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Program:
        """A program that gives the gradient of other edges than the graph's own; not kept."""
        plan = compile_plan(self.topology, ticks, self.awake, method, candidates=candidates)
        return Program(plan, self.dtype, self.codes, work=float(len(plan.ops.col) + plan.gradient_entries))

    def training_program(self, ticks: int, batch: int) -> Program:
        """The program that training steps run on: the method of `auto`, if the training kernel knows it."""
        chosen = self.resolve("auto", ticks, batch, 1)
        return self.program(chosen if chosen in ("factored", "adjoint") else "factored", ticks)

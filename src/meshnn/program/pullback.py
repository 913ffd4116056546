"""`Pullback`: a net as a function of inputs and weights, and its derivative against a gradient of the outputs.

It reads and writes memory of other libraries by address, and costs a call little more than its kernels do: those who
build a layer of some other library from a net run this.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.kernels.tuples import Desk, Sheet
from meshnn.methods import METHODS
from meshnn.parameters import Ties
from meshnn.program.program import WORTH_A_THREAD, Program, announced
from meshnn.program.programs import Programs
from meshnn.program.threads import cores, in_threads, parts_of, samples_of_one_part
from meshnn.schedule import ROW_BYTES
from meshnn.topology import Topology
from meshnn.topology.reach import edges_by_source

__all__ = ["Pullback", "Seat"]

I64 = NDArray[np.int64]
Array = NDArray[Any]
#: As in kernels/layer.py, which is not imported before it runs.
WEIGHTS, INPUTS, KEPT = 1, 2, 4
_NOTHING = nullcontext()
#: What an address is of which nothing is read or written.
NOWHERE = 0


class Seat:
    """Where one worker of a program sits. Whoever lets go of it gives it back."""

    __slots__ = ("_free", "desk", "room")

    def __init__(self, desk: Any, room: Any, free: list[tuple[Any, Any]]) -> None:
        self.desk, self.room, self._free = desk, room, free

    def __del__(self) -> None:
        self._free.append((self.desk, self.room))  # atomic


class Pullback:
    """A net of some ticks in one dtype.

    Parameters
    ----------
    programs : Programs
    ticks : int

    Notes
    -----
    Addresses are those of C-contiguous arrays of the dtype: `values` (n_numbers,), `X` (size, n_inputs), `Y` and `G`
    (size, n_outputs). Kernels check nothing. Numbers that are not finite are passed on, as other libraries do.
    """

    def __init__(self, programs: Programs, ticks: int) -> None:
        self._programs, self.ticks, self.dtype = programs, ticks, programs.dtype
        self.n_values = programs.n_numbers
        self._free: dict[Program, list[tuple[Any, Any]]] = {}
        self._sheets: dict[Program, Any] = {}
        self._row = ROW_BYTES // self.dtype.itemsize

    @classmethod
    def of(cls, topology: Topology, ticks: int, codes: I64, ties: Ties, dtype: np.dtype[Any]) -> Pullback:
        """That of a graph with its activations and ties."""
        return cls(Programs(topology, codes, dtype, None if ties.plain else ties.number, ties.n_numbers), ticks)

    @cached_property
    def _plain(self) -> Program:
        """Outputs alone."""
        return self._programs.outputs(self.ticks)

    @cached_property
    def _program(self) -> Program:
        """Backprop: of a product with one gradient of the outputs it is the cheapest method on every graph."""
        self._programs.resolve("gradient", METHODS["adjoint"].name, self.ticks, 1)  # refuses what does not fit
        return self._programs.find("gradient", METHODS["adjoint"].name, self.ticks, 1, again=True)

    @cached_property
    def _kernels(self) -> tuple[Any, Any]:
        from meshnn.kernels.layer import layer_back_part, layer_part

        return layer_part, layer_back_part

    def keep(self, values: int, X: int, Y: int, size: int, n_threads: int | None = None) -> Seat | None:
        """As `forward`; of samples that are one row, the seat keeps the states for `back`."""
        if size > self._row or size == 0:
            self.forward(values, X, Y, size, n_threads)
            return None
        program = self._program
        seat = self._seat(program)
        self._call(program, self._kernels[0], seat.desk, self._sheet(program), seat.room, 0, 1, size, values, X, Y)
        return seat

    def forward(self, values: int, X: int, Y: int, size: int, n_threads: int | None = None) -> None:
        """Write the outputs to Y."""
        program, kernel = self._plain, self._kernels[0]
        sheet = self._sheet(program)

        def one(first: int, last: int) -> None:
            seat = self._seat(program)
            program.call(kernel, seat.desk, sheet, seat.room, first, last, size, values, X, Y)

        self._in_parts(program, kernel, size, n_threads, one)

    def back(
        self, values: int, X: int, G: int, grad: int, dX: int, size: int, seat: Seat | None = None,
        n_threads: int | None = None,
    ) -> None:  # fmt: skip
        """Write dE/dvalues `(n_numbers,)` to `grad` and dE/dX to `dX`, unless the address is 0.

        With a seat that `keep` returned, `values` must still be there if dE/dX is asked for, and X is not looked at.
        """
        program, kernel = self._program, self._kernels[1]
        sheet, asked = self._sheet(program), (WEIGHTS if grad else 0) | (INPUTS if dX else 0)
        if seat is not None:
            program.call(
                kernel, seat.desk, sheet, seat.room, 0, 1, size, asked | KEPT, values, X, G, grad, dX
            )  # fmt: skip
            return
        if not size:
            _numbers(grad, self.n_values if grad else 0, self.dtype)[:] = 0
            return
        if size <= samples_of_one_part(self.dtype, program.work):
            alone = self._seat(program)
            chunks = -(-size // self._row)
            self._call(program, kernel, alone.desk, sheet, alone.room, 0, chunks, size, asked, values, X, G, grad, dX)
            return
        parts: dict[int, Array] = {}

        def one(first: int, last: int) -> None:
            own = np.empty(self.n_values if grad else 0, self.dtype)
            mine = self._seat(program)
            where = own.__array_interface__["data"][0] if grad else NOWHERE
            program.call(kernel, mine.desk, sheet, mine.room, first, last, size, asked, values, X, G, where, dX)
            parts[first] = own

        self._in_parts(program, kernel, size, n_threads, one)
        if grad:  # in order, whoever was first
            total = sum(parts[first].astype(np.float64) for first in sorted(parts))
            _numbers(grad, self.n_values, self.dtype)[:] = total

    def _call(self, program: Program, kernel: Any, *arguments: Any) -> None:
        with _NOTHING if kernel in program._entries else announced(kernel, self.dtype):
            program.call(kernel, *arguments)

    def _in_parts(self, program: Program, kernel: Any, size: int, n_threads: int | None, one: Any) -> None:
        if not size:
            return
        if size <= self._row and kernel in program._entries:
            one(0, 1)
            return
        parts = parts_of(size, self.dtype, program.work)
        most = cores() if n_threads is None else min(n_threads, cores())
        threads = most if size * program.work >= WORTH_A_THREAD else 1
        with _NOTHING if kernel in program._entries else announced(kernel, self.dtype):
            in_threads(len(parts), threads, lambda p: one(*parts[p]))

    def _seat(self, program: Program) -> Seat:
        free = self._free.setdefault(program, [])
        try:
            return Seat(*free.pop(), free)
        except IndexError:
            pass
        from meshnn.kernels._kept import Kept
        from meshnn.kernels._row import aligned, lanes

        plan, worker, L = program.plan, program.borrow(), lanes(self.dtype)
        g = np.empty(0 if plan.straight else len(plan.gives), self.dtype)
        desk = Desk(
            np.empty(len(plan.reads), self.dtype), program.codes, aligned((1, 1, plan.n_inputs, L), self.dtype),
            np.empty((1, 0, plan.n_inputs), self.dtype), aligned((plan.n, L), self.dtype), g,
        )  # fmt: skip
        return Seat(Kept(desk), worker.kept, free)

    def _sheet(self, program: Program) -> Any:
        found = self._sheets.get(program)
        if found is not None:
            return found
        from meshnn.kernels._kept import Kept

        plan, t = program.plan, self._programs.topology
        ptr, order = edges_by_source(t.n_neurons, t.src)
        ptr = ptr[: t.n_inputs + 1].astype(np.int64)
        leaving = order[: ptr[-1]].astype(np.int64)
        # edges into inputs lead nowhere: these are clamped
        numbers = leaving if self._programs.number is None else self._programs.number[leaving]
        runs = plan.give_runs[:0] if plan.straight else plan.give_runs
        sheet = Sheet(
            plan.reads, plan.read_runs, plan.gives, runs, ptr, t.dst[leaving].astype(np.int64),
            np.ascontiguousarray(numbers, np.int64), self.n_values, t.n_outputs,
        )  # fmt: skip
        self._sheets[program] = Kept(sheet)
        return self._sheets[program]


def _numbers(address: int, count: int, dtype: np.dtype[Any]) -> Array:
    """So many numbers at an address, as an array."""
    import ctypes

    raw: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address) if count else bytearray()
    return np.frombuffer(raw, dtype)

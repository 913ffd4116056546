"""A barrier for threads that run the same kernel: nobody goes on before all have come.

It spins, because steps of training are shorter than what the system needs to wake a thread; whoever waits for long
offers the processor to others.
"""

from __future__ import annotations

import sys

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from meshnn.kernels._jit import jit_inner

__all__ = ["ABANDONED", "GATE", "abandoned", "meet"]

#: Numbers of a gate: those who have come, and, on another line of the cache, how often all have. Between them, whether
#: somebody will never come.
GATE = 16
ABANDONED = 1
_PASSED = 8
#: Looks before a thread offers its processor to others: some 20 microseconds.
LOOKS = 2000

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _place(context, builder, array, kind, position):
    found = context.make_array(kind)(context, builder, array)
    return builder.gep(found.data, [context.get_constant(types.intp, position)])


@intrinsic
def _arrive(typingctx, gate):
    """One more has come; how many had before."""

    def generate(context, builder, sig, args):
        place = _place(context, builder, args[0], sig.args[0], 0)
        return builder.atomic_rmw("add", place, _I64(1), "seq_cst")

    return types.int64(gate), generate


def _reader(position):
    @intrinsic
    def read(typingctx, gate):
        def generate(context, builder, sig, args):
            return builder.load_atomic(_place(context, builder, args[0], sig.args[0], position), "acquire", 8)

        return types.int64(gate), generate

    return read


#: How often all have come.
_passed = _reader(_PASSED)
#: Whether somebody will never come: nobody waits any more.
abandoned = _reader(ABANDONED)


@intrinsic
def _open(typingctx, gate, passed):
    """All have come, for the so-manieth time."""

    def generate(context, builder, sig, args):
        builder.store_atomic(_I64(0), _place(context, builder, args[0], sig.args[0], 0), "monotonic", 8)
        builder.store_atomic(args[1], _place(context, builder, args[0], sig.args[0], _PASSED), "release", 8)
        return context.get_dummy_value()

    return types.void(gate, types.int64), generate


@intrinsic
def _yield(typingctx):
    """Let others run."""

    def generate(context, builder, sig, args):
        if sys.platform != "win32":  # whose C library has none
            kind = ir.FunctionType(_I32, [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


@jit_inner
def meet(gate, count):
    """Wait until so many threads have come here."""
    if count == 1:
        return
    before = _passed(gate)
    if _arrive(gate) == count - 1:
        _open(gate, before + 1)
        return
    looks = 0
    while _passed(gate) == before and abandoned(gate) == 0:
        looks += 1
        if looks > LOOKS:
            _yield()

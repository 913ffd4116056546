"""Denormal numbers, which are below 1e-38 in float32, taken for 0 while a kernel runs.

Processors compute with them up to a hundred times slower, and nets that forget make many of them. What a thread had
set is restored when the kernel ends. Where the processor is none of those known here, nothing is set.
"""

from __future__ import annotations

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["flush_denormals", "keep_denormals", "restore"]

_I32, _I64, _BYTES = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
_MACHINE = binding.get_process_triple().split("-")[0]
_X86 = _MACHINE in ("x86_64", "i386", "i686")
_ARM = _MACHINE in ("aarch64", "arm64")
#: Flush results (bit 15) and take operands (bit 6) for 0: the register MXCSR.
_X86_BITS = 0x8040
#: Both in one bit of the register FPCR.
_ARM_BITS = 1 << 24


def _x86(builder, name, place):
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [_BYTES]), f"llvm.x86.sse.{name}"
    )
    builder.call(function, [builder.bitcast(place, _BYTES)])


def _arm_read(builder):
    return builder.asm(ir.FunctionType(_I64, []), "mrs $0, fpcr", "=r", [], True)


def _arm_write(builder, value):
    builder.asm(ir.FunctionType(ir.VoidType(), [_I64]), "msr fpcr, $0", "r", [value], True)


def _begin(change):
    """Code that changes the mode by a function of builder, mode and bits, and gives what it was before."""

    def generate(context, builder, sig, args):
        if _X86:
            place = cgutils.alloca_once(builder, _I32)
            _x86(builder, "stmxcsr", place)
            before = builder.load(place)
            builder.store(change(builder, before, _I32, _X86_BITS), place)
            _x86(builder, "ldmxcsr", place)
            return builder.zext(before, _I64)
        if _ARM:
            before = _arm_read(builder)
            _arm_write(builder, change(builder, before, _I64, _ARM_BITS))
            return before
        return _I64(0)

    return generate


@intrinsic
def flush_denormals(typingctx):
    """Begin; what to hand to `restore`."""
    return types.int64(), _begin(lambda builder, mode, kind, bits: builder.or_(mode, kind(bits)))


@intrinsic
def keep_denormals(typingctx):
    """The same for kernels whose bits must not depend on what a thread had set: denormal numbers are what they are."""
    return types.int64(), _begin(lambda builder, mode, kind, bits: builder.and_(mode, builder.not_(kind(bits))))


@intrinsic
def restore(typingctx, mode):
    """As it was before `flush_denormals`."""

    def generate(context, builder, sig, args):
        if _X86:
            place = cgutils.alloca_once(builder, _I32)
            builder.store(builder.trunc(args[0], _I32), place)
            _x86(builder, "ldmxcsr", place)
        elif _ARM:
            _arm_write(builder, args[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate

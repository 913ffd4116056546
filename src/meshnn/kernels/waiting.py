"""Waiting for another thread without sleeping: waking a sleeping thread takes longer than a small gradient."""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from meshnn.kernels._jit import jit

__all__ = ["wait_for"]


@intrinsic
def _read(typingctx, flag):
    """flag[0] as it is in memory now; an ordinary load would be moved out of the loop."""

    def generate(context, builder, sig, args):
        array = context.make_array(sig.args[0])(context, builder, args[0])
        return builder.load_atomic(array.data, ordering="acquire", align=8)

    return types.int64(flag), generate


@jit
def wait_for(flag, spins):
    """Whether flag[0] became non-zero while we looked so many times. Runs without the GIL."""
    for _ in range(spins):
        if _read(flag) != 0:
            return True
    return False

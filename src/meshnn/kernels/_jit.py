"""The one place that decides how kernels are compiled.

* `jit` and `jit_inner` allow the reorderings that vector code needs. They do not allow the compiler to assume that NaN
  and infinity do not happen: they must stay visible in the result.
* `jit_exact` forbids reordering, for the elementary functions, whose accuracy depends on the order of operations.
  LLVM keeps these permissions per instruction, so an exact function stays exact when inlined into a fast one.
* `jit_strict` and `jit_strict_inner` forbid everything, also fused multiply-adds: the bits are those of any machine.
* Compiled code is cached on disk (`_cache.py`).
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager, suppress
from types import FunctionType

from numba import njit, typeof

from meshnn.kernels._cache import KernelCache
from meshnn.kernels._compiler import EntryCompiler, InnerCompiler

__all__ = [
    "FAST",
    "announce",
    "entry_point",
    "jit",
    "jit_exact",
    "jit_inline",
    "jit_inner",
    "jit_strict",
    "jit_strict_inner",
    "variant",
]

#: LLVM's permissions without `nnan` and `ninf`.
FAST = ("reassoc", "nsz", "arcp", "contract", "afn")


def _compile(function, fastmath, entry=True, inline=False):
    options = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": fastmath,
        # only entry points are called from Python; the wrappers of the others would be compiled for nothing
        "no_cpython_wrapper": not entry,
        "no_cfunc_wrapper": True,
        "forceinline": inline,
        # Kernels own nothing: whoever calls them holds the arrays. Numba would count references to them all the same,
        # at every look into a tuple and every view, also in loops, which made small nets up to three times slower.
        "_nrt": False,
    }
    dispatcher = njit(**options, pipeline_class=EntryCompiler if entry else InnerCompiler)(function)
    with suppress(RuntimeError):  # no folder that could be written to: compile in every process
        dispatcher._cache = KernelCache(function)
    return dispatcher


def jit(function):
    """Compile an entry point for speed: sums may be reordered."""
    return _compile(function, set(FAST))


def jit_inner(function):
    """The same for a function that only other kernels call."""
    return _compile(function, set(FAST), entry=False)


def jit_inline(function):
    """The same, always inlined: a call would pass rows through memory and the fields of all arrays on the stack."""
    return _compile(function, set(FAST), entry=False, inline=True)


def jit_exact(function):
    """The same with the arithmetic as written."""
    return _compile(function, {"contract"}, entry=False)


def jit_strict(function):
    """Compile an entry point with every operation rounded on its own, in the order it is written in."""
    return _compile(function, False)


def jit_strict_inner(function):
    """The same for a function that only other kernels call."""
    return _compile(function, False, entry=False)


def variant(function, name, **others):
    """The same function by another name, in which some of the functions that it calls are others."""
    found = FunctionType(function.__code__, function.__globals__ | others, name, function.__defaults__)
    found.__qualname__, found.__module__, found.__doc__ = name, function.__module__, function.__doc__
    return found


def entry_point(kernel, arguments):
    """The machine code of a kernel that has been called with arguments of these types.

    Numba looks at the types of all arguments at every call, which takes longer than a small gradient. Whoever knows
    that they are always the same calls this instead.
    """
    return kernel.overloads[tuple(map(typeof, arguments))].entry_point


_seen: set[tuple] = set()


@contextmanager
def announce(kernel, *key):
    """Say on screen that a kernel is being compiled, once it takes so long that a person would wonder.

    A kernel loaded from the cache is silent, however slow the disk or long the run; so is all with `MESHNN_QUIET=1`.
    """
    name = (kernel.__name__, *key)
    if name in _seen or os.environ.get("MESHNN_QUIET"):
        yield
        return
    text = f"meshnn: compiling {kernel.__name__} for {', '.join(map(str, key))} (once; later runs load it from disk)"
    done = threading.Event()
    misses = sum(kernel.stats.cache_misses.values())

    def watch():
        while not done.wait(0.4):
            if sum(kernel.stats.cache_misses.values()) > misses:
                print(text, file=sys.stderr, flush=True)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()
    _seen.add(name)

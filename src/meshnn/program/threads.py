"""Threads: Python's own, in kernels that release the GIL.

Numba's thread pool ends the process when two threads use it at once; Python's does not mind. A caller works itself and
takes back what nobody has begun, so it never waits for a worker that is busy elsewhere. Workers of our own that looked
for work for a while before they slept were no faster: own over pool 0.84 to 1.29, on average 1.00, for 9 sizes of
batches twice, on 2 idle cores.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np

from meshnn.errors import MeshError
from meshnn.schedule import ROW_BYTES

__all__ = [
    "PARTS",
    "chunks_of",
    "cores",
    "halves",
    "in_threads",
    "parts_of",
    "samples_of_one_part",
    "team_parts",
    "thread_count",
    "together",
]

#: Most parts of a slab, and so most threads that work on it.
PARTS = 8
#: Fewest chunks that are worth a part of their own.
FEWEST_CHUNKS = 4
#: Multiply-adds that are worth a part of their own: a part costs some 40 microseconds of Python.
LEAST_WORK = 3_000_000
#: The same for a team: each part has a gradient of its own, and all of them are added up.
FEWEST_TEAM_CHUNKS = 2
LEAST_TEAM_WORK = 1_000_000
#: Share of the work that must be in tiles for a row of samples to be worth halving.
MOSTLY = 0.9
#: Seconds that a team waits for those who were called.
PATIENCE = 0.05


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count(name: str, value: Any) -> int | None:
    """So many threads, or None for as many as pay; -1 is all cores, -2 all but one, as joblib has it."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value < 0:
        return max(cores() + 1 + int(value), 1)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
        raise MeshError(f"{name} must be a whole number of at least 1, or -1 for all cores, got {value!r}")
    return None if value is None else int(value)


def chunks_of(size: int, dtype: np.dtype[Any]) -> int:
    """Rows of samples that a batch fills."""
    return -(-size * dtype.itemsize // ROW_BYTES)


def samples_of_one_part(dtype: np.dtype[Any], work: float = float("inf")) -> int:
    """Up to so many samples, each of which makes so much work, are one part."""
    return max((2 * FEWEST_CHUNKS - 1) * ROW_BYTES // dtype.itemsize, int(2 * LEAST_WORK / work) - 1)


def parts_of(size: int, dtype: np.dtype[Any], work: float = float("inf")) -> list[tuple[int, int]]:
    """A slab of `size` samples as up to `PARTS` runs of chunks.

    Depends on nothing but the size and the work a sample makes (in multiply-adds), so that the number of threads does
    not change a sum.
    """
    chunks = chunks_of(size, dtype)
    if size <= samples_of_one_part(dtype):
        return [(0, chunks)]
    count = int(max(1, min(PARTS, chunks // FEWEST_CHUNKS, size * work // LEAST_WORK)))
    return [(chunks * p // count, chunks * (p + 1) // count) for p in range(count)]


def team_parts(size: int, per: int, work: float) -> int:
    """Parts of a batch of so many samples, so many per chunk, for a team that takes steps together.

    They may be smaller than parts of a call, because threads meet in compiled code; but each has a gradient of its own,
    so two chunks should share one, unless they are all there are.
    """
    chunks = -(-size // per)
    return int(max(1, min(PARTS, max(chunks // FEWEST_TEAM_CHUNKS, min(chunks, 2)), size * work // LEAST_TEAM_WORK)))


def halves(size: int, lanes: int, work: float, in_tiles: float) -> bool:
    """Whether a batch that fills one row of samples had better be two, for two threads: only tiles can halve a row."""
    return lanes // 2 < size <= lanes and size * work >= 2 * LEAST_TEAM_WORK and in_tiles > MOSTLY


_pool: ThreadPoolExecutor | None = None


def _workers() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max(cores(), PARTS) - 1, "meshnn worker")
    return _pool


def _forget() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget)


def in_threads(count: int, threads: int, task: Callable[[int], Any]) -> list[Any]:
    """`[task(0), task(1), ...]`, computed by up to so many threads; each takes the next task that is left."""
    if threads <= 1 or count <= 1:
        return [task(p) for p in range(count)]
    results: list[Any] = [None] * count
    left = iter(range(count))
    guard = threading.Lock()

    def work() -> None:
        while True:
            with guard:
                p = next(left, None)
            if p is None:
                return
            results[p] = task(p)

    with _helped([_workers().submit(work) for _ in range(min(threads, count) - 1)]):
        work()
    return results


def together(threads: int, task: Callable[[int, int], Any], abandon: Callable[[], None]) -> Any:
    """`task(me, count)` in `count` threads at the same time, up to so many; what the first, the caller, returns.

    Tasks wait for each other in compiled code, so nobody may begin before it is known who is there: workers that are
    busy elsewhere do not come. If one fails, or the caller is interrupted, before it has got so far, `abandon` sends
    the others home.
    """
    if threads <= 1:
        return task(0, 1)
    guard, known, count = threading.Condition(), threading.Event(), [1]

    def safely(me: int) -> Any:
        try:
            return task(me, count[0])
        except BaseException:
            abandon()
            raise

    def work() -> None:
        with guard:
            if known.is_set():  # too late
                return
            me = count[0]
            count[0] += 1
            guard.notify()
        known.wait()
        safely(me)

    with _helped([_workers().submit(work) for _ in range(threads - 1)]):
        try:
            with guard:
                guard.wait_for(lambda: count[0] == threads, PATIENCE)
                known.set()
            return safely(0)
        except BaseException:  # before the first line of `safely`, too
            abandon()
            raise
        finally:
            known.set()


@contextmanager
def _helped(helpers: list[Future[None]]) -> Iterator[None]:
    """While helpers work: all have stopped before anything is raised or returned; what went wrong there is raised."""
    try:
        yield
    finally:
        interrupts = [interrupt for helper in helpers if (interrupt := _end(helper)) is not None]
    for helper in helpers:
        if not helper.cancelled():
            helper.result()
    if interrupts:
        raise interrupts[0]


def _end(helper: Future[None]) -> BaseException | None:
    """Wait until a helper has ended, whatever happens; what interrupted the wait."""
    interrupt: BaseException | None = None
    while not (helper.cancel() or helper.done()):
        try:
            wait([helper])
        except BaseException as error:  # Ctrl-C: kernels end soon, and buffers must not be given back before
            interrupt = error
    return interrupt

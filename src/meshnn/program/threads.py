"""Threads: Python's own, in kernels that release the GIL.

Numba's thread pool ends the process when two threads use it at once; these workers do not mind. A caller borrows the
idle ones, so nobody ever waits for a worker, and works itself. Workers look for new work for a short while before they
sleep: waking one takes about as long as a small gradient.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.schedule import ROW_BYTES

__all__ = ["PARTS", "chunks_of", "cores", "in_threads", "parts_of"]

#: Most parts of a slab, and so most threads that work on it.
PARTS = 8
#: Fewest chunks that are worth a part of their own.
FEWEST_CHUNKS = 4
#: Multiply-adds that are worth a part of their own: a part costs some 40 microseconds of Python.
LEAST_WORK = 3_000_000
#: Looks at a flag before a thread goes to sleep: about a tenth of a millisecond.
SPINS = 100_000


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunks_of(size: int, dtype: np.dtype[Any]) -> int:
    """Rows of samples that a batch fills."""
    return -(-size * dtype.itemsize // ROW_BYTES)


def parts_of(size: int, dtype: np.dtype[Any], work: float = float("inf")) -> list[tuple[int, int]]:
    """A slab of `size` samples as up to `PARTS` runs of chunks.

    Depends on nothing but the size and the work a sample makes (in multiply-adds), so that the number of threads does
    not change a sum.
    """
    chunks = chunks_of(size, dtype)
    count = int(max(1, min(PARTS, chunks // FEWEST_CHUNKS, size * work // LEAST_WORK)))
    return [(chunks * p // count, chunks * (p + 1) // count) for p in range(count)]


class _Worker(threading.Thread):
    """A thread that runs one job at a time."""

    def __init__(self) -> None:
        super().__init__(name="meshnn worker", daemon=True)
        self._go: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._done: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._wake, self._finished = threading.Event(), threading.Event()
        self._job: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self.start()

    def hand(self, job: Callable[[], None]) -> None:
        """Start a job; `join_job` must follow."""
        self._job, self._error = job, None
        self._finished.clear()
        self._done[0] = 0
        self._go[0] = 1
        self._wake.set()

    def join_job(self) -> BaseException | None:
        """Wait until the job has ended, whatever happens; what it raised, or what interrupted the wait."""
        from meshnn.kernels.waiting import wait_for

        interrupt: BaseException | None = None
        while True:
            try:
                wait_for(self._done, SPINS)
                self._finished.wait()  # also after the flag was seen: the worker is free only then
                return self._error or interrupt
            except BaseException as error:  # Ctrl-C: kernels end soon, and a worker at work must not be given back
                interrupt = error

    def run(self) -> None:
        from meshnn.kernels.waiting import wait_for

        while True:
            while not self._go[0]:
                if not wait_for(self._go, SPINS):
                    self._wake.wait()
                self._wake.clear()
            self._go[0] = 0
            try:
                assert self._job is not None
                self._job()
            except BaseException as error:  # handed to the caller, who raises it
                self._error = error
            self._job = None
            self._done[0] = 1
            self._finished.set()


_idle: list[_Worker] = []
_count = 0
_lock = threading.Lock()


def _forget() -> None:
    global _count, _lock
    _idle.clear()
    _count, _lock = 0, threading.Lock()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget)


def _borrow(wanted: int) -> list[_Worker]:
    """Up to so many workers; fewer if others are using them."""
    global _count
    with _lock:
        while len(_idle) < wanted and _count < max(cores(), PARTS) - 1:
            _idle.append(_Worker())
            _count += 1
        taken = _idle[:wanted]
        del _idle[:wanted]
    return taken


def _give_back(workers: list[_Worker]) -> None:
    with _lock:
        _idle.extend(workers)


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

    workers = _borrow(min(threads, count) - 1)
    handed: list[_Worker] = []
    errors: list[BaseException | None] = []
    try:
        for worker in workers:
            handed.append(worker)
            worker.hand(work)
        work()
    finally:  # every worker must have stopped before anything is raised or returned
        errors = [worker.join_job() for worker in handed]
        _give_back(workers)
    for error in errors:
        if error is not None:
            raise error
    return results

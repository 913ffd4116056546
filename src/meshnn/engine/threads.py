"""The number of threads of a call; the core creates the threads."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from meshnn.errors import MeshError

__all__ = ["BUCKETS", "cores", "thread_count", "threads_for"]

#: Maximum number of buckets of a batch, and therefore of threads that work on it.
BUCKETS = 8


def cores() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count(name: str, value: Any) -> int | None:
    """Return a checked number of threads: None is automatic, -1 means all cores, -2 all but one, as in joblib."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value < 0:
        return max(cores() + 1 + int(value), 1)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
        raise MeshError(f"{name} must be a whole number of at least 1, or -1 for all cores, got {value!r}")
    return None if value is None else min(int(value), 1024)  # threads beyond the number of buckets stay idle


def threads_for(work: float, n_jobs: int | None) -> int:
    """Return the number of threads for an amount of work, in multiply-adds."""
    if n_jobs is not None:
        return n_jobs
    return 1 if work < 1_000_000 else cores()  # below, starting a second thread costs more than it saves

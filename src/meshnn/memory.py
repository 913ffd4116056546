"""Available memory, and the check that a computation fits in it."""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path

from meshnn.errors import MemoryLimitError

__all__ = ["available_memory", "check_fits", "format_bytes"]


def _limits(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return the available bytes according to the kernel and to each memory limit of the container."""
    found: list[int] = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except OSError:
        pass
    for folder, limit, used in (
        (root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            most = (folder / limit).read_text().strip()
            if most.isdigit():
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                cache = int(stat.get("inactive_file", 0))  # file cache, which the kernel frees on demand
                found.append(int(most) - int((folder / used).read_text()) + cache)
        except (OSError, ValueError):
            pass
    return found


def available_memory() -> int:
    """Return the number of bytes that a computation may allocate, measured at most half a second ago."""
    # cached, because reading it takes 0.3 ms and preparing a mesh needs it several times
    return _available(time.monotonic_ns() // 500_000_000)


@lru_cache(maxsize=1)
def _available(moment: int) -> int:
    found = _limits()
    if not found and hasattr(os, "sysconf"):  # neither Linux nor a container: the physical memory
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    return max(min(found, default=2**33), 0)


def format_bytes(count: float) -> str:
    """Return a number of bytes as text with a unit.

    >>> format_bytes(1536), format_bytes(3 * 2**30)
    ('1.5 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if count < 1024 or unit == "EiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def check_fits(needed: float, what: str, advice: str, memory: int | None = None) -> None:
    """Raise `MemoryLimitError` if `what` needs more memory than the machine has available."""
    memory = available_memory() if memory is None else memory
    if needed > memory:
        raise MemoryLimitError(
            f"{what} would need {format_bytes(needed)}, the machine has {format_bytes(memory)}; {advice}"
        )

"""SIGTERM, by which schedulers end a run: as Ctrl-C, so that a checkpoint can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["sigterm_interrupts"]


@contextmanager
def sigterm_interrupts(came: list[int], wanted: bool = True) -> Iterator[None]:
    """Let SIGTERM be a KeyboardInterrupt, and note in the list that it came.

    Only where it would end the process at once: another's handler stays, and threads cannot set one.
    """
    free = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not wanted or not free:
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        came.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

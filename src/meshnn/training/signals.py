"""Ctrl-C, and SIGTERM, by which schedulers end a run: as Ctrl-C, so that a checkpoint can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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

    interrupt.raises = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def heard_interrupts() -> Iterator[Callable[[], None]]:
    """A function that raises KeyboardInterrupt if one came and was lost.

    Python raises it wherever the main thread is. In a finaliser, or in what is called when something that is referred
    to weakly goes (a thread has that), exceptions are ignored, and a run of many short epochs would go on for ever.
    Only handlers that raise are replaced: any other handler was set for another purpose.
    """
    came: list[int] = []
    replaced: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        came.append(number)
        replaced[number](number, frame)

    note.raises = True  # type: ignore[attr-defined]

    def check() -> None:
        if came:
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if handler is signal.default_int_handler or getattr(handler, "raises", False):
                replaced[number] = handler
                signal.signal(number, note)
    try:
        yield check
    finally:
        for heard, handler in replaced.items():
            signal.signal(heard, handler)

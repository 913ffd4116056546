"""Handling of Ctrl-C and of SIGTERM, which schedulers send; both interrupt a fit so that a checkpoint can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def sigterm_interrupts(received: list[int], wanted: bool = True) -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and append the signal number to `received`.

    This is done only in the main thread and only if SIGTERM has its default handler.
    """
    free = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not wanted or not free:
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    interrupt.raises = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def heard_interrupts() -> Iterator[Callable[[], None]]:
    """Provide a function that raises KeyboardInterrupt if an interrupt was received but its exception was lost.

    Python ignores exceptions in finalisers and in callbacks of weak references (threads have one), so that an interrupt
    there would not end a run of many short epochs. Only handlers that raise are replaced; any other handler was set for
    another purpose.
    """
    received: list[int] = []
    replaced: dict[int, Any] = {}

    def record(number: int, frame: Any) -> None:
        received.append(number)
        replaced[number](number, frame)

    record.raises = True  # type: ignore[attr-defined]

    def check() -> None:
        if received:
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if handler is signal.default_int_handler or getattr(handler, "raises", False):
                replaced[number] = handler
                signal.signal(number, record)
    try:
        yield check
    finally:
        for replaced_number, handler in replaced.items():
            signal.signal(replaced_number, handler)

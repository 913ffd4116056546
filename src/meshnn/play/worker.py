"""`PageWorker`: the training process of one page; it ends with the page.

Messages are read from the process only as fast as the page receives them. A page that does not read therefore blocks
the process, and then its own orders, instead of filling a queue.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from meshnn.play.limits import LIMITS
from meshnn.play.session import PlaySession
from meshnn.play.views import Message

__all__ = ["PageWorker"]


class PageWorker:
    """A process that receives orders and sends messages."""

    def __init__(self, path: str | None = None, target: str = "") -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, path, target), name="meshnn play", daemon=True)
        self.process.start()
        theirs.close()  # otherwise the end of the process would not be detected
        self._threads = ThreadPoolExecutor(2, "meshnn play")  # one to send, one to receive

    async def send(self, order: str) -> None:
        """Send an order to the process; `receive` detects if the process has ended."""
        with suppress(OSError):
            await self._in_thread(self._connection.send, order)

    async def receive(self) -> Message | None:
        """Wait for the next message; None if the process has ended."""
        try:
            message: Message = await self._in_thread(self._connection.recv)
        except (EOFError, OSError):
            return None
        return message

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def close(self) -> None:
        """End the process, which has no state to save."""
        self.process.kill()
        await asyncio.to_thread(self.process.join)
        await asyncio.to_thread(self._threads.shutdown)  # they end because the process has ended
        self._connection.close()


def _serve(connection: Connection, path: str | None, target: str) -> None:
    """Alternate between orders and training until the connection is closed or the main process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the server, which then closes the connection

    def send(messages: list[Message]) -> None:
        for message in messages:
            connection.send(message)

    with suppress(EOFError, OSError):
        session = PlaySession(None if path is None else Path(path), target)
        send(session.receive('{"do": "hello"}'))
        while True:
            wait = session.waits
            for _ in range(LIMITS.orders):
                if not connection.poll(wait):
                    break
                send(session.receive(connection.recv()))
                wait = 0.0
            send(session.advance())

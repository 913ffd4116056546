"""`Session`: a page that is open, and the process that learns for it; the one ends with the other."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from multiprocessing.connection import Connection

from meshnn.play.trainer import serve

__all__ = ["Session"]

#: Seconds that a process has to end of its own accord.
GRACE = 2.0


class Session:
    """Starts a process of its own; `orders` go in by `send`, messages come out of `messages`, None at the end."""

    def __init__(self, path: str | None = None, target: str = "") -> None:
        context = multiprocessing.get_context("spawn")
        self._mine, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, path, target), name="meshnn play", daemon=True)
        self.process.start()
        theirs.close()  # else its end would never be noticed
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=_listen, args=(self._mine, self.messages, loop), daemon=True).start()

    async def send(self, order: str) -> None:
        """Hand on an order; a process that is gone has said so by the end of its messages."""
        try:
            await asyncio.to_thread(self._mine.send_bytes, order.encode("utf-8", "replace"))
        except OSError:
            return

    async def close(self) -> None:
        """End the process, by force if it must be."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        # what listens holds the connection: the process goes first
        self.process.terminate()
        self.process.join(GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(GRACE)


def _listen(connection: Connection, messages: asyncio.Queue[bytes | None], loop: asyncio.AbstractEventLoop) -> None:
    try:
        while True:
            received = connection.recv_bytes()
            loop.call_soon_threadsafe(messages.put_nowait, received)
    except (EOFError, OSError):
        pass
    except RuntimeError:  # the loop is closed: nobody is left to tell
        return
    finally:
        connection.close()
    try:
        loop.call_soon_threadsafe(messages.put_nowait, None)
    except RuntimeError:
        return

"""What runs in the process of a page: orders in, slices of learning, frames out, until the page is gone."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from pathlib import Path

from meshnn.play.bench import PlaySession
from meshnn.play.frames import Message

__all__ = ["serve"]

#: Orders that are taken before learning goes on, if there are so many.
AT_ONCE = 32


def serve(connection: Connection, path: str | None = None, target: str = "") -> None:
    """Until the other end is closed, or is gone with the process that had it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then closes its end
    try:
        bench = PlaySession(None if path is None else Path(path), target)
        _send(connection, bench.receive('{"do": "hello"}'))
        while True:
            wait = bench.waits
            for _ in range(AT_ONCE):
                if not connection.poll(wait):
                    break
                _send(connection, bench.receive(connection.recv_bytes().decode("utf-8", "replace")))
                wait = 0.0
            _send(connection, bench.advance())
    except (EOFError, OSError):
        return


def _send(connection: Connection, messages: list[Message]) -> None:
    """A letter says whether it is a text."""
    for message in messages:
        connection.send_bytes(b"T" + message.encode() if isinstance(message, str) else b"B" + message)

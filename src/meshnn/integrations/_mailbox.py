"""What workers of Dask send each other in the middle of a task: sums, through the connections that they have anyway."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from distributed import WorkerPlugin

__all__ = ["AbortedError", "Mailboxes", "Mailing", "mailboxes"]

NAME = "meshnn_mail"


class AbortedError(Exception):
    """The crew has changed: whoever waits for somebody goes home."""


class Mailboxes:
    """What has come in at one worker, by session, round and sender."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self._came: dict[tuple[str, int, int], bytes] = {}
        self._over: dict[str, float] = {}  # sessions that have ended, and when
        self._guard = threading.Condition()
        worker.handlers[NAME] = self._take

    def _take(self, session: str, round_: int, sender: int, data: bytes) -> str:
        with self._guard:
            if session not in self._over:
                self._came[session, round_, sender] = data
                self._guard.notify_all()
        return "OK"

    def get(self, session: str, round_: int, sender: int) -> bytes:
        """What a sender has sent in a round; waits for it until the session ends."""
        key = (session, round_, sender)
        with self._guard:
            while key not in self._came:
                if session in self._over:
                    raise AbortedError("the crew has changed")
                self._guard.wait(1.0)
            return self._came.pop(key)

    def send(self, address: str, session: str, round_: int, sender: int, data: bytes) -> Any:
        """Begin to send; what went wrong is known by the driver, who sees that a worker is gone."""

        async def post() -> None:
            await getattr(self.worker.rpc(address), NAME)(session=session, round_=round_, sender=sender, data=data)

        return asyncio.run_coroutine_threadsafe(post(), self.worker.loop.asyncio_loop)

    def end(self, session: str) -> None:
        """Nobody will send or wait in this session any more."""
        now = time.monotonic()
        with self._guard:
            self._over = {name: at for name, at in self._over.items() if now - at < 3600} | {session: now}
            self._came = {key: data for key, data in self._came.items() if key[0] != session}
            self._guard.notify_all()


class Mailing(WorkerPlugin):  # type: ignore[misc]  # types of distributed are not read
    """Gives every worker a mailbox, those that join later, too."""

    name = "meshnn-mail"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """When a worker begins, or is there already."""
        if not isinstance(getattr(worker, "_meshnn_mail", None), Mailboxes):
            worker._meshnn_mail = Mailboxes(worker)


def mailboxes(worker: Any) -> Mailboxes:
    """Those of a worker."""
    found = getattr(worker, "_meshnn_mail", None)
    if found is None:
        found = worker._meshnn_mail = Mailboxes(worker)
    return found

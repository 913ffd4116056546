"""Messages between Dask workers in the middle of a task, over the connections that they have anyway."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
from distributed import WorkerPlugin

from meshnn.arrays import FloatArray
from meshnn.training.cluster.plan import ShardPlan
from meshnn.training.cluster.worker import Transport

__all__ = ["DaskTransport", "Inbox", "SessionEndedError", "inbox_of"]


class SessionEndedError(Exception):
    """The group of workers has changed; stop waiting for messages."""


class Inbox(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """The messages that have arrived at one worker, by session, round and sender; workers that join later get one."""

    name = "meshnn-inbox"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Run when a worker starts, or when the plugin is registered."""
        self.worker = worker
        self._messages: dict[tuple[str, int, int], bytes] = {}
        self._ended: dict[str, float] = {}  # sessions, and when they ended
        self._guard = threading.Condition()
        worker.handlers["meshnn_message"] = self._receive

    def _receive(self, session: str, round_: int, sender: int, data: bytes) -> str:
        with self._guard:
            if session not in self._ended:
                self._messages[session, round_, sender] = data
                self._guard.notify_all()
        return "OK"

    def get(self, session: str, round_: int, sender: int) -> bytes:
        """Wait for a message until the session ends."""
        key = (session, round_, sender)
        with self._guard:
            while key not in self._messages:
                if session in self._ended:
                    raise SessionEndedError("the group of workers has changed")
                self._guard.wait(1.0)
            return self._messages.pop(key)

    def send(self, address: str, **message: Any) -> None:
        """Begin to send; the driver notices if the receiver is gone."""

        async def post() -> None:
            await self.worker.rpc(address).meshnn_message(**message)

        asyncio.run_coroutine_threadsafe(post(), self.worker.loop.asyncio_loop)

    def end(self, session: str) -> None:
        """End a session: drop its messages, now and later, and wake up those who wait."""
        now = time.monotonic()
        with self._guard:
            self._ended = {name: at for name, at in self._ended.items() if now - at < 3600} | {session: now}
            self._messages = {key: data for key, data in self._messages.items() if key[0] != session}
            self._guard.notify_all()


def inbox_of(worker: Any) -> Inbox:
    """Return the inbox of a worker."""
    found: Inbox = worker.plugins[Inbox.name]
    return found


class DaskTransport(Transport):
    """Sums over all workers of a session."""

    def __init__(self, inbox: Inbox, session: str, addresses: list[str], plan: ShardPlan, rank: int) -> None:
        super().__init__(plan, len(addresses), rank)
        self.inbox, self.session, self.addresses, self.round = inbox, session, addresses, 0

    def exchange(self, messages: list[FloatArray]) -> list[FloatArray]:
        """Send one message to each of the others; return the one that came from each."""
        sent = [message.tobytes() for message in messages]
        for k, address in enumerate(self.addresses):
            if k != self.rank:
                self.inbox.send(address, session=self.session, round_=self.round, sender=self.rank, data=sent[k])
        received = [
            data if k == self.rank else self.inbox.get(self.session, self.round, k) for k, data in enumerate(sent)
        ]
        self.round += 1
        return [np.frombuffer(data) for data in received]

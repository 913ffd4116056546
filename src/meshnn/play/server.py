"""The server of `meshnn play`: one page and its socket, for this machine and for whoever has the token.

Other pages of the same browser can send requests to 127.0.0.1, too. They do not know the token; besides, requests whose
Host is not this server (a name that somebody has bound to 127.0.0.1) or whose Origin is another page are refused.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from meshnn.play.session import Session

__all__ = ["MOST_MESSAGE", "new_app", "new_server", "new_token"]

#: Bytes of a message from a page (a table of 5 MB in JSON), and pages at a time.
MOST_MESSAGE, MOST_PAGES = 12_000_000, 8
ASSETS = {
    "": ("index.html", "text/html; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
}
#: Codes with which a socket is closed: what the page says then depends on them.
FULL, REFUSED, ENDED = 4001, 4003, 4002


def new_token() -> str:
    """What nobody can guess."""
    return secrets.token_urlsafe(24)


class _Guard:
    """Lets nothing pass that does not come from a page of this server."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.port, self.token = app, port, token
        self.hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if not refusal:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _protected(PlainTextResponse(f"{refusal}\n", 403), self.port)(scope, receive, send)
        else:
            await WebSocket(scope, receive, send).close(REFUSED, refusal)  # before it is accepted: 403

    def _refusal(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.hosts:
            return "this server answers to 127.0.0.1 only"
        wanted = f"http://{host}"
        if origin != wanted and (origin is not None or scope["type"] == "websocket"):
            return "another page asked for this one"
        given = scope["path"].split("/")[1]
        if not secrets.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            return "the address has a wrong token: open the one that meshnn play has printed"
        return ""


def _protected(response: Response, port: int) -> Response:
    sockets = f"ws://127.0.0.1:{port} ws://localhost:{port}"  # not all browsers take them for 'self'
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        f"connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    response.headers.update(
        {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
    )
    return response


def new_app(port: int, token: str, path: str | None = None, target: str = "") -> ASGIApp:
    """The application: a page, its script and style, and a socket for each page; `path` is the table it begins with."""
    pages: set[Session] = set()
    folder = files("meshnn.play") / "assets"

    def asset(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
        content = (folder / name).read_bytes()

        async def found(request: Request) -> Response:
            return _protected(Response(content, media_type=kind), port)

        return found

    async def absent(request: Request) -> Response:
        return _protected(PlainTextResponse("there is no such page\n", 404), port)

    async def learning(page: WebSocket) -> None:
        await page.accept()
        if len(pages) >= MOST_PAGES:
            await page.close(FULL, f"{MOST_PAGES} pages are open already; close one, then reload this one")
            return
        session = Session(path, target)
        pages.add(session)
        try:
            await _both_ways(page, session)
        finally:
            pages.discard(session)
            await session.close()

    routes = [Route(f"/{{token}}/{address}", asset(*found)) for address, found in ASSETS.items()]
    others = [WebSocketRoute("/{token}/socket", learning), Route("/{rest:path}", absent)]
    return _Guard(Starlette(routes=[*routes, *others]), port, token)


async def _both_ways(page: WebSocket, session: Session) -> None:
    """Orders to the process, messages to the page, until one of them is gone."""

    async def orders() -> None:
        while True:
            received = await page.receive()
            if received["type"] == "websocket.disconnect":
                return
            text = received.get("text")  # numbers are no order, and are answered so
            await session.send("null" if text is None else text)

    async def messages() -> None:
        while (message := await session.messages.get()) is not None:
            if message[:1] == b"T":
                await page.send_text(message[1:].decode())
            else:
                await page.send_bytes(message[1:])
        with suppress(RuntimeError):
            await page.close(ENDED, "what learns has ended; reload the page")

    tasks = [asyncio.create_task(orders()), asyncio.create_task(messages())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for done in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(done, Exception) and not isinstance(done, (WebSocketDisconnect, RuntimeError, OSError)):
            raise done


class _Server(uvicorn.Server):
    """Says when it has started."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: Any = None) -> None:
        """Then the page can be opened."""
        await super().startup(sockets)
        self.ready()


def new_server(
    listener: socket.socket, token: str, path: str | None, target: str, ready: Callable[[], None]
) -> uvicorn.Server:
    """For a socket that is bound already; `ready` is called when the page can be opened."""
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        new_app(port, token, path, target), log_level="error", access_log=False, ws_max_size=MOST_MESSAGE,
        ws="websockets-sansio", server_header=False, date_header=False, lifespan="off", timeout_graceful_shutdown=3,
    )  # fmt: skip
    return _Server(config, ready)

"""The server of `meshnn play`: a page and its socket, for local requests with the token.

Other pages in the browser can also send requests to 127.0.0.1, but without the token. Requests whose Host is not this
server (DNS rebinding) or whose Origin is another page are refused. The page shows the reason for which a socket is
closed.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from meshnn.play.limits import LIMITS
from meshnn.play.worker import PageWorker

__all__ = ["new_app", "new_server"]


class _Guard:
    """Middleware that refuses requests without the token or from other pages, and adds security headers."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
        sockets = f"ws://127.0.0.1:{port} ws://localhost:{port}"  # some browsers do not count them as 'self'
        self.headers = {
            "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
            f"img-src 'self' data: blob:; connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else ""
        if not refusal:
            await self.app(scope, receive, protected)
        elif scope["type"] == "http":
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, protected)
        else:
            # closing before the connection is accepted gives status 403
            await WebSocket(scope, receive, send).close(4003, refusal)

    def _refusal(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.hosts:
            return "this server answers to 127.0.0.1 only"
        if origin != f"http://{host}" and (origin is not None or scope["type"] == "websocket"):
            return "the request comes from another page"
        given = scope["path"].split("/")[1]
        if not secrets.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            return "the token in the address is wrong; open the address that meshnn play prints"
        return ""


def new_app(port: int, token: str, path: str | None = None, target: str = "") -> ASGIApp:
    """Return the application with the page, its assets and its socket; `path` is the first table."""
    open_pages: set[PageWorker] = set()

    async def learning(page: WebSocket) -> None:
        await page.accept()
        if len(open_pages) >= LIMITS.pages:
            await page.close(4001, f"{LIMITS.pages} pages are open, the maximum; close one, then reload this page")
            return
        worker = PageWorker(path, target)
        open_pages.add(worker)
        try:
            await connect_page(page, worker)
        finally:
            open_pages.discard(worker)
            await worker.close()

    page = StaticFiles(packages=[("meshnn.play", "assets")], html=True)
    routes = [WebSocketRoute("/{token}/socket", learning), Mount("/{token}", page)]
    return _Guard(Starlette(routes=routes), port, token)


async def connect_page(page: WebSocket, worker: PageWorker) -> None:
    """Pass orders to the process and messages to the page until one of them ends or the page stops reading."""

    async def orders() -> None:
        while (received := await page.receive())["type"] != "websocket.disconnect":
            text = received.get("text")  # bytes are not an order; they are refused like "null"
            await worker.send("null" if text is None else text)

    async def messages() -> None:
        while (message := await worker.receive()) is not None:
            sending = page.send_text(message) if isinstance(message, str) else page.send_bytes(message)
            try:
                await asyncio.wait_for(sending, LIMITS.unread)
            except TimeoutError:
                await _close(page, 4004, f"the page received nothing for {LIMITS.unread:g} s; reload it")
                return
        await _close(page, 4002, "the training process has ended; reload the page")

    tasks = [asyncio.create_task(orders()), asyncio.create_task(messages())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for done in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(done, Exception) and not isinstance(done, (WebSocketDisconnect, RuntimeError, OSError)):
            raise done


async def _close(page: WebSocket, code: int, reason: str) -> None:
    """Close a page, ignoring errors if it is already closed."""
    with suppress(RuntimeError, TimeoutError):
        await asyncio.wait_for(page.close(code, reason), LIMITS.grace)


def new_server(listener: socket.socket, token: str, path: str | None, target: str) -> uvicorn.Server:
    """Return a server for a listening socket."""
    app = new_app(listener.getsockname()[1], token, path, target)
    return uvicorn.Server(uvicorn.Config(
        app, log_level="error", access_log=False, ws_max_size=LIMITS.message, ws="websockets-sansio",
        server_header=False, date_header=False, lifespan="off", timeout_graceful_shutdown=3,
    ))  # fmt: skip

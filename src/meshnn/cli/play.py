"""`meshnn play`: a net in the browser, drawn and changed while it learns."""

from __future__ import annotations

import importlib.util
import ipaddress
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from meshnn.arguments import whole_number
from meshnn.errors import MeshError

__all__ = ["play"]

NEEDED = ("starlette", "uvicorn", "websockets")


def play(
    data: Annotated[
        Path | None,
        typer.Argument(help="A table to learn from: .csv, .tsv (also .gz) or .parquet.", show_default=False),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", "-y", help="The column to predict; by default the last one.", show_default=False)
    ] = "",
    port: Annotated[int, typer.Option("--port", help="Of this machine; 0 takes one that is free.")] = 0,
    host: Annotated[str, typer.Option("--host", help="127.0.0.1 or ::1: nobody else can open the page.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Draw a net in the browser, change it and watch it learn.

    The page is served by this command, to this machine alone; nothing is fetched from elsewhere. Ctrl-C ends it.

    [bold]Examples[/bold]

      meshnn play

      meshnn play iris.csv --target species

      meshnn play --no-browser --port 8000
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise MeshError(f"meshnn play needs {', '.join(missing)}; pip install 'meshnn[play]'")
    whole_number("--port", port, least=0, most=65535)
    where = _loopback(host)
    if data is not None and not data.is_file():
        raise MeshError(f"{data}: there is no such file; pass a .csv, .tsv or .parquet file, or none")
    if target and data is None:
        raise MeshError("--target names a column of a table; pass the table, too")

    from meshnn.play.server import new_server, new_token

    listener = socket.socket(socket.AF_INET6 if ":" in where else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((where, port))
    except OSError as error:
        listener.close()
        raise MeshError(f"--port {port}: {error.strerror}; take another one, or 0 for one that is free") from None
    token = new_token()
    name = f"[{where}]" if ":" in where else where
    address = f"http://{name}:{listener.getsockname()[1]}/{token}/"

    def ready() -> None:
        print(f"{address}\nThe page is for this machine, and for whoever has that address; Ctrl-C ends it.", flush=True)
        if browser:
            typer.launch(address)

    try:
        table = None if data is None else str(data.absolute())
        new_server(listener, token, table, target, ready).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
    print("meshnn play has ended; what was drawn is in the links and files that were made of it.", file=sys.stderr)


def _loopback(host: str) -> str:
    """An address that only this machine reaches."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        if ipaddress.ip_address(host).is_loopback and host in ("127.0.0.1", "::1"):
            return host
    except ValueError:
        pass
    raise MeshError(
        f"--host {host} could be reached from elsewhere; the page runs on 127.0.0.1 (or ::1) only. From another "
        "machine take a tunnel: ssh -L 8000:127.0.0.1:8000 ... with --port 8000"
    )

"""`meshnn play`: draw, change and train a network in the browser."""

from __future__ import annotations

import importlib.util
import secrets
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, launch

from meshnn.cli.output import refuse
from meshnn.errors import MeshError


def play(
    data: Annotated[
        Path | None,
        Argument(
            help="Training table: .csv, .tsv (also .gz) or .parquet. Default: the synthetic data sets of the page."
        ),
    ] = None,
    target: Annotated[str, Option("--target", "-y", help="Column to predict. Default: the last column.")] = "",
    port: Annotated[
        int, Option(min=0, max=65535, help="TCP port of the page. 0: any free port. Set it to use an SSH tunnel.")
    ] = 0,
    host: Annotated[str, Option(help="Local address of the page: 127.0.0.1, or ::1 for IPv6.")] = "127.0.0.1",
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the page in the default browser, or only print its address.")
    ] = True,
) -> None:
    """Draw a network in the browser, change it and watch its training.

    The command serves the page to this machine only and loads nothing from the
    network. Ctrl-C ends it.

    [bold]Examples[/bold]

      meshnn play
      meshnn play iris.csv --target species
      meshnn play --no-browser --port 8000
    """
    where = "127.0.0.1" if host == "localhost" else host
    missing = [name for name in ("starlette", "uvicorn", "websockets") if importlib.util.find_spec(name) is None]
    refuse({
        f"meshnn play needs {', '.join(missing)}; install with: pip install 'meshnn[play]'": missing,
        f"--host must be 127.0.0.1 or ::1, got {host}: other machines must not reach the page. From another machine, "
        "use an SSH tunnel: ssh -L 8000:127.0.0.1:8000 ... with --port 8000": where not in ("127.0.0.1", "::1"),
        f"{data}: there is no such file; pass a .csv, .tsv or .parquet file, or no table": data and not data.is_file(),
        "--target names a column of a table; pass the table as well": target and data is None,
    })  # fmt: skip
    from meshnn.play.server import new_server

    family, name = (socket.AF_INET6, f"[{where}]") if ":" in where else (socket.AF_INET, where)
    try:
        listener = socket.create_server((where, port), family=family)  # accepts connections from now on
    except OSError as error:
        raise MeshError(f"--port {port}: {error.strerror}; choose another port, or 0 for a free one") from None
    token = secrets.token_urlsafe(24)
    address = f"http://{name}:{listener.getsockname()[1]}/{token}/"

    with listener, suppress(KeyboardInterrupt):
        server = new_server(listener, token, None if data is None else str(data.absolute()), target)
        print(f"{address}\nOnly this machine can open the page, with exactly this address. Ctrl-C ends it.", flush=True)
        if browser:
            launch(address)
        server.run(sockets=[listener])
    print("meshnn play has ended. The network is kept only in links and files that you saved.", file=sys.stderr)

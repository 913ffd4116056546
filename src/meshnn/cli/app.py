"""The commands, and how errors look: one line on stderr and exit code 2; a traceback only with --debug."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from meshnn import __version__
from meshnn.cli.demo import demo
from meshnn.cli.explain import explain
from meshnn.cli.fit import fit
from meshnn.cli.info import info
from meshnn.cli.plot import plot
from meshnn.cli.predict import predict
from meshnn.cli.verify import verify
from meshnn.errors import MeshError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Neural networks of any directed topology, with exact gradients computed forward.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (fit, predict, info, explain, plot, demo, verify):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"meshnn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return app(args=arguments, prog_name="meshnn")
    except (MeshError, OSError, ImportError) as error:
        if "--debug" in arguments:
            raise
        Console(stderr=True).print(f"meshnn: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)

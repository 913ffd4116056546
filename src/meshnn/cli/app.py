"""The commands, and how errors look: one line on stderr and exit code 2; a traceback only with --debug."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from meshnn import __version__
from meshnn.cli.added import Commands
from meshnn.cli.demo import demo
from meshnn.cli.explain import explain
from meshnn.cli.fit import fit
from meshnn.cli.info import info
from meshnn.cli.plot import plot
from meshnn.cli.predict import predict
from meshnn.cli.verify import verify
from meshnn.errors import MeshError
from meshnn.files import reason

__all__ = ["app", "main"]

#: Click's, which some versions of typer bring along under a name of their own.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    cls=Commands,
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


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        sys.exit(app(args=arguments, prog_name="meshnn", standalone_mode=False) or 0)
    except _UsageError as error:
        if not error.format_message():  # nothing was asked for: the help has been shown
            sys.exit(2)
        where = error.ctx.command_path if error.ctx is not None else "meshnn"
        _refuse(f"{error.format_message().rstrip('.')}; see {where} --help", error)
    except typer.Abort as error:
        _refuse("interrupted", error, 130)
    except BrokenPipeError:
        # whoever read our output has seen enough; Python would complain about it once more when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        what = f"{error.filename}: {reason(error)}" if error.filename else reason(error)
        _refuse(what, error)
    except (MeshError, ImportError) as error:
        _refuse(str(error), error)


def _refuse(text: str, error: BaseException, code: int = 2) -> NoReturn:
    """One line on stderr, or all there is to know with --debug."""
    if "--debug" in sys.argv:
        traceback.print_exception(error)
    else:
        Console(stderr=True).print(f"meshnn: {text}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)

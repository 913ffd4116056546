"""The commands, each loaded on first use, and the error handling.

Every error becomes one line on stderr and an exit code: 0 success; 1 a bug, or a failed `verify`; 2 an error that the
user can correct (options, files, memory); 130 interrupted by Ctrl-C; 143 interrupted by SIGTERM. A package adds
commands with entry points in the group `meshnn.commands`: a name and a function for Typer.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from keyword import iskeyword
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from meshnn import __version__
from meshnn.cli.output import hint, printable
from meshnn.errors import DataError, MeshError
from meshnn.files import reason

#: The module of each command, in the order of the help. A command is the function of its name; keywords get a "_".
COMMANDS = {
    "fit": "fit", "predict": "predict", "evaluate": "predict", "export": "export", "import": "export",
    "stream": "stream", "forecast": "forecast", "info": "info", "explain": "explain", "plot": "plot", "play": "play",
    "verify": "verify",
}  # fmt: skip


class _Commands(Mapping[str, Any]):
    """The commands by name. Iterating over the names loads none of them."""

    def __getitem__(self, name: str) -> Any:
        if name in COMMANDS:
            module = import_module(f"meshnn.cli.{COMMANDS[name]}")
            function = getattr(module, f"{name}_" if iskeyword(name) else name)
        else:
            function = _loaded(self._others()[name])
        command = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
        command.command(name)(function)
        return get_command(command)

    def _others(self) -> dict[str, Any]:
        return {point.name: point for point in entry_points(group="meshnn.commands") if point.name not in COMMANDS}

    def __iter__(self) -> Iterator[str]:
        return iter((*COMMANDS, *sorted(self._others())))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _loaded(point: Any) -> Any:
    """Return the function of an entry point, or one that raises the loading error, so that --help works."""
    try:
        return point.load()
    except Exception as error:
        message = f"the command {point.name} ({point.value}) cannot be loaded: {error}; fix or remove its package"

    def broken() -> None:
        """(cannot be loaded)"""
        raise MeshError(message)

    return broken


class _CommandGroup(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]  # typer only reads it

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (EOFError, KeyboardInterrupt) as error:  # typer would exit without our message
            raise _WrappedError(error) from None


class _WrappedError(Exception):
    pass


app = typer.Typer(
    cls=_CommandGroup,
    help="Neural networks of any directed topology, trained with exact gradients computed forward.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        print(f"meshnn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the Python traceback of an error. Add it to a bug report.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def _run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    usage_error: Any = typer.BadParameter.__base__  # click's, which some versions of typer bundle
    try:
        return int(app(args=arguments, prog_name="meshnn", standalone_mode=False) or 0)
    except usage_error as error:
        if not error.format_message():  # no arguments: typer has shown the help
            return 2
        where = error.ctx.command_path if error.ctx is not None else "meshnn"
        message = error.format_message().rstrip(".").replace("Value error, ", "")  # the prefix is pydantic's
        raise MeshError(f"{message}; see {where} --help") from error
    except _WrappedError as error:
        raise error.args[0] from None


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _prepare_streams()
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _write(f"note: {message}", colour=33)
        try:
            code = _run(arguments)
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:
            code = _fail(error, arguments)
    sys.exit(code)


def _prepare_streams() -> None:
    """Make stdout and stderr safe for characters that cannot be encoded, and for streams that are closed."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _fail(error: BaseException, arguments: list[str]) -> int:
    """Report an error and return the exit code."""
    text, code = _explained(error)
    if isinstance(error, DataError):
        text += hint(error.code, error.field, next((word for word in arguments if not word.startswith("-")), ""))
    if isinstance(error, OSError):  # otherwise the flush at exit raises a second error
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if "--debug" in arguments:
        traceback.print_exception(error)
    elif text:
        _write(f"meshnn: {text}", colour=31)
    return code


def _explained(error: BaseException) -> tuple[str, int]:
    """Return the message and the exit code of an error."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, BrokenPipeError):  # for example: meshnn ... | head
        return "", 1
    if isinstance(error, OSError):
        return f"{error.filename}: {reason(error)}" if error.filename else reason(error), 2
    if isinstance(error, (MeshError, ImportError)):
        return str(error), 2
    if isinstance(error, MemoryError):
        return "not enough memory; free some memory, or use fewer rows or a smaller network", 2
    where = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"{where[:300]} (this is a bug; please report it with the output of meshnn --debug ...)", 1


def _write(text: str, colour: int) -> None:
    """Write one line on stderr, without the line ends and control characters that file names may contain."""
    line = printable(" ".join(text.split()))
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\x1b[{colour}m{line}\x1b[0m"
    with suppress(OSError):  # stderr may be closed
        print(line, file=sys.stderr, flush=True)

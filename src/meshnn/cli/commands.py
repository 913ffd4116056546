"""The commands, each loaded when it is asked for.

A package can add its own by an entry point in the group `meshnn.commands`: its name and a function that Typer takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from meshnn import __version__
from meshnn.errors import MeshError

#: Modules of the commands, in the order of help; each is a function of its name, with a _ behind a keyword of Python.
COMMANDS = {
    "fit": "fit", "predict": "predict", "evaluate": "predict", "export": "export", "import": "export",
    "stream": "stream", "forecast": "forecast", "info": "info", "explain": "explain", "plot": "plot", "play": "play",
    "verify": "verify",
}  # fmt: skip


class _Commands(Mapping[str, Any]):
    """Commands by name; iterating over the names loads none of them."""

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
    """Load the function of an entry point; if that fails, return one that raises the error, so that help works."""
    try:
        return point.load()
    except Exception as error:
        what = f"the command {point.name} ({point.value}) cannot be loaded: {error}"

    def broken() -> None:
        """(cannot be loaded)"""
        raise MeshError(f"{what}; fix or remove the package that brings it")

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
        except (EOFError, KeyboardInterrupt) as error:  # typer would end the process
            raise _WrappedError(error) from None


class _WrappedError(Exception):
    pass


app = typer.Typer(
    cls=_CommandGroup,
    help="Neural networks of any directed topology, with exact gradients computed forward.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"meshnn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run a command; return its exit code."""
    usage_error: Any = typer.BadParameter.__base__  # of click, which some versions of typer include
    try:
        return int(app(args=arguments, prog_name="meshnn", standalone_mode=False) or 0)
    except usage_error as error:
        if not error.format_message():  # no argument: the help has been shown
            return 2
        where = error.ctx.command_path if error.ctx is not None else "meshnn"
        raise MeshError(f"{error.format_message().rstrip('.')}; see {where} --help") from error
    except _WrappedError as error:
        raise error.args[0] from None

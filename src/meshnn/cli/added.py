"""Commands that packages add: functions under the entry points `meshnn.commands`, loaded when one is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from meshnn.errors import MeshError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["Commands"]


class Commands(TyperGroup):
    """Our commands, and those that were added; nobody waits for the latter who does not ask for them."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name; one of ours cannot be replaced."""
        if cmd_name not in self.commands:
            self._add()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, for help and completion."""
        self._add()
        return super().list_commands(ctx)

    def _add(self) -> None:
        from importlib.metadata import entry_points

        for point in entry_points(group="meshnn.commands"):
            if point.name not in self.commands:
                self.commands[point.name] = _command(point)


def _command(point: EntryPoint) -> Any:
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(point.name)(_loaded(point))
    return typer.main.get_command(alone)


def _loaded(point: EntryPoint) -> Callable[..., Any]:
    """Its function; of a broken package one that says so, since help and other commands need not suffer."""
    try:
        function: Callable[..., Any] = point.load()
        return function
    except Exception as error:
        what = f"the command {point.name} ({point.value}) cannot be loaded: {error}"

    def broken() -> None:
        """(cannot be loaded)"""
        raise MeshError(f"{what}; mend or remove the package that brings it")

    return broken

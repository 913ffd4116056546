"""The command line interface, `meshnn`."""

from meshnn.cli.commands import main

__all__ = ["main"]

"""The command line: `meshnn`."""

from meshnn.cli.commands import main

__all__ = ["main"]

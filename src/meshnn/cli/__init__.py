"""The command line: `meshnn`."""

from meshnn.cli.app import main

__all__ = ["main"]

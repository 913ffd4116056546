"""`meshnn cache`: compiled kernels on disk, and the prices of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from meshnn.cli.output import counted, print_json
from meshnn.memory import format_bytes
from meshnn.methods.machine import price_files

__all__ = ["cache"]


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete it; kernels are compiled again when needed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show where compiled kernels and the timings of this machine are kept and how much there is, or delete them.

    [bold]Examples[/bold]

      meshnn cache

      meshnn cache --clear
    """
    from meshnn.kernels._cache import cached_files, clear_cache, folder_in_use

    found = [*cached_files(), *price_files()]
    sizes = [path.stat().st_size for path in found]
    folders = sorted({str(path.parent) for path in found} | {str(folder_in_use() or "")} - {""})
    if clear:
        clear_cache()
        for path in price_files():
            path.unlink(missing_ok=True)
    if as_json:
        print_json({"folders": folders, "files": len(found), "bytes": sum(sizes), "cleared": clear})
        return
    for folder in folders or ["no folder can be written to: kernels are compiled in every run"]:
        print(folder)
    print(f"{counted(len(found), 'file')}, {format_bytes(sum(sizes))}{' deleted' if clear else ''}")

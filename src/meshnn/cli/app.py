"""The command line from outside: every error becomes one line on stderr and an exit code.

0 is success, 2 something about the command, its files or the machine that the user can change, 1 a bug (and a failed
`verify`), 130 an interruption, 143 one by SIGTERM. Little is imported here: errors of imports are caught too.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from contextlib import suppress
from typing import Any, NoReturn

from meshnn.cli.output import hint, printable
from meshnn.errors import DataError, MeshError
from meshnn.files import reason

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _prepare_streams()
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _write(f"note: {message}", colour=33)
        try:
            from meshnn.cli.commands import run

            code = run(arguments)
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:
            code = _fail(error, arguments)
    sys.exit(code)


def _prepare_streams() -> None:
    """Let output never fail for a character that cannot be encoded, nor for a stream that was closed."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _fail(error: BaseException, arguments: list[str]) -> int:
    """Report an error; return the exit code."""
    text, code = _explained(error)
    if isinstance(error, DataError):
        text += hint(error.code, error.field, next((word for word in arguments if not word.startswith("-")), ""))
    if isinstance(error, OSError):  # flushed at exit, it would fail once more, with an error of its own
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
    """Return the message about an error, and the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, BrokenPipeError):  # the reader of our output has closed it
        return "", 1
    if isinstance(error, OSError):
        return f"{error.filename}: {reason(error)}" if error.filename else reason(error), 2
    if isinstance(error, (MeshError, ImportError)):
        return str(error), 2
    if isinstance(error, MemoryError):
        return "this takes more memory than there is; free some, or take fewer rows or a smaller net", 2
    where = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"{where[:300]} (a bug: meshnn --debug ... shows where; please report it)", 1


def _write(text: str, colour: int) -> None:
    """Write one line on stderr; names of files may hold line ends and control characters."""
    line = printable(" ".join(text.split()))
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\x1b[{colour}m{line}\x1b[0m"
    with suppress(OSError):  # stderr may be closed
        print(line, file=sys.stderr, flush=True)

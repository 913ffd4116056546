"""The command line from outside: whatever goes wrong comes out as one line on stderr and an exit code.

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

from meshnn.cli.hints import advice
from meshnn.cli.output import printable
from meshnn.errors import MeshError
from meshnn.files import reason

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _prepare_streams()
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
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
    """Output never fails for a character that it cannot show, nor for a stream that was closed."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """In one line, without the line of code that gave it."""
    _write(f"note: {_one_line(str(message))}", colour=33)


def _fail(error: BaseException, arguments: list[str]) -> int:
    """Say what happened; the exit code."""
    text, code = _explained(error)
    text += advice(error, next((word for word in arguments if not word.startswith("-")), ""))
    if isinstance(error, OSError):
        _let_go_of_output()
    if "--debug" in arguments:
        traceback.print_exception(error)
    elif text:
        _write(f"meshnn: {_one_line(text)}", colour=31)
    return code


def _explained(error: BaseException) -> tuple[str, int]:
    """What to say about an error, and the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough
        return "", 1
    if isinstance(error, OSError):
        return f"{error.filename}: {reason(error)}" if error.filename else reason(error), 2
    if isinstance(error, ImportError) and _limited():
        return f"{error}; memory is limited (ulimit -v), perhaps to too little", 2
    if isinstance(error, (MeshError, ImportError)):
        return str(error), 2
    if isinstance(error, MemoryError):
        return "this takes more memory than there is; free some, or take fewer rows or a smaller net", 2
    if _limited():
        return f"{type(error).__name__}: {error}; memory is limited (ulimit -v), perhaps to too little"[:400], 2
    where = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{where[:300]} (a bug: meshnn --debug ... shows where; please report it)", 1


def _limited() -> bool:
    """Whether a limit on memory may be why something cannot be loaded or started."""
    try:
        import resource
    except ImportError:
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _one_line(text: str) -> str:
    """Without line ends and what would control a terminal: both can stand in the name of a file."""
    return printable(" ".join(text.split()))


def _write(line: str, colour: int) -> None:
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\x1b[{colour}m{line}\x1b[0m"
    with suppress(OSError):  # nobody is left to tell
        print(line, file=sys.stderr, flush=True)


def _let_go_of_output() -> None:
    """What could not be written would be tried again at the end, with an error of its own."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

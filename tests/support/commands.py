"""Run the command line in this process; a hundred starts of Python would take minutes."""

import contextlib
import io
import subprocess
import sys
from types import SimpleNamespace

from meshnn.cli import main


def meshnn(*arguments):
    """Return the output and the exit code of a command, in the form of `subprocess.run`."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code or 0
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=errors.getvalue())


def in_a_process(*arguments, **options):
    """Run a command in a separate process, for tests of streams, signals and exit codes."""
    command = [sys.executable, "-m", "meshnn", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)

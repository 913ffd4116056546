"""Commands that packages bring along: the reproduction of the paper, and anybody's."""

import os
import subprocess
import sys

import pytest

from meshnn.cli import main

WORKING = """
from typing import Annotated
import typer
def greet(name: Annotated[str, typer.Argument(help="Whom.")]) -> None:
    "Say hello."
    print("hello", name)
def info() -> None:
    print("another info")
"""


@pytest.fixture
def polite(tmp_path, monkeypatch):
    """A folder with a package that adds three commands, of which one is broken."""
    (tmp_path / "polite.py").write_text(WORKING)
    points = {"greet": "polite:greet", "info": "polite:info", "lost": "no_such_module:run"}
    listed = "".join(f"{name} = {value}\n" for name, value in points.items())
    folder = tmp_path / "polite-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: polite\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[meshnn.commands]\n{listed}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    yield tmp_path
    sys.modules.pop("polite", None)


@pytest.fixture
def meshnn(polite, capsys):
    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        shown = capsys.readouterr()
        return stop.value.code, shown.out, shown.err

    return run


def test_commands_of_packages_are_there(meshnn):
    code, shown, _ = meshnn("--help")
    assert code == 0
    for words in ("Say hello.", "Run the paper's experiments", "lost", "Show what a .mesh file holds"):
        assert words in shown
    assert "meshnn greet [OPTIONS]" in meshnn("greet", "-h")[1]
    assert meshnn("greet", "Ada") == (0, "hello Ada\n", "")
    assert "Did you mean 'greet'" in meshnn("gret")[2]
    assert "Example" in meshnn("reproduce", "--help")[1]


def test_a_broken_one_says_so_and_ours_are_not_replaced(meshnn):
    code, _, said = meshnn("lost")
    assert code == 2
    assert said.startswith("meshnn: the command lost (no_such_module:run) cannot be loaded: No module named 'no_such")
    assert said.count("\n") == 1
    assert "no.mesh" in meshnn("info", "no.mesh")[2]


def test_nobody_waits_for_commands_that_are_not_asked_for(polite):
    program = """
import sys
from meshnn.cli import main
try:
    main(["info", "no.mesh"])
except SystemExit:
    print([name for name in sys.modules if name.startswith(("polite", "meshnn.paper"))])
"""
    path = os.pathsep.join(filter(None, (str(polite), os.environ.get("PYTHONPATH"))))
    command, environment = [sys.executable, "-c", program], os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, env=environment)
    assert done.stdout == "[]\n", done.stderr

"""Commands from entry points: the reproduction of the paper, and those of other packages."""

import sys

import pytest

from commands import meshnn

WORKING = """
from typing import Annotated
import typer
def greet(name: Annotated[str, typer.Argument(help="A name.")]) -> None:
    "Print hello."
    print("hello", name)
def info() -> None:
    print("another info")
"""


@pytest.fixture(autouse=True)
def polite(tmp_path, monkeypatch):
    """Create a package with three commands: a working one, a broken one and one with the name of a built-in command."""
    (tmp_path / "polite.py").write_text(WORKING)
    folder = tmp_path / "polite-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: polite\nVersion: 1.0\n")
    points = "greet = polite:greet\ninfo = polite:info\nlost = no_such_module:run\n"
    (folder / "entry_points.txt").write_text(f"[meshnn.commands]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    yield
    sys.modules.pop("polite", None)


def test_commands_of_packages_are_there():
    shown = meshnn("--help").stdout
    for words in ("Print hello.", "reproduce", "lost", "Show the contents of a .mesh file"):
        assert words in shown
    assert "meshnn greet [OPTIONS]" in meshnn("greet", "-h").stdout
    assert meshnn("greet", "Ada").stdout == "hello Ada\n"
    assert "Did you mean 'greet'" in meshnn("gret").stderr
    assert "Example" in meshnn("reproduce", "--help").stdout


def test_a_broken_one_is_an_error_and_ours_are_not_replaced():
    done = meshnn("lost")
    assert done.returncode == 2
    assert done.stderr.startswith("meshnn: the command lost (no_such_module:run) cannot be loaded: No module named")
    assert done.stderr.count("\n") == 1
    assert "no.mesh" in meshnn("info", "no.mesh").stderr

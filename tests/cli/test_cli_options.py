"""Options of all commands: consistent names and letters, escape sequences in names, notes of `fit`."""

import contextlib
import io
import json

import numpy as np
import pandas as pd
import pytest
from typer.core import TyperOption
from typer.main import get_command

import meshnn as library
from commands import meshnn
from meshnn.cli.commands import COMMANDS, app
from meshnn.tables.holdout import HoldoutSplit

QUICK = ("--hidden", "1", "--max-epochs", "3", "--json")

GROUP = get_command(app).commands
OPTIONS = [(name, option) for name in COMMANDS for option in GROUP[name].params if isinstance(option, TyperOption)]


def test_a_letter_means_one_thing():
    meanings = {}
    for _, option in OPTIONS:
        for letter in (text for text in option.opts if not text.startswith("--")):
            meanings.setdefault(letter, set()).add(option.opts[0])
    assert {letter: len(found) for letter, found in meanings.items() if len(found) > 1} == {}
    assert {"-o", "-y", "-n", "-t", "-a", "-b", "-p", "-q"} == set(meanings)


def test_words():
    for name, option in OPTIONS:
        assert "--json" not in option.opts or option.is_flag, name
        assert ("--seed" in option.opts) == ("--random-state" in option.opts)
        assert not {"--epochs", "--batch", "--threads", "--save"}.intersection(option.opts)
        assert len(option.help.split()) >= 3, "a phrase with a noun"
        assert option.help.endswith("."), (name, option.name)


# -- names from files, shown in a terminal -----------------------------------------------------------------------------

EVIL = "\x1b]0;x\x07"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_a_terminal(*arguments):
    """Return the exit code and all output of a command."""
    from meshnn.cli import main

    screen = Terminal()
    with (
        contextlib.redirect_stdout(screen),
        contextlib.redirect_stderr(screen),
        pytest.raises(SystemExit) as stop,
    ):
        main([str(argument) for argument in arguments])
    return stop.value.code or 0, screen.getvalue()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Write a table whose columns and classes contain an escape sequence that sets the title of a terminal."""
    folder = tmp_path_factory.mktemp("terminal")
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},c{k % 3}{EVIL},{'yes' if a > 0 else 'no'}{EVIL},{k}" for k, a in enumerate(rng.normal(size=60))]
    (folder / "t.csv").write_text(f"a{EVIL},b{EVIL},y{EVIL},n{EVIL}\n" + "\n".join(rows) + "\n")
    return folder / "t.csv"


def test_names_do_not_control_a_terminal(table, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.chdir(table.parent)
    target = ("--target", f"y{EVIL}")
    shown = []
    for arguments in (
        ("fit", table, *target, "--hidden", "2", "--max-epochs", "3", "--out", "f.mesh"),
        ("predict", "f.mesh", table, "--probabilities", "--keep", f"b{EVIL}"),
        ("evaluate", "f.mesh", table),
        ("info", "f.mesh"),
        ("stream", table, *target, "--out", "s.mesh", "--max-categories", "2"),
        ("info", "s.mesh"),
        ("forecast", table, "--target", f"n{EVIL}", "--horizon", "2", "--origins", "2"),
        ("predict", "f.mesh", table, "--json"),
        ("stream", table, "--target", "y\x9b31m"),
    ):
        code, found = on_a_terminal(*arguments)
        assert code == (2 if arguments[-1] == "y\x9b31m" else 0), found
        assert not any(c in found for c in ("\x1b]", "\x07", "\x9b")), (arguments, found)
        shown.append("x1b]0;x" in found)
    assert all(shown[:4])
    piped = meshnn("predict", "f.mesh", table, "--keep", f"b{EVIL}")
    assert piped.stdout.splitlines()[0] == f"b{EVIL},prediction"  # unchanged in a pipe
    found = json.loads(meshnn("predict", "f.mesh", table, "--keep", f"b{EVIL}", "--json").stdout)
    assert found[f"b{EVIL}"][0] == f"c0{EVIL}"


def test_the_index_of_pandas_is_no_feature_of_a_stream(tmp_path):
    frame = pd.DataFrame({"x": np.arange(60.0), "y": [0, 1] * 30}, index=pd.Index(np.arange(60), name="id"))
    frame.to_parquet(tmp_path / "t.parquet")
    done = meshnn("stream", tmp_path / "t.parquet", "-y", "y", "--no-picture", "-o", tmp_path / "m.mesh", "--json")
    assert json.loads(done.stdout)["features"] == ["x"]


def test_nothing_of_the_test_rows_is_learned(tmp_path):
    """The fill values and the levels of text columns come from the training rows only."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 1000, 60).astype(float), "t": [f"v{k}" for k in range(60)]})
    frame["y"] = np.where(rng.random(60) < 0.5, "no", "yes")
    frame.loc[[3, 8, 20], "a"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    done = meshnn("fit", tmp_path / "t.csv", "-y", "y", *QUICK, "--out", tmp_path / "t.mesh")
    assert any("18 rows have values of t never seen in training" in note for note in json.loads(done.stdout)["notes"])
    column = {c.name: c for c in library.load(tmp_path / "t.mesh").encoder_.columns}
    seen = frame[frame.t.isin(column["t"].categories)]
    assert len(seen) == 42
    assert column["a"].fill == seen.a.median() != frame.a.median()


def test_columns_that_are_constant_in_the_training_rows_alone(tmp_path):
    """Each of them is noted once, like columns that are constant everywhere."""
    y = np.array(["no", "yes"] * 15)
    odd = np.isin(np.arange(30), HoldoutSplit.stratified(30, 9, 0, y).held[:1]).astype(int)
    pd.DataFrame({"a": np.arange(30), "c": odd, "d": 7, "y": y}).to_csv(tmp_path / "t.csv", index=False)
    notes = json.loads(meshnn("fit", tmp_path / "t.csv", "-y", "y", *QUICK).stdout)["notes"]
    found = sorted(note.split("t.csv: ")[1] for note in notes if "t.csv: column" in note)
    assert found == ["column c is constant (0): left out", "column d is constant (7): left out"]

"""Random arguments and files: every error of the command line is one line with an exit code."""

import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pytest

from commands import in_a_process
from meshnn import Mesh, MeshClassifier, MeshRegressor, Topology, load
from meshnn.cli.commands import _Commands, main

ALLOWED = {0, 1, 2, 130}  # 1 only from verify, see `check`
NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1", "2", "1e400", "1e-400", "3.5", "99999999999999999999", "", "ü",
           "\x00", "x")  # fmt: skip


class Stream(io.TextIOWrapper):
    """An in-memory pipe with strict encoding: a character that cannot be encoded raises an error."""

    def __init__(self, encoding):
        super().__init__(io.BytesIO(), encoding=encoding)

    def text(self):
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


def run(arguments, encoding="utf-8"):
    """Return the exit code, stdout and stderr of a command in this process."""
    before = sys.stdout, sys.stderr
    out, err = streams = Stream(encoding), Stream(encoding)
    sys.stdout, sys.stderr = streams
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # as in a separate process
            main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code, out.text(), err.text()
    finally:
        sys.stdout, sys.stderr = before


def check(arguments, code, out, err):
    """Assert the conditions of every run."""
    shown = f"{arguments} -> {code}\n{out[-500:]}\n{err[-2000:]}"
    assert code in ALLOWED, shown
    assert "Traceback" not in out + err, shown
    assert "this is a bug" not in err, shown
    errors = [line for line in err.splitlines() if line.startswith("meshnn:")]
    if code == 2 and "--help" not in err + out and "Usage:" not in out:
        assert len(errors) == 1, shown
        assert err.splitlines()[-1] == errors[0], shown
    if code == 1:
        assert arguments[0] == "verify", shown


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Create a folder with valid and invalid files of every kind."""
    folder = tmp_path_factory.mktemp("fuzz ü")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), np.arange(40) % 2
    rows = "\n".join(f"{a:.3f},{b:.3f},{'no' if c else 'yes'}" for (a, b), c in zip(X, y, strict=True))
    (folder / "good.csv").write_text(f"a,b,c\n{rows}\n")
    (folder / "zwei.csv").write_text("a,ü\n" + "\n".join(f"{k / 7},{'äß'[k % 2]}" for k in range(40)))
    settings = {"max_epochs": 2, "solver": "adam", "random_state": 0}
    MeshClassifier(2, **settings).fit(X, y).save(folder / "python.mesh")
    MeshRegressor(2, **settings).fit(X, X).save(folder / "two.mesh")
    Mesh(Topology.mesh(2, 2, 2), random_state=0).save(folder / "bare.mesh")
    for table, target, model in (("good.csv", "c", "table.mesh"), ("zwei.csv", "ü", "ü.mesh")):
        assert run(["fit", folder / table, "-y", target, "-n", 2, "--max-epochs", 2, "-o", folder / model])[0] == 0
    assert run(["stream", folder / "good.csv", "-y", "c", "-n", 2, "-o", folder / "stream.mesh"])[0] == 0
    whole = (folder / "table.mesh").read_bytes()
    contents = {
        "field.bin": load(folder / "stream.mesh").stream_.portable().to_bytes(), "empty.csv": b"", "empty.mesh": b"",
        "cut.mesh": whole[: len(whole) // 2], "altered.mesh": whole[:-40] + bytes(40), "wrong.graphml": b"<graphml",
        "nan.csv": b"a,b\n1,2\n,nan\n3,inf\n", "binary.csv": bytes(range(256)) * 9, "binary.mesh": rng.bytes(3000),
        "deep.json": b"[" * 100_000, "wrong.json": b'{"n_inputs": "x", "edges": [[1e400, null]]}',
        "graph.json": json.dumps(Topology.layered([2, 3, 2]).to_dict()).encode(),
        "table.parquet": b"PAR1" + rng.bytes(500) + b"PAR1", "locked.csv": b"a,b\n1,2\n",
        b"\xff.csv".decode("utf-8", "surrogateescape"): b"a,b,c\n1,2,no\n",
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "locked.csv").chmod(0)
    (folder / "a folder").mkdir()
    return folder


#: Options of every command that keep its runs short.
SMALL = dict.fromkeys(("predict", "evaluate", "export", "import", "info", "explain", "plot"), ()) | {
    "fit": ("--max-epochs", "2", "--solver", "adam", "--hidden", "2"),
    "stream": ("--hidden", "2", "--quiet"),
    "play": ("--port", "70000"),  # rejected: the server is tested elsewhere
    "forecast": ("--horizon", "2", "--origins", "1"),
    "verify": ("--tests", "1", "--reference", "numpy"),
    "reproduce": ("--quick", "--trials", "0"),  # rejected: the experiments are tested elsewhere
}


#: Options that would make a run long, or delete files of other tests.
LEFT_OUT = ("--clear", "--max-epochs", "--n-restarts", "--iterations", "--tests", "--trials", "--memory", "--measure",
            "--horizon", "--origins", "--port")  # fmt: skip


def options_of(command):
    """Return the options of a command, and whether each is a flag."""
    from typer.main import get_command

    from meshnn.cli.commands import app

    found = get_command(app).commands[command].params
    flags = {name: getattr(p, "is_flag", False) for p in found for name in p.opts if name.startswith("-")}
    return {name: flag for name, flag in flags.items() if name not in LEFT_OUT}


def random_arguments(command, rng, files):
    values = [*(str(files / name) for name in sorted(os.listdir(files))), *NUMBERS, str(files / "new.mesh"),
              str(files / "new.png"), "c", "a"]  # fmt: skip
    table, model = str(files / "good.csv"), str(files / "table.mesh")
    places, others = {
        "fit": ([table], ["--target", "c"]), "stream": ([table], ["--target", "c"]), "forecast": ([table], []),
        "predict": ([model, table], []), "evaluate": ([model, table], []), "info": ([model], []), "explain": ([], []),
        "plot": ([model], ["--out", str(files / "new.svg")]),
        "export": ([model], ["--out", str(files / rng.choice(["new.h", "new.onnx"]))]),
        "import": ([str(files / "field.bin")], ["--into", str(files / "stream.mesh"), "--out", str(files / "n.mesh")]),
    }.get(command, ([], []))  # fmt: skip
    arguments = [command, *SMALL[command]]
    arguments += [usual if rng.random() < 0.7 else rng.choice(values) for usual in places]
    if rng.random() < 0.2:
        arguments = [*arguments, rng.choice(values)] if rng.random() < 0.5 else arguments[:-1]
    arguments += others if rng.random() < 0.8 else []
    options = sorted(options_of(command).items())
    for name, flag in rng.sample(options, min(rng.choice([0, 1, 1, 2, 3]), len(options))):
        arguments += [name] if flag else [name, rng.choice(NUMBERS if rng.random() < 0.5 else values)]
    if rng.random() < 0.05:
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(["--frobnicate", "-", "--", "-\udcff"]))
    return arguments or [command]


TRIES = {"stream": 20, "verify": 5, "reproduce": 10, "plot": 10, "play": 10, "forecast": 8, "export": 12, "import": 15}


@pytest.mark.parametrize("encoding", ["utf-8", pytest.param("ascii", marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", list(_Commands()))
def test_nothing_but_one_line(command, encoding, files, tmp_path, monkeypatch):
    own = tmp_path / "own"  # commands may overwrite the files
    shutil.copytree(files, own, ignore=shutil.ignore_patterns("locked*"))
    (own / "locked.csv").touch(mode=0)
    monkeypatch.chdir(own)
    rng = random.Random(f"{command} {encoding}")
    for _ in range(TRIES.get(command, 30)):
        arguments = random_arguments(command, rng, own)
        check(arguments, *run(arguments, encoding))


@pytest.mark.parametrize("error", [
    MemoryError(), RecursionError("too deep"), KeyboardInterrupt(), EOFError(), ZeroDivisionError("a\nb"),
    OSError(28, "No space left on device"), ImportError("no module"), UnicodeEncodeError("ascii", "ü", 0, 1, "no"),
    AssertionError(), BrokenPipeError(32, "Broken pipe"), StopIteration(), GeneratorExit(),
])  # fmt: skip
def test_any_error_in_a_command_is_one_line(error, monkeypatch, files):
    from meshnn import storage

    def fail(path):
        raise error

    monkeypatch.setattr(storage, "read", fail)
    code, out, err = run(["info", files / "table.mesh"])
    assert "Traceback" not in out + err
    if isinstance(error, BrokenPipeError):
        assert (code, err) == (1, "")
        return
    assert err.startswith("meshnn: ")
    assert err.count("\n") == 1
    assert "\\n" not in err
    expected = {KeyboardInterrupt: 130, MemoryError: 2, OSError: 2, ImportError: 2}.get(type(error), 1)
    assert code == expected
    assert ("--debug" in err) == (expected == 1)


@pytest.mark.parametrize(("cells", "message"), [
    ("1,2\n,3", "column a holds no number in row 2"), ("1,2\n3,nan", "column b holds no number in row 2"),
    ("inf,2\n3,4", "column a holds inf in row 1"), ("1,2\n3,x", "holds text"), ("1,2024-01-02\n", "holds text"),
])  # fmt: skip
def test_a_model_from_python_and_cells_that_are_no_numbers(files, tmp_path, cells, message):
    (tmp_path / "t.csv").write_text(f"a,b\n{cells}\n")
    code, _, err = run(["predict", files / "python.mesh", tmp_path / "t.csv"])
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def test_characters_that_cannot_be_shown(files):
    model, table = files / "ü.mesh", files / "zwei.csv"
    code, out, _ = run(["predict", model, table], "ascii")
    assert code == 0
    assert set(out.split()) <= {"prediction", "?"}
    out = run(["predict", model, table, "--json"], "ascii")[1]
    assert set(json.loads(out)["prediction"]) <= {"ä", "ß"}
    fit = ["fit", table, "-y", "ü", "-n", "2", "--max-epochs", "2"]
    for arguments in (["info", model], ["info", model, "--json"], fit):
        assert run(arguments, "ascii")[0] == 0


@pytest.mark.parametrize("arguments", [["info", "binary.mesh"], ["fit", "binary.csv", "-y", "c"]])
def test_in_a_process(files, arguments):
    strict = os.environ | {"PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = in_a_process(*arguments, cwd=files, env=strict)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("meshnn: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_stdout_that_takes_nothing(files):
    info = [sys.executable, "-m", "meshnn", "info", str(files / "table.mesh")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(info, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr == "meshnn: no space left on the disk; free some space or choose another path\n"
    closed = in_a_process("info", files / "table.mesh", preexec_fn=lambda: os.close(1))
    assert (closed.returncode, closed.stderr) == (0, "")


def test_a_model_is_kept_when_its_folder_vanishes(files, tmp_path, monkeypatch):
    gone, other = tmp_path / "gone", tmp_path / "temporary"
    gone.mkdir()
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    fit = MeshClassifier.fit

    def and_vanish(self, *arguments):
        gone.rmdir()
        return fit(self, *arguments)

    monkeypatch.setattr(MeshClassifier, "fit", and_vanish)
    code, out, err = run(["fit", files / "good.csv", "-y", "c", "-n", "2", "--max-epochs", "2", "-o", gone / "m.mesh"])
    assert code == 2
    assert err.endswith(f"; the model was written to {other / 'm.mesh'} instead\n")
    assert f"model written to {other / 'm.mesh'}" in out.replace("\n", "")
    assert load(other / "m.mesh").n_features_in_ == 2

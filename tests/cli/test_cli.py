"""Test the command line in a separate process."""

import json

import pytest

from commands import in_a_process, meshnn
from meshnn.plan import METHODS


def test_help_and_version():
    done = meshnn("--help")
    assert done.returncode == 0
    for command in ("fit", "predict", "info", "explain", "plot", "verify"):
        assert command in done.stdout
        shown = meshnn(command, "--help")
        assert shown.returncode == 0
        assert "Example" in shown.stdout
    assert in_a_process("--version").stdout.startswith("meshnn 0.")
    assert "Usage" in meshnn().stdout


@pytest.mark.slow
def test_verify(tmp_path):
    file = tmp_path / "verify.json"
    done = in_a_process("verify", "--tests", "3", "--out", str(file))
    assert done.returncode == 0, done.stderr
    assert "2.4e-04 ± 4.7e-05" in done.stdout
    assert "FAIL" not in done.stdout
    found = json.loads(file.read_text())
    assert (found["passed"], found["reference"], len(found["rows"])) == (True, "torch", 2 * 5 * len(METHODS))
    assert all(row["worst"] <= row["tolerance"] for row in found["rows"])
    for activation in ("relu", "tanh"):
        done = meshnn("verify", "--tests", "1", "--reference", "numpy", "--activation", activation, "--json")
        assert json.loads(done.stdout)["passed"] is True


def test_verify_fails_with_exit_code_1(monkeypatch, capsys):
    """A tolerance below rounding makes the command report a failure."""
    import meshnn.verify as module
    from meshnn.cli import main

    monkeypatch.setitem(module.TOLERANCE, "float32", 1e-12)
    with pytest.raises(SystemExit) as stop:
        main(["verify", "--tests", "2"])
    assert stop.value.code == 1
    out = capsys.readouterr()
    assert "FAIL" in out.out
    assert "out of tolerance" in out.err


def test_verify_notices_a_gradient_that_is_not_a_number(monkeypatch):
    import numpy as np

    from meshnn import Mesh
    from meshnn.verify import verify

    real = Mesh.gradient
    monkeypatch.setattr(Mesh, "gradient", lambda self, *a, **k: (real(self, *a, **k)[0], np.full(324, np.nan)))
    assert not verify(tests=2).passed
    monkeypatch.setattr(Mesh, "gradient", real)
    monkeypatch.setattr(Mesh, "states", lambda self, X: np.full((self.ticks + 1, 10, 18), 7.0))
    assert not verify(tests=2).passed


def test_explain():
    done = meshnn("explain", "--inputs", "32", "--hidden", "50", "--outputs", "10", "--density", "0.2", "--ticks", "2")
    assert done.returncode == 0, done.stderr
    assert "edges are dead" in done.stdout
    heading, *rows = (line for line in done.stdout.splitlines()[2:] if not line.startswith("---"))
    assert heading.split() == ["method", "exact", "forward-only", "multiply-adds", "cost", "bytes"]
    assert max(map(len, [heading, *rows[:3]])) < 80
    found = json.loads(meshnn("explain", "--layers", "32,14,13,10", "--json").stdout)
    assert (found["edges"], found["chosen"], found["solver"]) == (797, "factored", None)
    assert [row["method"] for row in found["methods"]] == ["factored", "influence", "adjoint"]
    solver = json.loads(meshnn("explain", "--hidden", "3", "--samples", "500", "--json").stdout)["solver"]
    assert (solver["name"], solver["alternative"]) == ("adam", "lm")


@pytest.mark.parametrize(("line", "message"), [
    ("explain --hidden -3", "-3"), ("explain --density 2", "density"), ("explain --activation rleu", "relu"),
    ("explain --layers 2,x", "2,x"), ("explain --ticks 0", "--ticks"), ("explain --hiden 3", "No such option"),
    ("verify --reference jax", "jax"), ("verify --tests 0", "--tests"), ("verify --seed -1", "--seed"),
    ("verify --tests 1 --out /no/such/folder/x.json", "does not exist"), ("verify --out /tmp", "is a directory"),
    ("verify --tests 1 --out /dev/full", "no space left"), ("explain --layers 2,3,1 --hidden 7", "--layers"),
    ("explain --family cascade --density 0.5", "--density"), ("explain --hidden 1000000", "edges would need"),
    ("frobnicate", "No such command"), ("fitt", "Did you mean 'fit'"), ("fit", "see meshnn fit --help"),
])  # fmt: skip
def test_errors_are_one_line_and_exit_code_2(line, message):
    done = meshnn(*line.split())
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_debug_shows_the_traceback():
    done = in_a_process("--debug", "explain", "--hidden", "-3")
    assert "Traceback" in done.stderr

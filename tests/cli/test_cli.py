"""The command line in a real process."""

import json
import os
import subprocess
import sys

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
    assert found["passed"] is True
    assert found["reference"] == "torch"
    assert len(found["rows"]) == 2 * 5 * len(METHODS)
    assert all(row["worst"] <= row["tolerance"] for row in found["rows"])
    assert {row["ticks"] for row in found["rows"]} == {1, 2, 3, 4, 5}
    assert found["paper"]["gradients"] == [1.1e-05, 5.3e-06]
    printed = json.loads(meshnn("verify", "--tests", "1", "--reference", "numpy", "--json").stdout)
    assert printed["passed"] is True
    assert printed["rows"][0]["states"]["half_width"] is None  # of a single net


def test_verify_fails_with_exit_code_1(monkeypatch, capsys):
    """With a tolerance that rounding cannot meet, the command must say so and fail."""
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
    *_, (report, _, _) = verify(tests=2)
    assert not report.passed
    monkeypatch.setattr(Mesh, "gradient", real)
    monkeypatch.setattr(Mesh, "states", lambda self, X: np.full((self.ticks + 1, 10, 18), 7.0))
    *_, (report, _, _) = verify(tests=2)
    assert not report.passed


@pytest.mark.slow
def test_references_agree():
    from meshnn.verify import verify

    for activation in ("relu", "tanh"):
        *_, (by_torch, _, _) = verify(tests=2, seed=3, activation=activation, reference="torch")
        *_, (by_numpy, _, _) = verify(tests=2, seed=3, activation=activation, reference="numpy")
        assert by_torch.passed
        assert by_numpy.passed


def test_explain():
    done = meshnn("explain", "--inputs", "32", "--hidden", "50", "--outputs", "10", "--density", "0.2", "--ticks", "2")
    assert done.returncode == 0, done.stderr
    assert "factored" in done.stdout
    assert "edges are dead" in done.stdout
    heading, *rows = (line for line in done.stdout.splitlines()[2:] if not line.startswith("---"))
    assert heading.split() == ["method", "exact", "forward-only", "multiply-adds", "bytes"]
    assert max(map(len, [heading, *rows[:3]])) < 80
    found = json.loads(meshnn("explain", "--layers", "32,14,13,10", "--json").stdout)
    assert found["edges"] == 797
    assert found["chosen"] == "factored"
    assert [row["method"] for row in found["methods"]] == ["factored", "influence", "adjoint"]
    assert found["solver"] is None
    solver = json.loads(meshnn("explain", "--hidden", "3", "--samples", "500", "--json").stdout)["solver"]
    assert (solver["name"], solver["alternative"]) == ("adam", "lm")
    assert "lm is tried" in solver["reason"]


@pytest.mark.slow
def test_output_that_is_not_utf8():
    env = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [sys.executable, "-m", "meshnn", "verify", "--tests", "1"]
    done = subprocess.run(command, capture_output=True, timeout=300, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert b"2.4e-04 +- 4.7e-05" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "--hidden", "-3"], "n_hidden must be a whole number of at least 0, got -3"),
        (["explain", "--density", "2"], "density must be a number between 0 and 1"),
        (["explain", "--activation", "rleu"], "did you mean 'relu'"),
        (["explain", "--layers", "2,x"], "expected sizes like"),
        (["explain", "--ticks", "0"], "'--ticks' / '-t'"),
        (["explain", "--hiden", "3"], "No such option"),
        (["verify", "--reference", "jax"], "jax"),
        (["verify", "--tests", "0"], "--tests"),
        (["verify", "--tests", "1", "--out", "/no/such/folder/x.json"], "does not exist; create it first"),
        (["verify", "--seed", "-1"], "--seed"),
        (["verify", "--out", "/tmp"], "is a directory; name a file"),
        (["verify", "--tests", "1", "--out", "/dev/full"], "cannot write /dev/full: no space left on the disk"),
        (["explain", "--layers", "2,3,1", "--hidden", "7"], "leave sizes, density and family out"),
        (["explain", "--family", "cascade", "--density", "0.5"], "a cascade has all its edges"),
        (["explain", "--hidden", "1000000"], "edges would need"),
        (["frobnicate"], "No such command"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, message):
    done = meshnn(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr.replace("\n", " ").replace("│", "").replace("  ", " ")


def test_debug_shows_the_traceback():
    done = in_a_process("--debug", "explain", "--hidden", "-3")
    assert "Traceback" in done.stderr


def test_explain_names_the_solver_in_json():
    done = meshnn("explain", "--samples", "100", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["solver"]["name"] in ("lm", "adam")

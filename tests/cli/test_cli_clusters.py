"""`meshnn fit` in separate processes: clusters and signals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from commands import in_a_process, meshnn
from folders import FAST, nan_late, table, write
from meshnn.cli.fit_rows import workers


def test_without_dask(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("meshnn.integrations.dask")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"meshnn\[dask\]"):
        workers("dask:2", None)


@pytest.mark.slow
def test_a_cluster_without_workers_or_a_scheduler(numbers):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    fit = ("fit", str(numbers), "--target", "y", *FAST, "--on", f"dask://127.0.0.1:{port}")
    done = in_a_process(*fit)
    assert done.returncode == 2
    assert "no scheduler of Dask answers at tcp://127.0.0.1" in done.stderr
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", port, "--no-dashboard"]
    scheduler = subprocess.Popen(
        [*command, "--host", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            time.sleep(0.2)
        done = in_a_process(*fit)
    finally:
        scheduler.terminate()
        scheduler.wait()
    assert done.returncode == 2
    assert "has no worker; start workers with `dask worker" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_number_of_workers_does_not_change_the_model(tmp_path, numbers):
    found = []
    for processes in (1, 2):
        done = in_a_process("fit", str(numbers), "--target", "y", *FAST, "--drop", "a", "--json",
                            "--on", f"dask:{processes}", "--out", str(tmp_path / "m.mesh"))  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0]["features"] == ["b"]
    for key in ("test", "train", "loss"):
        assert found[0][key] == found[1][key]
    assert meshnn("evaluate", tmp_path / "m.mesh", numbers).returncode == 0
    bad = write(tmp_path / "bad", [table(), nan_late(table())])
    done = in_a_process("fit", str(bad), "--target", "y", *FAST, "--on", "dask:1", "--json")
    assert done.returncode == 2
    assert "part1.parquet: row 1,001: column b is missing" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("where", [(), ("--on", "dask:1")])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_while_it_learns(tmp_path, numbers, number, code, where):
    out = tmp_path / "out.mesh"
    command = [sys.executable, "-m", "meshnn", "fit", str(numbers), "--target", "y", "--l2", "0", "--hidden", "2",
               "--solver", "adam", "--max-epochs", "10000000", "--tol", "0", "--out", str(out), *where]  # fmt: skip
    # a separate process group: SIGINT reaches all of its processes, as from a terminal
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **quiet, text=True, start_new_session=True) as run:
        lines = []
        while not any("  loss " in line for line in lines[-1:]):  # the line of a finished epoch
            lines.append(run.stderr.readline())
            assert lines[-1], lines
        if number == signal.SIGINT:
            os.killpg(run.pid, number)
        else:
            os.kill(run.pid, number)
        try:
            rest = run.communicate(timeout=300)[1]
        finally:
            run.kill()  # also after a failure
        assert run.returncode == code, rest
    assert "interrupted after epoch" in rest
    assert "Traceback" not in rest
    assert meshnn("evaluate", out, numbers).returncode == 0

"""Runs in separate processes that are killed or end by a signal resume bit by bit."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import meshnn
from meshnn import MeshClassifier
from meshnn.storage import FileError
from meshnn.tables.synthetic import spirals
from meshnn.training import Checkpoint
from row_sources import same

PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has jobs in the background ignore it
import meshnn
from meshnn import MeshClassifier
from meshnn.tables.synthetic import spirals
from meshnn.training import Checkpoint

options, checkpoint, out, wait_at = eval(sys.argv[1]), sys.argv[2], sys.argv[3], eval(sys.argv[4])
saver = Checkpoint(checkpoint, every=float(sys.argv[5]))
X, y = spirals(200, random_state=0)

def report(row, mesh):
    print(row.restart, row.epoch, flush=True)
    if (row.restart, row.epoch) == wait_at:
        sys.stdin.readline()  # wait for input or a signal
    time.sleep(0.01)

MeshClassifier(5, ticks=3, callbacks=[saver, report], **options).fit(X, y).save(out)
"""

RUNS = {
    "adam": {"solver": "adam", "batch_size": 32, "early_stopping": True, "n_restarts": 2, "max_epochs": 40, "tol": 0,
             "random_state": 3},
    "lm": {"solver": "lm", "l2": "evidence", "max_epochs": 60, "tol": 0, "random_state": 3},
}  # fmt: skip


def start(options, checkpoint, out, wait_at=None, seconds=0):
    """Start a run in a separate process that prints every row and waits at the row `wait_at`."""
    command = [sys.executable, "-c", PROGRAM, repr(options), str(checkpoint), str(out), repr(wait_at), str(seconds)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def last_row(options):
    return options.get("n_restarts", 1) - 1, options["max_epochs"]


def end_of(options):
    X, y = spirals(200, random_state=0)
    return MeshClassifier(5, ticks=3, **options).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_killed_again_and_again_ends_with_the_same_bits(name, tmp_path):
    """It is killed at random moments, also while it writes; it cannot end, because it waits at its last row."""
    rng = np.random.default_rng(len(name))
    checkpoint, out = tmp_path / "run.mesh", tmp_path / "end.mesh"
    for _ in range(3):
        process = start(RUNS[name], checkpoint, out, wait_at=last_row(RUNS[name]))
        assert process.stdout.readline(), process.communicate()
        time.sleep(float(rng.uniform(0, 0.1)))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL
    process = start(RUNS[name], checkpoint, out)
    rows, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert rows.splitlines()[-1] == "{} {}".format(*last_row(RUNS[name]))
    same(meshnn.load(out), end_of(RUNS[name]))


@pytest.mark.slow
def test_two_runs_do_not_share_a_checkpoint(tmp_path):
    X, y = spirals(200, random_state=0)
    path, link = tmp_path / "run.mesh", tmp_path / "link.mesh"
    link.symlink_to(path)
    with start(RUNS["lm"], path, tmp_path / "end.mesh", wait_at=(0, 3)) as holder:
        while holder.stdout.readline() != "0 3\n":
            pass
        for name in (path, link):
            with pytest.raises(FileError, match=rf"in use by process {holder.pid}"):
                MeshClassifier(5, ticks=3, callbacks=Checkpoint(name), **RUNS["lm"]).fit(X, y)
        assert len(meshnn.load(path).history_) >= 1  # reading is allowed
        holder.kill()
        holder.wait()
    assert (tmp_path / ".run.mesh.lock").exists()  # a leftover lock file has no effect
    model = MeshClassifier(5, ticks=3, callbacks=Checkpoint(path), **RUNS["lm"]).fit(X, y)
    same(model, end_of(RUNS["lm"]))


@pytest.mark.slow
def test_sigterm_in_a_process(tmp_path):
    """The checkpoint is written immediately, before it is due; then the process ends by the signal."""
    checkpoint, out = tmp_path / "run.mesh", tmp_path / "end.mesh"
    process = start(RUNS["lm"], checkpoint, out, wait_at=(0, 7), seconds=1e9)
    for line in process.stdout:
        if line == "0 7\n":
            break
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == -signal.SIGTERM, errors
    assert len(meshnn.load(checkpoint).history_) == 7
    assert os.listdir(tmp_path) == ["run.mesh"]
    again = start(RUNS["lm"], checkpoint, out)
    rows, errors = again.communicate(timeout=600)
    assert again.returncode == 0, errors
    assert rows.splitlines()[0] == "0 8"
    same(meshnn.load(out), end_of(RUNS["lm"]))

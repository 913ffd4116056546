"""Fits by several processes under torchrun: the same bits for any number, and words when one goes."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from meshnn import MeshClassifier, load
from meshnn.errors import MeshError
from meshnn.integrations import torch_distributed as integration

pytestmark = pytest.mark.slow
N = 3000

KINDS = ("adam", "lm", "prune", "held")
PROGRAM = """
import os, sys, time
import numpy as np
from meshnn import MeshClassifier, MeshRegressor
from meshnn.errors import MeshError
from meshnn.training import Checkpoint, lots, structure
from meshnn.integrations.torch_distributed import fit, together

lots.PART_ROWS = 32
kinds, folder, out = sys.argv[1:4]
wait = sys.argv[4] if len(sys.argv) > 4 else None

def callback(row, mesh):
    if wait and row.epoch == 2 and not os.path.exists(wait):
        open(wait + "." + os.environ["RANK"], "w").write("ready")
        while not os.path.exists(wait):
            time.sleep(0.05)

with together(float(sys.argv[5]) if len(sys.argv) > 5 else 300.0) as rank:
    for kind in kinds.split(","):
        X, y = folder + "/X.npy", folder + "/y.npy"
        options = {"max_epochs": 3, "random_state": 0, "callbacks": callback}
        if wait:
            options["checkpoint"] = Checkpoint(out + ".checkpoint", every=0)
        if kind == "lm":
            model, y = MeshRegressor(3, solver="lm", **options), folder + "/v.npy"
        else:
            policy = structure.Prune(to=40) if kind == "prune" else None
            model = MeshClassifier(6, solver="adam", l2=1e-4, batch_size=256, structure=policy,
                                   early_stopping=kind == "held", **options)
        try:
            fit(model, X, y)
        except MeshError as error:
            sys.exit(f"MeshError: {error}")
        if rank == 0:
            np.savez(f"{out}-{kind}", weights=model.mesh_.weights, loss=model.history_["loss"],
                     src=model.mesh_.topology.src)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("group")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 5)).astype(np.float32)
    np.save(where / "X.npy", X)
    np.save(where / "y.npy", np.array(["no", "yes"])[(X[:, 0] * X[:, 1] > 0).astype(int)])
    np.save(where / "v.npy", (X[:, 0] * X[:, 1] + X[:, 2]).astype(np.float64))
    (where / "program.py").write_text(PROGRAM)
    return where


ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def start(folder, count, *arguments):
    """Under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "--rdzv-backend", "c10d",
               "--rdzv-endpoint", "localhost:0", str(folder / "program.py"), *map(str, arguments)]  # fmt: skip
    return subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)  # fmt: skip


def run(folder, count, kinds, out, *more):
    process = start(folder, count, ",".join(kinds), folder, out, *more)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    return {kind: np.load(f"{out}-{kind}.npz") for kind in kinds}


@pytest.fixture(scope="module")
def alone(folder):
    """What one process finds."""
    return run(folder, 1, KINDS, folder / "alone")


def the_same(got, want):
    for name in want.files:
        np.testing.assert_array_equal(got[name], want[name])


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_processes_gives_the_same_bits(folder, alone, tmp_path, count):
    found = run(folder, count, KINDS, tmp_path / "out")
    for kind in KINDS:
        the_same(found[kind], alone[kind])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_goes_ends_the_others_with_words_and_a_new_start_goes_on(folder, alone, tmp_path, number):
    wait, out = tmp_path / "go", tmp_path / "out"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(2):  # without torchrun, which would end the others itself
        own = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        patience = "20" if number == signal.SIGSTOP else "300"  # a connection that is closed is seen at once
        command = [sys.executable, str(folder / "program.py"), "adam", str(folder), str(out), str(wait), patience]
        processes.append(subprocess.Popen(command, env=os.environ | ENVIRONMENT | own, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))  # fmt: skip
    try:
        until = time.monotonic() + 300
        while not all(Path(f"{wait}.{rank}").exists() for rank in range(2)):
            assert all(process.poll() is None for process in processes)
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(processes[1].pid, number)
        wait.write_text("go on")
        text, _ = processes[0].communicate(timeout=300)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert processes[0].returncode == 1, text
    assert "MeshError: process 0 of 2 has lost process 1" in text
    assert not Path(f"{out}-adam.npz").exists()
    the_same(run(folder, 2, ["adam"], out, wait)["adam"], alone["adam"])


def test_alone_there_is_nobody_to_join(folder):
    with pytest.raises(MeshError, match=r"not initialised; call init_process_group, or start with torchrun"):
        integration.fit(MeshClassifier(), folder / "X.npy", folder / "y.npy")


def test_what_is_wrong_at_one_process_is_told_by_all(folder, tmp_path):
    X = np.load(folder / "X.npy")
    X[N - 1, 3] = np.nan
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", np.load(folder / "y.npy"))
    process = start(folder, 2, "adam", tmp_path, tmp_path / "out.npz")
    text, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "row 3,000: feature 3 is missing" in text, text


def test_launched_is_what_torchrun_says(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert not integration.is_launched()
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    assert integration.is_launched()


def test_the_command_line(folder, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    (tmp_path / "rows").mkdir()
    for k, rows in enumerate((slice(0, 1100), slice(1100, N))):
        table = pa.table({f"x{i}": X[rows, i] for i in range(5)} | {"y": y[rows]})
        parquet.write_table(table, tmp_path / "rows" / f"{k}.parquet")
    found = []
    for count in (1, 2):
        out = tmp_path / f"{count}.mesh"
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "--rdzv-backend",
                   "c10d", "--rdzv-endpoint", "localhost:0", "-m", "meshnn", "fit", str(tmp_path / "rows"),
                   "--target", "y", "--batch", "2048", "--epochs", "2", "--l2", "1e-4", "--out", str(out)]  # fmt: skip
        done = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("test accuracy") == 1
        found.append(load(out).mesh_.weights)
    np.testing.assert_array_equal(*found)

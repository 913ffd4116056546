"""Rows outside of memory: tables, folders and blocks, and small windows for tests."""

import os
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meshnn.training.dataset import LIMITS

FEW = {"hidden": 0, "solver": "adam", "l2": 0.0, "max_epochs": 3, "tol": 0, "random_state": 0}


def is_link(fd):
    return os.path.lexists(f"/proc/self/fd/{fd}")


def data(count=2000, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((count, 3)) * [1, 2, 5] + [0, 3, -1]).astype(dtype)
    y = X.astype(float) @ [1.0, -0.5, 0.2] + 0.3 * rng.standard_normal(count)
    return X, y


def frame(X, **columns):
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(**columns)


def folder_of(path, table, files=1, group=1_000_000):
    path.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(len(table)), files)):
        part = pa.Table.from_pandas(table.iloc[rows], preserve_index=False)
        pq.write_table(part, path / f"part {k:02d} ä.parquet", row_group_size=group)
    return path


def blocks(size, *arrays):
    return (tuple(array[k : k + size] for array in arrays) for k in range(0, len(arrays[0]), size))


def same(a, b):
    np.testing.assert_array_equal(a.mesh_.weights, b.mesh_.weights)
    assert a.history_ == b.history_
    assert (a.best_restart_, a.n_iter_, a.l2_) == (b.best_restart_, b.n_iter_, b.l2_)


@pytest.fixture
def scratch(monkeypatch, tmp_path_factory):
    """Use windows of two pages, and check that no thread and no open file remains."""
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("MESHNN_SCRATCH", str(folder))
    monkeypatch.setattr(LIMITS, "window_bytes", 1)
    monkeypatch.setattr(LIMITS, "window_pages", 2)
    yield folder
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("meshnn reader")]
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_link(fd)]
    assert not [name for name in held if name.startswith(str(folder))]

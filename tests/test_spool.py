"""Rows on a disk: what comes out is what went in, and what is said about them depends on the rows alone."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from meshnn.data import spool as spools
from meshnn.data.spool import PAGE, STRIDE, Moments, Spool
from meshnn.errors import DataError, FileError


def rows_of(count, width=3, n_targets=2, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((count, width)) * 3 + 7).astype(dtype)
    return X, rng.standard_normal((count, n_targets)), rng.uniform(0, 2, count)


@pytest.fixture
def filled():
    """Makes a spool of some rows; gives it and its stamp."""
    made = []

    def fill(X, y, weight=None, size=1000, folder=None):
        spool = Spool(X.shape[1], y.shape[1], X.dtype, weight is not None, folder)
        made.append(spool)
        for k in range(0, len(X), size):
            spool.append(X[k : k + size], y[k : k + size], None if weight is None else weight[k : k + size])
        return spool, spool.close()

    yield fill
    for spool in made:
        spool.release()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_those_of_all_rows_whatever_the_blocks_and_their_bits_too(filled, weighted, dtype):
    X, y, weight = rows_of(2 * STRIDE + 777, dtype=dtype)
    weight = weight if weighted else None
    found = [filled(X, y, weight, size) for size in (len(X), 13, 777, STRIDE, 5000)]
    first, stamp = found[0]
    mean = np.average(X.astype(float), axis=0, weights=weight)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    np.testing.assert_allclose(first.features.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(first.features.spread, spread, rtol=1e-12)
    np.testing.assert_allclose(first.targets.mean, np.average(y, axis=0, weights=weight), rtol=1e-10)
    np.testing.assert_array_equal(first.least, y.min(axis=0))
    assert first.features.weight == pytest.approx(len(X) if weight is None else weight.sum())
    for spool, other in found[1:]:
        assert other == stamp
        np.testing.assert_array_equal(spool.features.mean, first.features.mean)
        np.testing.assert_array_equal(spool.features.spread, first.features.spread)
        np.testing.assert_array_equal(spool.targets.mean, first.targets.mean)


def test_a_spread_that_is_small_against_its_mean_is_not_lost(filled):
    rng = np.random.default_rng(0)
    X = 1.7e9 + rng.choice([-1.0, 1.0], (3 * STRIDE, 1))
    spool, _ = filled(X, X)
    np.testing.assert_allclose(spool.features.spread, X.std(axis=0), rtol=1e-9)
    constant, _ = filled(np.full((STRIDE + 5, 1), 1 / 3), X[: STRIDE + 5])
    assert constant.features.spread[0] <= 1e-16


def test_blocks_of_weight_0_move_nothing():
    moments, values = Moments(2), np.arange(8.0).reshape(4, 2)
    moments.add(values, np.zeros(4))
    moments.add(values, np.array([0.0, 2, 0, 2]))
    moments.merge(Moments(2))
    np.testing.assert_array_equal(moments.mean, [4, 5])
    np.testing.assert_array_equal(moments.spread, [2, 2])


def test_other_rows_have_another_stamp(filled):
    X, y, weight = rows_of(300)
    stamps = {filled(X, y)[1], filled(X, y, weight)[1], filled(X[::-1], y)[1], filled(X[:-1], y[:-1])[1]}
    stamps |= {filled(X.astype(float), y)[1], filled(X, y + 1e-9)[1]}
    numbers = np.arange(12.0)  # the same bytes in rows of another width
    stamps |= {filled(numbers[:8].reshape(4, 2), numbers[8:, None])[1] for _ in range(1)}
    rows = np.column_stack([numbers[:8].reshape(4, 2), numbers[8:]]).ravel().reshape(6, 2)
    stamps.add(filled(rows[:, :1], rows[:, 1:])[1])
    assert len(stamps) == 8


@pytest.mark.parametrize("count", [1, PAGE - 1, PAGE, PAGE + 1, 3 * STRIDE + 5, 70 * PAGE + 9])
@pytest.mark.parametrize(
    ("width", "dtype", "weighted"), [(1, np.float32, False), (5, np.float64, True), (3, np.float32, True)]
)
def test_what_is_read_is_what_was_appended(filled, count, width, dtype, weighted):
    X, y, weight = rows_of(count, width, 1, dtype)
    spool, _ = filled(X, y, weight if weighted else None, 777)
    assert (spool.count, spool.pages) == (count, -(-count // PAGE))
    rng = np.random.default_rng(1)
    some = [np.arange(spool.pages), np.arange(spool.pages)[::-1], rng.permutation(spool.pages)[:5], np.arange(0)]
    for pages in some:
        numbers = [np.arange(page * PAGE, min(count, (page + 1) * PAGE)) for page in pages]
        same_rows(spool.read(pages), np.concatenate([np.arange(0), *numbers]), X, y, weight)
    room = np.empty(count + 3, spool.row)
    same_rows(spool.read(np.arange(spool.pages), room), np.arange(count), X, y, weight)
    for numbers in (np.arange(count), np.sort(rng.integers(count, size=100)), [0, 0, count - 1], [], [count - 1]):
        same_rows(spool.rows(numbers), np.asarray(numbers, int), X, y, weight)


def same_rows(found, numbers, X, y, weight):
    np.testing.assert_array_equal(found["x"], X[numbers])
    np.testing.assert_array_equal(found["y"], y[numbers])
    if "w" in found.dtype.names:
        np.testing.assert_array_equal(found["w"], weight[numbers])


def test_a_system_that_takes_and_gives_a_few_bytes_at_a_time(filled, monkeypatch):
    class Slow:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            return self.file.write(data[:1001])

        def __getattr__(self, name):
            return getattr(self.file, name)

    real, preadv = spools.tempfile.TemporaryFile, os.preadv
    monkeypatch.setattr(spools.tempfile, "TemporaryFile", lambda **options: Slow(real(**options)))
    monkeypatch.setattr(os, "preadv", lambda fd, into, offset: preadv(fd, [into[0][:999]], offset))
    X, y, _ = rows_of(STRIDE + 100)
    spool, _ = filled(X, y)
    same_rows(spool.read(np.arange(spool.pages)), np.arange(len(X)), X, y, None)


def test_a_disk_that_is_full_or_breaks_is_told_with_what_to_do(filled, monkeypatch, tmp_path):
    with pytest.raises(
        FileError, match=r"10,000,000,000,000,000 rows take .* but .* are free there; set MESHNN_SCRATCH"
    ):
        Spool(20, 1, np.float32, folder=tmp_path, expected=10**16)
    with pytest.raises(FileError, match=rf"cannot keep rows in {tmp_path}/no \(No such file or directory\); set M"):
        Spool(20, 1, np.float32, folder=tmp_path / "no")
    X, y, _ = rows_of(STRIDE)
    spool, _ = filled(X, y, folder=tmp_path)

    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    file, spool._file = spool._file, Full()
    with pytest.raises(FileError, match=rf"the disk of {tmp_path} is full after 4,096 rows of 28 bytes; set"):
        spool.append(X, y, None)
    spool._file = file
    os.ftruncate(file.fileno(), 1000)
    with pytest.raises(FileError, match="cannot be read any more; fit again"):
        spool.read(np.arange(1))

    def broken(*arguments):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(FileError, match=r"\(Input/output error\)"):
        spool.read(np.arange(1))


def test_the_folder_is_what_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("MESHNN_SCRATCH", str(tmp_path))
    spool = Spool(1, 1, np.float32)
    assert spool.folder == str(tmp_path)
    assert not list(tmp_path.iterdir())  # it has no name, and is gone with the process
    spool.release()


def test_a_feature_whose_squares_are_no_numbers_is_refused(filled):
    X, y, _ = rows_of(100, dtype=np.float64)
    X[:, 1] *= 1e300
    with pytest.raises(DataError, match="feature 1 is too large for its square to be a number; scale it before"):
        filled(X, y)


@pytest.mark.slow
def test_a_limit_on_files_is_told_like_a_full_disk(tmp_path):
    program = """
import resource
import numpy as np
from meshnn.data.spool import Spool
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
spool = Spool(10, 1, np.float64)
try:
    for _ in range(100):
        spool.append(np.zeros((1000, 10)), np.zeros((1000, 1)), None)
except ValueError as error:
    print(type(error).__name__, error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=os.environ | {"MESHNN_SCRATCH": str(tmp_path)}, capture_output=True, text=True)
    assert done.stdout.startswith(f"FileError cannot keep rows in {tmp_path} (File too large); set MESHNN_SCRATCH"), (
        done
    )

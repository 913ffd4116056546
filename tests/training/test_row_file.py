"""Rows in a file are restored; their statistics depend on the rows only."""

import errno
import os

import numpy as np
import pytest

from meshnn.errors import DataError, FileError
from meshnn.tables.sources import BlockSource, RowBlock
from meshnn.training.dataset import LIMITS, Summary
from meshnn.training.out_of_core import RowFile, RowStore
from meshnn.training.samples import RowTransform

PAGE, STRIDE = LIMITS.page_rows, LIMITS.stride_rows


def rows_of(count, width=3, n_targets=2, dtype=np.float32, weighted=False):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((count, width)) * 3 + 7).astype(dtype)
    return RowBlock(X, rng.standard_normal((count, n_targets)), rng.uniform(0, 2, count) if weighted else None)


@pytest.fixture
def filled():
    """Create a file from rows that are appended in blocks of a given size."""
    made = []

    def fill(rows, size=1000, folder=None):
        file = RowFile(rows, folder)
        made.append(file)
        for k in range(0, len(rows.X), size):
            file.append(rows.take(slice(k, k + size)))
        file.close()
        return file

    yield fill
    for file in made:
        file.release()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_summary_is_that_of_all_rows_with_the_same_bits_for_any_blocks(filled, weighted, dtype):
    rows = rows_of(2 * STRIDE + 777, dtype=dtype, weighted=weighted)
    found = [filled(rows, size).summary for size in (len(rows.X), 13, 777, STRIDE, 5000)]
    found.append(Summary.of(rows))
    X, first = rows.X.astype(float), found[0]
    mean = np.average(X, axis=0, weights=rows.weight)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=rows.weight))
    np.testing.assert_allclose(first.moments.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(first.moments.spread, spread, rtol=1e-12)
    np.testing.assert_array_equal(first.y_min, rows.y.min(axis=0))
    assert first.moments.weight == pytest.approx(rows.weight.sum() if weighted else len(X))
    for other in found[1:]:
        assert other.fingerprint == first.fingerprint
        np.testing.assert_array_equal(other.moments.mean, first.moments.mean)
        np.testing.assert_array_equal(other.moments.spread, first.moments.spread)


def test_a_spread_that_is_small_against_its_mean_is_not_lost(filled):
    X = 1.7e9 + np.random.default_rng(0).choice([-1.0, 1.0], (3 * STRIDE, 1))
    np.testing.assert_allclose(filled(RowBlock(X, X)).summary.moments.spread, X.std(axis=0), rtol=1e-9)
    constant = np.full((STRIDE + 5, 1), 1 / 3)
    assert filled(RowBlock(constant, constant)).summary.moments.spread[0] <= 1e-16


def test_other_rows_have_another_fingerprint(filled):
    rows, weighted = rows_of(300), rows_of(300, weighted=True)
    numbers = np.arange(12.0)  # equal bytes in rows of another width
    others = [
        rows, weighted, rows._replace(X=rows.X[::-1]), rows.take(slice(-1)), rows._replace(X=rows.X.astype(float)),
        rows._replace(y=rows.y + 1e-9), RowBlock(numbers[:8].reshape(4, 2), numbers[8:, None]),
        RowBlock(numbers[:8:2, None], numbers[1:9:2, None]),
    ]  # fmt: skip
    assert len({filled(other).summary.fingerprint for other in others}) == len(others)


@pytest.mark.parametrize("count", [1, PAGE, PAGE + 1, 3 * STRIDE + 5])
@pytest.mark.parametrize(
    ("width", "dtype", "weighted"), [(1, np.float32, False), (5, np.float64, True), (3, np.float32, True)]
)
def test_what_is_read_is_what_was_appended(filled, count, width, dtype, weighted):
    rows = rows_of(count, width, 1, dtype, weighted)
    file = filled(rows, 777)
    assert file.count == count
    rng, pages = np.random.default_rng(1), np.arange(-(-count // PAGE))
    for some in (pages, pages[::-1], rng.permutation(pages)[:5], pages[:0]):
        numbers = [np.arange(page * PAGE, min(count, (page + 1) * PAGE)) for page in some]
        same_rows(file.read(some), rows.take(np.concatenate([np.arange(0), *numbers])))
    for numbers in (np.arange(count), np.sort(rng.integers(count, size=100)), [0, 0, count - 1], []):
        same_rows(file.rows(numbers), rows.take(np.asarray(numbers, int)))


def same_rows(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_disk_that_is_full_or_fails_is_reported_with_its_folder(filled, monkeypatch, tmp_path):
    rows = rows_of(STRIDE)
    with pytest.raises(FileError, match=rf"10,000,000,000,000,000 .*{tmp_path}.*MESHNN_SCRATCH"):
        RowFile(rows, tmp_path, 10**16)
    with pytest.raises(FileError, match=rf"{tmp_path}/no .*MESHNN_SCRATCH"):
        RowFile(rows, tmp_path / "no")
    file = filled(rows, folder=tmp_path)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: real(fd, size, offset)[:-1])
    with pytest.raises(FileError, match=str(tmp_path)):
        file.read(np.arange(1))

    def broken(*arguments):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(FileError, match="Input/output error"):
        file.read(np.arange(1))


def test_a_feature_whose_squares_overflow_is_refused(filled):
    rows = rows_of(100, dtype=np.float64)
    rows.X[:, 1] *= 1e300
    with pytest.raises(DataError, match="feature 1"):
        filled(rows)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_row_store_has_every_row_once_in_one_of_its_parts(weighted):
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((5 * PAGE, 2)), np.array(["b", "a", "c"])[rng.integers(3, size=5 * PAGE)]
    weight = rng.uniform(0.5, 2, len(X)) if weighted else None
    store = RowStore(BlockSource([(X, labels, weight)]), True)
    assert sorted(store.labels) == ["a", "b", "c"]
    each = [float((np.ones(len(X)) if weight is None else weight)[labels == label].sum()) for label in store.labels]
    np.testing.assert_allclose(store.label_sums, each, rtol=1e-12)
    np.testing.assert_array_equal(store.few(10).X, X[:: PAGE // 2])
    training, held = store.hold_out(0.2, seed=3)
    assert (training.n_rows, len(held.X)) == (4 * PAGE, PAGE)
    codes = np.searchsorted(sorted(store.labels), np.array(store.labels))
    scaling = RowTransform("cross_entropy", "float64", *np.array([[0.0, 0], [1, 1], [0, 0], [1, 1]]), codes)
    parts = [training.prepared(scaling), scaling.samples(held)]
    found = np.concatenate([part.take(np.arange(part.count)).X[0] for part in parts])
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(X, axis=0))
    assert sum(part.total_weight for part in parts) == pytest.approx(weight.sum() if weighted else len(X))
    np.testing.assert_array_equal(store.hold_out(0.2, seed=3)[1].X, held.X)
    assert not np.array_equal(store.hold_out(0.2, seed=4)[1].X, held.X)
    store.release()

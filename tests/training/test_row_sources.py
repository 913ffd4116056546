"""Files, folders and blocks for out-of-core fits: valid combinations and errors."""

import copy
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meshnn import MeshClassifier, MeshError, MeshRegressor
from meshnn.errors import DataError, FileError
from meshnn.tables.sources import NpySource, ParquetSource, open_source
from meshnn.training import EarlyStopping
from meshnn.training.out_of_core import RowFile
from row_sources import FEW, blocks, data, folder_of, frame, same, scratch

pytestmark = pytest.mark.usefixtures("scratch")
__all__ = ["scratch"]


def test_views_of_a_map_are_read_as_they_are(tmp_path):
    X, _ = data(700)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for view in (mapped[100:600], mapped[5:][7:], mapped[:, 1:], mapped[::3], mapped[::-1], mapped[:1]):
        found = np.concatenate([rows.X for rows in NpySource(view, np.zeros(len(view))).blocks()])
        np.testing.assert_array_equal(found, view)
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private[3] = 0.5  # not in the file
    found = next(NpySource(private, np.zeros(700)).blocks())
    np.testing.assert_array_equal(found.X, private)


def parts(folder, *tables):
    folder.mkdir()
    for k, table in enumerate(tables):
        table.to_parquet(folder / f"{k}.parquet", index=False)
    return folder


def test_compatible_tables_are_read(tmp_path):
    """Files without rows, partition folders, other types of numbers, categories, columns in another order."""
    X, y = data(300, np.float64)
    good = frame(X, y=y)
    expected = MeshRegressor(**FEW).fit(blocks(100, X, y))
    tables = [good[:0], good[:100], good[:0], good[["c", "y", "a", "b"]][100:]]
    same(MeshRegressor(**FEW).fit(parts(tmp_path / "1", *tables), "y"), expected)
    whole = good.round()
    types = [whole[:100].astype("int32"), whole[100:200].astype("float32"), good[200:]]
    mixed = np.where(np.arange(300)[:, None] < 200, whole, good)
    other = MeshRegressor(**FEW).fit(blocks(100, mixed[:, :3], mixed[:, 3]))
    same(MeshRegressor(**FEW).fit(parts(tmp_path / "2", *types), "y"), other)
    for k in (3, 1, 2):
        (tmp_path / "h" / f"kind={k}").mkdir(parents=True)
        good[100 * (k - 1) : 100 * k].to_parquet(tmp_path / "h" / f"kind={k}" / "x.parquet", index=False)
    kinds = np.repeat([1, 2, 3], 100)
    hive = MeshRegressor(**FEW).fit(tmp_path / "h", "y")
    assert hive.feature_names_in_.tolist() == ["a", "b", "c", "kind"]
    same(hive, MeshRegressor(**FEW).fit(blocks(100, np.column_stack([X, kinds]), y)))
    by_kind = MeshClassifier(**FEW).fit(tmp_path / "h", "kind")
    assert by_kind.classes_.tolist() == [1, 2, 3]
    labels = np.array(["u", "v", "w"])[kinds - 1]
    text = [frame(X[kinds == k], y=pd.Categorical(labels[kinds == k])) for k in (1, 2, 3)]
    found = MeshClassifier(**FEW).fit(parts(tmp_path / "3", *text), "y")
    assert found.classes_.tolist() == ["u", "v", "w"]
    same(found, MeshClassifier(**FEW).fit(blocks(50, X, labels)))
    same(found, MeshClassifier(**FEW).fit(blocks(50, X, kinds)))
    two = MeshClassifier(**FEW).fit(blocks(50, X, y > 0))
    assert two.classes_.tolist() == [False, True]
    assert two.predict(X).dtype == bool


@pytest.mark.parametrize("change", ["was changed", "is gone", "turned up"])
def test_a_folder_that_changes_while_it_is_read_is_refused(change, tmp_path):
    X, y = data(1000)
    path = folder_of(tmp_path / "f", frame(X, y=y), 2)
    first, last = sorted(path.iterdir())
    source = ParquetSource(path, "y")
    rows = source.blocks()
    next(rows)
    next(rows)
    if change == "was changed":
        os.utime(first, ns=(1, 1))
    elif change == "is gone":
        first.unlink()
    else:
        (path / "new.parquet").write_bytes(last.read_bytes())
    with pytest.raises(DataError, match=rf"\.parquet {change}"):
        list(rows)


def test_blocks_that_go_together_are_read():
    X, y = data(300)
    first = MeshRegressor(**FEW).fit(iter([(X[:0].astype(float), y[:0]), (X[:100], y[:100]), (X[100:], y[100:], None)]))
    same(first, MeshRegressor(**FEW).fit(iter([[X[:200], y[:200].tolist()], (X[200:].astype(float), y[200:])])))
    same(first, MeshRegressor(**FEW).fit(open_source(blocks(77, X, y), None), None))
    numbered = pd.DataFrame(np.column_stack([X, y]))
    assert MeshRegressor(**FEW).fit(iter([numbered]), "3").feature_names_in_.tolist() == ["0", "1", "2"]


@pytest.mark.parametrize(("column", "value"), [("b", np.nan), ("b", np.inf), ("y", np.nan), ("w", -2.0)])
def test_a_wrong_number_is_told_with_its_file_and_row(column, value, tmp_path):
    X, y = data(300, np.float64)
    table = frame(X, y=y, w=1.0)
    for name in ("first", "second", "third"):
        if name == "third":
            table.loc[17, column] = value
        table.to_parquet(tmp_path / f"{name}.parquet", row_group_size=10)
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / "x.parquet").write_bytes(b"no part of the table")
    with pytest.raises(DataError, match=r"third.parquet: row 18"):
        MeshRegressor(**FEW).fit(tmp_path, "y", "w")


GOOD = frame(*data(100, np.float64)[:1], y=data(100)[1], w=1.0)


@pytest.mark.parametrize(
    ("tables", "target", "message"),
    [
        ([GOOD.assign(t="x")], "y", "column t is string"),
        ([GOOD, GOOD.assign(b="x")], "y", "1.parquet: column b is string, but double in .*0.parquet"),
        ([GOOD, GOOD.drop(columns="y")], "y", "1.parquet has no column y, which .*0.parquet has"),
        ([GOOD], "z", "has no column z; it has a, b, c, y"),
        ([GOOD], None, "NoneType"),
        ([GOOD[:0], GOOD[:0]], "y", "has no rows"),
        ([GOOD[["y"]]], "y", "besides y"),
        ([GOOD.assign(y="x")], "y", "<U1.*MeshClassifier"),
        ([], "y", "no .parquet file"),
    ],
)
def test_tables_that_do_not_go_together_are_refused(tables, target, message, tmp_path):
    with pytest.raises(DataError, match=message):
        MeshRegressor(**FEW).fit(parts(tmp_path / "f", *tables), target)


def test_files_that_are_no_tables_are_refused(tmp_path):
    doubled = pa.table([GOOD["a"], GOOD["b"], GOOD["y"]], names=["a", "a", "y"])
    pq.write_table(doubled, tmp_path / "doubled.parquet")
    (tmp_path / "a.csv").write_text("a,y\n1,2\n")
    for name, error in (("doubled.parquet", DataError), ("a.csv", DataError), ("none.parquet", FileError)):
        with pytest.raises(error, match="duplicate" if name.startswith("d") else name):
            MeshRegressor(**FEW).fit(tmp_path / name, "y")
    with pytest.raises(DataError, match="sample_weight"):
        MeshRegressor(**FEW).fit(parts(tmp_path / "w", GOOD), "y", ["a", "b"])
    with pytest.raises(DataError, match="function blocks"):
        MeshClassifier().fit(blocks)


X, Y = data(100, np.float64)
TEXT, HURT = np.array(["u"] * 100), np.where(np.arange(300).reshape(100, 3) == 22, np.nan, X)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([(X, Y), (X[:, :2], Y)], {}, "block 2 has 2 features.*3"),
        ([(X, Y, -(Y**2))], {}, r"block 1: row 1 .*weight -"),
        ([(X, Y), (HURT, Y)], {}, "block 2: row 8: feature 1 is missing"),
        ([(X, Y), (X, HURT[:, 1])], {}, "block 2: row 8: target 0 is missing"),
        ([(X, Y[:5])], {}, r"block 1 .*\(100, 3\), \(5,\)"),
        ([(X, np.stack([Y, Y], 1)), (X, Y)], {}, "1 columns.*2"),
        ([(X.astype(np.float32), Y), (X, Y)], {}, "block 2 holds float64"),
        ([(X[:, :0], Y)], {}, "no feature"),
        ([], {}, "no rows"),
        ([(X, Y, 0 * Y)], {}, "weight 0"),
        ([GOOD], {}, "block 1 is a table"),
        ([GOOD, GOOD[["b", "a", "c", "y", "w"]]], {"y": "y"}, "block 2 has the columns b, a, c"),
        ([GOOD.assign(w="x")], {"y": "y", "sample_weight": "w"}, "block 1: column w"),
        ([GOOD.assign(a="12")], {"y": "y"}, "block 1: column a .*12"),
        ([pd.concat([GOOD, GOOD[["a"]]], axis=1)], {"y": "y"}, "block 1: .*column.*a"),
    ],
)
def test_blocks_that_do_not_go_together_are_refused(given, options, message):
    with pytest.raises(DataError, match=message):
        MeshRegressor(**FEW).fit(iter(given), **options)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([(X, np.array(["u", None] * 50, object))], {}, "block 1: row 2: y is missing"),
        ([pa.table({"a": Y, "y": ["u", None] * 50})], {"y": "y"}, "block 1: row 2: column y is missing"),
        ([(X, np.array(["u", 1] * 50, object))], {}, "block 1: y holds values of several types"),
        ([(X, TEXT), (X, np.ones(100))], {}, "text in some blocks"),
        ([(X, np.round(Y, 1))], {}, r"-?\d+\.\d, .*MeshRegressor"),
        ([(X, np.stack([TEXT, TEXT], 1))], {}, "several columns"),
        ([(np.repeat(X, 20, 0), np.arange(2000))], {}, "1,000 .*MeshRegressor"),
    ],
)
def test_labels_that_are_none_are_refused(given, options, message):
    with pytest.raises(DataError, match=message):
        MeshClassifier(**FEW).fit(iter(given), **options)


def test_blocks_that_fail_later_are_refused():
    with pytest.raises(DataError, match=r"poisson.*-"):
        MeshRegressor(**FEW, loss="poisson").fit(blocks(10, X, Y))
    used = blocks(10, X, Y)
    list(used)
    with pytest.raises(DataError, match="only once"):
        MeshRegressor(**FEW).fit(used)
    with pytest.raises(ZeroDivisionError):  # the error of the user's generator
        MeshRegressor(**FEW).fit((X, Y / k) if k else (X, 1 / k) for k in (1, 0))


def test_files_of_arrays_that_do_not_go_together_are_refused(tmp_path):
    path = tmp_path / "X.npy"
    for name, array in (("X", X), ("cube", np.zeros((3, 3, 3))), ("text", np.array([["a", "b"]])), ("hurt", HURT)):
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "junk.npy").write_bytes(b"what is this")
    (tmp_path / "short.npy").write_bytes(path.read_bytes()[:500])
    cases = [
        ((path,), "X.npy has features only"),
        ((path, Y[:5]), "y has 5 rows.*100"),
        ((path, np.zeros((100, 2, 2))), r"y has the shape \(100, 2, 2\)"),
        ((path, HURT[:, 1]), r"X\.npy: row 8: target 0 is missing"),
        ((path, Y, Y[:7] ** 2), "sample_weight has 7 rows"),
        ((path, Y, Y), r"X\.npy: row . .*weight -"),
        ((tmp_path / "hurt.npy", Y), r"hurt\.npy: row 8: feature 1 is missing"),
        ((tmp_path / "cube.npy", Y), r"cube\.npy holds float64 \(3, 3, 3\)"),
        *(((tmp_path / f"{name}.npy", Y), rf"{name}\.npy") for name in ("text", "junk", "short")),
    ]
    for given, message in cases:
        with pytest.raises(DataError, match=message):
            MeshRegressor(**FEW).fit(*given)
    source = NpySource(path, Y)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=r"X\.npy"):
        list(source.blocks())
    path.unlink()
    with pytest.raises(FileError, match=r"X\.npy"):
        list(source.blocks())


def test_a_fit_that_is_refused_leaves_the_estimator_as_it_was(tmp_path, monkeypatch):
    model = MeshRegressor(**FEW).fit(frame(X), Y)
    before, known = model.predict(frame(X)), sorted(model.__dict__)

    def full(self, rows):
        raise self._failed(OSError(28, "No space left on device"))

    def interrupted():
        yield X, Y
        raise KeyboardInterrupt

    def refused(given):
        with pytest.raises((MeshError, KeyboardInterrupt)):
            model.fit(given)
        assert sorted(model.__dict__) == known
        np.testing.assert_array_equal(model.predict(frame(X)), before)

    refused(blocks(100, HURT, Y))
    refused(interrupted())
    with monkeypatch.context() as patch:
        patch.setattr(RowFile, "_write", full)
        refused(blocks(100, X, Y))
    with monkeypatch.context() as patch:
        patch.setenv("MESHNN_SCRATCH", str(tmp_path / "no"))
        refused(blocks(100, X, Y))
    for options in ({"warm_start": True}, {"early_stopping": EarlyStopping(validation_fraction=None, scoring="r2")}):
        with pytest.raises(MeshError, match="memory"):
            copy.copy(model).set_params(**options).fit(blocks(100, X, Y))

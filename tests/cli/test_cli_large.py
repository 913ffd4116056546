"""Tables that the command line reads in blocks: folders of Parquet files, large files, .npy files."""

import gzip
import itertools
import json
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from commands import meshnn
from folders import FAST, fitted, nan_late, refused, table, with_column, write
from meshnn import progress
from meshnn.cli.scores import ModelScores
from meshnn.tables import reader
from meshnn.tables.cells import cells_of
from meshnn.tables.holdout import HoldoutSplit
from meshnn.training.out_of_core import RowFile


def test_a_folder_is_learned_and_files_make_no_difference(tmp_path, numbers):
    out = tmp_path / "model.mesh"
    found = fitted(numbers, "--test", "0.25", "--out", out)
    assert (found["task"], found["features"]) == ("regress", ["a", "b"])
    assert (found["test"]["rows"], found["train"]["rows"]) == (900, 2700)
    whole = pa.concat_tables([table(seed=k) for k in range(3)])
    other = write(tmp_path / "other", [whole.slice(0, 3000), whole.slice(3000)], row_group_size=77)
    again = fitted(other, "--test", "0.25")
    for key in ("test", "train", "loss", "edges"):
        assert again[key] == found[key]
    (tmp_path / "rows.csv").write_text("y,b,a\n1,2,3\n")  # columns are found by name
    assert meshnn("predict", out, tmp_path / "rows.csv").stdout.startswith("prediction\n")


def test_no_more_rows_are_drawn_than_fit():
    assert len(HoldoutSplit.for_report(10**9, 0.3, 0, 10).held) == 100_000
    assert len(HoldoutSplit.for_report(10**9, 0.3, 0, 2**20).held) == 64  # 8 MiB per row


def test_rows_that_are_tested_on_are_not_learned_from(tmp_path, monkeypatch, numbers):
    seen = []
    real = RowFile.append
    monkeypatch.setattr(RowFile, "append", lambda self, rows: (seen.append(rows.y[:, 0].copy()), real(self, rows))[1])
    fitted(numbers, "--test", "0.5", "--seed", "4")
    everything = np.concatenate([table(seed=k)["y"].to_numpy() for k in range(3)])
    split = HoldoutSplit.for_report(3600, 0.5, 4, 2)
    np.testing.assert_array_equal(np.concatenate(seen), np.delete(everything, split.held))


@pytest.mark.parametrize(("values", "names"), [
    (["n", "y"], ["n", "y"]), ([0.0, 1.0], ["0", "1"]), ([3, 7], ["3", "7"]), ([False, True], ["False", "True"]),
])  # fmt: skip
def test_classes_are_what_they_are_in_memory(tmp_path, values, names):
    labels = [values[k % 2] for k in range(1200)]
    folder = write(tmp_path / "folder", [with_column(table(), "y", labels)])
    found = fitted(folder)
    assert (found["task"], found["classes"]) == ("classify", names)
    assert fitted(folder / "part0.parquet")["classes"] == names
    if not isinstance(values[0], str):
        assert fitted(folder, "--task", "regress")["classes"] is None


def test_a_class_that_is_only_among_the_rows_to_test(tmp_path):
    split = HoldoutSplit.for_report(1200, 0.3, 0, 2)
    labels = np.array(["no", "yes"])[np.arange(1200) % 2]
    labels[split.held[0]] = "new"
    found = fitted(write(tmp_path / "folder", [with_column(table(), "y", labels)]))
    assert found["classes"] == ["no", "yes"]
    assert sum(map(sum, found["test"]["confusion"])) == found["test"]["rows"] - 1
    assert any("1 row with a class that is not in the training data, e.g. 'new'" in note for note in found["notes"])


def test_columns_may_be_dropped_and_said_by_folders(tmp_path):
    folder = tmp_path / "by_year"
    for year in (2020, 2021):
        (folder / f"year={year}").mkdir(parents=True)
        found = table(seed=year, name=["text"] * 1200)
        parquet.write_table(found, folder / f"year={year}" / "part.parquet")
    assert "column name is string, expected numbers" in refused("fit", folder, "--target", "y", *FAST)
    out = tmp_path / "model.mesh"
    assert fitted(folder, "--drop", "name", "--out", out)["features"] == ["a", "b", "year"]
    assert meshnn("evaluate", out, folder).returncode == 0


def test_a_parquet_file_is_read_in_blocks_if_it_is_large(monkeypatch, tmp_path, numbers):
    file = numbers / "part0.parquet"
    assert "read block by block" not in meshnn("fit", file, "--target", "y", *FAST).stderr
    monkeypatch.setattr(reader, "LARGE", 1000)
    done = meshnn("fit", file, "--target", "y", *FAST, "--out", tmp_path / "m.mesh")
    assert "1,200 rows in" in done.stderr
    assert "read block by block; 840 rows for training, 360 for the test" in done.stderr
    assert meshnn("evaluate", tmp_path / "m.mesh", file, "--json").returncode == 0


def test_npy_files(tmp_path):
    X = np.random.default_rng(0).standard_normal((900, 3)).astype(np.float32)
    arrays = {"X": X, "y": (X[:, 0] > 0).astype(np.int8), "wide": X[:, :2], "short": X[:5, 0]}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    file = tmp_path / "X.npy"
    found = fitted(file, target=str(tmp_path / "y.npy"))
    assert (found["classes"], found["features"], found["test"]["rows"]) == (["0", "1"], None, 270)
    for target, message in (("y", "has features only"), (tmp_path / "nothing.npy", "nothing.npy"),
                            (tmp_path / "short.npy", "5 rows"), (tmp_path / "wide.npy", "2 targets")):  # fmt: skip
        assert message in refused("fit", file, "--target", target, *FAST)
    given = ("fit", file, "--target", tmp_path / "y.npy", *FAST)
    assert "have no names" in refused(*given, "--drop", "a")
    assert "--on needs Parquet files" in refused(*given, "--on", "dask:2")
    stream = ("stream", file, "--target", "y", "--out", tmp_path / "s.mesh")
    assert "no column y; the columns are x0, x1, x2" in refused(*stream)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: [table(), with_column(table(), "b", ["x"] * 1200)], "part1.parquet: column b is string, but float in"),
    (lambda: [table(), nan_late(table(seed=1))], "part1.parquet: row 1,001: column b is missing"),
    (lambda: [], "no .parquet file"),
    (lambda: [table().slice(0, 1)], "1 row, expected at least 2"),
    (lambda: [with_column(table(), "y", [2.5] * 1200)], "the target is 2.5 in every row"),
    (lambda: [with_column(table(), "y", ["k"] * 1200)], "has only one class, 'k'"),
    (lambda: [table().select(["y"])], "has no column to learn from"),
], ids=range(7))  # fmt: skip
def test_folders_that_cannot_be_learned_from(tmp_path, make, message):
    out = tmp_path / "out.mesh"
    assert message in refused("fit", write(tmp_path / "folder", make()), "--target", "y", *FAST, "--out", out)
    assert not out.exists()


def test_options_that_make_no_sense(tmp_path, numbers, classes):
    csv = tmp_path / "table.csv"
    csv.write_text("a,y\n1,2\n")
    for data, options, message in (
        (numbers, ("--target", "z"), "no column z; the columns are a, b, y"),
        (numbers, ("--drop", "z"), "no column z"),
        (numbers, ("--class-weight", "balanced"), "--class-weight needs a target with classes"),
        (numbers, ("--task", "classify"), "classes in 3,600 rows"),
        (csv, ("--on", "dask:2"), "--on needs a Parquet file"),
        (classes, ("--task", "regress"), "target y is text"),
        (tmp_path / "nothing", (), "nothing: the file does not exist"),
    ):
        assert message in refused("fit", data, "--target", "y", *options, *FAST)


def test_a_damaged_file_is_named(tmp_path, numbers):
    folder, out = write(tmp_path / "folder", [table(), table()], write_page_checksum=True), tmp_path / "model.mesh"
    raw = np.fromfile(folder / "part1.parquet", np.uint8)
    raw[len(raw) // 2 : len(raw) // 2 + 50] ^= 0xFF
    raw.tofile(folder / "part1.parquet")
    fitted(numbers, "--out", out)
    arguments = ("--target", "y", "--hidden", "1", "--out", tmp_path / "s.mesh", "--no-picture")
    for command in (("fit", folder, "--target", "y", *FAST), ("evaluate", out, folder), ("stream", folder, *arguments)):
        assert "part1.parquet cannot be read" in refused(*command)
    assert json.loads(meshnn("info", tmp_path / "s.mesh", "--json").stdout)["rows"] == 1200


def test_interrupted_while_it_reads(monkeypatch, tmp_path, numbers):
    def append(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(RowFile, "append", append)
    done = meshnn("fit", numbers, "--target", "y", *FAST, "--out", tmp_path / "out.mesh")
    assert done.returncode == 130
    assert "interrupted before the first epoch ended: no model was written" in done.stderr
    assert not (tmp_path / "out.mesh").exists()


def test_what_is_shown_while_rows_are_read(monkeypatch, capsys):
    clock = itertools.count(0.0, 10.0)  # seconds between two calls
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    for quiet, total, remark, line in (
        (False, 1000, "", r"reading 25%: 250 rows, \d+ rows/s, \d+ s left\n"), (True, 1000, "", ""),
        (False, None, "", r"reading: 250 rows, \d+ rows/s\n"), (False, 1000, "now", r"reading 25%: now, \d+ s left\n"),
    ):  # fmt: skip
        with progress.progress("reading", total, quiet=quiet) as tell:
            tell(0)
            tell(250, remark=remark)
        assert re.fullmatch(line, capsys.readouterr().err)


def in_one_file(folder):
    file = folder.parent / f"{folder.name}.parquet"
    parquet.write_table(parquet.read_table(folder), file)
    return file


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "parquet"])
def test_predictions_of_a_folder_are_those_of_its_rows(tmp_path, classes, ending):
    out, options = tmp_path / "model.mesh", ("--probabilities", "--keep", "a,y")
    fitted(classes, "--out", out)
    files = [tmp_path / f"{k}.{ending}" for k in range(2)]
    done = meshnn("predict", out, classes, *options, "--out", files[0])
    assert "3,600 predictions written" in done.stderr
    assert meshnn("predict", out, in_one_file(classes), *options, "--out", files[1]).returncode == 0
    if ending == "parquet":
        assert parquet.read_table(files[0]).equals(parquet.read_table(files[1]))
    else:
        unpacked = gzip.decompress if ending.endswith("gz") else bytes
        assert unpacked(files[0].read_bytes()) == unpacked(files[1].read_bytes())
    shown = [meshnn("predict", out, data).stdout for data in (classes, in_one_file(classes))]
    assert shown[0] == shown[1]


def test_predictions_appear_whole_or_not_at_all(tmp_path, numbers):
    model, out = tmp_path / "model.mesh", tmp_path / "out.parquet"
    fitted(numbers, "--out", model)
    out.write_text("old")
    bad = write(tmp_path / "bad", [table(), with_column(table(), "b", ["x"] * 1200)])
    assert "part1.parquet: column b is string" in refused("predict", model, bad, "--out", out)
    assert out.read_text() == "old"
    assert not [file for file in tmp_path.iterdir() if file.suffix == ".tmp"]
    assert "is in the input folder" in refused("predict", model, numbers, "--out", numbers / "p.parquet")
    assert "--json" in refused("predict", model, numbers, "--json")
    assert "no column z" in refused("predict", model, numbers, "--keep", "z")
    whole = in_one_file(numbers)
    assert "is the table and would be overwritten" in refused("predict", model, whole, "--out", whole)
    assert "no .parquet file" in refused("predict", model, write(tmp_path / "empty", []))


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_scores_of_a_folder_are_those_of_its_rows(tmp_path, request, kind):
    folder, out = request.getfixturevalue(kind), tmp_path / "model.mesh"
    fitted(folder, "--out", out)
    both = (folder, in_one_file(folder))
    found, known = (json.loads(meshnn("evaluate", out, data, "--json").stdout) for data in both)
    assert found["rows"] == known["rows"] == 3600
    assert found.keys() == known.keys()
    assert found["confusion"] == known["confusion"]
    for name in {"R2", "RMSE", "MAE", "accuracy", "log_loss", "low", "high"} & found.keys():
        assert found[name] == pytest.approx(known[name], rel=1e-9, abs=1e-12)


def test_the_interval_of_r2():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.standard_normal(500) + 3, rng.exponential(9, 700)])
    predicted = y + rng.standard_normal(len(y)) * (1 + np.abs(y) / 10) + 2
    scores = ModelScores()
    for part in np.split(np.arange(len(y)), [500, 900]):
        scores.add(cells_of(pa.table({"y": y[part]}), "y"), predicted[part])
    report = scores.report("y")[0]
    errors, off = (y - predicted) ** 2, (y - y.mean()) ** 2
    influence = errors.mean() / off.mean() ** 2 * off - errors / off.mean()
    half = 1.96 * influence.std() / np.sqrt(len(y))
    assert (report.low, report.high) == pytest.approx((report.score - half, report.score + half), rel=1e-4)


def test_a_folder_is_streamed_by_names_and_resumed(tmp_path, numbers):
    def streamed(data, out, *options):
        return json.loads(meshnn("stream", data, "--out", tmp_path / out, "--no-picture", "--json", *options).stdout)

    options = ("--target", "y", "--hidden", "2")
    whole, found = streamed(in_one_file(numbers), "whole.mesh", *options), streamed(numbers, "folder.mesh", *options)
    same = [key for key, value in whole.items() if not isinstance(value, str) and "second" not in key]
    assert {key: found[key] for key in same} == {key: whole[key] for key in same}
    (numbers / "part2.parquet").rename(tmp_path / "later.parquet")
    assert streamed(numbers, "part.mesh", *options)["rows"] == 2400
    (tmp_path / "later.parquet").rename(numbers / "part2.parquet")  # later files contain new rows
    streamed(numbers, "part.mesh", "--resume", tmp_path / "part.mesh")
    rows = [meshnn("evaluate", tmp_path / f"{name}.mesh", numbers, "--json").stdout for name in ("folder", "part")]
    assert json.loads(rows[0])["RMSE"] == json.loads(rows[1])["RMSE"]
    for count, message in ((7, "is shorter than the table"), (5000, "is not the table that")):
        parquet.write_table(table(rows=count), numbers / "part0.parquet")
        assert message in refused("stream", numbers, "--resume", tmp_path / "part.mesh")

"""Tables on the command line that are read block by block: folders of Parquet files, large ones, .npy files."""

import errno
import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from commands import meshnn
from folders import FAST, fitted, nan_late, refused, table, with_column, write
from meshnn import progress
from meshnn.cli.scores import Scores
from meshnn.errors import DataError
from meshnn.tables import reader
from meshnn.tables.files import FileReader
from meshnn.tables.holdout import HoldoutSource, HoldoutSplit
from meshnn.tables.sources import BlockSource
from meshnn.training.out_of_core import RowFile


def blocks_of(X, y, size):
    return BlockSource(iter([(X[k : k + size], y[k : k + size]) for k in range(0, len(X), size)]))


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_rows_are_drawn_by_number_whatever_the_blocks(size):
    X, y = np.arange(2000.0).reshape(1000, 2), np.arange(1000.0)
    split = HoldoutSplit.for_report(1000, 0.25, 3, 2)
    source = HoldoutSource(blocks_of(X, y, size), split, classes=False)
    kept = np.concatenate([rows.y for rows in source.blocks()])
    assert source.n_rows == len(kept) == 750
    np.testing.assert_array_equal(source.held.y, split.held)
    np.testing.assert_array_equal(source.held.X, X[split.held])
    np.testing.assert_array_equal(source.sample.y, split.sample)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, source.held.y])), y)
    assert np.isin(source.sample.y, kept).all()


def test_no_more_rows_are_drawn_than_fit():
    draws = [HoldoutSplit.for_report(10**9, 0.3, seed, 10).held for seed in (0, 0, 1)]
    assert len(draws[0]) == 100_000
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    assert len(HoldoutSplit.for_report(10**9, 0.3, 0, 2**20).held) == 64  # of 8 MiB each
    assert len(HoldoutSplit.for_report(1000, 0.0, 0, 10).held) == 0
    with pytest.raises(DataError, match="1 of 4 rows"):
        HoldoutSplit.for_report(4, 0.7, 0, 1)


@pytest.mark.slow
def test_a_folder_is_learned_and_files_make_no_difference(tmp_path, numbers):
    out = tmp_path / "model.mesh"
    found = fitted(numbers, "--test", "0.25", "--out", out)
    assert found["task"] == "regress"
    assert found["features"] == ["a", "b"]
    assert found["test"]["rows"] == 900
    assert found["train"]["rows"] == 2700
    whole = pa.concat_tables([table(seed=k) for k in range(3)])
    other = write(tmp_path / "other", [whole.slice(0, 3000), whole.slice(3000)], row_group_size=77)
    again = fitted(other, "--test", "0.25")
    for key in ("test", "train", "loss", "edges"):
        assert again[key] == found[key]
    for name in ("info", "plot"):
        assert meshnn(name, out, *(["--out", tmp_path / "net.svg"] if name == "plot" else [])).returncode == 0
    csv = tmp_path / "rows.csv"  # the model finds its columns by name, as any other
    csv.write_text("y,b,a\n1,2,3\n")
    assert meshnn("predict", out, csv).stdout.startswith("prediction\n")


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
    assert any("1 row of classes that the model does not know, e.g. 'new'" in note for note in found["notes"])


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
    assert "read block by block; 840 rows to learn from, 360 to test on" in done.stderr
    assert meshnn("evaluate", tmp_path / "m.mesh", file, "--json").returncode == 0


def test_npy_files(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 3)).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", (X[:, 0] > 0).astype(np.int8))
    np.save(tmp_path / "wide.npy", X[:, :2])
    np.save(tmp_path / "short.npy", X[:5, 0])
    file = tmp_path / "X.npy"
    found = fitted(file, target=str(tmp_path / "y.npy"))
    assert (found["classes"], found["features"], found["test"]["rows"]) == (["0", "1"], None, 270)
    for target, message in (
        ("y", "has features only; name a .npy file"),
        (tmp_path / "nothing.npy", "nothing.npy: there is no such file"),
        (tmp_path / "short.npy", "short.npy has 5 rows, but"),
        (tmp_path / "wide.npy", "2 targets per row"),
    ):
        assert message in refused("fit", file, "--target", target, *FAST)
    given = ("fit", file, "--target", tmp_path / "y.npy", *FAST)
    assert "have no names" in refused(*given, "--drop", "a")
    assert "--on: a cluster learns from Parquet files" in refused(*given, "--on", "dask:2")
    assert "no column y; the columns are x0, x1, x2" in refused(
        "stream", file, "--target", "y", "--out", tmp_path / "s.mesh"
    )


def test_a_checkpoint_goes_on(tmp_path, numbers):
    out = tmp_path / "run.mesh"
    options = ("--checkpoint", out, "--early-stopping")
    found = fitted(numbers, *options)
    assert fitted(numbers, *options)["loss"] == found["loss"]
    assert out.exists()


@pytest.mark.parametrize(("make", "message"), [
    (lambda: [table(), table().drop_columns(["b"])], "part1.parquet has no column b, which"),
    (lambda: [table(), with_column(table(), "b", ["x"] * 1200)], "part1.parquet: column b is string, but float in"),
    (lambda: [table(), nan_late(table(seed=1))], "part1.parquet: row 1,001: column b is missing"),
    (lambda: [table(), with_column(table(), "y", [1.5] * 1199 + [None])], "part1.parquet: row 1,200: column y is miss"),
    (lambda: [], "folder has no .parquet file"),
    (lambda: [table().slice(0, 0)], "the table has 0 rows, expected at least 2"),
    (lambda: [table().slice(0, 1)], "1 row, expected at least 2"),
    (lambda: [with_column(table(), "y", [2.5] * 1200)], "the target is 2.5 in every row"),
    (lambda: [with_column(table(), "y", ["k"] * 1200)], "holds one class only, 'k'"),
    (lambda: [with_column(table(), "y", [str(k) for k in range(1200)])], "it looks like an identifier"),
    (lambda: [table().select(["y"])], "has no column to learn from"),
], ids=range(11))  # fmt: skip
def test_folders_that_cannot_be_learned_from(tmp_path, make, message):
    out = tmp_path / "out.mesh"
    assert message in refused("fit", write(tmp_path / "folder", make()), "--target", "y", *FAST, "--out", out)
    assert not out.exists()


def test_options_that_make_no_sense(tmp_path, numbers, classes):
    csv = tmp_path / "table.csv"
    csv.write_text("a,y\n1,2\n")
    for arguments, message in (
        ((numbers, "--target", "z"), "no column z; the columns are a, b, y"),
        ((numbers, "--target", "y", "--drop", "z"), "no column z"),
        ((numbers, "--target", "y", "--scratch", tmp_path / "no"), "--scratch:"),
        ((numbers, "--target", "y", "--class-weight", "balanced"), "--class-weight: the target is a number"),
        ((numbers, "--target", "y", "--task", "classify"), "classes in 3,600 rows that were looked at"),
        ((numbers, "--target", "y", "--on", "spark:2"), "--on must be dask:2"),
        ((numbers, "--target", "y", "--on", "dask:0"), "--on dask must be a whole number of at least 1"),
        ((csv, "--target", "y", "--on", "dask:2"), "--on: a cluster learns from Parquet files"),
        ((classes, "--target", "y", "--task", "regress"), "target y is text, expected numbers"),
        ((tmp_path / "nothing", "--target", "y"), "there is no such file"),
    ):
        assert message in refused("fit", *arguments, *FAST)


def damaged(folder):
    """Bytes in the middle of the second file are others than were written; pages have checksums."""
    file = write(folder, [table(seed=k) for k in range(2)], write_page_checksum=True) / "part1.parquet"
    raw = bytearray(file.read_bytes())
    for k in range(len(raw) // 2, len(raw) // 2 + 50):
        raw[k] ^= 0xFF
    file.write_bytes(raw)
    return folder


def test_a_damaged_file_is_named(tmp_path, numbers):
    folder, out = damaged(tmp_path / "folder"), tmp_path / "model.mesh"
    assert "part1.parquet cannot be read" in refused("fit", folder, "--target", "y", *FAST)
    fitted(numbers, "--out", out)
    assert "part1.parquet cannot be read" in refused("evaluate", out, folder)
    arguments = ("--target", "y", "--hidden", "1", "--out", tmp_path / "s.mesh", "--no-picture")
    assert "part1.parquet cannot be read" in refused("stream", folder, *arguments)
    assert json.loads(meshnn("info", tmp_path / "s.mesh", "--json").stdout)["rows"] == 1200


@pytest.mark.parametrize("change", ["more", "other", "gone"])
def test_a_folder_that_changes_while_it_is_read(monkeypatch, numbers, change):
    real, done = RowFile.append, []

    def append(self, rows):
        if not done:
            done.append(True)
            first = numbers / "part0.parquet"
            if change == "gone":
                first.unlink()
            else:
                parquet.write_table(table(rows=3), numbers / "part9.parquet" if change == "more" else first)
        real(self, rows)

    monkeypatch.setattr(RowFile, "append", append)
    message = refused("fit", numbers, "--target", "y", *FAST)
    assert {"more": "turned up", "other": "was changed", "gone": "is gone"}[change] in message


def test_a_disk_that_fills_up(monkeypatch, tmp_path, numbers):
    def write_none(self, rows):
        raise self._failed(OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(RowFile, "_write", write_none)
    message = refused("fit", numbers, "--target", "y", *FAST, "--scratch", tmp_path)
    assert f"the disk of {tmp_path} is full" in message
    assert "--scratch" in message


def test_interrupted_while_it_reads(monkeypatch, tmp_path, numbers):
    def append(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(RowFile, "append", append)
    done = meshnn("fit", numbers, "--target", "y", *FAST, "--out", tmp_path / "out.mesh")
    assert done.returncode == 130
    assert "interrupted before the first epoch was done: nothing was learned, nothing is written" in done.stderr
    assert not (tmp_path / "out.mesh").exists()


def test_what_is_shown_while_rows_are_read(monkeypatch, capsys):
    seconds = iter(range(0, 600, 6))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    with progress.reading(1, 1000) as told:
        for count in (100, 250, 1000):
            told(count)
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"reading: 250 of 1,000 rows, [\d,]+ rows/s, [\d,]+ s left", lines[0])
    assert re.fullmatch(r"reading: 1,000 of 1,000 rows, [\d,]+ rows/s, 0 s left", lines[1])
    with progress.reading(1, None) as told:
        told(1), told(2)
    assert re.fullmatch(r"reading: 2 rows, [\d,]+ rows/s\n", capsys.readouterr().err)
    with progress.reading(0, 1000) as told:
        told(1), told(2)
    assert capsys.readouterr().err == ""


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
    assert "of 3,600 predictions agree with it" in done.stderr
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
    assert "is in the folder that is read" in refused("predict", model, numbers, "--out", numbers / "p.parquet")
    assert "--json" in refused("predict", model, numbers, "--json")
    assert "no column z" in refused("predict", model, numbers, "--keep", "z")
    whole = in_one_file(numbers)
    assert "is the table, which would be lost" in refused("predict", model, whole, "--out", whole)
    assert "has no .parquet file" in refused("predict", model, write(tmp_path / "empty", []))


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


def test_the_interval_of_r2_from_sums():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.standard_normal(500) + 3, rng.standard_normal(2000) ** 3 - 40, rng.exponential(9, 700)])
    predicted = y + rng.standard_normal(len(y)) * (1 + np.abs(y) / 10) + 2
    scores = Scores()
    for part in np.split(np.arange(len(y)), [500, 900, 2500]):  # the mean moves away from that of the first block
        scores.add(y[part], predicted[part])
    report = scores.report("y")[0]
    errors, off = (y - predicted) ** 2, (y - y.mean()) ** 2
    influence = errors.mean() / off.mean() ** 2 * off - errors / off.mean()
    half = 1.96 * influence.std() / np.sqrt(len(y))
    assert report.score == pytest.approx(1 - errors.mean() / off.mean())
    assert (report.low, report.high) == pytest.approx((report.score - half, report.score + half), rel=1e-4)
    assert report.others == pytest.approx({"RMSE": np.sqrt(errors.mean()), "MAE": np.abs(y - predicted).mean()})


def test_answers_that_are_missing_or_unknown(tmp_path, classes):
    out = tmp_path / "model.mesh"
    fitted(classes, "--out", out)
    labels = ["yes"] * 1000 + [None] * 150 + ["perhaps"] * 50
    found = meshnn("evaluate", out, write(tmp_path / "more", [with_column(table(), "y", labels)]), "--json")
    report = json.loads(found.stdout)
    assert report["rows"] == 1050
    assert sum(map(sum, report["confusion"])) == 1000
    assert "150 rows without a value of y: left out" in report["notes"]
    assert any("50 rows of classes that the model does not know, e.g. 'perhaps'" in note for note in report["notes"])


def streamed(data, out, *options):
    done = meshnn("stream", data, "--out", out, "--no-picture", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_folder_is_streamed_by_names_and_resumed(tmp_path, numbers):
    options = ("--target", "y", "--hidden", "2")
    whole = streamed(in_one_file(numbers), tmp_path / "whole.mesh", *options)
    found = streamed(numbers, tmp_path / "folder.mesh", *options)
    same = [key for key, value in whole.items() if not isinstance(value, str) and "second" not in key]
    assert {key: found[key] for key in same} == {key: whole[key] for key in same}
    (numbers / "part2.parquet").rename(tmp_path / "later.parquet")
    part = streamed(numbers, tmp_path / "part.mesh", *options)
    assert part["rows"] == 2400
    (tmp_path / "later.parquet").rename(numbers / "part2.parquet")  # files that come later are new rows
    streamed(numbers, tmp_path / "part.mesh", "--resume", tmp_path / "part.mesh")
    rows = [meshnn("evaluate", tmp_path / f"{name}.mesh", numbers, "--json").stdout for name in ("folder", "part")]
    assert json.loads(rows[0])["RMSE"] == json.loads(rows[1])["RMSE"]
    parquet.write_table(table(rows=7), numbers / "part0.parquet")
    assert "is shorter than the table" in refused("stream", numbers, "--resume", tmp_path / "part.mesh")
    parquet.write_table(table(rows=5000), numbers / "part0.parquet")
    assert "is not the table that" in refused("stream", numbers, "--resume", tmp_path / "part.mesh")


@pytest.mark.parametrize("rows", [0, 1, 499, 500, 700, 1199, 1200, 1201, 3599, 3600])
def test_a_folder_goes_on_at_any_row(numbers, rows):
    whole = parquet.read_table(numbers)
    source = FileReader(numbers)
    source.go_to(FileReader(numbers)._position(rows))
    found = list(source.blocks())
    assert sum(map(len, found)) == 3600 - rows
    at = rows
    for block in found:
        assert block.first == at
        assert block.table.equals(whole.slice(at, len(block)))
        assert block.position(len(block)) == FileReader(numbers)._position(at + len(block))
        at += len(block)

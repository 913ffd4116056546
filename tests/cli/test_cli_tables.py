"""Tables of many kinds: evaluation, copied columns, standard input, splits and invalid options."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn import metrics

import meshnn as library
from commands import meshnn
from folders import refused
from meshnn import MeshClassifier, MeshRegressor
from meshnn.tables.cells import cells_of, class_numbers
from meshnn.tables.holdout import HoldoutSplit

QUICK = ("-n", "2", "--max-epochs", "5", "--json")


@pytest.fixture(scope="module")
def flats(tmp_path_factory):
    """Create a folder with a table of flats and the classifier and regressor that `meshnn fit` trained on it."""
    folder = tmp_path_factory.mktemp("flats")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"{k:03d}" for k in range(60)], "size": rng.integers(20, 90, 60)})
    frame["city"] = rng.choice(["Bonn", "Ulm"], 60)
    frame["let"] = (frame["size"] > 50).astype(int)
    frame["rent"] = frame["size"] * 10.5 + rng.standard_normal(60)
    frame.to_csv(folder / "flats.csv", index=False)
    for target, other in (("let", "rent"), ("rent", "let")):
        options = ("--drop", f"id,{other}", "-n", "2", "--solver", "lm", "--max-epochs", "30", "--json")
        done = meshnn("fit", folder / "flats.csv", "-y", target, *options, "-o", folder / f"{target}.mesh")
        assert done.returncode == 0, done.stderr
    return folder


def fit(*arguments):
    return meshnn("fit", *arguments, *QUICK)


def pipe_in(monkeypatch, text):
    stream = None if text is None else SimpleNamespace(buffer=io.BytesIO(text.encode()))
    monkeypatch.setattr("sys.stdin", stream)


# -- evaluation on labelled rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "cells", "want"), [
    ([0, 1], [0.0, 1.0, None, 0.5], [0, 1, -1, -1]), ([0, 1], ["0", "1.0", " 1", "one"], [0, 1, 1, -1]),
    ([0, 1], [False, True], [0, 1]), ([2**60, 2**60 + 1], [2**60 + 1, 2**60, 2**60 + 2], [1, 0, -1]),
    ([-1.5, 2.0], [2, -1, None], [1, -1, -1]), ([False, True], ["true", "False", "1", "x"], [1, 0, 1, -1]),
    ([False, True], [1, 0, 2], [1, 0, -1]), (["0", "1"], [0.0, 1.0], [0, 1]), (["0.0", "1.0"], [0.0, 1.0], [0, 1]),
    (["False", "True"], [True, None], [1, -1]), (["a", "b"], ["b", "c", None], [1, -1, -1]),
])  # fmt: skip
def test_classes_are_compared_by_value(classes, cells, want):
    table = pa.table({"y": pa.array(cells)})
    assert class_numbers(cells_of(table, "y"), np.array(classes)).tolist() == want


def test_evaluate_a_classifier(flats, tmp_path):
    frame, model = pd.read_csv(flats / "flats.csv"), library.load(flats / "let.mesh")
    found = json.loads(meshnn("evaluate", flats / "let.mesh", flats / "flats.csv", "--json").stdout)
    predicted, truth = model.predict(frame), frame["let"]
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(truth, predicted))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(truth, model.predict_proba(frame)))
    assert found["confusion"] == metrics.confusion_matrix(truth, predicted).tolist()
    assert (found["task"], found["classes"], found["target"], found["rows"]) == ("classify", ["0", "1"], "let", 60)
    assert found["low"] < found["accuracy"] <= found["high"]
    shown = meshnn("evaluate", flats / "let.mesh", flats / "flats.csv").stdout
    for text in (
        f"accuracy {found['accuracy']:.4f} (95% interval",
        f"log loss {found['log_loss']:.4f}",
        "true class down",
    ):
        assert text in shown
    odd = frame.astype({"let": object})
    odd.loc[0, "let"], odd.loc[1, "let"] = 7, None
    odd.to_csv(tmp_path / "odd.csv", index=False)
    found = json.loads(meshnn("evaluate", flats / "let.mesh", tmp_path / "odd.csv", "--json").stdout)
    assert (found["rows"], np.sum(found["confusion"])) == (59, 58)
    assert found["accuracy"] == pytest.approx(np.trace(found["confusion"]) / 59)
    assert any("1 row without a value of let" in note for note in found["notes"])
    assert any("1 row with a class that is not in the training data, e.g. '7'" in note for note in found["notes"])


def test_evaluate_a_regressor(flats):
    frame = pd.read_csv(flats / "flats.csv")
    predicted = library.load(flats / "rent.mesh").predict(frame)
    found = json.loads(meshnn("evaluate", flats / "rent.mesh", flats / "flats.csv", "--json").stdout)
    assert found["R2"] == pytest.approx(metrics.r2_score(frame.rent, predicted))
    assert found["RMSE"] == pytest.approx(metrics.root_mean_squared_error(frame.rent, predicted))
    assert found["MAE"] == pytest.approx(metrics.mean_absolute_error(frame.rent, predicted))
    assert (found["classes"], found["confusion"]) == (None, None)
    assert f"R² {found['R2']:.4f}" in meshnn("evaluate", flats / "rent.mesh", flats / "flats.csv").stdout


def test_evaluate_refuses(flats, tmp_path):
    X = np.random.default_rng(0).standard_normal((20, 2))
    python, two, table = (tmp_path / name for name in ("python.mesh", "two.mesh", "t.csv"))
    MeshClassifier(2, max_epochs=2, random_state=0).fit(X, np.arange(20) % 2).save(python)
    MeshRegressor(2, max_epochs=2, random_state=0).fit(X, X).save(two)
    for model, text, more, message in (
        (python, "a,b,y\n1,2,0\n", [], "pass --target"),
        (python, "a,b,y\n1,2,0\n", ["-y", "z"], "no column z"),
        (two, "a,b,y\n1,2,0\n", ["-y", "y"], "one output, got 2 outputs"),
        (flats / "rent.mesh", "size,city\n20,Bonn\n", [], "no column rent"),
        (flats / "rent.mesh", "size,city,rent\n20,Bonn,\n20,Ulm,much\n", [], "'much' in row 2"),
        (flats / "rent.mesh", "size,city,rent\n20,Bonn,\n20,Ulm,\n", [], "column rent has no values"),
    ):
        table.write_text(text)
        assert message in refused("evaluate", model, table, *more)
    table.write_text("a,b,y\n1,2,0\n3,4,1\n")
    assert json.loads(meshnn("evaluate", python, table, "-y", "y", "--json").stdout)["rows"] == 2


# -- copied columns and standard input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_are_copied(flats, tmp_path, ending):
    out = tmp_path / f"p.{ending}"
    done = meshnn("predict", flats / "let.mesh", flats / "flats.csv", "--keep", "id,city", "--keep", "size", "-o", out)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(out, dtype={"id": str}) if ending == "csv" else pd.read_parquet(out)
    given = pd.read_csv(flats / "flats.csv", dtype={"id": str})
    assert list(found) == ["id", "city", "size", "prediction"]
    pd.testing.assert_frame_equal(found[["id", "city", "size"]], given[["id", "city", "size"]], check_dtype=False)


def test_copies_are_as_written(flats, tmp_path):
    """Copies keep trailing zeros, dates and empty cells; a feature column is copied by value."""
    table, model = tmp_path / "t.csv", flats / "let.mesh"
    table.write_text("price,day,city,size\n1.50,2024-01-02,Ulm,30\n,2024-01-03,Bonn,40\n")
    lines = meshnn("predict", model, table, "--keep", "price,day,size").stdout.splitlines()
    assert lines[0] == "price,day,size,prediction"
    assert [line.rpartition(",")[0] for line in lines[1:]] == ["1.50,2024-01-02,30", ",2024-01-03,40"]
    table.write_text("prediction,city,size\n1,Ulm,30\n")
    assert "is also a column of the predictions" in refused("predict", model, table, "--keep", "prediction")
    X = np.random.default_rng(0).standard_normal((20, 2))
    MeshClassifier(2, max_epochs=2, random_state=0).fit(X, np.arange(20) % 2).save(tmp_path / "m.mesh")
    table.write_text("id,a,b\n1,2,3\n4,5,6\n")  # a model without feature names uses all columns except the kept ones
    assert "has 2 features, got a table with 3 columns" in refused("predict", tmp_path / "m.mesh", table)
    assert meshnn("predict", tmp_path / "m.mesh", table, "--keep", "id").stdout.startswith("id,prediction\n1,")


def test_tables_from_standard_input(flats, tmp_path, monkeypatch):
    text = (flats / "flats.csv").read_text()
    from_file = fit(flats / "flats.csv", "-y", "let", "-o", tmp_path / "file.mesh", "--drop", "id")
    pipe_in(monkeypatch, text.replace(",", ";"))  # the separator is detected
    piped = json.loads(fit("-", "-y", "let", "-o", tmp_path / "piped.mesh", "--drop", "id").stdout)
    assert piped["test"] == json.loads(from_file.stdout)["test"]
    assert any("separated by semi" in note for note in piped["notes"])
    for command in ("predict", "evaluate"):
        pipe_in(monkeypatch, text)
        read = meshnn(command, flats / "let.mesh", "-").stdout
        assert read == meshnn(command, flats / "let.mesh", flats / "flats.csv").stdout
    for wrong, message in (("", "standard input is empty"), (None, "standard input is closed")):
        pipe_in(monkeypatch, wrong)
        assert message in refused("predict", flats / "let.mesh", "-")


# -- splits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[1, 30, 30], [1, 1, 1, 5], [2, 2, 2, 2], [1, 1], [20, 20], [2, 50], [1, 2]])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_a_class_is_never_held_out_whole(counts, share):
    labels = np.repeat(np.arange(len(counts)), counts)
    n, size = len(labels), max(1, int(share * len(labels)))
    for seed in range(20):
        split = HoldoutSplit.stratified(n, size, seed, labels)
        kept, held = split.kept, split.held
        assert sorted([*kept, *held]) == list(range(n))
        assert set(labels[kept]) == set(range(len(counts)))
        assert len(held) == min(size, n - len(counts))
    again = [HoldoutSplit.stratified(n, size, 0, labels) for _ in range(2)]
    np.testing.assert_array_equal(again[0].held, again[1].held)


def test_a_class_with_one_row_is_learned(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{'rare' if k == 7 else 'xy'[k % 2]}" for k, a in enumerate(rng.standard_normal(40))]
    (tmp_path / "t.csv").write_text("a,c\n" + "\n".join(rows) + "\n")
    report = json.loads(fit(tmp_path / "t.csv", "-y", "c", "--early-stopping").stdout)
    assert report["classes"] == ["rare", "x", "y"]
    assert "too few rows to test all classes: no test row of rare" in report["notes"]
    (tmp_path / "t.csv").write_text("a,c\n1,x\n2,y\n3,z\n")
    assert "every class has one row" in fit(tmp_path / "t.csv", "-y", "c").stderr


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "message"), [
    ("--learning-rate 0", "learning_rate"), ("--l1 -1", "--l1"), ("--l2 nan", "l2"), ("--tol -1", "--tol"),
    ("--activation tanx", "did you mean 'tanh'?"), ("--loss hubert", "did you mean 'huber'?"),
    ("--loss huber --task classify", "--task regress"), ("--loss huber --class-weight balanced", "--class-weight"),
    ("--edges 9 --n-restarts 2", "--n-restarts"), ("--sep ab", "one character"), ("--encoding utf-99", "utf-99"),
    ("--mesh no.json", "no.json"), ("--checkpoint no/where.mesh", "does not exist"),
    ("--quantile 0.5", "--quantile"), ("--solver lm --learning-rate 1", "--learning-rate"), ("--scratch no", "'no'"),
    ("--grow --hidden 3,4", "--grow"), ("--on spark:2", "--on"), ("--on dask:0", "--on"), ("--on dask://host", "--on"),
    ("--out no/m.mesh", "does not exist"), ("--out .", "is a directory"), ("--out m.txt", "must end in .mesh"),
    ("--out a.mesh --checkpoint a.mesh", "name the same file"), ("--test 1.5", "--test"), ("--hidden -3", "--hidden"),
    ("--hidden ten", "--hidden"), ("--hidden 3 --mesh x.json", "leave --hidden out"), ("--solver foo", "is not one of"),
    ("--l1 0.1 --solver lm", "adam"), ("--seed -1", "--random-state"), ("--grow --mesh g.json", "leave --mesh out"),
])  # fmt: skip
def test_wrong_options_are_refused_before_the_table_is_read(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    shown = refused("fit", "missing.csv", "-y", "c", *options.split())
    assert message in shown
    assert "missing.csv" not in shown


def test_classes_are_read_as_they_were(tmp_path):
    """Classes that were text in training stay text, even if all of them look like numbers in the new table."""
    table, model = tmp_path / "t.csv", tmp_path / "m.mesh"
    rows = [f"{k},{'low' if k < 20 else '1.50'}" for k in range(40)]
    table.write_text("a,c\n" + "\n".join(rows) + "\n")
    assert fit(table, "-y", "c", "-o", model).returncode == 0
    for cells, known in ((rows[20:], 20), (["3,1.5", "4,1.50"], 1)):  # 1.5 and 1.50 are different classes
        table.write_text("a,c\n" + "\n".join(cells) + "\n")
        found = json.loads(meshnn("evaluate", model, table, "--json").stdout)
        assert np.sum(found["confusion"]) == known

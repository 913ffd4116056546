"""Tables as people have them, and what the commands make of them."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

import meshnn as library
from commands import in_a_process, meshnn
from meshnn import MeshClassifier, MeshRegressor
from meshnn.tables.cells import cells_of, class_numbers
from meshnn.tables.holdout import HoldoutSplit

QUICK = ("-n", "2", "--max-epochs", "5", "--json")


@pytest.fixture(scope="module")
def flats(tmp_path_factory):
    """A folder with a table of flats, and models that `meshnn fit` made of it: of a class and of a number."""
    folder = tmp_path_factory.mktemp("flats")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "id": [f"{k:03d}" for k in range(60)],
        "size": rng.integers(20, 90, 60),
        "city": rng.choice(["Bonn", "Ulm"], 60),
    })  # fmt: skip
    frame["let"] = (frame["size"] > 50).astype(int)
    frame["rent"] = frame["size"] * 10.5 + rng.standard_normal(60)
    frame.to_csv(folder / "flats.csv", index=False)
    for target, other in (("let", "rent"), ("rent", "let")):
        drop = ("--drop", "id", "--drop", other)
        options = ("-n", "2", "--solver", "lm", "--max-epochs", "30", "--json")
        done = meshnn("fit", folder / "flats.csv", "-y", target, *drop, *options, "-o", folder / f"{target}.mesh")
        assert done.returncode == 0, done.stderr
    return folder


def fit(*arguments):
    return meshnn("fit", *arguments, *QUICK)


def pipe_in(monkeypatch, text):
    stream = None if text is None else SimpleNamespace(buffer=io.BytesIO(text.encode()))
    monkeypatch.setattr("sys.stdin", stream)


# -- true answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "cells", "want"), [
    ([0, 1], [0.0, 1.0, None, 0.5], [0, 1, -1, -1]),
    ([0, 1], ["0", "1.0", " 1", "one"], [0, 1, 1, -1]),
    ([0, 1], [False, True], [0, 1]),
    ([2**60, 2**60 + 1], [2**60 + 1, 2**60, 2**60 + 2], [1, 0, -1]),
    ([-1.5, 2.0], [2, -1, None], [1, -1, -1]),
    ([False, True], ["true", "False", "1", "x"], [1, 0, 1, -1]),
    ([False, True], [1, 0, 2], [1, 0, -1]),
    (["0", "1"], [0.0, 1.0], [0, 1]),
    (["0.0", "1.0"], [0.0, 1.0], [0, 1]),
    (["False", "True"], [True, None], [1, -1]),
    (["a", "b"], ["b", "c", None], [1, -1, -1]),
])  # fmt: skip
def test_classes_are_compared_by_value(classes, cells, want):
    import pyarrow as pa

    table = pa.table({"y": pa.array(cells)})
    assert class_numbers(cells_of(table, "y"), np.array(classes)).tolist() == want


def test_predictions_agree_whatever_the_labels_look_like(flats, tmp_path):
    frame = pd.read_csv(flats / "flats.csv", dtype={"id": str})
    frame["let"] = frame["let"].astype(float)
    frame.loc[3, "let"] = None  # which makes pandas write 0.0 and 1.0
    frame.to_csv(tmp_path / "t.csv", index=False)
    right = library.load(flats / "let.mesh").predict(frame)[frame["let"].notna()] == frame["let"].dropna()
    assert right.sum() > 30
    said = meshnn("predict", flats / "let.mesh", tmp_path / "t.csv").stderr
    assert f"{right.sum()} of 59 predictions agree with it" in said


def test_evaluate_a_classifier(flats, tmp_path):
    frame = pd.read_csv(flats / "flats.csv")
    model = library.load(flats / "let.mesh")
    done = meshnn("evaluate", flats / "let.mesh", flats / "flats.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    predicted, truth = model.predict(frame), frame["let"]
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(truth, predicted))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(truth, model.predict_proba(frame)))
    assert found["confusion"] == metrics.confusion_matrix(truth, predicted).tolist()
    assert (found["task"], found["classes"], found["target"], found["rows"]) == ("classify", ["0", "1"], "let", 60)
    assert found["low"] < found["accuracy"] <= found["high"]
    shown = meshnn("evaluate", flats / "let.mesh", flats / "flats.csv").stdout
    for text in (f"accuracy {found['accuracy']:.4f} (95% interval", f"log loss {found['log_loss']:.4f}", "rows, true"):
        assert text in shown
    odd = frame.astype({"let": object})
    odd.loc[0, "let"], odd.loc[1, "let"] = 7, None
    odd.to_csv(tmp_path / "odd.csv", index=False)
    found = json.loads(meshnn("evaluate", flats / "let.mesh", tmp_path / "odd.csv", "--json").stdout)
    assert found["rows"] == 59
    assert np.sum(found["confusion"]) == 58
    assert found["accuracy"] == pytest.approx(np.trace(found["confusion"]) / 59)
    assert any("1 row without a value of let" in note for note in found["notes"])
    assert any("1 row of classes that the model does not know, e.g. '7'" in note for note in found["notes"])


def test_evaluate_a_regressor(flats):
    frame = pd.read_csv(flats / "flats.csv")
    predicted = library.load(flats / "rent.mesh").predict(frame)
    found = json.loads(meshnn("evaluate", flats / "rent.mesh", flats / "flats.csv", "--json").stdout)
    assert found["R2"] == pytest.approx(metrics.r2_score(frame.rent, predicted))
    assert found["RMSE"] == pytest.approx(metrics.root_mean_squared_error(frame.rent, predicted))
    assert found["MAE"] == pytest.approx(metrics.mean_absolute_error(frame.rent, predicted))
    assert (found["classes"], found["confusion"]) == (None, None)
    shown = meshnn("evaluate", flats / "rent.mesh", flats / "flats.csv").stdout
    assert f"R² {found['R2']:.4f}" in shown
    assert f"MAE {found['MAE']:.6g}" in shown


def test_evaluate_refuses(flats, tmp_path):
    X = np.random.default_rng(0).standard_normal((20, 2))
    options = {"max_epochs": 2, "random_state": 0}
    MeshClassifier(2, **options).fit(X, np.arange(20) % 2).save(tmp_path / "python.mesh")
    MeshRegressor(2, **options).fit(X, X).save(tmp_path / "two.mesh")
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    (tmp_path / "bare.csv").write_text("size,city\n20,Bonn\n")
    (tmp_path / "text.csv").write_text("size,city,rent\n20,Bonn,\n20,Ulm,much\n")
    (tmp_path / "gaps.csv").write_text("size,city,rent\n20,Bonn,\n20,Ulm,\n")
    for model, table, more, message in (
        (tmp_path / "python.mesh", tmp_path / "t.csv", [], "does not know what its target is called; pass --target"),
        (tmp_path / "python.mesh", tmp_path / "t.csv", ["-y", "z"], "no column z"),
        (tmp_path / "two.mesh", tmp_path / "t.csv", ["-y", "y"], "predicts 2 numbers"),
        (flats / "rent.mesh", tmp_path / "bare.csv", [], "no column rent"),
        (
            flats / "rent.mesh",
            tmp_path / "text.csv",
            [],
            "column rent holds the text 'much' in row 2, expected numbers",
        ),
        (flats / "rent.mesh", tmp_path / "gaps.csv", [], "column rent has no values"),
    ):
        done = meshnn("evaluate", model, table, *more)
        assert done.returncode == 2
        assert message in done.stderr
    done = meshnn("evaluate", tmp_path / "python.mesh", tmp_path / "t.csv", "-y", "y", "--json")
    assert json.loads(done.stdout)["rows"] == 2


# -- columns that are copied, tables that are piped ------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_are_copied(flats, tmp_path, ending):
    out = tmp_path / f"p.{ending}"
    done = meshnn("predict", flats / "let.mesh", flats / "flats.csv", "--keep", "id,city", "--keep", "size", "-o", out)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(out, dtype={"id": str}) if ending == "csv" else pd.read_parquet(out)
    given = pd.read_csv(flats / "flats.csv", dtype={"id": str})
    assert list(found) == ["id", "city", "size", "prediction"]
    pd.testing.assert_frame_equal(found[["id", "city", "size"]], given[["id", "city", "size"]], check_dtype=False)
    shown = json.loads(meshnn("predict", flats / "let.mesh", flats / "flats.csv", "--keep", "id", "--json").stdout)
    assert shown["id"] == given.id.tolist()
    assert shown["prediction"] == found.prediction.tolist()


def test_copies_are_as_written(flats, tmp_path):
    """Also a number with zeros at its end, a date, an empty cell; of a column that the model reads, the value."""
    (tmp_path / "t.csv").write_text("price,day,city,size\n1.50,2024-01-02,Ulm,30\n,2024-01-03,Bonn,40\n")
    kept = "price,day,size"
    lines = meshnn("predict", flats / "let.mesh", tmp_path / "t.csv", "--keep", kept).stdout.splitlines()
    assert lines[0] == "price,day,size,prediction"
    assert [line.rpartition(",")[0] for line in lines[1:]] == ["1.50,2024-01-02,30", ",2024-01-03,40"]
    (tmp_path / "t.csv").write_text("prediction,city,size\n1,Ulm,30\n")
    for keep, message in (
        ("prediction", "is a column of the predictions, too"),
        ("id", "no column id; the columns are pred"),
    ):
        assert message in meshnn("predict", flats / "let.mesh", tmp_path / "t.csv", "--keep", keep).stderr


def test_copies_beside_the_columns_of_a_model_without_names(tmp_path):
    X = np.random.default_rng(0).standard_normal((20, 2))
    MeshClassifier(2, max_epochs=2, random_state=0).fit(X, np.arange(20) % 2).save(tmp_path / "m.mesh")
    (tmp_path / "t.csv").write_text("id,a,b\n1,2,3\n4,5,6\n")
    assert "takes 2 features, the table has 3" in meshnn("predict", tmp_path / "m.mesh", tmp_path / "t.csv").stderr
    lines = meshnn("predict", tmp_path / "m.mesh", tmp_path / "t.csv", "--keep", "id").stdout.splitlines()
    want = library.load(tmp_path / "m.mesh").predict([[2, 3], [5, 6]])
    assert lines == ["id,prediction", f"1,{want[0]}", f"4,{want[1]}"]


def test_tables_from_standard_input(flats, tmp_path, monkeypatch):
    text = (flats / "flats.csv").read_text()
    from_file = fit(flats / "flats.csv", "-y", "let", "-o", tmp_path / "file.mesh", "--drop", "id")
    pipe_in(monkeypatch, text.replace(",", ";"))  # semicolons are noticed here, too
    piped = fit("-", "-y", "let", "-o", tmp_path / "piped.mesh", "--drop", "id")
    assert piped.returncode == 0, piped.stderr
    assert json.loads(piped.stdout)["test"] == json.loads(from_file.stdout)["test"]
    assert any(
        "standard input: values are taken to be separated by semi" in n for n in json.loads(piped.stdout)["notes"]
    )
    for command in ("predict", "evaluate"):
        pipe_in(monkeypatch, text)
        assert (
            meshnn(command, flats / "let.mesh", "-").stdout
            == meshnn(command, flats / "let.mesh", flats / "flats.csv").stdout
        )
    for wrong, message in (("", "standard input is empty"), (None, "standard input is closed")):
        pipe_in(monkeypatch, wrong)
        done = meshnn("predict", flats / "let.mesh", "-")
        assert done.returncode == 2
        assert done.stderr.startswith(f"meshnn: {message}")


@pytest.mark.slow
def test_a_real_pipe(flats):
    text = (flats / "flats.csv").read_text()
    done = in_a_process("predict", str(flats / "let.mesh"), "-", input=text)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 61


# -- what is in the cells --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["2024-01-02", "2024-01-02 03:04:05", "03:04:05"])
def test_dates_are_no_numbers_for_a_model_from_python(tmp_path, kind):
    X = np.random.default_rng(0).standard_normal((20, 2))
    MeshClassifier(2, max_epochs=2, random_state=0).fit(X, np.arange(20) % 2).save(tmp_path / "m.mesh")
    (tmp_path / "t.csv").write_text(f"a,b\n1,{kind}\n2,{kind}\n")
    done = meshnn("predict", tmp_path / "m.mesh", tmp_path / "t.csv")
    assert done.returncode == 2
    assert "column b holds text or dates" in done.stderr


def test_many_constant_columns_are_one_note(tmp_path):
    frame = pd.DataFrame({f"c{k}": [7] * 40 for k in range(400)})
    frame["x"], frame["t"], frame["y"] = np.arange(40), ["a", "b"] * 20, np.arange(40) // 20
    frame.to_csv(tmp_path / "t.csv", index=False)
    notes = json.loads(fit(tmp_path / "t.csv", "-y", "y").stdout)["notes"]
    about = [note for note in notes if "left out" in note]
    assert len(about) == 1
    assert "400 columns are constant or have no values: left out (c0, c1, c2, ...)" in about[0]


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


def test_a_class_with_one_row_is_learned_whatever_the_seed(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{'rare' if k == 7 else 'xy'[k % 2]}" for k, a in enumerate(rng.standard_normal(40))]
    (tmp_path / "t.csv").write_text("a,c\n" + "\n".join(rows) + "\n")
    for seed in range(6):
        done = fit(tmp_path / "t.csv", "-y", "c", "--seed", seed, "--early-stopping")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["classes"] == ["rare", "x", "y"]
        assert sum(report["test"]["confusion"][0]) == 0
        assert "too few rows to test all classes: rare can only be learned" in report["notes"]
    (tmp_path / "t.csv").write_text("a,c\n1,x\n2,y\n3,z\n")
    assert "every class has one row" in fit(tmp_path / "t.csv", "-y", "c").stderr
    with pytest.raises(ValueError, match="early_stopping"):
        MeshClassifier(2, early_stopping=True).fit([[0.0], [1], [2]], ["x", "y", "z"])


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "message"), [
    (["--learning-rate", "0"], "learning_rate"),
    (["--l1", "-1"], "--l1"),
    (["--l2", "nan"], "l2"),
    (["--tol", "-1"], "--tol"),
    (["--activation", "tanx"], "unknown --activation 'tanx'; did you mean 'tanh'?"),
    (["--loss", "hubert"], "unknown --loss 'hubert'; did you mean 'huber'?"),
    (["--loss", "huber", "--task", "classify"], "--loss huber is for --task regress"),
    (["--loss", "huber", "--class-weight", "balanced"], "there are no classes in a regression"),
    (["--edges", "9", "--n-restarts", "2"], "has one start; leave one of them out"),
    (["--sep", "ab"], "sep must be one character"),
    (["--encoding", "utf-99"], "utf-99"),
    (["--mesh", "no.json"], "there is no file no.json"),
    (["--mesh", __file__], "the endings that work are .json"),
    (["--checkpoint", "no/where.mesh"], "does not exist; create it first"),
])  # fmt: skip
def test_wrong_options_are_refused_before_the_table_is_read(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = meshnn("fit", "missing.csv", "-y", "c", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "missing.csv" not in done.stderr


def test_class_weights(flats, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.standard_normal(100), "c": ["few"] * 10 + ["many"] * 90})
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = (tmp_path / "t.csv", "-y", "c", "-o", tmp_path / "m.mesh", "--test", "0", "--solver", "lm")
    counts = {}
    for more in ((), ("--class-weight", "balanced")):
        assert fit(*arguments, *more).returncode == 0
        model = library.load(tmp_path / "m.mesh")
        assert model.class_weight == (more[1] if more else None)
        counts[more] = model.predict_proba(frame)[:, 0].mean()
    assert counts[()] < 0.3 < counts["--class-weight", "balanced"]  # without anything to tell them by: 0.1 and 0.5
    done = fit(flats / "flats.csv", "-y", "rent", "--drop", "id", "--class-weight", "balanced")
    assert "--class-weight: the target is a number" in done.stderr


def test_classes_are_read_as_they_were(tmp_path):
    """A text in training is a text, though all that are there now look like numbers."""
    rows = [f"{k},{'low' if k < 20 else '1.50'}" for k in range(40)]
    (tmp_path / "t.csv").write_text("a,c\n" + "\n".join(rows) + "\n")
    assert fit(tmp_path / "t.csv", "-y", "c", "-o", tmp_path / "m.mesh").returncode == 0
    (tmp_path / "t.csv").write_text("a,c\n" + "\n".join(rows[20:]) + "\n")
    found = json.loads(meshnn("evaluate", tmp_path / "m.mesh", tmp_path / "t.csv", "--json").stdout)
    assert np.sum(found["confusion"]) == 20
    (tmp_path / "t.csv").write_text("a,c\n3,1.5\n4,1.50\n")  # 1.5 is another class than 1.50
    found = json.loads(meshnn("evaluate", tmp_path / "m.mesh", tmp_path / "t.csv", "--json").stdout)
    assert np.sum(found["confusion"]) == 1

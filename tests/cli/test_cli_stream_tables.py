"""`meshnn stream`: accepted tables, error messages, notes and scores."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import meshnn as library
from commands import meshnn
from folders import refused
from meshnn import MeshStreamClassifier
from meshnn.errors import FileError
from stream_tables import OPTIONS, QUIET, ROWS, predictions, reference, run, write


def table(tmp_path, text, *arguments, name="t.csv"):
    (tmp_path / name).write_text(text)
    for old in tmp_path.glob("*.mesh"):
        old.unlink()
    return meshnn("stream", tmp_path / name, *arguments, "-o", tmp_path / "m.mesh", "-n", "2", *QUIET)


GOOD = "a,b,y\n" + "".join(f"{k % 7},{k % 5}.5,{'no' if k % 3 else 'yes'}\n" for k in range(40))


@pytest.mark.parametrize(("text", "options", "message"), [
    (GOOD, "-y Y", "did you mean y?"), (GOOD, "-y y --by z", "there is no column z"),
    (GOOD, "-y y --by y", "is the target"), (GOOD, "-y y --drop y", "is the target; choose one of the two"),
    (GOOD, "-y y --drop a --drop b", "no column is left as a feature"), (GOOD, "", "--target"),
    (GOOD, "-y y --every often", "'often'"), (GOOD, "-y y --every 0", "--every"),
    (GOOD, "-y y --new-rows", "--new-rows needs --resume"), (GOOD, "-y y --picture x.png", "--no-picture"),
    (GOOD, "-y y --columns a,b", "the first line has 3 values"), (GOOD, "-y y --task regress", "'yes' in row 1"),
    ("a,y\n", "-y y", "has no rows below its header"), ("", "-y y", "is empty"),
    ("a,y\n1,\n2,NA\n", "-y y", "none of 2 rows has a value of y"),
    ("t,a,y\n2026-01-01,1,u\n", "-y y", "column t holds dates or times (2026-01-01 in row 1); pass --by t if"),
    ("a;y\n1,5;u\n2,5;v\n", "-y y", "decimal commas ('1,5' in row 1)"),
    ("a|y\n1|2,5\n2|3\n", "-y y", "y has decimal commas ('2,5' in row 1)"),
    ("a,y\n1,u\n\"2,v\n", "-y y", "a quote opened in row 2"), ("a,a,y\n1,2,u\n", "-y y", "two columns are called a"),
])  # fmt: skip
def test_refused(tmp_path, text, options, message):
    done = table(tmp_path, text, *options.split())
    assert done.returncode == 2, done.stdout
    assert message in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("meshnn: ")


@pytest.mark.parametrize(("row", "fixed", "message"), [
    ("3,1,yes", "30,1,yes", "row 21 (3) comes before the row above it; sort the table"),
    ("30,1", "30,1,no", "row 21 has 2 values, expected 3 as in the header"),
    ("soon,1,yes", "30,1,yes", "row 21 holds 'soon', expected a number"),
])  # fmt: skip
def test_a_bad_row_is_named_and_the_model_before_it_is_kept(tmp_path, row, fixed, message):
    rows = [f"{k},{k % 5}.5,{'no' if k % 3 else 'yes'}" for k in range(20)]
    whole = ["t,a,y", *rows, fixed, "31,2,no"]
    assert table(tmp_path, "\n".join(whole), "-y", "y", "--by", "t").returncode == 0
    want = library.load(tmp_path / "m.mesh")
    done = table(tmp_path, "\n".join(["t,a,y", *rows, row, "31,2,no"]), "-y", "y", "--by", "t")
    assert done.returncode == 2
    assert message in done.stderr
    assert f"the model trained on the first 20 rows is saved in {tmp_path / 'm.mesh'}" in done.stderr
    assert library.load(tmp_path / "m.mesh").n_samples_ == 20
    (tmp_path / "t.csv").write_text("\n".join(whole))
    assert meshnn("stream", tmp_path / "t.csv", "--resume", tmp_path / "m.mesh", *QUIET).returncode == 0
    np.testing.assert_array_equal(library.load(tmp_path / "m.mesh").stream_.values, want.stream_.values)


def test_times_that_order_rows(tmp_path):
    times = ["2026-01-01 10:00:00", "2026-01-01 10:00:00", "2026-01-01 10:00:01.5", "", "2026-01-02"]
    by = ("-y", "y", "--by", "when")
    text = "when,a,y\n" + "".join(f"{when},{k},{'uv'[k % 2]}\n" for k, when in enumerate(times))
    assert table(tmp_path, text, *by).returncode == 0
    assert library.load(tmp_path / "m.mesh").features_.names == ("a",)
    assert "row 6 (2025-12-31) comes before" in table(tmp_path, text + "2025-12-31,9,u\n", *by).stderr
    assert "row 1 holds '1/2/2026'" in table(tmp_path, "when,a,y\n1/2/2026,1,u\n", *by).stderr
    stamps = pa.array([1, 2, 3, 2], pa.timestamp("s"))
    pq.write_table(pa.table({"when": stamps, "a": [1, 2, 3, 4], "y": ["u", "v", "u", "v"]}), tmp_path / "t.parquet")
    arguments = ("stream", tmp_path / "t.parquet", "-y", "y", "-o", tmp_path / "p.mesh", *QUIET)
    assert "row 4 (1970-01-01 00:00:02) comes before" in refused(*arguments, "--by", "when")
    (tmp_path / "p.mesh").unlink()
    assert "column when holds dates or times" in refused(*arguments)


def test_cells(tmp_path):
    text = "a,b,code,id,y\n" + "".join(
        f"{['5', '+2', 'true', 'inf', ' 7 ', 'n/a'][k % 6]},1{k % 9}00,0{k % 2},x{k},{k % 2}\n" for k in range(60)
    )
    done = table(tmp_path, text, "-y", "y", "--max-categories", "3")
    assert done.returncode == 0, done.stderr
    assert "column a is infinite in row 4: treated as missing" in done.stderr
    assert (
        "column id has more than 3 different texts: further ones (such as 'x3') are encoded as all zeros" in done.stderr
    )
    assert "2 different integers in 60 rows, taken as classes" in done.stderr
    model = library.load(tmp_path / "m.mesh")
    assert model.features_.names == ("a", "b", "code=00", "id=x0", "code=01", "id=x1", "id=x2")
    assert model.classes_ == [0, 1]
    assert model.stream_.room.x_moments[0][0] == 40  # the count excludes inf and n/a
    assert table(tmp_path, text, "-y", "y", "--text", "a", "--drop", "id").returncode == 0
    names = library.load(tmp_path / "m.mesh").features_.names
    assert {"a=5", "a=+2", "a=true", "a=inf", "a=7"} <= set(names)
    assert "a" not in names


@pytest.mark.parametrize(("cells", "classes"), [
    (["1", "0"], [1, 0]), (["01", "02"], ["01", "02"]), (["x", "7"], ["x", "7"]), (["true", "False"], [True, False]),
    (["1.5", "2"], None), ([str(k) for k in range(30)], None),
])  # fmt: skip
def test_classes_or_numbers(tmp_path, cells, classes):
    text = "a,y\n" + "".join(f"{k % 4},{cells[k % len(cells)]}\n" for k in range(60))
    assert table(tmp_path, text, "-y", "y").returncode == 0
    model = library.load(tmp_path / "m.mesh")
    assert model.kind == ("stream regressor" if classes is None else "stream classifier")
    assert classes is None or repr(model.classes_) == repr(classes)


def test_rows_that_are_broken_and_lines_without_a_header(tmp_path):
    lines = GOOD.splitlines()
    broken = [*lines[:5], "1,2", *lines[5:20], '"x\ny",1,2,3', *lines[20:]]
    assert table(tmp_path, GOOD, "-y", "y").returncode == 0
    want = library.load(tmp_path / "m.mesh").stream_.values
    done = table(tmp_path, "\n".join(broken), "-y", "y", "--skip-broken")
    assert done.returncode == 0
    assert "2 rows with too few or too many values skipped" in done.stderr
    np.testing.assert_array_equal(library.load(tmp_path / "m.mesh").stream_.values, want)
    bare = table(tmp_path, "\n".join(lines[1:]), "-y", "y", "--columns", "a,b,y")
    assert bare.returncode == 0
    np.testing.assert_array_equal(library.load(tmp_path / "m.mesh").stream_.values, want)


def test_text_in_another_notation_is_remembered(tmp_path):
    """Decimal commas, other encodings and other markers of missing values do not change a bit of the predictions."""
    plain, other = tmp_path / "plain", tmp_path / "other"
    want, _ = reference(plain, *OPTIONS["amount"])
    other.mkdir()
    cells = [[c.replace(".", ",") if k in (1, 2, 4, 6) else c for k, c in enumerate(row)] for row in ROWS]
    cells = [[{"NA": "?", "red": "röt", "blue": "-"}.get(c, c) for c in row] for row in cells]
    write(other / "all.csv", cells, separator="|")
    text = (other / "all.csv").read_text().replace("|-|", "|blue|")
    (other / "t.csv").write_bytes("".join(text.splitlines(keepends=True)[:201]).encode("latin-1"))
    notation = ("--sep", "|", "--decimal", ",", "--encoding", "latin-1", "--na", "?")
    run(other, other / "t.csv", *OPTIONS["amount"], *notation)
    (other / "t.csv").write_bytes(text.encode("latin-1"))
    done = meshnn("stream", other / "t.csv", "--resume", other / "m.mesh", *QUIET)
    assert done.returncode == 0, done.stderr
    found, expected = predictions(other / "p.csv"), predictions(plain / "p.csv")
    assert [row["prediction"] for row in found] == [row["prediction"] for row in expected]
    assert "colour=röt" in library.load(other / "m.mesh").features_.names
    assert want


def test_files_that_would_be_lost(tmp_path):
    assert table(tmp_path, GOOD, "-y", "y").returncode == 0
    data, made = tmp_path / "t.csv", tmp_path / "fit.mesh"
    assert meshnn("fit", data, "-y", "y", "-n", "2", "--max-epochs", "2", "-o", made).returncode == 0
    again = ("stream", data, "-y", "y", *QUIET)
    assert "exists and is not a model of `meshnn stream`" in refused(*again, "-o", made)
    assert "is the table and would be overwritten" in refused(*again, "-o", tmp_path / "m.mesh", "--predictions", data)
    assert "was not made by" in refused("stream", data, "--resume", made)
    assert meshnn(*again, "-o", tmp_path / "m.mesh", "-n", "2").returncode == 0  # a finished stream can be run again


@pytest.mark.parametrize("target", ["kind", "amount"])
def test_predict_evaluate_info_and_plot(tmp_path, target):
    data, path = tmp_path / "t.csv", tmp_path / "m.mesh"
    write(data)
    run(tmp_path, data, *OPTIONS[target])
    model = library.load(path)
    got = json.loads(meshnn("predict", path, data, "--json").stdout)["prediction"]
    levels = model.table_["schema"]["levels"]["colour"]
    for (_, a, b, colour, late, *_), predicted in zip(ROWS, got, strict=True):
        x = {name: float(cell) for name, cell in (("a", a), ("b", b), ("late", late)) if cell not in ("", "NA")}
        x |= {f"colour={level}": float(level == colour) for level in levels} if colour else {}
        assert predicted == model.predict_one(x)
    found = json.loads(meshnn("evaluate", path, data, "--json").stdout)
    truth = [cells[5 if target == "kind" else 6] for cells in ROWS]
    pairs = [(p, t) for p, t in zip(got, truth, strict=True) if t]
    if target == "kind":
        assert found["accuracy"] == pytest.approx(np.mean([p == t for p, t in pairs]))
    else:
        assert found["MAE"] == pytest.approx(np.mean([abs(p - float(t)) for p, t in pairs]))
    info = json.loads(meshnn("info", path, "--json").stdout)
    assert (info["target"], info["rows"], info["stream"]) == (target, 300, "finished")
    assert info["samples_learned"] == model.n_samples_
    for what in ("loss", "graph"):
        assert meshnn("plot", path, "--what", what, "--out", tmp_path / "s.svg").returncode == 0
    assert "is a streaming model" in refused("explain", path)
    MeshStreamClassifier().save(tmp_path / "python.mesh")
    assert "was not made by `meshnn stream`" in refused("predict", tmp_path / "python.mesh", data)
    assert meshnn("info", tmp_path / "python.mesh").returncode == 0


def test_a_plot_or_a_note(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text(GOOD)
    arguments = ("stream", tmp_path / "t.csv", "-y", "y", "-n", "2", "-o", tmp_path / "m.mesh", "-q")
    assert meshnn(*arguments).returncode == 0
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    assert meshnn(*arguments, "--picture", tmp_path / "c.svg").returncode == 0
    assert b"<svg" in (tmp_path / "c.svg").read_bytes()
    (tmp_path / "m.png").unlink()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = meshnn(*arguments)
    assert done.returncode == 0
    assert "the plot could not be written: plots need matplotlib; pip install 'meshnn[plots]'" in done.stderr
    assert not (tmp_path / "m.png").exists()


def test_a_disk_that_is_full_for_a_while(tmp_path, monkeypatch):
    from meshnn.online._base import StreamModel

    real, calls = StreamModel.save, []

    def save(self, path):
        calls.append(self.n_samples_)
        if len(calls) == 2:
            raise FileError("no space left")
        real(self, path)

    monkeypatch.setattr(StreamModel, "save", save)
    done = table(tmp_path, GOOD, "-y", "y", "--every", "8")
    assert done.returncode == 0
    assert calls[:3] == [8, 16, 24]
    assert "the model could not be saved: no space left; training continues, and saving is tried again" in done.stderr
    assert library.load(tmp_path / "m.mesh").n_samples_ == 40

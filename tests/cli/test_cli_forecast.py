"""Test `meshnn forecast` and the time columns that it accepts."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import meshnn as package
from commands import meshnn
from folders import refused
from meshnn.errors import DataError
from meshnn.tables.reader import read_table
from meshnn.tables.series import read_times

AIRLINE = Path(__file__).parents[2] / "examples" / "airline.csv"
QUICK = ["--origins", "3", "--horizon", "6"]


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    """Write a table with two series, unsorted days, a missing day and a missing value."""
    path = tmp_path_factory.mktemp("waves") / "waves.csv"
    days = np.arange("2024-02-01", "2024-04-01", dtype="datetime64[D]")
    rows = [f"{day},{20 + 5 * math.sin(k * 2 * math.pi / 7):.3f},{k}" for k, day in enumerate(days)]
    rows[10] = rows[10].split(",")[0] + ",," + "10"
    del rows[20]
    rows[3], rows[4] = rows[4], rows[3]
    path.write_text("day,sales,visits\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.slow
def test_forecast_with_files(tmp_path):
    out, picture, model = tmp_path / "ahead.csv", tmp_path / "ahead.svg", tmp_path / "air.mesh"
    done = meshnn("forecast", AIRLINE, *QUICK, "--out", out, "--picture", picture, "--model", model)
    assert done.returncode == 0, done.stderr
    assert "passengers: 144 values, a season of 12 steps" in done.stdout
    assert "seasonal naive" in done.stdout
    heading, *lines = out.read_text().splitlines()
    assert heading == "month,forecast,lower,upper"
    assert [line.split(",")[0] for line in lines] == [f"1961-0{k}" for k in range(1, 7)]
    forecast, lower, upper = np.array([line.split(",")[1:] for line in lines], dtype=float).T
    assert ((lower > 300) & (lower < forecast) & (forecast < upper) & (upper < 800)).all()
    assert picture.read_text().lstrip().startswith("<?xml")
    np.testing.assert_allclose(package.load(model).forecast(6), forecast)
    assert "stream forecaster" in meshnn("info", model).stdout
    assert json.loads(meshnn("info", model, "--json").stdout)["season"] == 12
    for command in (["predict", model, AIRLINE], ["explain", model], ["plot", model, "--out", picture]):
        assert "holds a forecaster" in refused(*command)


def test_to_the_screen_go_the_values_alone():
    done = meshnn("forecast", AIRLINE, "--origins", "0", "--horizon", "2", "--season", "12", "--level", "0.5")
    assert done.stdout.splitlines()[0] == "month,forecast,lower,upper"
    assert len(done.stdout.splitlines()) == 3
    assert "a season of 12 steps" in done.stderr


def test_times_gaps_and_order(waves):
    done = meshnn("forecast", waves, *QUICK, "--target", "sales", "--season", "7", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["by"] == "day"
    assert found["forecast"]["day"] == [f"2024-04-0{k}" for k in range(1, 7)]
    notes = " ".join(found["notes"])
    assert "sorted by day" in notes
    assert "1 time between the rows not there" in notes
    assert "1 value of sales missing" in notes
    want = [20 + 5 * math.sin(k * 2 * math.pi / 7) for k in range(60, 66)]
    np.testing.assert_allclose(found["forecast"]["forecast"], want, atol=1.0)
    assert len(found["back_test"]["forecast"]) == 6
    assert found["back_test"]["origins"] == [30, 42, 54]


def test_rows_without_a_value_at_the_end_are_forecast(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("t,y\n" + "".join(f"{2000 + k},{k % 3}\n" for k in range(12)) + "2012,\n2013,\n")
    found = json.loads(meshnn("forecast", path, "--horizon", "3", "--by", "t", "--target", "y", "--json").stdout)
    assert found["forecast"]["t"] == [2012, 2013, 2014]
    assert any("the last 2 rows have no value of y: forecast first" in note for note in found["notes"])


def test_a_column_alone_is_counted(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("y\n" + "".join(f"{k % 4}\n" for k in range(40)))
    done = meshnn("forecast", path, "--horizon", "2", "--origins", "2", "--picture", tmp_path / "a.png")
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["step", "41", "42"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    few = tmp_path / "few.csv"
    few.write_text("y\n1\n2\n3\n4\n5\n")
    assert "too few values for a back-test" in meshnn("forecast", few, "--horizon", "1").stderr


def test_columns_that_explain_the_series(tmp_path):
    """Their future values are in the rows after the last value; the model equals that of the Python interface."""
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((2, 90))
    y = 3 * x + 0.05 * rng.standard_normal(90)
    rows = [f"{x[k]},{y[k] if k < 80 else ''},{z[k] if k != 40 else ''}" for k in range(90)]
    (tmp_path / "a.csv").write_text("x,y,z\n" + "\n".join(rows) + "\n")
    arguments = ("forecast", tmp_path / "a.csv", "-y", "y", "--exogenous", "x,z", "--season", "none")
    done = meshnn(*arguments, "--horizon", "10", "--origins", "4", "--model", tmp_path / "m.mesh", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["exogenous"] == ["x", "z"]
    np.testing.assert_allclose(found["forecast"]["forecast"], 3 * x[80:], atol=0.6)
    assert max(found["back_test"]["forecast"]) < min(found["back_test"]["naive"])
    model = package.MeshForecaster(None, random_state=0)
    for k in range(80):
        model.learn_one(y[k], {"x": x[k], "z": z[k] if k != 40 else None})
    ahead = [{"x": x[k], "z": z[k]} for k in range(80, 90)]
    np.testing.assert_array_equal(found["forecast"]["forecast"], model.forecast(10, ahead))
    assert package.load(tmp_path / "m.mesh").forecast(10, ahead) == model.forecast(10, ahead)
    said = refused(*arguments, "--horizon", "11")
    assert "10 such rows; add rows without a value of y, or lower --horizon" in said


@pytest.mark.parametrize(("options", "message"), [
    ("", "sales, visits; pass the column of the series with --target"), ("--target price", "no column price"),
    ("--by date", "no column date"), ("--target day", "'2024-02-01' in row 1"), ("--horizon 0", "--horizon"),
    ("--target sales --by sales", "--by: sales"), ("--level 90", "--level"), ("--season week", "'week'"),
    ("--season -4", "--season"), ("--picture a.jpg", ".svg, .png or .pdf"), ("--model a.csv", "--model: a.csv"),
    ("--out nowhere/a.csv", "does not exist"), ("--target sales --out a.xls", "a.xls"),
    ("--out waves.csv", "is the table and would be overwritten"),
    ("--target sales --exogenous visitors", "no column visitors"),
    ("--target sales --exogenous visits,sales", "--exogenous: sales"),
    ("--target sales --exogenous visits", "0 such rows; add rows without a value of sales"),
    ("--target visits --by sales --exogenous day", "column day holds the text '2024-02-01'"),
])  # fmt: skip
def test_what_is_refused(waves, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(waves, "waves.csv")
    assert message in refused("forecast", "waves.csv", "--horizon", "1", "--origins", "1", *options.split())
    assert Path("waves.csv").read_bytes() == waves.read_bytes()
    assert [path.name for path in Path().iterdir()] == ["waves.csv"]


@pytest.mark.parametrize(("good", "bad"), [
    ("2024-{:02}", "2024-13"), ("2024-{:02}-01", "soon"), ("2024-{:02}-01T00:00:00Z", "2024-07-01T00:00:00"),
    ("01.{:02}.2024", "31.06.2024"),
])  # fmt: skip
@pytest.mark.parametrize(("row", "by"), [(1, ()), (12, ("--by", "t"))])
def test_the_date_that_is_wrong_is_named(tmp_path, good, bad, row, by):
    times = [good.format(k + 1) for k in range(12)]
    times[row - 1] = bad
    (tmp_path / "a.csv").write_text("t,y\n" + "".join(f"{time},{k}\n" for k, time in enumerate(times)))
    assert f"{bad!r} in row {row}, which is not read as a time" in refused("forecast", "a.csv", "--horizon", "1", *by)


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "unit", "after"), [
    (["2024-01-31", "2024-02-29", "2024-03-31"], "months", ["2024-04-30", "2024-05-31"]),
    (["2024-01-01", "2024-01-02", "2024-01-03"], "time", ["2024-01-04", "2024-01-05"]),
    (["2024-01-01", "2024-04-01", "2024-07-01"], "months", ["2024-10-01", "2025-01-01"]),
    (["2020-02-29", "2021-02-28"], "months", ["2022-02-28", "2023-02-28"]),
    (["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09", "2024-01-10", "2024-01-11"], "weekdays",
     ["2024-01-12", "2024-01-15"]),
    (["2024-01-01 00:00:00", "2024-01-01 00:30:00"], "time", ["2024-01-01 01:00:00", "2024-01-01 01:30:00"]),
    (["2024-01-01T00:00:00Z", "2024-01-01T12:00:00Z"], "time", ["2024-01-02 00:00:00Z", "2024-01-02 12:00:00Z"]),
    (["1949", "1950", "1951"], "number", [1952, 1953]),
    (["0.1", "0.2", "0.3"], "number", [0.4, 0.5]),
    (["2020Q3", "2020Q4"], "months", ["2021Q1", "2021Q2"]),
    (["2020-Q3", "2020-Q4"], "months", ["2021-Q1", "2021-Q2"]),
    (["30.12.2024", "31.12.2024"], "time", ["01.01.2025", "02.01.2025"]),
    (["Nov 2024", "Dec 2024"], "months", ["Jan 2025", "Feb 2025"]),
    (["2024/11", "2024/12"], "months", ["2025/01", "2025/02"]),
    (["2024-01-01T23:00:00Z", "2024-01-02T01:00:00+01:00", "2024-01-02T01:00:00Z"], "time",
     ["2024-01-02 02:00:00Z", "2024-01-02 03:00:00Z"]),
])  # fmt: skip
def test_times_go_on(tmp_path, given, unit, after):
    path = tmp_path / "t.csv"
    path.write_text("t,y\n" + "".join(f"{time},1\n" for time in given))
    times = read_times(read_table(path).table, "t")
    assert (times.unit, times.notes) == (unit, ())
    assert times.places.tolist() == list(range(len(given)))
    assert times.texts(times.after(2)) == after


def test_times_that_are_not_regular():
    table = pa.table({"t": ["2024-01-01", "2024-01-05", "2024-01-07", "2024-01-20"]})
    times = read_times(pa.table({"t": table["t"].cast("date32")}), "t")
    assert times.places.tolist() == [0, 1, 2, 3]
    assert "not regular" in times.notes[0]
    assert len(times.after(3)) == 3
    gaps = read_times(pa.table({"t": [1, 2, 3, 7, 8]}), "t")
    assert gaps.places.tolist() == [0, 1, 2, 6, 7]
    assert gaps.stamps.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    with pytest.raises(DataError, match="no time in row 2"):
        read_times(pa.table({"t": [1, None, 3]}), "t")
    with pytest.raises(DataError, match="column t"):
        read_times(pa.table({"t": [[1], [2]]}), "t")
    sorted_ = read_times(pa.table({"t": [3, 1, 2]}), "t")
    assert sorted_.order.tolist() == [1, 2, 0]

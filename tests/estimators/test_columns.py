"""Columns of all kinds: dates, many levels, types of pandas, polars and Arrow, other notations, wide tables."""

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.model_selection import cross_val_score

from meshnn import MeshClassifier
from meshnn.errors import DataError
from meshnn.tables.encoder import Encoder, as_table
from meshnn.tables.reader import ReadOptions, open_table, read_table
from meshnn.tables.target import target_column

# -- types -----------------------------------------------------------------------------------------------------------

TOWNS = ["Ulm", "Bonn", None, "Ulm"]
VIEW = pa.array(["Ulm", "Bonn"], pa.string_view())


@pytest.mark.parametrize("column", [
    pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.uint32()), VIEW),  # Categorical and Enum of polars
    pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.uint8()), VIEW.cast("large_string")),
    pd.Series(TOWNS, dtype="category"), pd.Series(TOWNS, dtype="string"),
    pd.Series(TOWNS, dtype=pd.ArrowDtype(pa.large_string())),
    pd.Series(TOWNS, dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
], ids=str)  # fmt: skip
def test_types_of_text(column):
    table = as_table(pd.DataFrame({"town": column}) if isinstance(column, pd.Series) else pa.table({"town": column}))
    encoder = Encoder.learn(table, impute=True)
    assert encoder.columns[0].categories == ("Bonn", "Ulm")
    assert encoder.encode(table.take([1, 0, 2, 3])).X.tolist() == [[1, 0], [0, 1], [0, 1], [0, 1]]
    assert target_column(table, "town").values.tolist() == ["Ulm", "Bonn", "Ulm"]


@pytest.mark.parametrize("dtype", ["Int64", "Float32", "int64[pyarrow]", "double[pyarrow]", "boolean", "bool[pyarrow]"])
def test_types_of_numbers(dtype):
    frame = pd.DataFrame({"x": pd.Series([1, 0, None, 1], dtype=dtype)})
    encoder = Encoder.learn(as_table(frame), impute=True)
    assert encoder.encode(as_table(frame)).X[:, 0].tolist() == [1, 0, 1, 1]


def test_frames_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({
        "a": polars.Series(["x", "y", None], dtype=polars.Categorical), "n": [1, 2, None], "t": ["u", "v", "u"],
        "e": polars.Series(["x", "y", "y"], dtype=polars.Enum(["x", "y"])), "d": [datetime.date(2020, 1, 1)] * 3,
    })  # fmt: skip
    X = Encoder.learn(as_table(frame), impute=True).encode(as_table(frame)).X
    assert X.tolist() == [[1, 0, 1, 1, 0, 1, 0], [0, 1, 2, 0, 1, 0, 1], [1, 0, 1.5, 1, 0, 0, 1]]


# -- dates -----------------------------------------------------------------------------------------------------------

DAYS = [datetime.date(2023, 12, 31), datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)]
WANT = [[2023, 12, 6, 0], [2024, 2, 3, 60], [2024, 3, 4, 61]]  # year, month, weekday from Monday, days


@pytest.mark.parametrize("column", [
    ["2023-12-31", "2024-02-29", " 2024-03-01"], ["31.12.2023", "29.02.2024", "1.3.2024"],
    ["2023/12/31", "2024/2/29", "2024/3/1"], DAYS, pa.array(DAYS, pa.date64()), pa.array(DAYS).cast(pa.timestamp("ns")),
    pa.array(["2023-12-31T00:00:00Z", "2024-02-29T00:00:00+00:00", "2024-03-01T01:00:00+01:00"]),
], ids=range(7))  # fmt: skip
def test_dates_are_features(column):
    table = pa.table({"day": column, "x": [1, 2, 3]})
    encoder = Encoder.learn(table, "x")
    assert encoder.feature_names == ["day.year", "day.month", "day.weekday", "day.days"]
    assert encoder.encode(table).X.tolist() == WANT
    assert ("day" in encoder.notes) == pa.types.is_string(table["day"].type)  # the type of the others states it
    assert "year, month, weekday, days since 2023-12-31" in encoder.notes.get("day", encoder.describe()[0])
    assert "days since 2023-12-31" in encoder.describe()[0]
    again = Encoder.from_tree(encoder.to_tree())
    assert again == encoder
    assert again.encode(pa.table({"day": ["1.3.2024"]})).X.tolist() == WANT[2:]


def test_times_of_day_are_a_feature_where_they_vary():
    times = pa.table({"at": ["2024-01-01 06:30", "2024-01-01 18:00:00", None, "2024-01-01T18:00:00.5"]})
    encoder = Encoder.learn(times, impute=True)
    assert encoder.feature_names == ["at.hour", "at.days"]  # all others are constant
    want = [[6.5, 6.5 / 24], [18, 0.75], [18, 0.75], [18 + 0.5 / 3600, 0.75 + 0.5 / 86400]]
    np.testing.assert_allclose(encoder.encode(times).X, want, rtol=1e-12)
    zoned = pd.DataFrame({"at": pd.to_datetime(["2024-07-01 00:00", "2024-07-01 12:00"]).tz_localize("Europe/Berlin")})
    assert Encoder.learn(as_table(zoned)).encode(as_table(zoned)).X[:, 0].tolist() == [0, 12]


def test_what_is_no_date():
    encoder = Encoder.learn(pa.table({"day": DAYS, "same": DAYS[:1] * 3}))
    assert encoder.left_out["same"].startswith("is constant (2023-12-31")
    for cells, row in ((["2024-01-01", "31.06.2024"], 2), (["soon", "2024-01-01"], 1), ([1, 2], 1), (["2024-01"], 1)):
        with pytest.raises(DataError, match="expected a date") as caught:
            encoder.encode(pa.table({"day": cells}))
        assert (caught.value.field, caught.value.row) == ("day", row)
    texts = Encoder.learn(pa.table({"t": ["2024-01-01", "never", "2024-02-30"]}))
    assert texts.columns[0].kind == "categorical"
    with pytest.raises(DataError, match="numbers, text or booleans"):
        target_column(pa.table({"day": DAYS}), "day")


def test_estimators_learn_from_dates():
    days = pd.date_range("2024-01-01", periods=60)
    model = MeshClassifier(3, l2=1e-3, random_state=0).fit(pd.DataFrame({"day": days}), days.weekday < 3)
    assert model.score(pd.DataFrame({"day": days}), days.weekday < 3) == 1.0
    assert model.feature_importances_.shape == (1,)


def test_text_taken_as_dates_is_reported_at_the_line_of_the_user():
    days = pd.date_range("2024-01-01", periods=60)
    texts = pd.DataFrame({"day": days.astype(str)})
    model = MeshClassifier(3, l2=1e-3, max_epochs=2, tol=0, random_state=0)
    with pytest.warns(UserWarning, match="column day holds dates") as caught:
        cross_val_score(model, texts, days.weekday < 3, cv=2)
    assert {Path(warning.filename) for warning in caught if "day" in str(warning.message)} == {Path(__file__)}


def test_describe_rounds_numbers_and_shortens_dates():
    table = pa.table({"x": [1 / 3, 2 / 3, 7.5], "n": [1234567, 1234568, 1234569], "day": DAYS})
    lines = Encoder.learn(table, impute=True).describe()
    assert lines[0] == "x: number, 0.666667 where missing"
    assert lines[1] == "n: number, 1234568 where missing"
    assert "T" not in lines[2]
    assert ".000000" not in lines[2]


# -- levels, indices, rows -------------------------------------------------------------------------------------------


def test_rare_levels_share_a_feature():
    towns = [f"t{k:03}" for k in range(120) for _ in range(2)] + ["t050", "t119"] * 5
    table = pa.table({"town": towns})
    encoder = Encoder.learn(table)
    assert len(encoder.feature_names) == 100
    assert encoder.feature_names[-1] == "town=(other)"
    assert {"town=t050", "town=t119"} < set(encoder.feature_names)
    X = encoder.encode(pa.table({"town": ["t119", "t118", "never"]})).X
    assert (X.sum(axis=1) == 1).all()
    assert X[:, -1].tolist() == [0, 1, 1]
    assert "120 different texts: the 21 rarest share one feature" in encoder.notes["town"]
    assert Encoder.from_tree(encoder.to_tree()) == encoder
    assert Encoder.learn(table, max_categories=3).feature_names == ["town=t050", "town=t119", "town=(other)"]
    assert len(Encoder.learn(table, max_categories=120).feature_names) == 120
    names = pa.table({"name": [f"n{k}" for k in range(101)]})
    with pytest.raises(DataError, match="101 different texts") as caught:
        Encoder.learn(names)
    assert (caught.value.code, caught.value.field) == ("identifier", "name")


def test_the_index_of_a_frame_is_no_feature(tmp_path):
    frame = pd.DataFrame({"x": np.arange(40.0), "y": [0, 1] * 20}, index=pd.Index(np.arange(40) * 7, name="id"))
    frame.to_parquet(tmp_path / "t.parquet")
    loaded = read_table(tmp_path / "t.parquet")
    encoder = Encoder.learn(loaded.table, "y")
    assert encoder.feature_names == ["x"]
    assert any("id is the index of pandas" in note for note in loaded.notes)
    assert target_column(loaded.table, "id").values.tolist() == frame.index.tolist()  # available by name


def test_rows_without_a_target_are_skipped(tmp_path):
    (tmp_path / "t.csv").write_text("x,z,y\n1,,\n2,4,a\n3,5,b\n4,,\n5,inf,a\n")
    goal = target_column(read_table(tmp_path / "t.csv").table, "y")
    assert (goal.values.tolist(), goal.skipped) == (["a", "b", "a"], 2)
    assert any("2 rows without a value skipped" in note for note in goal.notes)
    with pytest.raises(DataError, match="column z") as caught:  # not the missing values in rows that are skipped
        Encoder.learn(goal.table, "y")
    assert (caught.value.row, caught.value.value) == (5, "inf")  # the row number of the file
    with pytest.raises(DataError, match="0 rows with a value"):
        target_column(pa.table({"y": [None, float("nan")]}), "y")


# -- notations and forms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "options", "want"), [
    ("a;b\n1.234,5;x,y\n-7;1\n", {"decimal": ",", "thousands": "."}, {"a": [1234.5, -7], "b": ["x,y", "1"]}),
    ('a,b\n"1,234",5%\n-7,6%\n', {"thousands": ","}, {"a": [1234, -7], "b": ["5%", "6%"]}),
    ("a:b\n1:2\n", {"sep": ":"}, {"a": [1], "b": [2]}),
    ("a,b\nKöln,1\n", {"encoding": "latin-1"}, {"a": ["Köln"], "b": [1]}),
    ("a,b\n?,1\n-,2\n", {"na": ("?", "-")}, {"a": [None, None], "b": [1, 2]}),
])  # fmt: skip
def test_how_a_text_is_written(tmp_path, text, options, want):
    (tmp_path / "t.csv").write_bytes(text.encode(options.get("encoding", "utf-8")))
    assert read_table(tmp_path / "t.csv", options=ReadOptions(**options)).table.to_pydict() == want
    kept = read_table(tmp_path / "t.csv", text=["a"], options=ReadOptions(**options)).table
    assert all(value is None or isinstance(value, str) for value in kept["a"].to_pylist())


@pytest.mark.parametrize("options", [{"encoding": "utf-99"}, {"sep": ""}, {"decimal": ",", "thousands": ","}])
def test_options_that_make_no_sense(options):
    with pytest.raises(DataError) as caught:
        ReadOptions(**options)
    assert caught.value.field in options


def test_a_column_that_becomes_text_late(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 500 + "x,2.5\n")
    with open_table(tmp_path / "t.csv", ReadOptions(block_size=100)) as reader:
        assert sum(1 for _ in reader.blocks()) > 5
    table = read_table(tmp_path / "t.csv", options=ReadOptions(block_size=100)).table
    assert table.schema.types == [pa.string(), pa.float64()]
    assert table["a"].to_pylist() == ["1"] * 500 + ["x"]


def test_arrow_and_numpy_files(tmp_path):
    table = pa.table({"a": [1.5, 2.0, 3.0], "b": pa.array(["x", None, "y"], pa.string_view())})
    for name in ("t.feather", "t.arrow"):
        with pa.ipc.new_file(tmp_path / name, table.schema) as file:
            file.write_table(table)
        assert read_table(tmp_path / name).table.to_pydict() == table.to_pydict()
    np.save(tmp_path / "t.npy", np.arange(6.0).reshape(3, 2))
    assert read_table(tmp_path / "t.npy").table.to_pydict() == {"x0": [0, 2, 4], "x1": [1, 3, 5]}
    blocks = [pa.table({"a": [1, 2], "b": ["x", "y"]}), pa.table({"a": [3], "b": ["x"]})]
    assert Encoder.learn(iter(blocks)) == Encoder.learn(pa.concat_tables(blocks))


@pytest.mark.slow
def test_a_hundred_thousand_columns(tmp_path):
    names = [f"c{k}" for k in range(100_000)]
    cells = np.random.default_rng(0).integers(0, 9, (5, len(names))).astype(str)
    (tmp_path / "t.csv").write_text("\n".join(",".join(row) for row in [names, *cells.tolist()]))
    table = read_table(tmp_path / "t.csv").table
    encoder = Encoder.learn(table, "c0")
    assert len(encoder.feature_names) > 99_000
    assert encoder.encode(table).X.shape == (5, len(encoder.feature_names))

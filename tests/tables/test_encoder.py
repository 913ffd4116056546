"""The encoder of columns as features, and the target column."""

import datetime
import json
import re
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from meshnn.errors import DataError, MeshError
from meshnn.tables.encoder import Column, Encoder
from meshnn.tables.reader import read_table
from meshnn.tables.target import target_column
from table_cases import HOUSES, refused

# Learning an encoder


def test_encoder_by_hand():
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    assert encoder.feature_names == ["rooms", "city=Bonn", "city=Köln", "city=Ulm", "garden"]
    levels = Column("city", "categorical", ("Bonn", "Köln", "Ulm"))
    assert encoder.columns == (Column("rooms", "numeric"), levels, Column("garden", "boolean"))
    assert encoder.left_out == encoder.notes == {}
    assert encoder.text_columns == ["city"]
    encoded = encoder.encode(pa.table(HOUSES))
    want = [[3, 0, 0, 1, 1], [5, 1, 0, 0, 0], [4, 0, 1, 0, 0], [2, 1, 0, 0, 1]]
    np.testing.assert_array_equal(encoded.X, want)
    assert encoded.X.dtype == np.float64
    assert encoded.notes == []
    new = pa.table({"extra": ["?"], "garden": [False], "city": ["Köln"], "rooms": [7.5]})  # matched by name
    np.testing.assert_array_equal(encoder.encode(new).X, [[7.5, 0, 1, 0, 0]])
    assert encoder.encode(new.slice(0, 0)).X.shape == (0, 5)
    refused(lambda: encoder.encode(new.select(["garden"])), "no columns rooms, city")
    refused(lambda: encoder.encode(new.rename_columns(["extra", "garden", "City", "rooms"])), "did you mean City?")


def test_arguments():
    table = pa.table(HOUSES)
    encoder = Encoder.learn(table, None, drop=["city"])
    assert encoder.feature_names == ["rooms", "garden", "price"]
    assert encoder.left_out == {"city": "dropped on request"}
    refused(lambda: Encoder.learn(table, "Prize"), "Prize (did you mean price?)", "rooms, city")
    refused(lambda: Encoder.learn(table, "price", ["x"]), "no column x")
    refused(lambda: Encoder.learn(table, "price", ["price"]), "the target price")
    for name, value in (("drop", "city"), ("impute", "yes"), ("max_categories", 0)):
        with pytest.raises(MeshError, match=name):
            Encoder.learn(table, "price", **{name: value})


def test_columns_left_out():
    why = {
        "one": ([7, 7, 7], "is constant (7)"),
        "same": (["x", "x", "x"], "is constant (x)"),
        "no": ([False, False, False], "is constant (false)"),
        "gaps": ([2.5, None, 2.5], "is constant (2.5)"),
        "void": (pa.nulls(3), "has no values"),
        "hollow": (pa.array([None, None, None], pa.string()), "has no values"),
        "nan": ([float("nan")] * 3, "has no values"),
    }
    table = pa.table({name: values for name, (values, _) in why.items()} | {"x": [1, 2, 3]})
    encoder = Encoder.learn(table, None)
    assert encoder.feature_names == ["x"]
    assert encoder.left_out == {name: reason for name, (_, reason) in why.items()}
    assert encoder.notes.keys() == why.keys()
    refused(lambda: Encoder.learn(table, "x"), "no column is left", "one is constant (7)")
    refused(lambda: Encoder.learn(table.select(["x"]), "x"), "no column is left")


def test_missing_values_are_counted():
    age, city = [1.0, None, float("nan"), None, 5.0], ["a", None, "b", "a", "a"]
    table = pa.table({"age": age, "city": city, "ok": [1, 2, 3, 4, 5], "member": [True, None, None, True, False]})
    assert refused(lambda: Encoder.learn(table, "ok")) == "3 missing values in age, 1 in city, 2 in member"
    assert Encoder.learn(table, None, drop=["age", "city", "member"]).feature_names == ["ok"]
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    new = pa.table({"rooms": [1, None], "city": pa.nulls(2), "garden": [True, None]})
    assert refused(lambda: encoder.encode(new)) == "1 missing values in rooms, 2 in city, 1 in garden"
    hollow = pa.table(HOUSES | {"rooms": pa.array([None] * 4, pa.string())})
    refused(lambda: encoder.encode(hollow), "4 missing values in rooms")


def test_imputing_by_hand():
    columns = {
        "odd": [9.0, None, 1.0, 2.0, None],  # median of 1, 2, 9
        "even": [1, 10, None, 3, 2],  # median of 1, 2, 3, 10
        "city": ["b", "c", None, "c", "a"],
        "tie": ["z", "y", "z", "y", None],  # the first in sorted order
        "flag": [True, None, True, False, True],
        "draw": [True, None, True, False, False],  # equal counts: false
        "full": [1, 2, 3, 4, 9],  # no missing values in training, but a fill value for later ones
        "huge": [1.5e308, None, 1.5e308, 1.7e308, 1.7e308],  # the sum overflows
    }
    encoder = Encoder.learn(pa.table(columns), None, impute=True)
    fills = [2.0, 2.5, "c", "y", True, False, 3.0, 1.6e308]
    assert [column.fill for column in encoder.columns] == fills
    assert [type(column.fill) for column in encoder.columns] == list(map(type, fills))
    X = encoder.encode(pa.table(columns)).X
    np.testing.assert_array_equal(X[1], [2, 10, 0, 0, 1, 1, 0, 1, 0, 2, 1.6e308])
    np.testing.assert_array_equal(X[2], [1, 2.5, 0, 0, 1, 0, 1, 1, 1, 3, 1.5e308])
    empty = pa.table({name: pa.nulls(1) for name in columns})
    np.testing.assert_array_equal(encoder.encode(empty).X, [[2, 2.5, 0, 0, 1, 1, 0, 1, 0, 3, 1.6e308]])


def test_numbers_with_a_slip(save):
    encoder = Encoder.learn(read_table(save("n,age\n1,31\n2,45\n3,?\n4,1e3\n")).table, "n")
    assert encoder.columns[0].categories == ("1e3", "31", "45", "?")
    assert "3 of its 4 values are numbers, but row 3 holds '?'" in encoder.notes["age"]
    many = read_table(save("n,age\n" + "".join(f"1,{k}\n" for k in range(150)) + "2,??\n")).table
    refused(lambda: Encoder.learn(many, "n"), "150 of its 151 values are numbers, but row 151 holds '??'")
    for values in (["1", "2", "3"], ["1", "b", "c"]):  # all values or few values are not numeric
        assert Encoder.learn(pa.table({"code": values, "x": [1, 2, 3]}), "x").notes == {}


@pytest.mark.parametrize(
    "values",
    [[datetime.time(12)], [datetime.timedelta(1)], [[1]], [{"a": 1}], [b"x"],
     pa.array([[("k", 1)]], pa.map_("str", "int8"))],
)  # fmt: skip
def test_columns_that_cannot_be_used(values):
    values = pa.array(values) if isinstance(values, list) else values
    table = pa.table({"odd": pa.concat_arrays([values, values]), "x": [1, 2]})
    encoder = Encoder.learn(pa.table({"odd": [1, 2]}), None)
    for call in (Encoder.learn, target_column, lambda table, _: encoder.encode(table)):
        with pytest.raises(DataError, match=re.escape(str(values.type)[:8])) as caught:
            call(table, "x" if call == Encoder.learn else "odd")
        assert (caught.value.code, caught.value.field) == ("type", "odd")
    assert Encoder.learn(table, None, drop=["odd"]).feature_names == ["x"]


def test_infinite_numbers(save):
    table = read_table(save("x,y\n1,2\n2,1e999\n")).table
    refused(lambda: Encoder.learn(table, "x"), "data.csv: column y holds inf in row 2")
    refused(lambda: target_column(table, "y"), "column y holds inf in row 2")
    encoder = Encoder.learn(pa.table({"x": [1, 2]}), None, impute=True)
    refused(lambda: encoder.encode(pa.table({"x": [1.0, 2.0, -np.inf]})), "column x holds -inf in row 3")


NUMBERS = [
    *(np.array([1, 3], dtype) for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")),
    pa.array([Decimal("1.00"), Decimal("3.00")], pa.decimal128(10, 2)),
    pa.array([Decimal("1.00"), Decimal("3.00")], pa.decimal256(50, 2)),
    pa.chunked_array([pa.array([1]), pa.array([3])]),
]


def test_all_types_of_numbers():
    for values in NUMBERS:
        table = pa.table({"x": values})
        encoder = Encoder.learn(table, None)
        assert encoder.columns == (Column("x", "numeric"),)
        np.testing.assert_array_equal(encoder.encode(table).X, [[1.0], [3.0]])
        for task, kind in (("auto", np.int64), ("regress", np.float64)):
            target = target_column(table, "x", task)
            assert target.values.tolist() == [1, 3]
            assert target.values.dtype == kind


def test_dictionaries_of_other_things():
    packed = {"n": [3, 10, 3], "f": [0.5, 2.0, None], "b": [True, False, True]}
    table = pa.table({name: pa.array(values).dictionary_encode() for name, values in packed.items()})
    encoder = Encoder.learn(table, None, impute=True)
    assert [column.categories for column in encoder.columns] == [("10", "3"), ("0.5", "2"), ("false", "true")]
    want = [[0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1]]
    np.testing.assert_array_equal(encoder.encode(table).X, want)


def test_names_of_features_are_unique():
    table = pa.table({"a=b": ["c", "d"], "a": ["b=c", "x"], "a=b=c": [1, 2], "a=b=c (2)": [1, 2]})
    names = Encoder.learn(table, None).feature_names
    assert names == ["a=b=c", "a=b=d", "a=b=c (2)", "a=x", "a=b=c (3)", "a=b=c (2) (2)"]


# Encoding another table


def test_values_never_seen():
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    encoded = encoder.encode(pa.table({"rooms": [1] * 3, "city": ["Rome", "Ulm", "Oslo"], "garden": [True] * 3}))
    np.testing.assert_array_equal(encoded.X[:, 1:4], [[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    assert re.search("2 rows .* city .*'Rome'", encoded.notes[0])


@pytest.mark.parametrize(
    ("x", "b", "words"),
    [
        (["1", "many", "?"], [True] * 3, "column x holds the text 'many' in row 2"),
        ([None, "12"], [True] * 2, "column x holds the text '12' in row 2"),
        ([1, 2], ["true", "maybe"], "column b holds the text 'maybe' in row 2"),
        ([1, 2, 3], [0, 1, 2], "column b holds 2 in row 3"),
    ],
)
def test_numbers_that_became_something_else(x, b, words):
    encoder = Encoder.learn(pa.table({"x": [1, 2], "b": [True, False]}), None)
    refused(lambda: encoder.encode(pa.table({"x": x, "b": b})), words)
    stand_in = pa.table({"x": [True, False], "b": [0.0, 1.0]})
    np.testing.assert_array_equal(encoder.encode(stand_in).X, [[1, 0], [0, 1]])


def test_texts_that_became_numbers(save):
    encoder = Encoder.learn(read_table(save("code,flag,size\n12,true,1.0\n007,maybe,2.5\nA,no,big\n")).table, None)
    assert encoder.columns[0].categories == ("007", "12", "A")
    by_type = encoder.encode(pa.table({"code": [12, 7], "flag": [True, True], "size": [1.0, 2.5]}))
    # code, flag (maybe, no, true), size (1.0, 2.5, big); a number does not have the zeros of its text
    np.testing.assert_array_equal(by_type.X, [[0, 1, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 0, 1, 0]])
    file = save("code,flag,size\n12,true,1.0\n007,true,2.5\n", "new.csv")
    as_written = encoder.encode(read_table(file, text=encoder.text_columns).table)
    np.testing.assert_array_equal(as_written.X, [[0, 1, 0, 0, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 1, 0, 1, 0]])
    for learned, given in ((["1", "2", "z"], [2.0, 1.0]), (["FALSE", "TRUE", "z"], [True, False])):
        spelled = Encoder.learn(pa.table({"x": learned}), None)
        np.testing.assert_array_equal(spelled.encode(pa.table({"x": given})).X, [[0, 1, 0], [1, 0, 0]])


def test_describe():
    table = pa.table(HOUSES | {"one": [1] * 4, "id": [1, 2, 3, 4], "n" * 61: ["a", "b", "c", "d"]})
    assert Encoder.learn(table, "price", drop=["id"], impute=True).describe() == [
        "rooms: number, 3.5 where missing",
        "city: one-hot of 3 values (Bonn, Köln, Ulm), Bonn where missing",
        "garden: true or false, false where missing",
        "n" * 57 + "...: one-hot of 4 values (a, b, c, ...), a where missing",
        "one: left out (is constant (1))",
        "id: left out (dropped on request)",
    ]


# Storing an encoder


@pytest.mark.parametrize("impute", [False, True])
def test_round_trip_through_json(impute):
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3, 9)]
    odd = {"x": [0.1 + 0.2, 1e-310, 1e300, -0.0], "näme\n": ["ü", '"', "\\", "\u2028"], "one": [1] * 4, "day": days}
    table = pa.table(HOUSES | odd)
    encoder = Encoder.learn(table, None, impute=impute)
    again = Encoder.from_tree(json.loads(json.dumps(encoder.to_tree(), allow_nan=False)))
    assert again == encoder
    np.testing.assert_array_equal(again.encode(table).X, encoder.encode(table).X)


DATE = {
    "name": "g",
    "kind": "date",
    "categories": ["year"],
    "fill": "2024-01-01",
    "other": False,
    "origin": "2024-01-01",
}
DAMAGES = {
    "impute": (1, None),
    "columns": ([], {}, None, "x", [None], [[]], [{}]),
    "left_out": ([], None, {"a": 1}, {"rooms": "x"}, {"\ud800": ""}),
    "more": (1,),
    "columns 0 name": (None, 3, "", "city", "one", "\ud800", ["x"]),  # invalid for a numeric column
    "columns 0 kind": (None, "text", 1, ["numeric"], "categorical"),
    "columns 0 categories": (["a", "b"], None, "ab", {}),
    "columns 0 fill": (None, 3, True, "3", float("nan"), 10**400, [1.0]),
    "columns 1 kind": ("numeric",),  # invalid for text
    "columns 1 categories": ([], ["Bonn"], ["Bonn", "Bonn", "Ulm"], ["Ulm", "Bonn"], ["Bonn", 3], ["Bonn", "\ud800"]),
    "columns 1 fill": (None, "Rome", 3.0, ["Bonn"]),
    "columns 2 categories": (["false", "true"],),  # invalid for booleans
    "columns 2 fill": (None, 0, "true"),
    "columns 2": tuple(DATE | change for change in (
        {"categories": ["age"]}, {"categories": []}, {"fill": "x"}, {"origin": "NaT"})),
}  # fmt: skip


def test_damaged_encoders_are_refused():
    table = pa.table(HOUSES | {"one": [1] * 4})
    whole, bare = (json.dumps(Encoder.learn(table, "price", impute=impute).to_tree()) for impute in (True, False))
    cases = [(whole, place, value) for place, values in DAMAGES.items() for value in values]
    cases += [(bare, f"columns {k} fill", fill) for k, fill in enumerate([3.0, "Bonn", True])]
    for text, place, value in cases:
        stored = inside = json.loads(text)
        *outer, key = [int(step) if step.isdigit() else step for step in place.split()]
        for step in outer:
            inside = inside[step]
        inside[key] = value
        refused(lambda stored=stored: Encoder.from_tree(stored), "is damaged")
    for odd in (None, [], "x", 3, {}, {"columns": []}):
        refused(lambda odd=odd: Encoder.from_tree(odd), "is damaged")
    for text in (whole, bare, json.dumps({"impute": True, "columns": [DATE], "left_out": {}})):
        Encoder.from_tree(json.loads(text))  # unchanged trees are valid


def test_an_encoder_is_loaded_without_pyarrow():
    """Reading and describing a stored encoder works without pyarrow, as in `meshnn info`."""
    program = (
        "import sys, meshnn.tables.sources; from meshnn.tables.encoder import Column, Encoder; column = vars(Column("
        "'x', 'numeric')) | {'categories': []}; stored = dict(impute=False, columns=[column], left_out={}); "
        "print(Encoder.from_tree(stored).describe(), {'pyarrow', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "['x: number'] set()\n", done.stderr


# Targets


@pytest.mark.parametrize(
    ("values", "task", "kind"),
    [
        (["b", "a", "b"], "classify", "U"),
        ([True, False], "classify", "b"),
        (pa.array([5, 7, 9]).dictionary_encode(), "classify", "i"),
        ([1.0, 2.0, 1.0, 2.0], "classify", "i"),
        ([0, 1], "classify", "i"),  # two different integers are classes, for any number of rows
        ([0, 1, 2], "regress", "f"),  # one row per value
        ([0, 1, 2, 0, 1, 2], "classify", "i"),  # two rows per value
        (list(range(20)) * 2, "classify", "i"),
        (list(range(21)) * 10, "regress", "f"),
        ([0.0, 1.0, 2.5] * 10, "regress", "f"),
    ],
)
def test_the_task_of_a_target(values, task, kind):
    target = target_column(pa.table({"y": values}), "y")
    assert (target.task, target.values.dtype.kind) == (task, kind)
    assert target.values.tolist() == (values if isinstance(values, list) else values.to_pylist())
    assert len(target.notes) == 1


def test_a_task_that_is_named():
    for values, task, want in [
        ([0, 1, 2], "classify", [0, 1, 2]),
        ([2**53, 2**53 + 1] * 2, "classify", [2**53, 2**53 + 1] * 2),  # as floats they would be equal
        ([True, False], "regress", [1.0, 0.0]),
    ]:
        target = target_column(pa.table({"y": values}), "y", task=task)
        assert (target.task, target.values.tolist(), target.notes) == (task, want, [])
        assert target.values.dtype == (np.float64 if task == "regress" else np.int64)
    refused(lambda: target_column(pa.table({"y": [1, 2]}), "y", task="cluster"), "'cluster'", "classify, regress")


MANY = [f"n{k}" for k in range(10_000)]


@pytest.mark.parametrize(
    ("values", "task", "words"),
    [
        (["a"], "auto", "1 row, expected at least 2"),
        (["a", "a"], "auto", "'a'"),
        ([3, 3, 3], "auto", "the one value 3"),
        (["a", "b"], "regress", "'a' in row 1"),
        ([2.5, 2.5], "auto", "the one value 2.5"),
        ([1.0, 2.5], "classify", "2.5 in row 2"),
        ([1.0, 1e19], "classify", "1e+19 in row 2"),
        (MANY, "auto", "10,000 classes in 10,000 rows"),
        (MANY[:1001] * 2, "auto", "1,001 classes in 2,002 rows"),
        (MANY[:11] + MANY[:10], "auto", "11 classes in 21 rows"),
        (list(range(2000)), "classify", "2,000 classes"),
    ],
)
def test_targets_that_are_refused(values, task, words):
    refused(lambda: target_column(pa.table({"y": values}), "y", task), words)


def test_as_many_classes_as_can_be():
    for values in (MANY[:1000] * 2, MANY[:10] * 2 + MANY[:1], MANY[:20]):
        assert len(set(target_column(pa.table({"y": values}), "y").values)) == len(set(values))

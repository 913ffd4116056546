"""Tables: real files in, matrices and targets out, predictions back to files."""

import datetime
import errno
import gzip
import io
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import meshnn.memory
from meshnn.errors import DataError, FileError, MemoryLimitError, MeshError
from meshnn.tables.encoder import Column, Encoder
from meshnn.tables.predictions import write_predictions
from meshnn.tables.reader import read_table
from meshnn.tables.target import target_column

BOM = "\ufeff"


@pytest.fixture
def save(tmp_path):
    """Write text or bytes to a file with the given name; return its path."""

    def write(content, name="data.csv"):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write


def refused(call, *words):
    """The call raises a DataError or FileError of one line that holds all the words."""
    with pytest.raises((DataError, FileError)) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message


# Reading text


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (
            "age,city,member\n31,Bonn,true\n45.5,Ulm,false\n",
            {"age": [31, 45.5], "city": ["Bonn", "Ulm"], "member": [True, False]},
        ),
        (BOM + "a,b\n1,2\n", {"a": [1], "b": [2]}),
        (BOM + '"a",b\n1,2\n', {"a": [1], "b": [2]}),
        ("größe,年齢\n1,2\n", {"größe": [1], "年齢": [2]}),
        (' größe ,"a b"\n1,2\n', {"größe": [1], "a b": [2]}),
        ("a;x,b\n1,2\n", {"a;x": [1], "b": [2]}),  # there are commas: semicolons are part of the name
        ('"a;b"\n1\n', {"a;b": [1]}),  # quoted: part of the name
        ("a,b\n0,2020-01-31\n-10,01:30\n", {"a": [0, -10], "b": ["2020-01-31", "01:30"]}),  # an encoder parses dates
        # quotes
        (
            'name,"x, y"\n"Ann, ""the""\r\nfirst",1\n"5"" pipe",2\n6" pipe,3\n',
            {"name": ['Ann, "the"\r\nfirst', '5" pipe', '6" pipe'], "x, y": [1, 2, 3]},
        ),
        ('"two\nlines",b\n1,2\n', {"two\nlines": [1], "b": [2]}),
        ('a,b\n1,x\n2,"y\n"\n', {"a": [1, 2], "b": ["x", "y\n"]}),  # a line end at the end of the last value
        ("a\n" + "x" * (2**20 - 3) + "öy\n", {"a": ["x" * (2**20 - 3) + "öy"]}),  # a row of more than one block
        # line ends
        *[(end.join(["a,b", "1,x", "2,y"]) + last, {"a": [1, 2], "b": ["x", "y"]})
          for end in ("\n", "\r\n", "\r") for last in (end, "")],
        # blank lines; of a single column they are missing values: left out, predictions would slip against the rows
        ("\n\na,b\n\n1,2\n\n\n3,4\n\n", {"a": [1, 3], "b": [2, 4]}),
        ("a\n1\n\n3\n", {"a": [1, None, 3]}),
        # missing values
        ("n,empty\n5,\n6,\n", {"n": [5, 6], "empty": [None, None]}),
        *[(f"a,b\n{word}, {word}\nx,1\n", {"a": [None, "x"], "b": [None, 1]})
          for word in ("", "NA", "N/A", "n/a", "#N/A", "nan", "NaN", "null", "NULL", "None")],
        ('a,b\n"",1\nx,2\n', {"a": [None, "x"], "b": [1, 2]}),
        ("n,m\n9223372036854775807,9223372036854775808\n", {"n": [2**63 - 1], "m": [2.0**63]}),
    ],
)  # fmt: skip
def test_texts_as_they_are(save, content, want):
    loaded = read_table(save(content))
    assert loaded.table.to_pydict() == want
    assert loaded.notes == []


@pytest.mark.parametrize(
    ("content", "name", "want", "note"),
    [
        ("a;b\n1.5;x,y\n2;z\n", "data.csv", {"a": [1.5, 2.0], "b": ["x,y", "z"]}, "separated by semicolons"),
        ("a;b\nx;1,2\ny;u,v\n", "data.csv", {"a": ["x", "y"], "b": ["1,2", "u,v"]}, "separated by semicolons"),
        ("a\tb\n1\t2\n", "data.csv", {"a": [1], "b": [2]}, "separated by tabs"),
        ("a,b\n1,2\n", "data.tsv", {"a": [1], "b": [2]}, "separated by commas"),
        ('"","x"\n"1",7\n"2",8\n', "data.csv", {"x": [7, 8]}, "the first column has no name: left out"),  # of R
        ("a|b\n1|2\n", "data.csv", {"a": [1], "b": [2]}, "separated by vertical bars"),
        ('a,b\n"1,000",1\n"-2,5",2\n', "data.csv", {"a": ["1,000", "-2,5"], "b": [1, 2]}, "column a ('1,000')"),
        ("a;b\n5%;1\n7%;2\n", "data.csv", {"a": ["5%", "7%"], "b": [1, 2]}, "semicolons"),
        ("Unnamed: 0,x\n0,7\n1,8\n", "data.csv", {"x": [7, 8]}, "is called Unnamed: 0"),
        (" n \n007\n12\n", "data.csv", {"n": ["007", "12"]}, "column n has numbers with leading zeros: kept as text"),
        ("n,m\n-07,1\n", "data.csv", {"n": ["-07"], "m": [1]}, "leading zeros"),
    ],
)  # fmt: skip
def test_texts_with_a_note(save, content, name, want, note):
    loaded = read_table(save(content, name))
    assert loaded.table.to_pydict() == want
    assert note in loaded.notes[0]
    assert all(found.startswith(str(save(content, name)) + ": ") for found in loaded.notes)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *[(text, ["data.csv is empty"])
          for text in ("", "\n", "\r\n\r\n", "  \n", BOM, BOM + "\n")],
        *[(text, ["data.csv has no rows"]) for text in ("a,b", "a,b\n", "a,b\r\n\r\n", "a\n", ",x\n")],
        # other encodings
        ("a,b\n1,x\n2,Köln\n".encode("latin-1"), ["data.csv is not UTF-8", "0xf6", "row 2"]),
        ("a,ö\n1,2\n".encode("latin-1"), ["0xf6"]),
        (b"a,b\n1,\xe9\n2\n", ["0xe9", "row 1"]),  # before the row that is too short
        *[("a,b\n1,x\n".encode(name), ["UTF-8"]) for name in ("utf-16", "utf-16-le", "utf-32")],
        (b"a,b\n1,\xc3", ["0xc3", "row 1"]),  # cut off within a character
        (b"a,b\n" + b"1,x\n" * 300_000 + b"2,\xe9\n", ["0xe9", "row 300,001"]),
        (b"a,b\n1,\x002\n", ["data.csv holds a zero byte (byte 7)"]),
        # not what it says
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), ["data.csv is a PNG image, expected text"]),
        (b"PK\x03\x04rest", ["data.csv is a zip or Excel file", "as CSV"]),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), ["data.csv is compressed with gzip"]),
        # rows, not lines, are numbered
        ("a,b\n1,2\n3\n4,5\n", ["data.csv: row 2 has 1 values, expected 2", "'3'"]),
        ("a,b\n1,2\n\n\n3,4,5\n", ["row 2 has 3 values, expected 2", "hold commas"]),
        ('a,b\n1,"x\ny\nz"\n3,4,5\n', ["row 2 has 3 values"]),
        ("a,b\n1,2,\n3,4,\n", ["row 1 has 3 values"]),
        ("a;b\n1;2\n3\n", ["row 2 has 1 values", "hold semicolons"]),
        ("a,b\n" + "1,2\n" * 600_000 + "3\n", ["row 600,001 has 1 values"]),
        ("a,b\n1," + "x" * 200_000 + "\n3\n", ["row 2 has 1 values"]),  # a value longer than the csv module likes
        # pyarrow alone takes the rest of the file for one value, without a word
        ('a,b\n1,x\n2,"y\n3,z\n4,u\n', ["a quote opened in row 2 is never closed"]),
        ('a,b\n5" pipe,x\n2,"y\n3,z\n', ["a quote opened in row 2 is never closed"]),
        ('a,b\n1,x\n"2,y\n3,z\n', ["a quote opened in row 2 is never closed"]),
        ('a,b\n1,"y', ["a quote opened in row 1 is never closed"]),
        ('a,b\n1,"y\n' + "3,z\n" * 100_000, ["a quote opened in row 1 is never closed"]),
        ('a,"b\n' + "1,2\n" * 100_000, ["a quote opened in the header line is never closed"]),
        # names
        ("a,b,a\n1,2,3\n", ["two columns are called a (columns 1 and 3)", "rename"]),
        ("a, a\n1,2\n", ["two columns are called a"]),
        ("a,,c\n1,2,3\n", ["data.csv: column 2 of 3 has no name", "name it in the header"]),
        ("a,b, \n1,2,3\n", ["column 3 of 3 has no name"]),
        ("a,b,\n1,2\n", ["column 3 of 3 has no name"]),  # that, not that every row is too short
        ('""\n0\n1\n', ["data.csv has no columns"]),
        ("a;b\nx;1\ny;2,5\nz;\n", ["column b", "'2,5' in row 2"]),
        ("a;b\nx;1.000,50\n", ["column b", "1.000,50"]),
    ],
)  # fmt: skip
def test_texts_that_are_refused(save, content, words, capfd):
    refused(lambda: read_table(save(content)), *words)
    assert capfd.readouterr().err == ""  # pyarrow grumbles there if a callback fails


@pytest.mark.parametrize("name", ["data.csv", "DATA.CSV", "my data.csv", "Köln.csv", "a.b.Csv", "two\nlines.csv"])
def test_paths_and_endings(save, name):
    assert read_table(str(save("a,b\n1,2\n", name))).table.to_pydict() == {"a": [1], "b": [2]}


@pytest.mark.parametrize("name", ["data.txt", "data.xlsx", "data.gz", "data", "data.parquet.gz"])
def test_unknown_endings(save, name):
    refused(lambda: read_table(save("a\n1\n", name)), name, "unknown ending", ".csv.gz", ".tsv", ".parquet", ".pq")


def test_gzip(save):
    for ending, separator in ((".csv.gz", b","), (".tsv.gz", b"\t"), (".CSV.GZ", b",")):
        packed = gzip.compress(b"a" + separator + b"b\n1" + separator + b"2\n", mtime=0)
        assert read_table(save(packed, "data" + ending)).table.to_pydict() == {"a": [1], "b": [2]}
    two_members = gzip.compress(b"a,b\n1,2\n", mtime=0) + gzip.compress(b"3,4\n")
    assert read_table(save(two_members, "data.csv.gz")).table.to_pydict() == {"a": [1, 3], "b": [2, 4]}
    packed = gzip.compress(b"a,b\n" + bytes(str(list(range(5000))), "ascii"))
    damaged = packed[:200] + bytes(100) + packed[300:]
    for content in (b"a,b\n1,2\n", packed[:-500], damaged, packed[:-8] + bytes(8)):
        words = "data.csv.gz is not compressed with gzip, or damaged", "drop the .gz"
        refused(lambda content=content: read_table(save(content, "data.csv.gz")), *words)
    for content in (b"", gzip.compress(b"", mtime=0), gzip.compress(b"\n")):
        refused(lambda content=content: read_table(save(content, "data.tsv.gz")), "data.tsv.gz is empty")


def test_what_is_no_file(tmp_path, save, monkeypatch):
    refused(lambda: read_table(tmp_path / "no such.csv"), "no such.csv: there is no such file; check the path")
    (tmp_path / "folder").mkdir()
    refused(lambda: read_table(tmp_path / "folder"), "folder has no .parquet file")
    os.mkfifo(tmp_path / "pipe.csv")
    refused(lambda: read_table(tmp_path / "pipe.csv"), "pipe.csv is a pipe or a device")
    refused(lambda: read_table("/dev/zero"), "/dev/zero is a pipe or a device")
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere.csv")
    refused(lambda: read_table(tmp_path / "link.csv"), "there is no such file")
    refused(lambda: read_table(str(tmp_path / "zero\0byte.csv")), r"zero\x00byte.csv")
    refused(lambda: read_table(tmp_path / ("x" * 300 + ".csv")), "name is too long")
    refused(lambda: read_table(tmp_path / "no\nlines.csv"), r"no\nlines.csv")

    def closed(self, *arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    file = save("a,b\n1,2\n")
    monkeypatch.setattr(type(file), "open", closed)  # whoever runs the tests may be root, who may read all
    refused(lambda: read_table(file), "cannot read", "data.csv: permission denied")


def test_columns_kept_as_text(save):
    file = save(" code ,day,n\n007,2020-01-01,1\n12,2020-01-02,2\n")
    loaded = read_table(file, text=["code", "day", "not there"])
    assert loaded.table.to_pydict() == {"code": ["007", "12"], "day": ["2020-01-01", "2020-01-02"], "n": [1, 2]}
    assert loaded.notes == []
    assert read_table(save("a\tb\n1,5\t\n", "data.tsv"), text=["a", "b"]).table.to_pydict() == {
        "a": ["1,5"],
        "b": [None],
    }
    assert read_table(save("a;b\nx;1,2\n"), text=["b"]).table["b"].to_pylist() == ["1,2"]


def test_many_blocks(save):
    rows = 400_000
    table = read_table(save("n,m\n" + "1,2\n" * rows + "0.5,x\n")).table
    assert table.num_rows == rows + 1
    assert table.schema.types == [pa.float64(), pa.string()]
    assert table["m"][0].as_py() == "2"
    table = read_table(save("a,b\n" + '1,"x\n\ny,z"\n' * 200_000)).table  # blocks may end within the quotes
    assert table.num_rows == 200_000
    assert set(table["b"].to_pylist()) == {"x\n\ny,z"}
    long = "x" * 3_000_000  # a row longer than a block
    assert read_table(save(f"a,b\n1,{long}\n2,y\n")).table.to_pydict() == {"a": [1, 2], "b": [long, "y"]}
    wide = [f"c{k}" for k in range(5000)]
    assert read_table(save(",".join(wide) + "\n" + ",".join("1" for _ in wide))).table.column_names == wide


def test_too_large_for_the_memory(save, monkeypatch):
    monkeypatch.setattr(meshnn.memory, "available_memory", lambda: 2**25)
    bomb = gzip.compress(b"a,b\n" + b"1,2\n" * 2**23, mtime=0)
    assert len(bomb) < 2**20
    with pytest.raises(MemoryLimitError, match=r"reading .*data.csv.gz would need .* take a part of the file"):
        read_table(save(bomb, "data.csv.gz"))
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": np.random.default_rng(0).random(2**22)}), buffer)
    with pytest.raises(MemoryLimitError, match=r"reading .*data.pq would need"):
        read_table(save(buffer.getvalue(), "data.pq"))
    monkeypatch.setattr(meshnn.memory, "available_memory", lambda: 100)
    with pytest.raises(MemoryLimitError, match="4 rows of features would need 160 B"):
        Encoder.learn(pa.table(HOUSES), "price").encode(pa.table(HOUSES))


# Reading Parquet


def parquet(file, **columns):
    pq.write_table(pa.table(columns), file)
    return file


def test_parquet(tmp_path):
    (tmp_path / "year=2020").mkdir()  # no column comes from the path
    for name in ("data.parquet", "data.pq", "DATA.Parquet", "year=2020/data.parquet"):
        loaded = read_table(parquet(tmp_path / name, a=[1, 2], b=["x", None]))
        assert loaded.table.to_pydict() == {"a": [1, 2], "b": ["x", None]}
        assert loaded.notes == []
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": ["x", "y", None, "z"]})
    frame.iloc[[3, 0, 2]].to_parquet(tmp_path / "data.parquet")
    loaded = read_table(tmp_path / "data.parquet")
    assert loaded.table.to_pydict() == {"a": [4, 1, 3], "b": ["z", "x", None]}
    assert "column __index_level_0__ is the index of pandas: left out" in loaded.notes[0]


def test_odd_parquet_files(tmp_path, save):
    file = tmp_path / "data.parquet"
    refused(lambda: read_table(save(b"", "data.parquet")), "data.parquet is empty")
    refused(lambda: read_table(parquet(file, a=pa.array([], pa.int64()))), "data.parquet has no rows")
    refused(lambda: read_table(parquet(file)), "data.parquet has no columns")
    for names, words in ((["a", "a"], "duplicate field names"), (["a", ""], "column 2 of 2 has no name")):
        pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=names), file)
        refused(lambda: read_table(file), words)
    offsets = pa.py_buffer(np.array([0, 2], np.int32))
    latin = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xe9\xe8")])
    refused(lambda: read_table(parquet(file, a=latin)), "data.parquet cannot be read", "UTF8")
    whole = parquet(file, a=list(range(1000))).read_bytes()
    for damaged in (
        *(whole[:-20], whole[:-60] + bytes([0xFF] * 50) + whole[-10:], whole[:20] + bytes(50) + whole[70:]),
        *(b"a,b\n1,2\n", b"a,b\n1,2\n" * 100, b"PAR1" + b"x" * 30 + b"PAR1"),
    ):
        file.write_bytes(damaged)
        refused(lambda: read_table(file), "data.parquet cannot be read")


def test_the_file_is_named_in_later_refusals(save):
    file = save("a,b,c,d\n1,2,x,inf\n,3,y,5\n4,5,x,1\n")
    table = read_table(file).table
    assert refused(lambda: Encoder.learn(table, "b", ["d"])).startswith(f"{file}: 1 missing value in a")
    assert refused(lambda: target_column(table, "z")).startswith(f"{file}: there is no column z")
    assert refused(lambda: Encoder.learn(table, "b")).startswith(f"{file}: column d holds inf in row 1")


# Learning an encoder

HOUSES = {
    "rooms": [3, 5, 4, 2],
    "city": ["Ulm", "Bonn", "Köln", "Bonn"],
    "garden": [True, False, False, True],
    "price": [1.0, 2.0, 3.0, 4.5],
}


def test_encoder_by_hand():
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    assert encoder.feature_names == ["rooms", "city=Bonn", "city=Köln", "city=Ulm", "garden"]
    assert encoder.columns == (
        Column("rooms", "numeric"),
        Column("city", "categorical", ("Bonn", "Köln", "Ulm")),
        Column("garden", "boolean"),
    )
    assert encoder.left_out == encoder.notes == {}
    assert encoder.text_columns == ["city"]
    encoded = encoder.encode(pa.table(HOUSES))
    want = [[3, 0, 0, 1, 1], [5, 1, 0, 0, 0], [4, 0, 1, 0, 0], [2, 1, 0, 0, 1]]
    np.testing.assert_array_equal(encoded.X, want)
    assert encoded.X.dtype == np.float64
    assert encoded.notes == []


def test_columns_are_found_by_name():
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    new = pa.table({"extra": ["?"], "garden": [False], "city": ["Köln"], "rooms": [7.5]})
    np.testing.assert_array_equal(encoder.encode(new).X, [[7.5, 0, 1, 0, 0]])
    assert encoder.encode(new.slice(0, 0)).X.shape == (0, 5)
    refused(
        lambda: encoder.encode(new.select(["garden"])), "there is no column rooms, city, which the model was trained"
    )
    renamed = new.rename_columns(["extra", "garden", "City", "rooms"])
    refused(lambda: encoder.encode(renamed), "did you mean City?", "the columns are extra, garden, City, rooms")


def test_without_target_and_with_drop():
    table = pa.table(HOUSES)
    encoder = Encoder.learn(table, None, drop=["city"])
    assert encoder.feature_names == ["rooms", "garden", "price"]
    assert encoder.left_out == {"city": "dropped on request"}
    assert encoder.notes == {}
    refused(lambda: Encoder.learn(table, "Prize"), "there is no column Prize (did you mean price?)", "rooms, city")
    refused(lambda: Encoder.learn(table, "price", ["x"]), "no column x; the columns are rooms, city, garden, price")
    refused(lambda: Encoder.learn(table, "price", ["price"]), "the target price is also to be dropped")
    for arguments, words in [
        ({"drop": "city"}, "drop must be a list, got str"),
        ({"impute": "yes"}, "impute must be True or False"),
        ({"max_categories": 0}, "max_categories must be a whole number"),
    ]:
        with pytest.raises(MeshError, match=words):
            Encoder.learn(table, "price", **arguments)


def test_columns_left_out():
    why = {
        "one": ([7, 7, 7], "is constant (7)"),
        "same": (["x", "x", "x"], "is constant (x)"),
        "yes": ([True, True, True], "is constant (true)"),
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
    assert encoder.notes == {name: f"column {name} {reason}: left out" for name, (_, reason) in why.items()}
    np.testing.assert_array_equal(encoder.encode(pa.table({"x": [5]})).X, [[5]])
    refused(lambda: Encoder.learn(table, "x"), "no column is left to learn from", "one is constant (7)", "void has no")
    refused(lambda: Encoder.learn(table.select(["x"]), "x"), "no column is left to learn from (there is none)")


def test_missing_values_are_counted():
    age, city, member = (
        [1.0, None, float("nan"), None, 5.0],
        ["a", None, "b", "a", "a"],
        [True, None, None, True, False],
    )
    table = pa.table({"age": age, "city": city, "ok": [1, 2, 3, 4, 5], "member": member})
    assert refused(lambda: Encoder.learn(table, "ok")) == "3 missing values in age, 1 in city, 2 in member"
    refused(lambda: Encoder.learn(table.select(["city", "ok"]), None), "1 missing value in city")
    assert Encoder.learn(table, None, drop=["age", "city", "member"]).feature_names == ["ok"]
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    new = pa.table({"rooms": [1, None], "city": pa.nulls(2), "garden": [True, None]})
    assert refused(lambda: encoder.encode(new)) == "1 missing values in rooms, 2 in city, 1 in garden"
    hollow = pa.table(HOUSES | {"rooms": pa.array([None] * 4, pa.string())})
    refused(lambda: encoder.encode(hollow), "4 missing values in rooms")


def test_imputing_by_hand():
    table = pa.table(
        {
            "odd": [9.0, None, 1.0, 2.0, None],  # median of 1, 2, 9
            "even": [1, 10, None, 3, 2],  # median of 1, 2, 3, 10
            "city": ["b", "c", None, "c", "a"],
            "tie": ["z", "y", "z", "y", None],  # the first in order
            "flag": [True, None, True, False, True],
            "draw": [True, None, True, False, False],  # as many of both: false
            "rare": [False, None, True, False, False],
            "full": [1, 2, 3, 4, 9],  # filled too, if it must be one day
            "huge": [1.5e308, None, 1.5e308, 1.7e308, 1.7e308],  # their sum would be infinite
        }
    )
    encoder = Encoder.learn(table, None, impute=True)
    fills = [2.0, 2.5, "c", "y", True, False, False, 3.0, 1.6e308]
    assert [column.fill for column in encoder.columns] == fills
    assert [type(column.fill) for column in encoder.columns] == list(map(type, fills))
    X = encoder.encode(table).X
    np.testing.assert_array_equal(X[1], [2, 10, 0, 0, 1, 1, 0, 1, 0, 0, 2, 1.6e308])
    np.testing.assert_array_equal(X[2], [1, 2.5, 0, 0, 1, 0, 1, 1, 1, 1, 3, 1.5e308])
    np.testing.assert_array_equal(X[4], [2, 2, 1, 0, 0, 1, 0, 1, 0, 0, 9, 1.7e308])
    empty = pa.table({name: pa.nulls(1) for name in table.column_names})
    np.testing.assert_array_equal(encoder.encode(empty).X, [[2, 2.5, 0, 0, 1, 1, 0, 1, 0, 0, 3, 1.6e308]])


def test_numbers_with_a_slip(save):
    encoder = Encoder.learn(read_table(save("n,age\n1,31\n2,45\n3,?\n4,1e3\n")).table, "n")
    assert encoder.columns[0].categories == ("1e3", "31", "45", "?")
    assert encoder.left_out == {}
    assert "column age is taken as text: 3 of its 4 values are numbers, but row 3 holds '?'" in encoder.notes["age"]
    many = read_table(save("n,age\n" + "".join(f"1,{k}\n" for k in range(150)) + "2,??\n")).table
    refused(lambda: Encoder.learn(many, "n"), "150 of its 151 values are numbers, but row 151 holds '??'")
    for values in (["1", "2", "3"], ["1", "b", "c"]):  # all of them, or few: meant so
        assert Encoder.learn(pa.table({"code": values, "x": [1, 2, 3]}), "x").notes == {}


UNUSABLE = {
    "times of day or durations (time64[us])": [datetime.time(12)],
    "times of day or durations (duration[us])": [datetime.timedelta(1)],
    "list<": [[1]],
    "struct<": [{"a": 1}],
    "binary": [b"x"],
    "map<": pa.array([[("k", 1)]], pa.map_("str", "int8")).to_pylist(),
}


@pytest.mark.parametrize("held", UNUSABLE)
def test_columns_that_cannot_be_used(held):
    values = pa.array(UNUSABLE[held] * 2, pa.map_("str", "int8") if held == "map<" else None)
    table = pa.table({"odd": values, "x": [1, 2]})
    encoder = Encoder.learn(pa.table({"odd": [1, 2]}), None)
    for call in (Encoder.learn, target_column, lambda table, _: encoder.encode(table)):
        with pytest.raises(DataError, match=re.escape(f"column odd holds {held}")) as caught:
            call(table, "x" if call == Encoder.learn else "odd")
        assert (caught.value.code, caught.value.field) == ("type", "odd")
    assert Encoder.learn(table, None, drop=["odd"]).feature_names == ["x"]


def test_infinite_numbers_of_a_text_file(save):
    table = read_table(save("x,y\n1,2\n2,1e999\n")).table
    refused(lambda: Encoder.learn(table, "x"), "data.csv: column y holds inf in row 2, expected finite numbers")
    refused(lambda: target_column(table, "y"), "column y holds inf in row 2")
    encoder = Encoder.learn(pa.table({"x": [1, 2]}), None, impute=True)
    refused(lambda: encoder.encode(pa.table({"x": [1.0, 2.0, -np.inf]})), "column x holds -inf in row 3")


NUMBERS = {
    **{str(t): pa.array([1, 3], t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): pa.array([1, 3], t) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{str(t): pa.array([1.0, 3.0], t) for t in (pa.float32(), pa.float64())},
    "half": pa.array(np.array([1, 3], np.float16)),
    "decimal": pa.array([Decimal("1.00"), Decimal("3.00")], pa.decimal128(10, 2)),
    "decimal256": pa.array([Decimal("1.00"), Decimal("3.00")], pa.decimal256(50, 2)),
    "in chunks": pa.chunked_array([pa.array([1]), pa.array([3])]),
}


@pytest.mark.parametrize("held", NUMBERS)
def test_all_types_of_numbers(tmp_path, held):
    table = read_table(parquet(tmp_path / "data.parquet", x=NUMBERS[held])).table
    encoder = Encoder.learn(table, None)
    assert encoder.columns == (Column("x", "numeric"),)
    np.testing.assert_array_equal(encoder.encode(table).X, [[1.0], [3.0]])
    for task, kind in (("auto", np.int64), ("regress", np.float64)):
        target = target_column(table, "x", task)
        assert target.values.tolist() == [1, 3]
        assert target.values.dtype == kind


@pytest.mark.parametrize("held", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary("int8", "str")])
def test_all_types_of_text(tmp_path, held):
    table = read_table(parquet(tmp_path / "data.parquet", x=pa.array(["b", "a", "b"], held))).table
    encoder = Encoder.learn(table, None)
    assert encoder.columns == (Column("x", "categorical", ("a", "b")),)
    np.testing.assert_array_equal(encoder.encode(table).X, [[0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(encoder.encode(table.take([1])).X, [[1, 0]])
    assert target_column(table, "x").values.tolist() == ["b", "a", "b"]
    memory = pa.table({"x": pa.array(["b", None], held)})
    np.testing.assert_array_equal(replace(encoder, impute=True).encode(memory).X, [[0, 1], [0, 0]])


def test_dictionaries_of_other_things():
    packed = {"n": [3, 10, 3], "f": [0.5, 2.0, None], "b": [True, False, True]}
    table = pa.table({name: pa.array(values).dictionary_encode() for name, values in packed.items()})
    encoder = Encoder.learn(table, None, impute=True)
    assert encoder.columns == (
        Column("n", "categorical", ("10", "3"), "3"),
        Column("f", "categorical", ("0.5", "2"), "0.5"),
        Column("b", "categorical", ("false", "true"), "true"),
    )
    want = [[0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1]]
    np.testing.assert_array_equal(encoder.encode(table).X, want)


def test_names_of_features_are_unique():
    table = pa.table({"a=b": ["c", "d"], "a": ["b=c", "x"], "a=b=c": [1, 2], "a=b=c (2)": [1, 2]})
    names = Encoder.learn(table, None).feature_names
    assert names == ["a=b=c", "a=b=d", "a=b=c (2)", "a=x", "a=b=c (3)", "a=b=c (2) (2)"]


# Encoding another table


def test_values_never_seen():
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    new = pa.table({"rooms": [1, 1, 1], "city": ["Rome", "Ulm", "Oslo"], "garden": [True] * 3})
    encoded = encoder.encode(new)
    np.testing.assert_array_equal(encoded.X[:, 1:4], [[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    note = "rows have values of city never seen in training, e.g. 'Rome': all its features are 0 there"
    assert encoded.notes == [f"2 {note}"]
    assert encoder.encode(new.slice(0, 1)).notes == [f"1 {note.replace('rows have values', 'row has a value')}"]


@pytest.mark.parametrize(
    ("x", "b", "words"),
    [
        (["1", "many", "?"], [True] * 3, "column x holds the text 'many' in row 2, expected a number as in training"),
        (["12", "13"], [True] * 2, "column x holds the text '12' in row 1"),
        ([None, "12"], [True] * 2, "column x holds the text '12' in row 2"),
        ([1, 2], ["true", "maybe"], "column b holds the text 'maybe' in row 2, expected true or false"),
        ([1, 2, 3], [0, 1, 2], "column b holds 2 in row 3"),
        ([1, 2], [0.5, 1], "column b holds 0.5 in row 1"),
    ],
)
def test_numbers_that_became_something_else(x, b, words):
    encoder = Encoder.learn(pa.table({"x": [1, 2], "b": [True, False]}), None)
    refused(lambda: encoder.encode(pa.table({"x": x, "b": b})), words)
    stand_in = pa.table({"x": [True, False], "b": [0.0, 1.0]})
    np.testing.assert_array_equal(encoder.encode(stand_in).X, [[1, 0], [0, 1]])


def test_texts_that_became_numbers(save):
    training = read_table(save("code,flag,size\n12,true,1.0\n007,maybe,2.5\nA,no,big\n")).table
    encoder = Encoder.learn(training, None)
    assert encoder.columns[0].categories == ("007", "12", "A")
    file = save("code,flag,size\n12,true,1.0\n007,true,2.5\n", "new.csv")
    by_type = encoder.encode(pa.table({"code": [12, 7], "flag": [True, True], "size": [1.0, 2.5]}))
    # code, flag (maybe, no, true), size (1.0, 2.5, big): what a number does not tell is how many zeros it had
    np.testing.assert_array_equal(by_type.X, [[0, 1, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 0, 1, 0]])
    assert "1 row has a value of code never seen in training, e.g. '7'" in by_type.notes[0]
    as_written = encoder.encode(read_table(file, text=encoder.text_columns).table)
    np.testing.assert_array_equal(as_written.X, [[0, 1, 0, 0, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 1, 0, 1, 0]])
    assert as_written.notes == []
    for learned, given in ((["1", "2", "z"], [2.0, 1.0]), (["FALSE", "TRUE", "z"], [True, False])):
        spelled = Encoder.learn(pa.table({"x": learned}), None)
        np.testing.assert_array_equal(spelled.encode(pa.table({"x": given})).X, [[0, 1, 0], [1, 0, 0]])


def test_describe():
    table = pa.table(HOUSES | {"one": [1, 1, 1, 1], "id": [1, 2, 3, 4], "street": ["a", "b", "c", "d"]})
    assert Encoder.learn(table, "price", drop=["id"]).describe() == [
        "rooms: number",
        "city: one-hot of 3 values (Bonn, Köln, Ulm)",
        "garden: true or false",
        "street: one-hot of 4 values (a, b, c, ...)",
        "one: left out (is constant (1))",
        "id: left out (dropped on request)",
    ]
    assert Encoder.learn(pa.table(HOUSES), "price", impute=True).describe() == [
        "rooms: number, 3.5 where missing",
        "city: one-hot of 3 values (Bonn, Köln, Ulm), Bonn where missing",
        "garden: true or false, false where missing",
    ]


def test_long_names_and_values_are_shortened():
    name, value = "n" * 61, "v" * 61
    encoder = Encoder.learn(pa.table({name: [1, 2]}), None)
    assert encoder.describe() == ["n" * 57 + "...: number"]
    message = refused(lambda: encoder.encode(pa.table({name: [value]})), "'" + "v" * 57 + "...' in row 1")
    assert "n" * 58 not in message
    assert Encoder.learn(pa.table({name[1:]: [1, 2]}), None).describe() == ["n" * 60 + ": number"]
    many = pa.table({f"c{k}": [1, 2] for k in range(21)})
    refused(lambda: target_column(many, "zz"), "c18, c19, ...")
    assert refused(lambda: target_column(many.drop_columns(["c20"]), "zz")).endswith("c18, c19")


# Storing an encoder


@pytest.mark.parametrize("impute", [False, True])
def test_round_trip_through_json(impute):
    odd = {"x": [0.1 + 0.2, 1e-310, 1e300, -0.0], "näme\n": ["ü", '"', "\\", "\u2028"], "one": [1] * 4}
    table = pa.table(HOUSES | odd)
    for part in (table, *(table.select([name]) for name in table.column_names[:-1])):
        encoder = Encoder.learn(part, None, impute=impute)
        text = json.dumps(encoder.to_tree(), allow_nan=False)
        again = Encoder.from_tree(json.loads(text))
        assert again == encoder
        assert json.dumps(again.to_tree()) == text
        np.testing.assert_array_equal(again.encode(table).X, encoder.encode(table).X)
    if impute:
        again = Encoder.from_tree(Encoder.learn(table, None, impute=True).to_tree())
        assert again.columns[4].fill.hex() == ((1e-310 + 0.30000000000000004) / 2).hex()


DAMAGES = [
    *[(["impute"], value) for value in (1, None, "true")],
    *[(["columns"], value) for value in ([], {}, None, "x", [None], [[]], [{}], ["name"])],
    *[(["left_out"], value) for value in ([], None, {"a": 1}, {"a": None}, {"rooms": "x"}, {"\ud800": ""})],
    (["left_out"], {"a": "\udfff"}),
    (["more"], 1),
    # columns: 0 is numeric, 1 categorical, 2 boolean
    *[(["columns", 0, "name"], value) for value in (None, 3, "", "city", "one", "\ud800", ["x"])],
    *[(["columns", 0, "kind"], value) for value in (None, "text", 1, ["numeric"], "categorical")],
    *[(["columns", 0, "categories"], value) for value in (["a", "b"], ["a"], None, "ab", {})],
    *[(["columns", 0, "fill"], value) for value in (None, 3, True, "3", float("nan"), float("inf"), 10**400, [1.0])],
    *[(["columns", 1, "kind"], value) for value in ("numeric", "boolean")],
    *[(["columns", 1, "categories"], value) for value in (
        [], ["Bonn"], ["Bonn", "Bonn", "Ulm"], ["Ulm", "Bonn"], ["Bonn", 3], [1, 2], ["Bonn", "\ud800"])],
    *[(["columns", 1, "fill"], value) for value in (None, "Rome", 3.0, ["Bonn"])],
    (["columns", 2, "categories"], ["false", "true"]),
    *[(["columns", 2, "fill"], value) for value in (None, 0, 1.0, "true")],
    (["columns", 2, "more"], 1),
    (["columns", 2], {"name": "garden", "kind": "boolean", "categories": []}),
    (["columns", 2], {"name": "rooms", "kind": "boolean", "categories": [], "fill": True}),
]  # fmt: skip


def test_damaged_encoders_are_refused():
    table = pa.table(HOUSES | {"one": [1] * 4})
    whole, bare = (json.dumps(Encoder.learn(table, "price", impute=impute).to_tree()) for impute in (True, False))
    cases = [(whole, *damage) for damage in DAMAGES]
    cases += [(bare, ["columns", k, "fill"], fill) for k, fill in enumerate([3.0, "Bonn", True])]
    for text, (*outer, key), value in cases:
        stored = place = json.loads(text)
        for step in outer:
            place = place[step]
        place[key] = value
        words = ["the encoder stored in the model is damaged"]
        refused(lambda stored=stored: Encoder.from_tree(stored), *words)
    for odd in (None, [], "x", 3, {}, {"columns": []}):
        refused(lambda odd=odd: Encoder.from_tree(odd), "the encoder stored in the model is damaged")
    for text in (whole, bare):
        Encoder.from_tree(json.loads(text))  # the changes are what is refused


# Targets


def column(values):
    return pa.table({"y": values})


@pytest.mark.parametrize(
    ("values", "task", "kind", "note"),
    [
        (["b", "a", "b"], "classify", "U", "its 2 different values are taken as classes"),
        ([True, False], "classify", "b", "its 2 different values are taken as classes"),
        (pa.array([5, 7, 9]).dictionary_encode(), "classify", "i", "its 3 different values are taken as classes"),
        ([1.0, 2.0, 1.0, 2.0], "classify", "i", "2 different integers"),
        ([0, 1], "classify", "i", "2 different"),  # two different ones are classes, however few rows
        ([0, 1, 1], "classify", "i", "2 different"),
        ([0, 1, 2], "regress", "f", "3 different integers"),  # one row each
        ([0, 1, 2, 0, 1, 2], "classify", "i", "3 different"),  # two rows each
        ([0, 1, 2, 0, 1], "regress", "f", "3 different"),
        (list(range(20)) * 2, "classify", "i", "20 different"),
        (list(range(21)) * 10, "regress", "f", "21 different"),
        ([0.0, 1.0, 2.5] * 10, "regress", "f", "numbers with fractions, taken as amounts"),
    ],
)
def test_what_targets_are_taken_for(values, task, kind, note):
    target = target_column(column(values), "y")
    assert (target.task, target.values.dtype.kind) == (task, kind)
    assert target.values.tolist() == (values if isinstance(values, list) else values.to_pylist())
    assert [text[: len(f"target y: {note}")] for text in target.notes] == [f"target y: {note}"]


def test_a_task_that_is_named():
    for values, task, want in [
        ([0, 1, 2], "classify", [0, 1, 2]),
        ([2**53, 2**53 + 1] * 2, "classify", [2**53, 2**53 + 1] * 2),  # as floats they would be one class
        ([0, 1], "regress", [0.0, 1.0]),
        ([True, False], "regress", [1.0, 0.0]),
    ]:
        target = target_column(column(values), "y", task=task)
        assert (target.task, target.values.tolist(), target.notes) == (task, want, [])
        assert target.values.dtype == (np.float64 if task == "regress" else np.int64)
    refused(lambda: target_column(column([1, 2]), "y", task="cluster"), "unknown task 'cluster'", "classify, regress")


LOOKS = "it looks like an identifier or a number"
MANY = [f"n{k}" for k in range(10_000)]


@pytest.mark.parametrize(
    ("values", "task", "words"),
    [
        (["a"], "auto", ["target y has 1 row, expected at least 2 rows"]),
        (["a", "a"], "auto", ["target y has the one class 'a', expected at least 2; choose another target"]),
        ([3, 3, 3], "auto", ["target y has the one class 3"]),
        ([True, True], "auto", ["the one class True"]),
        (["a", "b"], "regress", ["target y is text ('a' in row 1)"]),
        ([2.5, 2.5], "auto", ["target y is 2.5 in every row"]),
        ([2, 2], "regress", ["target y is 2 in every row"]),
        ([1.0, 2.5], "classify", ["target y holds 2.5 in row 2"]),
        ([2.5, 1.0], "classify", ["target y holds 2.5 in row 1"]),
        ([1.0, 1e19], "classify", ["holds 1e+19 in row 2"]),
        ([-1e19, 1.0], "classify", ["holds -1e+19 in row 1"]),
        (MANY, "auto", ["10,000 classes in 10,000 rows", LOOKS, "; choose another target"]),
        (MANY * 5, "auto", ["10,000 classes in 50,000 rows", LOOKS]),
        (MANY[:1001] * 2, "auto", ["1,001 classes in 2,002 rows", LOOKS]),
        (MANY[:11] + MANY[:10], "auto", ["11 classes in 21 rows", LOOKS]),
        (list(range(2000)), "classify", [LOOKS]),
    ],
)
def test_targets_that_are_refused(values, task, words):
    refused(lambda: target_column(column(values), "y", task), *words)


def test_as_many_classes_as_can_be():
    refused(lambda: target_column(column([1, 2]), "z"), "there is no column z", "the columns are y")
    assert len(set(target_column(column(MANY[:1000] * 2), "y").values)) == 1000
    assert len(set(target_column(column(MANY[:10] * 2 + MANY[:1]), "y").values)) == 10
    assert target_column(column(MANY[:20]), "y").task == "classify"  # too few rows to tell


# Writing predictions

PREDICTED = {
    "no": np.array([0.1, 1 / 3]),
    "prediction": np.array(["yes, sir", "Köln"]),
    "yes": np.array([0.1, 0.25], np.float32),
    "k": np.array([1, -2]),
    "sure": np.array([True, False]),
}
WRITTEN = 'prediction,no,yes,k,sure\n"yes, sir",0.1,0.1,1,True\nKöln,0.3333333333333333,0.25,-2,False\n'
TABBED = WRITTEN.replace('"yes, sir"', "yes; sir").replace(",", "\t").replace(";", ",")
TWO_ROWS = pa.table({"x": [1, 2]})


def test_predictions_as_text(tmp_path):
    assert write_predictions(None, TWO_ROWS, PREDICTED) == WRITTEN
    for name, want in {"a.csv": WRITTEN, "b.TSV": TABBED, "c.csv.gz": WRITTEN, "d.tsv.gz": TABBED}.items():
        assert write_predictions(str(tmp_path / name), TWO_ROWS, PREDICTED) is None
        content = (tmp_path / name).read_bytes()
        assert (gzip.decompress(content) if name.endswith(".gz") else content).decode() == want
        write_predictions(tmp_path / name, TWO_ROWS, PREDICTED)
        assert (tmp_path / name).read_bytes() == content
    assert (tmp_path / "c.csv.gz").read_bytes()[4:8] == bytes(4)  # the time of the header
    (tmp_path / "link.csv").symlink_to("a.csv")
    (tmp_path / "a.csv").write_text("old")
    write_predictions(tmp_path / "link.csv", TWO_ROWS, PREDICTED)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "a.csv").read_text() == WRITTEN
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "b.TSV", "c.csv.gz", "d.tsv.gz", "link.csv"]


@pytest.mark.parametrize("name", ["out.parquet", "out.pq"])
def test_predictions_as_parquet(tmp_path, name):
    write_predictions(tmp_path / name, TWO_ROWS, PREDICTED)
    table = pq.read_table(tmp_path / name)
    assert table.column_names == ["prediction", "no", "yes", "k", "sure"]
    assert table["yes"].type == pa.float32()
    assert table.to_pydict() == {key: PREDICTED[key].tolist() for key in table.column_names}


@pytest.mark.parametrize("name", ["out.csv", "out.tsv.gz", "out.parquet"])
def test_what_is_written_is_read_again(tmp_path, name):
    numbers = np.random.default_rng(0).standard_normal(70_000)
    write_predictions(tmp_path / name, pa.table({"x": numbers}), {"prediction": numbers, "n": np.arange(70_000)})
    table = read_table(tmp_path / name).table
    np.testing.assert_array_equal(table["prediction"].to_numpy(), numbers)
    np.testing.assert_array_equal(table["n"].to_numpy(), np.arange(70_000))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, ["none", "expected one value for each of 2 rows"]),
        ({"prediction": np.zeros(3)}, ["prediction (3,)"]),
        ({"k": np.zeros(2), "prediction": np.zeros((2, 1))}, ["prediction (2, 1), k (2,)"]),
    ],
)
def test_predictions_of_the_wrong_shape(tmp_path, columns, words):
    refused(lambda: write_predictions(tmp_path / "out.csv", TWO_ROWS, columns), *words)
    assert os.listdir(tmp_path) == []


def test_predictions_that_cannot_be_written(tmp_path):
    def write(name):
        return lambda: write_predictions(tmp_path / name, TWO_ROWS, PREDICTED)

    (tmp_path / "folder.csv").mkdir()
    refused(write("folder.csv"), "cannot write", "folder.csv: it is a directory; name a file")
    refused(write("no/such/out.csv"), "cannot write", "its directory does not exist; create it first")
    refused(write("out.xlsx"), "out.xlsx has an unknown ending", ".csv")
    os.mkfifo(tmp_path / "pipe.csv")
    refused(write("pipe.csv"), "pipe.csv: it is a device or a pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe.csv").stat().st_mode)
    refused(lambda: write_predictions("/dev/null", TWO_ROWS, PREDICTED), "/dev/null")
    assert sorted(os.listdir(tmp_path)) == ["folder.csv", "pipe.csv"]


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, name):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / name).write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    words = "cannot write", "no space left on the disk; free some"
    refused(lambda: write_predictions(tmp_path / name, TWO_ROWS, PREDICTED), *words)
    assert (tmp_path / name).read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_modules_load_without_pyarrow():
    """A stored encoder is read and described without it: `meshnn info` has no table to read."""
    program = (
        "import sys, meshnn.tables.reader; from meshnn.tables.encoder import Encoder; column = dict(name='x', "
        "kind='numeric', categories=[], fill=None); stored = dict(impute=False, columns=[column], left_out={}); "
        "print(Encoder.from_tree(stored).describe(), {'pyarrow', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "['x: number'] set()\n", done.stderr

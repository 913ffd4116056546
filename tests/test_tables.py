"""Tables: real files in, matrices and targets out, predictions back to files."""

import datetime
import errno
import gzip
import io
import json
import os
import resource
import socket
import stat
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import meshnn.data.tables
import meshnn.memory
from meshnn.data.encoding import Column, Encoder, target_column
from meshnn.data.tables import read_table, write_predictions
from meshnn.errors import DataError, FileError, MemoryLimitError, MeshError


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


def test_csv_and_tsv(save):
    table = read_table(save("age,city,member\n31,Bonn,true\n45.5,Ulm,false\n")).table
    assert table.to_pydict() == {"age": [31, 45.5], "city": ["Bonn", "Ulm"], "member": [True, False]}
    loaded = read_table(save("a\tb\n1,5\tx y\n", "data.tsv"), text=["a"])
    assert loaded.table.to_pydict() == {"a": ["1,5"], "b": ["x y"]}
    assert loaded.notes == []


@pytest.mark.parametrize("name", ["data.csv", "DATA.CSV", "my data.csv", "Köln.csv", "a.b.Csv"])
def test_paths_and_endings(save, name):
    assert read_table(str(save("a,b\n1,2\n", name))).table.to_pydict() == {"a": [1], "b": [2]}


def test_gzip(save):
    for ending, separator in ((".csv.gz", b","), (".tsv.gz", b"\t"), (".CSV.GZ", b",")):
        packed = gzip.compress(b"a" + separator + b"b\n1" + separator + b"2\n")
        assert read_table(save(packed, "data" + ending)).table.to_pydict() == {"a": [1], "b": [2]}
    two_members = gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n")
    assert read_table(save(two_members, "data.csv.gz")).table.to_pydict() == {"a": [1, 3], "b": [2, 4]}


@pytest.mark.parametrize("name", ["data.txt", "data.xlsx", "data.gz", "data", "data.parquet.gz"])
def test_unknown_endings(save, name):
    refused(lambda: read_table(save("a\n1\n", name)), name, "unknown ending", ".csv.gz", ".tsv", ".parquet", ".pq")


def test_what_is_no_file(tmp_path):
    refused(lambda: read_table(tmp_path / "no such.csv"), "there is no file", "no such.csv", "check the path")
    (tmp_path / "folder.csv").mkdir()
    refused(lambda: read_table(tmp_path / "folder.csv"), "folder.csv is a directory", "name a file in it")
    os.mkfifo(tmp_path / "pipe.csv")
    refused(lambda: read_table(tmp_path / "pipe.csv"), "pipe.csv is a pipe or a device", "save the data to a file")
    with socket.socket(socket.AF_UNIX) as ear:
        ear.bind(str(tmp_path / "s.csv"))
        refused(lambda: read_table(tmp_path / "s.csv"), "pipe or a device")
    refused(lambda: read_table("/dev/zero"), "/dev/zero is a pipe or a device")
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere.csv")
    refused(lambda: read_table(tmp_path / "link.csv"), "there is no file")
    refused(lambda: read_table(str(tmp_path / "zero\0byte.csv")), r"zero\x00byte.csv", "null")
    refused(lambda: read_table(tmp_path / ("x" * 300 + ".csv")), "File name too long")
    refused(lambda: read_table(tmp_path / "two\nlines.csv"), r"two\nlines.csv")


def test_a_file_that_may_not_be_read(save, monkeypatch):
    def closed(self, *arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    file = save("a,b\n1,2\n")
    monkeypatch.setattr(type(file), "open", closed)  # whoever runs the tests may be root, who may read all
    refused(lambda: read_table(file), "cannot read", "data.csv: Permission denied")


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n\r\n", b"  \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_empty_files(save, content):
    refused(lambda: read_table(save(content)), "data.csv is empty", "expected a header line and rows")
    refused(lambda: read_table(save(gzip.compress(content), "data.csv.gz")), "data.csv.gz is empty")


def test_empty_compressed_and_parquet_files(save):
    refused(lambda: read_table(save(b"", "data.tsv.gz")), "data.tsv.gz is empty")
    refused(lambda: read_table(save(b"", "data.parquet")), "data.parquet is empty", "expected a Parquet file")


@pytest.mark.parametrize("content", ["a,b", "a,b\n", "a,b\r\n\r\n", "a\n", ",x\n"])
def test_header_only(save, content):
    refused(lambda: read_table(save(content)), "data.csv has no rows below its header")


def test_byte_order_mark(save):
    assert read_table(save(b"\xef\xbb\xbfa,b\n1,2\n")).table.column_names == ["a", "b"]
    assert read_table(save(b'\xef\xbb\xbf"a",b\n1,2\n')).table.column_names == ["a", "b"]


def test_other_encodings(save):
    refused(
        lambda: read_table(save("a,b\n1,x\n2,Köln\n".encode("latin-1"))),
        "data.csv is not UTF-8 text (byte 0xf6 in line 3); save it as UTF-8",
    )
    for encoding in ("utf-16", "utf-16-le", "utf-32"):
        refused(lambda name=encoding: read_table(save("a,b\n1,x\n".encode(name))), "save it as UTF-8")
    refused(lambda: read_table(save(b"a,b\n1,\xc3")), "byte 0xc3 in line 2")  # cut off within a character
    refused(lambda: read_table(save(b"\0a,b\n1,2\n")), "holds a zero byte (byte 1)")
    far = b"a,b\n" + b"1,x\n" * 300_000 + b"2,\xe9\n"  # behind the first piece that is checked
    refused(lambda: read_table(save(far)), "byte 0xe9 in line 300,002")
    cut = b"a\n" + b"x" * (2**20 - 3) + "ö".encode() + b"y\n"  # a character across two pieces
    assert read_table(save(cut)).table["a"][0].as_py().endswith("xöy")
    broken = b"a\n" + b"x" * (2**20 - 3) + b"\xc3y\n"
    refused(lambda: read_table(save(broken)), "byte 0xc3 in line 2")


def test_files_that_are_not_what_they_say(save):
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256))
    refused(lambda: read_table(save(png)), "data.csv is a PNG image, expected text")
    refused(lambda: read_table(save(b"PK\x03\x04rest", "data.tsv")), "data.tsv is a zip or Excel file", "as CSV")
    refused(lambda: read_table(save(gzip.compress(b"a,b\n1,2\n"))), "data.csv is compressed with gzip")
    refused(lambda: read_table(save(b"a,b\n1,\x002\n")), "data.csv holds a zero byte (byte 7)")
    for text in (b"a,b\n1,2\n", b"a,b\n1,2\n" * 100, b"PAR1" + b"x" * 30 + b"PAR1"):
        refused(lambda content=text: read_table(save(content, "data.parquet")), "data.parquet is not a Parquet file")
    refused(lambda: read_table(save(b"a,b\n1,2\n", "data.csv.gz")), "is not compressed with gzip; drop the .gz")
    packed = gzip.compress(b"a,b\n" + bytes(str(list(range(5000))), "ascii"))
    refused(lambda: read_table(save(packed[:-500], "data.csv.gz")), "data.csv.gz is cut off or damaged")
    damaged = packed[:200] + bytes(100) + packed[300:]
    refused(lambda: read_table(save(damaged, "data.csv.gz")), "data.csv.gz", "damaged")


def test_ragged_rows(save):
    message = refused(lambda: read_table(save("a,b\n1,2\n3\n4,5\n")), "data.csv: row 2 has 1 values, expected 2")
    assert "'3'" in message
    refused(lambda: read_table(save("a,b\n1,2\n\n\n3,4,5\n")), "row 2 has 3 values, expected 2", "hold commas")
    refused(lambda: read_table(save('a,b\n1,"x\ny\nz"\n3,4,5\n')), "row 2 has 3 values")  # rows, not lines
    refused(lambda: read_table(save("a,b\n1,2,\n3,4,\n")), "row 1 has 3 values")
    refused(lambda: read_table(save("a;b\n1;2\n3\n")), "row 2 has 1 values", "hold semicolons")
    refused(lambda: read_table(save("a,b\n" + "1,2\n" * 600_000 + "3\n")), "row 600,001 has 1 values")


def test_what_pyarrow_refuses_for_other_reasons(save, monkeypatch):
    def puzzled(*arguments):
        raise pa.ArrowInvalid("something\nodd")

    monkeypatch.setattr(pa.csv, "read_csv", puzzled)
    refused(lambda: read_table(save("a,b\n1,2\n")), "data.csv cannot be read (something odd)")


def test_quotes(save):
    table = read_table(save('name,"x, y"\n"Ann, ""the""\r\nfirst",1\n"5"" pipe",2\n6" pipe,3\n')).table
    assert table.to_pydict() == {"name": ['Ann, "the"\r\nfirst', '5" pipe', '6" pipe'], "x, y": [1, 2, 3]}
    table = read_table(save('"two\nlines",b\n1,2\n')).table
    assert table.to_pydict() == {"two\nlines": [1], "b": [2]}
    table = read_table(save("a,b\n" + '1,"x\n\ny,z"\n' * 200_000)).table  # blocks may end within the quotes
    assert table.num_rows == 200_000
    assert set(table["b"].to_pylist()) == {"x\n\ny,z"}


def test_a_quote_that_is_never_closed(save):
    """pyarrow alone takes the rest of the file for one value, without a word."""
    refused(lambda: read_table(save('a,b\n1,x\n2,"y\n3,z\n4,u\n')), "a quote opened in row 2 is never closed")
    refused(lambda: read_table(save('a,b\n5" pipe,x\n2,"y\n3,z\n')), "a quote opened in row 2 is never closed")
    refused(lambda: read_table(save('a,b\n1,x\n"2,y\n3,z\n')), "a quote opened in row 2 is never closed")
    assert read_table(save('a,b\n1,x\n2,"y\n"\n')).table["b"].to_pylist() == ["x", "y\n"]
    long = 'a,b\n1,"y\n' + "3,z\n" * 100_000
    refused(lambda: read_table(save(long)), "a quote opened in row 1 is never closed")
    refused(lambda: read_table(save('a,"b\n1,2\n')), "a quote opened in the header line is never closed")
    refused(lambda: read_table(save('a,"b\n' + "1,2\n" * 100_000)), "header line", "quote that is not closed")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends(save, end, last):
    text = end.join(["a,b", "1,x", "2,y"]) + (end if last else "")
    assert read_table(save(text)).table.to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


def test_missing_values(save):
    words = ["", "NA", "N/A", "nan", "null", "None", '""', "NaN", "NULL"]
    rows = "".join(f"{k},{word}, {word}\n" for k, word in enumerate(words, start=5) if word != '""')
    table = read_table(save("n,text,number\n" + rows + '9,"",\n0,x,1\n')).table
    assert table["text"].to_pylist() == [None] * 9 + ["x"]
    assert table["number"].to_pylist() == [None] * 9 + [1]
    assert read_table(save("n,empty\n5,\n6,\n")).table["empty"].to_pylist() == [None, None]


def test_blank_lines(save):
    assert read_table(save("\n\na,b\n\n1,2\n\n\n3,4\n\n")).table.to_pydict() == {"a": [1, 3], "b": [2, 4]}
    # of a single column they are missing values: left out, predictions would slip against the rows
    assert read_table(save("a\n1\n\n3\n")).table.to_pydict() == {"a": [1, None, 3]}


def test_names_of_columns(save):
    refused(lambda: read_table(save("a,b,a\n1,2,3\n")), "two columns are called a (columns 1 and 3)", "rename")
    refused(lambda: read_table(save("a, a\n1,2\n")), "two columns are called a")
    refused(lambda: read_table(save("a,,c\n1,2,3\n")), "data.csv: column 2 of 3 has no name", "name it in the header")
    refused(lambda: read_table(save("a,b, \n1,2,3\n")), "column 3 of 3 has no name")
    loaded = read_table(save(' größe , "年齢",a b\n1,2,3\n'))
    assert loaded.table.column_names[0] == "größe"
    assert loaded.table.column_names[2] == "a b"
    assert read_table(save("größe,年齢\n1,2\n")).table.to_pydict() == {"größe": [1], "年齢": [2]}


def test_the_index_of_pandas(save, tmp_path):
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5], "y": ["a", "b", "c"]})
    frame.to_csv(tmp_path / "frame.csv")
    loaded = read_table(tmp_path / "frame.csv")
    assert loaded.table.to_pydict() == {"x": [1.5, 2.5, 3.5], "y": ["a", "b", "c"]}
    assert len(loaded.notes) == 1
    assert "the first column has no name and counts the rows: left out" in loaded.notes[0]
    assert read_table(save('"","x"\n"1",7\n"2",8\n')).table.to_pydict() == {"x": [7, 8]}  # as R writes it
    loaded = read_table(save("Unnamed: 0,x\n0,7\n1,8\n"))
    assert loaded.table.to_pydict() == {"x": [7, 8]}
    assert "is called Unnamed: 0" in loaded.notes[0]
    assert read_table(save("Unnamed: 0,x\n5,7\n1,8\n")).table.to_pydict() == {"Unnamed: 0": [5, 1], "x": [7, 8]}
    for first, second in (("2", "3"), ("0", "2"), ("1", "0"), ("a", "b"), ("", ""), ("0", "")):
        text = f",x\n{first},7\n{second},8\n"
        refused(lambda text=text: read_table(save(text)), "no name and does not count the rows", "index=False")
    refused(lambda: read_table(save('""\n0\n1\n')), "data.csv has no columns")


def test_semicolons_and_other_separators(save):
    loaded = read_table(save("a;b\n1.5;x,y\n2;z\n"))
    assert loaded.table.to_pydict() == {"a": [1.5, 2.0], "b": ["x,y", "z"]}
    assert "separated by semicolons" in loaded.notes[0]
    loaded = read_table(save("a\tb\n1\t2\n"))
    assert loaded.table.to_pydict() == {"a": [1], "b": [2]}
    assert "separated by tabs" in loaded.notes[0]
    loaded = read_table(save("a,b\n1,2\n", "data.tsv"))
    assert loaded.table.to_pydict() == {"a": [1], "b": [2]}
    assert "separated by commas" in loaded.notes[0]
    loaded = read_table(save('"a;b"\n1\n'))  # quoted: part of the name
    assert loaded.table.to_pydict() == {"a;b": [1]}
    assert loaded.notes == []
    assert read_table(save("a;x,b\n1,2\n")).table.column_names == ["a;x", "b"]


def test_decimal_commas(save):
    message = refused(lambda: read_table(save("a;b\nx;1\ny;2,5\nz;\n")), "data.csv: column b has decimal commas")
    assert "'2,5' in row 2" in message
    assert "export the file with points" in message
    refused(lambda: read_table(save("a;b\nx;1.000,50\n")), "decimal commas")
    assert read_table(save("a;b\nx;1,2\ny;u,v\n")).table["b"].to_pylist() == ["1,2", "u,v"]
    assert read_table(save("a;b\nx;1,2\n"), text=["b"]).table["b"].to_pylist() == ["1,2"]


def test_columns_kept_as_text(save):
    file = save(" code ,day,n\n007,2020-01-01,1\n12,2020-01-02,2\n")
    table = read_table(file, text=["code", "day", "not there"]).table
    assert table.to_pydict() == {"code": ["007", "12"], "day": ["2020-01-01", "2020-01-02"], "n": [1, 2]}
    padded = read_table(file)
    assert padded.table["code"].to_pylist() == ["007", "12"]
    assert padded.notes == [f"{file}: column code has numbers with leading zeros: kept as text"]
    plain = read_table(save("a,b\n0,01:30\n-10,2020-01-05\n", "plain.csv"))
    assert plain.table["a"].to_pylist() == [0, -10]
    assert plain.notes == []


def test_types_across_many_blocks(save):
    rows = 400_000
    table = read_table(save("n,m\n" + "1,2\n" * rows + "0.5,x\n")).table
    assert table.num_rows == rows + 1
    assert table.schema.types == [pa.float64(), pa.string()]
    assert table["m"][0].as_py() == "2"
    long = "x" * 3_000_000  # a row longer than a block
    assert read_table(save(f"a,b\n1,{long}\n2,y\n")).table.to_pydict() == {"a": [1, 2], "b": [long, "y"]}
    wide = [f"c{k}" for k in range(5000)]
    assert read_table(save(",".join(wide) + "\n" + ",".join("1" for _ in wide))).table.column_names == wide


def test_too_large_for_the_memory(save, monkeypatch):
    monkeypatch.setattr(meshnn.memory, "available_memory", lambda: 2**25)
    bomb = gzip.compress(b"a,b\n" + b"1,2\n" * 2**23)
    assert len(bomb) < 2**20
    with pytest.raises(MemoryLimitError, match=r"reading .*data.csv.gz would need .* take a part of the file"):
        read_table(save(bomb, "data.csv.gz"))
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": np.random.default_rng(0).random(2**22)}), buffer)
    with pytest.raises(MemoryLimitError, match=r"reading .*data.pq would need"):
        read_table(save(buffer.getvalue(), "data.pq"))


# Reading Parquet


def parquet(file, **columns):
    pq.write_table(pa.table(columns), file)
    return file


def test_parquet(tmp_path):
    for name in ("data.parquet", "data.pq", "DATA.Parquet"):
        loaded = read_table(parquet(tmp_path / name, a=[1, 2], b=["x", None]))
        assert loaded.table.to_pydict() == {"a": [1, 2], "b": ["x", None]}
        assert loaded.notes == []
    folder = tmp_path / "year=2020"  # no column comes from the path
    folder.mkdir()
    assert read_table(parquet(folder / "data.parquet", a=[1])).table.column_names == ["a"]


def test_odd_parquet_files(tmp_path):
    file = tmp_path / "data.parquet"
    refused(lambda: read_table(parquet(file, a=pa.array([], pa.int64()))), "data.parquet has no rows")
    refused(lambda: read_table(parquet(file)), "data.parquet has no columns")
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), file)
    refused(lambda: read_table(file), "two columns are called a")
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", ""]), file)
    refused(lambda: read_table(file), "column 2 of 2 has no name")
    offsets = pa.py_buffer(np.array([0, 2], np.int32))
    latin = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xe9\xe8")])
    refused(lambda: read_table(parquet(file, a=latin)), "data.parquet is not a Parquet file", "UTF8")
    whole = parquet(file, a=list(range(1000))).read_bytes()
    for damaged in (whole[:-20], whole[:-60] + bytes([0xFF] * 50) + whole[-10:], whole[:20] + bytes(50) + whole[70:]):
        file.write_bytes(damaged)
        refused(lambda: read_table(file), "data.parquet is not a Parquet file that can be read")


def test_a_disk_that_fails(tmp_path, monkeypatch):
    def failing(self):
        raise OSError(errno.EIO, "Input/output error")

    file = parquet(tmp_path / "data.parquet", a=[1])
    monkeypatch.setattr(pq.ParquetFile, "read", failing)
    refused(lambda: read_table(file), "cannot read", "data.parquet: Input/output error; check the file and its disk")


def test_parquet_of_pandas(tmp_path):
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": ["x", "y", None, "z"]})
    frame.iloc[[3, 0, 2]].to_parquet(tmp_path / "data.parquet")
    loaded = read_table(tmp_path / "data.parquet")
    assert loaded.table.to_pydict() == {"a": [4, 1, 3], "b": ["z", "x", None]}
    assert "column __index_level_0__ is the index of pandas: left out" in loaded.notes[0]


def test_the_file_is_named_in_later_refusals(save, tmp_path):
    table = read_table(save("a,b\n1,2\n,3\n4,5\n")).table
    assert refused(lambda: Encoder.learn(table, "b")).startswith(str(tmp_path / "data.csv") + ": 1 missing value in a")
    assert refused(lambda: target_column(table, "a")).startswith(
        str(tmp_path / "data.csv") + ": target a has 1 missing"
    )


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
    assert encoder.left_out == {}
    assert encoder.notes == []
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
    refused(lambda: encoder.encode(new.drop_columns(["city"])), "there is no column city", "trained with")
    renamed = new.rename_columns(["extra", "garden", "City", "rooms"])
    refused(lambda: encoder.encode(renamed), "did you mean City?", "the columns are extra, garden, City, rooms")
    assert encoder.encode(new.slice(0, 0)).X.shape == (0, 5)


def test_without_target_and_with_drop():
    encoder = Encoder.learn(pa.table(HOUSES), None, drop=["city"])
    assert encoder.feature_names == ["rooms", "garden", "price"]
    assert encoder.left_out == {"city": "dropped on request"}
    table = pa.table(HOUSES)
    refused(lambda: Encoder.learn(table, "Prize"), "there is no column Prize (did you mean price?)", "rooms, city")
    refused(
        lambda: Encoder.learn(table, "price", drop=["x"]), "no column x; the columns are rooms, city, garden, price"
    )
    refused(lambda: Encoder.learn(table, "price", drop=["price"]), "the target price is also to be dropped")
    with pytest.raises(MeshError, match="drop must be a list, got str"):
        Encoder.learn(table, "price", drop="city")
    with pytest.raises(MeshError, match="impute must be True or False"):
        Encoder.learn(table, "price", impute="yes")
    with pytest.raises(MeshError, match="most_categories must be a whole number"):
        Encoder.learn(table, "price", most_categories=0)


def test_columns_left_out():
    table = pa.table(
        {
            "one": [7, 7, 7],
            "same": ["x", "x", "x"],
            "yes": [True, True, True],
            "gaps": [2.5, None, 2.5],
            "void": pa.nulls(3),
            "hollow": pa.array([None, None, None], pa.string()),
            "nan": [float("nan")] * 3,
            "x": [1, 2, 3],
        }
    )
    encoder = Encoder.learn(table, None)
    assert encoder.feature_names == ["x"]
    assert encoder.left_out == {
        "one": "is constant (7)",
        "same": "is constant (x)",
        "yes": "is constant (true)",
        "gaps": "is constant (2.5)",
        "void": "has no values",
        "hollow": "has no values",
        "nan": "has no values",
    }
    assert encoder.notes[0] == "column one is constant (7): left out"
    assert encoder.notes[4] == "column void has no values: left out"
    assert len(encoder.notes) == 7
    np.testing.assert_array_equal(encoder.encode(pa.table({"x": [5]})).X, [[5]])
    refused(lambda: Encoder.learn(table, "x"), "no column is left to learn from", "one is constant (7)", "void has no")
    refused(lambda: Encoder.learn(table.select(["x"]), "x"), "no column is left to learn from (there is none)")


def test_missing_values_are_counted():
    table = pa.table(
        {
            "age": [1.0, None, float("nan"), None, 5.0],
            "city": ["a", None, "b", "a", "a"],
            "ok": [1, 2, 3, 4, 5],
            "member": [True, None, None, True, False],
        }
    )
    message = refused(lambda: Encoder.learn(table, "ok"))
    assert message == (
        "3 missing values in age, 1 in city, 2 in member; pass --impute to fill them with the median or the most "
        "frequent value, or drop the columns"
    )
    refused(lambda: Encoder.learn(table.select(["city", "ok"]), None), "1 missing value in city; ")
    assert Encoder.learn(table, None, drop=["age", "city", "member"]).feature_names == ["ok"]


def test_imputing_by_hand():
    table = pa.table(
        {
            "odd": [9.0, None, 1.0, 2.0, None],  # median of 1, 2, 9
            "even": [1, 10, None, 3, 2],  # median of 1, 2, 3, 10
            "city": ["b", "c", None, "c", "a"],
            "tie": ["z", "y", "z", "y", None],  # the first in order
            "flag": [True, None, True, False, True],
            "draw": [True, None, True, False, False],  # as many of both: false
            "full": [1, 2, 3, 4, 9],  # filled too, if it must be one day
        }
    )
    encoder = Encoder.learn(table, None, impute=True)
    assert [column.fill for column in encoder.columns] == [2.0, 2.5, "c", "y", True, False, 3.0]
    assert [type(column.fill) for column in encoder.columns] == [float, float, str, str, bool, bool, float]
    assert encoder.feature_names == [
        *("odd", "even", "city=a", "city=b", "city=c", "tie=y", "tie=z", "flag", "draw", "full")
    ]
    X = encoder.encode(table).X
    np.testing.assert_array_equal(X[1], [2, 10, 0, 0, 1, 1, 0, 1, 0, 2])
    np.testing.assert_array_equal(X[2], [1, 2.5, 0, 0, 1, 0, 1, 1, 1, 3])
    np.testing.assert_array_equal(X[4], [2, 2, 1, 0, 0, 1, 0, 1, 0, 9])
    empty = pa.table({name: pa.nulls(1) for name in table.column_names})
    np.testing.assert_array_equal(encoder.encode(empty).X, [[2, 2.5, 0, 0, 1, 1, 0, 1, 0, 3]])


def test_the_most_frequent_truth_value():
    encoder = Encoder.learn(pa.table({"b": [True] * 5 + [False] * 3, "c": [True] * 3 + [False] * 5}), None, impute=True)
    assert [column.fill for column in encoder.columns] == [True, False]


def test_a_median_of_huge_numbers_is_finite():
    encoder = Encoder.learn(pa.table({"x": [1.5e308, 1.7e308]}), None, impute=True)
    assert encoder.columns[0].fill == 1.6e308


def test_missing_values_in_prediction():
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    new = pa.table({"rooms": [1, None], "city": pa.nulls(2), "garden": [True, None]})
    assert refused(lambda: encoder.encode(new)).startswith("1 missing values in rooms, 2 in city, 1 in garden; fill")


def test_infinite_numbers(save):
    table = read_table(save("x,y\n1,2\n2,1e999\n")).table
    refused(lambda: Encoder.learn(table, "x"), "data.csv: column y holds inf in row 2, expected finite numbers")
    encoder = Encoder.learn(pa.table({"x": [1, 2]}), None, impute=True)
    refused(lambda: encoder.encode(pa.table({"x": [1.0, 2.0, -np.inf]})), "column x holds -inf in row 3")
    refused(lambda: encoder.encode(pa.table({"x": [np.inf, 2.0]})), "column x holds inf in row 1")
    refused(lambda: target_column(table, "y"), "column y holds inf in row 2")


def test_too_many_categories(save):
    names = pa.table({"name": [f"n{k:03}" for k in range(101)], "x": range(101)})
    refused(
        lambda: Encoder.learn(names, "x"),
        "column name has 101 different texts, expected at most 100",
        "looks like an identifier or free text; drop it with --drop name",
    )
    assert len(Encoder.learn(names.slice(0, 100), "x").feature_names) == 100
    assert len(Encoder.learn(names, "x", most_categories=101).feature_names) == 101


def test_numbers_with_a_slip(save):
    table = read_table(save("n,age\n1,31\n2,45\n3,?\n4,1e3\n")).table
    encoder = Encoder.learn(table, "n")
    assert encoder.columns[0].categories == ("1e3", "31", "45", "?")
    assert "column age is taken as text: 3 of its 4 values are numbers, but row 3 holds '?'" in encoder.notes[0]
    many = read_table(save("n,age\n" + "".join(f"1,{k}\n" for k in range(150)) + "2,??\n")).table
    refused(lambda: Encoder.learn(many, "n"), "150 of its 151 values are numbers, but row 151 holds '??'", "--drop age")
    codes = pa.table({"code": ["1", "2", "3"], "x": [1, 2, 3]})  # all of them: meant so
    assert Encoder.learn(codes, "x").notes == []
    words = pa.table({"code": ["1", "b", "c"], "x": [1, 2, 3]})
    assert Encoder.learn(words, "x").notes == []


DATES = {
    "date32[day]": [datetime.date(2020, 1, 1)],
    "timestamp[us]": [datetime.datetime(2020, 1, 1)],
    "time64[us]": [datetime.time(12)],
    "duration[us]": [datetime.timedelta(1)],
}


@pytest.mark.parametrize("held", DATES)
def test_dates_and_times_are_refused(held):
    table = pa.table({"when": DATES[held] * 2, "x": [1, 2]})
    words = "column when holds dates or times", f"({held})", "turn it into numbers, or drop the column with --drop when"
    refused(lambda: Encoder.learn(table, "x"), *words)
    assert Encoder.learn(table, None, drop=["when"]).feature_names == ["x"]
    refused(lambda: target_column(table, "when"), "column when holds dates or times", "or choose another target")
    encoder = Encoder.learn(pa.table({"when": [1, 2]}), None)
    refused(lambda: encoder.encode(table), "column when holds dates or times", "trained with a number")


def test_dates_of_a_text_file_are_refused(save):
    table = read_table(save("day,at,x\n2020-01-31,2020-01-31 10:30:00,1\n2020-02-01,2020-02-01 10:30:00,2\n")).table
    refused(lambda: Encoder.learn(table, "x"), "data.csv: column day holds dates or times", "--drop day")
    refused(lambda: Encoder.learn(table, "x", drop=["day"]), "column at holds dates or times", "--drop at")


@pytest.mark.parametrize(
    "values", [[[1], [2]], [{"a": 1}, {"a": 2}], [b"x", b"y"], pa.array([[("k", 1)]] * 2, pa.map_("str", "int8"))]
)
def test_nested_and_binary_columns_are_refused(tmp_path, values):
    table = read_table(parquet(tmp_path / "data.parquet", odd=values, x=[1, 2])).table
    words = "expected numbers, text or truth values", "drop the column with --drop odd"
    refused(lambda: Encoder.learn(table, "x"), "data.parquet: column odd holds", *words)
    refused(lambda: target_column(table, "odd"), "column odd holds")


NUMBERS = {
    **{str(t): pa.array([1, 3], t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): pa.array([1, 3], t) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{str(t): pa.array([1.0, 3.0], t) for t in (pa.float32(), pa.float64())},
    "half": pa.array(np.array([1, 3], np.float16)),
    "decimal": pa.array([Decimal("1.00"), Decimal("3.00")], pa.decimal128(10, 2)),
    "decimal256": pa.array([Decimal("1.00"), Decimal("3.00")], pa.decimal256(50, 2)),
    "dictionary in chunks": pa.chunked_array([pa.array([1]), pa.array([3])]),
}


@pytest.mark.parametrize("held", NUMBERS)
def test_all_types_of_numbers(tmp_path, held):
    table = read_table(parquet(tmp_path / "data.parquet", x=NUMBERS[held])).table
    encoder = Encoder.learn(table, None)
    assert encoder.columns == (Column("x", "numeric"),)
    np.testing.assert_array_equal(encoder.encode(table).X, [[1.0], [3.0]])
    assert target_column(table, "x").values.tolist() == [1, 3]
    assert target_column(table, "x").values.dtype == np.int64
    assert target_column(table, "x", "regress").values.dtype == np.float64


@pytest.mark.parametrize("held", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary("int8", "str")])
def test_all_types_of_text(tmp_path, held):
    table = read_table(parquet(tmp_path / "data.parquet", x=pa.array(["b", "a", "b"], held))).table
    encoder = Encoder.learn(table, None)
    assert encoder.columns == (Column("x", "categorical", ("a", "b")),)
    np.testing.assert_array_equal(encoder.encode(table).X, [[0, 1], [1, 0], [0, 1]])
    assert target_column(table, "x").values.tolist() == ["b", "a", "b"]


def test_dictionaries_of_other_things():
    table = pa.table(
        {"n": pa.array([3, 10, 3]).dictionary_encode(), "f": pa.array([0.5, 2.0, None]).dictionary_encode()}
    )
    encoder = Encoder.learn(table, None, impute=True)
    assert encoder.columns == (
        Column("n", "categorical", ("10", "3"), "3"),
        Column("f", "categorical", ("0.5", "2"), "0.5"),
    )
    np.testing.assert_array_equal(encoder.encode(table).X, [[0, 1, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0]])
    flags = pa.table({"b": pa.array([True, False]).dictionary_encode()})
    assert Encoder.learn(flags, None).feature_names == ["b=false", "b=true"]
    days = pa.table({"d": pa.array(DATES["date32[day]"]).dictionary_encode()})
    refused(lambda: Encoder.learn(days, None), "column d holds dates or times")


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
    assert encoded.notes == [
        "2 rows have values of city never seen in training, e.g. 'Rome': all its features are 0 there"
    ]
    assert encoder.encode(new.slice(0, 1)).notes[0].startswith("1 row has a value of city never seen")


def test_numbers_that_became_text(save):
    encoder = Encoder.learn(pa.table({"x": [1, 2], "b": [True, False]}), None)
    table = read_table(save("x,b\n1,true\n2.5,false\nmany,true\n?,true\n")).table
    refused(lambda: encoder.encode(table), "data.csv: column x holds the text 'many' in row 3, expected a number")
    stored = pa.table({"x": ["12", "13"], "b": [True, True]})
    refused(lambda: encoder.encode(stored), "column x holds the text '12' in row 1")
    flags = pa.table({"x": [1, 2], "b": ["true", "maybe"]})
    refused(lambda: encoder.encode(flags), "column b holds the text 'maybe' in row 2, expected true or false")
    refused(lambda: encoder.encode(pa.table({"x": [1, 2, 3], "b": [0, 1, 2]})), "column b holds 2 in row 3")
    refused(lambda: encoder.encode(pa.table({"x": [1, 2], "b": [0.5, 1]})), "column b holds 0.5 in row 1")
    refused(lambda: encoder.encode(pa.table({"x": ["?", "1"], "b": [True, True]})), "the text '?' in row 1")
    hollow = pa.table({"x": pa.array([None], pa.string()), "b": [True]})
    refused(lambda: encoder.encode(hollow), "1 missing value in x")


def test_truth_values_and_numbers_stand_in_for_each_other():
    encoder = Encoder.learn(pa.table({"x": [0, 1], "b": [True, False]}), None)
    new = pa.table({"x": [True, False], "b": [0.0, 1.0]})
    np.testing.assert_array_equal(encoder.encode(new).X, [[1, 0], [0, 1]])


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
    whole = Encoder.learn(pa.table({"x": ["1", "2", "z"]}), None)
    np.testing.assert_array_equal(whole.encode(pa.table({"x": [2.0, 1.0]})).X, [[0, 1, 0], [1, 0, 0]])
    loud = Encoder.learn(pa.table({"x": ["TRUE", "FALSE", "z"]}), None)
    np.testing.assert_array_equal(loud.encode(pa.table({"x": [True, False]})).X, [[0, 1, 0], [1, 0, 0]])


def test_features_too_large_for_the_memory(monkeypatch):
    encoder = Encoder.learn(pa.table(HOUSES), "price")
    monkeypatch.setattr(meshnn.memory, "available_memory", lambda: 100)
    with pytest.raises(MemoryLimitError, match="4 rows of features would need 160 B"):
        encoder.encode(pa.table(HOUSES))


def test_describe():
    table = pa.table(HOUSES | {"id": [1, 2, 3, 4], "one": [1, 1, 1, 1], "street": ["a", "b", "c", "d"]})
    assert Encoder.learn(table, "price", drop=["id"]).describe() == [
        "rooms: number",
        "city: one-hot of 3 values (Bonn, Köln, Ulm)",
        "garden: true or false",
        "street: one-hot of 4 values (a, b, c, ...)",
        "id: left out (dropped on request)",
        "one: left out (is constant (1))",
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
    encoder = Encoder.learn(table, "price", impute=impute)
    text = json.dumps(encoder.to_dict(), allow_nan=False)
    again = Encoder.from_dict(json.loads(text))
    assert again == encoder
    assert json.dumps(again.to_dict()) == text
    np.testing.assert_array_equal(again.encode(table).X, encoder.encode(table).X)
    if impute:
        assert again.columns[3].fill.hex() == ((1e-310 + 0.30000000000000004) / 2).hex()


def test_an_encoder_of_one_column():
    for values in ([1, 2], ["a", "b"], [True, False]):
        encoder = Encoder.learn(pa.table({"x": values}), None)
        assert Encoder.from_dict(encoder.to_dict()) == encoder


def test_damaged_encoders_are_refused():
    table = pa.table(HOUSES | {"one": [1] * 4})
    whole = json.dumps(Encoder.learn(table, "price", impute=True).to_dict())
    bare = json.dumps(Encoder.learn(table, "price").to_dict())

    def damaged(text, change):
        stored = json.loads(text)
        change(stored)
        refused(lambda: Encoder.from_dict(stored), "the encoder stored in the model is damaged", "save the model again")

    for odd in (None, [], "x", 3, {}, {"columns": []}):
        refused(lambda odd=odd: Encoder.from_dict(odd), "the encoder stored in the model is damaged")
    for key, values in {
        "impute": (1, None, "true"),
        "columns": ([], {}, None, "x", [None], [[]], [{}], ["name"]),
        "left_out": ([], None, {"a": 1}, {"a": None}, {"rooms": "x"}, {"\ud800": "x"}, {"a": "\udfff"}),
        "more": (1,),
    }.items():
        for value in values:
            damaged(whole, lambda stored, key=key, value=value: stored.update({key: value}))
    # columns: 0 is numeric, 1 categorical, 2 boolean
    for column, key, values in [
        (0, "name", (None, 3, "", "city", "one", "\ud800", ["x"])),
        (0, "kind", (None, "text", 1, ["numeric"], "categorical")),
        (0, "categories", (["a", "b"], ["a"], None, "ab", {})),
        (0, "fill", (None, 3, True, "3", float("nan"), float("inf"), 10**400, [1.0])),
        (1, "kind", ("numeric", "boolean")),
        (1, "categories", ([], ["Bonn"], ["Bonn", "Bonn", "Ulm"], ["Ulm", "Bonn"], ["Bonn", 3], ["Bonn", "\ud800"])),
        (1, "fill", (None, "Rome", 3.0, ["Bonn"])),
        (2, "categories", (["false", "true"],)),
        (2, "fill", (None, 0, 1.0, "true")),
        (2, "more", (1,)),
    ]:
        for value in values:
            damaged(whole, lambda s, c=column, key=key, value=value: s["columns"][c].update({key: value}))
    for column, fill in [(0, 3.0), (1, "Bonn"), (2, True)]:
        damaged(bare, lambda s, c=column, fill=fill: s["columns"][c].update(fill=fill))
    damaged(whole, lambda s: s["columns"].append(s["columns"][0]))
    damaged(whole, lambda s: s["columns"][0].pop("fill"))
    Encoder.from_dict(json.loads(whole))  # the changes are what is refused


# Targets


def column(values):
    return pa.table({"y": values})


def test_targets_that_are_classes():
    target = target_column(column(["b", "a", "b"]), "y")
    assert target.task == "classify"
    assert target.values.tolist() == ["b", "a", "b"]
    assert target.values.dtype.kind == "U"
    assert "2 different values are taken as classes" in target.notes[0]
    target = target_column(column([True, False]), "y")
    assert (target.task, target.values.dtype, target.values.tolist()) == ("classify", np.bool_, [True, False])
    target = target_column(column(pa.array([5, 7, 9]).dictionary_encode()), "y")
    assert (target.task, target.values.dtype, target.values.tolist()) == ("classify", np.int64, [5, 7, 9])
    target = target_column(column([1.0, 2.0, 1.0, 2.0]), "y")
    assert (target.task, target.values.dtype, target.values.tolist()) == ("classify", np.int64, [1, 2, 1, 2])
    big = [2**53, 2**53 + 1] * 2  # as floats they would be one class
    assert target_column(column(big), "y", "classify").values.tolist() == big


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0, 1], "classify"),  # two different ones are classes, however few rows
        ([0, 1, 1], "classify"),
        ([0, 1, 2], "regress"),  # one row each
        ([0, 1, 2, 0, 1, 2], "classify"),  # two rows each
        ([0, 1, 2, 0, 1], "regress"),
        (list(range(20)) * 2, "classify"),
        (list(range(21)) * 10, "regress"),
        ([0.0, 1.0, 2.5] * 10, "regress"),
    ],
)
def test_what_whole_numbers_are_taken_for(values, task):
    target = target_column(column(values), "y")
    assert target.task == task
    assert len(target.notes) == 1
    if 2.5 not in values:
        other = {"classify": "regress", "regress": "classify"}[task]
        assert f"--task {other}" in target.notes[0]
        assert f"{len(set(values))} different whole numbers" in target.notes[0]


def test_a_task_that_is_named():
    target = target_column(column([0, 1, 2]), "y", task="classify")
    assert (target.task, target.values.tolist(), target.notes) == ("classify", [0, 1, 2], [])
    target = target_column(column([0, 1]), "y", task="regress")
    assert (target.task, target.values.dtype, target.notes) == ("regress", np.float64, [])
    assert target_column(column([True, False]), "y", task="regress").values.tolist() == [1.0, 0.0]
    refused(lambda: target_column(column([1, 2]), "y", task="cluster"), "unknown task 'cluster'", "classify, regress")


def test_targets_that_are_refused():
    refused(lambda: target_column(column([1, 2]), "z"), "there is no column z", "the columns are y")
    refused(lambda: target_column(column(["a"]), "y"), "target y has 1 row, expected at least 2 rows")
    refused(
        lambda: target_column(column(["a", None, None, "b"]), "y"), "target y has 2 missing values, the first in row 2"
    )
    refused(lambda: target_column(column([1.5, 2.5, float("nan")]), "y"), "1 missing value, the first in row 3")
    refused(lambda: target_column(column(pa.nulls(3)), "y"), "3 missing values, the first in row 1")
    refused(lambda: target_column(column([True, None]), "y"), "1 missing value, the first in row 2")
    refused(lambda: target_column(column(["a", "a"]), "y"), "target y has the one class 'a', expected at least 2")
    refused(lambda: target_column(column([3, 3, 3]), "y"), "target y has the one class 3")
    refused(lambda: target_column(column([True, True]), "y"), "the one class True")
    refused(
        lambda: target_column(column(["a", "b"]), "y", "regress"), "target y is text ('a' in row 1)", "--task classify"
    )
    refused(lambda: target_column(column([2.5, 2.5]), "y"), "target y is 2.5 in every row")
    refused(lambda: target_column(column([2, 2]), "y", "regress"), "target y is 2 in every row")
    refused(lambda: target_column(column([1.0, 2.5]), "y", "classify"), "target y holds 2.5 in row 2", "--task regress")
    refused(lambda: target_column(column([1.0, 1e19]), "y", "classify"), "holds 1e+19 in row 2, too large for a class")
    refused(lambda: target_column(column([2.5, 1.0]), "y", "classify"), "target y holds 2.5 in row 1")
    refused(lambda: target_column(column([-1e19, 1.0]), "y", "classify"), "holds -1e+19 in row 1, too large")


def test_targets_with_too_many_classes():
    looks = "it looks like an identifier or a number"
    names = [f"n{k}" for k in range(10_000)]
    refused(lambda: target_column(column(names), "y"), "10,000 classes in 10,000 rows", looks, "choose another target")
    refused(lambda: target_column(column(names * 5), "y"), "10,000 classes in 50,000 rows", looks)
    refused(lambda: target_column(column(names[:1001] * 2), "y"), "1,001 classes in 2,002 rows", looks)
    assert len(set(target_column(column(names[:1000] * 2), "y").values)) == 1000
    refused(lambda: target_column(column(names[:11] + names[:10]), "y"), "11 classes in 21 rows", looks)
    assert len(set(target_column(column(names[:10] * 2 + names[:1]), "y").values)) == 10
    assert target_column(column(names[:20]), "y").task == "classify"  # too few rows to tell
    refused(lambda: target_column(column(list(range(2000))), "y", "classify"), looks, "pass --task regress")


# Writing predictions

PREDICTED = {
    "no": np.array([0.1, 1 / 3]),
    "prediction": np.array(["yes, sir", "Köln"]),
    "yes": np.array([0.1, 0.25], np.float32),
    "k": np.array([1, -2]),
    "sure": np.array([True, False]),
}
WRITTEN = 'prediction,no,yes,k,sure\n"yes, sir",0.1,0.1,1,True\nKöln,0.3333333333333333,0.25,-2,False\n'
TWO_ROWS = pa.table({"x": [1, 2]})


def test_predictions_as_text(tmp_path):
    assert write_predictions(None, TWO_ROWS, PREDICTED) == WRITTEN
    assert write_predictions(tmp_path / "out.csv", TWO_ROWS, PREDICTED) is None
    assert (tmp_path / "out.csv").read_bytes().decode() == WRITTEN
    write_predictions(str(tmp_path / "out.TSV"), TWO_ROWS, PREDICTED)
    want = WRITTEN.replace('"yes, sir"', "yes; sir").replace(",", "\t").replace(";", ",")
    assert (tmp_path / "out.TSV").read_text() == want
    write_predictions(tmp_path / "out.csv.gz", TWO_ROWS, PREDICTED)
    assert gzip.decompress((tmp_path / "out.csv.gz").read_bytes()).decode() == WRITTEN
    write_predictions(tmp_path / "out.tsv.gz", TWO_ROWS, PREDICTED)
    assert gzip.decompress((tmp_path / "out.tsv.gz").read_bytes()).decode() == want
    assert sorted(os.listdir(tmp_path)) == ["out.TSV", "out.csv", "out.csv.gz", "out.tsv.gz"]


def test_predictions_as_parquet(tmp_path):
    for name in ("out.parquet", "out.pq"):
        write_predictions(tmp_path / name, TWO_ROWS, PREDICTED)
        table = pq.read_table(tmp_path / name)
        assert table.column_names == ["prediction", "no", "yes", "k", "sure"]
        assert table["prediction"].to_pylist() == ["yes, sir", "Köln"]
        assert table["no"].to_pylist() == [0.1, 1 / 3]
        assert table["yes"].type == pa.float32()
        assert table["sure"].to_pylist() == [True, False]


@pytest.mark.parametrize("name", ["out.csv", "out.tsv.gz", "out.parquet"])
def test_what_is_written_is_read_again(tmp_path, name):
    numbers = np.random.default_rng(0).standard_normal(70_000)  # more than one piece
    write_predictions(tmp_path / name, pa.table({"x": numbers}), {"prediction": numbers, "n": np.arange(70_000)})
    table = read_table(tmp_path / name).table
    np.testing.assert_array_equal(table["prediction"].to_numpy(), numbers)
    np.testing.assert_array_equal(table["n"].to_numpy(), np.arange(70_000))


def test_the_same_predictions_give_the_same_bytes(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_predictions(tmp_path / name, TWO_ROWS, PREDICTED)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert (tmp_path / "a.csv.gz").read_bytes()[4:8] == bytes(4)  # the time of the header


def test_rights_and_links(tmp_path):
    before = os.umask(0o027)
    try:
        write_predictions(tmp_path / "out.csv", TWO_ROWS, PREDICTED)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.csv").stat().st_mode) == 0o640
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_predictions(tmp_path / "link.csv", TWO_ROWS, PREDICTED)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == WRITTEN


def test_predictions_that_cannot_be_written(tmp_path, monkeypatch):
    def write(name, columns=PREDICTED):
        return lambda: write_predictions(tmp_path / name, TWO_ROWS, columns)

    (tmp_path / "folder.csv").mkdir()
    refused(write("folder.csv"), "cannot write", "folder.csv: it is a directory; name a file")
    refused(write("no/such/out.csv"), "cannot write", "its directory does not exist; create it first")
    refused(write("out.xlsx"), "out.xlsx has an unknown ending; meshnn writes .csv")
    os.mkfifo(tmp_path / "pipe.csv")
    refused(write("pipe.csv"), "pipe.csv: it is a device or a pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe.csv").stat().st_mode)
    refused(lambda: write_predictions("/dev/null", TWO_ROWS, PREDICTED), "/dev/null")
    refused(write("out.csv", {}), "there are no columns to write")
    refused(write("out.csv", {"prediction": np.zeros(3)}), "column prediction", "has shape (3,), expected (2,)")
    refused(write("out.csv", {"prediction": np.zeros((2, 1))}), "has shape (2, 1)")
    (tmp_path / "old.csv").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda file, mode: False)  # root may write everywhere
        refused(write("old.csv"), "old.csv: permission denied; choose a place you may write to")

    def closed(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", closed)
        refused(write("old.csv"), "old.csv: permission denied; choose a place you may write to")
    assert (tmp_path / "old.csv").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["folder.csv", "old.csv", "pipe.csv"]


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text("old")
    rows = pa.table({"x": np.arange(10_000)})
    columns = {"prediction": np.random.default_rng(0).random(10_000)}

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(lambda: write_predictions(tmp_path / name, rows, columns), "no space left on the disk; free some")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # the kernel itself refuses the rest of the file
    try:
        refused(
            lambda: write_predictions(tmp_path / name, rows, columns), "cannot write", "larger than the system allows"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / name).read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(meshnn.data.tables, "_write_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_predictions(tmp_path / "out.csv", TWO_ROWS, PREDICTED)
    assert os.listdir(tmp_path) == []


def test_modules_load_without_pyarrow():
    program = "import sys, meshnn.data.tables, meshnn.data.encoding; print({'pyarrow', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "set()\n", done.stderr

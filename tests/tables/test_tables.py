"""Tables: real files in, matrices and targets out, predictions back to files."""

import errno
import gzip
import io
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import meshnn.memory
from meshnn.errors import MemoryLimitError
from meshnn.tables.encoder import Encoder
from meshnn.tables.predictions import as_text, predictions_to
from meshnn.tables.reader import read_table
from table_cases import HOUSES, refused

BOM = "\ufeff"

# Reading text


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ("age,city,ok\n31,Bonn,true\n45.5,Ulm,false\n",
         {"age": [31, 45.5], "city": ["Bonn", "Ulm"], "ok": [True, False]}),
        (BOM + "a,b\n1,2\n", {"a": [1], "b": [2]}),
        (' größe ,"a b"\n1,2\n', {"größe": [1], "a b": [2]}),
        ("a;x,b\n1,2\n", {"a;x": [1], "b": [2]}),  # there are commas: semicolons are part of the name
        ('"a;b"\n1\n', {"a;b": [1]}),  # quoted: part of the name
        ("a,b\n0,2020-01-31\n-10,01:30\n", {"a": [0, -10], "b": ["2020-01-31", "01:30"]}),  # an encoder parses dates
        # quotes
        ('name,"x, y"\n"Ann, ""the""\r\nfirst",1\n"5"" pipe",2\n6" pipe,3\n',
         {"name": ['Ann, "the"\r\nfirst', '5" pipe', '6" pipe'], "x, y": [1, 2, 3]}),
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
          for word in ("", "NA", "#N/A", "NaN", "null", "None")],
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
        ("a\tb\n1\t2\n", "data.csv", {"a": [1], "b": [2]}, "separated by tabs"),
        ("a,b\n1,2\n", "data.tsv", {"a": [1], "b": [2]}, "separated by commas"),
        ('"","x"\n"1",7\n"2",8\n', "data.csv", {"x": [7, 8]}, "the first column has no name: left out"),  # of R
        ("a|b\n1|2\n", "data.csv", {"a": [1], "b": [2]}, "separated by vertical bars"),
        ('a,b\n"1,000",1\n"-2,5",2\n', "data.csv", {"a": ["1,000", "-2,5"], "b": [1, 2]}, "column a ('1,000')"),
        ("Unnamed: 0,x\n0,7\n1,8\n", "data.csv", {"x": [7, 8]}, "is called Unnamed: 0"),
        (" n \n007\n12\n", "data.csv", {"n": ["007", "12"]}, "column n has numbers with leading zeros: kept as text"),
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
        (b"a,b\n1,\x002\n", ["not UTF-8 text", "0x00", "row 1"]),
        # not gzip in spite of its name
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), ["not UTF-8 text", "as CSV"]),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), ["gzip", "ending"]), (b"PK\x03\x04abc\n1\n", ["Excel", "as CSV"]),
        # rows, not lines, are numbered
        ("a,b\n1,2\n3\n4,5\n", ["data.csv: row 2 has 1 values, expected 2", "'3'"]),
        ("a,b\n1,2\n\n\n3,4,5\n", ["row 2 has 3 values, expected 2"]),
        ('a,b\n1,"x\ny\nz"\n3,4,5\n', ["row 2 has 3 values"]),
        ("a;b\n1;2\n3\n", ["row 2 has 1 values"]),
        ("a,b\n" + "1,2\n" * 600_000 + "3\n", ["row 600,001 has 1 values"]),
        ("a,b\n1," + "x" * 200_000 + "\n3\n", ["row 2 has 1 values"]),  # a value longer than the csv module likes
        # pyarrow alone takes the rest of the file for one value, without a word
        ('a,b\n1,x\n2,"y\n3,z\n4,u\n', ["a quote opened in row 2 is never closed"]),
        ('a,b\n5" pipe,x\n2,"y\n3,z\n', ["a quote opened in row 2 is never closed"]),
        ('a,b\n1,"y', ["a quote opened in row 1 is never closed"]),
        ('a,b\n1,"y\n' + "3,z\n" * 100_000, ["a quote opened in row 1 is never closed"]),
        ('a,"b\n' + "1,2\n" * 100_000, ["a quote opened in the header line is never closed"]),
        # names
        ("a,b,a\n1,2,3\n", ["two columns are called a (columns 1 and 3)", "rename"]),
        ("a,,c\n1,2,3\n", ["data.csv: column 2 of 3 has no name", "name it in the header"]),
        ("a,b,\n1,2\n", ["column 3 of 3 has no name"]),  # that, not that every row is too short
        ('""\n0\n1\n', ["data.csv has no columns"]),
        ("a;b\nx;1\ny;2,5\nz;\n", ["column b", "'2,5' in row 2"]),
    ],
)  # fmt: skip
def test_texts_that_are_refused(save, content, words, capfd):
    refused(lambda: read_table(save(content)), *words)
    assert capfd.readouterr().err == ""  # pyarrow grumbles there if a callback fails


def test_paths_and_endings(save):
    for name in ("DATA.CSV", "my data.csv", "Köln.csv", "a.b.Csv", "two\nlines.csv"):
        assert read_table(str(save("a,b\n1,2\n", name))).table.to_pydict() == {"a": [1], "b": [2]}
    for name in ("data.txt", "data.gz", "data", "data.parquet.gz"):
        refused(lambda name=name: read_table(save("a\n1\n", name)), name, "unknown ending", ".csv.gz", ".pq")


def test_gzip(save):
    for ending, separator in ((".csv.gz", b","), (".tsv.gz", b"\t"), (".CSV.GZ", b",")):
        packed = gzip.compress(b"a" + separator + b"b\n1" + separator + b"2\n", mtime=0)
        assert read_table(save(packed, "data" + ending)).table.to_pydict() == {"a": [1], "b": [2]}
    two_members = gzip.compress(b"a,b\n1,2\n", mtime=0) + gzip.compress(b"3,4\n")
    assert read_table(save(two_members, "data.csv.gz")).table.to_pydict() == {"a": [1, 3], "b": [2, 4]}
    packed = gzip.compress(b"a,b\n" + bytes(str(list(range(5000))), "ascii"))
    damaged = packed[:200] + bytes(100) + packed[300:]
    for content in (b"a,b\n1,2\n", packed[:-500], damaged, packed[:-8] + bytes(8)):
        words = "data.csv.gz", "gzip", "drop the .gz"
        refused(lambda content=content: read_table(save(content, "data.csv.gz")), *words)
    for content in (b"", gzip.compress(b"", mtime=0), gzip.compress(b"\n")):
        refused(lambda content=content: read_table(save(content, "data.tsv.gz")), "data.tsv.gz is empty")


def test_what_is_no_file(tmp_path, save, monkeypatch):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere.csv")
    for name, words in {"no such.csv": "does not exist", "folder": "no .parquet file", "link.csv": "does not exist",
                        "pipe.csv": "is a pipe or a device", "/dev/zero": "is a pipe or a device"}.items():  # fmt: skip
        refused(lambda name=name: read_table(tmp_path / name), name, words)
    refused(lambda: read_table(str(tmp_path / "zero\0byte.csv")), r"zero\x00byte.csv")

    def closed(self, *arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    file = save("a,b\n1,2\n")
    monkeypatch.setattr(type(file), "open", closed)  # the tests may run as root, who may read all files
    refused(lambda: read_table(file), "cannot read", "data.csv: permission denied")


def test_columns_kept_as_text(save):
    file = save(" code ,day,n\n007,2020-01-01,1\n12,2020-01-02,2\n")
    loaded = read_table(file, text=["code", "day", "not there"])
    assert loaded.table.to_pydict() == {"code": ["007", "12"], "day": ["2020-01-01", "2020-01-02"], "n": [1, 2]}
    assert loaded.notes == []
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


# Writing predictions

PREDICTED = {
    "prediction": np.array(["yes, sir", "Köln"]),
    "no": np.array([0.1, 1 / 3]),
    "yes": np.array([0.1, 0.25], np.float32),
    "k": np.array([1, -2]),
    "sure": np.array([True, False]),
}
WRITTEN = 'x,prediction,no,yes,k,sure\n7,"yes, sir",0.1,0.1,1,True\n8,Köln,0.3333333333333333,0.25,-2,False\n'
TABBED = WRITTEN.replace('"yes, sir"', "yes; sir").replace(",", "\t").replace(";", ",")
KEPT = {"x": pa.array([7, 8])}


def write_predictions(path, kept=KEPT, columns=PREDICTED):
    with predictions_to(path) as writer:
        writer.add(kept, columns)


def test_predictions_as_text(tmp_path):
    assert as_text(KEPT, PREDICTED) == WRITTEN
    for name, want in {"a.csv": WRITTEN, "b.TSV": TABBED, "c.csv.gz": WRITTEN, "d.tsv.gz": TABBED}.items():
        write_predictions(str(tmp_path / name))
        content = (tmp_path / name).read_bytes()
        assert (gzip.decompress(content) if name.endswith(".gz") else content).decode() == want
    assert (tmp_path / "c.csv.gz").read_bytes()[4:8] == bytes(4)  # no time: same predictions, same bytes


def test_predictions_as_parquet(tmp_path):
    write_predictions(tmp_path / "out.pq")
    table = pq.read_table(tmp_path / "out.pq")
    assert table.column_names == ["x", "prediction", "no", "yes", "k", "sure"]
    assert table["yes"].type == pa.float32()
    assert table.to_pydict() == {"x": [7, 8], **{key: values.tolist() for key, values in PREDICTED.items()}}


@pytest.mark.parametrize("name", ["out.tsv.gz", "out.parquet"])
def test_predictions_are_read_again_exactly(tmp_path, name):
    numbers = np.random.default_rng(0).standard_normal(20_000)
    write_predictions(tmp_path / name, {}, {"prediction": numbers, "n": np.arange(20_000)})
    table = read_table(tmp_path / name).table
    np.testing.assert_array_equal(table["prediction"].to_numpy(), numbers)
    np.testing.assert_array_equal(table["n"].to_numpy(), np.arange(20_000))


def test_predictions_that_cannot_be_written(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    refused(lambda: write_predictions(tmp_path / "out.xlsx"), "out.xlsx")
    monkeypatch.setattr(os, "fsync", full)
    for name in ("out.csv.gz", "out.parquet"):
        (tmp_path / name).write_text("old")
        refused(lambda name=name: write_predictions(tmp_path / name), "no space left")
        assert (tmp_path / name).read_text() == "old"
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(("odd", "kind"), [("2024-02-30", "categorical"), ("", "date"), ("2024-03-01", "date")])
def test_one_cell_that_is_no_date_makes_the_whole_column_text(tmp_path, odd, kind):
    """The message names the cell, and the column is text in a part of the rows without it, too."""
    days = [f"2024-01-{k:02}" for k in range(1, 21)]
    path = tmp_path / "d.csv"
    path.write_text("\n".join(["d,x", *(f"{day},{k}" for k, day in enumerate([*days, odd, *days]))]))
    loaded = read_table(path)
    for table in (loaded.table, loaded.table.slice(0, 20)):
        assert [column.kind for column in Encoder.learn(table, impute=True).columns if column.name == "d"] == [kind]
    assert len(loaded.notes) == (kind != "date")
    if loaded.notes:
        assert "row 21 holds '2024-02-30'" in loaded.notes[0]

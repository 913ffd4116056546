"""Files: contents are restored bit for bit, a failed save keeps the old file, and `read` rejects invalid files."""

import hashlib
import json
import math
import os
import pickle
import re
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from meshnn.errors import MemoryLimitError
from meshnn.storage import FileError, read, write

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
TREE = {
    "kind": "net",
    "net": {"w": np.array([[1.5, -0.0]]), "on": True, "none": None},
    "list": [1, 0.1, "é", np.array([True, False, True])],
    "seed": np.array(7, np.uint32),
    "worst": -math.inf,
}
#: The arrays of TREE in the form in which they are stored, and the other values.
ARRAYS = {"net.w": TREE["net"]["w"], "seed": TREE["seed"], "list.3": TREE["list"][3]}
TEXT = (
    '{"kind":"net","list":[1,0.1,"\\u00e9",{"$array":"list.3"}],"net":{"none":null,"on":true,"w":{"$array":"net.w"}},'
    '"seed":{"$array":"seed"},"worst":{"$float":"-inf"}}'
)


def same(got, want):
    """Return whether values and types are equal: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if type(got) is not type(want):
        return False
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[key], item) for key, item in want.items())
    if isinstance(want, list):
        return len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, np.ndarray):
        return (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())
    return repr(got) == repr(want)


def checksum(tree, arrays=None, version="2"):
    """Compute the checksum by the description of the format; the arrays are little endian."""
    arrays = sorted((arrays or {}).items())
    front = [version, tree, [[name, a.dtype.str, list(a.shape)] for name, a in arrays]]
    text = json.dumps(front, separators=(",", ":")).encode()
    return hashlib.sha256(text + b"".join(a.tobytes() for _, a in arrays)).hexdigest()


def container(front, data=b""):
    """Return a safetensors file with this header, valid or not."""
    front = front if isinstance(front, bytes) else json.dumps(front).encode()
    return len(front).to_bytes(8, "little") + front + data


def metadata(tree="{}", arrays=None, **changes):
    right = {"format": "meshnn", "version": "2", "tree": tree, "sha256": checksum(tree, arrays)}
    return {key: value for key, value in (right | changes).items() if value is not None}


def entry(code, shape, begin, end, **more):
    return {"dtype": code, "shape": shape, "data_offsets": [begin, end], **more}


def forge(entries, data=b"", **arrays):
    """Return a file with a valid checksum, so that any other error must be detected."""
    tree = json.dumps({name: {"$array": name} for name in arrays})
    return container({"__metadata__": metadata(tree, arrays)} | entries, data)


def read_bytes(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f.mesh")
        path.write_bytes(content)
        return read(path)


@contextmanager
def within(seconds):
    """Raise an error after a number of seconds."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def path(tmp_path):
    """Write a valid file, alone in its directory."""
    path = tmp_path / "net.mesh"
    write(path, TREE)
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return the bytes of a valid file."""
    path = tmp_path_factory.mktemp("good") / "net.mesh"
    write(path, TREE)
    return path.read_bytes()


# Round trips

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["$array", "$float", "$$", "a.b", "a"])
array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
plain = st.none() | st.booleans() | st.floats() | st.integers(-(2**80), 2**80) | texts


nested = st.recursive(
    plain | array, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=10
)


def leaves_of(tree):
    for item in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(item, (dict, list)):
            yield from leaves_of(item)
        elif isinstance(item, np.ndarray):
            yield item


@given(tree=st.dictionaries(texts, nested, max_size=4))
@example(tree={})
@example(tree={"\U0001f600": '\0\n"\\\u2028', "": np.zeros((0, 3)), "\0/é": np.array(True)})
@example(tree={"a.b": np.ones(1), "a": {"b": np.zeros(1)}, "__metadata__": np.ones(2), "$array": {"$array": "a.b"}})
def test_round_trip(tree):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f.mesh")
        write(path, tree)
        got = read(path)
        assert same(got, tree)
        for a in leaves_of(got):
            assert type(a) is np.ndarray
            assert a.flags.carray  # contiguous, aligned and writable
            assert a.dtype.isnative
        # An independent reader reads the same
        with safetensors.safe_open(path, "np") as file:
            assert file.metadata()["format"] == "meshnn"
            assert file.metadata()["version"] == "2"
            json.loads(file.metadata()["tree"], parse_constant=pytest.fail)
            others = sorted(file.get_tensor(name).tobytes() for name in file.keys())  # noqa: SIM118
        assert others == sorted(a.tobytes() for a in leaves_of(tree))


@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_memory_layouts(tmp_path, dtype):
    base = np.arange(24).reshape(4, 6).astype(dtype)
    frozen = base.copy()
    frozen.flags.writeable = False
    odd = {
        "fortran": np.asfortranarray(base),
        "strided": base[::2, ::-3],
        "swapped": base.astype(base.dtype.newbyteorder(">")),
        "swapped 0-d": np.array(1, base.dtype.newbyteorder(">")),
        "broadcast": np.broadcast_to(base[0, 1], (2, 3)),
        "frozen": frozen,
        "mapped": np.memmap(tmp_path / "map", dtype, "w+", shape=(2, 3)),
    }
    write(tmp_path / "f.mesh", odd)
    got = read(tmp_path / "f.mesh")
    assert same(got, {name: np.array(a, dtype, order="C") for name, a in odd.items()})
    got["frozen"][:] = 1


def test_the_format_as_described(good):
    n = int.from_bytes(good[:8], "little")
    front, data = good[8 : 8 + n], good[8 + n :]
    assert n % 8 == 0
    want = {
        "__metadata__": metadata(TEXT, ARRAYS),
        "net.w": entry("F64", [1, 2], 0, 16),
        "seed": entry("U32", [], 16, 20),
        "list.3": entry("BOOL", [3], 20, 23),
    }
    assert json.loads(front) == want
    assert data == b"".join(a.tobytes() for a in ARRAYS.values())
    assert same(read_bytes(container(want, data)), TREE)


# Damage


@pytest.fixture
def enough_memory(monkeypatch):
    """Skip the query of free memory, which takes longer than reading the file."""
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 10**6)


def test_every_changed_byte_and_every_truncation(path, good, enough_memory):
    contents = [good[:k] for k in range(len(good))]
    for k in range(len(good)):
        contents += [good[:k] + bytes([byte]) + good[k + 1 :] for byte in b' 0"' if byte != good[k]]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(FileError, match="net") as caught:
            read(path)
        assert "\n" not in str(caught.value)


# Invalid contents


ENDLESS = "[" * 100_000
LONG = "1" * 5000


def fronted(**changes):
    return container({"__metadata__": metadata(**changes)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\xff" * 100, "not a .mesh file"),
        (pickle.dumps({"a": 1}), "not a .mesh file"),
        (container(b"\xff\xfe{\0}\0"), "not a .mesh file"),
        (container(f'{{"a":{ENDLESS}'.encode()), "not a .mesh file"),
        (container(b'{"__metadata__":{"format":"meshnn"},"__metadata__":{}}'), "not a .mesh file"),
        (safetensors.numpy.save({"a": np.ones(1)}, {"format": "pt"}), "not a .mesh file"),
        (container({"__metadata__": metadata(version="3"), "a": entry("BF16", [1], 0, 2)}, b"12"), "format '3'"),
        (container({"__metadata__": metadata(version="1"), "a": entry("F32", [1], 0, 4)}, b"1234"), "format '1'"),
        (fronted(version=None), "metadata"),
        (fronted(version="1\n"), r"format '1\\n'"),
        (container({"__metadata__": metadata() | {"tree": {}}}), "metadata"),
        (fronted(sha256=None), "metadata"),
        (fronted(sha256=""), "checksum"),
        (fronted(tree='{"b":{"a":1,"a":1}}'), "JSON"),
        (fronted(tree=f'{{"a":{ENDLESS}'), "JSON"),
        (fronted(tree='{"a":[0,NaN]}'), "JSON"),
        (fronted(tree="\ud800"), "damaged"),
        (fronted(tree="[]"), "not a JSON dictionary"),
        (fronted(tree='{"a":"\\ud800"}'), r"tree\['a'\] .*Unicode"),
        (fronted(tree='{"\\ud800":1}'), r"key '\\ud800'"),
        (fronted(tree='{"a":' + "[" * 40 + "]" * 40 + "}"), "32 deep"),
        (fronted(tree='{"a":{"$array":"b"}}'), r"tree\['a'\] .*'\$array'"),
        (fronted(tree='{"a":{"$float":"1"}}'), r"tree\['a'\] .*'\$float'"),
    ],
)
def test_content_that_is_not_ours(content, message):
    with pytest.raises(FileError, match=f"f.mesh.*{message}") as caught:
        read_bytes(content)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("entries", "size", "message"),
    [
        ({"a": entry("BF16", [4], 0, 8)}, 8, "array 'a' has dtype BF16"),
        ({"a": entry("O", [1], 0, 8)}, 8, ""),
        ({"a": entry("F64", [1.0], 0, 8)}, 8, ""),
        ({"a": entry("F64", [-1, -1], 0, 8)}, 8, ""),
        ({"a": entry("F64", [2**62, 2**62], 0, 8)}, 8, ""),
        ({"a": entry("F64", [10**4000] * 1000, 0, 8)}, 8, ""),
        ({"a": entry("F64", [0, 2**62, 8], 0, 0)}, 0, ""),
        ({"a": entry("F64", [2], 0, 16), "b": entry("F64", [1], 8, 16)}, 16, ""),
        ({"a\n" * 500: entry("F64", [1], 8, 16)}, 16, ""),
        ({}, 1, ""),
    ],
)
def test_entries_that_make_no_sense(entries, size, message):
    with within(5), pytest.raises(FileError, match=f"f.mesh is damaged: .*({message}).*; restore it") as caught:
        read_bytes(forge(entries, bytes(size)))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("tree", ["{}", '{"x":{"$array":"a"},"y":{"$array":"a"}}'])
def test_every_array_has_one_place(tree):
    a = np.ones(1)
    content = container({"__metadata__": metadata(tree, {"a": a}), "a": entry("F64", [1], 0, 8)}, a.tobytes())
    with pytest.raises(FileError, match=r"array"):
        read_bytes(content)


def test_bools_other_than_0_and_1():
    a = np.array([0, 1, 2], np.uint8).view(bool)
    with pytest.raises(FileError, match="bool array 'a'"):
        read_bytes(forge({"a": entry("BOOL", [3], 0, 3)}, a.tobytes(), a=a))


# Paths that cannot be read


@pytest.mark.parametrize("place", ["none.mesh", ".", "pipe", "/dev/zero"])
def test_paths_that_cannot_be_read(tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    with within(5), pytest.raises(FileError, match="cannot read"):
        read(tmp_path / place)


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", 3, b"a", "/tmp/" + "x" * 256], ids=ascii)
def test_what_is_no_path(path):
    for call in (read, lambda path: write(path, {})):
        with pytest.raises(FileError):
            call(path)


def test_a_huge_sparse_file(tmp_path):
    """A sparse file of a terabyte takes no disk space, but reading it would take as much memory."""
    path = tmp_path / "hole.mesh"
    front = container({"__metadata__": metadata(), "a": entry("F64", [2**37], 0, 2**40)})
    path.write_bytes(front)
    os.truncate(path, len(front) + 2**40)
    with within(5), pytest.raises(MemoryLimitError, match=r"would need 2\.0 TiB"):
        read(path)


# Trees that cannot be written


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ([], "dictionary"),
        ({"a": (1, 2)}, "['a']"),
        ({1: 2}, "key 1"),
        ({"a": [{None: 2}]}, "['a'][0]"),
        ({"a": "\ud800"}, "['a']"),
        ({"a": "\ud83d\ude00"}, "['a']"),  # would be read as one character
        ({"\udfff": 1}, "'\\udfff'"),
        ({"a": 10**5000}, "JSON"),
        ({"a": np.array([None])}, "['a']"),
        ({"a": np.ones(1, np.float16)}, "float16"),
        ({"a": np.ma.array([1, 2], mask=[0, 1])}, "MaskedArray"),
        ({"a": np.array([2], np.uint8).view(bool)}, "['a']"),
    ],
    ids=range(12),
)
def test_what_cannot_be_written(path, tree, place):
    with pytest.raises(FileError, match=re.escape(place)):
        write(path, tree)
    assert same(read(path), TREE)


def test_plain_and_odd_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("f.mesh", "é\n.mesh", "\udcff.mesh", Path("p.mesh")):
        write(name, TREE)
        assert same(read(name), TREE)
    with pytest.raises(FileError, match=r"cannot read '\\udcff\\n'"):
        read("\udcff\n")


def test_the_same_content_is_the_same_file(path, good):
    write(path, dict(reversed(TREE.items())))
    assert path.read_bytes() == good

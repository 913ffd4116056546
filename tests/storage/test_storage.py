"""Files: what goes in comes out bit for bit, a failed save harms nothing, and no content whatever gets past `read`."""

import errno
import hashlib
import json
import math
import os
import pickle
import signal
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from meshnn.errors import MemoryLimitError, MeshError
from meshnn.storage import FileError, read, write

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
TREE = {
    "kind": "net",
    "net": {"w": np.array([[1.5, -0.0]]), "on": True, "none": None},
    "list": [1, 0.1, "é", np.array([True, False, True])],
    "seed": np.array(7, np.uint32),
    "worst": -math.inf,
}
#: The arrays of TREE as they lie in the file, and the rest of it.
ARRAYS = {"net.w": TREE["net"]["w"], "seed": TREE["seed"], "list.3": TREE["list"][3]}
TEXT = (
    '{"kind":"net","list":[1,0.1,"\\u00e9",{"$array":"list.3"}],"net":{"none":null,"on":true,"w":{"$array":"net.w"}},'
    '"seed":{"$array":"seed"},"worst":{"$float":"-inf"}}'
)


def same(got, want):
    """Equal, and of equal types: 1, 1.0 and True are three things, and so are 0.0 and -0.0."""
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
    """Written anew from the format's description; the arrays are little endian."""
    arrays = sorted((arrays or {}).items())
    front = [version, tree, [[name, a.dtype.str, list(a.shape)] for name, a in arrays]]
    text = json.dumps(front, separators=(",", ":")).encode()
    return hashlib.sha256(text + b"".join(a.tobytes() for _, a in arrays)).hexdigest()


def container(front, data=b""):
    """A safetensors file with this front, whatever it is."""
    front = front if isinstance(front, bytes) else json.dumps(front).encode()
    return len(front).to_bytes(8, "little") + front + data


def metadata(tree="{}", arrays=None, **changes):
    right = {"format": "meshnn", "version": "2", "tree": tree, "sha256": checksum(tree, arrays)}
    return {key: value for key, value in (right | changes).items() if value is not None}


def entry(code, shape, begin, end, **more):
    return {"dtype": code, "shape": shape, "data_offsets": [begin, end], **more}


def forge(entries, data=b"", **arrays):
    """A file whose checksum is right, so that whatever else is wrong must be noticed."""
    tree = json.dumps({name: {"$array": name} for name in arrays})
    return container({"__metadata__": metadata(tree, arrays)} | entries, data)


def read_bytes(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f.mesh")
        path.write_bytes(content)
        return read(path)


@contextmanager
def within(seconds):
    """Fail instead of hanging."""

    def too_late(*_):
        raise AssertionError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def path(tmp_path):
    """A good file, alone in its directory."""
    path = tmp_path / "net.mesh"
    write(path, TREE)
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The bytes of a good file."""
    path = tmp_path_factory.mktemp("good") / "net.mesh"
    write(path, TREE)
    return path.read_bytes()


# What goes in comes out

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["$array", "$float", "$$", "a.b", "a"])
array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
plain = st.none() | st.booleans() | st.floats() | st.integers(-(2**80), 2**80) | texts


def nested(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=10,
    )


values = nested(plain)


def leaves_of(tree):
    for item in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(item, (dict, list)):
            yield from leaves_of(item)
        elif isinstance(item, np.ndarray):
            yield item


@given(tree=st.dictionaries(texts, nested(plain | array), max_size=4))
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
            assert a.flags.writeable
            assert a.flags.c_contiguous
            assert a.flags.aligned
            assert a.dtype.isnative
        # An independent reader sees the same
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


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("width", "bits"), [(4, 0x7FA00001), (4, 0xFFC12345), (8, 0x7FF4000000000001)])
def test_payloads_of_nan_survive(tmp_path, order, width, bits):
    want = np.array([bits], f"{order}u{width}").view(f"{order}f{width}")
    write(tmp_path / "f.mesh", {"a": want})
    got = read(tmp_path / "f.mesh")["a"]
    assert got.view(f"u{width}")[0] == bits


def test_the_same_content_is_the_same_file(path, good):
    write(path, dict(reversed(TREE.items())))
    assert path.read_bytes() == good


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


def test_saved_again_by_another_tool(path):
    with safetensors.safe_open(path, "np") as file:
        kept = file.metadata()
    safetensors.numpy.save_file(safetensors.numpy.load_file(path), path, kept | {"note": "copied"})
    assert same(read(path), TREE)


# Damage


@pytest.fixture
def enough_memory(monkeypatch):
    """Asking the system takes longer than reading the file."""
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 10**6)


def damaged_ones_are_noticed(path, contents):
    refused = total = 0
    for content in contents:
        path.write_bytes(content)
        total += 1
        message = f"{path} is fine"
        try:
            assert same(read(path), TREE)
        except FileError as error:
            message = str(error)
            refused += 1
        assert str(path) in message
        assert "\n" not in message
    return refused, total


@pytest.mark.slow
def test_every_flipped_bit(path, good, enough_memory):
    def flipped():
        for k in range(8 * len(good)):
            content = bytearray(good)
            content[k // 8] ^= 1 << k % 8
            yield content

    refused, total = damaged_ones_are_noticed(path, flipped())
    assert refused == total == 8 * len(good)  # none is even harmless


def test_every_changed_byte(path, good, enough_memory):
    contents = (
        good[:k] + bytes([byte]) + good[k + 1 :] for k in range(len(good)) for byte in b' 0"' if byte != good[k]
    )
    refused, total = damaged_ones_are_noticed(path, contents)
    assert refused == total


def test_every_truncation(path, good, enough_memory):
    refused, total = damaged_ones_are_noticed(path, (good[:k] for k in range(len(good))))
    assert refused == total == len(good)


@pytest.mark.parametrize("more", [b"\0", b" ", b"{}", bytes(8)])
def test_bytes_behind_the_end(good, more):
    with pytest.raises(FileError, match=r"damaged: .*; restore it"):
        read_bytes(good + more)


def test_a_flipped_number_is_named_as_damage(good):
    with pytest.raises(FileError, match=r"f.mesh is damaged: its checksum does not match; restore it from a backup"):
        read_bytes(good[:-1] + b"\0")


def test_swapped_names_are_noticed():
    a, b = np.array([1.0]), np.array([2.0])
    entries = {"a": entry("F64", [1], 8, 16), "b": entry("F64", [1], 0, 8)}
    assert same(read_bytes(forge(entries, bytes(b) + bytes(a), a=a, b=b)), {"a": a, "b": b})
    with pytest.raises(FileError, match="checksum"):
        read_bytes(forge(entries, bytes(a) + bytes(b), a=a, b=b))


@pytest.mark.parametrize("other", [entry("I64", [2], 0, 16), entry("F64", [2, 1], 0, 16), entry("F32", [4], 0, 16)])
def test_another_dtype_or_shape_is_noticed(other):
    a = np.ones(2)
    assert same(read_bytes(forge({"a": entry("F64", [2], 0, 16)}, a.tobytes(), a=a)), {"a": a})
    with pytest.raises(FileError, match="checksum"):
        read_bytes(forge({"a": other}, a.tobytes(), a=a))


# Content of every kind


def npz():
    with tempfile.TemporaryFile() as file:
        np.savez(file, a=np.ones(3))
        file.seek(0)
        return file.read()


ENDLESS = "[" * 100_000
LONG = "1" * 5000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; restore it"),
        (b"1234567", "is not a .mesh file"),
        (bytes(8), "is not a .mesh file"),
        (b"\xff" * 100, "is not a .mesh file"),
        (pickle.dumps({"a": 1}), "is not a .mesh file"),
        (pickle.dumps({"a": 1}, 0), "is not a .mesh file"),
        (npz(), "is not a .mesh file"),
        (container(b"no json"), "is not a .mesh file"),
        (container(b"\xff\xfe{\0}\0"), "is not a .mesh file"),
        (container("{}".encode("utf-16")), "is not a .mesh file"),
        (container([]), "is not a .mesh file"),
        (container(f'{{"a":{ENDLESS}'.encode()), "is not a .mesh file"),
        (container(f'{{"a":{LONG}}}'.encode()), "is not a .mesh file"),
        (container(b'{"__metadata__":{"format":"meshnn"},"__metadata__":{}}'), "is not a .mesh file"),
        (container({}), "is a safetensors file, but not a .mesh file"),
        (container({"__metadata__": []}), "is a safetensors file, but not a .mesh file"),
        (safetensors.numpy.save({"a": np.ones(1)}, {"format": "pt"}), "is a safetensors file, but not a .mesh file"),
        (container({"__metadata__": metadata(format=["meshnn"])}), "is a safetensors file, but not a .mesh file"),
        (container({"__metadata__": metadata(version="3"), "a": entry("BF16", [1], 0, 2)}, b"12"), "newer.* format 3"),
        (container({"__metadata__": metadata(version="1"), "a": entry("F32", [1], 0, 4)}, b"1234"), "older.* format 1"),
        (container({"__metadata__": metadata(version=None)}), "version is None, not a number"),
        (container({"__metadata__": metadata(version="one")}), "version is 'one', not a number"),
        (container({"__metadata__": metadata(version="0")}), "version is '0', not a number"),
        (container({"__metadata__": metadata(version="-1")}), "version is '-1', not a number"),
        (container({"__metadata__": metadata(version="1\n")}), r"version is '1\\n', not a number"),
        (container({"__metadata__": metadata(version="\u0661")}), "not a number"),
        (container({"__metadata__": metadata(version=LONG)}), "not a number"),
        (container({"__metadata__": metadata(version=1)}), "version is 1, not a number"),
        (container({"__metadata__": metadata() | {"tree": {}}}), "it has no tree"),
        (container({"__metadata__": {k: v for k, v in metadata().items() if k != "tree"}}), "it has no tree"),
        (container({"__metadata__": metadata(sha256=None)}), "it has no checksum"),
        (container({"__metadata__": metadata(sha256="")}), "checksum does not match"),
        (container({"__metadata__": metadata("")}), "tree is not valid JSON"),
        (container({"__metadata__": metadata("{")}), "tree is not valid JSON"),
        (container({"__metadata__": metadata('{"a":1,"a":2}')}), "tree is not valid JSON"),
        (container({"__metadata__": metadata('{"b":{"a":1,"a":1}}')}), "tree is not valid JSON"),
        (container({"__metadata__": metadata(f'{{"a":{ENDLESS}')}), "tree is not valid JSON"),
        (container({"__metadata__": metadata(f'{{"a":{LONG}}}')}), "tree is not valid JSON"),
        (container({"__metadata__": metadata('{"a":[0,NaN]}')}), "tree is not valid JSON"),
        (container({"__metadata__": metadata("\ud800")}), "damaged"),
        (container({"__metadata__": metadata("[]")}), "tree is not a dictionary"),
        (container({"__metadata__": metadata('{"a":"\\ud800"}')}), r"tree\['a'\] is not valid Unicode"),
        (container({"__metadata__": metadata('{"\\ud800":1}')}), r"tree has the key '\\ud800'"),
        (container({"__metadata__": metadata('{"a":' + "[" * 40 + "]" * 40 + "}")}), "nested more than 32 deep"),
        (container({"__metadata__": metadata('{"a":{"$array":"b"}}')}), r"tree\['a'\] has the key '\$array'"),
        (container({"__metadata__": metadata('{"a":{"$array":[]}}')}), r"tree\['a'\] has the key '\$array'"),
        (container({"__metadata__": metadata('{"a":{"$float":"1"}}')}), r"tree\['a'\] has the key '\$float'"),
        (container({"__metadata__": metadata('{"a":{"$more":"1"}}')}), r"tree\['a'\] has the key '\$more'"),
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
        ({"a": entry("BF16", [4], 0, 8)}, 8, "array 'a' has dtype BF16, expected one of bool, int8"),
        ({"a": entry("O", [1], 0, 8)}, 8, ""),
        ({"a": None}, 8, ""),
        ({"a": {"dtype": "F64", "shape": [1]}}, 8, ""),
        ({"a": entry("F64", [1.0], 0, 8)}, 8, ""),
        ({"a": entry("F64", [-1, -1], 0, 8)}, 8, ""),
        ({"a": entry("F64", [2], 0, 8)}, 8, ""),
        ({"a": entry("F64", [1], 8, 0)}, 8, ""),
        ({"a": entry("F64", [2**62, 2**62], 0, 8)}, 8, ""),
        ({"a": entry("F64", [10**4000] * 1000, 0, 8)}, 8, ""),
        ({"a": entry("F64", [1] * 65, 0, 8)}, 8, "array 'a' has an impossible shape"),
        ({"a": entry("F64", [0, 2**62, 8], 0, 0)}, 0, "array 'a' has an impossible shape"),
        ({"a": entry("F64", [2**50], 0, 2**53)}, 8, ""),
        ({"a": entry("F64", [1], 8, 16)}, 16, ""),
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


def test_every_array_has_one_place():
    a = np.ones(1)
    entries, data = {"a": entry("F64", [1], 0, 8)}, a.tobytes()
    for tree, message in [
        ("{}", "array 'a' belongs nowhere"),
        ('{"x":{"$array":"a"},"y":{"$array":"a"}}', r"tree\['y'\] has the key '\$array'"),
    ]:
        with pytest.raises(FileError, match=message):
            read_bytes(container({"__metadata__": metadata(tree, {"a": a})} | entries, data))


def test_bools_other_than_0_and_1():
    a = np.array([0, 1, 2], np.uint8).view(bool)
    with pytest.raises(FileError, match="damaged: bool array 'a' holds more than 0 and 1"):
        read_bytes(forge({"a": entry("BOOL", [3], 0, 3)}, a.tobytes(), a=a))


@given(st.binary(max_size=200))
def test_random_bytes(content):
    with pytest.raises(MeshError, match=r"f\.mesh"):
        read_bytes(content)


@given(st.data())
def test_edited_files(good, data):
    """Cut out, put in, anywhere: refused or unharmed."""
    content = good
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        until = at + data.draw(st.integers(0, 4))
        content = (
            content[:at]
            + data.draw(st.binary(max_size=4) | st.sampled_from([good[:20], b" ", b"9", b'"']))
            + content[until:]
        )
    with suppress(MeshError):
        assert same(read_bytes(content), TREE)


sizes = st.integers(0, 9) | st.sampled_from([-1, 2**31, 2**62, 2**64, 10**30, None, 1.5, True, "1"])
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F64", "U8", "BOOL", "BF16", "", None]),
        "shape": st.lists(sizes, max_size=3) | values,
        "data_offsets": st.lists(sizes, min_size=2, max_size=2) | values,
    }
)


@given(
    tree=st.sampled_from(['{"a":[]}', "{", "[1]", '"\\ud800"', "null"]) | st.text() | values.map(json.dumps),
    entries=st.dictionaries(st.text(max_size=2), entries | values, max_size=2),
    data=st.binary(max_size=9),
    changes=st.dictionaries(st.sampled_from(["format", "version", "sha256"]), st.text() | values, max_size=1),
)
def test_fronts_of_every_kind(tree, entries, data, changes):
    """Valid JSON that means nonsense; with a right checksum the tree is looked at, too."""
    with suppress(MeshError):
        assert isinstance(read_bytes(container({"__metadata__": metadata(tree) | changes} | entries, data)), dict)


def test_nothing_is_run(tmp_path):
    """A pickle that would leave a trace."""

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trace"),)

    for content in (pickle.dumps(Trap()), container(pickle.dumps(Trap(), 0))):
        with pytest.raises(FileError, match=r"not a \.mesh file"):
            read_bytes(content)
    assert not (tmp_path / "trace").exists()


# Paths that cannot be read


def test_a_missing_file(tmp_path):
    with pytest.raises(FileError, match=r"cannot read .*none.mesh: there is no such file; check the path"):
        read(tmp_path / "none.mesh")


def test_reading_a_directory(tmp_path):
    with pytest.raises(FileError, match="it is a directory; name a file"):
        read(tmp_path)


def test_reading_a_pipe_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with within(5), pytest.raises(FileError, match="pipe: it is a device or a pipe; name a file"):
        read(tmp_path / "pipe")


def test_reading_a_device_does_not_end(tmp_path):
    with within(5), pytest.raises(FileError, match="/dev/zero: it is a device or a pipe"):
        read("/dev/zero")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "permission denied; ask its owner"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError("odd"), "odd"),
    ],
)
def test_files_that_the_system_keeps_from_us(path, monkeypatch, error, message):
    def refuse(*_):
        raise error

    monkeypatch.setattr(os, "open", refuse)  # root may read anything
    with pytest.raises(FileError, match=rf"cannot read .*net\.mesh: {message}"):
        read(path)


@pytest.mark.parametrize("verb", [read, lambda path: write(path, {})])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the path is empty; name a file"),
        ("a\0b", r"'a\\x00b' cannot be the name of a file"),
        ("\ud800", r"'\\ud800' cannot be the name of a file"),
        (3, "path must be a string or a Path, got 3"),
        (None, "path must be a string or a Path, got None"),
        (b"a", "path must be a string or a Path, got b'a'"),
        ("/tmp/" + "x" * 256, "the name is too long"),
    ],
)
def test_what_is_no_path(verb, path, message):
    with pytest.raises(FileError, match=message):
        verb(path)


def test_more_than_the_memory_holds(path, monkeypatch):
    size = path.stat().st_size
    n = int.from_bytes(path.read_bytes()[:8], "little")
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 2 * size + 64 * n)
    assert same(read(path), TREE)
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 2 * size + 64 * n - 1)
    with pytest.raises(MemoryLimitError, match=r"reading .*net.mesh would need .* the machine has"):
        read(path)


def test_a_length_beyond_the_end_is_no_matter_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 10_000)
    (tmp_path / "f").write_bytes((10**7).to_bytes(8, "little") + b"{}")
    with pytest.raises(FileError, match=r"is not a \.mesh file"):
        read(tmp_path / "f")


def test_a_file_that_shrinks_while_it_is_read(path, monkeypatch):
    write(path, {"a": np.ones(10**5)})

    def shrink(*_):
        os.truncate(path, 1000)

    monkeypatch.setattr("meshnn.storage.check_fits", shrink)  # after the size was looked at
    with pytest.raises(FileError, match=r"net\.mesh is damaged"):
        read(path)


def test_a_huge_file_of_nothing(tmp_path):
    """A hole of a terabyte takes no space on the disk; reading it would take it in memory."""
    path = tmp_path / "hole.mesh"
    front = container({"__metadata__": metadata(), "a": entry("F64", [2**37], 0, 2**40)})
    path.write_bytes(front)
    os.truncate(path, len(front) + 2**40)
    with within(5), pytest.raises(MemoryLimitError, match=r"would need 2\.0 TiB"):
        read(path)


def test_memory_that_runs_out_after_all(path, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("meshnn.storage._unpack", fail)
    with pytest.raises(MemoryLimitError, match=r"reading .*net.mesh took more memory than there is"):
        read(path)


# What cannot be written


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "what is saved must be a dictionary, got list"),
        ({"a": (1, 2)}, r"tree\['a'\] is of type tuple; use dict, list"),
        ({"a": np.int64(1)}, r"tree\['a'\] is of type int64"),
        ({"a": [0, {1}]}, r"tree\['a'\]\[1\] is of type set"),
        ({1: 2}, "tree has the key 1; use plain strings"),
        ({"a": [{None: 2}]}, r"tree\['a'\]\[0\] has the key None"),
        ({"a": "\ud800"}, r"tree\['a'\] is '\\ud800', which is not valid Unicode"),
        ({"a": "\ud83d\ude00"}, ".* not valid Unicode"),  # would come back as one character
        ({"\udfff": 1}, r"tree has the key '\\udfff'"),
        ({"a": 10**5000}, "the tree cannot be written as JSON"),
        ({"a": np.array([None])}, r"tree\['a'\] has dtype object, expected one of bool, int8 to int64"),
        ({"a": np.array(["x"])}, r"tree\['a'\] has dtype <U1"),
        ({"a": np.ones(1, np.float16)}, r"tree\['a'\] has dtype float16"),
        ({"a": np.ones(1, complex)}, r"tree\['a'\] has dtype complex128"),
        ({"a": np.zeros(1, [("x", "f8")])}, r"tree\['a'\] has dtype \[\('x', '<f8'\)\]"),
        ({"a": np.ma.array([1, 2], mask=[0, 1])}, r"tree\['a'\] must be a plain numpy array, got MaskedArray"),
        ({"a": np.array([2], np.uint8).view(bool)}, r"tree\['a'\] is bool but holds bytes other than 0 and 1"),
    ],
)
def test_what_cannot_be_written(path, tree, message):
    with pytest.raises(FileError, match=rf"cannot write .*net.mesh: {message}"):
        write(path, tree)
    assert same(read(path), TREE)


def test_trees_too_long_for_other_tools(path, good, monkeypatch):
    n = int.from_bytes(good[:8], "little")
    monkeypatch.setattr("meshnn.storage._LONGEST", n)
    write(path, TREE)
    assert same(read(path), TREE)
    monkeypatch.setattr("meshnn.storage._LONGEST", n - 1)
    with pytest.raises(FileError, match=rf"takes {n} bytes, at most {n - 1} can be read again; move numbers"):
        write(path, TREE)
    with pytest.raises(FileError, match=r"is not a \.mesh file"):
        read(path)


def test_deep_trees(tmp_path):
    deep = {}
    for _ in range(31):
        deep = {"a": deep}
    write(tmp_path / "f.mesh", deep)
    assert read(tmp_path / "f.mesh") == deep
    with pytest.raises(FileError, match="nested more than 32 deep; flatten it"):
        write(tmp_path / "f.mesh", {"a": deep})
    deep["self"] = deep
    with pytest.raises(FileError, match="nested more than 32 deep"):
        write(tmp_path / "f.mesh", deep)


def test_plain_and_odd_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("f.mesh", "é\n.mesh", "\udcff.mesh", Path("p.mesh")):
        write(name, TREE)
        assert same(read(name), TREE)
    with pytest.raises(FileError, match=r"cannot read '\\udcff\\n': there is no such file"):
        read("\udcff\n")

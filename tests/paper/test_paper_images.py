"""IDX files: search, reading, download, and errors for damaged files."""

import gzip
import hashlib
import http.server
import socket
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshnn import MeshError
from meshnn.errors import DataError
from meshnn.paper import mnist as images
from meshnn.paper.mnist import DATASETS, cache_folder, load_images
from results import idx

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def small(monkeypatch):
    """Return the files of a data set with a few images and the name of MNIST, as bytes."""
    rng = np.random.default_rng(0)
    arrays = {
        "train-images-idx3-ubyte": rng.integers(0, 256, (7, 3, 3)),
        "train-labels-idx1-ubyte": rng.integers(0, 10, 7),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (4, 3, 3)),
        "t10k-labels-idx1-ubyte": rng.integers(0, 10, 4),
    }
    contents = {name: idx(array) for name, array in arrays.items()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setitem(images.DATASETS, "mnist", replace(DATASETS["mnist"], sha256=sums))
    monkeypatch.delenv("MESHNN_DATA", raising=False)
    return arrays, contents


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_a_folder(small, tmp_path, packed, nested, monkeypatch):
    arrays, contents = small
    folder = tmp_path / "mnist" if nested else tmp_path
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    found = load_images("mnist", tmp_path)
    for got, want in zip(found, arrays.values(), strict=True):
        np.testing.assert_array_equal(got, want)
    monkeypatch.setenv("MESHNN_DATA", str(tmp_path))
    np.testing.assert_array_equal(load_images("mnist").test_labels, arrays["t10k-labels-idx1-ubyte"])


def test_what_is_missing_is_said(small, tmp_path, monkeypatch):
    contents = small[1]
    for name in list(contents)[:2]:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(contents[name]))
    wanted = r"t10k-images-idx3-ubyte\.gz, t10k-labels-idx1-ubyte\.gz"
    with pytest.raises(DataError, match=wanted):
        load_images("mnist", tmp_path)
    with pytest.raises(DataError, match="no does not exist"):
        load_images("mnist", tmp_path / "no")
    with pytest.raises(DataError, match="train-labels"):
        load_images("mnist", tmp_path / "train-labels-idx1-ubyte.gz")
    with pytest.raises(MeshError, match="'mnits'"):
        load_images("mnits")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "meshnn"


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: gzip.compress(c)[:-20],
        lambda c: gzip.compress(c + b"x" * 10**6),
        lambda c: gzip.compress(c[:-1] + bytes([c[-1] ^ 1])),
        lambda c: b"hello, I am a text",
        lambda c: b"",
        lambda c: gzip.compress(c)[:30] + b"\xff" * 30,
    ],
)
def test_damaged_files_are_refused_by_name(small, tmp_path, damage):
    for name, content in small[1].items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(small[1]["train-images-idx3-ubyte"]))
    with pytest.raises(DataError, match="train-images-idx3-ubyte"):
        load_images("mnist", tmp_path)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves bytes or errors."""

    def do_GET(self):
        server, name = self.server, self.path.strip("/")
        server.asked.append(name)
        if server.refuse:
            self.send_error(server.refuse)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(server.contents[name])))
        self.end_headers()
        self.wfile.write(server.contents[name])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def served(small, tmp_path, monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.contents = {f"{name}.gz": gzip.compress(content) for name, content in small[1].items()}
        server.asked, server.refuse = [], 0
        server.url = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setitem(images.DATASETS, "mnist", replace(images.DATASETS["mnist"], mirrors=(server.url,)))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield server
        server.shutdown()


def test_download(served, small):
    told = []
    found = load_images("mnist", progress=lambda *words: told.append(words))
    for got, want in zip(found, small[0].values(), strict=True):
        np.testing.assert_array_equal(got, want)
    size = len(served.contents["train-images-idx3-ubyte.gz"])
    assert ("train-images-idx3-ubyte.gz", size, size) in told
    served.asked.clear()
    load_images("mnist")
    assert served.asked == []  # from the cache


def test_other_mirrors_are_tried_and_failure_says_where_to_put_files(served, small, monkeypatch, tmp_path, request):
    source = images.DATASETS["mnist"]
    taken = socket.socket()  # a bound port without a listener refuses all connections
    request.addfinalizer(taken.close)
    taken.bind(("127.0.0.1", 0))
    gone = f"http://127.0.0.1:{taken.getsockname()[1]}/"
    monkeypatch.setitem(images.DATASETS, "mnist", replace(source, mirrors=(gone, served.url)))
    load_images("mnist")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    served.refuse = 403
    with pytest.raises(DataError, match=r"train-images.*other.*refused.*403"):
        load_images("mnist")
    served.refuse = 0
    served.contents["train-labels-idx1-ubyte.gz"] = gzip.compress(b"<html>no such page</html>")
    with pytest.raises(DataError, match=r"train-labels.*3c 68 74 6d"):
        load_images("mnist")


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the image data sets are not in {SHARED}")
@pytest.mark.parametrize("name", list(DATASETS))
def test_the_real_files(name):
    found = load_images(name, SHARED)
    assert found.train_images.shape == (60_000, 28, 28)
    assert found.test_images.shape == (10_000, 28, 28)
    counts = np.bincount(found.test_labels)
    want = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009] if name == "mnist" else [1000] * 10
    assert counts.tolist() == want

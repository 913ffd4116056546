"""MNIST and Fashion-MNIST from their IDX files, which are verified and, if necessary, downloaded.

Files are searched in a folder (gzipped or not), then in the cache; missing ones are downloaded to the cache. Every file
is verified by its size and the SHA-256 of its contents.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import known
from meshnn.errors import DataError

__all__ = ["DATASETS", "ImageSet", "ImageSource", "cache_folder", "load_images"]

Images = NDArray[np.uint8]
#: Called with the name of a file, the bytes so far and the total (0 if unknown).
Progress = Callable[[str, int, int], None]


class File(NamedTuple):
    """One IDX file."""

    name: str
    shape: tuple[int, ...]
    sha256: str  # of the contents, not of the gzip file around them


@dataclass(frozen=True)
class ImageSource:
    """Files of a data set and where to download them."""

    title: str
    files: tuple[File, ...]  # in the order of `ImageSet`
    mirrors: tuple[str, ...]


class ImageSet(NamedTuple):
    """Pictures (n, 28, 28) and their classes (n,), one byte each."""

    train_images: Images
    train_labels: Images
    test_images: Images
    test_labels: Images


def _files(*sums: str) -> tuple[File, ...]:
    shapes = {
        "train-images-idx3-ubyte": (60_000, 28, 28),
        "train-labels-idx1-ubyte": (60_000,),
        "t10k-images-idx3-ubyte": (10_000, 28, 28),
        "t10k-labels-idx1-ubyte": (10_000,),
    }
    return tuple(File(name, shape, digest) for (name, shape), digest in zip(shapes.items(), sums, strict=True))


DATASETS = {
    "mnist": ImageSource(
        "MNIST",
        _files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    ),
    "fashion-mnist": ImageSource(
        "Fashion-MNIST",
        _files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
    ),
}


def cache_folder() -> Path:
    """Return the folder of downloads: `$XDG_CACHE_HOME/meshnn`, or `~/.cache/meshnn`."""
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home, as in some containers
        home = Path(tempfile.gettempdir()) / f"meshnn-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "meshnn"


def load_images(
    name: str, folder: str | os.PathLike[str] | None = None, offline: bool = False, progress: Progress = lambda *_: None
) -> ImageSet:
    """Return a data set from local files or from the network.

    Parameters
    ----------
    name : "mnist" or "fashion-mnist"
    folder : path, optional
        Holds the four files, or a subfolder `name` with them; gzipped or not. By default `$MESHNN_DATA`. It must be
        complete: nothing is downloaded then.
    offline : bool
        Never download.
    progress : callable, optional
        Called during downloads.

    Returns
    -------
    ImageSet
        uint8 arrays: pictures (60000, 28, 28) and labels (60000,) to train with, 10000 of each to test.
    """
    known("name", name, tuple(DATASETS))
    source = DATASETS[name]
    named = folder if folder is not None else os.environ.get("MESHNN_DATA") or None
    cache = cache_folder() / name
    places = [cache] if named is None else [Path(named) / name, Path(named)]
    if named is not None and not places[1].is_dir():
        what = "is not a folder" if places[1].exists() else "does not exist"
        raise DataError(f"the data folder {named} {what}; check --data or MESHNN_DATA")
    found = {file: _find(file.name, places) for file in source.files}
    missing = [file.name for file, path in found.items() if path is None]
    if missing and (named is not None or offline):
        raise DataError(_wanted(source, missing, places[0]))
    for file, path in found.items():
        if path is None:
            try:
                found[file] = fresh = download(source.mirrors, f"{file.name}.gz", cache, progress)
            except OSError as error:
                raise DataError(f"{_wanted(source, missing, cache)} (downloading failed: {error})") from None
            try:
                _verified(fresh, file)
            except DataError:
                fresh.unlink(missing_ok=True)  # else it would be found the next time
                raise
    return ImageSet(*(_verified(path, file) for file, path in found.items() if path is not None))


def _find(name: str, places: list[Path]) -> Path | None:
    candidates = (place / f"{name}{ending}" for place in places for ending in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _wanted(source: ImageSource, missing: list[str], place: Path) -> str:
    files = ", ".join(f"{name}.gz" for name in missing)
    return (
        f"{source.title} is not complete: put {files} (from {source.mirrors[0]}) into {place}, "
        "or name the folder that has them with --data or MESHNN_DATA"
    )


def _verified(path: Path, file: File) -> Images:
    """Return the array of bytes in an IDX file, gzipped or not; raise a `DataError` if it is not the original.

    The format: two zero bytes, 8 for bytes, the number of axes, each axis as a big-endian 4-byte number, the numbers.
    """
    header = bytes([0, 0, 8, len(file.shape)]) + b"".join(size.to_bytes(4, "big") for size in file.shape)
    length = len(header) + math.prod(file.shape)
    try:
        with open(path, "rb") as opened:
            packed = opened.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as opened:
            content = opened.read(length + 1)  # no more, whatever it expands to
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged ({error}); delete it and get it again") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if hashlib.sha256(content).hexdigest() != file.sha256:
        sizes = f"{len(content):,}" if len(content) <= length else "more"
        begins = content[: len(header)].hex(" ") or "nothing"
        raise DataError(
            f"{path} is not the original file: it has {sizes} bytes, expected {length:,}, and begins with {begins}, "
            f"expected {header.hex(' ')}; delete it and get it again"
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(file.shape)


# -- downloads ---------------------------------------------------------------------------------------------------

PAUSE = 1.0  # seconds between two tries


def download(mirrors: Sequence[str], name: str, folder: Path, progress: Progress) -> Path:
    """Download a file from the first mirror that has it, in up to three tries; raise OSError if none has.

    An incomplete file ends in `.part`; its download is continued if the mirror supports ranges.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / name, folder / f"{name}.part"
    problems = []
    for mirror in mirrors:
        for attempt in range(3):
            if attempt:
                time.sleep(PAUSE)
            try:
                _fetch(mirror + name, part, partial(progress, name))
                os.replace(part, target)
                return target
            except urllib.error.HTTPError as error:
                problems.append(f"{mirror}: {error.code} {error.reason}")
                if error.code < 500:  # another try would not help
                    break
            except (OSError, HTTPException) as error:
                problems.append(f"{mirror}: {getattr(error, 'reason', error)}")
    raise OSError("; ".join(dict.fromkeys(problems)))


def _fetch(url: str, part: Path, tell: Callable[[int, int], Any]) -> None:
    there = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "meshnn"})
    if there:
        request.add_header("Range", f"bytes={there}-")
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        part.unlink()  # it is longer than the file
        return _fetch(url, part, tell)
    with answer:
        goes_on = answer.status == 206 and (answer.headers.get("Content-Range") or "").startswith(f"bytes {there}-")
        if not goes_on:
            there = 0
        length = answer.headers.get("Content-Length")
        total = there + int(length) if length and length.isdigit() else 0
        tell(there, total)
        with open(part, "ab" if goes_on else "wb") as file:
            while block := answer.read(1 << 16):
                file.write(block)
                there += len(block)
                tell(there, total)
    if total and there < total:
        raise OSError(f"the connection broke after {there:,} of {total:,} bytes")
    return None

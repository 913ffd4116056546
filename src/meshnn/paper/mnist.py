"""MNIST and Fashion-MNIST from verified IDX files, which are downloaded if necessary.

Files are searched in a folder (gzipped or not), then in the cache; missing ones are downloaded to the cache. Every file
is verified by its size and the SHA-256 of its contents.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.request
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import known
from meshnn.errors import DataError
from meshnn.files import write_whole

__all__ = ["DATASETS", "ImageSet", "ImageSource", "cache_folder", "load_images"]

Images = NDArray[np.uint8]
#: Called with the name of a file, the bytes so far and the total (0 if unknown).
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ImageSource:
    """Files of a data set and where to download them."""

    title: str
    mirrors: tuple[str, ...]
    sha256: Mapping[str, str]  # hashes of the unpacked files, in the order of `ImageSet`


class ImageSet(NamedTuple):
    """Images (n, 28, 28) and classes (n,), one byte each."""

    train_images: Images
    train_labels: Images
    test_images: Images
    test_labels: Images


DATASETS = {
    "mnist": ImageSource(
        "MNIST",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        {
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    "fashion-mnist": ImageSource(
        "Fashion-MNIST",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        {
            "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
}


def cache_folder() -> Path:
    """Return the folder for downloads: `$XDG_CACHE_HOME/meshnn`, or `~/.cache/meshnn`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "meshnn"


def load_images(
    name: str, folder: str | os.PathLike[str] | None = None, progress: Progress = lambda *_: None
) -> ImageSet:
    """Return a data set from local files or from the network.

    Parameters
    ----------
    name : "mnist" or "fashion-mnist"
    folder : path, optional
        Folder with the four files, or with a subfolder `name` that has them; gzipped or not. By default `$MESHNN_DATA`.
        If a folder is given, nothing is downloaded.
    progress : callable, optional
        Called during downloads.

    Returns
    -------
    ImageSet
        uint8 arrays: images (60000, 28, 28) and labels (60000,) for training, 10000 of each for testing.
    """
    known("name", name, tuple(DATASETS))
    source = DATASETS[name]
    named = folder if folder is not None else os.environ.get("MESHNN_DATA") or None
    cache = cache_folder() / name
    places = [cache] if named is None else [Path(named) / name, Path(named)]
    if named is not None and not places[1].is_dir():
        raise DataError(f"the data folder {named} does not exist or is a file; check --data or MESHNN_DATA")
    found = {file: _find(file, places) for file in source.sha256}
    missing = ", ".join(f"{file}.gz" for file, path in found.items() if path is None)
    wanted = (
        f"{source.title} is not complete: put {missing} (from {source.mirrors[0]}) into {places[0]}, "
        "or set --data or MESHNN_DATA to their folder"
    )
    if missing and named is not None:
        raise DataError(wanted)
    arrays = []
    for file, digest in source.sha256.items():
        path = found[file]
        try:
            arrays.append(_verified(path or download(source.mirrors, f"{file}.gz", cache, progress), digest))
        except OSError as error:
            raise DataError(f"{wanted} (downloading failed: {error})") from None
        except DataError:
            if path is None:
                (cache / f"{file}.gz").unlink()  # otherwise the next call would use the damaged file
            raise
    return ImageSet(*arrays)


def _find(name: str, places: list[Path]) -> Path | None:
    candidates = (place / f"{name}{ending}" for place in places for ending in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _verified(path: Path, digest: str) -> Images:
    """Return the array of bytes in an IDX file, gzipped or not; raise a `DataError` if it is not the original.

    The format: two zero bytes, 8 for bytes, the number of axes, each axis as a big-endian 4-byte number, the numbers.
    """
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            content = file.read(1 << 26)  # limits the size of the unpacked data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}, or it is damaged ({error}); delete it and download it again") from None
    if hashlib.sha256(content).hexdigest() != digest:
        begin = content[:16].hex(" ") or "nothing"
        raise DataError(
            f"{path} is not the original file: it has {len(content):,} bytes and begins with {begin}; "
            "delete it and download it again"
        )
    axes = content[3]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(np.frombuffer(content, ">i4", axes, 4))


def download(mirrors: Sequence[str], name: str, folder: Path, progress: Progress) -> Path:
    """Download a file from the first mirror that has it; raise OSError if none has."""
    problems = []
    for mirror in mirrors:
        try:
            with urllib.request.urlopen(mirror + name, timeout=30) as answer:
                blocks, total = [], int(answer.headers.get("Content-Length") or 0)
                while block := answer.read(1 << 16):
                    blocks.append(block)
                    progress(name, sum(map(len, blocks)), total)
        except (OSError, HTTPException) as error:
            problems.append(f"{mirror}: {getattr(error, 'code', '')} {getattr(error, 'reason', error)}")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, blocks)
        return folder / name
    raise OSError("; ".join(problems))

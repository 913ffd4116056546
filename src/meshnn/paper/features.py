"""Features of images from an auto-encoder that is trained once; the features are cached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Memory
from numpy.typing import NDArray

from meshnn.files import explained
from meshnn.paper.experiment import TrialOptions
from meshnn.paper.mnist import DATASETS, cache_folder, load_images


class ImageFeatures(NamedTuple):
    """32 features per image, and ten test images before and after the auto-encoder."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    test_X: NDArray[np.float32]  # noqa: N815
    test_y: NDArray[np.int64]
    pictures: NDArray[np.uint8]
    reconstructed: NDArray[np.uint8]


def features(name: str, options: TrialOptions, report: Callable[[str], None] = lambda text: None) -> ImageFeatures:
    """Return the features of a data set, if possible from the cache; `report` receives the progress as text."""
    folder = options.cache or cache_folder() / "features"
    with explained("write", f"the cache {folder} (XDG_CACHE_HOME sets another)"):
        compute = Memory(folder, verbose=0).cache(_compute, ignore=["folder", "report"])
        found = compute(name, list(DATASETS[name].sha256.values()), options.quick, options.seed, options.data, report)
    return ImageFeatures(*found)


def prepare_features(options: TrialOptions, report: Callable[[str], None]) -> None:
    """Train an auto-encoder for each data set, unless its features are cached."""
    for name in DATASETS:
        features(name, options, report)


def _compute(
    name: str, files: list[str], quick: bool, seed: int, folder: Path | None, report: Callable[[str], None]
) -> tuple[NDArray[np.generic], ...]:
    """Return the fields of `ImageFeatures`. `files` are the hashes of the image files, as a part of the cache key."""
    from meshnn.paper.autoencoder import encode, reconstruct, train_autoencoder

    data = load_images(name, folder, lambda *done: report("downloading {}: {:,} of {:,} bytes".format(*done)))
    count = 30_000 if quick else len(data.train_images)
    train, labels = data.train_images[:count], data.train_labels[:count].astype(np.int64)
    report(f"training the auto-encoder of {name}")
    net = train_autoencoder(
        train, 2 if quick else 5, seed,
        lambda epoch, error: report(f"auto-encoder of {name}: epoch {epoch}, error {error:.4f}"),
    )  # fmt: skip
    shown = data.test_images[[int(np.flatnonzero(data.test_labels == label)[0]) for label in range(10)]]
    test = encode(net, data.test_images), data.test_labels.astype(np.int64)
    return encode(net, train), labels, *test, shown, reconstruct(net, shown)

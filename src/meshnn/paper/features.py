"""Features of images: an auto-encoder is trained once and cached under the hash of its configuration."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.cli.output import check_output
from meshnn.errors import MeshError
from meshnn.files import explained, replacing
from meshnn.paper.experiment import Json, TrialOptions
from meshnn.paper.mnist import DATASETS, ImageSet, cache_folder, load_images


class ImageFeatures(NamedTuple):
    """32 features per image, and ten test images before and after the auto-encoder."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    test_X: NDArray[np.float32]  # noqa: N815
    test_y: NDArray[np.int64]
    pictures: NDArray[np.uint8]
    reconstructed: NDArray[np.uint8]


def _config(name: str, options: TrialOptions) -> Json:
    return {
        "set": name,
        "files": list(DATASETS[name].sha256.values()),
        "pictures": 30_000 if options.quick else None,
        "epochs": 2 if options.quick else 5,
        "seed": options.seed,
        "code": 1,  # increased when the same configuration gives other features
    }


def _path(name: str, options: TrialOptions) -> Path:
    config = json.dumps(_config(name, options), sort_keys=True)
    stamp = hashlib.sha256(config.encode()).hexdigest()[:16]
    return (options.cache or cache_folder() / "features") / f"{name}-{stamp}.npz"


def features(name: str, options: TrialOptions) -> ImageFeatures:
    """Return the features that `prepare_features` has cached."""
    path = _path(name, options)
    try:
        with np.load(path, allow_pickle=False) as held:
            return ImageFeatures(*(held[field] for field in ImageFeatures._fields))
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise MeshError(f"cannot read the features {path} ({error}); delete the file to compute them anew") from None


def prepare_features(options: TrialOptions, tell: Callable[[str], None]) -> None:
    """Train an auto-encoder for each data set, unless its features are cached."""
    paths = {name: path for name in DATASETS if not (path := _path(name, options)).exists()}
    if not paths:
        return
    # check all paths and files before the training, which takes long
    for path in paths.values():
        with explained("write", f"the cache {path.parent} (XDG_CACHE_HOME sets another)"):
            path.parent.mkdir(parents=True, exist_ok=True)
        check_output("cache", path)
    data = {}
    for name in paths:
        tell(f"reading {name}")
        data[name] = load_images(
            name, options.data, lambda *told: tell("downloading {}: {:,} of {:,} bytes".format(*told))
        )
    for name, path in paths.items():
        _compute(name, data[name], options, path, tell)


def _compute(name: str, data: ImageSet, options: TrialOptions, path: Path, tell: Callable[[str], None]) -> None:
    from meshnn.paper.autoencoder import encode, reconstruct, train_autoencoder

    config = _config(name, options)
    count = config["pictures"] or len(data.train_images)
    train, labels = data.train_images[:count], data.train_labels[:count].astype(np.int64)
    tell(f"training the auto-encoder of {name}")
    net = train_autoencoder(
        train, config["epochs"], options.seed,
        lambda epoch, error: tell(f"auto-encoder of {name}: epoch {epoch} of {config['epochs']}, error {error:.4f}"),
    )  # fmt: skip
    first = [int(np.flatnonzero(data.test_labels == label)[0]) for label in range(10)]  # one of each class
    shown = data.test_images[first]
    held = ImageFeatures(
        encode(net, train), labels, encode(net, data.test_images), data.test_labels.astype(np.int64),
        shown, reconstruct(net, shown),
    )  # fmt: skip
    with replacing(path) as file:
        np.savez_compressed(file, **held._asdict())

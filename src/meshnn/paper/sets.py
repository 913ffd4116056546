"""Data sets of the paper's synthetic experiments with their splits: ours and those of the paper's reference code.

Ours are seeded, balanced, shuffled and split 70/30 with all classes in both parts. The reference code takes the first
70% of the unshuffled rows. Its test set of the spirals has only points of one class, all of them mirror images of
training points; its test set of the double blobs is only the second group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris, make_blobs, make_circles, make_moons
from sklearn.model_selection import StratifiedShuffleSplit, train_test_split

from meshnn.tables import synthetic

__all__ = ["SETS", "Split", "SyntheticSet", "iris_split"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
LabelledPoints = tuple[Floats, Labels]


class Split(NamedTuple):
    """Training and test samples."""

    X: Floats
    y: Labels
    test_X: Floats  # noqa: N815
    test_y: Labels


@dataclass(frozen=True)
class SyntheticSet:
    """A data set of two features."""

    title: str
    hidden: int  # hidden neurons in our protocol
    ours: Callable[..., LabelledPoints]  # function of random_state
    reference: Callable[..., LabelledPoints]
    claim: str = "1.00"  # accuracy in the paper

    def split(self, protocol: str, seed: int) -> Split:
        """Return the training and test samples of a trial."""
        if protocol == "ours":
            X, y = self.ours(random_state=seed)
            X, test_X, y, test_y = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
            return Split(X, y, test_X, test_y)
        X, y = self.reference(random_state=seed)
        count = int(0.7 * len(y))
        return Split(X[:count], y[:count], X[count:], y[count:])


def iris_split(protocol: str, seed: int, trial: int) -> Split:
    """Return 105 training and 45 test samples; the reference code does not stratify and tests on 40 of the 45."""
    X, y = load_iris(return_X_y=True)
    X, y = np.asarray(X, np.float64), np.asarray(y, np.int64)
    if protocol == "paper":
        order = np.random.default_rng([seed, trial]).permutation(150)
        return Split(X[order[:105]], y[order[:105]], X[order[105:145]], y[order[105:145]])
    # the first splits do not depend on their number
    splits = StratifiedShuffleSplit(trial + 1, test_size=45, random_state=seed)
    train, test = list(splits.split(X, y))[trial]
    return Split(X[train], y[train], X[test], y[test])


def _reference_spirals(random_state: int) -> LabelledPoints:
    rng = np.random.default_rng(random_state)
    a = np.sqrt(rng.random(1000)) * np.deg2rad(780)
    first = np.stack([-a * np.cos(a), a * np.sin(a)], axis=1) + 0.1 * rng.random((1000, 2))
    return np.concatenate([first, -first]), np.repeat(np.arange(2), 1000)


def _reference_blobs(random_state: int) -> LabelledPoints:
    X, y = make_blobs(1000, centers=3, cluster_std=[1.0, 2.5, 0.5], random_state=random_state)[:2]
    return X, y.astype(np.int64)


def _reference_double_blobs(random_state: int) -> LabelledPoints:
    groups = [make_blobs(500, centers=3, cluster_std=1.0, random_state=2 * random_state + k)[:2] for k in range(2)]
    return np.concatenate([X for X, _ in groups]), np.concatenate([y for _, y in groups]).astype(np.int64)


SETS = {
    "moons": SyntheticSet("Moons", 5, synthetic.moons, partial(make_moons, 1000, noise=0.1)),
    "circles": SyntheticSet("Circles", 5, synthetic.circles, partial(make_circles, 1000, noise=0.1, factor=0.5)),
    "spirals": SyntheticSet("Spirals", 10, synthetic.spirals, _reference_spirals, "0.94"),
    "blobs": SyntheticSet("Single blobs", 5, synthetic.blobs, _reference_blobs),
    "double-blobs": SyntheticSet("Double blobs", 5, synthetic.double_blobs, _reference_double_blobs),
}

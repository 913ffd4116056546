"""Predictions and scores from the outputs of a net, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.export.blueprint import Blueprint

__all__ = ["as_features", "as_rows", "predicted", "probabilities", "score", "targets_of"]


def as_rows(blueprint: Blueprint, X: Array) -> Array:
    """Return the columns of a table (n, n_columns) whose encoded features are nearest to X; a text is its number."""
    found, first = [], 0
    for column in blueprint.columns:
        part = X[:, first : first + column.width]
        first += column.width
        coded = np.where(part.max(axis=1) > 0, part.argmax(axis=1), column.unseen)
        found.append(coded if column.categories else part[:, 0])
    return np.stack(found, axis=1).astype(np.float64) if found else X


def as_features(blueprint: Blueprint, rows: Array) -> Array:
    """Return the encoded features of such rows."""
    parts = [
        rows[:, [k]] == np.arange(column.width) if column.categories else rows[:, [k]]
        for k, column in enumerate(blueprint.columns)
    ]
    return np.concatenate(parts, axis=1).astype(np.float64) if parts else rows


def predicted(blueprint: Blueprint, outputs: Array) -> Array:
    """Return from outputs (n, n_outputs) of the net numbers of classes, labels (n, n_labels) or values.

    A row of NaN has class -1, see docs/c.md.
    """
    if blueprint.link == "logit":
        return np.where(np.isnan(outputs[:, 0]), -1, outputs[:, 0] < 0).astype(np.int64)
    if blueprint.several:
        return (outputs > 0).astype(np.int64)
    if blueprint.classes:
        return np.where(np.isnan(outputs).any(axis=1), -1, outputs.argmax(axis=1))
    with np.errstate(over="ignore"):
        found = np.exp(outputs) if blueprint.link == "exp" else outputs
    if blueprint.y_mean is not None and blueprint.y_scale is not None:
        found = found * blueprint.y_scale + blueprint.y_mean
    return np.asarray(found)


def probabilities(blueprint: Blueprint, outputs: Array) -> Array:
    """Return the probabilities of classes, or of labels (n, n_classes)."""
    if blueprint.link == "softmax":
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
    shares = 0.5 * (1.0 + np.tanh(0.5 * outputs))
    return np.asarray(np.concatenate([shares, 1.0 - shares], axis=1) if blueprint.link == "logit" else shares)


def targets_of(blueprint: Blueprint, y: Any, size: int) -> Array:
    """Return true answers in the form of `predicted`."""
    found = np.asarray(y)
    if len(found) != size:
        raise DataError(f"X has {size} samples, y {len(found)} answers; pass one each")
    if blueprint.classes and not blueprint.several:
        number = {label: k for k, label in enumerate(blueprint.classes)}
        unknown = [label for label in found.tolist() if label not in number]
        if unknown:
            raise DataError(f"y holds {unknown[0]!r}, which is none of the classes of the model")
        return np.array([number[label] for label in found.tolist()], np.int64)
    return found.reshape(size, -1).astype(np.int64 if blueprint.several else np.float64)


def score(blueprint: Blueprint, outputs: Array, targets: Array) -> tuple[str, float]:
    """Return the name and value of the score: accuracy of classes, R2 of values."""
    found = predicted(blueprint, outputs)
    if blueprint.classes:
        return "accuracy", float((found == targets).mean())
    around = float(np.square(targets - targets.mean(axis=0)).sum())
    return "R2", 1.0 - float(np.square(found - targets).sum()) / (around or 1.0)

"""What outputs say, and how often they are right: in NumPy, for nets that run elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.export.recipe import Recipe

__all__ = ["decided", "loss_of", "score", "targets_of"]


def decided(recipe: Recipe, outputs: Array) -> Array:
    """From outputs (n, n_outputs) in the units of the net: numbers of classes, labels (n, n_labels) or values."""
    if recipe.link == "logit":
        return (outputs[:, 0] < 0).astype(np.int64)
    if recipe.several:
        return (outputs > 0).astype(np.int64)
    if recipe.classes:
        return np.asarray(outputs.argmax(axis=1))
    with np.errstate(over="ignore"):
        found = np.exp(outputs) if recipe.link == "exp" else outputs
    if recipe.y_mean is not None and recipe.y_scale is not None:
        found = found * recipe.y_scale + recipe.y_mean
    return np.asarray(found)


def targets_of(recipe: Recipe, y: Any, size: int) -> Array:
    """True answers, as `decided` gives them."""
    found = np.asarray(y)
    if len(found) != size:
        raise DataError(f"X has {size} samples, y {len(found)} answers; pass one each")
    if recipe.classes and not recipe.several:
        number = {label: k for k, label in enumerate(recipe.classes)}
        unknown = [label for label in found.tolist() if label not in number]
        if unknown:
            raise DataError(f"y holds {unknown[0]!r}, which is none of the classes of the model")
        return np.array([number[label] for label in found.tolist()], np.int64)
    return found.reshape(size, -1).astype(np.int64 if recipe.several else np.float64)


def score(recipe: Recipe, outputs: Array, targets: Array) -> tuple[str, float]:
    """What it is called, and how good it is: accuracy of classes, R2 of values."""
    found = decided(recipe, outputs)
    if recipe.classes:
        return "accuracy", float((found == targets).mean())
    around = float(np.square(targets - targets.mean(axis=0)).sum())
    return "R2", 1.0 - float(np.square(found - targets).sum()) / (around or 1.0)


def loss_of(recipe: Recipe, outputs: Array, targets: Array) -> float:
    """The mean loss: of classes that of their probabilities, of values the squared error in units of their spread."""
    if recipe.link == "softmax":
        top = outputs.max(axis=1)
        total = np.log(np.exp(outputs - top[:, None]).sum(axis=1)) + top
        return float((total - outputs[np.arange(len(outputs)), targets]).mean())
    if recipe.link in ("sigmoid", "logit"):
        wanted = 1 - targets[:, None] if recipe.link == "logit" else targets
        return float((np.logaddexp(0.0, outputs) - wanted * outputs).mean())
    return 1.0 - score(recipe, outputs, targets)[1]

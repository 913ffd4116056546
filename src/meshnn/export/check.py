"""Predictions and scores from the outputs of a net, and checks of exported files: run, and compared with the model."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.export.blueprint import Blueprint
from meshnn.export.c.nets import float_outputs
from meshnn.export.c.run import CLearner, CNet


def as_rows(blueprint: Blueprint, X: Array) -> Array:
    """Return the columns of a table (n, n_columns) whose encoded features are nearest to X; a text is its number."""
    found, first = [], 0
    for column in blueprint.columns:
        part = X[:, first : first + column.width]
        first += column.width
        coded = np.where(part.max(axis=1) > 0, part.argmax(axis=1), column.unseen)
        found.append(coded if column.categories else part[:, 0])
    return np.stack(found, axis=1).astype(np.float64) if found else X


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


def score(blueprint: Blueprint, outputs: Array, y: Any) -> tuple[str, float]:
    """Return the name and value of the score against true answers: accuracy of classes, R2 of values."""
    found, wanted = predicted(blueprint, outputs), np.asarray(y)
    if len(wanted) != len(found):
        raise DataError(f"X has {len(found)} samples, y {len(wanted)} answers; pass one each")
    if blueprint.several:
        return "accuracy", float((found == wanted).mean())
    if blueprint.classes:
        unknown = [label for label in wanted.tolist() if label not in blueprint.classes]
        if unknown:
            raise DataError(f"y holds {unknown[0]!r}, which is none of the classes of the model")
        return "accuracy", float(np.mean([blueprint.classes.index(label) for label in wanted.tolist()] == found))
    wanted = wanted.reshape(found.shape).astype(np.float64)
    around = float(np.square(wanted - wanted.mean(axis=0)).sum())
    return "R2", 1.0 - float(np.square(found - wanted).sum()) / (around or 1.0)


def random_samples(blueprint: Blueprint, count: int) -> Array:
    """Return encoded samples as if features were normal; of a text column the largest one above 0 is the category."""
    z = np.random.default_rng(0).standard_normal((count, blueprint.n_inputs))
    if blueprint.x_mean is not None and blueprint.x_scale is not None:
        z = z * np.where(np.isfinite(blueprint.x_scale), blueprint.x_scale, 1.0) + blueprint.x_mean
    first = 0
    for column in blueprint.columns:
        part = z[:, first : first + column.width]
        if column.categories:
            part[:] = (part == part.max(axis=1, keepdims=True)) & (part > 0)
        first += column.width
    return z


def check_c(model: Any, path: str | PathLike[str], X: Array, net: Any = None) -> str:
    """Compile a C header and compare its outputs; return a sentence, or raise MeshError.

    `net` is the IntegerNet of a header in whole numbers, whose bits it must have.
    """
    blueprint, compiled = model.blueprint(), CNet(path)
    rows = as_rows(blueprint, X)
    wanted = float_outputs(blueprint, X)
    if net is None:
        apart = _apart(compiled.outputs(rows), wanted)
        return f"checked: {len(X):,} predictions of the compiled header agree to {apart:.1g} of the largest output"
    got = compiled.outputs(X if net.coding.whole else compiled.quantise(rows))
    if not np.array_equal(got, net.outputs(net.coding(X))):
        raise MeshError("the compiled header has other bits than the same net in Python")
    bits = f"checked: {len(X):,} predictions have the bits of Python"
    if blueprint.classes:
        same = float((predicted(blueprint, got * net.out_scale) == predicted(blueprint, wanted)).mean())
        return f"{bits}; {same:.1%} are those of the net in floats"
    error = float(np.sqrt(np.mean(np.square(got * net.out_scale - wanted)))) / (float(wanted.std()) or 1.0)
    return f"{bits}; {error:.2%} of their spread off those in floats"


def check_learner(model: Any, path: str | PathLike[str], X: Array) -> str:
    """Let the learner of a C header and that of Python learn random targets, and compare their bits."""
    learner, stream = CLearner(path), model._learner()
    labels = max(len(getattr(model, "classes_", ())), 2)
    targets = np.random.default_rng(1).integers(0, labels, (len(X), 1))
    got, wanted = learner.run(X, targets), stream.run(X, targets)
    if not np.array_equal(got.view(np.uint32), wanted.view(np.uint32)):
        raise MeshError("the compiled learner has other bits than the same stream in Python")
    return f"checked: {len(X):,} samples learned with the bits of Python; {learner.ram_bytes:,} bytes of RAM"


def check_onnx(model: Any, path: str | PathLike[str], X: Array) -> str:
    """Compare the answers of onnxruntime; of nets with memory those of the first step, from a state of zeros."""
    try:
        import onnxruntime
    except ImportError:
        raise MeshError("onnxruntime is not installed; pip install onnxruntime") from None
    blueprint = model.blueprint()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    answers = dict(zip(names, session.run(None, _onnx_inputs(blueprint, session.get_inputs(), X)), strict=True))
    parts = [X] if blueprint.timing is None else [row[None] for row in X]
    outputs = np.concatenate([float_outputs(blueprint, part) for part in parts])
    shares = next((found for name, found in answers.items() if "probabilit" in name), None)
    if shares is not None:
        found = [list(row.values()) for row in shares] if isinstance(shares, list) else shares
        apart = _apart(np.asarray(found), probabilities(blueprint, outputs), 1.0)
    else:
        wanted = predicted(blueprint, outputs) if blueprint.values else outputs
        apart = _apart(np.asarray(next(iter(answers.values()))).reshape(wanted.shape), wanted)
    return f"checked: {len(X):,} predictions of onnxruntime agree to {apart:.1g}"


def _onnx_inputs(blueprint: Blueprint, inputs: Any, X: Array) -> dict[str, Any]:
    if not any(column.categories for column in blueprint.columns):
        zeros = {other.name: np.zeros((len(X), int(other.shape[1])), np.float32) for other in inputs[1:]}
        return {inputs[0].name: X.astype(np.float32)} | zeros
    given = {}
    for value, column, cells in zip(inputs, blueprint.columns, as_rows(blueprint, X).T, strict=True):
        texts = np.array([*column.categories, "never seen"], object)
        given[value.name] = (texts[cells.astype(int)] if column.categories else cells.astype(np.float32))[:, None]
    return given


def _apart(got: Array, wanted: Array, unit: float | None = None, tolerance: float = 1e-4) -> float:
    """Return the largest difference, as a share of the largest output or of a unit; MeshError if it is too large."""
    apart = float(np.abs(got - wanted).max()) / (unit or float(np.abs(wanted).max()) or 1.0)
    if not apart <= tolerance:
        raise MeshError(f"outputs of the exported file are up to {apart:.2g} of the largest apart from the model's")
    return apart

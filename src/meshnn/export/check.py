"""Predictions and scores from the outputs of a net, and comparisons of exported files with the model."""

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
    """Return the table columns (n, n_columns) whose encoded features are nearest to X; a category is its number."""
    found, first = [], 0
    for column in blueprint.columns:
        part = X[:, first : first + column.width]
        first += column.width
        coded = np.where(part.max(axis=1) > 0, part.argmax(axis=1), column.unseen)
        found.append(coded if column.categories else part[:, 0])
    return np.stack(found, axis=1).astype(np.float64) if found else X


def predicted(blueprint: Blueprint, outputs: Array) -> Array:
    """Return the predictions for outputs (n, n_outputs): class numbers, labels (n, n_labels) or values.

    A row of NaN has class -1.
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
    """Return the probabilities (n, n_classes) of the classes or labels."""
    if blueprint.link == "softmax":
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
    shares = 0.5 * (1.0 + np.tanh(0.5 * outputs))
    return np.asarray(np.concatenate([shares, 1.0 - shares], axis=1) if blueprint.link == "logit" else shares)


def score(blueprint: Blueprint, outputs: Array, y: Any) -> tuple[str, float]:
    """Return the name and value of the score on true targets: accuracy for classes, R2 for values."""
    found, wanted = predicted(blueprint, outputs), np.asarray(y)
    if len(wanted) != len(found):
        raise DataError(f"X has {len(found)} samples, but y has {len(wanted)} targets; pass one target per sample")
    if blueprint.several:
        return "accuracy", float((found == wanted).mean())
    if blueprint.classes:
        unknown = [label for label in wanted.tolist() if label not in blueprint.classes]
        if unknown:
            raise DataError(f"y contains {unknown[0]!r}, which is not a class of the model")
        return "accuracy", float(np.mean([blueprint.classes.index(label) for label in wanted.tolist()] == found))
    wanted = wanted.reshape(found.shape).astype(np.float64)
    around = float(np.square(wanted - wanted.mean(axis=0)).sum())
    return "R2", 1.0 - float(np.square(found - wanted).sum()) / (around or 1.0)


def random_samples(blueprint: Blueprint, count: int) -> Array:
    """Return encoded samples drawn from normal features.

    The category of a text column is its largest feature if that is above 0, else none.
    """
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
    """Compile a C header and compare its outputs; return a message, or raise MeshError if they differ.

    If the header holds an integer net, `net` is its IntegerNet, and the outputs must be bit-identical.
    """
    blueprint, compiled = model.blueprint(), CNet(path)
    rows = as_rows(blueprint, X)
    wanted = float_outputs(blueprint, X)
    if net is None:
        error = _relative_error(compiled.outputs(rows), wanted)
        return (
            f"checked: {len(X):,} predictions of the compiled header agree to within {error:.1g} of the largest output"
        )
    got = compiled.outputs(X if net.coding.whole else compiled.quantise(rows))
    if not np.array_equal(got, net.outputs(net.coding(X))):
        raise MeshError("the outputs of the compiled header differ from those of the same integer net in Python")
    bits = f"checked: {len(X):,} predictions are bit-identical to Python"
    if blueprint.classes:
        same = float((predicted(blueprint, got * net.out_scale) == predicted(blueprint, wanted)).mean())
        return f"{bits}; {same:.1%} agree with the float net"
    error = float(np.sqrt(np.mean(np.square(got * net.out_scale - wanted)))) / (float(wanted.std()) or 1.0)
    return f"{bits}; the RMS difference to the float net is {error:.2%} of the standard deviation"


def check_learner(model: Any, path: str | PathLike[str], X: Array) -> str:
    """Train the learner of a C header and that of Python on random targets, and compare the outputs bit by bit."""
    learner, stream = CLearner(path), model._learner()
    labels = max(len(getattr(model, "classes_", ())), 2)
    targets = np.random.default_rng(1).integers(0, labels, (len(X), 1))
    got, wanted = learner.run(X, targets), stream.run(X, targets)
    if not np.array_equal(got.view(np.uint32), wanted.view(np.uint32)):
        raise MeshError("the outputs of the compiled learner differ from those of the same stream in Python")
    return f"checked: {len(X):,} learned samples are bit-identical to Python; {learner.ram_bytes:,} bytes of RAM"


def check_onnx(model: Any, path: str | PathLike[str], X: Array) -> str:
    """Compare the predictions of onnxruntime; for a stateful net, those of the first step from a state of zeros."""
    try:
        import onnxruntime
    except ImportError:
        raise MeshError("onnxruntime is not installed; install it with pip install onnxruntime") from None
    blueprint = model.blueprint()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    answers = dict(zip(names, session.run(None, _onnx_inputs(blueprint, session.get_inputs(), X)), strict=True))
    parts = [X] if blueprint.timing is None else [row[None] for row in X]
    outputs = np.concatenate([float_outputs(blueprint, part) for part in parts])
    shares = next((found for name, found in answers.items() if "probabilit" in name), None)
    if shares is not None:
        found = [list(row.values()) for row in shares] if isinstance(shares, list) else shares
        error = _relative_error(np.asarray(found), probabilities(blueprint, outputs), 1.0)
    else:
        wanted = predicted(blueprint, outputs) if blueprint.values else outputs
        error = _relative_error(np.asarray(next(iter(answers.values()))).reshape(wanted.shape), wanted)
    return f"checked: {len(X):,} predictions of onnxruntime agree to within {error:.1g}"


def _onnx_inputs(blueprint: Blueprint, inputs: Any, X: Array) -> dict[str, Any]:
    if not any(column.categories for column in blueprint.columns):
        zeros = {other.name: np.zeros((len(X), int(other.shape[1])), np.float32) for other in inputs[1:]}
        return {inputs[0].name: X.astype(np.float32)} | zeros
    given = {}
    for value, column, cells in zip(inputs, blueprint.columns, as_rows(blueprint, X).T, strict=True):
        texts = np.array([*column.categories, "never seen"], object)
        given[value.name] = (texts[cells.astype(int)] if column.categories else cells.astype(np.float32))[:, None]
    return given


def _relative_error(got: Array, wanted: Array, unit: float | None = None, tolerance: float = 1e-4) -> float:
    """Return the largest difference relative to `unit`, by default the largest output; refuse one over tolerance."""
    error = float(np.abs(got - wanted).max()) / (unit or float(np.abs(wanted).max()) or 1.0)
    if not error <= tolerance:
        raise MeshError(
            f"the outputs of the exported file differ from the model's: relative error {error:.2g}, expected at most "
            f"{tolerance:.0e}"
        )
    return error

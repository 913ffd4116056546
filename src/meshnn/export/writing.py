"""From a model and samples to a C header, with a report on what became of it."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from meshnn.arguments import known, switch
from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.export import c
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.exports import Exports
from meshnn.export.judging import score, targets_of
from meshnn.export.quantise import float_outputs

__all__ = ["write_c"]


def write_c(
    model: Exports,
    path: str | PathLike[str],
    dtype: str,
    optimize: str,
    name: str | None,
    X: Any,
    y: Any,
    tune: bool,
    learn: bool = False,
) -> c.CReport:
    """See `Exports.to_c`."""
    known("dtype", dtype, c.DTYPES)
    known("optimize", optimize, ("size", "speed"))
    shown = c.name_of(path, name)  # refused before any work
    blueprint = model.blueprint()
    if switch("learn", learn):
        if dtype != "float32":
            raise ExportError(f'a learner is in float32, not in {dtype}; use dtype="float32", or learn=False')
        return c.write_learner_of(model._learner(), blueprint, path, shown)
    samples = None if X is None else _samples(blueprint, X)
    if y is not None and samples is None:
        raise DataError("y is given, but no X to predict it from; pass both, or none")
    truth = None if y is None or samples is None else targets_of(blueprint, y, len(samples))
    notes = []
    if truth is not None and samples is not None:
        what, found = score(blueprint, float_outputs(blueprint, samples), truth)
        notes.append(f"{what} on the {len(samples):,} {_word(samples)} handed over: {found:.4f} in floats")
    if dtype == "float32":
        return c.write_float(blueprint, path, optimize, name, tuple(notes))
    quantiser, net = c.integer_net(blueprint, samples, dtype)
    if samples is None:
        notes.append("no samples were handed over: scales are those of features that are normal")
    elif switch("tune", tune):
        net = model._tuned(quantiser, net, samples)
    if truth is not None and samples is not None:
        found = score(blueprint, net.outputs(quantiser.coding(samples)) * net.out_scale, truth)[1]
        notes[-1] += f", {found:.4f} in {dtype}"
    return c.write_integer(net, path, optimize, name, tuple(notes))


def _word(samples: Array) -> str:
    return "sample" if len(samples) == 1 else "samples"


def _samples(blueprint: Blueprint, X: Any) -> Array:
    try:
        found = np.asarray(X, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X must be a table of numbers ({error})") from None
    if found.ndim != 2 or found.shape[1] != blueprint.n_inputs or not len(found):
        raise DataError(f"X must have shape (n, {blueprint.n_inputs}) with n > 0, got {found.shape}")
    if not np.isfinite(found).all() and not np.isfinite(blueprint.x_cut):
        raise DataError("X holds numbers that are not finite; leave such samples out")
    return found

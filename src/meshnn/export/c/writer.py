"""`write_c`: from a model and samples to a C header, with a report."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.arguments import known, switch
from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c.header import net_header
from meshnn.export.c.integer import IntegerNet
from meshnn.export.c.layout import Layout
from meshnn.export.c.learner import learner_bytes, learner_header
from meshnn.export.c.quantise import Quantiser
from meshnn.export.c.reference import FloatNet, float_outputs
from meshnn.export.c.text import Tables, check_name, plain
from meshnn.export.scoring import score, targets_of
from meshnn.files import write_whole

__all__ = ["CReport", "write_c", "write_net"]


@dataclass(frozen=True)
class CReport:
    """What was written; print it.

    Attributes
    ----------
    path, dtype : str
    n_edges, multiply_adds : int
        Edges that are used, and products per prediction or per step.
    table_bytes, ram_bytes : int
        Tables in flash, besides code (which holds the weights if it is without loops), and RAM of a call besides a few
        words.
    notes : tuple of str
        The accuracy, if it is known, and other remarks.
    net : IntegerNet or None
        The net in whole numbers, which has the bits of the header in Python: `net.outputs(net.coding(X))`.
    """

    path: str
    dtype: str
    n_edges: int
    multiply_adds: int
    table_bytes: int
    ram_bytes: int
    notes: tuple[str, ...] = ()
    net: IntegerNet | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.dtype}, {self.n_edges:,} edges, {self.multiply_adds:,} multiply-adds",
            f"  {self.table_bytes:,} bytes of tables in flash besides code, {self.ram_bytes:,} bytes of RAM",
            *(f"  {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def write_c(
    model: Any, path: str | PathLike[str], *, dtype: str, optimize: str, name: str | None, X: Any, y: Any, tune: bool,
    learn: bool,
) -> CReport:  # fmt: skip
    """Write a model as a header, see `Exports.to_c`."""
    known("dtype", dtype, ("float32", "int8", "int16"))
    known("optimize", optimize, ("size", "speed"))
    name = _name_of(path, name)  # refused before any work
    blueprint: Blueprint = model.blueprint()
    if switch("learn", learn):
        if dtype != "float32":
            raise ExportError(f'a learner is in float32, not in {dtype}; use dtype="float32", or learn=False')
        return _write_learner(model, blueprint, path, name)
    samples = None if X is None else _samples(model, blueprint, X)
    if y is not None and samples is None:
        raise DataError("y is given, but no X to predict it from; pass both, or none")
    truth = None if y is None or samples is None else targets_of(blueprint, y, len(samples))
    notes = []
    if truth is not None and samples is not None:
        what, found = score(blueprint, float_outputs(blueprint, samples), truth)
        counted = f"{len(samples):,} sample{'s' * (len(samples) != 1)}"
        notes.append(f"{what} on the {counted} passed: {found:.4f} in floats")
    if dtype == "float32":
        return write_net(FloatNet(Layout(blueprint, padded=False, size=4)), path, optimize, name, tuple(notes))
    quantiser = Quantiser(blueprint, samples, 8 if dtype == "int8" else 16)
    net = quantiser()
    if samples is None:
        notes.append("scales are from the ranges of the training rows; with X= weights are also rounded together")
    elif switch("tune", tune):
        net = model._tuned(quantiser, net, samples)
    if truth is not None and samples is not None:
        found = score(blueprint, net.outputs(quantiser.coding(samples)) * net.out_scale, truth)[1]
        notes[-1] += f", {found:.4f} in {dtype}"
    return write_net(net, path, optimize, name, tuple(notes))


def write_net(
    net: FloatNet | IntegerNet, path: str | PathLike[str], optimize: str, name: str, notes: tuple[str, ...] = ()
) -> CReport:
    """Write a net in floats or whole numbers as a header."""
    integer = net if isinstance(net, IntegerNet) else None
    size, layout = 4 if integer is None else integer.bits // 8, net.layout
    text, table_bytes = net_header(net, name, optimize, notes)
    write_whole(path, [text.encode()])
    ram = size * (layout.n_slots + (0 if layout.once else layout.n_rows)) + 4 * net.blueprint.n_outputs
    dtype = "float32" if integer is None else f"int{integer.bits}"
    return CReport(fsdecode(path), dtype, layout.n_edges, layout.multiply_adds, table_bytes, ram, notes, integer)


def _write_learner(model: Any, blueprint: Blueprint, path: str | PathLike[str], name: str) -> CReport:
    """Write a header with a portable stream in it."""
    if any(column.categories for column in blueprint.columns):
        raise ExportError("a learner takes numbers, and this model has text columns; use learn=False")
    stream, tables = model._learner(), Tables()
    text = learner_header(stream, name, _names(blueprint), tables)
    write_whole(path, [text.encode()])
    layout, n = Layout(blueprint, padded=False, size=4), len(stream.parameters)
    notes = (f"with a learner ({stream.learner.name}) of {n} parameters; multiply-adds are those without learning",)
    sizes = tables.bytes, learner_bytes(stream)
    return CReport(fsdecode(path), "float32", layout.n_edges, layout.multiply_adds, *sizes, notes)


def _name_of(path: str | PathLike[str], name: str | None) -> str:
    """Return the prefix of the names in the header: as asked for, or after the file."""
    if name is not None:
        return check_name(name)
    stem = "".join(c if c.isalnum() and c.isascii() else "_" for c in Path(fsdecode(path)).stem)
    return check_name((stem if stem[:1].isalpha() else f"net_{stem}")[:30])


def _names(blueprint: Blueprint) -> list[str]:
    """Return what inputs and classes of a learner are called."""
    found = [f"x[{k}]: {plain(name)}" for k, name in enumerate(blueprint.features)]
    labels = [plain(label) for label in blueprint.classes]
    if blueprint.link == "logit":  # one output, the logit of the first of two classes
        return [
            *found, f"y[0] above 0, target[0] = 1: class {labels[0]}", f"y[0] below 0, target[0] = 0: class {labels[1]}"
        ]  # fmt: skip
    if blueprint.several:
        return found + [f"y[{k}] above 0, target[{k}] = 1: it has label {label}" for k, label in enumerate(labels)]
    return found + [f"y[{k}] the largest, target[0] = {k}: class {label}" for k, label in enumerate(labels)]


def _samples(model: Any, blueprint: Blueprint, X: Any) -> Array:
    """Return samples as encoded features (n, n_inputs)."""
    encoded = model._encoded_samples(X)
    try:
        found = np.asarray(encoded, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X must be a table of numbers ({error})") from None
    if found.ndim != 2 or found.shape[1] != blueprint.n_inputs or not len(found):
        raise DataError(f"X must have shape (n, {blueprint.n_inputs}) with n > 0, got {found.shape}")
    if not np.isfinite(found).all() and not np.isfinite(blueprint.x_cut):
        raise DataError("X holds numbers that are not finite; leave such samples out")
    return found

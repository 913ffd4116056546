"""`write_c`: writes a model as a C header, with a report."""

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
from meshnn.export.c.header import Header
from meshnn.export.c.layout import Layout
from meshnn.export.c.learner import learner_bytes, learner_header
from meshnn.export.c.nets import FloatNet, IntegerNet, ReferenceNet, float_outputs
from meshnn.export.c.quantise import Quantiser
from meshnn.export.c.text import Tables, check_name, plain, render
from meshnn.export.check import score
from meshnn.files import write_whole

__all__ = ["CReport", "write_c"]


@dataclass(frozen=True)
class CReport:
    """A report of the written file, to be printed.

    Attributes
    ----------
    path, dtype : str
    n_edges, multiply_adds : int
        Stored edges, and products per prediction or per step.
    table_bytes, ram_bytes : int
        Tables in flash, besides code (which contains the weights if there are no loops), and RAM per call, without
        saved registers.
    notes : tuple of str
        The accuracy, if it is known, and other notes.
    net : IntegerNet or None
        The integer net, which is bit-identical to the header: `net.outputs(net.coding(X))`.
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
        first = f"{self.path}: {self.dtype}, {self.n_edges:,} edges, {self.multiply_adds:,} multiply-adds"
        sizes = f"{self.table_bytes:,} bytes of tables in flash besides code, {self.ram_bytes:,} bytes of RAM"
        return "\n  ".join([first, sizes, *self.notes])


def write_c(
    model: Any, path: str | PathLike[str], *, dtype: str, optimize: str, name: str | None, X: Any, y: Any, tune: bool,
    learn: bool,
) -> CReport:  # fmt: skip
    """Write a model as a header, see `Exports.to_c`."""
    known("dtype", dtype, ("float32", "int8", "int16"))
    known("optimize", optimize, ("size", "speed"))
    name = _name_of(path, name)  # invalid names are an error before any computation
    blueprint: Blueprint = model.blueprint()
    if switch("learn", learn):
        if dtype != "float32":
            raise ExportError(f'learn=True needs dtype="float32", got {dtype}; change one of the two')
        return _write_learner(model, blueprint, path, name)
    samples = None if X is None else _samples(model, blueprint, X)
    if y is not None and samples is None:
        raise DataError("y is given without X; pass both, or none")
    net: ReferenceNet = FloatNet(Layout(blueprint, padded=False, size=4))
    notes = []
    if dtype != "float32":
        quantiser = Quantiser(blueprint, samples, 8 if dtype == "int8" else 16)
        net = quantiser()
        if samples is None:
            notes.append("scales are from the ranges of the training rows; X= (--data) also rounds weights better")
        elif switch("tune", tune):
            net = model._tuned(quantiser, net, samples)
    if y is not None and samples is not None:
        what, found = score(blueprint, float_outputs(blueprint, samples), y)
        note = f"{what} on the {len(samples):,} sample{'s' * (len(samples) != 1)} passed: {found:.4f} in floats"
        if isinstance(net, IntegerNet):
            found = score(blueprint, net.outputs(net.coding(samples)) * net.out_scale, y)[1]
            note += f", {found:.4f} in {dtype}"
        notes.append(note)
    return write_net(net, path, optimize, name, tuple(notes))


def write_net(
    net: ReferenceNet, path: str | PathLike[str], optimize: str, name: str, notes: tuple[str, ...] = ()
) -> CReport:
    """Write a float or integer net as a header."""
    layout, integer = net.layout, net if isinstance(net, IntegerNet) else None
    header = Header(net, name, optimize, notes)
    write_whole(path, [render("net.h.j2", **vars(header)).encode()])
    ram = net.size * (layout.n_slots + (0 if layout.once else layout.n_rows)) + 4 * net.blueprint.n_outputs
    return CReport(
        fsdecode(path), net.dtype, layout.n_edges, layout.multiply_adds, header.tables.bytes, ram, notes, integer
    )


def _write_learner(model: Any, blueprint: Blueprint, path: str | PathLike[str], name: str) -> CReport:
    """Write a header with a portable stream."""
    if any(column.categories for column in blueprint.columns):
        raise ExportError("learn=True needs numeric features, but this model has text columns; use learn=False")
    stream, tables = model._learner(), Tables()
    text = learner_header(stream, name, _names(blueprint), tables)
    write_whole(path, [text.encode()])
    layout, n = Layout(blueprint, padded=False, size=4), len(stream.parameters)
    notes = (f"with a learner ({stream.learner.name}) of {n} parameters; multiply-adds are those without learning",)
    sizes = tables.bytes, learner_bytes(stream)
    return CReport(fsdecode(path), "float32", layout.n_edges, layout.multiply_adds, *sizes, notes)


def _name_of(path: str | PathLike[str], name: str | None) -> str:
    """Return the prefix of the names in the header: `name`, by default the name of the file."""
    if name is not None:
        return check_name(name)
    stem = "".join(c if c.isalnum() and c.isascii() else "_" for c in Path(fsdecode(path)).stem)
    return check_name((stem if stem[:1].isalpha() else f"net_{stem}")[:30])


def _names(blueprint: Blueprint) -> list[str]:
    """Return lines that describe the inputs and classes of a learner."""
    labels = [plain(label) for label in blueprint.classes]
    if blueprint.link == "logit":  # one output, the logit of the first of two classes
        pairs = zip((("above", 1), ("below", 0)), labels, strict=True)
        meanings = [f"y[0] {side} 0, target[0] = {k}: class {label}" for (side, k), label in pairs]
    elif blueprint.several:
        meanings = [f"y[{k}] above 0, target[{k}] = 1: it has label {label}" for k, label in enumerate(labels)]
    else:
        meanings = [f"y[{k}] the largest, target[0] = {k}: class {label}" for k, label in enumerate(labels)]
    return [f"x[{k}]: {plain(name)}" for k, name in enumerate(blueprint.features)] + meanings


def _samples(model: Any, blueprint: Blueprint, X: Any) -> Array:
    """Return samples as encoded features (n, n_inputs)."""
    try:
        found = np.asarray(model._encoded_samples(X), np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X must be a table of numbers ({error})") from None
    if found.ndim != 2 or found.shape[1] != blueprint.n_inputs or not len(found):
        raise DataError(f"X must have shape (n, {blueprint.n_inputs}) with n > 0, got {found.shape}")
    if not np.isfinite(found).all() and not np.isfinite(blueprint.x_cut):
        raise DataError("X holds numbers that are not finite; leave such samples out")
    return found

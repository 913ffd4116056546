"""`to_c`: a trained net as one C header."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.arguments import known
from meshnn.arrays import Array
from meshnn.export.blueprint import Blueprint
from meshnn.export.c_float import float_header
from meshnn.export.c_integer import integer_header
from meshnn.export.c_layout import Layout
from meshnn.export.c_learner import learner_bytes, learner_header
from meshnn.export.c_text import check_name, table_bytes
from meshnn.export.integer import IntegerNet
from meshnn.export.quantise import Quantiser
from meshnn.files import write_whole

__all__ = ["DTYPES", "CReport", "integer_net", "name_of", "write_float", "write_integer", "write_learner_of"]

DTYPES = ("float32", "int8", "int16")


@dataclass(frozen=True)
class CReport:
    """What was written; print it.

    Attributes
    ----------
    path, dtype : str
    n_edges, multiply_adds : int
        Edges that are used, and products of a prediction, or of a step.
    table_bytes, ram_bytes : int
        Tables in flash, besides code, which has the weights if it is without loops; and what a call needs of RAM
        besides a few words.
    notes : tuple of str
        How good it is, if that is known, and what else ought to be known.
    net : IntegerNet or None
        The net in whole numbers, which gives the bits of the header in Python: `net.outputs(net.coding(X))`.
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


def name_of(path: str | PathLike[str], name: str | None) -> str:
    """What the names in the header begin with: as asked for, or after the file."""
    if name is not None:
        return check_name(name)
    stem = "".join(c if c.isalnum() and c.isascii() else "_" for c in Path(fsdecode(path)).stem)
    return check_name((stem if stem[:1].isalpha() else f"net_{stem}")[:30])


def write_float(
    blueprint: Blueprint, path: str | PathLike[str], optimize: str, name: str | None, notes: tuple[str, ...] = ()
) -> CReport:
    """A header in float32."""
    known("optimize", optimize, ("size", "speed"))
    layout = Layout(blueprint, padded=False, size=4)
    top = _top(blueprint, layout, "float32", notes)
    text = float_header(blueprint, name_of(path, name), optimize, top)
    write_whole(path, [text.encode()])
    ram = 4 * (layout.n_slots + (0 if layout.once else layout.n_rows) + blueprint.n_outputs)
    return CReport(fsdecode(path), "float32", layout.n_edges, layout.multiply_adds, table_bytes(text), ram, notes)


def integer_net(blueprint: Blueprint, X: Array | None, dtype: str) -> tuple[Quantiser, IntegerNet]:
    """The net in whole numbers; without samples features are taken to be normal."""
    found = np.zeros((0, blueprint.n_inputs)) if X is None else np.asarray(X, np.float64)
    quantiser = Quantiser(blueprint, found, 8 if dtype == "int8" else 16)
    return quantiser, quantiser()


def write_integer(
    net: IntegerNet, path: str | PathLike[str], optimize: str, name: str | None, notes: tuple[str, ...] = ()
) -> CReport:
    """A header in whole numbers."""
    known("optimize", optimize, ("size", "speed"))
    dtype, layout = f"int{net.bits}", net.layout
    top = _top(net.blueprint, layout, dtype, notes)
    text = integer_header(net, name_of(path, name), optimize, top)
    write_whole(path, [text.encode()])
    ram = net.bits // 8 * (layout.n_slots + (0 if layout.once else layout.n_rows)) + 4 * net.blueprint.n_outputs
    return CReport(fsdecode(path), dtype, layout.n_edges, layout.multiply_adds, table_bytes(text), ram, notes, net)


def write_learner_of(stream: Any, blueprint: Blueprint, path: str | PathLike[str], name: str) -> CReport:
    """A header with a portable stream in it."""
    text = learner_header(stream, name, _names(blueprint))
    write_whole(path, [text.encode()])
    layout, n = Layout(blueprint, padded=False, size=4), len(stream.parameters)
    notes = (f"with a learner ({stream.learner.name}) of {n} parameters; multiply-adds are those without learning",)
    sizes = table_bytes(text), learner_bytes(stream)
    return CReport(fsdecode(path), "float32", layout.n_edges, layout.multiply_adds, *sizes, notes)


def _names(blueprint: Blueprint) -> list[str]:
    """What inputs and classes are called, for whoever fills x and reads targets."""
    found = [f"x[{k}]: {name}" for k, name in enumerate(blueprint.features)]
    if blueprint.link == "logit":  # one output, the logit of the first of two classes
        one, other = blueprint.classes
        return [*found, f"y[0] above 0, target[0] = 1: class {one}", f"y[0] below 0, target[0] = 0: class {other}"]
    if blueprint.several:
        return found + [f"y[{k}] above 0, target[{k}] = 1: it has label {c}" for k, c in enumerate(blueprint.classes)]
    return found + [f"y[{k}] the largest, target[0] = {k}: class {label}" for k, label in enumerate(blueprint.classes)]


def _top(blueprint: Blueprint, layout: Layout, dtype: str, notes: tuple[str, ...]) -> list[str]:
    """How the comment of a header begins."""
    dead = len(blueprint.src) - int(blueprint.alive.sum())
    left_out = f" ({dead} dead ones are left out)" if dead else ""
    ticks = f"{blueprint.ticks} ticks" if blueprint.timing is None else f"{blueprint.timing.per_step} ticks a step"
    return [
        blueprint.title,
        "",
        f"Written by meshnn {version('meshnn')}: {dtype}, {blueprint.n_inputs} inputs, {layout.n_rows} neurons that "
        f"are computed, {blueprint.n_outputs} of them outputs,",
        f"{layout.n_edges} edges{left_out}, {ticks}, {layout.multiply_adds} multiply-adds "
        f"{'a prediction' if blueprint.timing is None else 'a step'}.",
        *notes,
    ]

"""`to_c`: a trained net as one C header."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any

from meshnn.arguments import known
from meshnn.export.c_float import float_header
from meshnn.export.c_layout import Layout
from meshnn.export.c_text import check_name
from meshnn.export.recipe import Recipe
from meshnn.files import write_whole

__all__ = ["CReport", "to_c"]

DTYPES = ("float32", "int8", "int16")


@dataclass(frozen=True)
class CReport:
    """What was written; print it."""

    path: str
    dtype: str
    n_edges: int
    multiply_adds: int
    table_bytes: int
    ram_bytes: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.dtype}, {self.n_edges} edges, {self.multiply_adds} multiply-adds",
            f"  {self.table_bytes} bytes of tables in flash besides code, {self.ram_bytes} bytes of RAM",
            *(f"  {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def to_c(
    recipe: Recipe,
    path: str | PathLike[str],
    *,
    dtype: str = "float32",
    optimize: str = "size",
    name: str | None = None,
    **more: Any,
) -> CReport:
    """Write a header; see `Exports.to_c`."""
    known("dtype", dtype, DTYPES)
    known("optimize", optimize, ("size", "speed"))
    stem = "".join(c if c.isalnum() and c.isascii() else "_" for c in Path(fsdecode(path)).stem)
    name = check_name((stem if stem[:1].isalpha() else f"net_{stem}")[:30] if name is None else name)
    layout = Layout(recipe, padded=False, size=4)
    text = float_header(recipe, name, optimize, top_lines(recipe, layout, "float32"))
    write_whole(path, [text.encode()])
    tables = 4 * len(layout.weights()) + 4 * layout.n_rows
    return CReport(fsdecode(path), dtype, layout.n_edges, layout.multiply_adds, tables, 4 * layout.n_slots)


def top_lines(recipe: Recipe, layout: Layout, dtype: str) -> list[str]:
    """How the comment of a header begins."""
    from meshnn import __version__

    dead = len(recipe.src) - int(recipe.alive.sum())
    ticks = f"{recipe.ticks} ticks" if recipe.timing is None else f"{recipe.timing.per_step} ticks a step"
    lines = [
        f"{recipe.title}",
        "",
        f"Written by meshnn {__version__}. {recipe.n_inputs} inputs, {layout.n_rows} neurons that are computed,",
        f"{recipe.n_outputs} outputs; {layout.n_edges} edges ({dead} dead ones are left out), {ticks}, {dtype}:",
        f"{layout.multiply_adds} multiply-adds {'a prediction' if recipe.timing is None else 'a step'}.",
    ]
    return lines + [f"{key}: {value}" for key, value in recipe.notes.items()]

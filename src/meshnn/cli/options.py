"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "By", "MeshFile", "Picture", "Target"]

AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
MeshFile = Annotated[Path, typer.Argument(help="The model, a .mesh file.", show_default=False)]
Target = Annotated[str | None, typer.Option("--target", "-y", help="The column to predict.", show_default=False)]
By = Annotated[
    str | None,
    typer.Option("--by", help="The column that orders the rows, numbers or times.", show_default=False),
]
Picture = Annotated[
    Path | None, typer.Option("--picture", help="The picture to write: .png, .svg or .pdf.", show_default=False)
]

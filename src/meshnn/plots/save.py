"""Figures to files: the same figure gives the same bytes."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from meshnn.errors import MeshError
from meshnn.files import write_whole
from meshnn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_figure_path", "save_figure"]

#: Metadata that would change from one run to the next, by kind of file; None leaves it out.
_UNDATED = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}


def check_figure_path(path: str | os.PathLike[str]) -> Path:
    """The path, if a figure can be written to a file of that ending; for those who want to know before they draw.

    >>> from meshnn.plots import check_figure_path
    >>> check_figure_path("net.svg").name
    'net.svg'
    """
    target = Path(path)
    if target.suffix.lower().removeprefix(".") not in _UNDATED:
        got = f"ends in {target.suffix!r}" if target.suffix else "has no ending"
        raise MeshError(f"cannot save a figure to {str(target)!r}, which {got}; use .svg, .png or .pdf")
    return target


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: float = 150) -> None:
    """Write a figure as .svg, .png or .pdf. Nothing is left behind, and nothing overwritten, if it fails.

    Text in an SVG is drawn as outlines: it looks the same wherever it is opened, whichever fonts are there.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    path : path-like
        Its ending decides the format.
    dpi : float
        Dots per inch of a .png.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from meshnn.plots import save_figure
    >>> save_figure(Figure(), "net.bmp")
    Traceback (most recent call last):
        ...
    meshnn.errors.MeshError: cannot save a figure to 'net.bmp', which ends in '.bmp'; use .svg, .png or .pdf
    """
    style.require_matplotlib()
    target = check_figure_path(path)
    kind = target.suffix.lower().removeprefix(".")
    content = io.BytesIO()
    with style.clean_style():
        figure.savefig(content, format=kind, dpi=dpi, metadata=_UNDATED[kind])
    write_whole(target, [content.getvalue()])

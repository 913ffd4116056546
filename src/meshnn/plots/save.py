"""Save figures, byte by byte reproducible, and animations as GIF files."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MeshError
from meshnn.files import write_whole
from meshnn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "as_picture", "check_figure_path", "save_figure", "save_frames"]

#: An image as an array of pixels (height, width, 3).
Picture = NDArray[np.uint8]


def check_figure_path(path: str | os.PathLike[str]) -> Path:
    """Return the path if its ending is .svg, .png or .pdf; raise a `MeshError` otherwise.

    >>> from meshnn.plots import check_figure_path
    >>> check_figure_path("net.svg").name
    'net.svg'
    """
    target = Path(path)
    if target.suffix.lower() not in (".svg", ".png", ".pdf"):
        got = f"ends in {target.suffix!r}" if target.suffix else "has no ending"
        raise MeshError(f"cannot save a figure to {str(target)!r}, which {got}; use .svg, .png or .pdf")
    return target


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: float = 150) -> None:
    """Write a figure as .svg, .png or .pdf. An error leaves an existing file unchanged.

    Text in an SVG is drawn as outlines, so it looks the same without our fonts.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure to save.
    path : path-like
        File to write. The ending decides the format.
    dpi : float
        Resolution of a .png in dots per inch.

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
    volatile = {"svg": "Date", "png": "Software", "pdf": "CreationDate"}  # metadata that differs between runs
    content = io.BytesIO()
    with style.clean_style():
        figure.savefig(content, format=kind, dpi=dpi, metadata={volatile[kind]: None})
    write_whole(target, [content.getvalue()])


def as_picture(figure: Figure) -> Picture:
    """Return the pixels of a figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def save_frames(pictures: Sequence[Picture], path: Path) -> None:
    """Write an animation as a .gif: 90 ms per frame, 1.8 s for the last one."""
    from PIL import Image

    content = io.BytesIO()
    # one palette for all frames, so that colours do not flicker
    sample = np.concatenate([pictures[k] for k in np.linspace(0, len(pictures) - 1, 5).astype(int)])
    palette = Image.fromarray(sample).quantize(96, dither=Image.Dither.NONE)
    frames = [Image.fromarray(p).quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures]
    durations = [90] * (len(frames) - 1) + [1800]
    options: dict[str, Any] = {"append_images": frames[1:], "duration": durations, "loop": 0, "optimize": True}
    frames[0].save(content, format="GIF", save_all=True, **options)
    write_whole(path, [content.getvalue()])

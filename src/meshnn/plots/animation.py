"""Pictures one after the other, as a GIF."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshnn.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "as_picture", "save_frames"]

Picture = NDArray[np.uint8]
#: Colours of a GIF, and milliseconds of a frame and of the last one.
COLOURS, DURATION, LAST = 96, 90, 1800


def as_picture(figure: Figure) -> Picture:
    """The pixels (height, width, 3) of a figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def save_frames(pictures: Sequence[Picture], path: Path) -> None:
    """Write a .gif."""
    from PIL import Image

    content = io.BytesIO()
    # one palette for all frames, from several of them: colours do not flicker
    sample = np.concatenate([pictures[k] for k in np.linspace(0, len(pictures) - 1, 5).astype(int)])
    palette = Image.fromarray(sample).quantize(COLOURS, dither=Image.Dither.NONE)
    frames = [Image.fromarray(p).quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures]
    durations = [DURATION] * (len(frames) - 1) + [LAST]
    options: dict[str, Any] = {"append_images": frames[1:], "duration": durations, "loop": 0, "optimize": True}
    frames[0].save(content, format="GIF", save_all=True, **options)
    write_whole(path, [content.getvalue()])

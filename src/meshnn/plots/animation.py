"""Decision regions while a net learns, as a GIF and, where ffmpeg is installed, an MP4."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn.files import write_whole
from meshnn.plots import style

__all__ = ["animate_regions", "save_frames"]

Bounds = tuple[float, float, float, float]
#: Cells along each side, colours of a GIF, and milliseconds of a frame and of the last one.
RESOLUTION, COLOURS, DURATION, LAST = 120, 48, 90, 1800


def animate_regions(
    frames: Sequence[tuple[Callable[[NDArray[np.float64]], ArrayLike], str]],
    bounds: Bounds,
    points: ArrayLike,
    labels: ArrayLike,
    size: float = 4.0,
    dpi: int = 80,
) -> list[NDArray[np.uint8]]:
    """Pictures (height, width, 3) of what each net decides, with the points on top.

    Parameters
    ----------
    frames : sequence of (decide, title)
        `decide` gives probabilities (m, k) of m pairs of features.
    bounds : (left, right, bottom, top)
    points, labels : array_like (p, 2), (p,)
        Labels are numbers from 0.
    size, dpi : float, int
        Inches along each side and dots in an inch.
    """
    style.require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    xy, y = np.asarray(points, np.float64), np.asarray(labels, np.int64)
    left, right, bottom, top = bounds
    across = left + (right - left) * (np.arange(RESOLUTION) + 0.5) / RESOLUTION
    up = bottom + (top - bottom) * (np.arange(RESOLUTION) + 0.5) / RESOLUTION
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    palette = np.array([to_rgb(colour) for colour in style.CLASSES])
    with style.clean_style():
        figure = Figure(figsize=(size, size + 0.3), dpi=dpi)
        canvas: Any = FigureCanvasAgg(figure)
        ax = figure.add_axes((0.02, 0.02, 0.96, 0.96 * size / (size + 0.3)))
        ax.set_axis_off()
        image = ax.imshow(np.ones((RESOLUTION, RESOLUTION, 3)), extent=bounds, origin="lower", aspect="auto")
        ax.scatter(xy[:, 0], xy[:, 1], s=9, c=0.75 * palette[y % len(palette)], edgecolors="white", linewidths=0.3)
        ax.set_xlim(left, right)
        ax.set_ylim(bottom, top)
        title = figure.text(0.02, 0.985, "", ha="left", va="top", fontsize=style.TEXT, color=style.INK)
        pictures = []
        for decide, text in frames:
            image.set_data(_colours(np.asarray(decide(grid), np.float64), palette))
            title.set_text(text)
            canvas.draw()
            pictures.append(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
    return pictures


def _colours(answer: NDArray[np.float64], palette: NDArray[np.float64]) -> NDArray[np.float64]:
    k = answer.shape[1]
    answer = np.nan_to_num(answer, nan=1 / k)
    sure = np.clip((answer.max(axis=1) - 1 / k) / (1 - 1 / k), 0, 1)
    # few steps of depth: neighbours of the same colour make a GIF small
    depth = (0.15 + 0.45 * np.round(4 * sure) / 4)[:, None]
    picture = 1 - depth * (1 - palette[answer.argmax(axis=1) % len(palette)])
    return np.asarray(picture.reshape(RESOLUTION, RESOLUTION, 3))


def save_frames(pictures: Sequence[NDArray[np.uint8]], path: Path) -> list[Path]:
    """Write a .gif, and an .mp4 beside it if ffmpeg is there; the paths that were written."""
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
    film = path.with_suffix(".mp4")
    return [path, film] if _save_film(pictures, film) else [path]


def _save_film(pictures: Sequence[NDArray[np.uint8]], path: Path) -> bool:
    """Whether ffmpeg is there and could write it."""
    program = shutil.which("ffmpeg")
    if program is None:
        return False
    even = [p[: p.shape[0] // 2 * 2, : p.shape[1] // 2 * 2] for p in pictures]  # the codec wants even sides
    even += [even[-1]] * (LAST // DURATION)
    height, width = even[0].shape[:2]
    rate, size = f"{1000 / DURATION:.3f}", f"{width}x{height}"
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", rate, "-i", "-"]
    target = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    command = [program, "-y", "-loglevel", "error", *source, *target]
    data = b"".join(np.ascontiguousarray(p).tobytes() for p in even)
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    if done.returncode != 0:
        path.unlink(missing_ok=True)
    return done.returncode == 0
